// windlass walk: the call stack of every thread of a process, a core file or a minidump.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/durations.h"
#include "cli/errors.h"
#include "cli/file_kind.h"
#include "cli/parsing.h"
#include "cli/pdb_options.h"
#include "cli/say.h"
#include "cli/silent.h"
#include "cli/walk_output.h"
#include "os/readers.h"
#include "profiler/processes/live_process.h"
#include "walk/target/modules.h"
#include "walk/target/thread_stacks.h"
#include "windlass/symbols.h"
#include "windlass/target.h"

namespace windlass::cli {
namespace {

struct WalkArguments {
  std::string what;
  std::uint64_t pid = 0;
  std::string core;
  FileSearch files;
  std::string debug_directory;
  PdbSearch pdb;
  std::size_t max_frames = 65536;
  double interval = 0;  // seconds between two walks; 0: kUsualInterval
  bool all = false;     // processes
  WalkOutputOptions output;
};

int complain(const std::string& subject, bool is_process, const Error& error) {
  if (error.code != ErrorCode::kSystem) {
    if (is_process || !say_other_kind(subject, "walk")) say_error(subject, error);
    return is_process && error.code == ErrorCode::kUnsupported ? kRefused : kFoundWrong;
  }
  std::string way_out;
  if (!is_process && error.detail == ENOENT && subject.find('/') == std::string::npos)
    way_out = fmt::format("name a process by its id, as windlass walk $(pidof {})", subject);
  if (is_process && error.detail == EPERM && error.where != 0)
    way_out = fmt::format("end the debugger, process {}", error.where);
  else if (is_process && (error.detail == EPERM || error.detail == EACCES))
    way_out = "run as root, or as the process's user with CAP_SYS_PTRACE or sysctl kernel.yama.ptrace_scope=0";
  say_error(subject, error, way_out);
  return kRefused;
}

Expected<Target> open(const WalkArguments& options) {
  const DumpOptions dump{options.files};
  const ProcessOptions process{.one_walk = options.output.repeat == 1};
  if (options.pid != 0) return open_process(options.pid, process);
  if (!options.core.empty()) return open_core(options.core, dump);
  return open_target(options.what, dump, process);
}

// Between two walks, unless an interval is given.
constexpr double kUsualInterval = 0.1;  // seconds

void wait_for_next(const WalkArguments& options) {
  std::this_thread::sleep_for(std::chrono::duration<double>(options.interval > 0 ? options.interval : kUsualInterval));
}

// Walks a target, once or many times, and prints what it found.
class Walks {
 public:
  Walks(Target& target, const WalkArguments& options, std::string subject)
      : target_(target), options_(options), subject_(std::move(subject)) {}

  int run_walk() {
    if (options_.output.repeat != 1 && target_.kind != TargetKind::kProcess) {
      say("windlass: {}: only a process can be walked again. Way out: leave --repeat and --interval out\n", subject_);
      return kUsage;
    }
    for (turn_.number = 1;; ++turn_.number) {
      if (const int status = run_turn(); status == kRefused) return status;
      if (turn_.number == options_.output.repeat) return problems_ ? kFoundWrong : kDone;
      wait_for_next(options_);
      const auto again = target_.refresh();
      if (!again && again.error().code == ErrorCode::kSystem && again.error().detail == ESRCH) {
        say("windlass: {}: has ended after {} walks\n", subject_, turn_.number);
        return problems_ ? kFoundWrong : kDone;
      }
      if (!again) return complain(subject_, true, again.error());
      if (again->modules_new != 0 || again->executed) symbols_.reset();
    }
  }

  // One walk, which is one of several of its target.
  int run_once(std::size_t number) {
    turn_.number = number;
    return run_turn();
  }

 private:
  int run_turn() {
    if (const int error = walk(); error != 0) {
      say_unwritten("standard output", error);
      return kRefused;
    }
    report_problems();
    return problems_ ? kFoundWrong : kDone;
  }

