#include <algorithm>
#include <cstring>

#include "jit/thunk.h"
#include "windlass/format/dwarf.h"
#include "windlass/format/winarm64.h"
#include "windlass/format/winx64.h"
#include "windlass/jit/code_heap.h"
#include "windlass/prologue.h"

namespace windlass {
namespace {

constexpr std::uint64_t align(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

// The function that a heap's code is taken for.
Prologue whole_heap(Architecture architecture, std::uint64_t code_size) {
  Prologue all{.architecture = architecture, .code_size = static_cast<std::uint32_t>(code_size)};
  if (architecture == Architecture::kAArch64)
    all.ops = {{4, prologue::Save{29, 0, 16, 30}}, {8, prologue::SetFramePointer{29}}};
  else
    all.ops = {{1, prologue::push(6)}, {4, prologue::SetFramePointer{6}}};
  return all;
}

// The formats' words of an entry.
void append_entry(std::vector<std::byte>& to, const winx64::RuntimeFunction& entry) {
  const std::uint32_t words[] = {entry.begin, entry.end, entry.info};
  to.insert(to.end(), std::as_bytes(std::span(words)).begin(), std::as_bytes(std::span(words)).end());
}
void append_entry(std::vector<std::byte>& to, const winarm64::RuntimeFunction& entry) {
  const std::uint32_t words[] = {entry.begin, entry.data};
  to.insert(to.end(), std::as_bytes(std::span(words)).begin(), std::as_bytes(std::span(words)).end());
}

// Table, information and thunk for code behind a front of `front_size`, which they may be too large for. `Options` are
// those of the format's writer.
template <typename Options>
Expected<HeapFront> write_windows(const CodeHeap& heap, std::uint64_t front_size) {
  const std::uint64_t base = heap.base != 0 ? heap.base : heap.begin;
  const auto rva = [&](std::uint64_t offset) { return static_cast<std::uint32_t>(heap.begin + offset - base); };
  Prologue all = whole_heap(heap.architecture, heap.end - heap.begin - front_size);
  if (heap.handler != 0)
    all.handler = prologue::Handler{.on_exception = heap.on_exception, .on_unwind = heap.on_unwind};
  const auto sizes = write(all, Options{.function = rva(front_size)});
  if (!sizes) return Failure(sizes.error());

  HeapFront front;
  front.code = heap.begin + front_size;
  for (const auto& entry : sizes->entries) append_entry(front.bytes, entry);
  const std::uint64_t info = align(front.bytes.size(), 4);
  const std::uint64_t thunk = align(info + sizes->bytes.size(), 16);
  if (all.handler) all.handler->rva = rva(thunk);
  const auto written = write(all, Options{.function = rva(front_size), .info = rva(info)});
  if (!written) return Failure(written.error());

  front.bytes.clear();
  for (const auto& entry : written->entries) append_entry(front.bytes, entry);
  front.entries = static_cast<std::uint32_t>(written->entries.size());
  front.bytes.resize(info);
  front.bytes.insert(front.bytes.end(), written->bytes.begin(), written->bytes.end());
  if (heap.handler != 0) {
    front.bytes.resize(thunk);
    heap::append_thunk(front.bytes, heap.architecture, heap.handler);
    front.thunk = static_cast<std::uint32_t>(thunk);
  }
  return front;
}

Expected<HeapFront> write_dwarf(const CodeHeap& heap, std::uint64_t front_size) {
  HeapFront front;
  front.code = heap.begin + front_size;
  // By pointers of eight bytes: the personality routine may be anywhere.
  dwarf::Writer writer(
      {.architecture = heap.architecture, .address = heap.begin, .pointers = dwarf::Pointers::kAbsolute});
  const Prologue all = whole_heap(heap.architecture, heap.end - front.code);
  if (const auto ok = writer.add(all, {.address = front.code, .personality = heap.handler}); !ok)
    return Failure(ok.error());
  front.bytes = std::move(writer).take().bytes;
  return front;
}

Expected<HeapFront> write_front(const CodeHeap& heap, std::uint64_t front_size) {
  if (heap.format == HeapFormat::kDwarf) return write_dwarf(heap, front_size);
  if (heap.architecture == Architecture::kAArch64) return write_windows<winarm64::WriteOptions>(heap, front_size);
  return write_windows<winx64::WriteOptions>(heap, front_size);
}

Expected<void> check(const CodeHeap& heap) {
  if (heap.architecture != Architecture::kX86_64 && heap.architecture != Architecture::kAArch64)
    return fail(ErrorCode::kUnsupported, "heaps are of x86-64 or AArch64", 0);
  if (heap.page == 0 || heap.begin % heap.page != 0 || heap.end % heap.page != 0)
    return fail(ErrorCode::kMalformed, "a heap that does not begin and end at a page", heap.begin, heap.end);
  if (heap.begin >= heap.end)
    return fail(ErrorCode::kMalformed, "a heap that ends before it begins", heap.begin, heap.end);
  if (heap.base > heap.begin)
    return fail(ErrorCode::kMalformed, "a base behind the heap's begin", heap.base, heap.begin);
  if (heap.end - (heap.base != 0 ? heap.base : heap.begin) > 0xffff'ffff)
    return fail(ErrorCode::kOutOfRange, "a heap that 32-bit RVAs do not reach the end of", heap.begin, heap.end);
  return {};
}

}  // namespace

Expected<HeapFront> write_heap_front(const CodeHeap& heap) {
  if (const auto ok = check(heap); !ok) return Failure(ok.error());
  // What a front of a page cannot hold gets a larger one, which leaves less code to be told of.
  for (std::uint64_t size = heap.page; heap.end - heap.begin > size;) {
    auto front = write_front(heap, size);
    if (!front || front->bytes.size() <= size) return front;
    size = align(front->bytes.size(), heap.page);
  }
  return fail(ErrorCode::kMalformed, "a heap without room for code behind its front", heap.begin, heap.end);
}

}  // namespace windlass
