#include "cli/sample_options.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/parsing.h"

namespace windlass::cli {
namespace {

using profiler::FilterKind;
using profiler::LabelOptions;

struct Filter {
  const char* name;
  FilterKind kind;
  const char* argument;
  const char* help;
};
constexpr Filter kFilters[] = {
    {"--comm", FilterKind::kThreadName, "NAME", "only threads of this name, up to 15 bytes of it (repeatable)"},
    {"--uid", FilterKind::kUser, "USER", "only threads of this user, by name or number (repeatable)"},
    {"--cgroup", FilterKind::kCgroup, "PATH", "only threads in this cgroup (version 2) and below (repeatable)"},
    {"--container", FilterKind::kContainer, "NAME", "only threads of this container, by name or id (repeatable)"},
};

struct Kind {
  const char* name;
  bool LabelOptions::*wanted;
};
constexpr Kind kKinds[] = {
    {"process", &LabelOptions::process},     {"executable", &LabelOptions::executable},
    {"build-id", &LabelOptions::build_id},   {"owner", &LabelOptions::owner},
    {"cgroup", &LabelOptions::cgroup},       {"unit", &LabelOptions::unit},
    {"container", &LabelOptions::container}, {"kubernetes", &LabelOptions::kubernetes},
};

std::string kinds_text() {
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// "all", "none", or kinds with commas between.
std::string choose_kinds(const std::string& text, LabelOptions& options) {
  for (const Kind& kind : kKinds) options.*kind.wanted = text == "all";
  if (text == "all" || text == "none") return {};
  for (const std::string& name : CLI::detail::split(text, ',')) {
    const auto* const kind = std::ranges::find_if(kKinds, [&](const Kind& one) { return name == one.name; });
    if (kind == std::end(kKinds))
      return fmt::format("there are no labels {}. Way out: all, none, or some of {}", name, kinds_text());
    options.*kind->wanted = true;
  }
  return {};
}

std::string choose_thread_labels(const std::string& text, profiler::ThreadLabelChoice& to) {
  using profiler::ThreadLabelChoice;
  constexpr std::pair<const char*, ThreadLabelChoice> kChoices[] = {{"none", ThreadLabelChoice::kNone},
                                                                    {"attributes", ThreadLabelChoice::kAttributes},
                                                                    {"all", ThreadLabelChoice::kAll}};
  for (const auto& [name, choice] : kChoices) {
    if (text != name) continue;
    to = choice;
    return {};
  }
  return fmt::format("{} is no choice of threads' labels. Way out: none, attributes or all", text);
}

}  // namespace

void add_filter_options(CLI::App& command, std::vector<profiler::FilterOption>& filters) {
  for (const Filter& filter : kFilters)
    command
        .add_option_function<std::vector<std::string>>(
            filter.name,
            [&filters, kind = filter.kind](const std::vector<std::string>& values) {
              for (const std::string& value : values) filters.push_back({kind, value, false});
            },
            filter.help)
        ->type_name(filter.argument)
        ->allow_extra_args(false);
  command
      .add_option_function<std::vector<std::string>>(
          "--exclude",
          [&filters](const std::vector<std::string>& values) {
            for (const std::string& value : values) filters.push_back(*profiler::parse_exclude(value));
          },
          "none of these threads: comm=NAME, uid=USER, cgroup=PATH, container=NAME (repeatable)")
      ->check([](const std::string& text) {
        const auto filter = profiler::parse_exclude(text);
        return filter ? std::string() : filter.error();
      })
      ->type_name("KIND=VALUE")
      ->allow_extra_args(false);
}

void add_target_options(CLI::App& command, profiler::RecorderOptions& options, const char* help_of_command) {
  auto* all = command.add_flag("-a,--all")->description("the whole machine (the default)");
  auto* targets = command
                      .add_option("-p,--pid", options.targets,
                                  "one process with its threads and the children it has from now on (repeatable)")
                      ->type_name("PID")
                      ->delimiter(',')
                      ->allow_extra_args(false)
                      ->check(number_between(1, 0x7fffffff));
  command.add_flag("--children", options.children, "the children that it has already, too")->needs(targets);
  auto* rest = command.add_option("COMMAND", options.command, help_of_command)->type_name("COMMAND");
  all->excludes(targets)->excludes(rest);
  targets->excludes(rest);
  command.positionals_at_end();
  command.prefix_command(false);
}

void add_table_cache_option(CLI::App& command, profiler::RecorderOptions& options) {
  command
      .add_option(
          "--table-cache", options.table_cache,
          "where the tables of files are kept for the next recording, /var/cache/windlass/tables for root; none: "
          "nowhere")
      ->type_name("FOLDER");
}

void add_label_options(CLI::App& command, profiler::RecorderOptions& options) {
  command
      .add_option_function<std::vector<std::string>>(
          "--label",
          [&options](const std::vector<std::string>& values) {
            for (const std::string& text : values) {
              const std::size_t mark = text.find('=');
              options.labels.fixed.push_back({text.substr(0, mark), text.substr(mark + 1)});
            }
          },
          "a label that every sample gets (repeatable)")
      ->check([](const std::string& text) {
        const std::size_t mark = text.find('=');
        return mark == 0 || mark == std::string::npos
                   ? fmt::format("{} is no label. Way out: KEY=VALUE, as version=1.2", text)
                   : std::string();
      })
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--label-env", options.labels.environment,
                  "a variable of each process's environment that becomes its label env.NAME (repeatable)")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command
      .add_option_function<std::string>(
          "--labels", [](const std::string&) {}, "which labels processes get: all, none, or some of " + kinds_text())
      ->default_str("unit,container,kubernetes")
      ->check([&options](const std::string& text) { return choose_kinds(text, options.labels); })
      ->type_name("KINDS");
  command
      .add_option_function<std::string>(
          "--thread-labels", [](const std::string&) {},
          "which labels that programs set for their threads samples get: attributes, none, or all (with ids of traces)")
      ->default_str("attributes")
      ->check([&options](const std::string& text) { return choose_thread_labels(text, options.thread_labels); })
      ->type_name("KINDS");
  command
      .add_option("--kubelet", options.kubelet,
                  "where a kubelet answers without TLS, to ask for the names of pods: http://127.0.0.1:10255")
      ->check([](const std::string& text) {
        const auto address = profiler::KubeletAddress::parse(text);
        return address ? std::string() : address.error();
      })
      ->type_name("URL");
}

}  // namespace windlass::cli
