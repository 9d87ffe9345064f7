#include "agent/recorder.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <unordered_set>

#include <fmt/format.h>

#include "agent/kernel_errors.h"
#include "agent/perf_sampler.h"
#include "agent/system_probe.h"

namespace windlass::agent {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kSweepInterval = 10 * kSecond;
constexpr std::uint64_t kLivenessInterval = kSecond / 5;
constexpr std::uint64_t kEvictInterval = 30 * kSecond;
constexpr std::uint64_t kRescanInterval = kSecond;  // of one process at most
constexpr std::size_t kMaxRescanEntries = 65536;
constexpr std::size_t kMaxCountedStacks = 200'000;  // then the kernel side starts counting anew
constexpr std::chrono::milliseconds kTablesBeforeStart = 3000ms;
// A checkpoint may cost this share of the time since the last; the first comes early, so that short recordings that are
// killed leave something.
constexpr double kFirstCheckpoint = 2, kLongestCheckpoint = 60, kCheckpointShare = 0.01;

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

// As execvp finds it; empty if it does not.
std::string find_command(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/bin:/usr/bin";
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const std::string candidate = fmt::format("{}/{}", rest.substr(0, colon), name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
  }
  return {};
}

struct ProcStatus {
  std::uint32_t tgid = 0;
  char state = 'X';
  unsigned threads = 0;
  // A zombie keeps its number; one with threads is only its first thread's end.
  [[nodiscard]] bool alive() const { return tgid != 0 && state != 'X' && (state != 'Z' || threads > 1); }
};

// /proc/PID/status; PID may be a thread's.
ProcStatus read_status(std::uint32_t pid) {
  ProcStatus status;
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string word; file >> word && status.threads == 0;) {
    if (word == "Tgid:") file >> status.tgid;
    if (word == "State:") file >> status.state;
    if (word == "Threads:") file >> status.threads;
  }
  return status;
}

std::optional<double> cpu_seconds_of(std::uint32_t tgid) {
  std::ifstream file(fmt::format("/proc/{}/stat", tgid));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  return parse_cpu_seconds(text, sysconf(_SC_CLK_TCK));
}

// The process to record, if it is there and may be looked at: without its mappings nothing of it could be unwound.
std::expected<std::uint32_t, SystemError> find_target(std::uint32_t pid, const SystemFacts& facts) {
  const ProcStatus status = read_status(pid);
  if (status.tgid == 0 && kill(static_cast<pid_t>(pid), 0) != 0 && errno == EPERM)
    return std::unexpected(
        SystemError{fmt::format("process {} belongs to another user and /proc hides it (hidepid). Way out: sudo, or "
                                "CAP_SYS_PTRACE",
                                pid),
                    EPERM, RefusalKind::kPrivilege});
  if (!status.alive()) return std::unexpected(system_error(fmt::format("there is no process {}", pid), ESRCH));
  std::string maps;
  errno = 0;
  if (!ProcessTable::read_proc_maps(status.tgid, maps) && (errno == EACCES || errno == EPERM))
    return std::unexpected(SystemError{
        fmt::format("what process {} has mapped may not be read: it is another user's, or protects itself. Way out: "
                    "sudo, or once: {}",
                    pid, setcap_command(facts)),
        errno, RefusalKind::kPrivilege});
  return status.tgid;
}

}  // namespace

Recorder::~Recorder() = default;

