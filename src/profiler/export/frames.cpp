#include "profiler/export/frames.h"

#include <fmt/format.h>

#include <algorithm>

namespace windlass::exporter {

using profile::kNone;

std::string_view module_name(const profile::Module& module) {
  const std::string_view path = module.path;
  if (path.empty()) return "[unknown]";
  if (path.front() == '[') return path;
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

std::string unnamed_frame(const profile::Profile& profile, const profile::Location& location) {
  if (location.module >= profile.modules.size()) return fmt::format("{:#x}", location.address);
  // Of code made at run time that nothing names, addresses mean nothing to people; each would be a function.
  if (profile.modules[location.module].path == "[anon]") return "[jit]";
  const std::uint64_t offset = location.function_begin != 0 ? location.function_begin : location.address;
  return fmt::format("{}+{:#x}", module_name(profile.modules[location.module]), offset);
}

Frames::Frames(const profile::Profile& profile) : profile_(profile), comms_(profile.strings.size() + 1, kNone) {
  std::fill(std::begin(ends_), std::end(ends_), kNone);
  first_.reserve(profile.locations.size() + 1);
  for (const auto& location : profile.locations) {
    first_.push_back(ids_.size());
    for (const auto& line : location.lines)
      if (line.function < profile.functions.size()) ids_.push_back(of_line(location, line));
    if (ids_.size() == first_.back())
      ids_.push_back(intern({.name = unnamed_frame(profile, location),
                             .file = {},
                             .module = location.module,
                             .kind = FrameKind::kUnnamed}));
  }
  first_.push_back(ids_.size());
}

std::uint32_t Frames::intern(Frame frame) {
  std::string key = fmt::format("{}:{}:{}", static_cast<int>(frame.kind), frame.module, frame.name);
  const auto [entry, is_new] = by_key_.try_emplace(std::move(key), static_cast<std::uint32_t>(frames_.size()));
  if (is_new) frames_.push_back(std::move(frame));
  return entry->second;
}

std::uint32_t Frames::of_line(const profile::Location& location, const profile::Line& line) {
  const std::uint64_t key = std::uint64_t{location.module} << 32 | line.function;
  if (const auto known = by_function_.find(key); known != by_function_.end()) return known->second;
  const auto& function = profile_.functions[line.function];
  const std::uint32_t id = intern({.name = function.name,
                                   .file = function.file,
                                   .module = location.module,
                                   .line = function.start_line != 0 ? function.start_line : line.line});
  by_function_.emplace(key, id);
  return id;
}

std::uint32_t Frames::of_comm(std::uint32_t comm) {
  const bool known = comm < profile_.strings.size();
  std::uint32_t& id = comms_[known ? comm : profile_.strings.size()];
  if (id == kNone)
    id = intern({.name = known ? profile_.strings[comm] : "[unknown]", .file = {}, .kind = FrameKind::kComm});
  return id;
}

std::uint32_t Frames::of_end(std::uint8_t end) {
  std::uint32_t& id = ends_[end];
  if (id == kNone)
    id = intern(
        {.name = fmt::format("[truncated: {}]", profile::end_text(end)), .file = {}, .kind = FrameKind::kTruncated});
  return id;
}

void Frames::begin_path(const profile::Sample& sample, std::vector<std::uint32_t>& path) {
  path.clear();
  if (const std::uint32_t root = root_of(profile_, sample); root != kNone) path.push_back(of_comm(root));
  path.push_back(of_comm(sample.comm));
  if (profile::is_truncated(sample.end)) path.push_back(of_end(sample.end));
}

void Frames::path_of(const profile::Sample& sample, std::vector<std::uint32_t>& path) {
  begin_path(sample, path);
  for (auto location = sample.locations.rbegin(); location != sample.locations.rend(); ++location) {
    const auto ids = of_location(*location);
    path.insert(path.end(), ids.rbegin(), ids.rend());
  }
}

}  // namespace windlass::exporter
