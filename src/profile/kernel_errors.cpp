#include "profile/kernel_errors.h"

#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace windlass::profile {
namespace {

std::string messages;
libbpf_print_fn_t previous_print;

__attribute__((format(printf, 2, 0))) int keep_message(libbpf_print_level level, const char* format,
                                                       std::va_list arguments) {
  if (std::getenv("WINDLASS_BPF_LOG") != nullptr) {
    std::va_list again;
    va_copy(again, arguments);
    std::vfprintf(stderr, format, again);
    va_end(again);
  }
  if (level == LIBBPF_DEBUG) return 0;
  char line[4096];
  std::vsnprintf(line, sizeof line, format, arguments);
  messages += line;
  if (messages.size() > 8192) messages.erase(0, messages.size() - 8192);
  return 0;
}

bool kernel_before(unsigned major, unsigned minor) {
  utsname name{};
  unsigned have_major = 0, have_minor = 0;
  if (uname(&name) != 0 || std::sscanf(name.release, "%u.%u", &have_major, &have_minor) != 2) return false;
  return have_major < major || (have_major == major && have_minor < minor);
}

std::string release() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "unknown";
}

}  // namespace

LibbpfLog::LibbpfLog() {
  messages.clear();
  previous_print = libbpf_set_print(keep_message);
}

LibbpfLog::~LibbpfLog() { libbpf_set_print(previous_print); }

std::string LibbpfLog::text() const { return messages; }

SystemError explain_load_error(int error, const std::string& log) {
  if (geteuid() != 0 && (error == EPERM || error == EACCES)) {
    return {"loading the BPF programs needs root, or the capabilities CAP_BPF and CAP_PERFMON: run it with sudo", error};
  }
  if (kernel_before(5, 15)) {
    return {fmt::format("the kernel ({}) is too old: sampling needs Linux 5.15 or newer", release()), error};
  }
  if (access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
    return {"the kernel gives no type information (/sys/kernel/btf/vmlinux): it must be built with CONFIG_DEBUG_INFO_BTF",
            error};
  }
  if (error == ENOMEM || log.find("RLIMIT_MEMLOCK") != std::string::npos) {
    return {"no memory for the BPF maps: raise the locked-memory limit (ulimit -l unlimited), or free memory", error};
  }
  if (error == EPERM) {
    return {"the kernel refuses BPF programs even to root: a container without CAP_BPF and CAP_PERFMON, or kernel "
            "lockdown (cat /sys/kernel/security/lockdown)",
            error};
  }
  return {fmt::format("the BPF programs cannot be loaded: {}\n{}", std::strerror(error), log), error};
}

SystemError explain_perf_error(int error, unsigned frequency) {
  if (error == EACCES || error == EPERM) {
    return {"the kernel refuses perf events: run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid "
            "(sysctl kernel.perf_event_paranoid=0)",
            error};
  }
  if (error == EINVAL) {
    return {fmt::format("{} samples a second is more than the kernel allows (sysctl kernel.perf_event_max_sample_rate)",
                        frequency),
            error};
  }
  if (error == EMFILE) return {"too many open files: raise the limit (ulimit -n)", error};
  return {fmt::format("cannot open a perf event: {}", std::strerror(error)), error};
}

}  // namespace windlass::profile
