// Unwinds the samples of `perf record --call-graph dwarf`: the library's StackWalker, over the sample's registers and
// its copy of the stack, with the rows of the files that were mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/import/perf_code.h"
#include "profiler/import/perf_sample_record.h"
#include "walk/code_memo.h"
#include "windlass/walk.h"

namespace windlass::importer {

struct PerfStack {
  std::vector<CodeAddress> frames;  // innermost first
  std::uint8_t end = 0;             // a wl_end
  std::uint8_t certainty = 0;       // a wl_certainty
};

class PerfUnwinder {
 public:
  static constexpr std::size_t kMostFrames = 8192;
  static constexpr std::size_t kMostSpaces = 256;  // processes whose modules are kept; then all are made anew

  // Both must outlive it.
  PerfUnwinder(PerfCode& code, const PerfProcesses& processes);
  ~PerfUnwinder();

  // The sample has registers.
  [[nodiscard]] PerfStack unwind(const PerfSampleRecord& sample);
  // Since the last call: mappings that were made modules of a process, which a recording can ask for with few bytes.
  [[nodiscard]] std::uint64_t take_work() { return std::exchange(work_, 0); }
  // Does the code at a stack's last frame prove that it has no caller?
  [[nodiscard]] bool proves_end(std::uint32_t pid, CodeAddress last);

 private:
  struct Space;
  Space& space_of(std::uint32_t pid, Architecture architecture);

  PerfCode& code_;
  const PerfProcesses& processes_;
  walk::CodeMemo memo_;
  std::uint64_t work_ = 0;
  std::unordered_map<std::uint32_t, std::unique_ptr<Space>> spaces_;  // by pid
};

}  // namespace windlass::importer
