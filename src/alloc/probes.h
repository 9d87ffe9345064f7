// The static probes of OpenTelemetry's memory profiling (opentelemetry-ebpf-profiler, design document 00003), for
// profilers outside of the process:
//   otel_memory:alloc(ptr, size, weighted_bytes)  a sample; ptr may be freed by another thread at once
//   otel_memory:free(ptr)                         before the block of a sample is freed
// A probe that nobody listens to is never passed. Its note is in the form of sys/sdt.h (SystemTap), which need not be
// there to build this.
#pragma once

#include <cstddef>
#include <cstdint>

// How many listen: the kernel counts.
extern "C" {
[[gnu::visibility("hidden")]] extern volatile std::uint16_t otel_memory_alloc_semaphore, otel_memory_free_semaphore;
}

#define WINDLASS_NOTE(name, arguments)                                    \
  "990: nop\n"                                                            \
  ".pushsection .note.stapsdt,\"\",\"note\"\n"                            \
  ".balign 4\n"                                                           \
  ".4byte 992f-991f, 994f-993f, 3\n"                                      \
  "991: .asciz \"stapsdt\"\n"                                             \
  "992: .balign 4\n"                                                      \
  "993: .8byte 990b, _.stapsdt.base, otel_memory_" name                   \
  "_semaphore\n"                                                          \
  ".asciz \"otel_memory\"\n"                                              \
  ".asciz \"" name                                                        \
  "\"\n"                                                                  \
  ".asciz \"" arguments                                                   \
  "\"\n"                                                                  \
  "994: .balign 4\n"                                                      \
  ".popsection\n"                                                         \
  ".ifndef _.stapsdt.base\n"                                              \
  ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
  ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"                        \
  "_.stapsdt.base: .space 1\n"                                            \
  ".size _.stapsdt.base, 1\n"                                             \
  ".popsection\n"                                                         \
  ".endif\n"

namespace windlass::alloc {

inline bool sampling_is_listened_to() { return otel_memory_alloc_semaphore != 0; }

inline void tell_allocated(const void* block, std::size_t size, std::uint64_t weighted_bytes) {
  if (otel_memory_alloc_semaphore != 0)
    asm volatile(WINDLASS_NOTE("alloc", "8@%0 8@%1 8@%2") : : "r"(block), "r"(size), "r"(weighted_bytes));
}

inline void tell_freed(const void* block) {
  if (otel_memory_free_semaphore != 0) asm volatile(WINDLASS_NOTE("free", "8@%0") : : "r"(block));
}

}  // namespace windlass::alloc
