#include "profiler/processes/main_module.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "os/living_thread.h"

namespace windlass::profiler {
namespace {

using profile::kNone;

std::uint32_t by_path(const profile::Profile& profile, const std::string& path) {
  if (path.empty()) return kNone;
  const auto found = std::ranges::find(profile.modules, path, &profile::Module::path);
  return found != profile.modules.end() ? static_cast<std::uint32_t>(found - profile.modules.begin()) : kNone;
}

std::uint32_t by_outermost_frames(const profile::Profile& profile) {
  std::vector<std::uint64_t> counts(profile.modules.size());
  for (const profile::Sample& sample : profile.samples) {
    if (sample.pid != sample.tid || sample.end != WL_END_COMPLETE || sample.locations.empty()) continue;
    const std::uint32_t module = profile.locations[sample.locations.back()].module;
    if (module < counts.size() && !profile.modules[module].is_kernel) counts[module] += sample.count;
  }
  const auto most = std::ranges::max_element(counts);
  return most != counts.end() && *most != 0 ? static_cast<std::uint32_t>(most - counts.begin()) : kNone;
}

}  // namespace

void put_program_first(profile::Profile& profile, const std::string& program) {
  std::uint32_t main = by_path(profile, program);
  if (main == kNone) main = by_outermost_frames(profile);
  if (main == kNone || main == 0) return;
  std::swap(profile.modules[0], profile.modules[main]);
  for (profile::Location& location : profile.locations) {
    if (location.module == main)
      location.module = 0;
    else if (location.module == 0)
      location.module = main;
  }
}

std::string program_of(std::uint32_t pid) {
  std::error_code error;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", os::living_thread(static_cast<pid_t>(pid))), error)
      .string();
}

}  // namespace windlass::profiler
