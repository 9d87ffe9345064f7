#include "peer_side.h"

#include <linux/perf_event.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstdio>

#include "peer_rows.skel.h"
#include "profiler/doctor/kernel_errors.h"

namespace windlass::bench {
namespace {

peer_row row_of(std::uint64_t address, const wl_rule& rule) {
  peer_row row{};
  row.pc = address;
  if (rule.ra_kind == WL_REG_UNDEFINED || rule.cfa_kind == WL_CFA_NONE) return row;  // PEER_CFA_END
  row.cfa = PEER_CFA_OTHER;
  if (rule.cfa_kind == WL_CFA_REG && rule.cfa_reg == 7) row.cfa = PEER_CFA_RSP;
  if (rule.cfa_kind == WL_CFA_REG && rule.cfa_reg == 6) row.cfa = PEER_CFA_RBP;
  if (rule.cfa_kind == WL_CFA_PLT) row.cfa = PEER_CFA_PLT;
  row.cfa_offset = rule.cfa_offset;
  row.fp = rule.fp_kind == WL_REG_CFA ? PEER_FP_CFA : PEER_FP_SAME;
  row.fp_offset = rule.fp_offset;
  return row;
}

}  // namespace

PeerSide::~PeerSide() {
  stop();
  if (skeleton_ != nullptr) peer_rows_bpf__destroy(skeleton_);
}

void PeerSide::add_table(std::uint32_t module, const table::UnwindTable& table) {
  peer_module range{static_cast<std::uint32_t>(rows_.size()), 0};
  const auto directory = table.directory();
  for (std::size_t i = 0; i < directory.size(); ++i) {
    if (directory[i] == 0) continue;
    const std::uint64_t base = (table.first_page() + i) << WL_PAGE_SHIFT;
    const auto* page = reinterpret_cast<const std::uint16_t*>(table.page(directory[i]));
    unsigned row = 0;
    for (unsigned block = 0; block < WL_BLOCKS; ++block) {
      for (; row <= page[block]; ++row) {
        const std::uint64_t address = base + (block << WL_BLOCK_SHIFT) + (page[WL_BLOCKS + row] >> 8);
        rows_.push_back(row_of(address, table.find(address)));
      }
    }
  }
  range.count = static_cast<std::uint32_t>(rows_.size()) - range.first;
  modules_[module] = range;
}

bool PeerSide::load(std::uint32_t tgid, std::span<const wl_mapping> mappings) {
  skeleton_ = peer_rows_bpf__open();
  if (skeleton_ == nullptr) return false;
  skeleton_->rodata->peer_tgid = tgid;
  skeleton_->rodata->peer_mapping_count = static_cast<std::uint32_t>(mappings.size());
  bpf_map__set_max_entries(skeleton_->maps.rows, static_cast<std::uint32_t>(rows_.size()));
  if (peer_rows_bpf__load(skeleton_) != 0) return false;
  const int rows = bpf_map__fd(skeleton_->maps.rows);
  std::vector<std::uint32_t> keys;
  constexpr std::size_t kBatch = 65536;
  for (std::size_t at = 0; at < rows_.size(); at += kBatch) {
    std::uint32_t count = static_cast<std::uint32_t>(std::min(kBatch, rows_.size() - at));
    keys.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) keys[i] = static_cast<std::uint32_t>(at) + i;
    if (bpf_map_update_batch(rows, keys.data(), rows_.data() + at, &count, nullptr) != 0) return false;
  }
  for (const auto& [id, range] : modules_) {
    if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.peer_modules), &id, &range, BPF_ANY) != 0) return false;
  }
  for (std::uint32_t i = 0; i < mappings.size() && i < PEER_MAX_MAPPINGS; ++i) {
    const wl_mapping& from = mappings[i];
    const peer_mapping to{from.begin, from.end, from.bias, from.module, 0};
    if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.mappings), &i, &to, BPF_ANY) != 0) return false;
  }
  return true;
}

bool PeerSide::start(unsigned frequency) {
  const auto refused = [=](int error) { return profiler::explain_perf_error(error, frequency); };
  return clocks_.start(skeleton_->progs.peer_sample, profiler::cpu_clock(frequency), 0, refused).has_value();
}

peer_stats PeerSide::stats() const {
  const auto cpus = static_cast<std::size_t>(libbpf_num_possible_cpus());
  std::vector<peer_stats> all(cpus);
  const std::uint32_t zero = 0;
  peer_stats sum{};
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.peer_totals), &zero, all.data()) != 0) return sum;
  for (const peer_stats& one : all) {
    sum.samples += one.samples;
    sum.frames += one.frames;
    sum.complete += one.complete;
  }
  return sum;
}

std::uint64_t PeerSide::run_time_ns() const {
  bpf_prog_info info{};
  std::uint32_t size = sizeof info;
  bpf_obj_get_info_by_fd(bpf_program__fd(skeleton_->progs.peer_sample), &info, &size);
  return info.run_time_ns;
}

}  // namespace windlass::bench
