#include "runtimes/coreclr/code_map.h"

#include <algorithm>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::coreclr {
namespace {

// codeman.h, RangeSection::RangeSectionFlags.
constexpr std::uint32_t kCollectible = 1, kCodeHeap = 2, kRangeList = 4;

constexpr unsigned kLevels = 5, kLevelBits = 8, kChunkBits = 17;
constexpr std::uint64_t kCollectibleMark = 1;  // low bit of the map's pointers

// ---- nibble maps (ExecutionManager.md, "NibbleMap")
// ------------------------------------------------------------------

constexpr std::uint64_t kBucket = 32, kNibbles = 8;
constexpr std::uint32_t kNibbleMask = 15;

// Version 2: a unit that a method covers from its beginning to its end has where that begins.
bool is_pointer(std::uint32_t unit) { return (unit & kNibbleMask) > 8; }
std::uint64_t pointer_of(std::uint32_t unit) {
  return std::uint64_t{unit & ~kNibbleMask} + std::uint64_t{(unit & kNibbleMask) - 9} * 4;
}

// The last nibble up to `bucket` in a unit that begins with the bucket `first`; the first one is the most significant.
std::optional<std::uint64_t> last_in_unit(std::uint32_t unit, std::uint64_t first, std::uint64_t bucket) {
  for (std::uint64_t at = bucket + 1; at-- > first;) {
    const std::uint32_t nibble = unit >> (28 - (at - first) * 4) & kNibbleMask;
    if (nibble != 0) return at * kBucket + std::uint64_t{nibble - 1} * 4;
  }
  return std::nullopt;
}

Failure no_method(std::uint64_t offset) {
  return fail(ErrorCode::kNotFound, "no method begins before the address", offset);
}

}  // namespace

Expected<std::uint64_t> find_in_nibbles(UnitReader unit, std::uint64_t offset, bool pointers) {
  const std::uint64_t bucket = offset / kBucket;
  std::uint64_t index = bucket / kNibbles;
  auto value = unit(index);
  if (!value) return fail(ErrorCode::kUnreadable, "the runtime's code map cannot be read", index);
  if (pointers && is_pointer(*value)) return pointer_of(*value);
  if (const auto found = last_in_unit(*value, index * kNibbles, bucket)) {
    if (*found <= offset) return *found;
    // The code found begins in the bucket of the address, but behind the address. So look for code that begins before
    // this bucket.
    if (bucket != index * kNibbles)
      if (const auto before = last_in_unit(*value, index * kNibbles, bucket - 1)) return *before;
  }
  for (std::uint64_t steps = 0; index != 0; ++steps) {
    if (steps == CodeMap::kMaxUnits) return fail(ErrorCode::kLimit, "the runtime's code map is too long", index);
    value = unit(--index);
    if (!value) return fail(ErrorCode::kUnreadable, "the runtime's code map cannot be read", index);
    if (pointers && is_pointer(*value)) return pointer_of(*value);
    if (const auto found = last_in_unit(*value, index * kNibbles, index * kNibbles + kNibbles - 1)) return *found;
    if (pointers) return no_method(offset);  // one that reached this far would have left a pointer
  }
  return no_method(offset);
}

// ---- the map
// ---------------------------------------------------------------------------------------------------------

Expected<CodeMap> CodeMap::make(const Descriptor& descriptor) {
  Layout layout(descriptor);
  CodeMap map;
  map.version_ = layout.contract("ExecutionManager", "ExecutionManager contract of a version that is not known", 1, 2);
  map.root_ = layout.global("ExecutionManagerCodeRangeMapAddress") + layout.field("RangeSectionMap", "TopLevelData");
  map.last_stub_kind_ = layout.global("StubCodeBlockLast");
  map.fragment_begin_ = layout.field("RangeSectionFragment", "RangeBegin");
  map.fragment_end_ = layout.field("RangeSectionFragment", "RangeEndOpen");
  map.fragment_section_ = layout.field("RangeSectionFragment", "RangeSection");
  map.fragment_next_ = layout.field("RangeSectionFragment", "Next");
  map.section_begin_ = layout.field("RangeSection", "RangeBegin");
  map.section_flags_ = layout.field("RangeSection", "Flags");
  map.section_heap_ = layout.field("RangeSection", "HeapList");
  map.section_r2r_ = layout.field("RangeSection", "R2RModule");
  map.heap_begin_ = layout.field("CodeHeapListNode", "StartAddress");
  map.heap_end_ = layout.field("CodeHeapListNode", "EndAddress");
  map.heap_map_base_ = layout.field("CodeHeapListNode", "MapBase");
  map.heap_map_ = layout.field("CodeHeapListNode", "HeaderMap");
  map.header_method_ = layout.field("RealCodeHeader", "MethodDesc");
  map.header_count_ = layout.field("RealCodeHeader", "NumUnwindInfos");
  map.header_functions_ = layout.field("RealCodeHeader", "UnwindInfos");
  map.function_size_ = layout.size("RuntimeFunction");
  map.function_begin_ = layout.field("RuntimeFunction", "BeginAddress");
  map.function_end_ = layout.field("RuntimeFunction", "EndAddress");
  map.function_info_ = layout.field("RuntimeFunction", "UnwindData");
  if (layout.error()) return Failure(*layout.error());
  return map;
}

