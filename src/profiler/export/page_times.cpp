#include "profiler/export/page_times.h"

#include <algorithm>
#include <unordered_map>

#include "base/leb128.h"

namespace windlass::exporter {
namespace {

struct PageMoment {
  std::uint64_t begin = 0, lasted = 0;
  std::uint32_t thread = 0, entry = 0;
};

// Numbers threads in the order in which samples name them.
class PageThreads {
 public:
  PageThreads(const std::vector<std::uint32_t>& pids, std::vector<PageThread>& threads) : threads_(threads) {
    for (std::uint32_t i = 0; i < pids.size(); ++i) process_of_.emplace(pids[i], i);
  }
  std::uint32_t of(const profile::Sample& sample) {
    const std::uint64_t key = std::uint64_t{sample.pid} << 32 | sample.tid;
    const auto [known, is_new] = known_.try_emplace(key, static_cast<std::uint32_t>(threads_.size()));
    if (is_new) {
      threads_.push_back({process_of_.at(sample.pid), sample.tid, sample.comm});
      most_.push_back(0);
    }
    if (sample.times > most_[known->second]) {
      most_[known->second] = sample.times;
      threads_[known->second].name = sample.comm;
    }
    return known->second;
  }

 private:
  std::unordered_map<std::uint32_t, std::uint32_t> process_of_;
  std::unordered_map<std::uint64_t, std::uint32_t> known_;
  std::vector<std::uint32_t> most_;  // of each thread: times of the sample that names it
  std::vector<PageThread>& threads_;
};

}  // namespace

PageTimes page_times(const profile::Profile& profile, const std::vector<std::uint32_t>& entry_of,
                     const std::vector<std::uint32_t>& pids) {
  PageTimes times;
  if (!has_times(profile)) return times;
  PageThreads threads(pids, times.threads);
  std::vector<PageMoment> moments;
  moments.reserve(profile.times.size());
  for (std::size_t i = 0; i < profile.samples.size(); ++i) {
    const profile::Sample& sample = profile.samples[i];
    if (sample.times == 0) continue;
    const std::uint32_t thread = threads.of(sample);
    for (const profile::SampleTime& time : times_of(profile, sample))
      moments.push_back({time.begin, time.lasted, thread, entry_of[i]});
  }
  std::ranges::sort(moments, {}, [](const PageMoment& one) { return std::pair(one.thread, one.begin); });
  std::vector<std::uint64_t> counts(times.threads.size());
  for (const PageMoment& moment : moments) ++counts[moment.thread];
  for (const std::uint64_t count : counts) put_uleb128(times.bytes, count);
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const bool follows = i != 0 && moments[i - 1].thread == moments[i].thread;
    put_uleb128(times.bytes, moments[i].begin - (follows ? moments[i - 1].begin : 0));
  }
  for (const PageMoment& moment : moments) put_uleb128(times.bytes, moment.entry);
  for (const PageMoment& moment : moments) put_uleb128(times.bytes, moment.lasted);
  return times;
}

}  // namespace windlass::exporter
