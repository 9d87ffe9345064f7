// Backtraces of the own process.
#include "windlass/backtrace.h"
#include "base/pointer_authentication.h"
#include "walk/own/fast_walk.h"
#include "walk/own/whole_walk.h"

namespace windlass {
namespace {

using walk::FastWalk;

WalkEnd end_of(FastWalk::Outcome outcome) {
  switch (outcome) {
    case FastWalk::Outcome::kComplete: return WalkEnd::kComplete;
    case FastWalk::Outcome::kGuessed: return WalkEnd::kGuessed;
    default: return WalkEnd::kLimit;
  }
}

// From this function's own registers outwards to the frame that stands at `sp`, and on.
[[gnu::noinline]] std::size_t walk_from_here(std::uint64_t sp, std::uint64_t* pcs, std::size_t max, unsigned skip,
                                             std::uint32_t may_follow) {
  WalkOptions options = walk::options_for(pcs, max);
  options.max_followed = may_follow;
  StackWalker walker(own_process(), capture_registers(), options);
  while (walker.frame().sp() < sp)
    if (!walker.step()) return 0;
  for (; skip != 0; --skip)
    if (!walker.step()) return 0;
  return walk::whole_walk(walker, pcs, max, nullptr);
}

}  // namespace

std::size_t backtrace_from(const Registers& registers, std::uint64_t* pcs, std::size_t max, WalkEnd* end) {
  if (max == 0) return 0;
  WalkOptions options = walk::options_for(pcs, max);
  const CodeAddress pc = registers.pc();
  const RegisterNumber fp = Registers::fp_number(kOwnArchitecture);
  if (registers.has_sp() && registers.has(fp) && static_cast<std::int64_t>(pc.value()) > 0) {
    FastWalk walk(
        {pc.value() | (pc.is_return_address() ? 0 : walk::kInstructionBit), registers.sp(), registers.get(fp)}, false);
    const std::size_t depth = walk.run(pcs, max);
    if (walk.outcome() != FastWalk::Outcome::kNeedsAllRegisters) {
      if (end != nullptr) *end = end_of(walk.outcome());
      return depth;
    }
    options.max_followed = walk.may_follow();
  }
  StackWalker walker(own_process(), registers, options);
  return walk::whole_walk(walker, pcs, max, end);
}

[[gnu::noinline, gnu::hot]] std::size_t backtrace(std::uint64_t* pcs, std::size_t max, unsigned skip) {
  if (max == 0) return 0;
  const auto pc = reinterpret_cast<std::uint64_t>(__builtin_extract_return_addr(__builtin_return_address(0)));
  const auto sp = reinterpret_cast<std::uint64_t>(__builtin_dwarf_cfa());
  // Both architectures save the caller's frame pointer where their own points.
  const std::uint64_t fp = *static_cast<const std::uint64_t*>(__builtin_frame_address(0));
  std::uint32_t may_follow = 0;
  {
    FastWalk walk({without_authentication(pc), sp, fp}, true);
    bool more = true;
    for (unsigned i = 0; more && i < skip; ++i) more = walk.step();
    if (more) {
      const std::size_t depth = walk.run(pcs, max);
      if (walk.outcome() != FastWalk::Outcome::kNeedsAllRegisters) return depth;
    } else if (walk.outcome() != FastWalk::Outcome::kNeedsAllRegisters) {
      return 0;
    }
    may_follow = walk.may_follow();
  }
  return walk_from_here(sp, pcs, max, skip, may_follow);
}

}  // namespace windlass
