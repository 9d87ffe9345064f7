#include "profiler/export/narrow.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "profiler/export/frames.h"
#include "profiler/export/pattern.h"
#include "profiler/export/processes.h"
#include "profiler/export/shorten_name.h"

namespace windlass::exporter {

namespace {

bool is_named(std::string_view name, std::string_view wanted) {
  return name == wanted || name.substr(0, length_without_parameters(name)) == wanted;
}

// Keeps the samples that one of the `wanted` fits. One that fits no sample is a problem.
template <typename Fits>
std::optional<NarrowingProblem> keep(profile::Profile& profile, std::string_view what, std::string_view label,
                                     const std::vector<std::string>& wanted, Fits fits) {
  if (wanted.empty()) return std::nullopt;
  for (const std::string& one : wanted) {
    if (std::ranges::none_of(profile.samples, [&](const auto& sample) { return fits(sample, one); }))
      return NarrowingProblem{fmt::format("no sample is of the {} {}", what, one),
                              fmt::format("--label {} lists them", label)};
    profile.comments.push_back(fmt::format("only {}={}", what, one));
  }
  std::erase_if(profile.samples, [&](const auto& sample) {
    return std::ranges::none_of(wanted, [&](const std::string& one) { return fits(sample, one); });
  });
  return std::nullopt;
}

std::optional<NarrowingProblem> keep_processes(profile::Profile& profile, const std::vector<std::string>& wanted) {
  std::unordered_map<std::uint32_t, std::string> names;
  for (const Process& process : processes_of(profile))
    names.emplace(process.pid, process.name.substr(0, process.name.rfind(" (pid ")));
  return keep(profile, "process", "pid", wanted, [&](const profile::Sample& sample, const std::string& one) {
    return names[sample.pid] == one || std::to_string(sample.pid) == one;
  });
}

std::optional<NarrowingProblem> keep_threads(profile::Profile& profile, const std::vector<std::string>& wanted) {
  return keep(profile, "thread", "comm", wanted, [&](const profile::Sample& sample, const std::string& one) {
    return (sample.comm < profile.strings.size() && profile.strings[sample.comm] == one) ||
           std::to_string(sample.tid) == one;
  });
}

// What a location fits, a bit each.
enum Fit : std::uint8_t { kModule = 1, kFunction = 2, kFocus = 4, kIgnore = 8, kCallersOf = 16, kCalleesOf = 32 };

class FrameFilter {
 public:
  FrameFilter(profile::Profile& profile, const Narrowing& wanted)
      : profile_(profile), wanted_(wanted), frames_(profile), focus_(wanted.focus), ignore_(wanted.ignore) {}

  std::optional<NarrowingProblem> problem() {
    for (const auto& [option, pattern] : {std::pair("--focus", &focus_), std::pair("--ignore", &ignore_)})
      if (const std::string error = pattern->error(); !error.empty())
        return NarrowingProblem{fmt::format("{}: no regular expression: {}", option, error),
                                "\\ stands before a character that is meant as it is"};
    for (std::uint32_t id = 0; id < frames_.size(); ++id) fits_.push_back(fit_of(frames_[id]));
    for (const std::string& one : wanted_.modules)
      if (std::ranges::none_of(profile_.modules, [&](const auto& module) { return is_module(module, one); }))
        return NarrowingProblem{fmt::format("there is no module {}", one), "--json lists them"};
    auto functions = wanted_.functions;
    for (const std::string& one : {wanted_.callers_of, wanted_.callees_of})
      if (!one.empty()) functions.push_back(one);
    for (const std::string& one : functions) {
      bool found = false;
      for (std::uint32_t id = 0; id < frames_.size() && !found; ++id) found = is_named(frames_[id].name, one);
      if (!found)
        return NarrowingProblem{fmt::format("there is no function {}", one), "--focus takes a part of a name"};
    }
    return std::nullopt;
  }

  void apply() {
    std::uint8_t needed = 0;
    if (!wanted_.modules.empty()) needed |= kModule;
    if (!wanted_.functions.empty()) needed |= kFunction;
    if (!wanted_.focus.empty()) needed |= kFocus;
    if (!wanted_.callers_of.empty()) needed |= kCallersOf;
    if (!wanted_.callees_of.empty()) needed |= kCalleesOf;
    std::vector<std::uint8_t> fits(profile_.locations.size());
    for (std::uint32_t i = 0; i < fits.size(); ++i) {
      for (const std::uint32_t id : frames_.of_location(i)) fits[i] |= fits_[id];
      if (is_in_module(profile_.locations[i].module)) fits[i] |= kModule;
    }
    std::erase_if(profile_.samples, [&](const profile::Sample& sample) {
      std::uint8_t all = 0;
      for (const std::uint32_t location : sample.locations) all |= fits[location];
      return (all & needed) != needed || (all & kIgnore) != 0;
    });
    if (!wanted_.callers_of.empty()) cut(kCallersOf);
    if (!wanted_.callees_of.empty()) cut(kCalleesOf);
  }