  // Of the stopped target, which is let go. The number of the error of writing, or 0.
  int walk() {
    const walk::ThreadStacks walked = walk::walk_all(target_, options_.max_frames);
    for (const Error& problem : walked.problems) walk::note_problem(target_, problem);
    if (!symbols_) {
      SymbolizerOptions how;
      how.lines = options_.output.text.lines || options_.output.text.inlines || options_.output.arguments;
      how.debug_directory = options_.debug_directory;
      how.pdb_files = options_.pdb.files;
      how.symbol_path = options_.pdb.symbol_path;
      symbols_.emplace(options_.output.repeat == 1 ? Symbolizer::of_target(target_, how, walked.addresses)
                                                   : Symbolizer::of_target(target_, how));
    }
    if (!options_.output.arguments) turn_.stopped_ns = target_.release();  // names do not need it stopped
    const std::vector<NamedAddress> names = symbols_->name(walked.addresses, walked.functions);
    std::vector<StackArguments> arguments;
    if (options_.output.arguments) {
      for (const walk::ThreadStack& thread : walked.threads) arguments.push_back(arguments_of(thread, names));
      turn_.stopped_ns = target_.release();
    }
    TextWriter out(STDOUT_FILENO);
    print_walk(target_, {walked, names, arguments}, options_.output, turn_, out);
    out.flush();
    return out.failed();
  }

  [[nodiscard]] StackArguments arguments_of(const walk::ThreadStack& thread,
                                            std::span<const NamedAddress> names) const {
    const std::vector<std::byte> vectors = walk::vector_registers(target_, *thread.thread);
    std::vector<StackPlace> places;
    for (const walk::FrameEntry& frame : thread.frames) places.push_back({&frame.registers, &names[frame.address]});
    if (!places.empty()) places.front().vector_registers = vectors;
    return symbols_->arguments(places);
  }

  void report_problems() {
    say_silent();
    problems_ |= !target_.problems.empty();
    for (const Error& problem : target_.problems) say_error(subject_, problem);
    for (const std::string& note : target_.notes) say("windlass: {}: {}\n", subject_, note);
    if (options_.pdb.wanted() && turn_.number == 1) say_notes(symbols_->notes());
  }

  Target& target_;
  const WalkArguments& options_;
  std::string subject_;
  WalkTurn turn_;
  std::optional<Symbolizer> symbols_;
  bool problems_ = false;
};

// But for this one and its readers: none of them can look at itself.
std::vector<std::uint64_t> other_processes() {
  std::vector<std::uint64_t> found;
  const auto own = static_cast<std::uint32_t>(getpid());
  const std::vector<std::uint32_t> readers = profiler::descendants_of({own});
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", unreadable)) {
    std::uint32_t pid = 0;
    const std::string name = entry.path().filename();
    const auto read = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (read.ec == std::errc{} && pid != own && std::ranges::find(readers, pid) == readers.end()) found.push_back(pid);
  }
  std::ranges::sort(found);
  return found;
}

// Every process once. Those of the kernel are left out, and those that have ended meanwhile.
int walk_processes(const WalkArguments& options, std::size_t number) {
  int status = kDone;
  std::size_t walked = 0, refused = 0;
  for (const std::uint64_t pid : other_processes()) {
    auto target = open_process(pid);
    if (!target) {
      const Error& error = target.error();
      const bool is_gone = error.code == ErrorCode::kSystem && (error.detail == ESRCH || error.detail == ENOENT);
      if (!is_gone && error.code != ErrorCode::kUnsupported) ++refused;
      continue;
    }
    ++walked;
    const int one = Walks(*target, options, fmt::format("{}", pid)).run_once(number);
    if (one == kRefused) return one;
    status = std::max(status, one);
  }
  if (refused != 0)
    say("windlass: {} of the processes may not be traced. Way out: run as root, or as their user with CAP_SYS_PTRACE\n",
        refused);
  return walked == 0 ? kRefused : status;
}

int run_on_all(const WalkArguments& options) {
  os::use_readers(os::Readers::start());
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves shows as EPIPE
  for (std::size_t number = 1;; ++number) {
    const int status = walk_processes(options, number);
    if (status == kRefused || number == options.output.repeat) return status;
    wait_for_next(options);
  }
}

int run_walk(const WalkArguments& options) {
  const std::string subject = options.pid != 0        ? fmt::format("{}", options.pid)
                              : !options.core.empty() ? options.core
                                                      : options.what;
  const bool is_process = options.pid != 0 || subject.find_first_not_of("0123456789") == std::string::npos;
  if (is_process) os::use_readers(os::Readers::start_one());
  auto target = open(options);
  if (!target) {
    say_silent();
    return complain(subject, is_process, target.error());
  }
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves shows as EPIPE
  return Walks(*target, options, subject).run_walk();
}

}  // namespace

