#include "runtimes/python/names.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/utf8.h"
#include "runtimes/interpreted_frames.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::python {
namespace {

constexpr std::uint64_t kLongestText = 4096;  // characters
constexpr std::uint64_t kLongestTable = std::uint64_t{4} << 20;
constexpr std::uint32_t kTypeOffset = 8, kLengthOffset = 16, kStateOffset = 32;

// Is there a living object of a type? Where one was freed its memory begins with what the allocator wrote there, or a
// count of 0.
bool is_object(const Memory& memory, const Layout& layout, std::uint64_t at, std::uint64_t type) {
  struct {
    std::uint64_t references;
    std::uint64_t type;
  } head{};
  static_assert(sizeof head == kTypeOffset + 8);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 32;  // immortal ones have 2^32 - 1, or a number like 999,999,999
  if (!memory.read(at, &head, sizeof head) || head.type != type) return false;
  const std::uint64_t references = head.references & ~layout.count_flags;
  return references > 0 && references < kMost;
}

// A string's text: characters of 1, 2 or 4 bytes, behind its head.
std::optional<std::string> read_string(const Memory& memory, const Layout& layout, std::uint64_t at) {
  if (!is_object(memory, layout, at, layout.string_type)) return std::nullopt;
  const auto length = read_value<std::uint64_t>(memory, at + kLengthOffset);
  const auto state = read_value<std::uint32_t>(memory, at + kStateOffset);
  if (!length || !state || *length > kLongestText) return std::nullopt;
  const std::uint32_t kind = *state >> 2 & 7;
  const bool compact = (*state >> 5 & 1) != 0, ascii = (*state >> 6 & 1) != 0;
  if (!compact || (kind != 1 && kind != 2 && kind != 4) || (ascii && kind != 1)) return std::nullopt;
  std::vector<std::uint8_t> bytes(*length * kind);
  if (!memory.read(at + (ascii ? layout.ascii_begin : layout.compact_begin), bytes.data(), bytes.size()))
    return std::nullopt;
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += kind) {
    std::uint32_t character = 0;
    for (std::uint32_t byte = 0; byte < kind; ++byte) character |= std::uint32_t{bytes[i + byte]} << (8 * byte);
    append_utf8(text, character);
  }
  return text;
}

std::optional<std::vector<std::byte>> read_bytes(const Memory& memory, const wl_python& list, std::uint64_t at) {
  const auto size = read_value<std::uint64_t>(memory, at + list.bytes_size);
  if (!size || *size > kLongestTable) return std::nullopt;
  std::vector<std::byte> bytes(*size);
  if (!bytes.empty() && !memory.read(at + list.bytes_begin, bytes.data(), bytes.size())) return std::nullopt;
  return bytes;
}

// The name is that of the code object, unchanged while all of this is read. The code object is the frame's before and
// after, and alive, so it was in between. It holds its strings, so these were alive too.
bool is_of(const Memory& memory, const Layout& layout, const wl_interpreted_frame& frame, std::uint64_t code) {
  return is_object(memory, layout, code, layout.code_type) && is_still(memory, layout.interpreter, frame);
}

// ---- lines ----------------------------------------------------------------------------------------------------------

// Pairs (bytes of code, signed lines); the lines of a pair hold behind its bytes.
std::uint32_t by_lnotab(ByteView table, std::uint32_t line, std::uint32_t place) {
  std::uint32_t address = 0;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    address += table.u8()[i];
    if (address > place) break;
    line += static_cast<std::uint32_t>(static_cast<std::int8_t>(table.u8()[i + 1]));
  }
  return line;
}

// The same, but a pair's lines hold in its bytes; -128: these have no line.
std::uint32_t by_linetable(ByteView table, std::uint32_t line, std::uint32_t place) {
  std::uint32_t address = 0;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    const auto lines = static_cast<std::int8_t>(table.u8()[i + 1]);
    if (lines != -128) line += static_cast<std::uint32_t>(lines);
    address += table.u8()[i];
    if (place < address) return lines == -128 ? 0 : line;
  }
  return 0;
}

// Six bits a byte, the least significant first; bit 6: there is more.
std::uint32_t read_varint(ByteView table, std::size_t at) {
  std::uint32_t value = 0;
  for (unsigned shift = 0; at < table.size() && shift < 32; ++at, shift += 6) {
    const std::uint8_t byte = table.u8()[at];
    value |= std::uint32_t{byte & 0x3fu} << shift;
    if ((byte & 0x40) == 0) break;
  }
  return value;
}

// Reads the table of Python 3.11 and later. The first byte of each entry, and no other, has its highest bit set. That
// byte holds the entry's kind and its number of instructions.
std::uint32_t by_locations(ByteView table, std::uint32_t line, std::uint32_t place) {
  constexpr unsigned kOneLineFirst = 10, kOneLineLast = 12, kNoColumns = 13, kLong = 14, kNone = 15;
  std::uint32_t address = 0;
  for (std::size_t i = 0; i < table.size();) {
    const std::uint8_t head = table.u8()[i];
    const unsigned code = head >> 3 & 15;
    if (code == kLong || code == kNoColumns) {
      const std::uint32_t lines = read_varint(table, i + 1);
      line += (lines & 1) != 0 ? 0 - (lines >> 1) : lines >> 1;
    } else if (code >= kOneLineFirst && code <= kOneLineLast) {
      line += code - kOneLineFirst;
    }
    address += 2 * ((head & 7u) + 1);
    if (place < address) return code == kNone ? 0 : line;
    for (++i; i < table.size() && (table.u8()[i] & 0x80) == 0;) ++i;
  }
  return 0;
}

}  // namespace

std::uint32_t line_at(Lines lines, ByteView table, std::uint32_t first_line, std::int32_t place) {
  if (place < 0) return first_line;  // the function has not begun
  switch (lines) {
    case Lines::kLnotab: return by_lnotab(table, first_line, static_cast<std::uint32_t>(place));
    case Lines::kLinetable: return by_linetable(table, first_line, static_cast<std::uint32_t>(place) * 2);
    case Lines::kLocations: return by_locations(table, first_line, static_cast<std::uint32_t>(place));
  }
  return 0;
}

Expected<sources::NamedFunction> read_name(const Memory& memory, const Layout& layout,
                                           const wl_interpreted_frame& frame) {
  const std::uint64_t code = frame.code & ~WL_INTERPRETED_LAST;
  const auto gone = [&] { return fail(ErrorCode::kNotFound, "the code object is not there any more", code); };
  if (!is_of(memory, layout, frame, code)) return gone();
  const wl_python& list = layout.interpreter.python;
  const auto pointer = [&](std::uint32_t offset) {
    return read_value<std::uint64_t>(memory, code + offset).value_or(0);
  };
  const auto name =
      read_string(memory, layout, pointer(layout.code_qualname != 0 ? layout.code_qualname : list.code_name));
  const auto file = read_string(memory, layout, pointer(list.code_file));
  const auto table = read_bytes(memory, list, pointer(list.code_lines));
  const auto first_line = read_value<std::uint32_t>(memory, code + layout.code_line);
  if (!name || !is_of(memory, layout, frame, code)) return gone();
  sources::NamedFunction function{.name = *name, .file = file.value_or("")};
  if (table && first_line)
    function.line = line_at(layout.lines, ByteView(table->data(), table->size()), *first_line,
                            static_cast<std::int32_t>(frame.place));
  return function;
}

}  // namespace windlass::runtimes::python
