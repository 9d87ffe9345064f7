// Follows code from an address along all its ways, cheapest first, until one leaves the function. Architecture-neutral:
// a CodeMachine decodes one instruction, changes the symbolic state and says what control does next.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "flow/code_reader.h"
#include "flow/follow.h"
#include "flow/rows.h"
#include "flow/symbolic.h"
#include "flow/synthesis.h"

namespace windlass::flow {

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
  bool addresses_frame = false;     // surely so: below it, as no pointer to data would
  bool sets_frame_pointer = false;  // makes it of sp
  bool writes_frame_pointer = false;
  bool padding = false;  // does nothing
  bool is_call = false;  // kJump: by a call that is taken not to come back; its return address is on the stack
  std::uint64_t target = 0;
  Value value = {};
  std::uint32_t limit = 0;  // kBranch: Path::limit where it is taken
};

struct PathHead {
  std::uint64_t pc = 0;
  std::uint32_t order = 0;     // the later the higher
  std::uint16_t calls = 0;     // passed
  bool own_fp = false;         // it has written the frame pointer
  bool after_call = false;     // the last instruction was a call
  Value sp_if_equal;           // x86-64: sp where the instruction just executed compared equal
  std::uint32_t compared = 0;  // one more than the number that something was compared with last; 0: not known
  std::uint32_t limit = 0;  // the last comparison that the way depends on has let through numbers below; 0: not known
  bool signed_return = false;  // AArch64: the return address carries its code now, relative to the start (toggled)
};

template <typename Machine>
struct Path : PathHead {
  using State = SymbolicState<Machine::kSlots>;
  State state;

  // Anew, and without touching more than is used: the state's stores are most of a path.
  void start(std::uint64_t at) {
    static_cast<PathHead&>(*this) = {};
    pc = at;
    state.start();
  }
};

// What code/ has to know of an architecture: X86_64 and AArch64.
//
//   kArchitecture
//   kSlots                       registers, by Registers::slot_of
//   kInstructionStep             instructions begin at multiples of it
//   kEntryCfa                    CFA - sp at a function's entry
//   machine.step(code, path)     executes the instruction at path.pc and moves path.pc behind it
//   forget_by_call(state, kept)  a call has returned: registers that calls need not preserve and whose slots are not
//   among
//                                `kept` are unknown
//   look_back(code, path)        what the bytes before the pc say about the state there
//   return_from_entry(state)     makes a state, taken to be that at a function's entry, its caller's; the return
//                                address. For tail jumps
//   return_from_frame(state)     the same with sp and the caller's frame pointer at the frame record, as where a frame
//                                pointer is set up. For guesses. Unknown if it cannot be
//   frame_pointer_row(pc, row)   the row of the frame the frame pointer points to
//   entry_row(pc, row)           nothing on the stack, nothing saved: the row of a function's entry
//   is_entry_row(row)            is it that one?
//   linkage_stub(code, pc, row)  if `pc` is in a stub for lazy binding: the row's CFA and registers
//   may_be_epilogue(source, pc)  by its first bytes: can `pc` be in an epilogue?
//   behind_call(source, at)      does a call end at the address? True where that cannot be read
//   direct_call_target(source, at)    of the direct call that ends at the address; 0: there is none
//   constant_call_target(source, at)  of the call through a register that the instructions in front of it set; 0: it is
//                                not one
//   behind_indirect_call(source, at)  does a call through a register or memory end at the address?
//   signal_trampoline(source, at)  does the address begin the code that ends a signal handler?
//   may_start_function(code, at) does something end before the address that does not go on there?
//   loads_table(code, at)        does an instruction at the address load the address of a table?
//
// kLinkRegister besides, where a call leaves its return address in a register; has_callers_record(state) where the
// return address may be put into a frame record of the caller's making.
template <typename Machine>
concept CodeMachine = requires(Machine machine, CodeReader& code, const CodeSource& source, Path<Machine>& path,
                               SymbolicState<Machine::kSlots>& state, std::uint64_t address, FrameRow& row,
                               const FrameRow& some_row) {
  { Machine::kArchitecture } -> std::convertible_to<Architecture>;
  { Machine::kSlots } -> std::convertible_to<unsigned>;
  { Machine::kInstructionStep } -> std::convertible_to<unsigned>;
  { Machine::kEntryCfa } -> std::convertible_to<std::int64_t>;
  { machine.step(code, path) } -> std::same_as<Flow>;
  Machine::forget_by_call(state, address);
  Machine::look_back(code, path);
  { Machine::return_from_entry(state) } -> std::same_as<Value>;
  { Machine::return_from_frame(state) } -> std::same_as<Value>;
  Machine::frame_pointer_row(address, row);
  Machine::entry_row(address, row);
  { Machine::is_entry_row(some_row) } -> std::same_as<bool>;
  { Machine::linkage_stub(code, address, row) } -> std::same_as<bool>;
  { Machine::may_be_epilogue(source, address) } -> std::same_as<bool>;
  { Machine::behind_call(source, address) } -> std::same_as<bool>;
  { Machine::direct_call_target(source, address) } -> std::same_as<std::uint64_t>;
  { Machine::constant_call_target(source, address) } -> std::same_as<std::uint64_t>;
  { Machine::behind_indirect_call(source, address) } -> std::same_as<bool>;
  { Machine::signal_trampoline(source, address) } -> std::same_as<bool>;
  { Machine::may_start_function(code, address) } -> std::same_as<bool>;
  { Machine::loads_table(code, address) } -> std::same_as<bool>;
};

