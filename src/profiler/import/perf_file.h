// The container of perf.data: header, attributes, features, and where each record is. Of a file that was seeked
// (`perf record -o FILE`) or written as a stream (`-o -`). tools/perf/Documentation/perf.data-file-format.txt of Linux.
//
// Little-endian only. Compressed records (`-z`) are decompressed here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/import/perf_layout.h"
#include "profiler/import/profile_builder.h"
#include "windlass/bytes.h"
#include "windlass/error.h"

namespace windlass::importer {

// What is used of a perf_event_attr.
struct PerfAttr {
  std::uint32_t type = 0;
  // `period`: of each sample, unless kFrequency is set.
  std::uint64_t config = 0, period = 0, sample_type = 0, read_format = 0, flags = 0, branch_sample_type = 0,
                regs_user = 0;
  std::string name{};  // empty: the file does not say
  std::vector<std::uint64_t> ids{};

  static constexpr std::uint64_t kFrequency = 1 << 10, kSampleIdAll = 1 << 18;  // of `flags`
};

struct PerfRecord {
  std::uint64_t time = 0;  // 0: it has none
  ByteView bytes;          // with its header; the origin is where it is in the file, or in what was decompressed
};

struct PerfFile {
  std::vector<PerfAttr> attrs;
  std::map<std::uint64_t, std::uint32_t> attr_of_id;  // indexes of `attrs`
  std::vector<PerfRecord> records;                    // of the kernel and of mmap, comm and so on, by time
  std::map<std::string, std::string> build_ids;       // of files, by path; "[kernel.kallsyms]" is the kernel's
  std::string machine;                                // as uname(2) has it, "x86_64"; empty: not said
  std::string command, release, host;
  std::vector<std::byte> decompressed;  // what some records view
};

[[nodiscard]] inline bool is_perf_file(ByteView bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.starts_with(kPerfMagic) || text.starts_with(kPerfOtherOrder);
}
// `bytes` must outlive the result.
[[nodiscard]] Expected<PerfFile> read_perf_file(ByteView bytes, const Limits& limits);

// Which of `attrs` an event is of, by its id; the first one where there is only one or no id is known.
[[nodiscard]] std::uint32_t attr_of(const PerfFile& file, std::uint64_t id);

}  // namespace windlass::importer
