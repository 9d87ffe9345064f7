// What `walk` prints.
#pragma once

#include "base/text_writer.h"
#include "cli/thread_stacks.h"

namespace windlass::cli {

struct WalkOutputOptions {
  bool json = false;
  int verbose = 0;  // 1: who unwound each frame, modules; 2: and its registers
  bool lines = false;
  bool inlines = false;
};

void print_walk(const Target& target, const ThreadStacks& walked, const WalkOutputOptions& options, TextWriter& out);

}  // namespace windlass::cli
