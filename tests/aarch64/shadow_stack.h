// What the callers really are: a record per call that was executed, made from the instructions alone.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "aarch64/stub_client.h"

namespace windlass::aarch64_judge {

// The registers a call preserves, as one list: x19-x29, d8-d15.
inline constexpr unsigned kSavedRegisters = 19;
[[nodiscard]] std::uint64_t saved_register(const CpuState& state, unsigned index);
[[nodiscard]] unsigned saved_register_dwarf(unsigned index);  // its DWARF number

enum class Verdict : std::uint8_t {
  kExact,    // pc, sp and all preserved registers
  kPcSp,     // pc and sp right, a register wrong or unknown
  kWrong,    // a wrong pc or sp
  kEnds,     // the stack is said to end early, or to go on past its end
  kRefused,  // no claim
};
inline constexpr unsigned kVerdicts = 5;

// What the profiler's unwinder made of the whole stack.
struct KernelWalk {
  std::uint64_t at = 0;      // pc of the frame it ended in
  std::uint32_t frames = 0;  // callers that were right
  std::uint8_t end = 0;      // wl_end; WL_CONTINUE where the truth is not known further
  bool wrong = false;        // it went on with a wrong caller, or said that a frame with a caller is the outermost
  bool asked = false;
};

// A caller as the walker has it.
struct Claim {
  std::uint64_t pc = 0, sp = 0;
  std::uint64_t saved[kSavedRegisters] = {};
  std::uint32_t known = 0;  // of those, a bit each
};

struct Judgement {
  std::uint64_t pc = 0;
  Claim got;
  std::uint32_t bad_registers = 0;  // a bit each
  Verdict verdict = Verdict::kExact;
  std::uint8_t origin = 0;  // FrameOrigin
  KernelWalk kernel;
};

struct ShadowFrame {
  enum Kind : std::uint8_t {
    kCall,    // pc goes back to caller.pc with sp = caller.sp
    kSignal,  // the trampoline: caller is the interrupted state
    kBottom,  // nobody called it
  } kind = kBottom;
  unsigned region = 0;  // of the stack its caller's sp is on
  CpuState caller;
  std::uint64_t link_slot = 0;        // where its function has put the return address first, and
  std::uint64_t link_value = 0;       // what it stored (with an authentication code, perhaps)
  std::vector<Judgement> judgements;  // while this frame was innermost; final when it is left
  std::size_t since_return = 0;       // of those: the first after its last callee returned
  // Callers that are right if this frame is left for there (libgcc going to a landing pad), by the pc of the claim.
  std::vector<std::pair<std::uint64_t, Claim>> landings;
};

class ShadowStack {
 public:
  // Takes the judgements of a frame that is left. `lost`: registers that the function did not preserve, a bit each.
  // `in_transfer`: how many of the last judgements are of code that then went to another place than the caller. That
  // place is `to`; null if the frame returned, or was taken down by the end.
  struct Sink {
    virtual void left(const ShadowFrame& frame, std::uint32_t lost, std::size_t in_transfer, const CpuState* to) = 0;

   protected:
    ~Sink() = default;
  };

  explicit ShadowStack(Sink& sink) : sink_(sink) { frames_.emplace_back(); }

  [[nodiscard]] ShadowFrame& top() { return frames_.back(); }
  [[nodiscard]] std::vector<ShadowFrame>& frames() { return frames_; }
  [[nodiscard]] std::uint64_t strange_transfers() const { return strange_; }
  // Return addresses that were stored with an authentication code.
  [[nodiscard]] std::uint64_t signed_links() const { return signed_links_; }
  [[nodiscard]] bool above_caller(const CpuState& state) const {
    return frames_.back().kind != ShadowFrame::kBottom && region_of(state.sp) == frames_.back().region &&
           state.sp > frames_.back().caller.sp;
  }

  void add_alternate_stack(std::uint64_t begin, std::uint64_t size) { regions_.push_back({begin, begin + size}); }
  // `from` executed the instruction `word`; `to` is the state after it.
  void executed(const CpuState& from, std::uint32_t word, const CpuState& to);
  // A signal was delivered: `at` is the handler's first instruction.
  void signalled(const CpuState& interrupted, const CpuState& at);
  void sigreturn();
  // What the innermost signal interrupted.
  [[nodiscard]] CpuState interrupted() const;
  void finish();

 private:
  struct Region {
    std::uint64_t begin, end;
  };
  [[nodiscard]] unsigned region_of(std::uint64_t sp) const;
  void push(ShadowFrame::Kind kind, const CpuState& caller);
  void pop(const CpuState* returned, const CpuState* to, bool transfer);
  void note_link_store(const CpuState& from, std::uint32_t word);
  void returned(const CpuState& to);
  void transferred(const CpuState& to, bool also_equal);

  Sink& sink_;
  std::vector<ShadowFrame> frames_;
  std::vector<Region> regions_;
  // By a call's return address and sp: who called its caller, where that has nothing on the stack. A jump back there
  // (longjmp into the C library's own sigsetjmp) finds that frame gone.
  std::map<std::pair<std::uint64_t, std::uint64_t>, CpuState> frameless_callers_;
  std::uint64_t strange_ = 0;
  std::uint64_t signed_links_ = 0;
};

}  // namespace windlass::aarch64_judge
