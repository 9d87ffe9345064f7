#include "runtimes/hotspot/code_map.h"

#include <algorithm>
#include <array>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::hotspot {
namespace {

constexpr std::size_t kLongestName = 256;
constexpr std::uint8_t kFreeSegment = 0xff;
constexpr std::uint32_t kMostEntry = 4096;  // bytes of a ContinuationEntry

Error unreadable(std::uint64_t address) {
  return Error{ErrorCode::kUnreadable, "the runtime's description of its code cannot be read", address};
}

Blob::Kind kind_of(const std::string& name, std::int32_t frame_bytes) {
  if (name == "nmethod") return Blob::Kind::kMethod;
  if (name == "native nmethod") return Blob::Kind::kNative;
  if (name == "Interpreter") return Blob::Kind::kCodelet;
  if (name == "I2C/C2I adapters") return Blob::Kind::kAdapter;
  if (name == "MethodHandles adapters") return Blob::Kind::kLinkers;
  if (name == "vtable chunks") return Blob::Kind::kVirtual;
  return frame_bytes > 0 ? Blob::Kind::kFramed : Blob::Kind::kOther;
}

}  // namespace

Expected<CodeMap> CodeMap::make(const VmStructs& structs) {
  Layout layout(structs);
  CodeMap map;
  map.is_one_heap_ = structs.is_jdk_8();
  map.heaps_ = layout.any_address({{"CodeCache", "_heap"}, {"CodeCache", "_heaps"}});
  map.interpreter_ = layout.address("AbstractInterpreter", "_code");
  map.call_return_ = layout.address("StubRoutines", "_call_stub_return_address");
  map.array_length_ = layout.any_field({{"GrowableArrayBase", "_len"}, {"GenericGrowableArray", "_len"}});
  map.array_data_ = layout.field("GrowableArray<int>", "_data");
  map.heap_memory_ = layout.field("CodeHeap", "_memory");
  map.heap_map_ = layout.field("CodeHeap", "_segmap");
  map.heap_log2_ = layout.field("CodeHeap", "_log2_segment_size");
  map.space_low_ = layout.field("VirtualSpace", "_low");
  map.space_high_ = layout.field("VirtualSpace", "_high");
  map.block_size_ = layout.size("HeapBlock");
  map.block_used_ = layout.field("HeapBlock::Header", "_used");
  map.blob_name_ = layout.field("CodeBlob", "_name");
  map.blob_size_ = layout.field("CodeBlob", "_size");
  map.blob_frame_size_ = layout.field("CodeBlob", "_frame_size");
  map.blob_data_ = layout.field("CodeBlob", "_data_offset");
  map.code_is_offset_ = structs.offset("CodeBlob", "_code_offset").has_value();
  map.blob_code_ = layout.any_field({{"CodeBlob", "_code_offset"}, {"CodeBlob", "_code_begin"}});
  map.nmethod_method_ = layout.any_field({{"nmethod", "_method"}, {"CompiledMethod", "_method"}});
  map.nmethod_id_ = layout.field("nmethod", "_compile_id");
  map.nmethod_exception_ = layout.field("nmethod", "_exception_offset");
  map.nmethod_stubs_ = layout.field("nmethod", "_stub_offset");
  map.entry_is_offset_ = structs.offset("nmethod", "_entry_offset").has_value();
  map.nmethod_entry_ = layout.any_field({{"nmethod", "_entry_offset"}, {"nmethod", "_entry_point"}});
  map.nmethod_verified_ =
      layout.any_field({{"nmethod", "_verified_entry_offset"}, {"nmethod", "_verified_entry_point"}});
  map.nmethod_osr_ = layout.field("nmethod", "_osr_entry_point");
  map.deopt_is_offset_ = !structs.offset("CompiledMethod", "_deopt_handler_begin");
  map.nmethod_deopt_ = layout.any_field({{"nmethod", "_deopt_handler_offset"},
                                         {"nmethod", "_deopt_handler_entry_offset"},  // JDK 26
                                         {"nmethod", "_deoptimize_offset"},
                                         {"CompiledMethod", "_deopt_handler_begin"}});
  map.nmethod_pcs_ = layout.field("nmethod", "_scopes_pcs_offset");
  map.data_is_apart_ = structs.offset("nmethod", "_immutable_data").has_value();
  map.scopes_are_offset_ = structs.offset("nmethod", "_scopes_data_offset").has_value();
  map.nmethod_scopes_ = layout.any_field({{"nmethod", "_scopes_data_offset"},
                                          {"CompiledMethod", "_scopes_data_begin"},
                                          {"nmethod", "_scopes_data_begin"}});
  if (map.data_is_apart_) {
    map.nmethod_data_ = layout.field("nmethod", "_immutable_data");
    map.nmethod_data_size_ = layout.field("nmethod", "_immutable_data_size");
  } else {
    map.nmethod_pcs_end_ = layout.field("nmethod", "_dependencies_offset");
    map.nmethod_metadata_ = layout.field("nmethod", "_metadata_offset");
  }
  // Of JDK 23 and later apart, too: behind the relocations.
  if (const auto mutable_data = structs.offset("CodeBlob", "_mutable_data"); mutable_data && map.data_is_apart_) {
    map.mutable_data_ = *mutable_data;
    map.mutable_size_ = layout.field("CodeBlob", "_mutable_data_size");
    map.relocation_size_ = layout.field("CodeBlob", "_relocation_size");
  }
  // JDK 21 and later.
  map.continuation_ = {structs.offset("JavaThread", "_cont_entry").value_or(0),
                       std::min(structs.size("ContinuationEntry").value_or(0), kMostEntry)};
  map.queue_buffer_ = layout.field("StubQueue", "_stub_buffer");
  map.queue_begin_ = layout.field("StubQueue", "_queue_begin");
  map.queue_end_ = layout.field("StubQueue", "_queue_end");
  map.codelet_size_ = layout.field("InterpreterCodelet", "_size");
  map.codelet_description_ = layout.field("InterpreterCodelet", "_description");
  map.codelet_header_ = layout.size("InterpreterCodelet");
  map.method_code_ = structs.offset("Method", "_code").value_or(0);
  if (layout.error()) return Failure(*layout.error());
  return map;
}