Expected<CodeMap::Section> CodeMap::section_of(const Memory& memory, std::uint64_t pc) const {
  const auto unreadable = [&](std::uint64_t at) {
    return fail(ErrorCode::kUnreadable, "the runtime's range section map cannot be read", at);
  };
  std::uint64_t at = root_;
  for (unsigned level = kLevels; level-- > 0;) {
    at += (pc >> (kChunkBits + level * kLevelBits) & 255) * sizeof(std::uint64_t);
    const auto next = read_value<std::uint64_t>(memory, at);
    if (!next) return unreadable(at);
    at = *next & ~kCollectibleMark;
    if (at == 0) return fail(ErrorCode::kNotFound, "no code of the runtime's is there", pc);
  }
  for (unsigned steps = 0; at != 0; ++steps) {
    if (steps == kMaxFragments) return fail(ErrorCode::kLimit, "range section fragments without an end", at);
    const auto begin = read_value<std::uint64_t>(memory, at + fragment_begin_);
    const auto end = read_value<std::uint64_t>(memory, at + fragment_end_);
    const auto section = read_value<std::uint64_t>(memory, at + fragment_section_);
    const auto next = read_value<std::uint64_t>(memory, at + fragment_next_);
    if (!begin || !end || !section || !next) return unreadable(at);
    if (pc >= *begin && pc < *end) {
      const auto first = read_value<std::uint64_t>(memory, *section + section_begin_);
      const auto flags = read_value<std::uint32_t>(memory, *section + section_flags_);
      const auto heap = read_value<std::uint64_t>(memory, *section + section_heap_);
      const auto r2r = read_value<std::uint64_t>(memory, *section + section_r2r_);
      if (!first || !flags || !heap || !r2r) return unreadable(*section);
      return Section{{*begin, *end}, *first, *flags, *heap, *r2r};
    }
    at = *next & ~kCollectibleMark;
  }
  return fail(ErrorCode::kNotFound, "no code of the runtime's is there", pc);
}

Expected<std::uint64_t> CodeMap::method_start(const Memory& memory, const Section& section, std::uint64_t pc) const {
  const auto begin = read_value<std::uint64_t>(memory, section.heap + heap_begin_);
  const auto end = read_value<std::uint64_t>(memory, section.heap + heap_end_);
  const auto base = read_value<std::uint64_t>(memory, section.heap + heap_map_base_);
  const auto map = read_value<std::uint64_t>(memory, section.heap + heap_map_);
  if (!begin || !end || !base || !map)
    return fail(ErrorCode::kUnreadable, "a code heap's description cannot be read", section.heap);
  if (pc < *begin || pc >= *end || pc < *base) return no_method(pc);
  const auto unit = [&](std::uint64_t index) {
    return read_value<std::uint32_t>(memory, *map + index * sizeof(std::uint32_t));
  };
  const auto offset = find_in_nibbles(unit, pc - *base, version_ >= 2);
  if (!offset) return offset;
  return *base + *offset;
}

