#include "profiler/samples/perf_sampler.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <unordered_set>

#include "base/monotonic.h"
#include "os/proc_file.h"
#include "profiler/doctor/kernel_errors.h"
#include "profiler/doctor/online_cpus.h"
#include "profiler/kernel/descriptor_limit.h"
#include "windlass/bytes.h"

namespace windlass::profiler {
namespace {

constexpr std::size_t kMaxNames = 65536;
constexpr std::uint64_t kSampleId = 24;      // where a sample has it: behind header, thread and time
constexpr std::uint64_t kMostCounted = 999;  // samples a second of a thread, of an event whose period nobody chose

// A ring for some dozen stacks. perf_event_mlock_kb (516 by default) and RLIMIT_MEMLOCK bound what a user may have, so
// the largest that fits is taken; perf_event_attr.sample_stack_user must be below 64 KiB.
struct Size {
  std::size_t ring_pages;
  std::uint32_t stack_bytes;
};
constexpr Size kSizes[] = {{1024, 65528}, {512, 65528}, {256, 65528}, {128, 32768}, {32, 16384}, {8, 8192}};

std::string name_of(std::uint32_t tid) {
  const std::string text = os::read_proc_file(fmt::format("/proc/{}/comm", tid));
  return text.substr(0, text.find('\n'));
}

// The kernel switches a thread: there is no such event in user space.
bool is_of_switches(const perf_event_attr& attr) {
  return attr.type == PERF_TYPE_SOFTWARE &&
         (attr.config == PERF_COUNT_SW_CONTEXT_SWITCHES || attr.config == PERF_COUNT_SW_CPU_MIGRATIONS);
}

// Faults follow each other within a microsecond, and the copy of a stack takes ten.
bool is_adapted(const EventSpec& spec) {
  return spec.kind == EventKind::kCounter && spec.type == PERF_TYPE_SOFTWARE && !spec.period_is_chosen;
}

void request_no_process_events(perf_event_attr& attr) {
  attr.mmap = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = 0;
}

}  // namespace

bool is_plain_event(const EventSpec& spec) {
  return spec.kind == EventKind::kCpuClock || spec.kind == EventKind::kCounter ||
         (spec.kind == EventKind::kWait && !spec.wakers);
}

PerfSampler::PerfSampler(const PerfSamplerOptions& options, ProcessSink sink)
    : options_(options), sink_(std::move(sink)) {
  const auto wait = std::ranges::find(options_.events, EventKind::kWait, &EventSpec::kind);
  if (wait != options_.events.end())
    waits_.emplace(static_cast<std::uint16_t>(wait - options_.events.begin()), wait->shortest_wait);
}

std::expected<std::unique_ptr<PerfSampler>, SystemError> PerfSampler::open(const PerfSamplerOptions& options,
                                                                           const std::vector<std::uint32_t>& targets,
                                                                           ProcessSink sink) {
  auto sampler = std::unique_ptr<PerfSampler>(new PerfSampler(options, std::move(sink)));
  // Each event is opened for each thread and CPU: a server with hundreds of threads needs more than the 1,024 that
  // users usually have.
  raise_descriptor_limit(RLIM_INFINITY);
  Failure failure;
  for (const Size& size : kSizes) {
    failure = sampler->open_all(targets, size.ring_pages, size.stack_bytes);
    if (failure.error == 0) return sampler;
    sampler->close_all();
    if (!failure.ring) break;
  }
  return std::unexpected(sampler->explain(failure));
}

SystemError PerfSampler::explain(const Failure& failure) const {
  if (failure.ring) return explain_perf_ring_error(failure.error);
  const EventSpec& spec = options_.events[failure.event];
  const bool refused = failure.error == EACCES || failure.error == EPERM;
  if (refused && is_of_switches(attrs_[failure.event])) return explain_own_switch_error(spec.name, failure.error);
  if (!refused && spec.kind == EventKind::kCounter) return explain_event_error(spec.name, failure.error);
  return explain_own_perf_error(failure.error, options_.frequency);
}

PerfSampler::~PerfSampler() { close_all(); }

void PerfSampler::close_all() {
  rings_.clear();
  for (const int fd : fds_) close(fd);
  fds_.clear();
  event_numbers_.clear();
  cpus_.clear();
  if (epoll_ >= 0) close(epoll_);
  epoll_ = -1;
}

PerfSampler::Failure PerfSampler::open_all(const std::vector<std::uint32_t>& targets, std::size_t ring_pages,
                                           std::uint32_t stack_bytes) {
  attrs_.clear();
  for (std::size_t i = 0; i < options_.events.size(); ++i) attrs_.push_back(attributes(i, stack_bytes));
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return {errno};
  for (const int cpu : online_cpus()) cpus_.push_back({cpu});
  for (const std::uint32_t tgid : targets) {
    // Threads that start meanwhile inherit, unless their starter had no event yet: until none is new.
    std::unordered_set<std::uint32_t> known;
    for (bool any = true; any;) {
      any = false;
      for (const pid_t thread : os::list_ids(fmt::format("/proc/{}/task", tgid))) {
        const auto tid = static_cast<std::uint32_t>(thread);
        if (!known.insert(tid).second) continue;
        any = true;
        if (const Failure failure = open_thread(tid, ring_pages); failure.error != 0) return failure;
        names_[tid] = {name_of(tid), 0, {}};
      }
    }
  }
  if (fds_.empty()) return {ESRCH};
  for (std::size_t i = 0; i < attrs_.size(); ++i)
    if (std::ranges::none_of(event_numbers_, [&](const auto& known) { return known.second == i; }))
      return {.error = ENODEV, .event = i};
  return {};
}

PerfSampler::Failure PerfSampler::open_thread(std::uint32_t tid, std::size_t ring_pages) {
  for (Cpu& cpu : cpus_)
    for (std::size_t i = 0; i < attrs_.size(); ++i)
      if (const Failure failure = open_event(tid, cpu, i, ring_pages); failure.error != 0) return failure;
  return {};
}

PerfSampler::Failure PerfSampler::open_event(std::uint32_t tid, Cpu& cpu, std::size_t number, std::size_t ring_pages) {
  // A command that is held back still runs this program's code.
  perf_event_attr& attr = attrs_[number];
  attr.disabled = attr.enable_on_exec = tid == options_.held ? 1 : 0;
  const int fd = open_process_events(attr, static_cast<pid_t>(tid), cpu.number);
  // ENODEV: the CPU went offline, or, for all CPUs, there is no such counter. ESRCH: the thread went away.
  if (fd < 0 && (errno == ENODEV || errno == ESRCH)) return {};
  if (fd < 0) return {.error = errno, .event = number};
  fds_.push_back(fd);
  std::uint64_t id = 0;
  if (ioctl(fd, PERF_EVENT_IOC_ID, &id) != 0) return {.error = errno, .event = number};
  event_numbers_[id] = static_cast<std::uint16_t>(number);
  if (cpu.output >= 0)
    return {.error = ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, cpu.output) != 0 ? errno : 0, .event = number};
  PerfRing ring;
  if (const int error = ring.map(fd, ring_pages); error != 0) return {.error = error, .ring = true};
  rings_.push_back(std::move(ring));
  cpu.output = fd;
  epoll_event event{};
  event.events = EPOLLIN;
  return {.error = epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0 ? errno : 0};
}