std::expected<std::unique_ptr<Recorder>, SystemError> Recorder::open(const RecorderOptions& options) {
  auto recorder = std::unique_ptr<Recorder>(new Recorder);
  recorder->options_ = options;
  const SystemFacts facts = read_system_facts(options.btf_path);
  if (auto refused = refuse_place(facts)) return std::unexpected(std::move(*refused));
  if (!recorder->filtered()) recorder->blind_spots_ = recording_limits(facts);
  if (auto found = recorder->find_targets(facts); !found) return std::unexpected(found.error());
  const auto kernel = recorder->open_source(facts);
  if (!kernel) return std::unexpected(kernel.error());

  recorder->registry_ = std::make_unique<ModuleRegistry>(*kernel);
  ModuleRegistry& registry = *recorder->registry_;
  recorder->table_ = std::make_unique<ProcessTable>(
      [&registry](std::uint32_t tgid, std::uint32_t parent, const MapRecord& map) {
        return registry.resolve(tgid, parent, map);
      },
      ProcessTable::read_proc_maps,
      [&registry](std::uint32_t tgid, std::uint32_t parent, const std::vector<process::ProcMap>& maps) {
        return registry.find_images(tgid, parent, maps);
      });
  recorder->unwinder_ = std::make_unique<RawUnwinder>(registry);
  return recorder;
}

std::expected<void, SystemError> Recorder::find_targets(const SystemFacts& facts) {
  for (std::uint32_t& tgid : options_.targets) {
    const auto target = find_target(tgid, facts);
    if (!target) return std::unexpected(target.error());
    tgid = *target;
    target_set_.insert(tgid);
  }
  if (options_.command.empty()) return {};
  // First of all: the child shall inherit nothing of what the profiler changes about itself.
  auto command = ChildCommand::start(options_.command);
  if (!command) return std::unexpected(command.error());
  command_.emplace(std::move(*command));
  target_set_.insert(static_cast<std::uint32_t>(command_->pid()));
  return {};
}

// The kernel side that is to be fed with tables; null where samples come from perf events.
std::expected<KernelSide*, SystemError> Recorder::open_source(const SystemFacts& facts) {
  KernelSideOptions kernel_options;
  if (facts.child_pid_namespace()) kernel_options.pid_namespace = facts.pid_namespace;
  kernel_options.frequency = options_.frequency;
  kernel_options.all_processes = !filtered();
  kernel_options.btf_path = options_.btf_path;
  kernel_options.targets.assign(target_set_.begin(), target_set_.end());
  auto kernel = KernelSide::open(kernel_options);
  if (!kernel && kernel.error().kind == RefusalKind::kPrivilege && filtered()) {
    if (auto opened = open_own_events(std::move(kernel.error())); !opened) return std::unexpected(opened.error());
    return nullptr;
  }
  if (!kernel) {
    SystemError error = std::move(kernel.error());
    if (error.kind == RefusalKind::kPrivilege && facts.perf_event_paranoid.value_or(3) <= 2)
      error.text += ". Processes of your own can be recorded as it is: record -- CMD, or -p PID";
    return std::unexpected(std::move(error));
  }
  KernelSide* side = kernel->get();
  kernel_ = std::move(*kernel);
  if (const auto opened = source_.open(); !opened) {
    const int error = static_cast<int>(opened.error().detail);
    return std::unexpected(opened.error().what == ProcessEventSource::kMappingRing
                               ? explain_perf_ring_error(error)
                               : explain_perf_error(error, options_.frequency));
  }
  return side;
}

std::expected<void, SystemError> Recorder::open_own_events(SystemError&& why) {
  auto sampler = PerfSampler::open(options_.frequency, {target_set_.begin(), target_set_.end()},
                                   [this](ProcessEvent&& event) { queue_.push(std::move(event)); });
  if (!sampler) {
    why.text += fmt::format(". Nor without BPF: {}", sampler.error().text);
    return std::unexpected(std::move(why));
  }
  limits_ = fmt::format("by perf events: user space only, up to {} KiB of each stack",
                        ((*sampler)->stack_bytes() + 1023) / 1024);
  refusal_ = std::move(why.text);
  kernel_ = std::move(*sampler);
  return {};
}

// ---- running --------------------------------------------------------------------------------------------------------