// Where an entry of the jump table leads from which `targets` is (Value::kTableTarget); nothing if it cannot be read.
inline std::optional<std::uint64_t> table_target(const Value& targets, unsigned index, const CodeSource& source) {
  const bool is_signed = targets.slot2 < 0;
  const auto size = static_cast<unsigned>(is_signed ? -targets.slot2 : targets.slot2);
  const auto address = static_cast<std::uint64_t>(targets.addend);
  std::uint64_t entry = 0;
  if (size > sizeof entry || !source.read(address + std::uint64_t{index} * size, &entry, size)) return std::nullopt;
  if (size == sizeof entry) return entry;
  if (is_signed && (entry >> (size * 8 - 1) & 1) != 0) entry |= ~std::uint64_t{0} << size * 8;
  return address + static_cast<std::uint64_t>(std::int64_t{targets.slot}) + (entry << targets.reg);
}

// A value, by the registers at the pc and memory as they are. Nothing where the source does not tell of these.
inline std::optional<std::uint64_t> present_value(const Value& value, const CodeSource& source) {
  std::uint64_t now = 0;
  if (!value.is_address() || value.is_symbol() || !source.register_value(register_of_slot(value.reg), now))
    return std::nullopt;
  const auto load = [&](std::int64_t offset) {
    return source.read(now + static_cast<std::uint64_t>(offset), &now, sizeof now);
  };
  if (value.kind != Value::kRegister && !load(value.slot)) return std::nullopt;
  if (value.kind == Value::kMemory2 && !load(value.slot2)) return std::nullopt;
  return now + static_cast<std::uint64_t>(value.addend);
}

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
    const std::uint64_t key = key_of(address);
    for (std::uint64_t place = place_of(address);; place = (place + 1) % kSize) {
      if (entries_[place] == key) return false;
      if (entries_[place] >> 48 == generation_) continue;
      if (count_ >= kMost) return false;
      ++count_;
      entries_[place] = key;
      return true;
    }
  }
  [[nodiscard]] bool full() const { return count_ >= kMost; }
  [[nodiscard]] bool contains(std::uint64_t address) const {
    const std::uint64_t key = key_of(address);
    for (std::uint64_t place = place_of(address);; place = (place + 1) % kSize) {
      if (entries_[place] == key) return true;
      if (entries_[place] >> 48 != generation_) return false;
    }
  }

 private:
  static constexpr unsigned kSize = 8192;
  [[nodiscard]] std::uint64_t key_of(std::uint64_t address) const {
    return std::uint64_t{generation_} << 48 | (address & 0xffff'ffff'ffff);
  }
  static std::uint64_t place_of(std::uint64_t address) { return address * 0x9e37'79b9'7f4a'7c15 >> 51; }
  std::uint64_t entries_[kSize] = {};
  unsigned count_ = 0;
  std::uint16_t generation_ = 0;
};