Expected<CodeMap::Heap> CodeMap::read_heap(const Memory& memory, std::uint64_t at) const {
  const auto word = [&](std::uint32_t space, std::uint32_t field) {
    return read_value<std::uint64_t>(memory, at + space + field);
  };
  const auto low = word(heap_memory_, space_low_), high = word(heap_memory_, space_high_),
             map = word(heap_map_, space_low_), map_end = word(heap_map_, space_high_);
  const auto log2 = read_value<std::uint32_t>(memory, at + heap_log2_);
  if (!low || !high || !map || !map_end || !log2) return Failure(unreadable(at));
  if (*log2 > 16 || *high < *low || *map_end < *map)
    return fail(ErrorCode::kMalformed, "a heap of code that is none", at);
  return Heap{*low, *high, *map, *map_end, *log2};
}

Expected<std::vector<CodeMap::Heap>> CodeMap::read_heaps(const Memory& memory) const {
  const auto array = read_value<std::uint64_t>(memory, heaps_);
  if (!array) return Failure(unreadable(heaps_));
  std::vector<Heap> heaps;
  if (*array == 0) return heaps;  // it has just begun
  if (is_one_heap_) {
    const auto heap = read_heap(memory, *array);
    if (!heap) return Failure(heap.error());
    return std::vector<Heap>{*heap};
  }
  const auto count = read_value<std::uint32_t>(memory, *array + array_length_);
  const auto data = read_value<std::uint64_t>(memory, *array + array_data_);
  if (!count || !data) return Failure(unreadable(*array));
  if (*count > kMaxHeaps) return fail(ErrorCode::kLimit, "more heaps of code than there can be", *array, *count);
  for (std::uint32_t i = 0; i < *count; ++i) {
    const auto at = read_value<std::uint64_t>(memory, *data + std::uint64_t{i} * kWord);
    if (!at) return Failure(unreadable(*data));
    const auto heap = read_heap(memory, *at);
    if (!heap) return Failure(heap.error());
    heaps.push_back(*heap);
  }
  return heaps;
}

// The heap's part of the segment map; empty: it cannot be read.
std::vector<std::uint8_t> CodeMap::segments_of(const Memory& memory, const Heap& heap) {
  const std::uint64_t segments = (heap.end - heap.begin) >> heap.log2_segment;
  std::vector<std::uint8_t> map(std::min({segments, heap.map_end - heap.map, kMaxMap}));
  if (!memory.read(heap.map, map.data(), map.size())) map.clear();
  return map;
}

Expected<std::uint64_t> CodeMap::block_of(const Memory& memory, const Heap& heap, std::uint64_t pc) const {
  std::uint64_t segment = (pc - heap.begin) >> heap.log2_segment;
  for (unsigned steps = 0; steps < kMaxSteps; ++steps) {
    if (segment >= heap.map_end - heap.map) return fail(ErrorCode::kMalformed, "a heap of code without a map", pc);
    const auto back = read_value<std::uint8_t>(memory, heap.map + segment);
    if (!back) return Failure(unreadable(heap.map + segment));
    if (*back == kFreeSegment) return fail(ErrorCode::kNotFound, "free room between a runtime's code", pc);
    if (*back == 0) return heap.begin + (segment << heap.log2_segment);
    if (*back > segment) break;
    segment -= *back;
  }
  return fail(ErrorCode::kMalformed, "a map of code that leads nowhere", pc);
}