perf_event_attr PerfSampler::attributes(std::size_t number, std::uint32_t stack_bytes) const {
  const EventSpec& spec = options_.events[number];
  const auto page = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE));
  perf_event_attr attr{};
  attr.type = PERF_TYPE_SOFTWARE;
  attr.sample_period = spec.period;
  switch (spec.kind) {
    case EventKind::kWait:
      attr.config = PERF_COUNT_SW_CONTEXT_SWITCHES;
      attr.context_switch = 1;
      break;
    case EventKind::kCounter:
      attr.type = spec.type;
      attr.config = spec.config;
      break;
    default:
      attr.config = PERF_COUNT_SW_CPU_CLOCK;
      attr.freq = 1;
      attr.sample_freq = options_.frequency;
  }
  attr.sample_type = PERF_SAMPLE_ID | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
  if (is_adapted(spec)) {
    attr.freq = 1;
    attr.sample_freq = kMostCounted;
    attr.sample_type |= PERF_SAMPLE_PERIOD;
  }
  attr.sample_regs_user = registers_.mask;
  attr.sample_stack_user = stack_bytes;
  attr.exclude_kernel = is_of_switches(attr) ? 0 : 1;
  attr.exclude_hv = 1;
  attr.inherit = 1;
  request_process_events(attr, std::max(page, stack_bytes * 2));
  if (number != 0) request_no_process_events(attr);  // they are told once
  return attr;
}

