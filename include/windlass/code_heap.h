// A heap of generated code described once: unwind information for every instruction of a range all of whose functions
// keep the same frame, {push rbp; mov rbp, rsp} or {stp x29, x30, [sp, #-16]!; mov x29, sp}. It stands in pages of its
// own in front of the code, is written before there is any and protected then, and functions come and go with nothing
// to be told (V8's way on Windows). Sources: "x64 exception handling", "ARM64 exception handling" (Microsoft); DWARF 5
// section 6.4.
//
//   const auto front = write_heap_front({.begin = heap, .end = heap + size, .handler = on_exception});
//   memcpy(heap, front->bytes.data(), front->bytes.size());           // then protect it: readable and executable
//   RtlAddFunctionTable(heap + front->table, front->entries, heap);   // code begins at front->code
//
// What it costs: where the frame pointer is not the function's own, its caller is missing from the walk, and nothing
// tells. Of each function these are
//
//   - for Windows x64 two: push rbp and mov rbp, rsp. Unwinders see {pop rbp; ret} and {leave; ret} in the code;
//   - for Windows ARM64 three: stp, mov, and ret behind ldp;
//   - for DWARF three: the same, on x86-64 ret behind pop rbp or leave;
//
// but for the prologue of a function that begins where the code does. Code that does not keep the frame (leaves, stubs)
// is wrong throughout: it belongs outside of the range, or into a registration of its own (registration.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "windlass/error.h"
#include "windlass/registers.h"

namespace windlass {

enum class HeapFormat : std::uint8_t {
  kWindows,  // a function table, for RtlAddFunctionTable() and the like
  kDwarf,    // an .eh_frame section, for __register_frame()
};

struct CodeHeap {
  Architecture architecture = Architecture::kX86_64;  // or kAArch64
  HeapFormat format = HeapFormat::kWindows;
  std::uint64_t begin = 0;  // of the front, and so of the heap; at a page
  std::uint64_t end = 0;    // of the code; at a page
  std::uint64_t base = 0;   // that RVAs count from, at or before `begin`; 0: `begin`
  // Address of who is asked about exceptions that cross the code, at any distance; 0: nobody. Windows: a
  // language-specific handler, reached by a jump in the front. DWARF: a personality routine, asked in both passes.
  std::uint64_t handler = 0;
  bool on_exception = true;   // Windows: asked in the first pass, who handles it
  bool on_unwind = true;      // Windows: asked in the second, to clean up
  std::uint64_t page = 4096;  // bytes: what is protected at a time
};

struct HeapFront {
  std::vector<std::byte> bytes = {};  // for `begin` on
  std::uint64_t code = 0;             // address behind the front: the first that code may have
  std::uint32_t table = 0;            // offset among the bytes of the function table, or of the .eh_frame section
  std::uint32_t entries = 0;          // of the function table. ARM64: one for less than 1 MiB of code each
  std::uint32_t thunk = 0;            // offset among the bytes of the jump to the handler; 0: none
};

// Thread-safe; not for signal handlers. Allocates; linear in the entries. Errors: kMalformed for a heap without room
// for code behind its front, or that does not begin and end at pages, or has its base behind its begin; kOutOfRange for
// an end that RVAs of 32 bits do not reach; kUnsupported for another architecture.
[[nodiscard]] Expected<HeapFront> write_heap_front(const CodeHeap& heap);

}  // namespace windlass