Expected<Blob> CodeMap::find(const Memory& memory, std::uint64_t pc) const {
  const auto heaps = read_heaps(memory);
  if (!heaps) return Failure(heaps.error());
  const auto heap =
      std::ranges::find_if(*heaps, [&](const Heap& candidate) { return pc >= candidate.begin && pc < candidate.end; });
  if (heap == heaps->end()) return fail(ErrorCode::kNotFound, "no code of the runtime's", pc);
  const auto block = block_of(memory, *heap, pc);
  if (!block) return Failure(block.error());
  if (const auto used = read_value<std::uint8_t>(memory, *block + block_used_); !used || *used == 0)
    return fail(ErrorCode::kNotFound, "free room between a runtime's code", pc);
  auto blob = read_blob(memory, *block + block_size_);
  if (!blob) return blob;
  if (pc < blob->begin || pc >= blob->end) return fail(ErrorCode::kNotFound, "a blob's data", pc);
  if (blob->kind == Blob::Kind::kCodelet)
    if (const auto narrowed = narrow_to_codelet(memory, pc, *blob); !narrowed) return Failure(narrowed.error());
  return blob;
}

std::optional<Blob> CodeMap::find_archived(const Memory& memory, std::uint64_t pc) const {
  struct [[gnu::packed]] Jump {
    std::uint16_t load;
    std::uint64_t target;
    std::uint8_t jump[3];
  };
  constexpr std::uint64_t kApart = 16;  // SharedRuntime::trampoline_size()
  constexpr std::uint16_t kLoadR10 = 0xba49;
  constexpr std::uint8_t kJumpToR10[] = {0x41, 0xff, 0xe2};
  const auto jump = read_value<Jump>(memory, pc / kApart * kApart);
  if (!jump || jump->load != kLoadR10 || !std::ranges::equal(jump->jump, kJumpToR10)) return std::nullopt;
  auto target = find(memory, jump->target);
  if (!target || (target->kind != Blob::Kind::kCodelet && target->kind != Blob::Kind::kAdapter)) return std::nullopt;
  target->begin = pc / kApart * kApart;
  target->end = target->begin + sizeof(Jump);
  return std::move(*target);
}

Expected<Blob> CodeMap::read_blob(const Memory& memory, std::uint64_t at) const {
  Blob blob;
  blob.address = at;
  const auto name = read_value<std::uint64_t>(memory, at + blob_name_);
  const auto size = read_value<std::uint32_t>(memory, at + blob_size_),
             data = read_value<std::uint32_t>(memory, at + blob_data_);
  const auto frame = read_value<std::int32_t>(memory, at + blob_frame_size_);
  if (!name || !size || !data || !frame) return Failure(unreadable(at));
  if (code_is_offset_)
    blob.begin = at + read_value<std::uint32_t>(memory, at + blob_code_).value_or(0);
  else
    blob.begin = read_value<std::uint64_t>(memory, at + blob_code_).value_or(0);
  blob.end = at + *data;
  if (*size > kMaxCode || *data > *size || blob.begin <= at || blob.begin >= blob.end)
    return fail(ErrorCode::kMalformed, "a blob of code that is none", at, *size);
  constexpr std::int32_t kMostWords = 1 << 17;
  if (*frame > 1 && *frame < kMostWords) blob.frame_bytes = (*frame - 1) * kWord;
  blob.name = read_text(memory, *name, kLongestName);
  blob.kind = kind_of(blob.name, blob.frame_bytes);
  if (blob.is_compiled()) read_method(memory, blob);
  if (const auto call = read_value<std::uint64_t>(memory, call_return_);
      blob.kind == Blob::Kind::kOther && call && *call > blob.begin && *call < blob.end)
    blob.call_return = *call;
  const bool is_stub = blob.name.starts_with("StubRoutines");
  if (continuation_.thread_offset == 0) learn_continuation(memory, blob);
  if (is_stub || blob.kind == Blob::Kind::kNative) blob.thread_continuation = continuation_.thread_offset;
  if (is_stub) blob.continuation_entry = continuation_.entry_bytes;
  return blob;
}

