// windlass view: a profile's page in the browser.
#include "cli/view.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>

#include <CLI/CLI.hpp>

#include "base/shown.h"
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
#include "profiler/annotate/annotation.h"
#include "profiler/export/html.h"
#include "profiler/export/values.h"

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

// What the page asks for. It knows names as shown() has them.
WorkedOut annotated(const profile::Profile& profile, const PageServer::Question& question,
                    const std::vector<std::string>& source_maps) {
  const auto values = exporter::named_values(profile);
  const auto value = std::ranges::find(values, question.value, [](const auto& one) { return shown(one.name); });
  if (value == values.end()) return {.text = "The profile has no such value."};
  const auto functions = annotate::functions_named(profile, value->type, "");  // all of them
  const auto function =
      std::ranges::find(functions, question.function, [](const auto& one) { return shown(one.first); });
  if (function == functions.end()) return {.text = "No sample has such a function."};
  WorkedOut answer;
  TextWriter out(&answer.text);
  auto written = write_annotated(profile, value->type, {.function = function->first, .source_maps = source_maps}, {},
                                 {.json = true}, out);
  if (written) written = out.finish();
  answer.good = written.has_value();
  return answer;
}

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

int view(const profile::Profile& profile, const std::string& name, const ViewOptions& options,
         const std::optional<ServedBefore>& before) {
  const auto page = std::make_shared<std::string>();
  TextWriter out(page.get());
  exporter::HtmlOptions html{.first = options.value, .file = options.file, .served = true};
  if (before) html.live = {.version = before->version, .running = false};
  auto written = exporter::write_html(profile, out, html);
  if (written) written = out.finish();
  if (!written) {
    say_error(name, written.error());
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
    return annotated(profile, question, options.source_maps);
  };
  const PageServer::Page shown_page{.html = page, .version = before ? before->version : 0};
  if (const auto served = server.serve(shown_page, answer, signals.descriptor()); !served) {
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
  command->add_option("--port", arguments->view.port, "of 127.0.0.1; 0: one that is free")
      ->capture_default_str()
      ->check(number_between(0, 65535))
      ->type_name("PORT");
  command->add_flag_callback(
      "--no-browser", [arguments] { arguments->view.browser = false; }, "print the address only");
  command->callback([arguments, &status] {
    auto profile = read_profile(arguments->file, "view", status, arguments->selection.only);
    if (!profile) return;
    const std::string name = shown_profile(arguments->file);
    const auto value = select_from(*profile, name, arguments->selection);
    arguments->view.value = value;
    if (arguments->file != "-") arguments->view.file = arguments->file;
    status = value ? view(*profile, name, arguments->view) : kUsage;
  });
}

}  // namespace windlass::cli
