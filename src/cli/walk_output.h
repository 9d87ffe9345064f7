// What `walk` prints.
#pragma once

#include <span>
#include <vector>

#include "base/text_writer.h"
#include "symbols/stack_text.h"
#include "walk/target/thread_stacks.h"

namespace windlass::cli {

struct WalkOutputOptions {
  bool json = false;
  bool each = false;               // threads with equal stacks by themselves
  bool processes = false;          // several: JSON says whose thread it is
  bool arguments = false;          // of functions
  symbols::StackTextOptions text;  // of the JSON, too
  std::size_t repeat = 1;          // 0: without end
};

// Which of several walks this is, and what it cost the process.
struct WalkTurn {
  std::size_t number = 1;
  std::uint64_t stopped_ns = 0;
};

// Of the frames of a thread, those of each function: Symbolizer::arguments().
using StackArguments = std::vector<std::vector<FunctionArguments>>;

// What has been found out.
struct NamedWalk {
  const walk::ThreadStacks& walked;
  std::span<const NamedAddress> names;        // of walked.addresses
  std::span<const StackArguments> arguments;  // of walked.threads; empty: not wanted
};

void print_walk(const Target& target, const NamedWalk& found, const WalkOutputOptions& options, const WalkTurn& turn,
                TextWriter& out);

}  // namespace windlass::cli