std::expected<void, SystemError> Recorder::run(int stop_descriptor, const Hooks& hooks) {
  scan_existing();
  round();
  registry_->wait_idle(kTablesBeforeStart);  // samples in what is not ready then go the long way
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  start_unix_ns_ = static_cast<std::uint64_t>(wall.tv_sec) * kSecond + static_cast<std::uint64_t>(wall.tv_nsec);
  cpu_before_ = cpu_seconds();
  if (auto started = kernel_->start(); !started) return started;
  start_ = Clock::now();
  ended_before_ = !options_.targets.empty() && !any_target_alive();
  if (command_) {
    if (auto released = command_->release(); !released) {
      kernel_->stop();
      return released;
    }
  }

  const auto seconds_since_start = [this] { return std::chrono::duration<double>(Clock::now() - start_).count(); };
  double next_progress = 0, next_checkpoint = kFirstCheckpoint, interval = kFirstCheckpoint;
  for (bool stopped = false; !stopped && !finished();) {
    wait_for_events(stop_descriptor, stopped);
    round();
    const double now = seconds_since_start();
    if (options_.duration > 0 && now >= options_.duration) break;
    if (now >= next_progress) {
      hooks.progress(progress());
      next_progress = now + 0.5;
    }
    if (hooks.checkpoint && now >= next_checkpoint) {
      hooks.checkpoint(profile());
      const double cost = seconds_since_start() - now;
      interval = std::max(std::min(interval * 2, kLongestCheckpoint), cost / kCheckpointShare);
      next_checkpoint = seconds_since_start() + interval;
    }
  }
  seconds_ = seconds_since_start();
  if (const auto cpu_now = cpu_seconds(); cpu_now && cpu_before_) cpu_used_ = *cpu_now - *cpu_before_;
  drain();
  hooks.progress(progress());
  return {};
}

void Recorder::scan_existing() {
  const std::uint64_t now = monotonic_ns();
  if (filtered()) {
    if (command_) registry_->preload(find_command(options_.command.front()));
    for (const std::uint32_t tgid : target_set_) table_->scan(tgid, now);
  } else {
    for (const std::uint32_t tgid : list_processes()) table_->scan(tgid, monotonic_ns());
  }
}

void Recorder::wait_for_events(int stop_descriptor, bool& stopped) {
  std::vector<pollfd> descriptors{{stop_descriptor, POLLIN, 0}, {kernel_->event_fd(), POLLIN, 0}};
  for (const int fd : source_.descriptors()) descriptors.push_back({fd, POLLIN, 0});
  // Events come in bursts (a program starting maps its libraries): one round for each burst is enough.
  constexpr timespec kIdle{0, 100'000'000}, kSlack{0, EventQueue::kSlackNs};
  std::this_thread::sleep_for(std::chrono::nanoseconds(EventQueue::kSlackNs));
  const timespec& timeout = queue_.empty() ? kIdle : kSlack;
  if (ppoll(descriptors.data(), descriptors.size(), &timeout, nullptr) > 0 && descriptors[0].revents != 0)
    stopped = true;
}

void Recorder::round() {
  now_ = monotonic_ns();
  source_.drain([this](ProcessEvent&& event) { queue_.push(std::move(event)); });
  kernel_->poll(0ms, [this](const wl_event_head& head, std::size_t size) {
    // A full queue is no reason to lose anything: what is here is worked off, in the order there is.
    if (queue_.full()) {
      queue_.take(
          now_, [this](const ProcessEvent& event) { on_process(event); },
          [this](const wl_event_head& queued, std::size_t queued_size) { on_kernel(queued, queued_size); });
    }
    queue_.push(head, size);
  });
  queue_.take(
      now_, [this](const ProcessEvent& event) { on_process(event); },
      [this](const wl_event_head& head, std::size_t size) { on_kernel(head, size); });
  housekeeping(now_);
  find_images();
  table_->take_dirty([this](Process& process) { publish(process); });
}

void Recorder::drain() {
  kernel_->stop();
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(2ms);
    round();
  }
  table_->take_dirty([](Process&) {});
  now_ = monotonic_ns();
  queue_.take(
      ~0ull, [this](const ProcessEvent& event) { on_process(event); },
      [this](const wl_event_head& head, std::size_t size) { on_kernel(head, size); });
}

