#include "cli/top_terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string_view>
#include <utility>

#define NCURSES_WIDECHAR 1
#define NCURSES_NOMACROS 1
#include <ncurses.h>

#include <fmt/format.h>

#include "base/utf8.h"
#include "cli/terminal_description.h"

namespace windlass::cli {
namespace {

using exporter::TopKey;
using exporter::TopStyle;

constexpr int kEscapeDelay = 25;  // ms, in which the rest of a key's sequence comes

enum Pair : short { kRedPair = 1, kYellowPair, kCyanPair, kMagentaPair };

attr_t attribute_of(TopStyle style, bool colours) {
  const auto colour = [colours](Pair pair, attr_t without) {
    return colours ? static_cast<attr_t>(COLOR_PAIR(pair)) : without;
  };
  switch (style) {
    case TopStyle::kPlain: return A_NORMAL;
    case TopStyle::kBold: return A_BOLD;
    case TopStyle::kDim: return colours ? A_DIM : A_NORMAL;
    case TopStyle::kHot: return colour(kRedPair, A_BOLD);
    case TopStyle::kWarm: return colour(kYellowPair, A_NORMAL);
    case TopStyle::kKernel: return colour(kCyanPair, A_NORMAL);
    case TopStyle::kTruncated: return colour(kMagentaPair, A_NORMAL);
  }
  return A_NORMAL;
}

std::string utf8_of(wchar_t code) {
  char text[MB_LEN_MAX + 1] = {};
  std::mbstate_t state{};
  const std::size_t size = std::wcrtomb(text, code, &state);
  return size == static_cast<std::size_t>(-1) ? std::string() : std::string(text, size);
}

std::optional<TopKey> function_key(wint_t code) {
  switch (code) {
    case KEY_UP: return TopKey{TopKey::Kind::kUp};
    case KEY_DOWN: return TopKey{TopKey::Kind::kDown};
    case KEY_LEFT: return TopKey{TopKey::Kind::kLeft};
    case KEY_RIGHT: return TopKey{TopKey::Kind::kRight};
    case KEY_PPAGE: return TopKey{TopKey::Kind::kPageUp};
    case KEY_NPAGE: return TopKey{TopKey::Kind::kPageDown};
    case KEY_HOME: return TopKey{TopKey::Kind::kHome};
    case KEY_END: return TopKey{TopKey::Kind::kEnd};
    case KEY_ENTER: return TopKey{TopKey::Kind::kEnter};
    case KEY_BACKSPACE: return TopKey{TopKey::Kind::kBackspace};
    default: return std::nullopt;
  }
}

std::optional<TopKey> character_key(wint_t code) {
  switch (code) {
    case L'\n':
    case L'\r': return TopKey{TopKey::Kind::kEnter};
    case L'\t': return TopKey{TopKey::Kind::kTab};
    case 0x1b: return TopKey{TopKey::Kind::kEscape};
    case 0x7f:
    case L'\b': return TopKey{TopKey::Kind::kBackspace};
    default: break;
  }
  if (is_hidden(static_cast<char32_t>(code))) return std::nullopt;
  const std::string text = utf8_of(static_cast<wchar_t>(code));
  return text.empty() ? std::nullopt : std::optional(TopKey{TopKey::Kind::kText, text});
}

}  // namespace

std::expected<TopTerminal, std::string> TopTerminal::open() {
  std::setlocale(LC_CTYPE, "");
  std::signal(SIGTSTP, SIG_IGN);  // the recording would stop with it
  const char* name = std::getenv("TERM");
  bool is_open = newterm(nullptr, stdout, stdin) != nullptr;
  if (!is_open) {
    setenv("TERMINFO", terminal_description().c_str(), 1);
    is_open = newterm(kOwnTerminal, stdout, stdin) != nullptr;
  }
  if (!is_open || tigetstr("cup") == nullptr) {
    if (is_open) endwin();
    return std::unexpected(fmt::format("the terminal '{}' (TERM) cannot place text. Way out: print text with --batch",
                                       name != nullptr ? name : ""));
  }
  TopTerminal terminal;
  terminal.open_ = true;
  terminal.utf8_ = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  set_escdelay(kEscapeDelay);
  cbreak();
  noecho();
  nonl();
  nodelay(stdscr, TRUE);
  keypad(stdscr, TRUE);
  curs_set(0);
  const char* no_colour = std::getenv("NO_COLOR");  // no-color.org
  terminal.colours_ = (no_colour == nullptr || *no_colour == '\0') && has_colors() && start_color() == OK;
  if (terminal.colours_) {
    use_default_colors();
    init_pair(kRedPair, COLOR_RED, -1);
    init_pair(kYellowPair, COLOR_YELLOW, -1);
    init_pair(kCyanPair, COLOR_CYAN, -1);
    init_pair(kMagentaPair, COLOR_MAGENTA, -1);
  }
  return terminal;
}

TopTerminal::TopTerminal(TopTerminal&& other) noexcept
    : open_(std::exchange(other.open_, false)), colours_(other.colours_), utf8_(other.utf8_) {}

TopTerminal::~TopTerminal() {
  if (open_) endwin();
}

std::size_t TopTerminal::width() const { return static_cast<std::size_t>(std::max(getmaxx(stdscr), 1)); }
std::size_t TopTerminal::height() const { return static_cast<std::size_t>(std::max(getmaxy(stdscr), 1)); }

void TopTerminal::resize() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row != 0 && size.ws_col != 0)
    resizeterm(size.ws_row, size.ws_col);
}

std::optional<TopKey> TopTerminal::next_key() {
  wint_t code = 0;
  for (int kind; (kind = get_wch(&code)) != ERR;)
    if (const auto key = kind == KEY_CODE_YES ? function_key(code) : character_key(code)) return key;
  return std::nullopt;
}

// From `column` on, as far as the line goes. A character may take two columns.
void TopTerminal::draw_text(const std::string& text, std::size_t& column) const {
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Character next = utf8_character(rest);
    rest.remove_prefix(std::max<std::size_t>(next.length, 1));
    const bool is_ascii = next.length == 1;
    wchar_t shown[2] = {is_ascii || (utf8_ && next.length != 0) ? static_cast<wchar_t>(next.code) : L'?', L'\0'};
    const int columns = is_ascii || !utf8_ ? 1 : wcwidth(shown[0]);
    if (columns <= 0) continue;  // a mark on the character before
    column += static_cast<std::size_t>(columns);
    if (column > width()) return;
    addnwstr(shown, 1);
  }
}

void TopTerminal::draw(std::span<const exporter::TopLine> lines) {
  erase();
  for (std::size_t row = 0; row < lines.size() && row < height(); ++row) {
    move(static_cast<int>(row), 0);
    std::size_t column = 0;
    const attr_t chosen = lines[row].is_selected ? A_REVERSE : A_NORMAL;
    for (const exporter::TopSpan& span : lines[row].spans) {
      attrset(static_cast<int>(attribute_of(span.style, colours_) | chosen));
      draw_text(span.text, column);
    }
    for (; lines[row].is_selected && column < width(); ++column) addch(' ' | A_REVERSE);
  }
  attrset(A_NORMAL);
  refresh();
}

}  // namespace windlass::cli
