#include "runtimes/sbcl/names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/utf8.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::sbcl {
namespace {

constexpr std::uint64_t kNil = 0x50000117;  // SBCL 2.6 puts it anywhere
constexpr std::uint8_t kSymbol = 0x2d, kBaseString = 0xe1, kCharacterString = 0xe5;
constexpr std::size_t kLongestName = 512;
constexpr unsigned kDeepest = 6, kMostObjects = 64;

// Reads objects, and writes them as SBCL's print_entry_name() does (src/runtime/backtrace.c).
class Printer {
 public:
  Printer(const Memory& memory, const Layout& layout, bool header_has_package)
      : memory_(memory), packages_(layout.packages), header_has_package_(header_has_package) {}

  // False: there is something that no name has, or too much of it.
  bool print(std::uint64_t object, unsigned depth = 0) {
    if (++objects_ > kMostObjects || depth > kDeepest || text_.size() > kLongestName) return false;
    if (is_nil(object)) return add("NIL");
    if ((object & 1) == 0) return add(std::to_string(static_cast<std::int64_t>(object) >> 1));
    if ((object & kTagMask) == kListTag) return print_list(object, depth);
    if ((object & kTagMask) != kObjectTag) return false;
    const auto header = word(object - kObjectTag);
    if (!header) return false;
    if (static_cast<std::uint8_t>(*header) == kSymbol) return print_symbol(object - kObjectTag);
    const auto text = string_at(object);
    return text && add('"' + *text + '"');
  }
  std::string take() { return std::move(text_); }

 private:
  std::optional<std::uint64_t> word(std::uint64_t at) const { return read_value<std::uint64_t>(memory_, at); }
  // NIL is a list, too, and its first and its rest are itself.
  bool is_nil(std::uint64_t object) const {
    if (object == kNil) return true;
    if ((object & kTagMask) != kListTag) return false;
    const auto cell = read_value<std::array<std::uint64_t, 2>>(memory_, object - kListTag);
    return cell && (*cell)[0] == object && (*cell)[1] == object;
  }
  bool add(std::string_view text) {
    text_ += text;
    return true;
  }

  bool print_list(std::uint64_t list, unsigned depth) {
    text_ += '(';
    for (bool first = true; !is_nil(list); first = false) {
      std::array<std::uint64_t, 2> cell{};
      if ((list & kTagMask) != kListTag || !memory_.read(list - kListTag, cell.data(), sizeof cell)) return false;
      if (!first) text_ += ' ';
      if (!print(cell[0], depth + 1)) return false;
      list = cell[1];
    }
    return add(")");
  }

  // The number of the package is in the high 16 bits of the name's word, or behind the kind in the header.
  bool print_symbol(std::uint64_t symbol) {
    constexpr std::uint64_t kName = 40;
    constexpr int kPackageShift = 48;
    const auto name = word(symbol + kName);
    const auto text = name ? string_at(*name & ((std::uint64_t{1} << kPackageShift) - 1)) : std::nullopt;
    if (!text) return false;
    const std::uint64_t number = header_has_package_ ? word(symbol).value_or(0) >> 8 & 0xffff : *name >> kPackageShift;
    const std::string package = package_name(number);
    if (package == "KEYWORD")
      text_ += ':';
    else if (!package.empty() && package != "COMMON-LISP")
      text_ += package + "::";
    return add(*text);
  }

  std::string package_name(std::uint64_t number) const {
    const auto vector = packages_ != 0 ? word(packages_) : std::nullopt;
    if (!vector || (*vector & kTagMask) != kObjectTag) return {};
    const std::uint64_t at = *vector - kObjectTag;  // a header, twice the number of elements, the elements
    const auto twice = word(at + 8);
    if (!twice || number >= *twice / 2) return {};
    const auto package = word(at + 16 + number * 8);
    if (!package || (*package & kTagMask) != kInstanceTag) return {};
    const auto name = word(*package - kInstanceTag + 8);
    return name ? string_at(*name).value_or("") : std::string();
  }

  // A header, twice the number of characters, the characters: of 1 byte or 4.
  std::optional<std::string> string_at(std::uint64_t object) const {
    if ((object & kTagMask) != kObjectTag) return std::nullopt;
    std::array<std::uint64_t, 2> head{};
    if (!memory_.read(object - kObjectTag, head.data(), sizeof head)) return std::nullopt;
    const auto kind = static_cast<std::uint8_t>(head[0]);
    const std::uint64_t size = head[1] / 2, first = object - kObjectTag + 16;
    if ((kind != kBaseString && kind != kCharacterString) || size > kLongestName) return std::nullopt;
    std::string text;
    if (kind == kBaseString) {
      text.resize(size);
      if (!memory_.read(first, text.data(), size)) return std::nullopt;
      return text;
    }
    std::vector<std::uint32_t> characters(size);
    if (!memory_.read(first, characters.data(), size * 4)) return std::nullopt;
    for (const std::uint32_t character : characters) append_utf8(text, character);
    return text;
  }

  const Memory& memory_;
  std::uint64_t packages_;
  bool header_has_package_;
  std::string text_;
  unsigned objects_ = 0;
};

}  // namespace

std::string name_of(const Memory& memory, const Layout& layout, const Function& function) {
  if (function.name == 0) return {};
  const auto name = read_value<std::uint64_t>(memory, function.name);
  Printer printer(memory, layout, function.is_apart);
  return name && printer.print(*name) ? printer.take() : std::string();
}

}  // namespace windlass::runtimes::sbcl
