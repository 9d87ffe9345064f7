// Rules for the stack pointer of a walk, shared by all walkers: how far a frame can reach, and when a stack pointer
// that does not move ends the walk.
#pragma once

#include <cstdint>

#include "windlass/registers.h"

namespace windlass::walk {

inline constexpr std::uint64_t kMaxFrameSize = std::uint64_t{1} << 30;
// The caller's frame pointer and the return address.
[[nodiscard]] constexpr std::uint64_t frame_record_size(Architecture architecture) {
  return std::uint64_t{2} * Registers::word_size(architecture);
}

// Where systems map nothing (vm.mmap_min_addr): pc got there by a call of a null pointer, or of a method through one.
[[nodiscard]] constexpr bool is_null_page(std::uint64_t pc) { return pc < 0x10000; }

// Can this be a stack pointer at all: aligned, in user space?
[[nodiscard]] constexpr bool is_stack_address(Architecture architecture, std::uint64_t sp) {
  constexpr unsigned kUserBits = 56;  // x86-64 with five-level paging; AArch64 has 52
  return sp % Registers::word_size(architecture) == 0 && sp >> kUserBits == 0;
}

// The lowest that the caller's sp can be: where it is not known, behind the frame record that led to it.
[[nodiscard]] constexpr std::uint64_t lowest_sp(const Registers& callee, const Registers& caller) {
  const Architecture architecture = callee.architecture();
  return caller.has_sp() ? caller.sp()
                         : callee.get(Registers::fp_number(architecture)) + frame_record_size(architecture);
}

// Of one walk. Plain frames move sp up; few do not: switches to a stack that lies below, and leaves that keep their
// return address in a register.
class Progress {
 public:
  // Counts a step. False where the walk must end, lest it never does.
  [[nodiscard]] constexpr bool allows(std::uint64_t from_sp, std::uint64_t to_sp, bool same_pc) {
    if (to_sp > from_sp) [[likely]] {
      still_ = 0;
      return true;
    }
    if (to_sp == from_sp) return !same_pc && ++still_ <= kMaxStill;
    return ++backward_ <= kMaxBackward;
  }
  // A step that is known to move sp up.
  constexpr void moved_up() { still_ = 0; }

 private:
  static constexpr std::uint8_t kMaxBackward = 16;
  static constexpr std::uint8_t kMaxStill = 2;
  std::uint8_t backward_ = 0;
  std::uint8_t still_ = 0;  // consecutive
};

}  // namespace windlass::walk
