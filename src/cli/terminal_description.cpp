#include "cli/terminal_description.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace windlass::cli {
namespace {

// Places of capabilities in an entry, as term.h of ncurses numbers them for all terminals.
enum Flag : std::size_t { kAutoRightMargin = 1, kEatNewlineGlitch = 4, kFlags };
enum Number : std::size_t { kColumns = 0, kLines = 2, kMaxColors = 13, kMaxPairs = 14, kNumbers };

using Text = std::pair<std::size_t, std::string_view>;
constexpr std::size_t kTexts = 361;
constexpr Text kOwnTexts[] = {
    {2, "\r"},                    // carriage_return
    {5, "\033[H\033[2J"},         // clear_screen
    {6, "\033[K"},                // clr_eol
    {7, "\033[J"},                // clr_eos
    {10, "\033[%i%p1%d;%p2%dH"},  // cursor_address
    {11, "\n"},                   // cursor_down
    {12, "\033[H"},               // cursor_home
    {13, "\033[?25l"},            // cursor_invisible
    {14, "\b"},                   // cursor_left
    {16, "\033[?25h"},            // cursor_normal
    {17, "\033[C"},               // cursor_right
    {19, "\033[A"},               // cursor_up
    {27, "\033[1m"},              // enter_bold_mode
    {28, "\033[?1049h"},          // enter_ca_mode
    {30, "\033[2m"},              // enter_dim_mode
    {34, "\033[7m"},              // enter_reverse_mode
    {39, "\033[m"},               // exit_attribute_mode
    {40, "\033[?1049l"},          // exit_ca_mode
    {55, "\177"},                 // key_backspace
    {61, "\033[B"},               // key_down
    {76, "\033[H"},               // key_home
    {79, "\033[D"},               // key_left
    {81, "\033[6~"},              // key_npage
    {82, "\033[5~"},              // key_ppage
    {83, "\033[C"},               // key_right
    {87, "\033[A"},               // key_up
    {129, "\n"},                  // scroll_forward
    {164, "\033[F"},              // key_end
    {297, "\033[39;49m"},         // orig_pair
    {359, "\033[3%p1%dm"},        // set_a_foreground
    {360, "\033[4%p1%dm"},        // set_a_background
};

void put_short(std::string& entry, std::size_t value) {
  entry += static_cast<char>(value & 0xff);
  entry += static_cast<char>(value >> 8 & 0xff);
}

}  // namespace

std::string terminal_description() {
  constexpr std::size_t kMagic = 0432, kAbsent = 0xffff;
  const std::string names = fmt::format("{}|terminals like xterm", kOwnTerminal) + '\0';
  std::array<std::size_t, kNumbers> numbers{};
  numbers.fill(kAbsent);
  numbers[kColumns] = 80;
  numbers[kLines] = 24;
  numbers[kMaxColors] = 8;
  numbers[kMaxPairs] = 64;
  std::array<std::size_t, kTexts> places{};
  places.fill(kAbsent);
  std::string texts;
  for (const auto& [number, text] : kOwnTexts) {
    places[number] = texts.size();
    texts.append(text) += '\0';
  }
  std::string entry;
  for (const std::size_t part :
       {kMagic, names.size(), std::size_t{kFlags}, std::size_t{kNumbers}, kTexts, texts.size()})
    put_short(entry, part);
  entry += names;
  for (std::size_t flag = 0; flag < kFlags; ++flag)
    entry += static_cast<char>(flag == kAutoRightMargin || flag == kEatNewlineGlitch);
  if (entry.size() % 2 != 0) entry += '\0';
  for (const std::size_t number : numbers) put_short(entry, number);
  for (const std::size_t place : places) put_short(entry, place);
  entry += texts;
  std::string hex = "hex:";
  for (const char byte : entry) hex += fmt::format("{:02X}", static_cast<std::uint8_t>(byte));
  return hex;
}

}  // namespace windlass::cli
