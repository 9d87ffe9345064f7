// What one instruction of x86-64 or i386 does to the stack pointer: for reading code in a straight line, where
// following its paths (synthesis.h) would be more than is needed.
#pragma once

#include <cstdint>

#include "windlass/bytes.h"
#include "windlass/frame_row.h"
#include "windlass/registers.h"

namespace windlass::flow {

struct StackEffect {
  enum class Kind : std::uint8_t {
    kNone,
    kMove,     // rsp += delta
    kPush,     // of `reg`, whole: rsp -= 8 (i386: 4)
    kPop,      // to `reg`, which is not rsp: rsp += 8 (i386: 4)
    kSet,      // rsp = reg
    kUnknown,  // rsp is something else
    kCall,     // rsp is the same behind it
    kBranch,   // to `target` or on
    kJump,     // to `target`, 0 if not known
    kReturn,   // or a trap: what follows is reached another way
  };
  Kind kind = Kind::kNone;
  std::uint8_t length = 0;  // bytes
  RegisterNumber reg = 0;   // DWARF number
  std::int64_t delta = 0;
  std::uint64_t target = 0;
};

// The instruction at the front of `code`, which is at `address`, of x86-64 or i386. kMalformed: none. No allocation,
// thread-safe.
[[nodiscard]] Expected<StackEffect> stack_effect(ByteView code, std::uint64_t address,
                                                 Architecture architecture = Architecture::kX86_64);

}  // namespace windlass::flow
