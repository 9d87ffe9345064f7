// The effect of one instruction of x86-64 or i386 on the stack pointer. For reading code in a straight line, where
// following all paths (synthesis.h) is not needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

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
  std::int64_t delta = 0;   // what rsp moves by: kMove, kPush, kPop
  std::uint64_t target = 0;
};

// The instruction at the front of `code`, which is at `address`, of x86-64 or i386. kMalformed: none. No allocation,
// thread-safe.
[[nodiscard]] Expected<StackEffect> stack_effect(ByteView code, std::uint64_t address,
                                                 Architecture architecture = Architecture::kX86_64);

// The instructions of x86-64 or i386 code in a straight line, one a call of next(). `code` is at `address`. Those count
// that begin at offsets of [begin, end): how much work it may be is its user's to say.
class StraightCode {
 public:
  StraightCode(ByteView code, std::uint64_t address, std::size_t end, std::size_t begin = 0,
               Architecture architecture = Architecture::kX86_64)
      : code_(code),
        address_(address),
        last_(end < code.size() ? end : code.size()),
        offset_(begin),
        end_(begin),
        architecture_(architecture) {}
  // Nothing: that was the last one, or no instruction stands there.
  std::optional<StackEffect> next() {
    if (end_ >= last_) return std::nullopt;
    const auto effect = stack_effect(*code_.sub(end_, code_.size() - end_), address_ + end_, architecture_);
    failed_ = !effect;
    if (failed_) return std::nullopt;
    offset_ = end_;
    end_ += effect->length;
    return *effect;
  }
  // Where the last instruction begins and ends.
  [[nodiscard]] std::size_t offset() const { return offset_; }
  [[nodiscard]] std::size_t end() const { return end_; }
  // No instruction stands at end().
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  ByteView code_;
  std::uint64_t address_;
  std::size_t last_, offset_, end_;
  Architecture architecture_;
  bool failed_ = false;
};

}  // namespace windlass::flow