// The paths that are still to be followed, in a fixed room. If the room is full, paths that another path has passed
// meanwhile are dropped. In code of many small branches these are nearly all, and the path to the way out may be the
// one without room. After that, the path behind most calls is dropped.
template <typename Machine>
class PathList {
 public:
  static constexpr unsigned kMost = 24;
  void start() {
    count_ = 0;
    order_ = 0;
    has_given_up_ = false;
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] bool has_given_up() const { return has_given_up_; }  // any path, for want of room
  void add(const Path<Machine>& path, const VisitedSet& visited) {
    if (count_ == kMost) drop(visited);
    unsigned place = count_;
    if (count_ < kMost) {
      ++count_;
    } else {
      place = 0;
      has_given_up_ = true;
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
  void drop(const VisitedSet& visited) {
    unsigned kept = 0;
    for (unsigned i = 0; i < count_; ++i) {
      if (visited.contains(paths_[i].pc) && !paths_[i].after_call) continue;
      if (kept != i) paths_[kept] = paths_[i];
      ++kept;
    }
    count_ = kept;
  }
  [[nodiscard]] static std::uint64_t rank(const PathHead& path) {
    return std::uint64_t{path.calls} << 32 | (~std::uint32_t{0} - path.order);
  }
  [[nodiscard]] unsigned next() const {
    unsigned best = 0;
    std::uint64_t lowest = rank(paths_[0]);
    for (unsigned i = 1; i < count_; ++i)
      if (const std::uint64_t here = rank(paths_[i]); here < lowest) best = i, lowest = here;
    return best;
  }
  Path<Machine> paths_[kMost];
  unsigned count_ = 0;
  bool has_given_up_ = false;
  std::uint32_t order_ = 0;
};

// The space of one exploration.
template <CodeMachine Machine>
struct Workspace {
  Machine machine;
  CodeReader code;
  VisitedSet visited;
  PathList<Machine> paths;
  Path<Machine> path;          // the one being followed
  Path<Machine>::State saved;  // its state while a way out is tried
  FrameRow row;                // the way out being tried

  Workspace() {}  // NOLINT(modernize-use-equals-default): most of it needs no zeros
  void start(const CodeSource& source, std::uint64_t pc) {
    code.start(source);
    path.start(pc);
  }
};

inline constexpr std::uint64_t kAnywhere = ~std::uint64_t{0};

// Follows straight code: up to the first instruction that does more than go on, and no further than `to`. `step()`
// executes the one at path.pc. What the last one did.
template <typename Step>
Flow follow_straight(const PathHead& path, std::uint64_t to, std::uint32_t budget, Step&& step) {
  Flow last;
  const auto arrive = [&] { return path.pc < to ? Go::kOn : Go::kEnd; };
  const auto run = [&] { return (last = step()).kind == Flow::kNext ? Go::kOn : Go::kEnd; };
  (void)follow(budget, arrive, run, [] { return false; });
  return last;
}
template <typename Machine>
Flow follow_straight(Workspace<Machine>& work, std::uint64_t to, std::uint32_t budget) {
  return follow_straight(work.path, to, budget, [&] { return work.machine.step(work.code, work.path); });
}

}  // namespace windlass::flow