void CodeMap::learn_from_native_methods(const Memory& memory, const Heap& heap) const {
  const std::vector<std::uint8_t> map = segments_of(memory, heap);
  for (std::size_t i = 0; i < map.size() && continuation_.thread_offset == 0; ++i) {
    if (map[i] != 0) continue;
    const std::uint64_t at = heap.begin + (std::uint64_t{i} << heap.log2_segment) + block_size_;
    const auto name = read_value<std::uint64_t>(memory, at + blob_name_);
    if (name && kind_of(read_text(memory, *name, kLongestName), 0) == Blob::Kind::kNative) (void)read_blob(memory, at);
  }
}

// Who is in the stubs has entered a virtual thread before, so Continuation.enterSpecial is among the wrappers.
void CodeMap::learn_continuation(const Memory& memory, const Blob& blob) const {
  constexpr std::size_t kMostWrapper = 8192;
  if (blob.kind == Blob::Kind::kNative) {
    std::vector<std::byte> code(std::min<std::size_t>(blob.end - blob.begin, kMostWrapper));
    if (!memory.read(blob.begin, code.data(), code.size())) return;
    continuation_ = continuation_entered_by(code).value_or(Continuation());
  } else if (blob.is_of_continuations()) {
    const auto heaps = read_heaps(memory);
    if (!heaps) return;
    for (const Heap& heap : *heaps) learn_from_native_methods(memory, heap);
  }
}

void CodeMap::read_method(const Memory& memory, Blob& blob) const {
  const std::uint64_t at = blob.address;
  const auto word = [&](std::uint32_t field) { return read_value<std::uint64_t>(memory, at + field).value_or(0); };
  const auto offset = [&](std::uint32_t field) { return read_value<std::int32_t>(memory, at + field).value_or(-1); };
  const auto in_code = [&](std::uint64_t address) { return address >= blob.begin && address < blob.end ? address : 0; };
  const auto by_offset = [&](std::uint32_t field) {
    const std::int32_t from = offset(field);
    return from < 0 ? 0 : in_code(at + static_cast<std::uint32_t>(from));
  };
  const auto entry = [&](std::uint32_t field) {
    return in_code(entry_is_offset_ ? blob.begin + read_value<std::uint16_t>(memory, at + field).value_or(0xffff)
                                    : word(field));
  };
  blob.method = word(nmethod_method_);
  blob.id = static_cast<std::uint32_t>(offset(nmethod_id_));
  blob.entry = entry(nmethod_entry_);
  blob.verified_entry = entry(nmethod_verified_);
  blob.osr_entry = in_code(word(nmethod_osr_));
  blob.stubs = by_offset(nmethod_stubs_);
  blob.exception_handler = by_offset(nmethod_exception_);
  blob.deopt_handler = deopt_is_offset_ ? by_offset(nmethod_deopt_) : in_code(word(nmethod_deopt_));
  if (blob.kind == Blob::Kind::kMethod) read_debug_information(memory, blob);
}

void CodeMap::read_debug_information(const Memory& memory, Blob& blob) const {
  const std::uint64_t at = blob.address;
  const auto word = [&](std::uint32_t field) { return read_value<std::uint64_t>(memory, at + field).value_or(0); };
  const auto offset = [&](std::uint32_t field) { return read_value<std::uint32_t>(memory, at + field).value_or(0); };
  if (data_is_apart_) {
    const std::uint64_t data = word(nmethod_data_);
    blob.debug = {data + offset(nmethod_pcs_),
                  data + offset(nmethod_scopes_),
                  data + offset(nmethod_scopes_),
                  data + offset(nmethod_data_size_),
                  0,
                  0};
  } else {
    const std::uint64_t scopes = scopes_are_offset_ ? at + offset(nmethod_scopes_) : word(nmethod_scopes_),
                        pcs = at + offset(nmethod_pcs_);
    blob.debug = {pcs, at + offset(nmethod_pcs_end_), scopes, pcs, at + offset(nmethod_metadata_), scopes};
  }
  if (mutable_data_ != 0) {
    const std::uint64_t data = word(mutable_data_);
    blob.debug.metadata = data + offset(relocation_size_);
    blob.debug.metadata_end = data + offset(mutable_size_);
  }
  const auto is_range = [](std::uint64_t begin, std::uint64_t end) { return begin <= end && end - begin <= kMaxCode; };
  if (!is_range(blob.debug.pcs, blob.debug.pcs_end) || !is_range(blob.debug.scopes, blob.debug.scopes_end) ||
      !is_range(blob.debug.metadata, blob.debug.metadata_end))
    blob.debug = {};
}