std::expected<void, SystemError> PerfSampler::start() {
  started_ = true;
  return {};
}

void PerfSampler::stop() {
  for (const int fd : fds_) ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);  // the inherited ones, too
  if (waits_) waits_->stop(monotonic_ns());
  stopped_ = true;
}

// A ring tells what it lost with the next record that it has room for. There may be none.
void PerfSampler::count_lost() {
  std::uint64_t lost = 0;
  for (const int fd : fds_) lost += lost_of(fd);
  stats_.lost = std::max(stats_.lost, lost);
}

int PerfSampler::poll(std::chrono::milliseconds timeout, const Handler& handler) {
  const std::uint64_t before = stats_.samples;
  if (timeout.count() > 0) {
    epoll_event event{};
    epoll_wait(epoll_, &event, 1, static_cast<int>(timeout.count()));
  }
  const std::uint64_t now = monotonic_ns();  // what has been before is in the rings
  for (PerfRing& ring : rings_) ring.drain([&](std::span<const std::byte> record) { on_record(record); }, malformed_);
  hand_out(handler);
  if (waits_) hand_out_waits(now, handler);
  if (stopped_) count_lost();
  return static_cast<int>(stats_.samples - before);
}

void PerfSampler::on_record(std::span<const std::byte> record) {
  perf_event_header header;
  std::memcpy(&header, record.data(), sizeof header);
  if (header.type == PERF_RECORD_SAMPLE)
    on_sample(record);
  else if (header.type == PERF_RECORD_SWITCH)
    on_switch(record);
  else if (auto event = parse_perf_record(record, true))
    on_process_event(std::move(*event));
  else if (event.error().code != ErrorCode::kNotFound)
    ++malformed_;
}

void PerfSampler::on_sample(std::span<const std::byte> record) {
  if (!started_) return;
  const auto id = ByteView(record.data(), record.size()).at<std::uint64_t>(kSampleId);
  const auto number = id ? event_numbers_.find(*id) : event_numbers_.end();
  std::uint64_t weight = 1;
  if (number == event_numbers_.end() ||
      !make_raw_event(record, registers_, event_, is_adapted(options_.events[number->second]) ? &weight : nullptr)) {
    ++malformed_;
    return;
  }
  auto& head = *reinterpret_cast<wl_event_head*>(event_.data());
  head.event = number->second;
  if (options_.events[head.event].kind == EventKind::kWait) {
    waits_->hold(std::move(event_));
    return;
  }
  if (weight != 1) weigh(event_, weight);
  keep_sample(std::move(event_));
}

// As of a wait, its count alone says how much the sample stands for.
void PerfSampler::weigh(std::vector<std::uint64_t>& event, std::uint64_t weight) {
  constexpr std::uint64_t kNoWait = std::uint64_t{1} << 63;  // waits have smaller hashes
  auto& head = *reinterpret_cast<wl_event_head*>(event.data());
  head.reason = WL_NO_WAIT;
  const std::uint64_t hash = kNoWait | ++weighed_;
  if (head.type == WL_EVENT_RAW)
    reinterpret_cast<wl_raw_event&>(head).hash = hash;
  else
    reinterpret_cast<wl_stack_event&>(head).hash = hash;
  weights_.push_back({{hash, head.tgid, head.tid}, {.count = weight, .value = 0, .told = 1}});
}

