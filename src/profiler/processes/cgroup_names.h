// What the cgroup of a process says of it: container, pod, unit of systemd.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace windlass::profiler {

struct CgroupNames {
  // The first of these that is no root: the path of cgroup v2, that of systemd's hierarchy, those of the others in the
  // order of the file. If all are roots the first; empty if there is none.
  std::string path{};
  std::string container_id{};    // of the innermost container
  std::string container_name{};  // LXC alone has names and no ids
  std::string runtime{};         // "docker", "podman", "containerd", "cri-o", "lxc", "buildkit"; empty: not known
  std::string pod_uid{};         // Kubernetes, with dashes as in the API
  std::string unit{};            // of the system's manager: "nginx.service", "session-3.scope"
  std::string user_unit{};       // of a user's manager
  std::optional<std::uint32_t> user{};  // whose user slice the process is in
};

// Of the text of a /proc/PID/cgroup (cgroups(7)); of v1, v2 and both. Paths begin with "/.." where the reader is in
// another cgroup namespace: the rest is read all the same.
[[nodiscard]] CgroupNames parse_cgroup(std::string_view text);

// "1f2e..." of 64 hexadecimal digits, and the ids of AWS Fargate.
[[nodiscard]] bool is_container_id(std::string_view text);

}  // namespace windlass::profiler