Expected<void> CodeMap::read_functions(const Memory& memory, CodeBlock& block) const {
  const auto count = read_value<std::uint32_t>(memory, block.header + header_count_);
  if (!count) return fail(ErrorCode::kUnreadable, "a method's header cannot be read", block.header);
  if (*count == 0 || *count > kMaxFunctions)
    return fail(ErrorCode::kMalformed, "a method of no functions, or of too many", block.header, *count);
  for (std::uint32_t i = 0; i < *count; ++i) {
    const std::uint64_t at = block.header + header_functions_ + std::uint64_t{i} * function_size_;
    const auto begin = read_value<std::uint32_t>(memory, at + function_begin_);
    const auto end = read_value<std::uint32_t>(memory, at + function_end_);
    const auto info = read_value<std::uint32_t>(memory, at + function_info_);
    if (!begin || !end || !info) return fail(ErrorCode::kUnreadable, "a method's functions cannot be read", at);
    const std::uint32_t least = block.functions.empty() ? 0 : block.functions.back().end;
    if (*begin >= *end || *begin < least)
      return fail(ErrorCode::kMalformed, "a method's functions do not ascend", at, *begin);
    block.functions.push_back({*begin, *end, *info});
  }
  if (block.base + block.functions.front().begin != block.begin || block.end() - block.begin > kMaxCode)
    return fail(ErrorCode::kMalformed, "a method's functions lie elsewhere", block.begin, block.header);
  return {};
}

Expected<CodeBlock> CodeMap::find(const Memory& memory, std::uint64_t pc) const {
  const auto section = section_of(memory, pc);
  if (!section) return Failure(section.error());
  if (section->r2r_module != 0)
    return fail(ErrorCode::kUnsupported, "code of .NET that was compiled ahead of time is not read", pc);
  CodeBlock block;
  block.begin = pc;
  block.base = section->begin;
  block.lasting = false;
  if ((section->flags & kRangeList) != 0) return block;
  if ((section->flags & kCodeHeap) == 0 || section->heap == 0)
    return fail(ErrorCode::kNotFound, "neither methods nor stubs are there", pc);
  const auto start = method_start(memory, *section, pc);
  if (!start) return Failure(start.error());
  const auto header = read_value<std::uint64_t>(memory, *start - sizeof(std::uint64_t));
  if (!header) return fail(ErrorCode::kUnreadable, "a method's header cannot be read", *start);
  if (*header <= last_stub_kind_) return block;
  block.begin = *start;
  block.lasting = (section->flags & kCollectible) == 0;
  block.header = *header;
  const auto method = read_value<std::uint64_t>(memory, *header + header_method_);
  if (!method) return fail(ErrorCode::kUnreadable, "a method's header cannot be read", *header);
  block.method_desc = *method;
  if (const auto read = read_functions(memory, block); !read) return Failure(read.error());
  if (pc >= block.end()) return no_method(pc);
  return block;
}

std::optional<wl_code_heap> CodeMap::heap_of(const Memory& memory, std::uint64_t pc) const {
  constexpr std::uint32_t kMostOffset = 0xffff;
  const auto section = section_of(memory, pc);
  if (!section || section->r2r_module != 0 || (section->flags & (kCodeHeap | kRangeList | kCollectible)) != kCodeHeap ||
      section->heap == 0 || version_ < 2 || function_size_ != sizeof(wl_method_function) || function_begin_ != 0 ||
      function_end_ != 4 || function_info_ != 8 || header_count_ > kMostOffset || header_functions_ > kMostOffset)
    return std::nullopt;
  const auto begin = read_value<std::uint64_t>(memory, section->heap + heap_begin_);
  const auto base = read_value<std::uint64_t>(memory, section->heap + heap_map_base_);
  const auto map = read_value<std::uint64_t>(memory, section->heap + heap_map_);
  if (!begin || !base || !map) return std::nullopt;
  wl_code_heap heap{};
  heap.begin = std::max(section->range.begin, *begin);
  heap.end = section->range.end;
  heap.base = section->begin;
  heap.map_base = *base;
  heap.map = *map;
  heap.count = static_cast<std::uint16_t>(header_count_);
  heap.functions = static_cast<std::uint16_t>(header_functions_);
  heap.last_stub = static_cast<std::uint32_t>(last_stub_kind_);
  return heap;
}

bool CodeMap::is_still(const Memory& memory, const CodeBlock& block) const {
  const auto now = find(memory, block.begin);
  return now && now->header == block.header && now->method_desc == block.method_desc &&
         now->functions == block.functions;
}

}  // namespace windlass::runtimes::coreclr
