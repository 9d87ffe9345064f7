// windlass view: a profile's page in the browser.
#include "cli/view.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/text_writer.h"
#include "cli/annotate.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/page_server.h"
#include "cli/parsing.h"
#include "cli/profile_input.h"
#include "cli/profile_selection.h"
#include "cli/say.h"
#include "cli/stop_signals.h"
#include "cli/symbol_options.h"
#include "os/descriptor.h"
#include "profiler/export/html.h"

namespace windlass::cli {
namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// Not root's: it would run with root's rights.
bool has_browser() { return geteuid() != 0 && (is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")); }

void say_tunnel(const PageServer& server) {
  if (is_set("SSH_CONNECTION"))
    say("  from another machine: ssh -L {0}:127.0.0.1:{0} to this host, then that address\n", server.port());
}

// Tells when a file is written again: in place, or by another one that takes its name.
class FileWatch {
 public:
  // Nothing: it is no file of a folder, or the system has no more watches.
  static std::optional<FileWatch> of(const std::string& path) {
    const std::filesystem::path file = path;
    std::error_code none;
    if (!std::filesystem::is_regular_file(file, none)) return std::nullopt;
    const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
    os::Descriptor events(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!events || inotify_add_watch(events.get(), folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO) < 0)
      return std::nullopt;
    return FileWatch(std::move(events), file.filename().string());
  }
  [[nodiscard]] int descriptor() const { return events_.get(); }
  // Takes all that has been told. True: something of it is about the file.
  [[nodiscard]] bool changed() const {
    alignas(inotify_event) char told[4096];
    bool found = false;
    for (ssize_t got = 0; (got = read(events_.get(), told, sizeof told)) > 0;)
      for (const char* at = told; at < told + got;) {
        inotify_event event{};
        std::memcpy(&event, at, sizeof event);
        at += sizeof event;
        found |= (event.mask & IN_Q_OVERFLOW) != 0 || (event.len != 0 && name_ == at);
        at += event.len;
      }
    return found;
  }

 private:
  FileWatch(os::Descriptor events, std::string name) : events_(std::move(events)), name_(std::move(name)) {}

  os::Descriptor events_;
  std::string name_;
};

}  // namespace

// In a session of its own, with no signal blocked: Ctrl-C ends the server, and not the browser.
bool open_browser(const std::string& address) {
  if (!has_browser()) return false;
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_RDWR, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, changed;
  sigemptyset(&none);
  sigemptyset(&changed);
  for (const int number : {SIGPIPE, SIGXFSZ}) sigaddset(&changed, number);  // which `record` ignores
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &changed);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string name = "xdg-open", place = address;
  char* const arguments[] = {name.data(), place.data(), nullptr};
  pid_t child = 0;
  const bool started = posix_spawnp(&child, name.c_str(), &quiet, &attributes, arguments, environ) == 0;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&quiet);
  return started;
}

void say_live_address(const PageServer& server) {
  say("windlass: the recording is shown at {}\n", server.address());
  if (!has_browser()) say_tunnel(server);
}

int view(profile::Profile profile, const std::string& name, ViewOptions options,
         const std::optional<ServedBefore>& before, const WatchedFile* file) {
  exporter::HtmlOptions html{.file = options.file, .served = true};
  if (before || file != nullptr)
    html.live = {.version = before ? before->version : 1, .running = file != nullptr, .file = file != nullptr};
  const auto made = [&]() -> Expected<PageServer::Page> {
    const auto page = std::make_shared<std::string>();
    TextWriter out(page.get());
    html.first = options.value;
    auto written = exporter::write_html(profile, out, html);
    if (written) written = out.finish();
    if (!written) return Failure(written.error());
    return PageServer::Page{.html = page, .version = html.live ? html.live->version : 0};
  };
  auto page = made();
  if (!page) {
    say_error(name, page.error());
    return kRefused;
  }
  StopSignals signals;
  std::optional<PageServer> own;
  if (!before) {
    auto listening = PageServer::listen(options.port);
    if (!listening) {
      say_error("127.0.0.1:" + std::to_string(options.port), listening.error(),
                options.port != 0 ? "another --port, or none: a free one is taken" : "");
      return kRefused;
    }
    own.emplace(std::move(*listening));
  }
  const PageServer& server = before ? before->server : *own;
  say("windlass: {} is shown until Ctrl-C at {}\n", name, server.address());
  if (!before && !(options.browser && open_browser(server.address()))) say_tunnel(server);
  const auto answer = [&](const PageServer::Question& question) {
    return annotated_for_page(profile, question, options.source_maps);
  };
  PageServer::Newer newer{.news = -1, .take = {}, .wanted = [] {}};
  if (file != nullptr) {
    newer.news = file->news;
    newer.take = [&] {
      if (!file->take(profile, options.value)) return *page;
      ++html.live->version;
      if (auto next = made())
        page = std::move(next);
      else
        say_error(name, next.error());
      return *page;
    };
  }
  if (const auto served = server.serve(*page, answer, signals.descriptor(), file != nullptr ? &newer : nullptr);
      !served) {
    say_error(name, served.error());
    return kRefused;
  }
  return kDone;
}

void register_view(CLI::App& app, int& status) {
  struct Arguments {
    std::string file;
    ViewOptions view;
    ProfileSelection selection;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("view", "show a profile in the browser: a page with a flame graph");
  command
      ->add_option("FILE", arguments->file,
                   "a profile that record wrote, or another tool (perf.data, folded stacks, ...); - is standard input")
      ->required()
      ->type_name("FILE");
  add_selection_options(*command, arguments->selection);
  add_source_map_option(*command, arguments->view.source_maps);
  add_symbols_option(*command);
  command->add_option("--port", arguments->view.port, "of 127.0.0.1; 0: one that is free")
      ->capture_default_str()
      ->check(number_between(0, 65535))
      ->type_name("PORT");
  command->add_flag_callback(
      "--no-browser", [arguments] { arguments->view.browser = false; }, "print the address only");
  command->callback([arguments, &status] {
    const std::optional<FileWatch> watch = FileWatch::of(arguments->file);
    const std::vector<std::string> labels = arguments->selection.only;  // of which a store's reader takes some
    auto profile = read_profile(arguments->file, "view", status, arguments->selection.only);
    if (!profile) return;
    const std::string name = shown_profile(arguments->file);
    const auto value = select_from(*profile, name, arguments->selection);
    arguments->view.value = value;
    if (arguments->file != "-") arguments->view.file = arguments->file;
    if (!value) {
      status = kUsage;
      return;
    }
    // What cannot be shown is said, and the page stays as it is.
    const auto take = [&](profile::Profile& shown, std::optional<profile::ValueType>& shown_value) {
      int unused = kDone;
      if (!watch->changed()) return false;
      arguments->selection.only = labels;
      auto newer = read_profile(arguments->file, "view", unused, arguments->selection.only);
      const auto newer_value = newer ? select_from(*newer, name, arguments->selection) : std::nullopt;
      if (!newer_value) return false;
      shown = std::move(*newer);
      shown_value = newer_value;
      return true;
    };
    const WatchedFile file{.news = watch ? watch->descriptor() : -1, .take = take};
    status = view(std::move(*profile), name, arguments->view, std::nullopt, watch ? &file : nullptr);
  });
}

}  // namespace windlass::cli