// Codelets lie one behind the other: a header, then code. Calls visit(place, size) until that says no.
template <typename Visit>
Expected<void> CodeMap::each_codelet(const Memory& memory, Visit&& visit) const {
  const auto queue = read_value<std::uint64_t>(memory, interpreter_);
  if (!queue) return Failure(unreadable(interpreter_));
  const auto buffer = read_value<std::uint64_t>(memory, *queue + queue_buffer_);
  const auto begin = read_value<std::uint32_t>(memory, *queue + queue_begin_),
             end = read_value<std::uint32_t>(memory, *queue + queue_end_);
  if (!buffer || !begin || !end) return Failure(unreadable(*queue));
  std::uint64_t at = *buffer + *begin;
  for (std::uint32_t i = 0; i < kMaxCodelets && at < *buffer + *end; ++i) {
    const auto size = read_value<std::uint32_t>(memory, at + codelet_size_);
    if (!size || *size <= codelet_header_ || *size > kMaxCode || !visit(at, *size)) break;
    at += *size;
  }
  return {};
}

Expected<void> CodeMap::narrow_to_codelet(const Memory& memory, std::uint64_t pc, Blob& blob) const {
  bool found = false;
  const auto visited = each_codelet(memory, [&](std::uint64_t at, std::uint32_t size) {
    if (pc < at) return false;
    if (pc - at >= size) return true;
    blob.begin = std::max(blob.begin, at + codelet_header_);
    blob.end = std::min(blob.end, at + size);
    blob.name =
        read_text(memory, read_value<std::uint64_t>(memory, at + codelet_description_).value_or(0), kLongestName);
    found = pc >= blob.begin && pc < blob.end;
    return false;
  });
  if (!visited || found) return visited;
  return fail(ErrorCode::kNotFound, "between the interpreter's codelets", pc);
}

std::vector<std::uint64_t> CodeMap::codelets(const Memory& memory) const {
  std::vector<std::uint64_t> begins;
  (void)each_codelet(memory,
                     [&](std::uint64_t at, std::uint32_t) { return begins.push_back(at + codelet_header_), true; });
  return begins;
}

// A block is in the map before its code is copied to it. A Method is given its code when that is complete.
bool CodeMap::is_complete(const Memory& memory, const Blob& blob) const {
  const auto code = read_value<std::uint64_t>(memory, blob.method + method_code_);
  return blob.is_compiled() && blob.method != 0 && code && *code == blob.address;
}

std::optional<Blob> CodeMap::compiled_at(const Memory& memory, std::uint64_t block) const {
  const auto used = read_value<std::uint8_t>(memory, block + block_used_);
  if (!used || *used == 0) return std::nullopt;
  auto blob = read_blob(memory, block + block_size_);
  if (!blob || !blob->is_compiled()) return std::nullopt;
  return std::move(*blob);
}

std::vector<Blob> CodeMap::new_methods(const Memory& memory, std::size_t most) {
  std::vector<Blob> found;
  const auto heaps = read_heaps(memory);
  if (!heaps || method_code_ == 0) return found;
  for (const Heap& heap : *heaps) {
    const std::vector<std::uint8_t> map = segments_of(memory, heap);
    std::vector<std::uint8_t>& seen = seen_[heap.map];
    seen.resize(map.size(), kFreeSegment);
    for (std::size_t begin = 0, end = 0; begin < map.size(); begin = end) {
      for (end = begin + 1; end < map.size() && map[end] != 0 && map[end] != kFreeSegment;) ++end;
      const auto at = static_cast<std::ptrdiff_t>(begin), to = static_cast<std::ptrdiff_t>(end);
      if (std::equal(map.begin() + at, map.begin() + to, seen.begin() + at)) continue;
      if (map[begin] == 0 && found.size() >= most) return found;
      const std::uint64_t block = heap.begin + (std::uint64_t{begin} << heap.log2_segment);
      if (const auto blob = map[begin] == 0 ? compiled_at(memory, block) : std::nullopt) {
        // Perhaps it is the next time. Code that was replaced is none of its Method's, either.
        const bool complete = is_complete(memory, *blob);
        if (!complete && incomplete_.insert(block).second) continue;
        incomplete_.erase(block);
        if (complete) found.push_back(*blob);
      }
      std::copy(map.begin() + at, map.begin() + to, seen.begin() + at);
    }
  }
  return found;
}

bool CodeMap::is_still(const Memory& memory, const Blob& blob) const {
  if (!blob.is_compiled()) return true;  // made once, or never taken away while code may be in it
  const auto method = read_value<std::uint64_t>(memory, blob.address + nmethod_method_);
  const auto id = read_value<std::uint32_t>(memory, id_of(blob));
  return (!method || *method == blob.method) && (!id || *id == blob.id);
}

}  // namespace windlass::runtimes::hotspot
