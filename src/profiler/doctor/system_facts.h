// What the system says of itself, as far as recording depends on it: read once, without trying anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace windlass::profiler {

// linux/capability.h; by number, since older headers lack the newer ones.
enum class Capability : std::uint8_t {
  kSysPtrace = 19,
  kSysAdmin = 21,
  kSysResource = 24,
  kSyslog = 34,
  kPerfmon = 38,            // since Linux 5.8
  kBpf = 39,                // since Linux 5.8
  kCheckpointRestore = 40,  // since Linux 5.9
};
[[nodiscard]] const char* capability_name(Capability capability);  // "CAP_BPF"

struct KernelVersion {
  unsigned major = 0, minor = 0;
  auto operator<=>(const KernelVersion&) const = default;
};

struct ProcessStatus {
  std::uint64_t effective = 0;   // capabilities
  int seccomp = 0;               // 2: a filter stands between this process and the kernel
  std::uint32_t namespaces = 1;  // numbers on the line NSpid: one for each PID namespace from that of /proc down
  std::uint32_t own_pid = 0;     // the last of them: in the PID namespace of the process itself
};

struct MountFacts {
  bool proc = false, sysfs = false;
  bool cgroup1 = false, cgroup2 = false;
  std::string hidepid;  // of /proc, as written; empty: everybody sees all processes
};

// "6.1.0-32-amd64" is {6, 1}; {0, 0} if it does not begin like that.
[[nodiscard]] KernelVersion parse_release(std::string_view release);
// The word in brackets of "[none] integrity confidentiality"; empty if there is none.
[[nodiscard]] std::string parse_lockdown(std::string_view text);
// /proc/self/status (proc(5)).
[[nodiscard]] ProcessStatus parse_status(std::string_view text);
// /proc/self/mountinfo (proc(5)).
[[nodiscard]] MountFacts parse_mountinfo(std::string_view text);
// /proc/self/uid_map is the initial user namespace's: everything mapped to itself (user_namespaces(7)).
[[nodiscard]] bool is_initial_uid_map(std::string_view text);
// The number in "pid:[4026531836]"; 0 if there is none.
[[nodiscard]] std::uint32_t parse_namespace(std::string_view link);

// include/linux/proc_ns.h, PROC_PID_INIT_INO: part of the kernel's interface, as CRIU and others depend on it.
constexpr std::uint32_t kInitialPidNamespace = 0xEFFFFFFC;

struct SystemFacts {
  std::string release, machine;
  std::uint32_t user = 0;            // effective
  std::string command = "windlass";  // this program's file
  ProcessStatus status;
  MountFacts mounts;
  bool initial_user_namespace = true;
  std::uint32_t pid_namespace = kInitialPidNamespace;
  bool proc_of_other_namespace = false;  // /proc numbers processes otherwise than this process's PID namespace
  std::string btf_path = "/sys/kernel/btf/vmlinux";
  bool btf_given = false;  // by the user
  std::optional<std::string> lockdown;
  std::optional<long> perf_event_paranoid, unprivileged_bpf_disabled, kptr_restrict, max_sample_rate, max_stack,
      mlock_kb, bpf_jit, ptrace_scope;
  std::uint64_t memlock = ~0ull, descriptors = ~0ull, descriptors_hard = ~0ull;  // ~0: no limit
  std::string online_cpus;                                                       // as /sys has it
  std::string container;                                                         // what hints at one; empty: nothing

  [[nodiscard]] KernelVersion version() const { return parse_release(release); }
  [[nodiscard]] bool has(Capability capability) const {
    return (status.effective >> static_cast<unsigned>(capability) & 1) != 0;
  }
  // Where CAP_SYS_ADMIN stands in for the newer, smaller ones.
  [[nodiscard]] bool may(Capability capability) const { return has(capability) || has(Capability::kSysAdmin); }
  [[nodiscard]] bool child_pid_namespace() const { return pid_namespace != 0 && pid_namespace != kInitialPidNamespace; }
};

// `root` is put before every path, for tests. `btf`: the type information's file if not the kernel's own.
[[nodiscard]] SystemFacts read_system_facts(const std::string& btf = {}, const std::string& root = {});

}  // namespace windlass::profiler
