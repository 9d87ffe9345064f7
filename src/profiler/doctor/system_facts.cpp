#include "profiler/doctor/system_facts.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "os/proc_file.h"

namespace windlass::profiler {
namespace {

namespace fs = std::filesystem;

std::optional<long> read_number(const std::string& path) {
  std::ifstream file(path);
  long value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::string first_line(std::string text) {
  if (const auto end = text.find('\n'); end != std::string::npos) text.resize(end);
  return text;
}

template <typename Number>
Number number(std::string_view text, int base = 10) {
  Number value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

std::string_view next_line(std::string_view& rest) {
  const auto end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

std::string_view next_word(std::string_view& rest) {
  const auto begin = rest.find_first_not_of(" \t");
  rest.remove_prefix(begin == std::string_view::npos ? rest.size() : begin);
  const auto end = rest.find_first_of(" \t");
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(word.size());
  return word;
}

void note_proc_options(std::string_view options, MountFacts& mounts) {
  while (!options.empty()) {
    const auto comma = options.find(',');
    const std::string_view option = options.substr(0, comma);
    options.remove_prefix(comma == std::string_view::npos ? options.size() : comma + 1);
    if (!option.starts_with("hidepid=")) continue;
    const std::string_view value = option.substr(8);
    if (value != "0" && value != "off") mounts.hidepid = value;
  }
}

// Programs that run containers leave one of these.
std::string container_hint(const std::string& root) {
  for (const char* name : {"/.dockerenv", "/run/.containerenv"}) {
    if (std::error_code error; fs::exists(root + name, error)) return name;
  }
  if (const char* name = std::getenv("container"); name != nullptr && *name != '\0')  // systemd's container interface
    return std::string("container=") + name;
  const std::string cgroup = os::read_proc_file(root + "/proc/self/cgroup");
  for (const char* name : {"docker", "kubepods", "libpod", "lxc", "containerd"}) {
    if (cgroup.find(name) != std::string::npos) return std::string(name) + " in /proc/self/cgroup";
  }
  return {};
}

void read_limits(SystemFacts& facts) {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.memlock = limit.rlim_cur;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.descriptors = limit.rlim_cur;
    facts.descriptors_hard = limit.rlim_max;
  }
}

}  // namespace

const char* capability_name(Capability capability) {
  switch (capability) {
    case Capability::kSysPtrace: return "CAP_SYS_PTRACE";
    case Capability::kSysAdmin: return "CAP_SYS_ADMIN";
    case Capability::kSysResource: return "CAP_SYS_RESOURCE";
    case Capability::kSyslog: return "CAP_SYSLOG";
    case Capability::kPerfmon: return "CAP_PERFMON";
    case Capability::kBpf: return "CAP_BPF";
    case Capability::kCheckpointRestore: return "CAP_CHECKPOINT_RESTORE";
  }
  return "?";
}

KernelVersion parse_release(std::string_view release) {
  const auto dot = release.find('.');
  if (dot == std::string_view::npos) return {};
  return {number<unsigned>(release.substr(0, dot)), number<unsigned>(release.substr(dot + 1))};
}

std::string parse_lockdown(std::string_view text) {
  const auto begin = text.find('[');
  const auto end = text.find(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return std::string(text.substr(begin + 1, end - begin - 1));
}

ProcessStatus parse_status(std::string_view text) {
  ProcessStatus status;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    const std::string_view key = next_word(line);
    if (key == "CapEff:") status.effective = number<std::uint64_t>(next_word(line), 16);
    if (key == "Seccomp:") status.seccomp = number<int>(next_word(line));
    if (key != "NSpid:") continue;
    status.namespaces = 0;
    for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
      ++status.namespaces;
      status.own_pid = number<std::uint32_t>(word);
    }
  }
  return status;
}

// "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw,hidepid=2": optional fields end at the hyphen.
MountFacts parse_mountinfo(std::string_view text) {
  MountFacts mounts;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    for (int i = 0; i < 4; ++i) next_word(line);
    const std::string_view point = next_word(line);
    const auto hyphen = line.find(" - ");
    if (hyphen == std::string_view::npos) continue;
    line.remove_prefix(hyphen + 3);
    const std::string_view type = next_word(line);
    next_word(line);  // what is mounted
    if (type == "cgroup") mounts.cgroup1 = true;
    if (type == "cgroup2") mounts.cgroup2 = true;
    if (type == "sysfs" && point == "/sys") mounts.sysfs = true;
    if (type == "proc" && point == "/proc") {
      mounts.proc = true;
      mounts.hidepid.clear();  // the last one mounted there is the one that is seen
      note_proc_options(next_word(line), mounts);
    }
  }
  return mounts;
}

bool is_initial_uid_map(std::string_view text) {
  std::string_view line = next_line(text);
  return next_word(line) == "0" && next_word(line) == "0" && next_word(line) == "4294967295" && text.empty();
}

std::uint32_t parse_namespace(std::string_view link) {
  const auto begin = link.find('[');
  return begin == std::string_view::npos ? 0 : number<std::uint32_t>(link.substr(begin + 1));
}

SystemFacts read_system_facts(const std::string& btf, const std::string& root) {
  SystemFacts facts;
  utsname name{};
  if (uname(&name) == 0) {
    facts.release = name.release;
    facts.machine = name.machine;
  }
  facts.user = geteuid();
  std::error_code error;
  if (const fs::path command = fs::read_symlink("/proc/self/exe", error); !error) facts.command = command.string();
  facts.status = parse_status(os::read_proc_file(root + "/proc/self/status"));
  facts.mounts = parse_mountinfo(os::read_proc_file(root + "/proc/self/mountinfo"));
  facts.initial_user_namespace = is_initial_uid_map(os::read_proc_file(root + "/proc/self/uid_map"));
  facts.pid_namespace = parse_namespace(fs::read_symlink(root + "/proc/self/ns/pid", error).string());
  facts.proc_of_other_namespace = facts.status.namespaces > 1;
  if (!btf.empty()) {
    facts.btf_path = btf;
    facts.btf_given = true;
  } else {
    facts.btf_path = root + facts.btf_path;
  }
  if (const std::string lockdown = parse_lockdown(os::read_proc_file(root + "/sys/kernel/security/lockdown"));
      !lockdown.empty())
    facts.lockdown = lockdown;
  const std::string kernel = root + "/proc/sys/kernel/";
  facts.perf_event_paranoid = read_number(kernel + "perf_event_paranoid");
  facts.unprivileged_bpf_disabled = read_number(kernel + "unprivileged_bpf_disabled");
  facts.kptr_restrict = read_number(kernel + "kptr_restrict");
  facts.max_sample_rate = read_number(kernel + "perf_event_max_sample_rate");
  facts.max_stack = read_number(kernel + "perf_event_max_stack");
  facts.mlock_kb = read_number(kernel + "perf_event_mlock_kb");
  facts.bpf_jit = read_number(root + "/proc/sys/net/core/bpf_jit_enable");
  facts.ptrace_scope = read_number(kernel + "yama/ptrace_scope");
  read_limits(facts);
  facts.online_cpus = first_line(os::read_proc_file(root + "/sys/devices/system/cpu/online"));
  facts.container = container_hint(root);
  return facts;
}

}  // namespace windlass::profiler
