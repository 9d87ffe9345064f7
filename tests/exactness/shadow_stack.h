// The truth about a process's callers, kept beside it: one record for every call executed, two for every signal.
//
// A record is made when a call has pushed its return address. It is dropped when a return or an indirect jump leaves sp
// above the slot of that address, which covers longjmp and exceptions too. In between, at every instruction, the
// callee's caller has the pushed pc, sp = the slot + 8, and the six preserved registers as they were at the call. A
// signal makes two records: the handler's, which returns to the restorer, and the restorer's, read from the ucontext
// that the kernel wrote.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "exactness/instruction.h"
#include "exactness/tracee.h"

namespace windlass::exactness {

inline constexpr std::array<std::uint8_t, 6> kPreserved = {3, 6, 12, 13, 14, 15};  // rbx rbp r12 r13 r14 r15
inline constexpr std::array<const char*, 6> kPreservedNames = {"rbx", "rbp", "r12", "r13", "r14", "r15"};

// A verdict that waits for its frame to return: only then is it known which registers the callee preserves.
struct PendingVerdict {
  std::uint64_t pc = 0;
  std::uint16_t peer = 0;
  std::uint8_t verdict = 0;
  std::uint8_t wrong_registers = 0;  // bits: indexes into kPreserved
  std::uint64_t claimed_pc = 0;
  std::uint64_t claimed_sp = 0;
};

// A peer left callers out of a whole stack, up to one further out. That is right if the frame was then left by a jump
// over these (libgcc going to a landing pad). The jump went to `pc`, if that is not 0 but claimed to be next.
struct SkippedCallers {
  std::uint16_t peer = 0;
  std::uint64_t pc = 0;
};

struct ShadowFrame {
  enum class Kind : std::uint8_t {
    kCall,
    kSignal,   // the restorer: its caller is what the signal interrupted
    kBottom,   // the process's first frame: there is no caller
    kUnknown,  // the first frame of a stack that was switched to: nobody knows
  };
  Kind kind = Kind::kCall;
  std::uint64_t slot = 0;  // where the return address is; kSignal: sp in the restorer
  std::uint64_t caller_pc = 0;
  std::uint64_t caller_sp = 0;
  std::array<std::uint64_t, 6> caller_preserved{};
  std::uint64_t entry = 0;  // the callee's first instruction
  std::vector<PendingVerdict> pending;
  std::vector<SkippedCallers> skipped_by;
  std::uint64_t left_to = 0;  // not by a return to its caller, but for there
};

class ShadowStack {
 public:
  // `lost`: bits of registers that the callee did not preserve (private calling conventions).
  using OnPop = std::function<void(const ShadowFrame&, std::uint8_t lost)>;
  explicit ShadowStack(OnPop on_pop) : on_pop_(std::move(on_pop)) {}

  // `bottom`: what the frame that the process stands in is.
  void start(const Tracee& tracee, ShadowFrame::Kind bottom = ShadowFrame::Kind::kBottom);
  // After a step: `instruction` was executed at `before`.
  void stepped(Tracee& tracee, const Instruction& instruction, const MachineState& before);
  // Drops all records.
  void finish();

  [[nodiscard]] ShadowFrame& top() { return stacks_[current_].frames.back(); }

  enum class Judgeable { kYes, kLimbo, kRewritten, kUnknown };
  // Is the truth known here? kLimbo: the return address has been popped, or a longjmp is on its way. kRewritten: the
  // slot holds something else now (context installation).
  [[nodiscard]] Judgeable judgeable(const Tracee& tracee);

  // The callers from the top outwards, over all stacks that signals came from. `open`: the last one's caller is
  // unknown.
  [[nodiscard]] std::vector<ShadowFrame*> callers(Tracee& tracee, bool& open);

  [[nodiscard]] std::uint64_t signals() const { return signals_; }

 private:
  struct Stack {
    std::uint64_t end;  // of the mapping it lies in: what distinguishes stacks
    std::vector<ShadowFrame> frames;
  };

  [[nodiscard]] static std::uint64_t stack_end(Tracee& tracee, std::uint64_t sp);
  void select(Tracee& tracee, const MachineState& before);
  void pop(Stack& stack, std::uint8_t lost);
  [[nodiscard]] bool push_signal(const Tracee& tracee);
  void pop_restorer(std::uint64_t sp);
  void push_call(const Instruction& instruction, const MachineState& before, const MachineState& after);
  void resume(const MachineState& after);
  void pop_returned(const Instruction& instruction, const MachineState& after);

  OnPop on_pop_;
  std::vector<Stack> stacks_;
  std::size_t current_ = 0;
  // By the pc behind a call that was made without a return address of one's own on the stack: who made it.
  std::unordered_map<std::uint64_t, ShadowFrame> without_address_;
  std::uint64_t signals_ = 0;
};

}  // namespace windlass::exactness
