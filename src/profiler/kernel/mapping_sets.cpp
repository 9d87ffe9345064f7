#include "profiler/kernel/mapping_sets.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "windlass_interpreter_layout.h"

namespace windlass::profiler {
namespace {

constexpr std::uint32_t kHeadUnits = sizeof(wl_maps_head) >> WL_REF_SHIFT;

std::vector<std::uint32_t> modules_of(std::span<const wl_mapping> mappings) {
  std::vector<std::uint32_t> modules;
  for (const wl_mapping& mapping : mappings) modules.push_back(mapping.module);
  std::sort(modules.begin(), modules.end());
  modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
  return modules;
}

}  // namespace

std::size_t MappingSets::Set::bytes() const {
  return sizeof(wl_maps_head) + count * sizeof(wl_mapping) + (interpreted ? sizeof(wl_interpreter) : 0);
}

std::expected<std::uint32_t, SystemError> MappingSets::publish(std::uint32_t tgid, const Contents& contents,
                                                               std::uint64_t epoch, Clock::time_point now) {
  const auto& [mappings, interpreter, threads] = contents;
  Set set;
  set.count = static_cast<std::uint32_t>(mappings.size());
  set.interpreted = interpreter != nullptr;
  set.modules = modules_of(mappings);
  const auto object = arena_.allocate(set.bytes());
  if (!object) return std::unexpected(SystemError{"a process's mappings: " + object.error().text(), ENOMEM});
  set.maps = *object + kHeadUnits;

  const std::lock_guard lock(mutex_);
  const std::uint32_t space = next_space_++;
  auto* head = reinterpret_cast<wl_maps_head*>(arena_.at(*object));
  *head = wl_maps_head{space, set.count};
  if (!mappings.empty()) std::memcpy(head + 1, mappings.data(), mappings.size_bytes());
  auto* behind = reinterpret_cast<std::byte*>(head + 1) + mappings.size_bytes();
  if (set.interpreted) std::memcpy(behind, interpreter, sizeof *interpreter);
  const std::uint32_t flags = set.interpreted ? WL_PROCESS_INTERPRETED : 0;
  const wl_process process{set.maps, set.count, space, flags, epoch, threads.labels, threads.slot};
  if (const int error = entries_.update(tgid, process); error != 0) {
    arena_.free(*object, set.bytes());
    return std::unexpected(
        SystemError{fmt::format("process {} cannot be published: {}", tgid, std::strerror(error)), error});
  }
  modules_.add_user(set.modules);
  retire(tgid, now);
  published_[tgid] = space;
  sets_.emplace(space, std::move(set));
  return space;
}

void MappingSets::forget(std::uint32_t tgid, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  entries_.erase(tgid);
  retire(tgid, now);
}

void MappingSets::retire(std::uint32_t tgid, Clock::time_point now) {
  const auto found = published_.find(tgid);
  if (found == published_.end()) return;
  Set& set = sets_.at(found->second);
  set.retired = true;
  set.since = now;
  published_.erase(found);
}

void MappingSets::hide(Set& set, Clock::time_point now) {
  auto* head = reinterpret_cast<wl_maps_head*>(arena_.at(set.maps - kHeadUnits));
  std::atomic_ref(head->space).store(0, std::memory_order_release);
  set.hidden = true;
  set.since = now;
}

void MappingSets::housekeeping(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now - last_housekeeping_ < kGrace) return;
  last_housekeeping_ = now;
  if (std::ranges::none_of(sets_, [](const auto& entry) { return entry.second.retired; })) return;
  const auto in_use = entries_.spaces();
  if (!in_use) return;
  for (auto entry = sets_.begin(); entry != sets_.end();) {
    Set& set = entry->second;
    const bool idle = set.retired && !in_use->contains(entry->first) && now - set.since >= kGrace;
    if (!idle) {
      ++entry;
    } else if (!set.hidden) {
      hide(set, now);
      ++entry;
    } else {
      modules_.remove_user(set.modules);
      arena_.free(set.maps - kHeadUnits, set.bytes());
      entry = sets_.erase(entry);
    }
  }
}

std::size_t MappingSets::size() const {
  const std::lock_guard lock(mutex_);
  return sets_.size();
}

}  // namespace windlass::profiler
