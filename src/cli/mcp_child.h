// This command run by itself, for tools of the Model Context Protocol: what a hostile file does to such a process ends
// with it, and it can be stopped.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace windlass::cli {

struct ChildOutput {
  std::string out, err;
  int status = 0;  // its exit status, or 128 and the signal that ended it
  bool stopped = false;
  bool too_much = false;  // it printed more than kMostOfChild
};
inline constexpr std::size_t kMostOfChild = std::size_t{64} << 20;

struct ChildWatch {
  std::function<int()> descriptor;    // to poll; -1: none
  std::function<bool()> has_to_stop;  // called when the descriptor is readable
};

// Runs `windlass ARGUMENTS...` until it ends, or until it is stopped: by the watch, or after `most`.
[[nodiscard]] ChildOutput run_windlass(std::vector<std::string> arguments, std::chrono::milliseconds most,
                                       const ChildWatch& watch);

}  // namespace windlass::cli
