#include "runtimes/v8/code_map.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtimes/needed.h"

namespace windlass::runtimes::v8 {
namespace {

constexpr std::uint32_t kMostHeader = 64;

// Could a word lead to a map? Few instructions look so: objects are aligned, and user memory ends at 1 << 47.
bool may_be_map(Tagged word) { return (word & 7) == 1 && word >> 47 == 0; }

}  // namespace

Expected<CodeMap> CodeMap::make(const ImageFacts& facts) {
  CodeMap map;
  const auto start = facts.field("Code", "instruction_start"), size = facts.field("Code", "instruction_size");
  const auto flags = facts.field("Code", "flags"), stream = facts.field("Code", "instruction_stream");
  const auto unknown = [&] {
    return fail(ErrorCode::kUnsupported, kUnknownVersion, static_cast<std::uint64_t>(facts.version()));
  };
  if (facts.is_before(10)) map.alignment_ = 32;
  if (facts.is_before(kStreamsSince) && start && size && flags && *start % map.alignment_ == 0 && *size >= 16) {
    map.in_one_piece_ = true;
    map.header_ = *start;
    map.code_size_ = *size;
    map.code_flags_ = *flags;
    map.pointers_end_ = map.code_in_stream_ = *size - 8;  // the last pointer (code.h, Code::CODE_FIELDS)
    return map;
  }
  if (start && size && flags && stream) {
    map.code_start_ = *start;
    map.code_size_ = *size;
    map.code_flags_ = *flags;
    map.code_stream_ = map.pointers_end_ = *stream;
    return map;
  }
  // V8 11.3 and 11.8 tell of these two only, which the others follow (code.h, Code::FIELDS). That they do is seen where
  // an object is read.
  const auto positions = facts.field("Code", "source_position_table");
  if (facts.version() != 11 || !positions || !facts.field("InstructionStream", "instruction_start")) return unknown();
  map.code_stream_ = map.pointers_end_ = *positions + 8;
  map.code_start_ = *positions + 16;
  map.code_flags_ = *positions + 24;
  map.code_size_ = *positions + (facts.is_before(11, 8) ? 32 : 28);
  return map;
}

std::optional<CodeObject> CodeMap::read(const Heap& heap, Tagged stream, std::uint64_t begin) const {
  std::array<std::byte, 128> bytes{};
  CodeObject found{.stream = stream, .code = heap.field(stream, code_in_stream_).value_or(0), .begin = begin};
  if (!heap.read(in_one_piece_ ? stream : found.code, 0, bytes.data(), bytes.size()) ||
      !heap.is(found.code, heap.layout().code_type))
    return std::nullopt;
  const auto get = [&](std::uint32_t at, auto& to) {
    if (at <= bytes.size() - sizeof to) std::memcpy(&to, bytes.data() + at, sizeof to);
  };
  Tagged back = stream;
  std::uint64_t start = begin;
  std::uint32_t size = 0, flags = 0;
  if (!in_one_piece_) get(code_stream_, back), get(code_start_, start);
  get(code_size_, size);
  get(code_flags_, flags);
  if (back != stream || start != begin || size == 0 || size > kLongest) return std::nullopt;
  found.end = begin + size;
  // Data and table of the code. Types tell them from the other pointers that stand in front.
  const Layout& layout = heap.layout();
  found.kind = layout.kind_of(flags);
  for (std::uint32_t at = 8; at < pointers_end_; at += 8) {
    Tagged word = 0;
    get(at, word);
    const std::uint16_t type = is_object(word) ? heap.type_of(word) : std::uint16_t{0};
    if (type == 0) continue;
    if (layout.is_byte_array(type))
      found.table = word;  // the last one: V8 11.3 has relocations in front
    else if (layout.is_fixed_array(type) || type == layout.bytecode_type || type == layout.interpreter_data)
      found.data = word;
  }
  return found;
}

Expected<CodeObject> CodeMap::find(const Heap& heap, std::uint64_t pc, std::uint64_t lowest) {
  constexpr std::uint64_t kPiece = 1 << 14, kPage = 1 << 12;
  std::vector<Tagged> words(kPiece / 8);
  const std::uint64_t first = std::max(lowest, pc - std::min(pc, kLongest)) / alignment_ * alignment_;
  // Headers that begin in front of a piece are those of the next one.
  const std::uint64_t front = std::max<std::uint64_t>(header_, alignment_);
  for (std::uint64_t end = pc / alignment_ * alignment_; end > first;) {
    std::uint64_t begin = std::max(first, end - std::min(end, kPiece));
    const auto read_words = [&] { return heap.memory().read(begin, words.data(), end - begin); };
    if (!read_words()) {  // there is a guard page in front
      begin = std::max(first, (end - 1) / kPage * kPage);
      if (!read_words()) break;
    }
    for (std::uint64_t code = end; code >= begin + front; code -= alignment_) {
      const std::uint32_t most = header_ != 0 ? header_ : kMostHeader, least = header_ != 0 ? header_ : 16;
      for (std::uint32_t header = least; header <= most; header += 8) {
        const Tagged map = words[(code - header - begin) / 8];
        const Tagged stream = code - header + 1;
        const bool is_known = is_known_map(map);
        if (!is_known && (!may_be_map(map) || !heap.is(stream, heap.layout().stream_type))) continue;
        const auto found = read(heap, stream, code);
        if (!found) continue;
        header_ = header;
        if (stream_maps_.size() >= kMostMaps) stream_maps_.clear();
        if (!is_known_map(map)) stream_maps_.push_back(map);
        if (pc < found->end) return *found;
        return fail(ErrorCode::kNotFound, "no code of V8's heap is there", pc);
      }
    }
    const std::uint64_t next = begin + front - alignment_;
    if (begin == first || next >= end) break;
    end = next;
  }
  return fail(ErrorCode::kNotFound, "no code of V8's heap is there", pc);
}

bool CodeMap::is_known_map(Tagged map) const { return std::ranges::find(stream_maps_, map) != stream_maps_.end(); }

bool CodeMap::is_still(const Heap& heap, const CodeObject& object) const {
  const auto map = heap.field(object.stream, 0);
  const auto now = map && is_known_map(*map) ? read(heap, object.stream, object.begin) : std::nullopt;
  return now && *now == object;
}

}  // namespace windlass::runtimes::v8
