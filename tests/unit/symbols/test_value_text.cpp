// Values as text (symbolize/values.h has the types): what they are in C++ says how they must be shown.
#include "symbols/value_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "debug_information.h"
#include "support/made_up_memory.h"
#include "symbolize/values.h"

namespace windlass::symbols {
namespace {

using namespace test::values;

constexpr std::uint64_t kTexts = 0x10000;
constexpr std::size_t kTextBytes = 0x1000;

class Values : public testing::Test {
 protected:
  Dwarf_Die type(const std::string& variable) {
    const auto found = debug_.variables().find(variable);
    Dwarf_Die type{};
    if (found == debug_.variables().end() || !type_of(&found->second, type)) ADD_FAILURE() << "no type of " << variable;
    return type;
  }
  std::string text_of_bytes(const std::string& variable, ByteView bytes, unsigned word_size = 8) {
    EntryBudget budget(10'000);
    return ValueText(memory_, word_size, budget).value(type(variable), bytes);
  }
  template <typename T>
  std::string text(const std::string& variable, const T& value) {
    EXPECT_EQ(size(variable), sizeof value) << variable;
    return text_of_bytes(variable, ByteView(reinterpret_cast<const std::byte*>(&value), sizeof value));
  }
  std::size_t size(const std::string& variable, unsigned word_size = 8) {
    EntryBudget budget(10'000);
    return ValueText(memory_, word_size, budget).size_of(type(variable));
  }
  std::string name(const std::string& variable) {
    EntryBudget budget(10'000);
    return ValueText(memory_, 8, budget).type_name(type(variable));
  }
  // Puts a string into memory: its value as a char*.
  std::string text_at(std::uint64_t address, std::string_view string, const char* variable = "a_text") {
    memory_.bytes.assign(kTextBytes, 0);
    memory_.put_bytes(address, string);
    return text(variable, address);
  }

  test::DebugInformation debug_{WINDLASS_VALUES};
  test::MadeUpMemory memory_{kTexts, kTextBytes};
};

TEST_F(Values, Integers) {
  EXPECT_EQ(text("a_bool", true), "true");
  EXPECT_EQ(text("a_bool", false), "false");
  EXPECT_EQ(text("a_bool", std::uint8_t{2}), "2") << "neither";
  EXPECT_EQ(text("a_char", 'a'), "97 'a'");
  EXPECT_EQ(text("a_char", ' '), "32 ' '");
  EXPECT_EQ(text("a_char", '~'), "126 '~'");
  EXPECT_EQ(text("a_char", '\x7f'), "127");
  EXPECT_EQ(text("a_char", '\x1f'), "31");
  EXPECT_EQ(text("a_signed_char", std::int8_t{-128}), "-128");
  EXPECT_EQ(text("an_unsigned_char", std::uint8_t{200}), "200");
  EXPECT_EQ(text("a_char16", u'x'), "120 'x'");
  EXPECT_EQ(text("a_char32", U'\U0001f600'), "128512");
  EXPECT_EQ(text("a_wide_char", L'x'), "120");
  EXPECT_EQ(text("a_short", std::numeric_limits<short>::min()), "-32768");
  EXPECT_EQ(text("an_unsigned_short", std::numeric_limits<unsigned short>::max()), "65535");
  EXPECT_EQ(text("an_int", -1), "-1");
  EXPECT_EQ(text("an_int", std::numeric_limits<int>::max()), "2147483647");
  EXPECT_EQ(text("an_unsigned", ~0u), "4294967295");
  EXPECT_EQ(text("a_long", std::numeric_limits<long>::min()), "-9223372036854775808");
  EXPECT_EQ(text("an_unsigned_long", ~0ul), "18446744073709551615");
  EXPECT_EQ(text("a_number", 7), "7") << "a typedef";
  EXPECT_EQ(text("a_count", 8), "8") << "behind qualifiers";
}

TEST_F(Values, IntegersOf16Bytes) {
  EXPECT_EQ(text("a_wide", Wide{0}), "0");
  EXPECT_EQ(text("a_wide", Wide{-1}), "-1");
  EXPECT_EQ(text("a_wide", Wide{1} << 64), "18446744073709551616");
  EXPECT_EQ(text("a_wide", Wide{1} << 127), "-170141183460469231731687303715884105728");
  EXPECT_EQ(text("a_wide", ~(Wide{1} << 127)), "170141183460469231731687303715884105727");
  EXPECT_EQ(text("an_unsigned_wide", ~UnsignedWide{0}), "340282366920938463463374607431768211455");
  EXPECT_EQ(text("an_unsigned_wide", UnsignedWide{10}), "10");
}

TEST_F(Values, Floats) {
  EXPECT_EQ(text("a_float", 0.1F), "0.1");
  EXPECT_EQ(text("a_float", -1.5F), "-1.5");
  EXPECT_EQ(text("a_double", 0.1), "0.1");
  EXPECT_EQ(text("a_double", std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(text("a_long_double", 2.5L), "2.5");
  EXPECT_EQ(text("a_complex", std::uint64_t{0}), "<complex float>") << "not shown";
}

TEST_F(Values, Enumerators) {
  EXPECT_EQ(text("a_plain", kTwo), "kTwo");
  EXPECT_EQ(text("a_plain", 3u), "3") << "none";
  EXPECT_EQ(text("a_plain", ~0u), "4294967295");
  EXPECT_EQ(text("a_signed", kMinus), "kMinus");
  EXPECT_EQ(text("a_signed", kPlus), "kPlus");
  EXPECT_EQ(text("a_signed", short{-4}), "-4");
  EXPECT_EQ(text("a_small", Small::kHigh), "kHigh");
  EXPECT_EQ(text("a_small", Small::kLow), "kLow");
  EXPECT_EQ(text("a_small", std::uint8_t{254}), "254");
}

TEST_F(Values, Structures) {
  EXPECT_EQ(text("a_point", Point{-1, 2}), "{x = -1, y = 2}");
  EXPECT_EQ(text("a_nested", Nested{{1, 2}, nullptr, {3, 4}}),
            "{first = {x = 1, y = 2}, text = 0x0, second = {x = 3, y = 4}}");
  Derived derived{};
  derived.base = 5;
  derived.own = 6;
  EXPECT_EQ(text("a_derived", derived), "{<Base> = {base = 5}, own = 6}")
      << "without the empty class and the static member";
  EXPECT_EQ(text("an_either", Either{.number = 0x04030201}), "{number = 67305985, bytes = \"\\x01\\x02\\x03\\x04\"}");
  Anonymous anonymous{};
  anonymous.before = 1;
  anonymous.a = 2;
  EXPECT_EQ(text("an_anonymous", anonymous).substr(0, 19), "{before = 1, {a = 2");
  EXPECT_EQ(text("a_member", Member{{}, 3}), "{empty = {}, number = 3}");
  EXPECT_EQ(text("an_empty", Empty{}), "{}");
}

TEST_F(Values, BitFields) {
  for (const int middle : {-16, -1, 0, 15}) {
    for (const unsigned low : {0u, 5u, 7u}) {
      for (const long wide : {0L, 1L, -1L, -(1L << 39), (1L << 39) - 1}) {
        const Bits bits{low, middle, 0xabcdef, true, wide};
        EXPECT_EQ(text("a_bits", bits), "{low = " + std::to_string(low) + ", middle = " + std::to_string(middle) +
                                            ", high = 11259375, flag = true, wide = " + std::to_string(wide) + "}");
      }
    }
  }
}

TEST_F(Values, AreBounded) {
  const Many many{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
  EXPECT_TRUE(text("a_many", many).ends_with("p = 16, ...}")) << text("a_many", many);
  const Sixteen sixteen{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  EXPECT_TRUE(text("a_sixteen", sixteen).ends_with("o = 15, p = 16}"));
  EXPECT_EQ(text("a_deep6", Deep6{{{{{{7}}}}}}), "{in = {in = {in = {in = {in = {end = 7}}}}}}");
  EXPECT_EQ(text("a_deep7", Deep7{{{{{{{7}}}}}}}).find("end"), std::string::npos) << "one too deep";
  EXPECT_EQ(size("large"), 4096u);
  EXPECT_EQ(size("too_large"), 0u);
  for (std::size_t entries = 0; entries < 30; ++entries) {
    EntryBudget budget(entries);
    const Nested nested{{1, 2}, nullptr, {3, 4}};
    const ByteView bytes(reinterpret_cast<const std::byte*>(&nested), sizeof nested);
    const std::string cut = ValueText(memory_, 8, budget).value(type("a_nested"), bytes);
    EXPECT_LE(cut.size(), 100u) << "as far as " << entries << " entries lead";
  }
}

TEST_F(Values, Arrays) {
  EXPECT_EQ(text("an_array", (std::array{1, 2, 3})), "{1, 2, 3}");
  EXPECT_EQ(text("a_matrix", (std::array{1, 2, 3, 4, 5, 6})), "{{1, 2, 3}, {4, 5, 6}}");
  EXPECT_EQ(text("flags", (std::array{true, false, true})), "{true, false, true}");
  EXPECT_EQ(text("eight", (std::array{1, 2, 3, 4, 5, 6, 7, 8})), "{1, 2, 3, 4, 5, 6, 7, 8}");
  EXPECT_EQ(text("nine", (std::array{1, 2, 3, 4, 5, 6, 7, 8, 9})), "{1, 2, 3, 4, 5, 6, 7, 8, ...}");
  EXPECT_EQ(text("points", (std::array{Point{1, 2}, Point{3, 4}})), "{{x = 1, y = 2}, {x = 3, y = 4}}");
  EXPECT_EQ(text("characters", (std::array<char, 8>{'a', '"', '\\', 0, 'x'})), R"("a\"\\")");
  EXPECT_EQ(text("characters", (std::array<char, 8>{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})), R"("abcdefgh")");
  for (const std::size_t length : {199, 200, 201, 300}) {
    char many[300] = {};
    std::memset(many, 'x', length);
    const std::string shown = '"' + std::string(std::min<std::size_t>(length, 200), 'x') + '"';
    EXPECT_EQ(text("many_characters", many), shown + (length > 200 ? "..." : "")) << length;
  }
  EXPECT_EQ(text_of_bytes("open_array", {}), "<int []>");
}

TEST_F(Values, Pointers) {
  EXPECT_EQ(text("a_void_pointer", std::uint64_t{0}), "0x0");
  EXPECT_EQ(text("a_pointer", std::uint64_t{0x1234}), "0x1234");
  EXPECT_EQ(text("a_function", std::uint64_t{0x1234}), "0x1234");
  EXPECT_EQ(size("a_pointer"), 8u);
  EXPECT_EQ(text_of_bytes("a_pointer", ByteView(reinterpret_cast<const std::byte*>("1234"), 4)), "<int *>")
      << "of another size";
}

TEST_F(Values, TextsBehindPointers) {
  EXPECT_EQ(text_at(kTexts + 5, "abc"), "0x10005 \"abc\"");
  EXPECT_EQ(text_at(kTexts + 5, "", "a_text"), "0x10005 \"\"");
  EXPECT_EQ(text_at(kTexts, "a\"b\\c"), R"(0x10000 "a\"b\\c")");
  for (const char* variable : {"an_unsigned_text", "a_constant_text", "a_named_text"})
    EXPECT_EQ(text_at(kTexts, "abc", variable), "0x10000 \"abc\"") << variable;
  for (const char* variable : {"a_pointer", "a_void_pointer", "a_pointer_to_text", "a_pointer_to_bool"})
    EXPECT_EQ(text_at(kTexts, "abc", variable), "0x10000") << variable;
  for (const std::uint64_t at : {kTexts, kTexts + 1, kTexts + 63}) {
    for (const std::size_t length : {1, 62, 63, 64, 65, 127, 128, 199, 200, 201, 255, 256, 300}) {
      const std::string shown = '"' + std::string(std::min<std::size_t>(length, 200), 'x') + '"';
      const std::string found = text_at(at, std::string(length, 'x'));
      EXPECT_EQ(found.substr(found.find(' ') + 1), shown + (length > 200 ? "..." : "")) << length << " at " << at;
    }
  }
  // The memory ends in the middle of the text.
  for (const std::size_t length : {1, 10, 63, 64, 65, 150}) {
    const std::uint64_t at = kTexts + kTextBytes - length;
    const std::string found = text_at(at, std::string(length, 'x'));
    EXPECT_EQ(found.substr(found.find(' ') + 1), '"' + std::string(length, 'x') + "\"...") << length;
  }
  EXPECT_EQ(text("a_text", kTexts - 8), "0xfff8") << "it cannot be read";
  EXPECT_EQ(text("a_text", kTexts + kTextBytes), "0x11000");
}

TEST_F(Values, References) {
  memory_.put(kTexts, -7);
  memory_.put(kTexts + 8, Point{1, 2});
  const std::uint64_t pointers[] = {kTexts, kTexts + 8};
  EXPECT_EQ(text("a_references", pointers), "{number = @0x10000: -7, point = @0x10008: {x = 1, y = 2}}");
  const std::uint64_t nowhere[] = {kTexts - 4, kTexts + kTextBytes};
  EXPECT_EQ(text("a_references", nowhere), "{number = @0xfffc: ?, point = @0x11000: ?}");
}

TEST_F(Values, NamesOfTypes) {
  const std::pair<const char*, const char*> names[] = {
      {"an_int", "int"},
      {"an_unsigned_long", "long unsigned int"},
      {"a_number", "Number"},
      {"a_void_pointer", "void *"},
      {"a_pointer", "int *"},
      {"a_text", "char *"},
      {"an_unsigned_text", "const unsigned char *"},
      {"a_constant_text", "const char * const"},
      {"a_named_text", "Text"},
      {"a_pointer_to_text", "char **"},
      {"a_deep_pointer", "int * const * volatile"},
      {"an_array", "int []"},
      {"a_member_pointer", "int ::*"},
  };
  for (const auto& [variable, expected] : names) EXPECT_EQ(name(variable), expected) << variable;
  EXPECT_TRUE(name("both") == "const volatile int" || name("both") == "volatile const int") << name("both");
  EXPECT_TRUE(name("a_function") == "Function *" || name("a_function") == "int (...)") << name("a_function");
}

// A process of 32 bits has pointers of 4 bytes, where the type does not say.
TEST_F(Values, SizesAreTheTypes) {
  EXPECT_EQ(size("a_point"), sizeof(Point));
  EXPECT_EQ(size("a_matrix"), 24u);
  EXPECT_EQ(size("points"), 16u);
  EXPECT_EQ(size("many_characters"), 300u);
  EXPECT_EQ(size("a_count"), sizeof(int));
  EXPECT_EQ(size("a_wide"), 16u);
}

}  // namespace
}  // namespace windlass::symbols
