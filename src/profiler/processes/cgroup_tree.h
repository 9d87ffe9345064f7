// The groups of cgroup v2, as folders.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <string_view>

namespace windlass::profiler {

// Where cgroup v2 is mounted, by the text of a /proc/self/mountinfo (proc(5)); empty: nowhere. Of several mounts the
// first that shows the whole tree.
[[nodiscard]] std::string find_cgroup_mount(std::string_view mountinfo);

// The number that bpf_get_current_cgroup_id() and bpf_get_current_ancestor_cgroup_id() tell of the group. The error is
// errno: ENOENT, ENOTDIR; EXDEV where the folder is no group of v2.
[[nodiscard]] std::expected<std::uint64_t, int> cgroup_id(const std::string& folder);

// Calls `visit` with the path of each group below `mount`, as /proc/PID/cgroup has it, the outer before the inner. The
// groups in one are left out if `visit` returns false. At most kMostGroups.
constexpr std::size_t kMostGroups = 65536;
void visit_groups(const std::string& mount, const std::function<bool(const std::string& path)>& visit);

}  // namespace windlass::profiler
