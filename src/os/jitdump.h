// perf's jitdump, "jit-PID.dump": what a runtime says of the code that it makes, record behind record, each with its
// time. Source: tools/perf/Documentation/jitdump-specification.txt of Linux, version 2.
//
// Little-endian alone, as every host that this runs on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "os/mapped_files.h"
#include "os/proc_maps.h"
#include "windlass/bytes.h"
#include "windlass/error.h"

namespace windlass::os {

// ---- as it stands in the file -------------------------------------------------------------------------------------

struct JitdumpHeader {
  static constexpr std::uint32_t kMagic = 0x4a695444;    // "JiTD"
  static constexpr std::uint32_t kSwapped = 0x4454694a;  // by a machine of the other byte order
  static constexpr std::uint64_t kProcessorsClock = 1;   // flag: its times are no CLOCK_MONOTONIC
  std::uint32_t magic = kMagic;
  std::uint32_t version = 1;
  std::uint32_t total_size = 40;
  std::uint32_t elf_machine = 0;
  std::uint32_t reserved = 0;
  std::uint32_t process = 0;
  std::uint64_t time = 0;
  std::uint64_t flags = 0;
  bool operator==(const JitdumpHeader&) const = default;
};
static_assert(sizeof(JitdumpHeader) == 40);

enum class JitdumpKind : std::uint32_t { kLoad = 0, kMove = 1, kDebugInfo = 2, kClose = 3, kUnwindingInfo = 4 };

struct JitdumpRecord {
  JitdumpKind kind = JitdumpKind::kClose;
  std::uint32_t size = 0;  // bytes, with this
  std::uint64_t time = 0;
};
static_assert(sizeof(JitdumpRecord) == 16);

// Behind it the name with its NUL, and the code.
struct JitdumpLoad {
  std::uint32_t process = 0, thread = 0;
  std::uint64_t vma = 0;      // as `address`, says the specification; perf takes the other
  std::uint64_t address = 0;  // of the code
  std::uint64_t size = 0;     // of the code
  std::uint64_t index = 0;    // tells functions apart
};
static_assert(sizeof(JitdumpLoad) == 40);

struct JitdumpMove {
  std::uint32_t process = 0, thread = 0;
  std::uint64_t vma = 0;
  std::uint64_t from = 0, to = 0;  // addresses of the code
  std::uint64_t size = 0;
  std::uint64_t index = 0;
};
static_assert(sizeof(JitdumpMove) == 48);

// Of the function whose code comes next. Behind it `size` bytes: .eh_frame and .eh_frame_hdr.
struct JitdumpUnwinding {
  std::uint64_t size = 0;
  std::uint64_t header_size = 0;  // of .eh_frame_hdr
  std::uint64_t mapped_size = 0;
};
static_assert(sizeof(JitdumpUnwinding) == 24);

// Also about the function whose code comes next. Behind it stand `count` entries, each followed by the name of a file
// with its NUL. The name "\xff" means the name of the entry before (tools/perf/util/jitdump.h).
struct JitdumpDebugInfo {
  std::uint64_t address = 0;  // of the code
  std::uint64_t count = 0;
};
static_assert(sizeof(JitdumpDebugInfo) == 16);

struct JitdumpDebugEntry {
  std::uint64_t address = 0;
  std::uint32_t line = 0;
  std::uint32_t discriminator = 0;
};
static_assert(sizeof(JitdumpDebugEntry) == 16);

// ---- reading ------------------------------------------------------------------------------------------------------

// Is it how perf learns of one: "jit-", digits, ".dump", a page of it mapped as code?
[[nodiscard]] bool shows_jitdump(const ProcMap& map);

// Where a function's unwinding data stand in the file; `size` 0: it has none.
struct JitdumpFrames {
  std::uint64_t offset = 0;
  std::uint32_t size = 0;
  std::uint32_t header_size = 0;  // at most `size`
};

// Where its lines stand: entries; `size` 0: it has none.
struct JitdumpLines {
  std::uint64_t offset = 0;
  std::uint32_t size = 0;
  std::uint32_t count = 0;
  std::uint64_t address = 0;  // of the code, from which they count
};

// What was said of a function before its code.
struct JitdumpDetails {
  JitdumpFrames frames;
  JitdumpLines lines;
};

class JitdumpVisitor {
 public:
  virtual ~JitdumpVisitor() = default;
  // The name is only valid during the call. The code's range does not wrap around; it may be empty.
  virtual void load(std::uint64_t time, const JitdumpLoad& load, std::string_view name,
                    const JitdumpDetails& details) = 0;
  // The same of the ranges.
  virtual void move(std::uint64_t time, const JitdumpMove& move) = 0;
};

// A jitdump while it is written. Runtimes may write their records, and the header, too, long after their times: V8
// keeps 2 MiB of them. Not thread-safe.
class JitdumpFile {
 public:
  static constexpr std::size_t kMaxName = 65535;                       // bytes; what is longer is malformed
  static constexpr std::uint32_t kMaxFrames = std::uint32_t{1} << 20;  // bytes of unwinding data; more are left out
  static constexpr std::uint32_t kMaxLines = std::uint32_t{1} << 20;   // bytes of lines; more are left out

  explicit JitdumpFile(GrowingFile file) : file_(std::move(file)) {}

  // Hands over the complete records that have come since the last call. A malformed record is left out, and the first
  // of these is the problem(). If a record's size is wrong, nothing behind it can ever be read. Bounded memory, linear
  // in the records.
  void read(JitdumpVisitor& to);

  [[nodiscard]] const std::optional<JitdumpHeader>& header() const { return header_; }  // empty: has not come yet
  // The latest time of all records so far.
  [[nodiscard]] std::uint64_t latest() const { return latest_; }
  // There will be no further records: it says so, it has been begun anew by another program, or it cannot be read.
  [[nodiscard]] bool ended() const { return ended_; }
  // What is wrong, and at which offset: the first of all. kTruncated is never one, since the rest may come.
  [[nodiscard]] const std::optional<Error>& problem() const { return problem_; }

  // Bytes of the file; false where there are not so many.
  [[nodiscard]] bool copy(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  [[nodiscard]] bool read_header(std::uint64_t size);
  void take(const JitdumpRecord& record, JitdumpVisitor& to);
  void load(const JitdumpRecord& record, JitdumpVisitor& to);
  void move(const JitdumpRecord& record, JitdumpVisitor& to);
  void unwinding(const JitdumpRecord& record);
  void debug_info(const JitdumpRecord& record);
  [[nodiscard]] ByteView window(std::uint64_t offset, std::size_t size);
  void report(ErrorCode code, const char* what, std::uint64_t where, std::uint64_t detail = 0);

  GrowingFile file_;
  std::optional<JitdumpHeader> header_;
  std::uint64_t reached_ = 0;  // where the next record begins
  std::uint64_t latest_ = 0;
  bool ended_ = false;
  std::optional<Error> problem_;
  JitdumpDetails details_;  // of the next code
  std::vector<std::byte> window_;
  std::uint64_t window_offset_ = 0;
};

}  // namespace windlass::os
