#include "profiler/export/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <tuple>

#include "profiler/export/hash_slots.h"

namespace windlass::exporter {

using profile::kNone;

namespace {

// Of code made at run time that nothing names, addresses mean nothing to people; each would be a function.
constexpr const char* kJit = "[jit]";

// A large profile has a million: fmt takes three times as long.
std::string hexadecimal(std::string_view before, std::uint64_t number) {
  char text[2 + 16];
  text[0] = '0';
  text[1] = 'x';
  const char* const end = std::to_chars(text + 2, std::end(text), number, 16).ptr;
  std::string all;
  all.reserve(before.size() + 1 + sizeof text);
  all = before;
  if (!before.empty()) all += '+';
  return all.append(text, static_cast<std::size_t>(end - text));
}

// What names the location where nothing else does.
std::uint64_t offset_of(const profile::Profile& profile, const profile::Location& location) {
  const bool has_begin = location.module < profile.modules.size() && location.function_begin != 0;
  return has_begin ? location.function_begin : location.address;
}

std::string name_of_offset(const profile::Profile& profile, std::uint32_t module, std::uint64_t offset) {
  if (module >= profile.modules.size()) return hexadecimal({}, offset);
  if (profile.modules[module].path == "[anon]") return kJit;
  return hexadecimal(module_name(profile.modules[module]), offset);
}

}  // namespace

std::string_view module_name(const profile::Module& module) {
  const std::string_view path = module.path;
  if (path.empty()) return "[unknown]";
  if (path.front() == '[') return path;
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

std::string unnamed_frame(const profile::Profile& profile, const profile::Location& location) {
  return name_of_offset(profile, location.module, offset_of(profile, location));
}

std::string module_text(const profile::Profile& profile, const Frame& frame) {
  const auto modules = frame.modules();
  if (modules.empty()) return {};
  const std::string_view first = module_name(profile.modules[modules.front()]);
  return modules.size() == 1 ? std::string(first) : fmt::format("{} +{}", first, modules.size() - 1);
}

Frames::Frames(const profile::Profile& profile) : profile_(profile), comms_(profile.strings.size() + 1, kNone) {
  std::fill(std::begin(ends_), std::end(ends_), kNone);
  first_.reserve(profile.locations.size() + 1);
  by_function_.reserve(profile.functions.size());
  find_files();
  for (const auto& location : profile.locations) {
    first_.push_back(ids_.size());
    for (const auto& line : location.lines)
      if (line.function < profile.functions.size()) ids_.push_back(of_line(location, line));
    if (ids_.size() == first_.back()) ids_.push_back(of_unnamed(location));
  }
  first_.push_back(ids_.size());
  settle_modules();
}

bool Frames::is_kernel(std::uint32_t module) const {
  return module < profile_.modules.size() && profile_.modules[module].is_kernel;
}

FunctionKey function_key(const profile::Profile& profile, const Frame& frame) {
  if (frame.module >= profile.modules.size()) return {.name = frame.name, .is_kernel = false, .file = {}};
  const profile::Module& module = profile.modules[frame.module];
  return {.name = frame.name,
          .is_kernel = module.is_kernel,
          .file = Frames::is_of_module(frame) ? module.path : std::string()};
}

// An offset says nothing of another file of the same name. The name of code that nothing names is no offset.
bool Frames::is_of_module(const Frame& frame) { return frame.kind == FrameKind::kUnnamed && frame.name != kJit; }

bool Frames::is_same(const Frame& a, const Frame& b) const {
  return a.kind == b.kind && a.name == b.name && is_kernel(a.module) == is_kernel(b.module);
}

std::uint32_t Frames::intern(Frame frame) {
  if (frames_.size() * 2 >= slots_.size()) grow();
  const auto hash = static_cast<std::uint32_t>(std::hash<std::string_view>()(frame.name));
  std::size_t at = hash & (slots_.size() - 1);
  for (; slots_[at].id != kNone; at = (at + 1) & (slots_.size() - 1)) {
    const std::uint32_t id = slots_[at].id;
    if (slots_[at].hash != hash || !is_same(frames_[id], frame)) continue;
    add_module(id, frame.module);
    return id;
  }
  const auto id = static_cast<std::uint32_t>(frames_.size());
  slots_[at] = {hash, id};
  if (frame.module >= profile_.modules.size()) frame.module = kNone;
  frames_.push_back(std::move(frame));
  return id;
}

// Another module of a frame.
void Frames::add_module(std::uint32_t id, std::uint32_t module) {
  if (module >= profile_.modules.size() || module == frames_[id].module) return;
  if (frames_[id].module == kNone) {
    frames_[id].module = module;
    return;
  }
  modules_seen_.emplace_back(id, frames_[id].module);
  modules_seen_.emplace_back(id, module);
}

void Frames::settle_modules() {
  std::ranges::sort(modules_seen_);
  modules_seen_.erase(std::ranges::unique(modules_seen_).begin(), modules_seen_.end());
  several_modules_.reserve(modules_seen_.size());  // spans of it are kept
  for (const auto& [id, module] : modules_seen_) {
    std::span<const std::uint32_t>& all = frames_[id].several_modules;
    if (all.empty()) frames_[id].module = module;
    several_modules_.push_back(module);
    all = {several_modules_.data() + several_modules_.size() - all.size() - 1, all.size() + 1};
  }
  modules_seen_ = {};
}

void Frames::grow() {
  std::vector<Slot> old(slots_.empty() ? 1024 : slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id == kNone) continue;
    std::size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].id != kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
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

void Frames::find_files() {
  std::map<std::tuple<std::string_view, std::string_view, bool>, std::uint32_t> firsts;
  for (const profile::Module& module : profile_.modules) {
    const auto number = static_cast<std::uint32_t>(files_.size());
    files_.push_back(firsts.try_emplace({module.path, module.build_id, module.is_kernel}, number).first->second);
  }
}

std::size_t Frames::slot_of_unnamed(std::uint64_t offset, std::uint32_t file) const {
  std::size_t at = mix_hash(offset, file) & (unnamed_.size() - 1);
  while (unnamed_[at].id != kNone && (unnamed_[at].offset != offset || unnamed_[at].file != file))
    at = (at + 1) & (unnamed_.size() - 1);
  return at;
}

void Frames::grow_unnamed() {
  std::vector<Unnamed> old(unnamed_.empty() ? 1024 : unnamed_.size() * 2);
  old.swap(unnamed_);
  for (const Unnamed& one : old)
    if (one.id != kNone) unnamed_[slot_of_unnamed(one.offset, one.file)] = one;
}

std::uint32_t Frames::of_unnamed(const profile::Location& location) {
  const bool known = location.module < profile_.modules.size();
  if (known && profile_.modules[location.module].path == "[anon]")
    return intern({.name = kJit, .file = {}, .module = location.module, .kind = FrameKind::kUnnamed});
  if (unnamed_used_ * 2 >= unnamed_.size()) grow_unnamed();
  const std::uint64_t offset = offset_of(profile_, location);
  const std::uint32_t file = known ? files_[location.module] : location.module;
  Unnamed& slot = unnamed_[slot_of_unnamed(offset, file)];
  if (slot.id != kNone) {
    add_module(slot.id, location.module);
    return slot.id;
  }
  slot = {offset, file, static_cast<std::uint32_t>(frames_.size())};
  ++unnamed_used_;
  frames_.push_back({.name = {},
                     .file = {},
                     .module = known ? location.module : kNone,
                     .offset = offset,
                     .kind = FrameKind::kUnnamed});
  return slot.id;
}

void Frames::name_unnamed(Frame& frame) const { frame.name = name_of_offset(profile_, frame.module, frame.offset); }

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
  const auto begun = static_cast<std::ptrdiff_t>(path.size());
  for (const std::uint32_t location : sample.locations) {
    const auto ids = of_location(location);
    path.insert(path.end(), ids.begin(), ids.end());
  }
  std::reverse(path.begin() + begun, path.end());
}

}  // namespace windlass::exporter
