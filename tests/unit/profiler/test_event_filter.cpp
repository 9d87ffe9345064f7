#include "profiler/kernel/event_filter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace windlass::profiler {
namespace {

constexpr std::string_view kFormat =
    "name: example\nID: 372\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
    "\n"
    "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
    "\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n"
    "\tfield:unsigned char flag;\toffset:28;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned long addr;\toffset:32;\tsize:8;\tsigned:0;\n"
    "\tfield:long args[6];\toffset:40;\tsize:48;\tsigned:1;\n"
    "\tfield:__data_loc char[] name;\toffset:88;\tsize:4;\tsigned:0;\n"
    "\tfield:__rel_loc char[] path;\toffset:92;\tsize:4;\tsigned:0;\n"
    "\tfield:broken\n"
    "\nprint fmt: \"field:int x; offset:1;\"\n";

TEST(RecordFields, AreThoseOfTheFormat) {
  const std::vector<RecordField> fields = record_fields(kFormat);
  ASSERT_EQ(fields.size(), 9u);
  const auto is = [&](std::size_t at, const char* name, std::optional<wl_field_kind> kind) {
    EXPECT_EQ(fields[at].name, name);
    EXPECT_EQ(fields[at].kind, kind) << name;
  };
  is(0, "common_type", std::nullopt);
  is(1, "common_pid", std::nullopt);
  is(2, "comm", WL_FIELD_TEXT);
  is(3, "pid", WL_FIELD_SIGNED);
  is(4, "flag", WL_FIELD_UNSIGNED);
  is(5, "addr", WL_FIELD_UNSIGNED);
  is(6, "args", std::nullopt);
  is(7, "name", WL_FIELD_TEXT_AT);
  is(8, "path", WL_FIELD_TEXT_BEHIND);
  EXPECT_EQ(fields[5].offset, 32u);
  EXPECT_EQ(fields[5].size, 8u);
}

// What the kernel side does with the conditions, over a record that has these values.
struct Record {
  std::string comm = "make";
  std::int32_t pid = -7;
  std::uint8_t flag = 200;
  std::uint64_t addr = 0xffff'8000'0000'0000;
};

bool holds(const wl_condition& c, const Record& record) {
  const auto text_is = [&](const std::string& text) {
    char padded[WL_MAX_CONDITION_TEXT] = {};
    std::memcpy(padded, text.data(), text.size());
    return std::memcmp(padded, c.value, sizeof padded) == 0;
  };
  const auto compares = [&](auto number, auto value) {
    switch (c.comparison) {
      case WL_EQUAL: return number == value;
      case WL_LESS: return number < value;
      case WL_AT_MOST: return number <= value;
      default: return (number & value) != 0;
    }
  };
  switch (c.offset) {
    case 8: return text_is(record.comm);
    case 24: return compares(std::int64_t{record.pid}, static_cast<std::int64_t>(c.value[0]));
    case 28: return compares(std::uint64_t{record.flag}, std::uint64_t{c.value[0]});
    case 32: return compares(record.addr, std::uint64_t{c.value[0]});
    default: ADD_FAILURE() << c.offset; return false;
  }
}

bool passes(const std::string& text, const Record& record = {}) {
  const auto conditions = compile_event_filter(text, record_fields(kFormat));
  EXPECT_TRUE(conditions.has_value()) << text << ": " << (conditions ? "" : conditions.error());
  if (!conditions) return false;
  unsigned next = 0, steps = 0;
  for (; next < conditions->count && steps < WL_MAX_CONDITIONS; ++steps) {
    const wl_condition& condition = conditions->of[next];
    const unsigned then = holds(condition, record) ? condition.if_true : condition.if_false;
    EXPECT_GT(then, next) << text;  // so it ends
    next = then;
  }
  EXPECT_TRUE(next == WL_CONDITION_PASS || next == WL_CONDITION_LEAVE_OUT) << text;
  return next == WL_CONDITION_PASS;
}

TEST(EventFilter, ComparesNumbersBySign) {
  EXPECT_TRUE(passes("pid == -7"));
  EXPECT_FALSE(passes("pid != -7"));
  EXPECT_TRUE(passes("pid < 0"));
  EXPECT_TRUE(passes("pid <= -7"));
  EXPECT_TRUE(passes("pid>=-7"));
  EXPECT_FALSE(passes("pid > -7"));
  EXPECT_TRUE(passes("addr > 0x7fffffffffffffff"));
  EXPECT_FALSE(passes("addr < 5"));
  EXPECT_TRUE(passes("flag & 0x80"));
  EXPECT_FALSE(passes("flag & 7"));
  EXPECT_TRUE(passes("flag == 200"));
}

TEST(EventFilter, ComparesTexts) {
  EXPECT_TRUE(passes(R"(comm == "make")"));
  EXPECT_FALSE(passes(R"(comm == "mak")"));
  EXPECT_FALSE(passes(R"(comm == "make2")"));
  EXPECT_TRUE(passes(R"(comm != "")"));
}

// && binds more than ||, and a parenthesis more than both. Each expression is compared with C++'s own value.
TEST(EventFilter, JoinsAsCDoes) {
  for (unsigned bits = 0; bits < 8; ++bits) {
    const bool a = (bits & 1) != 0, b = (bits & 2) != 0, c = (bits & 4) != 0;
    const Record record{.comm = c ? "c" : "other", .pid = a ? 1 : 0, .flag = static_cast<std::uint8_t>(b ? 1 : 0)};
    const std::string A = "pid == 1", B = "flag == 1", C = R"(comm == "c")";
    EXPECT_EQ(passes(A + "||" + B + "&&" + C, record), a || (b && c)) << bits;
    EXPECT_EQ(passes(A + " && " + B + " || " + C, record), (a && b) || c) << bits;
    EXPECT_EQ(passes("(" + A + " || " + B + ") && " + C, record), (a || b) && c) << bits;
    EXPECT_EQ(passes("!(" + A + " && " + B + ") || " + C, record), !(a && b) || c) << bits;
    EXPECT_EQ(passes("!(!(" + A + ") && (" + B + " || !(" + C + ")))", record), !(!a && (b || !c))) << bits;
    EXPECT_EQ(passes("flag != 1 && pid != 1 && !(" + C + ")", record), !b && !a && !c) << bits;
  }
}

TEST(EventFilter, WhatIsNoneIsRefused) {
  const std::vector<RecordField> fields = record_fields(kFormat);
  std::string many = "pid == 0";
  for (unsigned i = 0; i < WL_MAX_CONDITIONS; ++i) many += " && pid == 0";
  for (const std::string& text : {std::string(),
                                  std::string("pid"),
                                  std::string("pid =="),
                                  std::string("pid == x"),
                                  std::string("pid == 0x"),
                                  std::string("pid == 5 5"),
                                  std::string("pid == 5 &&"),
                                  std::string("pid && flag"),
                                  std::string("(pid == 5"),
                                  std::string("pid == 5)"),
                                  std::string("!pid == 5"),
                                  std::string("none == 5"),
                                  std::string("common_pid == 5"),
                                  std::string("args == 5"),
                                  std::string("comm < \"a\""),
                                  std::string("comm == a"),
                                  std::string("comm == \"a"),
                                  std::string("flag == 256"),
                                  std::string("flag == -1"),
                                  std::string("pid == 2147483648"),
                                  std::string("pid == -2147483649"),
                                  std::string("addr == 18446744073709551616"),
                                  "comm == \"" + std::string(WL_MAX_CONDITION_TEXT, 'a') + "\"",
                                  many,
                                  std::string(10'000, '('),
                                  std::string("pid = 5")}) {
    const auto conditions = compile_event_filter(text, fields);
    EXPECT_FALSE(conditions.has_value()) << text;
    const std::string why = conditions ? std::string() : conditions.error();
    EXPECT_NE(why.find("Way out: "), std::string::npos) << text << ": " << why;
  }
  EXPECT_TRUE(compile_event_filter("pid == -2147483648 || addr == 18446744073709551615", fields).has_value());
}

}  // namespace
}  // namespace windlass::profiler
