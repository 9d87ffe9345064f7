// The judge: steps an AArch64 program under qemu-aarch64 and asks StackWalker for the caller at every instruction.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "aarch64/shadow_stack.h"

namespace windlass::aarch64_judge {

struct Options {
  std::string sysroot;
  std::string cpu = "max,sve=off";
  std::vector<std::string> command;
  std::uint64_t most = 100000;      // instructions judged
  std::uint64_t whole_stack = 100;  // every so many instructions the whole stack is walked too; 0: never
  bool from_start = false;          // judge the dynamic linker's start too, not only from the program's entry on
  bool bind_now = false;
  std::uint64_t kernel_stack =
      10;  // every so many instructions the profiler's unwinder walks the whole stack; 0: never
};

struct Site {
  std::uint64_t count[kVerdicts] = {};
  std::uint32_t bad_registers = 0;
  std::uint64_t got_pc = 0;
  std::uint64_t got_sp = 0;
  unsigned origin = 0;
};

struct Report {
  std::string problem;  // why there was nothing to judge, or why the run broke off
  std::uint64_t steps = 0;
  std::uint64_t judged = 0;
  std::uint64_t count[kVerdicts] = {};
  std::uint64_t in_transfer = 0;   // not judged: after the last call of code that then went elsewhere (longjmp)
  std::uint64_t rewritten = 0;     // judged as a landing: the return address on the stack has been replaced
  std::uint64_t above_caller = 0;  // likewise: sp has passed the caller's, before the jump
  std::uint64_t landings = 0;      // callers that were where a frame then went without returning, registers, too
  std::uint64_t landings_wrong = 0, landings_refused = 0;
  std::uint64_t strange = 0;  // returns to nowhere known
  std::uint64_t signals = 0;
  std::uint64_t signed_links = 0;  // return addresses stored with an authentication code
  std::uint64_t by_origin[8] = {};
  std::uint64_t stacks = 0, stacks_right = 0, stacks_short = 0, stacks_wrong = 0;
  std::uint64_t stacks_landing =
      0;  // of the right ones: with a landing pad's frame in place of those that it takes down
  std::uint64_t stacks_unproven = 0;  // all frames right, but not said to be whole
  // The profiler's unwinder, on whole stacks.
  std::uint64_t kernel_stacks = 0, kernel_frames = 0, kernel_complete = 0, kernel_wrong = 0, kernel_truncated = 0;
  std::uint64_t kernel_plain = 0, kernel_memo_differences = 0;
  std::map<std::string, std::uint64_t> kernel_ends;    // "module+0xaddress reason" of stacks that were short or wrong
  std::vector<std::string> kernel_problems;            // of compiling tables
  std::map<std::string, std::uint64_t> landing_sites;  // of wrong landings
  std::map<std::string, Site> sites;                   // "module+0xaddress" of what was not exact
  std::map<std::string, std::uint64_t> stack_ends;     // where whole stacks went wrong, and how

  [[nodiscard]] double share(Verdict verdict) const {
    return judged == 0
               ? 0
               : 100.0 * static_cast<double>(count[static_cast<unsigned>(verdict)]) / static_cast<double>(judged);
  }
  [[nodiscard]] std::string text(std::size_t most_sites) const;
};

Report judge(const Options& options);

}  // namespace windlass::aarch64_judge
