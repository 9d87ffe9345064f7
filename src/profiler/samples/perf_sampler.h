// Samples a user's own processes by plain perf events, for where BPF programs are refused: the events that
// need no program, for each thread and CPU, inherited by what the process starts. Every sample is a raw event - user
// registers and a copy of the stack - that the agent unwinds. No kernel frames, at most 64 KiB of a stack, and the cost
// of the copy. CPU time and page faults in the kernel are not seen. Events that may follow each other at once are
// sampled by a period that the kernel adapts: a sample stands for as many.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/kernel/event_specs.h"
#include "profiler/kernel/kernel_side.h"
#include "profiler/kernel/perf_ring.h"
#include "profiler/kernel/sample_source.h"
#include "profiler/processes/process_events.h"
#include "profiler/samples/perf_sample.h"
#include "profiler/samples/perf_waits.h"

namespace windlass::profiler {

struct PerfSamplerOptions {
  unsigned frequency = 99;                     // samples a second of CPU time: of the event "cpu"
  std::vector<EventSpec> events{EventSpec{}};  // a sample has the number of its event; at least one
  bool timeline = false;                       // the times of waits are told
  std::uint32_t held = 0;                      // this process is sampled from its next exec on; 0: none
};

// Can perf events record it for a user who may not load BPF programs?
[[nodiscard]] bool is_plain_event(const EventSpec& spec);

class PerfSampler final : public SampleSource {
 public:
  // Process events come out of the same rings; they go here during poll().
  using ProcessSink = std::function<void(ProcessEvent&&)>;

  // From here on the targets are followed; samples are handed out after start(). EACCES and EPERM: the kernel refuses
  // users' perf events, or these processes are not the user's.
  static std::expected<std::unique_ptr<PerfSampler>, SystemError> open(const PerfSamplerOptions& options,
                                                                       const std::vector<std::uint32_t>& targets,
                                                                       ProcessSink sink);
  ~PerfSampler() override;
  PerfSampler(const PerfSampler&) = delete;
  PerfSampler& operator=(const PerfSampler&) = delete;

  std::expected<std::uint32_t, SystemError> publish(std::uint32_t, std::span<const wl_mapping>, std::uint64_t,
                                                    const wl_interpreter*, const ThreadPlaces&) override {
    return 0;
  }
  void forget(std::uint32_t) override {}
  std::expected<void, SystemError> start() override;
  void stop() override;
  int poll(std::chrono::milliseconds timeout, const Handler& handler) override;
  [[nodiscard]] int event_fd() const override { return epoll_; }
  void for_each_count(const CountHandler& handler, bool clear) override;
  void for_each_waiting(const WaitingHandler& handler) override;
  [[nodiscard]] KernelSideStats stats() const override { return stats_; }

  // Of each stack, as the locked memory this user may have allows.
  [[nodiscard]] std::uint32_t stack_bytes() const { return attrs_.front().sample_stack_user; }

 private:
  PerfSampler(const PerfSamplerOptions& options, ProcessSink sink);

  struct Cpu {
    int number = 0;
    int output = -1;  // the event whose ring all of this CPU's share
  };
  // 0 or errno; `ring` if it was the ring's memory, `event` which of the events was refused.
  struct Failure {
    int error = 0;
    bool ring = false;
    std::size_t event = 0;
  };
  Failure open_all(const std::vector<std::uint32_t>& targets, std::size_t ring_pages, std::uint32_t stack_bytes);
  Failure open_thread(std::uint32_t tid, std::size_t ring_pages);
  Failure open_event(std::uint32_t tid, Cpu& cpu, std::size_t number, std::size_t ring_pages);
  [[nodiscard]] perf_event_attr attributes(std::size_t number, std::uint32_t stack_bytes) const;
  [[nodiscard]] SystemError explain(const Failure& failure) const;
  void close_all();
  void on_record(std::span<const std::byte> record);
  void on_sample(std::span<const std::byte> record);
  void on_switch(std::span<const std::byte> record);
  void weigh(std::vector<std::uint64_t>& event, std::uint64_t weight);
  void keep_sample(std::vector<std::uint64_t>&& event);
  void count_lost();
  void on_process_event(ProcessEvent&& event);
  void hand_out(const Handler& handler);
  void hand_out_waits(std::uint64_t time, const Handler& handler);
  void learn_name(const ProcessEvent& event);
  void set_name(std::uint32_t tid, std::uint64_t time, const std::string& name);
  void name(wl_event_head& head);

  struct Name {
    std::string now;
    std::uint64_t since = 0;
    std::string before;
    [[nodiscard]] const std::string& at(std::uint64_t time) const {
      return time >= since || before.empty() ? now : before;
    }
  };
  PerfSamplerOptions options_;
  ProcessSink sink_;
  const PerfRegisters& registers_ = perf_registers(own_machine());
  std::vector<perf_event_attr> attrs_;                              // of each thread and CPU
  std::unordered_map<std::uint64_t, std::uint16_t> event_numbers_;  // by the kernel's id
  std::optional<PerfWaits> waits_;                                  // nothing: they are not recorded
  std::vector<std::pair<wl_stack_key, wl_count>> weights_;          // of samples that stand for more than one event
  std::uint64_t weighed_ = 0;                                       // so far: each has a key of its own
  bool started_ = false, stopped_ = false;
  int epoll_ = -1;
  std::vector<Cpu> cpus_;
  std::vector<int> fds_;
  std::vector<PerfRing> rings_;
  std::unordered_map<std::uint32_t, Name> names_;  // by thread id
  std::vector<ProcessEvent> namings_;              // of this poll, as are the samples
  std::vector<std::vector<std::uint64_t>> samples_;
  std::vector<std::uint64_t> event_;
  KernelSideStats stats_;
  std::uint64_t malformed_ = 0;
};

}  // namespace windlass::profiler