bool Recorder::finished() {
  if (command_) return command_->poll_status().has_value();
  if (options_.targets.empty()) return false;
  if (now_ < last_liveness_ + kLivenessInterval) return false;
  last_liveness_ = now_;
  return !any_target_alive();
}

bool Recorder::any_target_alive() const {
  return std::any_of(options_.targets.begin(), options_.targets.end(),
                     [](std::uint32_t tgid) { return read_status(tgid).alive(); });
}

// ---- events ---------------------------------------------------------------------------------------------------------

void Recorder::on_process(const ProcessEvent& event) {
  if (event.kind == ProcessEventKind::kLost) {
    perf_lost_ += event.lost;
    rescan_all_due_ = true;
    return;
  }
  // Processes outside of this PID namespace have no number in it, and dead ones none any more (perf_event_pid() in
  // kernel/events/core.c).
  if (event.tgid == 0 || event.tgid == ~0u) return;
  if (event.kind == ProcessEventKind::kFork && filtered() && target_set_.contains(event.parent_tgid))
    target_set_.insert(event.tgid);
  if (is_target(event.tgid)) table_->apply(event);
}

void Recorder::on_kernel(const wl_event_head& head, std::size_t size) {
  switch (head.type) {
    case WL_EVENT_STACK: return on_stack(head, size);
    case WL_EVENT_RAW: return on_raw(head, size);
    default: break;
  }
  if (size < sizeof(wl_process_event)) {
    ++malformed_;
    return;
  }
  const auto& event = reinterpret_cast<const wl_process_event&>(head);
  switch (head.type) {
    case WL_EVENT_EXEC:
      if (is_target(head.tgid)) table_->set_epoch(head.tgid, event.epoch);
      break;
    case WL_EVENT_FORK: {
      const auto child = static_cast<std::uint32_t>(event.address);
      if (filtered()) target_set_.insert(child);
      table_->set_epoch(child, event.epoch);
      break;
    }
    case WL_EVENT_UNMAP:
      table_->unmap(head.tgid, head.time, event.address, event.length);
      table_->set_epoch(head.tgid, event.epoch);
      break;
    case WL_EVENT_EXIT:
      table_->exit(head.tgid, head.time);
      kernel_->forget(head.tgid);
      if (filtered()) target_set_.erase(head.tgid);
      break;
    default: ++malformed_; break;
  }
}

void Recorder::on_stack(const wl_event_head& head, std::size_t size) {
  const auto& event = reinterpret_cast<const wl_stack_event&>(head);
  if (size < sizeof event || (std::size_t{event.kernel_frames} + event.user_frames) * 8 > size - sizeof event) {
    ++malformed_;
    return;
  }
  const auto* frames = reinterpret_cast<const std::uint64_t*>(&event + 1);
  StackRecord stack;
  stack.tgid = head.tgid;
  stack.tid = head.tid;
  stack.comm = std::string_view(head.comm, strnlen(head.comm, sizeof head.comm));
  stack.end = event.end;
  stack.kernel = {frames, event.kernel_frames};
  stack.user = {frames + event.kernel_frames, event.user_frames};
  const Process* process = table_->find(head.tgid);
  aggregator_.add_counted({event.hash, head.tgid, head.tid}, stack, process != nullptr ? process->maps.get() : nullptr);
}

