// Loads bench/peer_rows.bpf.c with the tables of one process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lookup/table/unwind_table.h"
#include "peer_rows.h"
#include "profiler/kernel/perf_counters.h"
#include "windlass_process_layout.h"

struct peer_rows_bpf;

namespace windlass::bench {

class PeerSide {
 public:
  PeerSide() = default;
  ~PeerSide();
  PeerSide(const PeerSide&) = delete;
  PeerSide& operator=(const PeerSide&) = delete;

  void add_table(std::uint32_t module, const table::UnwindTable& table);
  // False, with a message on stderr, if the kernel refuses.
  bool load(std::uint32_t tgid, std::span<const wl_mapping> mappings);
  bool start(unsigned frequency);
  void stop() { clocks_.stop(); }
  [[nodiscard]] peer_stats stats() const;
  [[nodiscard]] std::uint64_t run_time_ns() const;
  [[nodiscard]] std::uint64_t row_count() const { return rows_.size(); }

 private:
  std::vector<peer_row> rows_;
  std::map<std::uint32_t, peer_module> modules_;
  peer_rows_bpf* skeleton_ = nullptr;
  profiler::PerfCounters clocks_;
};

}  // namespace windlass::bench
