#include "runtimes/ruby/names.h"

#include <bit>
#include <optional>
#include <string>

#include "runtimes/interpreted_frames.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::ruby {
namespace {

constexpr std::uint64_t kLongestText = 4096;

// ---- objects --------------------------------------------------------------------------------------------------------

constexpr std::uint64_t kTypeMask = 0x1f, kString = 5, kArray = 7;
constexpr std::uint64_t kUser1 = std::uint64_t{1} << 13;  // a string is not embedded; an array is
constexpr std::uint32_t kBegin = 16;                      // of an embedded array's elements
constexpr std::uint64_t kNil = 8;

std::uint64_t word(const Memory& memory, std::uint64_t address) {
  return read_value<std::uint64_t>(memory, address).value_or(0);
}

struct Head {
  std::uint64_t flags, klass, length, pointer_or_capacity, array;
};

std::optional<std::string> read_string(const Memory& memory, const Layout& layout, std::uint64_t at) {
  const auto head = read_value<Head>(memory, at);
  if (!head || (head->flags & kTypeMask) != kString) return std::nullopt;
  const bool embedded = (head->flags & kUser1) == 0;
  const std::uint32_t begin = layout.interpreter.ruby.string_begin;
  const bool has_length = !embedded || begin > WL_RUBY_STRING_LENGTH;
  const std::uint64_t length = has_length ? head->length : head->flags >> 14 & 0x1f;
  if (length > kLongestText) return std::nullopt;
  std::string text(length, '\0');
  if (!memory.read(embedded ? at + begin : head->pointer_or_capacity, text.data(), text.size())) return std::nullopt;
  return text;
}

// 0: there is none.
std::uint64_t element_of(const Memory& memory, std::uint64_t at, std::uint64_t index) {
  const auto head = read_value<Head>(memory, at);
  if (!head || (head->flags & kTypeMask) != kArray) return 0;
  const bool embedded = (head->flags & kUser1) != 0;
  if (index >= (embedded ? head->flags >> 15 & 3 : head->length)) return 0;
  const std::uint64_t found = word(memory, (embedded ? at + kBegin : head->array) + index * 8);
  return found == kNil ? 0 : found;
}

// ---- methods written in C -------------------------------------------------------------------------------------------

constexpr std::uint32_t kDefinition = 16;  // in a method entry
constexpr std::uint32_t kOriginalId = 32;  // in a definition
constexpr std::uint32_t kStringsOfSymbols = 16;
constexpr std::uint64_t kLastOperator = 255, kScopeBits = 4;  // it is 169 in 3.1; others begin far above
constexpr std::uint64_t kIdsOfAnArray = 512;                  // each with two words, of which the first is the string

std::optional<std::string> name_of_id(const Memory& memory, const Layout& layout, std::uint64_t id) {
  const std::uint64_t number = id > kLastOperator ? id >> kScopeBits : id;
  const std::uint64_t arrays = word(memory, layout.symbols + kStringsOfSymbols);
  const std::uint64_t array = element_of(memory, arrays, number / kIdsOfAnArray);
  return read_string(memory, layout, element_of(memory, array, number % kIdsOfAnArray * 2));
}

std::optional<sources::NamedFunction> name_of_method(const Memory& memory, const Layout& layout, std::uint64_t method) {
  auto name = name_of_id(memory, layout, word(memory, word(memory, method + kDefinition) + kOriginalId));
  if (!name) return std::nullopt;
  return sources::NamedFunction{.name = std::move(*name), .file = "<cfunc>"};
}

// ---- sequences of instructions --------------------------------------------------------------------------------------

// Of rb_iseq_constant_body, from its first byte on.
struct Body {
  std::uint32_t type, size;
  std::uint64_t encoded, parameters[6], path, base_label, label;
};
// Further behind.
struct Lines {
  std::uint64_t lines, positions;
  std::uint32_t count, reserved;
  std::uint64_t index;
};

// The number of entries of the line table that begin at or before a position, in a succinct bit vector. Positions below
// 54 have their numbers in words of nine positions each. Positions above lie in blocks of 512. A block has the number
// before it, the numbers before each of its eight words, and the bits.
std::optional<std::uint64_t> rank_of(const Memory& memory, std::uint64_t index, std::uint64_t position) {
  constexpr std::uint64_t kImmediate = 54, kWords = kImmediate / 9, kBlock = 512;
  if (position < kImmediate) {
    const auto ranks = read_value<std::uint64_t>(memory, index + position / 9 * 8);
    if (!ranks) return std::nullopt;
    return *ranks >> (position % 9 * 7) & 0x7f;
  }
  struct Block {
    std::uint32_t rank, reserved;
    std::uint64_t small, bits[8];
  };
  const std::uint64_t above = position - kImmediate, bit = above % kBlock, part = bit / 64;
  const auto block = read_value<Block>(memory, index + kWords * 8 + above / kBlock * sizeof(Block));
  if (!block) return std::nullopt;
  const std::uint64_t before = part == 0 ? 0 : block->small >> ((part - 1) * 9) & 0x1ff;
  return block->rank + before + static_cast<std::uint64_t>(std::popcount(block->bits[part] << (63 - bit % 64)));
}

// The line of an instruction: where a frame is stands behind the one that it is in.
std::uint32_t line_at(const Memory& memory, const Lines& table, std::uint32_t place) {
  constexpr std::uint32_t kLineEntry = 12;
  if (table.count == 0) return 0;
  std::uint64_t entry = 0;
  if (table.count > 1) {
    const auto rank = rank_of(memory, table.index, place == 0 ? 0 : place - 1);
    if (!rank || *rank == 0 || *rank > table.count) return 0;
    entry = *rank - 1;
  }
  return read_value<std::uint32_t>(memory, table.lines + entry * kLineEntry).value_or(0);
}

// A path is a string, or an array of the path and the real path.
std::optional<std::string> read_path(const Memory& memory, const Layout& layout, std::uint64_t at) {
  if (auto path = read_string(memory, layout, at)) return path;
  return read_string(memory, layout, element_of(memory, at, 0));
}

std::optional<sources::NamedFunction> name_of_iseq(const Memory& memory, const Layout& layout, std::uint64_t iseq,
                                                   std::uint32_t place) {
  constexpr std::uint32_t kBody = 16;
  const std::uint64_t at = word(memory, iseq + kBody);
  const auto body = read_value<Body>(memory, at);
  const auto lines = read_value<Lines>(memory, at + layout.lines);
  if (!body || !lines) return std::nullopt;
  auto label = read_string(memory, layout, body->label);
  if (!label) return std::nullopt;
  return sources::NamedFunction{.name = std::move(*label),
                                .file = read_path(memory, layout, body->path).value_or(""),
                                .line = line_at(memory, *lines, place)};
}

}  // namespace

Expected<sources::NamedFunction> read_name(const Memory& memory, const Layout& layout,
                                           const wl_interpreted_frame& frame) {
  const std::uint64_t code = frame.code & ~WL_INTERPRETED_LAST;
  const auto gone = [&] { return fail(ErrorCode::kNotFound, "what the frame ran is not there any more", code); };
  if (!is_still(memory, layout.interpreter, frame)) return gone();
  auto function = frame.place == WL_NO_PLACE ? name_of_method(memory, layout, code)
                                             : name_of_iseq(memory, layout, code, frame.place);
  if (!function || !is_still(memory, layout.interpreter, frame)) return gone();
  return std::move(*function);
}

}  // namespace windlass::runtimes::ruby
