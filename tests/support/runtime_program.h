// A program of a managed runtime that prints READY once it has reached the state for the test; and recordings of such
// programs, as text.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "support/child_program.h"
#include "support/run_command.h"
#include "support/whole.h"

namespace windlass::test {

class RuntimeProgram : public ChildProgram {
 public:
  RuntimeProgram(std::vector<std::string> words, const std::string& folder)
      : ChildProgram(std::move(words), folder + "/output." + std::to_string(::getpid()), STDOUT_FILENO) {}
  ~RuntimeProgram() { (void)std::remove(output().c_str()); }

  // What it has printed before READY; empty: it has ended, or nothing.
  [[nodiscard]] std::vector<std::string> printed() const {
    do {
      std::vector<std::string> lines;
      std::ifstream file(output());
      for (std::string line; std::getline(file, line);) {
        if (line == "READY") return lines.empty() ? std::vector<std::string>{"READY"} : lines;
        lines.push_back(line);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } while (runs());
    return {};
  }
};

// `windlass record` of a process for some seconds, five times as many where the whole is tested.
inline CommandResult record_process(const std::string& command, pid_t pid, const std::string& profile,
                                    unsigned seconds = 4) {
  return run(fmt::format("{} record -v -F 997 --duration {} -p {} -o {} 2>&1", command, whole() ? 5 * seconds : seconds,
                         pid, profile));
}

struct FoldedStack {
  std::vector<std::string> frames;  // the outermost first, behind the thread's name
  std::uint64_t count = 0;
  bool whole = true;
};

// Of `windlass report --folded`.
inline std::vector<FoldedStack> folded(const std::string& command, const std::string& profile) {
  std::vector<FoldedStack> stacks;
  std::istringstream lines(run(command + " report --folded " + profile + " 2>&1").output);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.rfind(' ');
    if (space == std::string::npos) continue;
    FoldedStack stack;
    stack.count = std::strtoull(line.c_str() + space + 1, nullptr, 10);
    std::istringstream frames(line.substr(0, space));
    for (std::string frame; std::getline(frames, frame, ';');) stack.frames.push_back(frame);
    stack.whole = line.find(";[truncated") == std::string::npos;
    stacks.push_back(std::move(stack));
  }
  return stacks;
}

struct WholeShare {
  std::uint64_t all = 0, whole = 0;
  [[nodiscard]] double percent() const {
    return all == 0 ? 0 : 100.0 * static_cast<double>(whole) / static_cast<double>(all);
  }
};
inline WholeShare whole_share(const std::vector<FoldedStack>& stacks) {
  WholeShare share;
  for (const FoldedStack& stack : stacks) {
    share.all += stack.count;
    share.whole += stack.whole ? stack.count : 0;
  }
  return share;
}

// Of a recording of a program whose generated code has no names.
struct GeneratedShare {
  CommandResult recorded;
  WholeShare share;
  std::uint64_t generated = 0;  // whole stacks with generated code
  std::uint64_t wrong = 0;      // whole stacks that do not begin at the program's start
};
// `start`: how the outermost frame's name begins.
inline GeneratedShare record_generated(const std::string& command, pid_t pid, const std::string& profile,
                                       const std::string& start = "_start") {
  GeneratedShare found;
  found.recorded = record_process(command, pid, profile);
  if (found.recorded.status != 0) return found;
  const auto stacks = folded(command, profile);
  found.share = whole_share(stacks);
  for (const FoldedStack& stack : stacks) {
    if (!stack.whole) continue;
    found.generated += std::ranges::find(stack.frames, "[jit]") != stack.frames.end() ? stack.count : 0;
    found.wrong += stack.frames.size() < 2 || !stack.frames[1].starts_with(start) ? stack.count : 0;
  }
  return found;
}

}  // namespace windlass::test
