// Which samples a recording keeps, in numbers that a kernel program can compare.
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/processes/container_records.h"
#include "windlass_filter_layout.h"

namespace windlass::profiler {

enum class FilterKind : std::uint8_t { kCgroup, kContainer, kThreadName, kUser };

// As on the command line: --cgroup PATH, --container NAME_OR_ID, --comm NAME, --uid USER.
struct FilterOption {
  FilterKind kind = FilterKind::kCgroup;
  std::string value{};
  bool exclude = false;
};

// "cgroup=PATH", "container=NAME_OR_ID", "comm=NAME", "uid=USER", as --exclude takes it. The error is a sentence.
[[nodiscard]] std::expected<FilterOption, std::string> parse_exclude(std::string_view text);

using ThreadName = std::array<char, 16>;  // TASK_COMM_LEN; zeros to its end

struct FilterNumbers {
  std::vector<std::uint64_t> cgroups{};  // ids of v2: of the task's group, or of one that holds it
  std::vector<ThreadName> thread_names{};
  std::vector<std::uint32_t> users{};  // real user ids: bpf_get_current_uid_gid()
  auto operator<=>(const FilterNumbers&) const = default;
};

// A sample is kept if it fits `wanted`, and fits no number of `excluded`. It fits `wanted` if it fits one number of
// each list that is not empty.
struct SampleFilter {
  FilterNumbers wanted{}, excluded{};
};

struct FilterPlaces {
  std::string cgroup_mount{};  // find_cgroup_mount()
  ContainerPlaces containers{};
};

// Groups, containers and users must be there. A container is meant by its name, or by the beginning of its id. The
// error is a sentence with the way out.
[[nodiscard]] std::expected<SampleFilter, std::string> make_filter(std::span<const FilterOption> options,
                                                                   const FilterPlaces& places);

// As the kernel side has it. The error is a sentence: there is room for WL_MAX_FILTERS of a kind.
[[nodiscard]] std::expected<wl_filters, std::string> filters_of(const SampleFilter& filter);

}  // namespace windlass::profiler