void Recorder::on_raw(const wl_event_head& head, std::size_t size) {
  const auto event = parse_raw_event(head, size);
  if (!event) {
    ++malformed_;
    return;
  }
  const auto maps = [&]() -> const MapSet* {
    const Process* process = table_->find(head.tgid);
    return process != nullptr ? process->maps.get() : nullptr;
  };
  const auto attempt = [&] {
    frames_.clear();
    return unwinder_->unwind(event->sample, maps(), frames_);
  };
  // A mapping no event told of (mremap, a lost record).
  const bool mapped = maps() != nullptr && maps()->find(event->sample.registers.pc().value()) != nullptr;
  if (!mapped) rescan(head.tgid, now_);
  std::uint8_t end = attempt();
  if (mapped && end == WL_END_NO_MAPPING) {
    rescan(head.tgid, now_);
    end = attempt();
  }
  ++raw_ends_[std::min<unsigned>(end, WL_END_COUNT - 1)];
  StackRecord stack;
  stack.tgid = head.tgid;
  stack.tid = head.tid;
  stack.comm = std::string_view(head.comm, strnlen(head.comm, sizeof head.comm));
  stack.end = end;
  stack.kernel = event->kernel;
  stack.user = frames_;
  aggregator_.add(stack, maps(), 1);
}

// ---- the kernel side's view -----------------------------------------------------------------------------------------

void Recorder::publish(Process& process) {
  if (process.exit_time != 0 || !is_target(process.tgid)) return;
  const auto& mappings = process.maps->mappings();
  std::vector<wl_mapping> published;
  published.reserve(mappings.size());
  for (const Mapping& mapping : mappings) {
    if (mapping.begin >> 63 != 0) continue;  // vsyscall
    published.push_back({mapping.begin, mapping.end, mapping.bias, registry_->kernel_id(mapping.module),
                         static_cast<std::uint32_t>(mapping.kind)});
  }
  if (!published.empty()) (void)kernel_->publish(process.tgid, published, process.epoch);
}

void Recorder::rescan(std::uint32_t tgid, std::uint64_t now) {
  if (!is_target(tgid)) return;
  if (last_rescan_.size() > kMaxRescanEntries) last_rescan_.clear();
  auto& last = last_rescan_[tgid];
  if (last != 0 && now < last + kRescanInterval) return;
  last = now;
  ++rescans_;
  table_->scan(tgid, now);
}

// Soon, since until then the code has no names and no rows; but reading /proc shall not take more than this share of
// the time where a process makes code all the time (a JIT under Wine).
void Recorder::find_images() {
  constexpr std::uint64_t kShare = 20;
  table_->for_each_images_due([this](std::uint32_t tgid) {
    const std::uint64_t begin = monotonic_ns();
    if (begin < next_image_scan_) return;
    table_->scan(tgid, begin);
    const std::uint64_t end = monotonic_ns();
    next_image_scan_ = end + (end - begin) * kShare;
    ++rescans_;
  });
}

void Recorder::rescan_all(std::uint64_t now) {
  last_rescan_all_ = now;
  rescan_all_due_ = false;
  if (filtered()) {
    for (const std::uint32_t tgid : std::vector<std::uint32_t>(target_set_.begin(), target_set_.end()))
      table_->scan(tgid, monotonic_ns());
  } else {
    for (const std::uint32_t tgid : list_processes()) table_->scan(tgid, monotonic_ns());
  }
  ++rescans_;
}

void Recorder::housekeeping(std::uint64_t now) {
  if (rescan_all_due_ && now > last_rescan_all_ + kRescanInterval) rescan_all(now);
  if (aggregator_.counted_stacks() > kMaxCountedStacks) {
    aggregator_.settle(
        [this](const auto& sink) {
          kernel_->for_each_count([&](const wl_stack_key& key, std::uint64_t count) { sink(key, count); }, true);
        },
        unknown_counts_);
  }
  if (now > last_sweep_ + kSweepInterval) {
    last_sweep_ = now;
    const auto lost = kernel_->stats().lost_process_events;
    rescan_all_due_ |= lost != seen_lost_process_events_;
    seen_lost_process_events_ = lost;
    for (const std::uint32_t tgid : table_->alive()) {  // whose exit event was lost
      if (kill(static_cast<pid_t>(tgid), 0) == 0 || errno != ESRCH) continue;
      table_->exit(tgid, now);
      kernel_->forget(tgid);
      target_set_.erase(tgid);
    }
  }
  if (now > last_evict_ + kEvictInterval) {
    last_evict_ = now;
    std::vector<std::uint32_t> in_use;
    for (const std::uint32_t tgid : table_->alive())
      for (const Mapping& mapping : table_->find(tgid)->maps->mappings()) in_use.push_back(mapping.module);
    registry_->evict(in_use, ModuleRegistry::kMaxModules);
  }
}

