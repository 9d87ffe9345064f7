#include "windlass/error.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace windlass {
namespace {

struct Base {
  virtual ~Base() = default;
};
struct Derived : Base {};

// Counts the instances that are alive.
struct Counted {
  explicit Counted(int& of) : count(&of) { ++*count; }
  Counted(const Counted& other) : count(other.count) { ++*count; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { --*count; }
  int* count;
};

constexpr Expected<int> kFive = 5;
static_assert(kFive && *kFive == 5 && kFive.value_or(6) == 5);
constexpr Expected<int> kNone = fail(ErrorCode::kLimit, "none", 7);
static_assert(!kNone && kNone.error().where == 7 && kNone.value_or(6) == 6);
static_assert(!Expected<void>(fail(ErrorCode::kLimit, "none", 7)) && Expected<void>());

// An Expected is copied, moved and destroyed as its value is.
static_assert(std::is_trivially_copyable_v<Expected<int>> && std::is_trivially_copyable_v<Expected<void>>);
static_assert(std::is_copy_constructible_v<Expected<std::string>> && std::is_copy_assignable_v<Expected<std::string>>);
static_assert(std::is_nothrow_move_constructible_v<Expected<std::string>>);
static_assert(!std::is_copy_constructible_v<Expected<std::unique_ptr<int>>>);
static_assert(std::is_move_assignable_v<Expected<std::unique_ptr<int>>>);
// It is made of whatever its value is made of, explicitly where the value is. A Failure is not a value.
static_assert(std::is_convertible_v<const char*, Expected<std::string>>);
static_assert(!std::is_convertible_v<int, Expected<std::vector<int>>>);
static_assert(std::is_constructible_v<Expected<std::vector<int>>, int>);
static_assert(!std::is_convertible_v<Expected<int>, Failure>);
static_assert(!std::is_default_constructible_v<Expected<Counted>>);

TEST(Expected, PassesAnErrorOn) {
  const auto inner = []() -> Expected<int> { return fail(ErrorCode::kUnreadable, "no memory", 0x10, 3); };
  const auto outer = [&]() -> Expected<std::string> {
    const auto value = inner();
    if (!value) return Failure(value.error());
    return std::to_string(*value);
  };
  ASSERT_FALSE(outer().has_value());
  EXPECT_EQ(outer().error().text(), "0x10: no memory (0x3)");
}

TEST(Expected, HoldsWhatCannotBeCopied) {
  Expected<std::unique_ptr<int>> held = std::make_unique<int>(4);
  Expected<std::unique_ptr<int>> other = fail(ErrorCode::kLimit, "none", 1);
  other = std::move(held);
  ASSERT_TRUE(other);
  EXPECT_EQ(**other, 4);
  const std::unique_ptr<int> taken = *std::move(other);
  EXPECT_EQ(*taken, 4);
}

TEST(Expected, TakesAPointerToADerivedClass) {
  Expected<std::shared_ptr<Base>> base = Expected<std::shared_ptr<Derived>>(std::make_shared<Derived>());
  ASSERT_TRUE(base);
  EXPECT_NE(*base, nullptr);
  base = Expected<std::shared_ptr<Derived>>(fail(ErrorCode::kLimit, "none", 9));
  ASSERT_FALSE(base);
  EXPECT_EQ(base.error().where, 9u);
}

TEST(Expected, EveryValueEndsOnce) {
  int alive = 0;
  {
    Expected<Counted> first = Counted(alive);
    Expected<Counted> second = first;
    EXPECT_EQ(alive, 2);
    second = fail(ErrorCode::kLimit, "none", 1);
    EXPECT_EQ(alive, 1);
    second = first;
    second = *&second;
    EXPECT_EQ(alive, 2);
    first = std::move(second);
    EXPECT_EQ(alive, 2);
    std::vector<Expected<Counted>> many(10, first);
    many.resize(5, first);
    EXPECT_EQ(alive, 7);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Expected, AnAssignedErrorReplacesAnother) {
  Expected<std::string> text = fail(ErrorCode::kLimit, "first", 1);
  text = fail(ErrorCode::kMalformed, "second", 2);
  EXPECT_STREQ(text.error().what, "second");
  text = "a text that is too long to stand in the string itself";
  EXPECT_EQ(text->size(), 53u);
  text = {};
  EXPECT_EQ(*text, "");
}

TEST(ExpectedDeathTest, TheValueOfAnErrorEndsTheProgram) {
  const Expected<int> none = fail(ErrorCode::kNotFound, "no row", 0x1234);
  EXPECT_DEATH(static_cast<void>(none.value()), "0x1234: no row");
  EXPECT_DEATH(Expected<void>(fail(ErrorCode::kNotFound, "no row", 0x1234)).value(), "0x1234: no row");
}

}  // namespace
}  // namespace windlass
