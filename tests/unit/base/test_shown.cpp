// Text of others as people and programs get it: every character and every byte.
#include "base/shown.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/shown_format.h"
#include "base/text_writer.h"
#include "base/utf8.h"
#include "support/hostile_text.h"

namespace windlass {
namespace {

std::string utf8(std::uint32_t code) {
  const auto tail = [&](unsigned shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

// One writer for all: its buffer is large, and a million of them take a sanitizer minutes.
std::string json_of(const std::string& text) {
  static std::string written;
  static TextWriter writer(&written);
  written.clear();
  writer.json_string(text);
  writer.flush();
  return written;
}

TEST(Shown, SaysWhatWasThere) {
  EXPECT_EQ(shown("plain \\ \"text\" <T>, caf\u00e9 \u4e2d \U0001f600"),
            "plain \\ \"text\" <T>, caf\u00e9 \u4e2d \U0001f600");
  EXPECT_EQ(shown("a\x1b]0;x\x07\n\t\x7f"), "a\\x1b]0;x\\x07\\x0a\\x09\\x7f");
  EXPECT_EQ(shown("\xc2\x9b\xe2\x80\xae\xf3\xa0\x81\x81"), "\\u{9b}\\u{202e}\\u{e0041}");
  EXPECT_EQ(shown("\x9b\xff\xe2\x80"), "\\x9b\\xff\\xe2\\x80");
  EXPECT_EQ(shown(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(shown_lines("a\n\tb\x1b\n"), "a\n\tb\\x1b\n");
}

TEST(Shown, NoCharacterAndNoPairOfBytesGetsThrough) {
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const std::string character = utf8(code);
    ASSERT_EQ(utf8_character(character).code, code);
    ASSERT_EQ(test::forbidden_in(shown(character)), "") << std::hex << code;
    ASSERT_EQ(test::forbidden_in(json_of(character)), "") << std::hex << code;
    ASSERT_EQ(nlohmann::json::parse(json_of(character)).get<std::string>(), character) << std::hex << code;
    ASSERT_EQ(shown(character) == character, !is_hidden(code)) << std::hex << code;
  }
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      ASSERT_EQ(test::forbidden_in(shown(text)), "") << first << ' ' << second;
      ASSERT_EQ(shown(text).find('\n'), std::string::npos);
      ASSERT_TRUE(nlohmann::json::accept(json_of(text))) << first << ' ' << second;
    }
}

TEST(Shown, AFormatsStringsAreShownAndItsOwnTextIsNot) {
  const std::string name = "x\x1b\n";
  EXPECT_EQ(shown_format("{}\n{:>6}|{}|{}|{}\n", name, "\x07", name.c_str(), std::string_view(name), 7),
            "x\\x1b\\x0a\n  \\x07|x\\x1b\\x0a|x\\x1b\\x0a|7\n");
}

}  // namespace
}  // namespace windlass
