#include "cli/profile_selection.h"

#include <algorithm>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/durations.h"
#include "cli/profile_input.h"
#include "cli/say.h"
#include "cli/store_range.h"
#include "profiler/export/labels.h"
#include "profiler/export/times.h"
#include "profiler/export/values.h"

namespace windlass::cli {
namespace {

std::string names_of(const std::vector<exporter::NamedValue>& values) {
  std::vector<std::string> names;
  for (const auto& value : values) names.push_back(value.name);
  return some_of(names);
}

std::optional<profile::ValueType> find_value(const profile::Profile& profile, std::string_view subject,
                                             const std::string& name) {
  if (name.empty()) return shown_by_default(profile);
  const auto found = exporter::values_named(profile, name);
  if (found.size() == 1) return found.front().type;
  if (found.empty())
    say("windlass: {}: there is no value {}. Way out: --value takes one of {}\n", subject, name,
        names_of(exporter::named_values(profile)));
  else
    say("windlass: {}: several values are named {}. Way out: --value takes one of {}\n", subject, name,
        names_of(found));
  return std::nullopt;
}

std::vector<exporter::LabelFilter> filters_of(const std::vector<std::string>& only) {
  std::vector<exporter::LabelFilter> filters;
  for (const std::string& text : only) {
    const std::size_t mark = text.find('=');
    filters.push_back({text.substr(0, mark), text.substr(mark + 1)});
  }
  return filters;
}

bool has_value(const profile::Profile& profile, std::string_view subject, const exporter::LabelFilter& filter) {
  const auto values = exporter::label_values(profile, filter.key);
  if (std::ranges::find(values, filter.value) != values.end()) return true;
  say_no_such_value(subject, filter.key, filter.value, values);
  return false;
}

// Narrows the profile to the time that was chosen, if any was. False: says why it cannot.
bool keep_chosen_times(profile::Profile& profile, std::string_view subject, const ProfileSelection& selection) {
  if (!selection.from && !selection.to) return true;
  if (const auto store = store_file(std::string(subject))) {
    say("windlass: {}: --from and --to are times within a recording. Way out: {}@-1h, or "
        "{}@2026-11-27T14:05..2026-11-27T14:10\n",
        subject, store->path, store->path);
    return false;
  }
  if (!has_times(profile)) {
    say("windlass: {}: its samples have no times. Way out: record with --timeline\n", subject);
    return false;
  }
  const exporter::TimeRange whole;
  const exporter::TimeRange range{selection.from.value_or(whole.begin), selection.to.value_or(whole.end)};
  if (range.begin >= range.end) {
    say("windlass: {}: --from is not before --to. Way out: exchange them\n", subject);
    return false;
  }
  if (range.begin >= profile.duration_ns) {
    say("windlass: {}: --from is behind the recording's end. Way out: a time below {:.3g} s\n", subject,
        static_cast<double>(profile.duration_ns) / 1e9);
    return false;
  }
  profile.comments.push_back(text_of(range, exporter::keep_times(profile, range)));
  return true;
}

}  // namespace

void add_selection_options(CLI::App& command, ProfileSelection& to) {
  command.add_option("--value", to.value, "what to show: samples, cpu, or another value of the profile")
      ->type_name("NAME");
  command.add_option("--only", to.only, "samples with this label only; KEY may also be comm, pid or tid (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->check([](const std::string& text) -> std::string {
        return text.find('=') == std::string::npos ? "no KEY=VALUE: " + text : "";
      });
  const auto add_list = [&](const char* name, std::vector<std::string>& list, const char* help, const char* type) {
    command.add_option(name, list, help)->type_name(type)->allow_extra_args(false);
  };
  exporter::Narrowing& narrowing = to.narrowing;
  add_list("--process", narrowing.processes, "samples of this process only, by id or name (repeatable)", "NAME");
  add_list("--thread", narrowing.threads, "samples of this thread only, by id or name (repeatable)", "NAME");
  add_list("--module", narrowing.modules, "samples with a frame in this file only (repeatable)", "FILE");
  add_list("--function", narrowing.functions, "samples with this function only (repeatable)", "NAME");
  command.add_option("--focus", narrowing.focus, "samples with a function whose name fits only")->type_name("REGEX");
  command.add_option("--ignore", narrowing.ignore, "no samples with a function whose name fits")->type_name("REGEX");
  command.add_option("--callers-of", narrowing.callers_of, "stacks end at this function")->type_name("NAME");
  command.add_option("--callees-of", narrowing.callees_of, "stacks begin at this function")->type_name("NAME");
  command.add_option("--by", to.by, "stacks begin with the value of this label; KEY may also be pid or tid")
      ->type_name("KEY");
  add_time(command, "--from", to.from, "samples from this time on, since the start: 2, 2s, 500ms");
  add_time(command, "--to", to.to, "samples before this time, since the start");
}

bool has_label(const profile::Profile& profile, std::string_view subject, const std::string& key) {
  const auto keys = exporter::label_keys(profile);
  if (std::ranges::find(keys, key) != keys.end()) return true;
  say("windlass: {}: no sample has a label {}. Way out: labels are {}\n", subject, key, some_of(keys));
  return false;
}

std::optional<profile::ValueType> select_from(profile::Profile& profile, std::string_view subject,
                                              const ProfileSelection& selection) {
  const auto value = find_value(profile, subject, selection.value);
  if (!value) return std::nullopt;
  const auto filters = filters_of(selection.only);
  for (const auto& filter : filters)
    if (!has_label(profile, subject, filter.key) || !has_value(profile, subject, filter)) return std::nullopt;
  if (!selection.by.empty() && !has_label(profile, subject, selection.by)) return std::nullopt;
  if (!keep_chosen_times(profile, subject, selection)) return std::nullopt;
  exporter::keep_samples(profile, filters);
  for (const std::string& only : selection.only) profile.comments.push_back("only " + only);
  if (const auto problem = exporter::narrow(profile, selection.narrowing)) {
    say("windlass: {}: {}. Way out: {}\n", subject, problem->text, problem->way_out);
    return std::nullopt;
  }
  if (!selection.by.empty()) {
    exporter::group_samples(profile, selection.by);
    profile.comments.push_back("by " + selection.by);
  }
  return value;
}

}  // namespace windlass::cli