// ---- results --------------------------------------------------------------------------------------------------------

Aggregator::Counts Recorder::counts() {
  return [this](const std::function<void(const wl_stack_key&, std::uint64_t)>& sink) {
    kernel_->for_each_count([&](const wl_stack_key& key, std::uint64_t count) { sink(key, count); });
  };
}

RecordingProgress Recorder::progress() {
  RecordingProgress progress;
  progress.seconds = seconds_ > 0 ? seconds_ : std::chrono::duration<double>(Clock::now() - start_).count();
  const KernelSideStats stats = kernel_->stats();
  progress.raw = stats.raw_events;
  progress.lost = stats.lost;
  progress.samples = stats.counted + stats.stack_events + stats.raw_events;
  // Raw samples are in the kernel side's ends with what made it give up, never as complete.
  progress.complete = stats.ends[WL_END_COMPLETE] + stats.ends[WL_END_KERNEL_ONLY] + raw_ends_[WL_END_COMPLETE];
  progress.complete = std::min(progress.complete, progress.samples);
  return progress;
}

// Of the targets and the children they have waited for; nothing where that is not known: of the whole machine, and of
// processes that have ended unless they were the command.
std::optional<double> Recorder::cpu_seconds() const {
  if (command_ && command_->status()) {
    rusage used{};
    if (getrusage(RUSAGE_CHILDREN, &used) != 0) return std::nullopt;
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
  }
  if (command_) return cpu_seconds_of(static_cast<std::uint32_t>(command_->pid()));
  if (options_.targets.empty()) return std::nullopt;
  double sum = 0;
  for (const std::uint32_t tgid : options_.targets) {
    const auto one = cpu_seconds_of(tgid);
    if (!one) return std::nullopt;
    sum += *one;
  }
  return sum;
}

NoSamples Recorder::no_samples() const {
  const KernelSideStats stats = kernel_->stats();
  return {.seconds = seconds_,
          .frequency = std::max(options_.frequency, 1u),
          .ticks = stats.samples,
          .lost = stats.lost + unknown_counts_,
          .cpu_seconds = cpu_used_,
          .user_space_only = !limits_.empty(),
          .ended_before = ended_before_};
}

profile::Profile Recorder::profile() {
  std::uint64_t unknown = unknown_counts_;
  profile::Profile profile =
      aggregator_.build(counts(), unknown,
                        [this](std::uint32_t number, profile::Module& module) { registry_->describe(number, module); });
  const double seconds = seconds_ > 0 ? seconds_ : std::chrono::duration<double>(Clock::now() - start_).count();
  profile.period_ns = kSecond / std::max(options_.frequency, 1u);
  profile.start_unix_ns = start_unix_ns_;
  profile.duration_ns = static_cast<std::uint64_t>(seconds * 1e9);
  profile.lost = kernel_->stats().lost + unknown;
  std::string what = "the whole machine";
  if (command_) {
    what.clear();
    for (const std::string& argument : options_.command) what += (what.empty() ? "" : " ") + argument;
  } else if (!options_.targets.empty()) {
    what = "process";
    for (const std::uint32_t tgid : options_.targets) what += fmt::format(" {}", tgid);
  }
  profile.comments.push_back(fmt::format("windlass {}: {} at {} Hz", WINDLASS_VERSION, what, options_.frequency));
  if (!limits_.empty()) profile.comments.push_back(limits_);
  return profile;
}

}  // namespace windlass::agent
