// A refusal by the system: a sentence for people with the way out, and the kind for programs.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

namespace windlass::profiler {

enum class RefusalKind : std::uint8_t {
  kPrivilege,  // this user, container or setting may not; another could
  kRejected,   // the kernel's verifier does not accept a program: an error of Windlass, or a kernel unknown to it
  kMissing,    // the kernel or the system has not got it
  kLimit,      // too much of something: memory, descriptors, a rate
  kUsage,      // an option asks for what cannot be; another value could
  kOther,
};

struct SystemError {
  std::string text;
  int code = 0;  // errno
  RefusalKind kind = RefusalKind::kOther;
  std::string log = {};  // what libbpf and the verifier said, in full; long
};

// One word, stable: `windlass record` prints it, tests and scripts look for it.
[[nodiscard]] constexpr const char* refusal_word(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::kPrivilege: return "privilege";
    case RefusalKind::kRejected: return "rejected";
    case RefusalKind::kMissing: return "missing";
    case RefusalKind::kLimit: return "limit";
    case RefusalKind::kUsage: return "usage";
    case RefusalKind::kOther: break;
  }
  return "other";
}

// What an errno says where nothing else is known. EACCES is left out: from bpf(2) it may be the verifier's.
[[nodiscard]] constexpr RefusalKind kind_of_errno(int error) {
  switch (error) {
    case EPERM: return RefusalKind::kPrivilege;
    case ENOENT:
    case ESRCH:
    case ENODEV:
    case ENOSYS:
    case EOPNOTSUPP: return RefusalKind::kMissing;
    case ENOMEM:
    case ENOSPC:
    case E2BIG:
    case EMFILE:
    case ENFILE: return RefusalKind::kLimit;
    default: return RefusalKind::kOther;
  }
}

[[nodiscard]] inline SystemError system_error(std::string text, int error) {
  return {std::move(text), error, kind_of_errno(error)};
}

// EMFILE, ENFILE.
[[nodiscard]] inline SystemError too_many_open_files(int error, std::string log = {}) {
  return {"too many open files. Way out: ulimit -n 65536", error, RefusalKind::kLimit, std::move(log)};
}

}  // namespace windlass::profiler
