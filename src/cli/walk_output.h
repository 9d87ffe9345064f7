// What `walk` prints.
#pragma once

#include <span>

#include "base/text_writer.h"
#include "cli/thread_stacks.h"

namespace windlass::cli {

struct WalkOutputOptions {
  bool json = false;
  int verbose = 0;  // 1: who unwound each frame, modules; 2: and its registers
  bool lines = false;
  bool inlines = false;
  std::size_t repeat = 1;
};

// Which of several walks this is, and what it cost the process.
struct WalkTurn {
  std::size_t number = 1;
  std::uint64_t stopped_ns = 0;
};

// `names`: of walked.addresses.
void print_walk(const Target& target, const ThreadStacks& walked, std::span<const NamedAddress> names,
                const WalkOutputOptions& options, const WalkTurn& turn, TextWriter& out);

}  // namespace windlass::cli