 private:
  static bool is_module(const profile::Module& module, std::string_view name) {
    return module.path == name || module_name(module) == name;
  }
  [[nodiscard]] bool is_in_module(std::uint32_t module) const {
    return module < profile_.modules.size() && std::ranges::any_of(wanted_.modules, [&](const auto& name) {
             return is_module(profile_.modules[module], name);
           });
  }
  [[nodiscard]] std::uint8_t fit_of(const Frame& frame) const {
    std::uint8_t fit = 0;
    for (const std::string& one : wanted_.functions)
      if (is_named(frame.name, one)) fit |= kFunction;
    if (!wanted_.focus.empty() && focus_.fits(frame.name)) fit |= kFocus;
    if (!wanted_.ignore.empty() && ignore_.fits(frame.name)) fit |= kIgnore;
    if (!wanted_.callers_of.empty() && is_named(frame.name, wanted_.callers_of)) fit |= kCallersOf;
    if (!wanted_.callees_of.empty() && is_named(frame.name, wanted_.callees_of)) fit |= kCalleesOf;
    return fit;
  }

  // The lines of a location that stay. Of code without lines, its one frame stays.
  struct Part {
    std::uint32_t location = profile::kNone;
    std::size_t from = 0, to = 0;
    auto operator<=>(const Part&) const = default;
  };
  // Callers are kept from the innermost such function on, callees up to the outermost one.
  void cut(Fit fit) {
    const auto has = [&](std::uint32_t location) {
      return std::ranges::any_of(lines_of(location), [&](std::uint32_t id) { return (fits_[id] & fit) != 0; });
    };
    // The first cut may have taken the second function away.
    std::erase_if(profile_.samples, [&](const auto& sample) { return std::ranges::none_of(sample.locations, has); });
    std::map<Part, std::uint32_t> parts;
    for (profile::Sample& sample : profile_.samples) {
      auto& stack = sample.locations;
      if (fit == kCallersOf) {
        stack.erase(stack.begin(), std::ranges::find_if(stack, has));
      } else {
        stack.erase(std::find_if(stack.rbegin(), stack.rend(), has).base(), stack.end());
        if (profile::is_truncated(sample.end)) sample.end = WL_END_COMPLETE;  // what is missing was above
      }
      std::uint32_t& edge = fit == kCallersOf ? stack.front() : stack.back();
      edge = part_of(edge, fit, parts);
    }
  }

  // Frames of a location, or of a part that cut() has made.
  [[nodiscard]] std::span<const std::uint32_t> lines_of(std::uint32_t location) const {
    return location < first_made_ ? frames_.of_location(location) : std::span(made_[location - first_made_]);
  }

  std::uint32_t part_of(std::uint32_t location, Fit fit, std::map<Part, std::uint32_t>& parts) {
    const auto ids = lines_of(location);
    const auto is = [&](std::uint32_t id) { return (fits_[id] & fit) != 0; };
    Part part{location, 0, ids.size()};
    if (fit == kCallersOf)
      part.from = static_cast<std::size_t>(std::ranges::find_if(ids, is) - ids.begin());
    else
      part.to = static_cast<std::size_t>(std::find_if(ids.rbegin(), ids.rend(), is).base() - ids.begin());
    if (part.from == 0 && part.to == ids.size()) return location;
    const auto [entry, is_new] = parts.try_emplace(part, static_cast<std::uint32_t>(profile_.locations.size()));
    if (!is_new) return entry->second;
    const auto from = static_cast<std::ptrdiff_t>(part.from), to = static_cast<std::ptrdiff_t>(part.to);
    profile::Location made = profile_.locations[location];
    std::erase_if(made.lines, [&](const auto& line) { return line.function >= profile_.functions.size(); });
    made.lines = {made.lines.begin() + from, made.lines.begin() + to};
    profile_.locations.push_back(std::move(made));
    made_.emplace_back(ids.begin() + from, ids.begin() + to);
    return entry->second;
  }

  profile::Profile& profile_;
  const Narrowing& wanted_;
  const Frames frames_;
  const Pattern focus_, ignore_;
  std::vector<std::uint8_t> fits_;  // of each frame
  const std::uint32_t first_made_ = static_cast<std::uint32_t>(profile_.locations.size());
  std::vector<std::vector<std::uint32_t>> made_;  // frames of the locations from first_made_ on
};

}  // namespace

std::optional<NarrowingProblem> narrow(profile::Profile& profile, const Narrowing& wanted) {
  if (auto problem = keep_processes(profile, wanted.processes)) return problem;
  if (auto problem = keep_threads(profile, wanted.threads)) return problem;
  const std::string texts[] = {wanted.focus, wanted.ignore, wanted.callers_of, wanted.callees_of};
  if (wanted.modules.empty() && wanted.functions.empty() && std::ranges::all_of(texts, &std::string::empty))
    return std::nullopt;
  FrameFilter filter(profile, wanted);
  if (auto problem = filter.problem()) return problem;
  filter.apply();
  for (const std::string& one : wanted.modules) profile.comments.push_back("only module=" + one);
  for (const std::string& one : wanted.functions) profile.comments.push_back("only function=" + one);
  constexpr const char* kTexts[] = {"focus", "ignore", "callers of", "callees of"};
  for (std::size_t i = 0; i < std::size(kTexts); ++i)
    if (!texts[i].empty()) profile.comments.push_back(fmt::format("{} {}", kTexts[i], texts[i]));
  return std::nullopt;
}

}  // namespace windlass::exporter
