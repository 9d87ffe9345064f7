// Follows code from an address along all its ways, cheapest first, until one leaves the function. Architecture-neutral:
// a Machine decodes one instruction, changes the symbolic state and says what control does next.
//
//   struct Machine {
//     static constexpr Architecture kArchitecture;
//     static constexpr unsigned kSlots;       // registers, by Registers::slot_of
//     // Executes the instruction at path.pc and moves path.pc behind it.
//     Flow step(CodeReader& code, Path<Machine>& path);
//     static constexpr std::int64_t kEntryCfa;  // CFA - sp at a function's entry
//     // Makes `state`, taken to be that at a function's entry, its caller's; the return address. For tail jumps.
//     static Value return_from_entry(SymbolicState<kSlots>& state);
//     // The same with sp and the caller's frame pointer at the frame record, as where a frame pointer is set up. For
//     // guesses. Unknown if it cannot be.
//     static Value return_from_frame(SymbolicState<kSlots>& state);
//     // The row of the frame the frame pointer points to.
//     static void frame_pointer_row(std::uint64_t pc, FrameRow& row);
//     // Nothing on the stack, nothing saved: the row of a function's entry.
//     static bool is_entry_row(const FrameRow& row);
//   };
#pragma once

#include <cstdint>

#include "code/code_reader.h"
#include "code/rows.h"
#include "code/symbolic.h"
#include "code/synthesis.h"

namespace windlass::code {

// What control does after an instruction.
struct Flow {
  enum Kind : std::uint8_t {
    kNext,          // goes on at path.pc
    kJump,          // goes on at `target`
    kBranch,        // either; where it falls through, sp is `value` if that is known
    kCall,          // comes back to path.pc, as far as is known; `target` if known
    kReturn,        // the state is the caller's, its pc is `value`
    kJumpTo,        // a jump to `value`, whatever that is
    kLeave,         // a jump to another function for sure; `target` is where it goes at present, if known
    kSignalReturn,  // the state is that of the interrupted code, its pc is `value`
    kHalt,          // hlt
    kStop,          // traps, or cannot be followed
  };
  Kind kind = kNext;
  bool uses_frame_pointer = false;  // addresses its frame by it, or makes sp of it
  bool sets_frame_pointer = false;  // makes it of sp
  bool writes_frame_pointer = false;
  bool padding = false;  // does nothing
  std::uint64_t target = 0;
  Value value = {};
};

template <typename Machine>
struct Path {
  using State = SymbolicState<Machine::kSlots>;
  std::uint64_t pc = 0;
  std::uint32_t order = 0;     // the later the higher
  std::uint16_t calls = 0;     // passed
  bool own_fp = false;         // it has written the frame pointer
  bool after_call = false;     // the last instruction was a call
  Value sp_if_equal;           // x86-64: sp where the instruction just executed compared equal
  bool signed_return = false;  // AArch64: the return address carries its code now, relative to the start (toggled)
  State state;
};

// The addresses visited in one exploration; forgetting them all is free.
class VisitedSet {
 public:
  static constexpr unsigned kMost = 6144;
  void start() {
    count_ = 0;
    if (++generation_ == 0) {
      for (auto& entry : entries_) entry = 0;
      generation_ = 1;
    }
  }
  // False if it was there, or the set is full.
  bool insert(std::uint64_t address) {
    const std::uint64_t key = std::uint64_t{generation_} << 48 | (address & 0xffff'ffff'ffff);
    for (std::uint64_t hash = address * 0x9e37'79b9'7f4a'7c15 >> 51;; hash = (hash + 1) % kSize) {
      if (entries_[hash] == key) return false;
      if (entries_[hash] >> 48 == generation_) continue;
      if (count_ >= kMost) return false;
      ++count_;
      entries_[hash] = key;
      return true;
    }
  }
  [[nodiscard]] bool full() const { return count_ >= kMost; }

 private:
  static constexpr unsigned kSize = 8192;
  std::uint64_t entries_[kSize] = {};
  unsigned count_ = 0;
  std::uint16_t generation_ = 0;
};

// Paths still to follow. Fixed room: where it is full, the way behind most calls is given up.
template <typename Machine>
class PathList {
 public:
  static constexpr unsigned kMost = 24;
  void start() {
    count_ = 0;
    order_ = 0;
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  void add(const Path<Machine>& path) {
    unsigned place = count_;
    if (count_ < kMost) {
      ++count_;
    } else {
      place = 0;
      for (unsigned i = 1; i < kMost; ++i)
        if (paths_[i].calls > paths_[place].calls) place = i;
      if (paths_[place].calls <= path.calls) return;
    }
    paths_[place] = path;
    paths_[place].order = ++order_;
  }
  // The fewest calls first; of those the latest found, which is the nearest.
  void take(Path<Machine>& path) {
    const unsigned best = next();
    path = paths_[best];
    if (best != --count_) paths_[best] = paths_[count_];
  }
  [[nodiscard]] unsigned fewest_calls() const { return paths_[next()].calls; }

 private:
  [[nodiscard]] unsigned next() const {
    unsigned best = 0;
    for (unsigned i = 1; i < count_; ++i)
      if (paths_[i].calls < paths_[best].calls ||
          (paths_[i].calls == paths_[best].calls && paths_[i].order > paths_[best].order))
        best = i;
    return best;
  }
  Path<Machine> paths_[kMost];
  unsigned count_ = 0;
  std::uint32_t order_ = 0;
};

// The space of one exploration.
template <typename Machine>
struct Workspace {
  Machine machine;
  CodeReader code;
  VisitedSet visited;
  PathList<Machine> paths;
  Path<Machine> path;          // the one being followed
  Path<Machine>::State saved;  // its state while a way out is tried
  FrameRow row;                // the way out being tried
};

}  // namespace windlass::code
