// windlass top: what runs now, second by second.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/event_options.h"
#include "cli/parsing.h"
#include "cli/recording_start.h"
#include "cli/sample_options.h"
#include "cli/say.h"
#include "cli/silent.h"
#include "cli/stop_signals.h"
#include "cli/top_feed.h"
#include "cli/top_show.h"
#include "cli/top_terminal.h"
#include "os/priority.h"
#include "os/readers.h"
#include "profiler/processes/truncated_files.h"

namespace windlass::cli {
namespace {

constexpr unsigned kTopFrequency = 49;  // a second and CPU: some hundred samples in a window

struct TopArguments {
  profiler::RecorderOptions recorder;
  EventArguments events;
  std::size_t window = 10;  // seconds
  std::optional<std::size_t> pages;
  std::size_t rows = 20;
  std::string view = exporter::kTopViews[0], filter;
  bool since_start = false;
};

// The command shares the terminal neither for output nor for input: its standard files are /dev/null. To be made before
// it starts; gives this program its own files back.
class StandardFilesAside {
 public:
  explicit StandardFilesAside(bool wanted) {
    if (!wanted) return;
    const os::Descriptor nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (int i = 0; i <= STDERR_FILENO; ++i) {
      kept_.emplace_back(fcntl(i, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
      dup2(nothing.get(), i);
    }
  }
  ~StandardFilesAside() {
    for (std::size_t i = 0; i < kept_.size(); ++i) dup2(kept_[i].get(), static_cast<int>(i));
  }
  StandardFilesAside(const StandardFilesAside&) = delete;
  StandardFilesAside& operator=(const StandardFilesAside&) = delete;

 private:
  std::vector<os::Descriptor> kept_;
};

// Readable once the terminal has another size. To be made before any thread starts: threads inherit the blocked signal.
os::Descriptor resize_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGWINCH);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return os::Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Of text that is printed.
std::size_t page_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : 100;
}

exporter::TopModel model_of(const TopArguments& arguments, const profiler::RecorderOptions& options) {
  exporter::TopModel model(subject_of(options), arguments.window);
  const auto view = std::ranges::find(exporter::kTopViews, arguments.view);
  model.choose(static_cast<exporter::TopView>(view - std::begin(exporter::kTopViews)));
  model.choose_filter(arguments.filter);
  model.choose_since_start(arguments.since_start);
  return model;
}

// Records on this thread, and shows on another one.
int record_and_show(const TopArguments& arguments, profiler::Recorder& recorder, int signals, int resized) {
  exporter::TopModel model = model_of(arguments, recorder.options());
  std::optional<TopTerminal> terminal;
  if (!arguments.pages) {
    auto opened = TopTerminal::open();
    if (!opened) return refuse_recording("top", opened.error());
    terminal.emplace(std::move(*opened));
  }
  TopFeed feed;
  TopShow show(feed, model, recorder, signals);
  int unwritten = 0;
  std::thread shows([&] {
    if (terminal)
      show.on_terminal(*terminal, resized);
    else
      unwritten = show.as_text(*arguments.pages, page_width(), arguments.rows);
  });
  const auto whole = [&recorder] { return recorder.profile(); };
  profiler::Recorder::Hooks hooks;
  hooks.second = [&](profile::Profile&& second) { feed.add(std::move(second), whole); };
  std::optional<os::EndsFirst> first;
  hooks.ending = [&] { first.emplace(); };
  const auto run = recorder.run(feed.stop(), hooks);
  if (!run) feed.leave();
  feed.end(whole);
  shows.join();
  terminal.reset();
  if (!run) return refuse_recording("top", run.error(), false);
  if (recorder.command() != nullptr) (void)command_status(*recorder.command());
  if (unwritten == 0) return kDone;
  say_unwritten("standard output", unwritten);
  return kRefused;
}

int top(TopArguments& arguments) {
  open_standard_files();
  if (is_another_kind(arguments.recorder.command)) return kFoundWrong;
  auto events = events_of(arguments.events);
  if (!events) return refuse_recording("top", events.error());
  arguments.recorder.events = std::move(*events);
  if (!arguments.pages && (isatty(STDOUT_FILENO) != 1 || isatty(STDIN_FILENO) != 1)) arguments.pages = 0;
  os::use_readers(os::Readers::start());
  profiler::survive_truncated_files();
  StopSignals signals;
  const os::Descriptor resized = resize_signal();
  auto starting =
      std::make_optional<EndedBySignal>(signals.descriptor(), "windlass top: interrupted before the first sample\n");
  auto aside = std::make_optional<StandardFilesAside>(!arguments.recorder.command.empty());
  auto recorder = profiler::Recorder::open(arguments.recorder);
  aside.reset();
  if (!recorder) return refuse_recording("top", recorder.error(), false);
  starting.reset();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves shows as EPIPE
  if (!(*recorder)->limits().empty())
    say("windlass: BPF is refused, so samples are taken {}. {}\n", (*recorder)->limits(), (*recorder)->refusal());
  for (const std::string& remark : (*recorder)->remarks()) say("windlass: {}\n", remark);
  const int status = record_and_show(arguments, **recorder, signals.descriptor(), resized.get());
  say_silent();
  return status;
}

}  // namespace

void register_top(CLI::App& app, int& status) {
  auto arguments = std::make_shared<TopArguments>();
  arguments->recorder.frequency = kTopFrequency;
  CLI::App* command = app.add_subcommand("top", "what runs now: functions, processes, call tree and labels, live");
  command->add_option("-F,--frequency", arguments->recorder.frequency, "samples a second of CPU time, on every CPU")
      ->capture_default_str()
      ->check(number_between(1, 49999))
      ->type_name("HZ");
  auto* window = command->add_option("--window", arguments->window, "how many of the last seconds are shown together")
                     ->capture_default_str()
                     ->check(number_between(1, 3600))
                     ->type_name("SECONDS");
  command->add_flag("--since-start", arguments->since_start, "show all since the start instead")->excludes(window);
  command->add_option("--view", arguments->view, "what is shown first")
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(exporter::kTopViews), std::end(exporter::kTopViews))))
      ->type_name("VIEW");
  command->add_option("--filter", arguments->filter, "show rows with this text only, in small or capital letters")
      ->type_name("PART");
  command
      ->add_option("--batch", arguments->pages,
                   "print so many pages, one a second, as text; 0: until the end, as without a terminal")
      ->check(number_between(0, kMostNumber))
      ->type_name("N");
  command->add_option("--rows", arguments->rows, "of a page that is printed")
      ->capture_default_str()
      ->check(number_between(1, kMostNumber))
      ->type_name("N");
  add_event_options(*command, arguments->events);
  add_target_options(*command, arguments->recorder, "a command to run, with its arguments; its output is not shown");
  add_filter_options(*command, arguments->recorder.filters);
  add_label_options(*command, arguments->recorder);
  add_table_cache_option(*command, arguments->recorder);
  command->callback([arguments, &status] { status = top(*arguments); });
}

}  // namespace windlass::cli
