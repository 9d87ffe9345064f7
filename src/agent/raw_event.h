// A sample that the kernel side hands over raw: registers, copies of the stack, the code around the pc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "windlass/error.h"
#include "windlass/registers.h"
#include "windlass_layout.h"

namespace windlass::agent {

// What is known of the sampled thread's memory. Spans are only read during unwind().
struct RawSample {
  std::uint32_t tgid = 0;
  Registers registers;  // all known, at an instruction
  std::uint64_t stack_address = 0;
  std::span<const std::byte> stack;
  std::uint64_t second_address = 0;  // of another stack that the thread came from
  std::span<const std::byte> second_stack;
  std::uint64_t code_address = 0;
  std::span<const std::byte> code;  // around the pc, as it was
};

// The pieces of an event, or kMalformed; kUnsupported where its registers are of no machine known here. The spans point
// into the event.
struct RawEvent {
  RawSample sample;
  std::vector<std::uint64_t> kernel;
  std::uint32_t reason = 0;
};
[[nodiscard]] Expected<RawEvent> parse_raw_event(const wl_event_head& head, std::size_t size);

}  // namespace windlass::agent
