// The pprof format (github.com/google/pprof/proto/profile.proto), gzip-compressed: written streaming, read back whole.
//
// Sample types are those of value_types(): samples/count and cpu/nanoseconds for ticks of CPU time. A sample has values
// of its own event, and zeroes for others. Labels of a sample: numbers "pid" and "tid", strings "comm", those of its
// label set and, where the stack is not whole, "truncated" with the reason (wl_end's text); "end" = "kernel
// thread" for a stack that has no user part by nature, "chained" for one that only frame pointers prove; "certainty"
// where the least certain frame is not described.
// Locations keep the numbering of profile.h: addresses as the module's ELF file counts them. Samples the recording lost
// are in a comment "windlass: lost samples N".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/bytes.h"
#include "windlass/error.h"

namespace windlass::exporter {

// O(profile) time; memory for the string table only. An error soon after `given_up` has become true.
[[nodiscard]] Expected<void> write_pprof(const profile::Profile& profile, TextWriter& out,
                                         const std::atomic<bool>* given_up = nullptr);
// Writes beside `path` and renames. So a full disk or a crash never leaves half a profile under the name. Files that
// are not regular (a pipe, /dev/stdout) are written directly.
[[nodiscard]] Expected<void> write_pprof_file(const profile::Profile& profile, const std::string& path,
                                              const std::atomic<bool>* given_up = nullptr);

struct PprofLimits {
  std::uint64_t max_bytes = std::uint64_t{1} << 30;   // uncompressed
  std::uint64_t max_items = std::uint64_t{1} << 28;   // of about 4 bytes of memory: all kinds of messages, callers of
                                                      // different stacks
  std::uint64_t max_frames = std::uint64_t{1} << 28;  // of the stacks of all samples, with inlined calls
  std::size_t worth_threads = std::size_t{1} << 20;   // bytes that are read by three threads, if there are several CPUs
};

// Compressed or not. Also reads other programs' profiles: a value of the unit "count" and the value behind it are one
// event, a value without a count before it is one by itself. A sample with values of several events becomes several.
// Labels with numbers, but for pid and tid, are left out. An error names the byte offset in the uncompressed message.
// `owned`: null, or what `bytes` lie in, which is emptied when compressed bytes are unpacked.
[[nodiscard]] Expected<profile::Profile> read_pprof(ByteView bytes, const PprofLimits& limits = {},
                                                    std::vector<std::byte>* owned = nullptr);
// "-" is standard input.
[[nodiscard]] Expected<profile::Profile> read_pprof_file(const std::string& path, const PprofLimits& limits = {});

// A whole file, or standard input.
[[nodiscard]] Expected<std::vector<std::byte>> read_bytes(const std::string& path, std::uint64_t max_bytes);

}  // namespace windlass::exporter