void PerfSampler::on_switch(std::span<const std::byte> record) {
  if (!waits_ || !started_) return;
  bool known = false;
  auto wait = waits_->on_switch(record, known);
  if (!known) ++malformed_;
  if (wait) keep_sample(std::move(*wait));
}

void PerfSampler::keep_sample(std::vector<std::uint64_t>&& event) {
  ++stats_.samples;
  if (reinterpret_cast<const wl_event_head*>(event.data())->type == WL_EVENT_RAW) {
    ++stats_.raw_events;
    stats_.raw_bytes += event.size() * 8;
  } else {
    ++stats_.stack_events;
  }
  samples_.push_back(std::move(event));
}

void PerfSampler::hand_out_waits(std::uint64_t time, const Handler& handler) {
  waits_->settle(time, [&](const PerfWaits::Ended& wait) {
    if (!options_.timeline) return;
    wl_time_event told{};
    told.head.type = WL_EVENT_TIME;
    told.head.event = wait.event;
    told.head.time = wait.since;
    told.head.tgid = wait.key.tgid;
    told.head.tid = wait.key.tid;
    told.hash = wait.key.hash;
    told.lasted = wait.lasted;
    handler(told.head, sizeof told);
  });
}

void PerfSampler::for_each_count(const CountHandler& handler, bool clear) {
  for (const auto& [key, count] : weights_) handler(key, count);
  if (clear) weights_.clear();
  if (waits_) waits_->for_each_count(handler, clear);
}

void PerfSampler::for_each_waiting(const WaitingHandler& handler) {
  if (waits_) waits_->for_each_waiting(handler);
}

// The rings are read one after the other: a fork may be in one, the exec after it in another and the samples in a
// third. So names are given in the order of time, once all are read.
void PerfSampler::hand_out(const Handler& handler) {
  std::stable_sort(namings_.begin(), namings_.end(),
                   [](const ProcessEvent& a, const ProcessEvent& b) { return a.time < b.time; });
  for (const ProcessEvent& event : namings_) learn_name(event);
  namings_.clear();
  for (std::vector<std::uint64_t>& event : samples_) {
    auto& head = *reinterpret_cast<wl_event_head*>(event.data());
    name(head);
    handler(head, event.size() * 8);
  }
  samples_.clear();
}

void PerfSampler::on_process_event(ProcessEvent&& event) {
  switch (event.kind) {
    case ProcessEventKind::kExec:
    case ProcessEventKind::kComm:
    case ProcessEventKind::kFork: namings_.push_back(event); break;
    case ProcessEventKind::kLost: stats_.lost += event.lost; break;
    case ProcessEventKind::kExit:
    case ProcessEventKind::kMap: break;
  }
  sink_(std::move(event));
}

void PerfSampler::learn_name(const ProcessEvent& event) {
  if (names_.size() > kMaxNames) names_.clear();
  if (event.kind != ProcessEventKind::kFork) {
    set_name(event.tid, event.time, event.comm);
  } else if (event.tgid != event.parent_tgid) {
    if (const auto parent = names_.find(event.parent_tgid); parent != names_.end())
      set_name(event.tgid, event.time, std::string(parent->second.at(event.time)));
  }
}

void PerfSampler::set_name(std::uint32_t tid, std::uint64_t time, const std::string& name) {
  Name& entry = names_[tid];
  entry = {name, time, entry.now};
}

// A thread has its process's name until it gives itself another.
void PerfSampler::name(wl_event_head& head) {
  auto found = names_.find(head.tid);
  if (found == names_.end()) found = names_.find(head.tgid);
  if (found == names_.end()) found = names_.emplace(head.tgid, Name{name_of(head.tgid), 0, {}}).first;
  const std::string& text = found->second.at(head.time);
  std::memcpy(head.comm, text.data(), std::min(text.size(), sizeof head.comm - 1));
}

}  // namespace windlass::profiler
