#include "cli/agent_metrics.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace windlass::cli {
namespace {

class MetricsText {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = fmt::format("windlass_agent_{}", name);
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name_, help, name_, type);
  }
  template <typename Number>
  void value(Number number) {
    fmt::format_to(std::back_inserter(text_), "{} {}\n", name_, number);
  }
  template <typename Number>
  void value(std::string_view label, std::string_view of, Number number) {
    fmt::format_to(std::back_inserter(text_), "{}{{{}=\"{}\"}} {}\n", name_, label, of, number);
  }
  template <typename Number>
  void single(std::string_view name, std::string_view type, std::string_view help, Number number) {
    family(name, type, help);
    value(number);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_, text_;
};

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::uint64_t file_bytes(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
}

double seconds_ago(std::uint64_t unix_ns) {
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return unix_ns == 0 ? 0 : now - static_cast<double>(unix_ns) * 1e-9;
}

void put_losses(MetricsText& text, const AgentCounters& counters, const StoreCounters& store, const OtlpNumbers* otlp) {
  text.family("lost_samples_total", "counter", "Samples that were lost.");
  text.value("reason", "ring_full", counters.lost_ring);
  text.value("reason", "wait_maps_full", counters.lost_waits);
  text.value("reason", "stack_event_lost", counters.lost_stacks);
  text.value("reason", "not_stored", store.dropped);
  if (otlp != nullptr) text.value("reason", "not_sent", otlp->dropped_samples);
  text.single("lost_process_events_total", "counter", "Starts and ends of processes that were not reported.",
              counters.lost_process_events);
  text.single("samples_without_thread_labels_total", "counter", "Samples whose labels of threads were lost.",
              counters.lost_labels);
}

void put_bounds(MetricsText& text, const AgentCounters& counters, const StoreCounters& store, const OtlpNumbers* otlp) {
  const auto each = [&](const auto& put) {
    for (const AgentCounters::Bound& bound : counters.bounds) put(bound.name, bound.used, bound.most);
    put("waiting_parts", store.waiting_parts, store.most_waiting_parts);
    if (store.most_waiting_intervals != 0)
      put("waiting_intervals", store.waiting_intervals, store.most_waiting_intervals);
    if (store.most_spool_bytes != 0) put("store_spool_bytes", store.spool_bytes, store.most_spool_bytes);
    if (otlp != nullptr) put("otlp_spool_bytes", otlp->spool_bytes, otlp->most_spool_bytes);
  };
  text.family("bound_used", "gauge", "How much of a bound of the agent is used.");
  each([&](std::string_view name, std::uint64_t used, std::uint64_t) { text.value("bound", name, used); });
  text.family("bound_limit", "gauge", "The bound. What does not fit counts as lost, or has no frames.");
  each([&](std::string_view name, std::uint64_t, std::uint64_t most) { text.value("bound", name, most); });
}

void put_store(MetricsText& text, const StoreCounters& store, const std::string& path) {
  text.single("stored_samples_total", "counter", "Samples that were written into the store.", store.samples);
  text.single("stored_intervals_total", "counter", "Intervals that were written.", store.intervals);
  text.single("store_refusals_total", "counter", "Tries to write that the store refused.", store.refusals);
  if (store.most_spool_bytes != 0) {
    text.single("stored_earlier_samples_total", "counter",
                "Of the written samples, those that an earlier agent had taken.", store.earlier_samples);
    text.single("store_waiting_intervals", "gauge", "Intervals on disk that wait for the store.",
                store.waiting_intervals);
    text.single("store_torn_intervals_total", "counter", "Intervals on disk that a crash has damaged.",
                store.torn_intervals);
    return;
  }
  text.family("store_bytes", "gauge", "Size of the store's files.");
  text.value("file", "database", file_bytes(path));
  text.value("file", "log", file_bytes(path + "-wal"));
  text.single("store_oldest_seconds", "gauge", "Age of the oldest interval in the store.",
              seconds_ago(store.oldest_ns));
  text.single("store_newest_seconds", "gauge", "Age of the end of the newest interval.", seconds_ago(store.newest_ns));
}

void put_otlp(MetricsText& text, const OtlpNumbers& otlp) {
  text.single("otlp_sent_batches_total", "counter", "Batches that the OTLP server has taken.", otlp.batches);
  text.single("otlp_sent_samples_total", "counter", "Samples of these batches.", otlp.samples);
  text.single("otlp_sent_earlier_samples_total", "counter", "Of these samples, those that an earlier agent had taken.",
              otlp.earlier_samples);
  text.single("otlp_waiting_batches", "gauge", "Batches on disk that wait for the OTLP server.", otlp.waiting_batches);
  text.single("otlp_dropped_batches_total", "counter", "Batches without room on disk, or that the OTLP server refused.",
              otlp.dropped_batches);
  text.single("otlp_torn_batches_total", "counter", "Batches on disk that a crash has damaged.", otlp.torn_batches);
  text.single("otlp_retries_total", "counter", "Tries to send after which the batch waits.", otlp.retries);
  text.single("otlp_failures_in_a_row", "gauge", "How many of these since the OTLP server took a batch.",
              otlp.failures);
  text.single("otlp_unanswered_requests_total", "counter",
              "Requests whose answer did not come: the OTLP server may have the batch twice.", otlp.unsure);
  text.single("otlp_rejected_profiles_total", "counter",
              "Profiles that the OTLP server rejected of batches that it took.", otlp.rejected_profiles);
  text.single("otlp_warnings_total", "counter", "Remarks of the OTLP server on batches that it took.", otlp.warnings);
}

}  // namespace

std::string AgentMetrics::text() const {
  const std::scoped_lock lock(mutex_);
  MetricsText text;
  text.family("info", "gauge", "The version of windlass.");
  text.value("version", WINDLASS_VERSION, 1);
  text.single("recordings_total", "counter", "Recordings that have begun: the first, and one for each SIGHUP.",
              counters_.recordings);
  text.single("samples_total", "counter", "Samples that were taken.", counters_.samples);
  text.single("left_out_samples_total", "counter", "Of these, samples that others stand for, as the rate was lowered.",
              counters_.left_out);
  text.single("lowered_rate_seconds_total", "counter", "Time with a lowered rate, as the agent was behind.",
              counters_.lowered_seconds);
  text.single("truncated_samples_total", "counter", "Samples whose stacks are not whole.", counters_.truncated);
  const OtlpNumbers* otlp = otlp_ ? &*otlp_ : nullptr;
  put_losses(text, counters_, store_, otlp);
  put_bounds(text, counters_, store_, otlp);
  if (!path_.empty()) put_store(text, store_, path_);
  if (otlp != nullptr) put_otlp(text, *otlp);
  text.single("resident_bytes", "gauge", "Memory of the agent, with the tables that the kernel shares.",
              resident_bytes());
  text.single("cpu_seconds_total", "counter", "CPU time of the agent.", cpu_seconds());
  return text.take();
}

}  // namespace windlass::cli
