// Kernel nanoseconds a sample and a frame, by the kernel's own account (bpf run-time stats), of the sampler and of the
// peers' design on the same process, taking turns.
//   bench_kernel [--seconds S] [--rounds N] [--frequency HZ] [--no-peer] [--no-managers] recursion | -- COMMAND ARGS...
// --no-managers: code managers' code goes to the agent with its raw stacks, as if their tables could not be read.
#include <bpf/bpf.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "peer_side.h"
#include "profiler/kernel/kernel_side.h"
#include "support/process_publisher.h"

namespace {

using namespace windlass;
using Clock = std::chrono::steady_clock;

struct Options {
  double seconds = 0.25;  // a turn
  int rounds = 12;
  unsigned frequency = 1999;
  bool peer = true, managers = true;
  std::vector<std::string> command;
};

Options parse(int argc, char** argv) {
  Options options;
  int i = 1;
  for (; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--seconds" && i + 1 < argc)
      options.seconds = std::atof(argv[++i]);
    else if (argument == "--rounds" && i + 1 < argc)
      options.rounds = std::atoi(argv[++i]);
    else if (argument == "--frequency" && i + 1 < argc)
      options.frequency = static_cast<unsigned>(std::atoi(argv[++i]));
    else if (argument == "--no-peer")
      options.peer = false;
    else if (argument == "--no-managers")
      options.managers = false;
    else
      break;
  }
  if (i < argc && std::strcmp(argv[i], "--") == 0) ++i;
  for (; i < argc; ++i) options.command.emplace_back(argv[i]);
  if (options.command.empty() || options.command[0] == "recursion") options.command = {WINDLASS_KERNEL_RECURSION};
  return options;
}

pid_t start(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(126);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  return pid;
}

bool running(pid_t pid) { return waitpid(pid, nullptr, WNOHANG) == 0; }

struct Measured {
  std::uint64_t ns = 0, samples = 0, frames = 0, complete = 0, memo_hits = 0, followed = 0;
  void print(const char* name) const {
    const double s = samples == 0 ? 1 : static_cast<double>(samples), f = frames == 0 ? 1 : static_cast<double>(frames);
    fmt::print("{:9} {:7} samples  {:6.1f} frames  {:8.0f} ns/sample  {:6.1f} ns/frame  {:6.2f}% complete", name,
               samples, f / s, static_cast<double>(ns) / s, static_cast<double>(ns) / f,
               100 * static_cast<double>(complete) / s);
    if (memo_hits != 0) {
      fmt::print("  {:5.2f}% memo, {:5.2f}% as the walk before", 100 * static_cast<double>(memo_hits) / f,
                 100 * static_cast<double>(followed) / f);
    }
    fmt::print("\n");
  }
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const pid_t pid = start(options.command);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  profiler::KernelSideOptions side_options;
  side_options.frequency = options.frequency;
  side_options.all_processes = false;
  side_options.targets = {static_cast<std::uint32_t>(pid)};
  auto opened = profiler::KernelSide::open(side_options);
  if (!opened) {
    fmt::print(stderr, "{}\n", opened.error().text);
    kill(pid, SIGKILL);
    return 3;
  }
  profiler::KernelSide& side = **opened;
  bench::PeerSide peer;
  testing::ProcessPublisher publisher(side);
  publisher.shows_managers = options.managers;
  if (options.peer) {
    publisher.on_table = [&](std::uint32_t id, const table::UnwindTable& table) { peer.add_table(id, table); };
  }
  publisher.publish(static_cast<std::uint32_t>(pid));
  bool with_peer = options.peer;
  if (with_peer && !peer.load(static_cast<std::uint32_t>(pid), publisher.mappings())) {
    fmt::print(stderr, "the peers' design cannot be loaded\n");
    with_peer = false;
  }
  const int run_stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
  if (run_stats < 0) fmt::print(stderr, "no run-time stats: {}\n", std::strerror(-run_stats));

  fmt::print("{}: {} rows, table {} bytes ({:.2f} a row), peer {} bytes\n", options.command[0], publisher.table_rows(),
             publisher.table_bytes(),
             static_cast<double>(publisher.table_bytes()) / static_cast<double>(publisher.table_rows()),
             peer.row_count() * sizeof(peer_row));
  Measured ours, theirs;
  auto ignore = [&](const wl_event_head& head, std::size_t) {
    if (head.type != WL_EVENT_UNMAP) return;
    publisher.publish(static_cast<std::uint32_t>(pid), reinterpret_cast<const wl_process_event&>(head).epoch);
  };
  for (int round = 0; round < options.rounds && running(pid); ++round) {
    const auto before = side.stats();
    if (auto started = side.start(); !started) fmt::print(stderr, "{}\n", started.error().text);
    const auto until = Clock::now() + std::chrono::duration<double>(options.seconds);
    while (Clock::now() < until && running(pid)) side.poll(std::chrono::milliseconds(50), ignore);
    side.stop();
    const auto after = side.stats();
    const std::uint64_t skipped = after.other_processes - before.other_processes;
    ours.ns += after.run_time_ns - before.run_time_ns;
    ours.samples += after.samples - before.samples - skipped;
    ours.frames += after.user_frames - before.user_frames;
    ours.memo_hits += after.memo_hits - before.memo_hits;
    ours.followed += after.followed_frames - before.followed_frames;
    ours.complete += after.ends[WL_END_COMPLETE] - before.ends[WL_END_COMPLETE];

    if (!with_peer) continue;
    const auto peer_before = peer.stats();
    const auto peer_ns = peer.run_time_ns();
    if (!peer.start(options.frequency)) fmt::print(stderr, "the peers' design cannot be started\n");
    std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
    peer.stop();
    const auto peer_after = peer.stats();
    theirs.ns += peer.run_time_ns() - peer_ns;
    theirs.samples += peer_after.samples - peer_before.samples;
    theirs.frames += peer_after.frames - peer_before.frames;
    theirs.complete += peer_after.complete - peer_before.complete;
  }
  ours.print("windlass");
  if (with_peer) theirs.print("peers");
  const auto stats = side.stats();
  fmt::print("ends:");
  for (unsigned end = 0; end < WL_END_COUNT; ++end) {
    static constexpr const char* kNames[] = {
#define WL_END_NAME(name, text) text,
        WL_ENDS(WL_END_NAME)
#undef WL_END_NAME
    };
    if (stats.ends[end] != 0) fmt::print("  {} {}", stats.ends[end], kNames[end]);
  }
  fmt::print("  (events {}, raw {}, {} bytes, by managers' tables {}, lost {})\n", stats.stack_events, stats.raw_events,
             stats.raw_bytes, stats.managed_stacks, stats.lost);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return 0;
}
