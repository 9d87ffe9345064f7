#include "cli/version.h"

#include <Zydis/Zydis.h>
#include <bpf/libbpf.h>

#include <fmt/format.h>

#include "profiler/transport/otlp_fields.h"

namespace windlass::cli {

std::string version_text() {
  const ZyanU64 zydis = ZydisGetVersion();
  const std::string commit = *kCommit == 0 ? "" : fmt::format(" (commit {})", kCommit);
  return fmt::format(
      "windlass {}{}, {}\n"
      "BPF programs inside, loaded by libbpf {}.{}\n"
      "x86 instructions read by Zydis {}.{}.{}\n"
      "OTLP profiles v1development of opentelemetry-proto {}, in development\n"
      "debuginfod servers asked by {}, if DEBUGINFOD_URLS is set",
      WINDLASS_VERSION, commit, kLinkage.file, libbpf_major_version(), libbpf_minor_version(),
      ZYDIS_VERSION_MAJOR(zydis), ZYDIS_VERSION_MINOR(zydis), ZYDIS_VERSION_PATCH(zydis),
      transport::otlp::kProtoVersion, kLinkage.debuginfod);
}

}  // namespace windlass::cli