void register_walk(CLI::App& app, int& status) {
  auto options = std::make_shared<WalkArguments>();
  CLI::App* command = app.add_subcommand("walk", "Every thread's call stack: of a process, a core file or a minidump");
  auto* target = command->add_option_group("target", "what to look at");
  target->add_option("TARGET", options->what, "a process id, a core file or a minidump")->type_name("PID|FILE");
  target->add_option("-p,--pid", options->pid, "a process id")->check(number_between(1, INT32_MAX))->type_name("PID");
  target->add_option("--core", options->core, "a core file")->type_name("FILE");
  target->add_flag("--all", options->all, "all processes but those of the kernel");
  target->require_option(1);
  command
      ->add_option("-e,--core-exe,--executable", options->files.executable,
                   "the program's own file, whatever the dump calls it")
      ->check(readable_file())
      ->type_name("FILE");
  command->add_option("--sysroot", options->files.sysroot, "where the files of a dump are found, before /")
      ->check(folder())
      ->type_name("DIR");
  command
      ->add_option("--debug-dir", options->debug_directory,
                   "searched for .build-id/xx/yyyy.debug, before /usr/lib/debug")
      ->check(folder())
      ->type_name("DIR");
  add_pdb_options(*command, options->pdb);
  command->add_option("--max-frames", options->max_frames, "frames of one thread at most")
      ->capture_default_str()
      ->check(number_between(1, kMostNumber))
      ->type_name("N");
  command
      ->add_option("--repeat", options->output.repeat,
                   "walk a process so many times, every 100 ms or --interval; it is stopped for each walk only")
      ->capture_default_str()
      ->check(number_between(1, kMostNumber))
      ->type_name("N");
  add_duration(*command, "--interval", options->interval,
               "walk again after so long, as 2, 2s, 500ms or 1m, until Ctrl-C or as often as --repeat says");
  command->add_flag("--each", options->output.each, "threads with equal stacks one by one");
  command->add_flag("-l,--lines", options->output.text.lines, "file and line of each frame");
  command->add_flag("-i,--inlines", options->output.text.inlines,
                    "inlined functions too, as the debug information has them");
  command->add_flag("--arguments", options->output.arguments,
                    "arguments of functions, as the debug information has them; the process is stopped for longer");
  command->add_flag("-v,--verbose", options->output.text.verbose, "who unwound each frame; twice: and its registers");
  command->add_flag("--json", options->output.json, "one JSON object a thread and line");
  command->callback([command, options, &status] {
    if (options->interval > 0 && command->count("--repeat") == 0) options->output.repeat = 0;
    options->output.processes = options->all;
    if (!options->debug_directory.empty())
      options->files.debug_directories.insert(options->files.debug_directories.begin(), options->debug_directory);
    status = options->all ? run_on_all(*options) : run_walk(*options);
  });
}

}  // namespace windlass::cli
