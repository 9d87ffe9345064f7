// Describes a heap of generated code once, for all functions that will ever be in it. All functions keep the same
// frame: {push rbp; mov rbp, rsp}, or {stp x29, x30, [sp, #-16]!; mov x29, sp}.
//
// The unwind information covers every address of the heap. It stands in pages of its own before the code, called the
// front. The front is written before there is any code, and then protected. Functions come and go without a call (V8's
// way on Windows). Specifications: "x64 exception handling", "ARM64 exception handling" (Microsoft); DWARF 5, section
// 6.4.
//
// For example, on Windows:
//
//   const auto front = write_heap_front({.begin = heap, .end = heap + size, .handler = on_exception});
//   memcpy(heap, front->bytes.data(), front->bytes.size());   // Then protect: readable and executable.
//
//   RtlAddFunctionTable(heap + front->table, front->entries, heap);   // Code begins at front->code.
//
// The price: at some instructions, the frame pointer is not the function's own. A walk from there misses the caller,
// and does not notice. In each function these are:
//
// - Windows x64: two, push rbp and mov rbp, rsp. Unwinders recognise {pop rbp; ret} and {leave; ret} in the code.
// - Windows ARM64: three, stp, mov, and ret behind ldp.
// - DWARF: three, the same; on x86-64 the third is ret behind pop rbp or leave.
//
// The prologue of a function at the very begin of the code is right nevertheless. Code without this frame (leaves,
// stubs) is wrong throughout. It belongs outside of the range, or into a registration of its own (jit/registration.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "windlass/error.h"
#include "windlass/registers.h"

namespace windlass {

// The format of the unwind information.
enum class HeapFormat : std::uint8_t {
  kWindows,  // A function table, for RtlAddFunctionTable() and the like.
  kDwarf,    // A section .eh_frame, for __register_frame().
};

// A heap to describe.
struct CodeHeap {
  Architecture architecture = Architecture::kX86_64;  // Or kAArch64.
  HeapFormat format = HeapFormat::kWindows;
  std::uint64_t begin = 0;  // Of the front, and so of the heap; at a page.
  std::uint64_t end = 0;    // Of the code; at a page.
  std::uint64_t base = 0;   // RVAs count from here, at or before `begin`. 0: `begin`.
  // The routine for exceptions that cross the code, at any distance; 0: none. On Windows: a language-specific handler,
  // reached by a jump in the front. For DWARF: a personality routine, called in both passes.
  std::uint64_t handler = 0;
  bool on_exception = true;   // Windows: call the handler in the first pass, the search.
  bool on_unwind = true;      // Windows: call the handler in the second pass, to clean up.
  std::uint64_t page = 4096;  // Bytes: the unit of protection.
};

// The bytes that stand before the code, and where the parts are.
struct HeapFront {
  std::vector<std::byte> bytes = {};  // Copy these to `begin`.
  std::uint64_t code = 0;             // The address behind the front: the first address that code may have.
  std::uint32_t table = 0;            // The offset of the function table, or of the section .eh_frame.
  std::uint32_t entries = 0;          // Entries of the function table. ARM64: one for each 1 MiB of code or less.
  std::uint32_t thunk = 0;            // The offset of the jump to the handler; 0: none.
};

// Writes the front of a heap. Linear in the entries. Thread-safe; allocates, so not for signal handlers.
//
// Errors:
// - kMalformed: no room for code behind the front.
// - kMalformed: begin or end is not at a page, or base lies behind begin.
// - kOutOfRange: the end is beyond the reach of RVAs of 32 bits.
// - kUnsupported: another architecture.
[[nodiscard]] Expected<HeapFront> write_heap_front(const CodeHeap& heap);

}  // namespace windlass
