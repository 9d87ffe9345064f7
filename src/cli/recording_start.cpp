#include "cli/recording_start.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/file_kind.h"
#include "cli/say.h"

namespace windlass::cli {

int refuse_recording(std::string_view command, const std::string& text) {
  say("windlass {}: {}\n", command, text);
  return kRefused;
}

int refuse_recording(std::string_view command, const profiler::SystemError& error, bool verbose) {
  if (verbose && !error.log.empty()) say_text(shown_lines(error.log) + "\n");
  return refuse_recording(command, fmt::format("{} [{}]", error.text, profiler::refusal_word(error.kind)));
}

bool is_another_kind(const std::vector<std::string>& command) {
  if (command.empty()) return false;
  const std::string path = profiler::find_command(command.front());
  return access(path.c_str(), X_OK) != 0 && say_other_kind(command.front(), "record");
}

EndedBySignal::EndedBySignal(int signals, Last last)
    : last_(std::move(last)), over_(eventfd(0, EFD_CLOEXEC)), thread_([this, signals] { wait(signals); }) {}

EndedBySignal::EndedBySignal(int signals, std::string message)
    : EndedBySignal(signals, [message = std::move(message)] {
        say_text(message);
        return static_cast<int>(kFoundWrong);
      }) {}

EndedBySignal::~EndedBySignal() {
  (void)eventfd_write(over_, 1);
  thread_.join();
  close(over_);
}

void EndedBySignal::wait(int signals) const {
  pollfd wanted[2] = {{signals, POLLIN, 0}, {over_, POLLIN, 0}};
  while (poll(wanted, 2, -1) < 0 && errno == EINTR) continue;
  if (wanted[0].revents == 0 || wanted[1].revents != 0) return;
  _exit(last_());
}

void open_standard_files() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

std::string subject_of(const profiler::RecorderOptions& options) {
  if (!options.command.empty()) return options.command.front();
  if (options.targets.empty()) return "the whole machine";
  std::string text = options.targets.size() == 1 ? "process" : "processes";
  for (const std::uint32_t pid : options.targets) text += fmt::format(" {}", pid);
  return text;
}

int command_status(profiler::ChildCommand& command) {
  if (const auto status = command.poll_status()) return *status;
  command.signal(SIGTERM);
  command.wait();
  return kDone;
}

}  // namespace windlass::cli
