// windlass walk: the call stack of every thread of a process, a core file or a minidump.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/thread_stacks.h"
#include "cli/walk_output.h"
#include "windlass/target.h"

namespace windlass::cli {
namespace {

struct Options {
  std::string what;
  std::uint64_t pid = 0;
  std::string core;
  FileSearch files;
  std::string debug_directory;
  std::size_t max_frames = 65536;
  WalkOutputOptions output;
};

int complain(const std::string& subject, bool is_process, const Error& error) {
  if (error.code != ErrorCode::kSystem) {
    std::fprintf(stderr, "windlass: %s: %s\n", subject.c_str(), error.text().c_str());
    return is_process && error.code == ErrorCode::kUnsupported ? kRefused : kFoundWrong;
  }
  const int number = static_cast<int>(error.detail);
  std::string way_out;
  if (number == EPERM && error.where != 0)
    way_out = fmt::format(" by process {}: end that debugger first", error.where);
  else if (number == EPERM || number == EACCES)
    way_out =
        " (run as root or as the process's user, with CAP_SYS_PTRACE, or set /proc/sys/kernel/yama/ptrace_scope "
        "to 0)";
  std::fprintf(stderr, "windlass: %s: %s: %s%s\n", subject.c_str(), error.what, std::strerror(number), way_out.c_str());
  return kRefused;
}

Expected<Target> open(const Options& options) {
  const DumpOptions dump{options.files};
  if (options.pid != 0) return open_process(options.pid);
  if (!options.core.empty()) return open_core(options.core, dump);
  return open_target(options.what, dump);
}

int run(const Options& options) {
  const std::string subject = options.pid != 0        ? fmt::format("{}", options.pid)
                              : !options.core.empty() ? options.core
                                                      : options.what;
  auto target = open(options);
  const bool is_process = options.pid != 0 || subject.find_first_not_of("0123456789") == std::string::npos;
  if (!target) return complain(subject, is_process, target.error());
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves shows as EPIPE

  auto walked = walk_all(*target, options.max_frames);
  target->release();  // names do not need it stopped
  name_frames(walked, {options.output.lines, options.output.inlines, options.debug_directory});

  int write_error = 0;
  {
    TextWriter out(STDOUT_FILENO);
    print_walk(*target, walked, options.output, out);
    out.flush();
    write_error = out.failed();
  }
  for (const Error& problem : target->problems)
    std::fprintf(stderr, "windlass: %s: %s\n", subject.c_str(), problem.text().c_str());
  for (const std::string& note : target->notes)
    std::fprintf(stderr, "windlass: %s: %s\n", subject.c_str(), note.c_str());
  if (write_error != 0) {
    std::fprintf(stderr, "windlass: standard output: %s\n", std::strerror(write_error));
    return kRefused;
  }
  return target->problems.empty() ? kDone : kFoundWrong;
}

}  // namespace

void register_walk(CLI::App& app, int& status) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("walk", "Every thread's call stack: of a process, a core file or a minidump");
  auto* target = command->add_option_group("target", "what to look at");
  target->add_option("TARGET", options->what, "a process id, a core file or a minidump");
  target->add_option("-p,--pid", options->pid, "a process id")->check(CLI::PositiveNumber);
  target->add_option("--core", options->core, "a core file");
  target->require_option(1);
  command->add_option("-e,--core-exe,--executable", options->files.executable,
                      "the program's own file, whatever the dump calls it");
  command->add_option("--sysroot", options->files.sysroot, "where the files of a dump are found, before /");
  command->add_option("--debug-dir", options->debug_directory,
                      "searched for .build-id/xx/yyyy.debug, before /usr/lib/debug");
  command->add_option("--max-frames", options->max_frames, "frames of one thread at most")->capture_default_str();
  command->add_flag("-l,--lines", options->output.lines, "file and line of each frame");
  command->add_flag("-i,--inlines", options->output.inlines,
                    "inlined functions too, as the debug information has them");
  command->add_flag("-v,--verbose", options->output.verbose, "who unwound each frame; twice: and its registers");
  command->add_flag("--json", options->output.json, "one JSON object a thread and line");
  command->callback([options, &status] {
    if (!options->debug_directory.empty())
      options->files.debug_directories.insert(options->files.debug_directories.begin(), options->debug_directory);
    status = run(*options);
  });
}

}  // namespace windlass::cli
