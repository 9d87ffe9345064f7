// The labels of a process: text that tells the samples of one process, container, pod, service or user from others.
//
// Keys are those of OpenTelemetry's semantic conventions where there is one (opentelemetry.io/docs/specs/semconv). Its
// eBPF profiler uses the same keys for threads, processes and containers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "profiler/processes/container_records.h"
#include "profiler/processes/user_names.h"

namespace windlass::profiler {

struct Label {
  std::string key, value;  // the value may be any bytes: names are chosen by others (base/shown.h shows them)
  auto operator<=>(const Label&) const = default;
};

namespace label_keys {
// Of a thread: a sample has both, and ProcessLabels neither.
inline constexpr std::string_view kThreadId = "thread.id";
inline constexpr std::string_view kThreadName = "thread.name";
// Of a thread's labels, in hexadecimal digits; the keys of OpenTelemetry's logs.
inline constexpr std::string_view kTrace = "trace_id";
inline constexpr std::string_view kSpan = "span_id";
// ProcessLabels.
inline constexpr std::string_view kProcess = "process.pid";
inline constexpr std::string_view kExecutablePath = "process.executable.path";
inline constexpr std::string_view kExecutableName = "process.executable.name";
inline constexpr std::string_view kBuildId = "process.executable.build_id.gnu";
inline constexpr std::string_view kOwner = "process.owner";
// The path alone. OpenTelemetry's examples have the number of the hierarchy before it, which names no group.
inline constexpr std::string_view kCgroup = "process.linux.cgroup";
inline constexpr std::string_view kContainerId = "container.id";
inline constexpr std::string_view kContainerName = "container.name";
inline constexpr std::string_view kContainerRuntime = "container.runtime.name";
inline constexpr std::string_view kPod = "k8s.pod.name";
inline constexpr std::string_view kPodUid = "k8s.pod.uid";
inline constexpr std::string_view kPodNamespace = "k8s.namespace.name";
inline constexpr std::string_view kPodContainer = "k8s.container.name";
// OpenTelemetry has no convention; its collector's systemd receiver uses the first. The second is journald's
// distinction: _SYSTEMD_UNIT, _SYSTEMD_USER_UNIT (systemd.journal-fields(7)).
inline constexpr std::string_view kUnit = "systemd.unit.name";
inline constexpr std::string_view kUserUnit = "systemd.user_unit.name";
// A variable "NAME" is the label "env.NAME". (OpenTelemetry: "process.environment_variable.NAME".)
inline constexpr std::string_view kEnvironment = "env.";
}  // namespace label_keys

struct LabelOptions {
  bool process = true;     // its number
  bool executable = true;  // path and name
  bool build_id = true;    // of the executable: opens that
  bool owner = true;
  bool cgroup = true;
  bool unit = true;                        // of systemd
  bool container = true;                   // id, name, runtime
  bool kubernetes = true;                  // pod, namespace, container
  std::vector<std::string> environment{};  // names of variables
  std::vector<Label> fixed{};              // on every process; these win over what is found
};

// Not thread-safe. Nothing here blocks if os/readers.h is in use. The caller keeps the labels of a process as long as
// it lives: a call reads some files of /proc, and more for a container that is new.
class ProcessLabels {
 public:
  static constexpr std::size_t kMostValue = 4096;                        // bytes of a value; the rest is cut off
  static constexpr std::size_t kMostEnvironment = std::size_t{1} << 20;  // bytes that are read; the rest is not seen
  static constexpr std::size_t kMostCgroup = std::size_t{64} << 10;      // the same
  static constexpr std::size_t kMostExecutables = 4096;                  // whose build ids are kept

  // A recorder gives machine_root() as `places.root`.
  explicit ProcessLabels(LabelOptions options, ContainerPlaces places = {});

  // Sorted by key, each key once. A label that is not known is not there. Of a process that has gone: the fixed ones.
  [[nodiscard]] std::vector<Label> of(std::uint32_t pid);

 private:
  using Labels = std::map<std::string, std::string, std::less<>>;
  using FileKey = std::tuple<std::uint64_t, std::uint64_t, std::int64_t, std::int64_t, std::int64_t>;
  void add_executable(std::uint32_t pid, int folder, Labels& labels);
  void add_cgroup(int folder, Labels& labels);
  void add_owner(int folder, Labels& labels);
  void add_environment(std::uint32_t pid, int folder, Labels& labels) const;
  [[nodiscard]] std::string build_id(const std::string& path);

  LabelOptions options_;
  UserNames users_;
  ContainerRecords containers_;
  std::map<FileKey, std::string> build_ids_;
};

// The value of a variable in the text of a /proc/PID/environ, as getenv(3) would find it: null if there is none.
[[nodiscard]] const char* find_variable(const std::string& environment, std::string_view name);

}  // namespace windlass::profiler
