// Unwinds a sample that the kernel side handed over raw: its registers and a copy of its stack. Full rows (every
// callee-saved register, expressions) where the code has them, else the machine code itself (code/synthesis.h), else a
// guarded frame-pointer step. What the machines do differently is told by the architecture of the sample's registers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/module_registry.h"
#include "agent/process_table.h"
#include "arch/pointer_authentication.h"
#include "code/synthesis.h"
#include "walk/apply.h"
#include "windlass/frame_row.h"
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

class RawUnwinder {
 public:
  static constexpr std::size_t kMaxFrames = WL_MAX_USER_FRAMES;
  static constexpr unsigned kMaxBackward = 16;  // switches to a stack below the current one

  // code_mask: what return addresses are ANDed with.
  explicit RawUnwinder(ModuleRegistry& registry, std::uint64_t code_mask = user_code_mask())
      : registry_(registry), code_mask_(code_mask), scratch_(code::make_scratch()) {}

  // Appends the user frames, innermost first, as wl_stack_event has them. Returns how the stack ended (wl_end).
  std::uint8_t unwind(const RawSample& sample, const MapSet* maps, std::vector<std::uint64_t>& frames);

 private:
  struct Context;
  struct FreeScratch {
    void operator()(code::SynthesisScratch* scratch) const { code::free_scratch(scratch); }
  };
  int step(Context& context, Registers& frame);
  int by_row(Context& context, FrameRow& row, std::uint64_t bias, Registers& frame);
  int by_code(Context& context, Registers& frame, std::uint64_t entry_point);
  bool returns_from_signal(Context& context, const Registers& frame);
  std::optional<int> by_signal_trampoline(Context& context, Registers& frame);
  walk::StepStatus find_caller(const Context& context, const FrameRow& row, std::uint64_t bias, const Registers& frame,
                               Registers& caller) const;
  bool tells_only(const Context& context, const FrameRow& row, const FrameRow& other, const Registers& frame) const;
  int apply(Context& context, const FrameRow& row, std::uint64_t bias, Registers& frame) const;
  // Calls use(source): the code, seen from `frame`.
  template <typename Use>
  auto with_code(Context& context, const Registers& frame, std::uint64_t entry_point, Use&& use);
  bool read_any(Context& context, std::uint64_t address, void* to, std::size_t size);

  ModuleRegistry& registry_;
  std::uint64_t code_mask_;
  std::unique_ptr<code::SynthesisScratch, FreeScratch> scratch_;
};

}  // namespace windlass::agent
