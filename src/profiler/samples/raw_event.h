// A sample that the kernel side hands over raw: registers, copies of the stack, the code around the pc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "windlass/error.h"
#include "windlass/registers.h"
#include "windlass_event_layout.h"
#include "windlass_types.h"

namespace windlass::profiler {

// A copy of memory from `address` on, without the pages that could not be read.
struct MemoryCopy {
  std::uint64_t address = 0;
  std::span<const std::byte> bytes;
  std::uint64_t pages = ~std::uint64_t{0};  // as wl_raw_event has them; here none is left out

  // All or nothing.
  [[nodiscard]] bool read(std::uint64_t from, void* to, std::size_t size) const;
};

// What is known of the sampled thread's memory. Spans are only read during unwind().
struct RawSample {
  std::uint32_t tgid = 0;
  std::uint64_t epoch = 0;                 // of its process
  std::uint64_t time = ~std::uint64_t{0};  // CLOCK_MONOTONIC, ns
  Registers registers;                     // all known, at an instruction
  MemoryCopy stack;                        // from sp, or the red zone below it, on
  MemoryCopy second;                       // of another stack that the thread came from, or of this one far above
  MemoryCopy code;                         // around the pc, as it was
  std::array<MemoryCopy, WL_WORDS> words;  // of other memory: wl_sampled_word
  // AArch64: `probed_pc` stands for the return address to the caller with that sp, innermost first. An address of 0:
  // none.
  struct ProbedReturn {
    std::uint64_t sp = 0, address = 0;
  };
  std::uint64_t probed_pc = 0;
  std::array<ProbedReturn, WL_PROBED_RETURNS> probed_returns{};
  MemoryCopy teb;  // the one word of a Wine thread's TEB that its callbacks need
};

// The pieces of an event, or kMalformed; kUnsupported where its registers are of no machine known here. The spans point
// into the event.
struct RawEvent {
  RawSample sample;
  std::vector<std::uint64_t> kernel;
  std::vector<wl_interpreted_frame> interpreted;
  std::uint32_t reason = 0;
  std::uint32_t space = 0;  // of the address space, as the kernel side knew it; 0: it did not
  std::uint64_t hash = 0;   // of a wait: of its key
};
[[nodiscard]] Expected<RawEvent> parse_raw_event(const wl_event_head& head, std::size_t size);

}  // namespace windlass::profiler
