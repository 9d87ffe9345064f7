// What exported functions that only load something say of a structure, by their code.
#include "runtimes/accessor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace windlass::runtimes {
namespace {

constexpr std::uint64_t kAt = 0x1000;

class Bytes final : public Memory {
 public:
  explicit Bytes(std::vector<std::uint8_t> code) : code_(std::move(code)) { code_.resize(32, 0xcc); }
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (address < kAt || address - kAt + size > code_.size()) return false;
    std::memcpy(to, code_.data() + (address - kAt), size);
    return true;
  }

 private:
  std::vector<std::uint8_t> code_;
};

std::uint32_t field(std::vector<std::uint8_t> code) {
  const auto found = field_of_accessor(Bytes(std::move(code)), kAt);
  return found ? *found : ~0U;
}

TEST(Accessor, SaysTheFieldThatItLoads) {
  EXPECT_EQ(field({0x48, 0x8b, 0x47, 0x10, 0xc3}), 0x10U);                    // mov rax, [rdi + 0x10]; ret
  EXPECT_EQ(field({0x8b, 0x47, 0x1c, 0xc3}), 0x1cU);                          // mov eax, [rdi + 0x1c]
  EXPECT_EQ(field({0x48, 0x8b, 0x07, 0xc3}), 0U);                             // mov rax, [rdi]
  EXPECT_EQ(field({0x48, 0x8b, 0x87, 0x48, 1, 0, 0, 0xc3}), 0x148U);          // mov rax, [rdi + 0x148]
  EXPECT_EQ(field({0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8b, 0x47, 8, 0xc3}), 8U);  // endbr64 in front
}

TEST(Accessor, SaysTheVariableThatItLoads) {
  const auto found = variable_of_accessor(Bytes({0x48, 0x8b, 0x05, 0xf9, 0xff, 0, 0, 0xc3}), kAt);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(*found, kAt + 7 + 0xfff9);
}

TEST(Accessor, IsNoOtherFunction) {
  EXPECT_EQ(field({0x48, 0x8b, 0x47, 0x10, 0x90}), ~0U);        // does not return at once
  EXPECT_EQ(field({0x48, 0x8b, 0x46, 0x10, 0xc3}), ~0U);        // from rsi
  EXPECT_EQ(field({0x48, 0x8b, 0x47, 0xf0, 0xc3}), ~0U);        // in front of the structure
  EXPECT_EQ(field({0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3}), ~0U);  // a variable
  EXPECT_EQ(field({0x31, 0xc0, 0xc3}), ~0U);
  EXPECT_EQ(field_of_accessor(Bytes({}), 0x10).error().code, ErrorCode::kUnreadable);
  EXPECT_EQ(variable_of_accessor(Bytes({0x48, 0x8b, 0x47, 0x10, 0xc3}), kAt).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass::runtimes
