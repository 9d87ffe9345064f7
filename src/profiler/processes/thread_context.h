// Labels that programs set for their own threads, as OpenTelemetry shares them: where a thread has its record, and the
// names of the labels in it. OTEPs 4947 (thread context) and 4719 (process context) of
// open-telemetry/opentelemetry-specification, oteps/profiles.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/proc_maps.h"
#include "windlass/bytes.h"
#include "windlass/error.h"
#include "windlass/walk.h"
#include "windlass_labels_layout.h"

namespace windlass::profiler {

inline constexpr std::string_view kThreadContext = "otel_thread_ctx_v1";

// How the threads of a process find the variable, by the image whose first byte is at `base`. `musl`: the C
// library is musl, else glibc. kNotFound: the image does not define it.
[[nodiscard]] Expected<wl_label_source> find_thread_context(const Memory& memory, std::uint64_t base, bool musl);

// Does the image of a file define the variable?
[[nodiscard]] bool has_thread_context(const Memory& image, std::uint64_t base);

// The names that the numbers of keys stand for, as the process says at the moment. Reads /proc/PID/maps of `maps`, and
// the payload, up to kMostContext bytes. kNotFound: it says nothing. kMalformed: not by the protocol, or it was written
// meanwhile.
inline constexpr std::size_t kMostContext = std::size_t{1} << 18;
[[nodiscard]] Expected<std::vector<std::string>> read_label_keys(const Memory& memory,
                                                                 std::span<const os::ProcMap> maps);

// Those of a payload, a ProcessContext in the format of Protocol Buffers: `threadlocal.attribute_key_map`, if
// `threadlocal.schema_version` is one of the thread context's. At most 256. kMalformed; kNotFound: there are none.
[[nodiscard]] Expected<std::vector<std::string>> parse_label_keys(ByteView payload);

}  // namespace windlass::profiler
