// What an instruction does to the flow of control: all that the shadow stack has to know of it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "exactness/tracee.h"

namespace windlass::exactness {

struct Instruction {
  enum class Kind : std::uint8_t { kOther, kCall, kReturn, kJump, kIndirectJump, kSystemCall };
  Kind kind = Kind::kOther;
  std::uint8_t length = 0;
  bool repeats = false;  // rep movs and the like: stepped once for each repetition
  const char* mnemonic = "?";
};

// Decodes once an address, until forget().
class InstructionCache {
 public:
  const Instruction& at(const Tracee& tracee, std::uint64_t pc);
  void forget() { cache_.clear(); }

 private:
  std::unordered_map<std::uint64_t, Instruction> cache_;
};

}  // namespace windlass::exactness
