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
  std::function<int()> descriptor = [] { return -1; };       // to poll; -1: none
  std::function<bool()> has_to_stop = [] { return false; };  // called when the descriptor is readable
};

// From here on SIGINT, SIGTERM and SIGHUP also end the child, with SIGTERM. Without this, a child that the kernel gives
// capabilities at its start outlives this process: the kernel then forgets PR_SET_PDEATHSIG.
void end_child_by_signals();

// Runs `windlass ARGUMENTS...` until it ends, or until it is stopped: by the watch, or after `most`.
[[nodiscard]] ChildOutput run_windlass(std::vector<std::string> arguments, std::chrono::milliseconds most,
                                       const ChildWatch& watch);

}  // namespace windlass::cli
