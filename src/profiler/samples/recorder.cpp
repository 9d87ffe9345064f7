#include "profiler/samples/recorder.h"

#include <malloc.h>
#include <poll.h>

#include <algorithm>
#include <ctime>
#include <future>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "os/priority.h"
#include "os/readers.h"
#include "profiler/processes/live_process.h"
#include "profiler/processes/main_module.h"
#include "profiler/samples/checkpoint_schedule.h"
#include "profiler/samples/checkpoint_writer.h"

namespace windlass::profiler {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kLivenessInterval = kSecond / 5;
constexpr std::uint64_t kEvictInterval = 30 * kSecond;
constexpr double kProgressInterval = 0.5;  // seconds
constexpr double kFirstCode = 2;           // seconds
constexpr std::chrono::milliseconds kTablesBeforeStart = 3000ms;
constexpr std::chrono::milliseconds kStopInterval = 50ms;  // between two looks whether it is to stop before it begins
// Events are worked off for so long at a time. Then the rings are emptied, which are full in a quarter of a second.
constexpr std::uint64_t kMostWork = kSecond / 50;
constexpr std::uint64_t kMostSamples = kSecond / 500;  // of samples, before the next look at processes
constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr std::uint64_t kEarnInterval = kSecond / 10;
// On what is left when sampling has stopped: after the duration, and after the end of what was recorded. Who interrupts
// a recording is not to wait.
constexpr std::uint64_t kMostWorkAtEnd = kSecond, kMostWorkBehind = 5 * kSecond;

}  // namespace

// ---- running --------------------------------------------------------------------------------------------------------

std::expected<void, SystemError> Recorder::run(int stop_descriptor, const Hooks& hooks) {
  hurry_at(stop_descriptor, 0);
  if (auto begun = begin(stop_descriptor); !begun) return begun;
  hurry_at(stop_descriptor, options_.duration);
  hooks.progress(progress());
  double next_progress = kProgressInterval;
  CheckpointSchedule checkpoints;
  CheckpointWriter writer(hooks.checkpoint,
                          [begin = start_] { return std::chrono::duration<double>(Clock::now() - begin).count(); });
  bool stopped = false;
  while (!stopped && !finished(now_)) {
    wait_for_events(stop_descriptor, stopped);
    round(kMostWork, kMostSamples);
    const double now = seconds();
    if (options_.duration > 0 && now >= options_.duration) break;
    if (now >= next_progress) {
      hooks.progress(progress());
      next_progress = now + kProgressInterval;
      if (hooks.code && now >= kFirstCode) hooks.code(new_code());
    }
    if (hooks.second && now >= told_at_ + options_.tell_every) hooks.second(profile_since_told());
    if (const auto written = writer.take_written()) checkpoints.made(written->begin, written->end);
    if (writer.is_free() && checkpoints.due(now)) writer.start(now, profile());
  }
  if (hooks.ending) hooks.ending();
  writer.give_up();
  seconds_ = seconds();
  if (const auto cpu_now = cpu_seconds(); cpu_now && cpu_before_) cpu_used_ = *cpu_now - *cpu_before_;
  const bool in_time = options_.duration > 0 && seconds_ >= options_.duration;
  drain(in_time ? kMostWorkAtEnd : kMostWorkBehind, stop_descriptor);
  hurry_at(-1, 0);
  hooks.progress(progress());
  if (hooks.second) hooks.second(profile_since_told());
  return {};
}

// What runs already is known, and its tables are loaded, before the first sample is taken.
std::expected<void, SystemError> Recorder::begin(int stop_descriptor) {
  const auto stopped = [&] {
    pollfd stop{stop_descriptor, POLLIN, 0};
    return poll(&stop, 1, 0) > 0;
  };
  // What a command's process has mapped before exec is this program.
  if (command_)
    registry_->preload(find_command(options_.command.front()));
  else
    follower_->scan_all(stopped);
  round(kMostWork, kMostSamples);
  // Samples in what is not ready then go the long way.
  for (auto waited = 0ms; waited < kTablesBeforeStart && !stopped(); waited += kStopInterval)
    if (registry_->wait_idle(kStopInterval)) break;
  start_unix_ns_ = clock_ns(CLOCK_REALTIME);
  start_monotonic_ns_ = monotonic_ns();
  cpu_before_ = cpu_seconds();
  if (auto started = source_.samples->start(); !started) return started;
  start_ = Clock::now();
  find_writers();
  if (options_.duration > 0)
    budget_.end_at(monotonic_ns() + static_cast<std::uint64_t>(options_.duration * 1e9) + kMostWorkAtEnd);
  ended_before_ = !options_.targets.empty() && !any_target_alive();
  if (!options_.targets.empty()) program_ = program_of(options_.targets.front());
  if (!command_) return {};
  auto released = command_->release();
  if (!released) source_.samples->stop();
  program_ = program_of(static_cast<std::uint32_t>(command_->pid()));
  return released;
}

// Not before samples are taken: it would take a processor from those that make the kernel's maps and load the sampler.
void Recorder::find_writers() {
  intake_->set_writers(std::async(std::launch::async, [] {
                         os::restore_priority();  // samples can wait for it, the agent cannot wait for a processor
                         return os::RegisterWriters();
                       }).share());
}

// What does not answer is not waited for once the recording is to end: when told to, and after so many seconds.
void Recorder::hurry_at(int stop_descriptor, double seconds) const {
  if (os::readers() == nullptr) return;
  const std::uint64_t end = seconds > 0 ? monotonic_ns() + static_cast<std::uint64_t>(seconds * 1e9) : 0;
  os::readers()->end_at(stop_descriptor, end);
}

void Recorder::wait_for_events(int stop_descriptor, bool& stopped) {
  std::vector<pollfd> descriptors{{stop_descriptor, POLLIN, 0}, {source_.samples->event_fd(), POLLIN, 0}};
  for (const int fd : process_events_.descriptors()) descriptors.push_back({fd, POLLIN, 0});
  // Events come in bursts (a program starting maps its libraries): one round for each burst is enough. Samples wake
  // nobody, but what a runtime says of its code at the moment should be about that of the sample, and of a process
  // that has ended nothing can be asked any more.
  constexpr timespec kIdle{0, 100'000'000}, kAsking{0, 10'000'000}, kSlack{0, EventQueue::kSlackNs};
  std::this_thread::sleep_for(std::chrono::nanoseconds(EventQueue::kSlackNs));
  const bool asks = now_ < intake_->last_asked() + kSecond;
  const timespec& timeout = !queue_.empty() || intake_->has_postponed() ? kSlack : asks ? kAsking : kIdle;
  if (ppoll(descriptors.data(), descriptors.size(), &timeout, nullptr) > 0 && descriptors[0].revents != 0)
    stopped = true;
}

void Recorder::round(std::uint64_t most_work, std::uint64_t most_samples) {
  take_round(most_work);
  follower_->finish_round(now_);
  const std::uint64_t begun = monotonic_ns();
  (void)intake_->work_off([&] { return monotonic_ns() - begun < most_samples; });
}

void Recorder::take_all_samples() {
  (void)intake_->work_off([] { return true; });
}

void Recorder::take_round(std::uint64_t most_work) {
  now_ = monotonic_ns();
  process_events_.drain([this](ProcessEvent&& event) { queue_.push(std::move(event)); });
  earn_time();
  const auto push = [this](const wl_event_head& head, std::size_t size) {
    if (head.type == WL_EVENT_TIME) {
      if (times_ && size >= sizeof(wl_time_event)) {
        const auto& told = reinterpret_cast<const wl_time_event&>(head);
        for (std::uint64_t tick = 0; tick <= head.extra; ++tick)
          times_->add({told.hash, head.tgid, head.tid}, head.time - tick * tick_ns(), told.lasted);
      }
      return;
    }
    // A full queue is no reason to lose anything: what is here is worked off, in the order there is.
    if (queue_.full()) (void)take_events(now_, kAll);
    queue_.push(head, size);
  };
  source_.samples->poll(0ms, push);
  if (allocations_ != nullptr) allocations_->poll(events_, push);
  (void)take_events(now_, most_work);
  bound_memory(now_);
  intake_->settle();
  names_.poll(now_, [this](std::uint32_t tgid) { follower_->publish_anew(tgid); });
}

// Asking for the counts of samples takes system calls.
void Recorder::earn_time() {
  if (now_ < last_earned_ + kEarnInterval) return;
  const std::uint64_t passed = now_ - std::exchange(last_earned_, now_);
  const KernelSideStats stats = source_.samples->stats();
  lost_ = stats.lost + stats.lost_waits;
  const std::uint64_t recorded = stats.samples - std::min(stats.other_processes, stats.samples);
  const std::uint64_t came = recorded - std::min(std::exchange(recorded_, recorded), recorded);
  if (std::exchange(left_out_, stats.left_out) != stats.left_out) {
    lowered_ns_ += passed;
    lowered_ticks_ += came;
    ring_filled_ |= rate_.halvings() == 0;
  }
  source_.samples->lower_rate(rate_.observe(now_, backlog()));
  const std::uint64_t samples = stats.samples - std::min(stats.other_processes + stats.left_out, stats.samples);
  if (samples > earned_samples_) budget_.earn(samples - earned_samples_);
  earned_samples_ = std::max(samples, earned_samples_);
}

Backlog Recorder::backlog() const {
  const std::uint64_t oldest = std::min(queue_.oldest().value_or(now_), intake_->postponed().oldest().value_or(now_));
  const std::uint64_t waiting = queue_.size() + intake_->postponed().size();
  return {.age_ns = now_ - std::min(oldest, now_),
          .fill = std::max(queue_.fill(), intake_->postponed().fill()),
          .came = queue_.pushed(),
          .done = queue_.pushed() - waiting};
}

// False where there was no time for all.
bool Recorder::take_events(std::uint64_t now, std::uint64_t most_work) {
  const std::uint64_t begun = monotonic_ns();
  const bool all = queue_.take(
      now, [this](const ProcessEvent& event) { follower_->on_process(event); },
      [this](const wl_event_head& head, std::size_t size) { on_kernel(head, size); },
      [begun, most_work] { return monotonic_ns() - begun < most_work; });
  resting_.hand_out([this](const auto& handler) { source_.samples->for_each_waiting(handler); },
                    [this](const wl_event_head& head, std::size_t size) { (void)intake_->take(head, size); });
  return all;
}

bool Recorder::is_allocation(const wl_event_head& head) const {
  return allocations_ != nullptr && head.type == WL_EVENT_STACK && head.event == events_.allocated;
}

void Recorder::on_kernel(const wl_event_head& head, std::size_t size) {
  if (is_allocation(head)) {
    allocations_->take(head, size, events_, targets_, *intake_, aggregator_);
    return;
  }
  if (resting_.take(head, size) || intake_->postpone(head, size) || intake_->take(head, size)) return;
  if (head.type == WL_EVENT_EXIT) names_.end(head.tgid);
  if (head.type == WL_EVENT_EXEC) {
    labels_.on_exec(head.tgid);
    thread_labels_.on_exec(head.tgid);
  }
  if (head.type == WL_EVENT_FORK && size >= sizeof(wl_process_event))
    labels_.on_fork(head.tgid, static_cast<std::uint32_t>(reinterpret_cast<const wl_process_event&>(head).address));
  (void)follower_->on_kernel(head, size);
}

// The kernel side counts anew.
void Recorder::settle_counts() {
  take_all_samples();
  lost_when_settled_ = lost_;
  intake_->with_waiting([this] {
    if (times_) times_->settle(sample_of());
    aggregator_.settle([this](const auto& sink) { source_.samples->for_each_count(sink, true); }, unknown_counts_,
                       [this](const auto& sink) {
                         source_.samples->for_each_waiting([&](const auto& wait) { sink(wait.key); });
                         for (const wl_stack_key& key : intake_->in_use_keys()) sink(key);
                       });
  });
}

void Recorder::bound_memory(std::uint64_t now) {
  // Of lost events the kernel side may keep counts that nobody here knows.
  if (aggregator_.counted_stacks() > most_counted_ || lost_ > lost_when_settled_ + most_counted_ / 4) {
    settle_counts();
  }
  if (now <= last_evict_ + kEvictInterval) return;
  last_evict_ = now;
  bound_files();
  intake_->forget_gone();
  // What compiling tables and walking have read and allocated does not come back by itself.
  registry_->let_go_of_pages();
#ifdef __GLIBC__
  (void)malloc_trim(0);
#endif
}

// Tables are kept for what lives; stacks that wait and processes that have just ended need to know the file at least.
void Recorder::bound_files() {
  std::vector<std::uint32_t> in_use;
  std::unordered_set<std::uint32_t> needed;
  const auto need = [&](const MapSet& maps) {
    for (const Mapping& mapping : maps.mappings()) needed.insert(mapping.module);
  };
  table_->for_each([&](const Process& process) {
    need(*process.maps);
    if (process.exit_time != 0) return;
    for (const Mapping& mapping : process.maps->mappings()) in_use.push_back(mapping.module);
  });
  intake_->for_each_waiting(need);
  registry_->evict(in_use, ModuleRegistry::kMaxModules);
  registry_->forget([&](std::uint32_t number) { return needed.contains(number) || aggregator_.has_module(number); });
}

// Samples have stopped: takes what is still on its way. The kernel side needs to know nothing any more.
void Recorder::drain(std::uint64_t most_work, int stop_descriptor) {
  source_.samples->stop();
  budget_.end_at(monotonic_ns() + most_work, stop_descriptor);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(2ms);
    take_round(kMostWork);
  }
  now_ = monotonic_ns();
  (void)take_events(kAll, kAll);
  take_all_samples();
  intake_->settle_all();
  names_.resolve();
}

bool Recorder::finished(std::uint64_t now) {
  if (command_) return command_->poll_status().has_value();
  if (options_.targets.empty() || now < last_liveness_ + kLivenessInterval) return false;
  last_liveness_ = now;
  return !any_target_alive();
}

// Whose end is the recording's.
std::vector<std::uint32_t> Recorder::watched() const {
  return options_.children ? targets_.chosen() : options_.targets;
}

bool Recorder::any_target_alive() const {
  return std::ranges::any_of(watched(), [](std::uint32_t tgid) { return read_life_status(tgid).alive(); });
}

// ---- results --------------------------------------------------------------------------------------------------------

Aggregator::Counts Recorder::counts(bool with_waiting) {
  return [this, with_waiting](const auto& sink) {
    source_.samples->for_each_count(sink);
    if (!with_waiting) return;
    source_.samples->for_each_waiting([&](const SampleSource::Waiting& wait) {
      if (wait.lasted != 0) sink(wait.key, {.count = 1, .value = wait.lasted, .told = 0});
    });
  };
}

double Recorder::seconds() const {
  return seconds_ > 0 ? seconds_ : std::chrono::duration<double>(Clock::now() - start_).count();
}

RecordingProgress Recorder::progress() {
  RecordingProgress progress;
  progress.seconds = seconds();
  const KernelSideStats stats = source_.samples->stats();
  progress.raw = stats.raw_events;
  progress.lost = stats.lost;
  progress.samples = stats.counted + stats.stack_events + stats.raw_events;
  // Raw samples are in the kernel side's ends with what made it give up, never as complete.
  progress.complete = stats.ends[WL_END_COMPLETE] + stats.ends[WL_END_KERNEL_ONLY] + intake_->raw_ends(WL_END_COMPLETE);
  progress.complete = std::min(progress.complete, progress.samples);
  progress.has_cut = aggregator_.has_cut();
  return progress;
}

// Of the targets and the children they have waited for; nothing where that is not known: of the whole machine, and of
// processes that have ended unless they were the command.
std::optional<double> Recorder::cpu_seconds() const {
  if (command_ && command_->status()) return cpu_seconds_of_children();
  if (command_) return cpu_seconds_of(static_cast<std::uint32_t>(command_->pid()));
  // Children come and go, and take their times with them.
  if (options_.targets.empty() || options_.children) return std::nullopt;
  double sum = 0;
  for (const std::uint32_t tgid : options_.targets) {
    const auto one = cpu_seconds_of(tgid);
    if (!one) return std::nullopt;
    sum += *one;
  }
  return sum;
}

Recorder::Lowered Recorder::lowered() const {
  const KernelSideStats stats = source_.samples->stats();
  if (stats.left_out == 0) return {};
  const bool is_newer = stats.left_out != left_out_;  // than what earn_time() has seen
  const auto ticks = static_cast<double>(std::max(lowered_ticks_, stats.left_out));
  return {.seconds = static_cast<double>(lowered_ns_ + (is_newer ? kEarnInterval : 0)) * 1e-9,
          .average = static_cast<unsigned>(options_.frequency * (1 - static_cast<double>(stats.left_out) / ticks)),
          .frequency = options_.frequency >> stats.halvings,
          .ring_filled = ring_filled_ || (is_newer && rate_.halvings() == 0)};
}

std::string Recorder::lowered_text() const {
  const Lowered was = lowered();
  if (was.frequency == 0) return {};
  return fmt::format("the rate was lowered for {:.1f} s, to {} Hz on average and {} Hz at the least, as {}",
                     was.seconds, std::max(was.average, was.frequency), was.frequency,
                     was.ring_filled ? "the ring of samples was filling" : "samples waited for the agent");
}

NoSamples Recorder::no_samples() const {
  const KernelSideStats stats = source_.samples->stats();
  return {.seconds = seconds_,
          .frequency = std::max(options_.frequency, 1u),
          .filtered = !options_.filters.empty(),
          .timed = std::ranges::find(options_.events, EventKind::kCpuClock, &EventSpec::kind) != options_.events.end(),
          .ticks = stats.samples,
          .lost = stats.lost + unknown_counts_,
          .cpu_seconds = cpu_used_,
          .user_space_only = !source_.limits.empty(),
          .ended_before = ended_before_};
}

// Waits that go on have lasted until now. What a process counts itself, as allocations, has no times.
void Recorder::write_times(profile::Profile& profile, std::span<const std::uint32_t> numbers) {
  source_.samples->for_each_waiting([this](const SampleSource::Waiting& wait) {
    if (wait.lasted != 0) times_->add(wait.key, wait.since, wait.lasted);
  });
  for (std::size_t i = 0; i < options_.events.size(); ++i) profile.events[i].per_time = options_.events[i].period;
  times_->write(profile, numbers, start_monotonic_ns_, sample_of());
}

// Of events that are sampled once in so many, people want to know how many there were.
void Recorder::scale_counts(profile::Profile& profile) const {
  profile.events = events_.list;
  for (profile::Sample& sample : profile.samples)
    if (sample.event < options_.events.size()) sample.count *= options_.events[sample.event].period;
}

// All that has been told: what is still needed gets new numbers.
void Recorder::forget_told() {
  forgotten_at_ = told_at_;
  const auto names = names_.forget();
  intake_->forget_names();
  const auto labels = labels_.forget();
  thread_labels_.forget_sets();
  aggregator_.forget(told_, labels, names);
}

profile::Profile Recorder::profile_since_told() {
  intake_->judge();  // or the repeats of these stacks would count as lost
  const bool forgets = options_.forget_told > 0 && !times_ && allocations_ == nullptr &&
                       (seconds() >= forgotten_at_ + options_.forget_told || aggregator_.is_half_full());
  if (forgets) {
    // Of a stack whose event is still on its way, the repeats would count as lost.
    round(kAll, kAll);
    settle_counts();
    names_.resolve();
  } else {
    aggregator_.join_wakers();
  }
  // A wait gets the stack of its waker when it ends: what was told before would count for another stack.
  const bool tells_waiting = seconds_ > 0 || std::ranges::none_of(options_.events, &EventSpec::wakers);
  std::uint64_t unknown = unknown_counts_;
  profile::Profile profile = aggregator_.build_since(
      told_, forgets ? Aggregator::Counts([](const auto&) {}) : counts(tells_waiting), unknown,
      [this](std::uint32_t number, profile::Module& module) { registry_->describe(number, module); }, names_,
      labels_.sets());
  scale_counts(profile);
  const KernelSideStats stats = source_.samples->stats();
  const std::uint64_t lost = stats.lost + stats.lost_waits + unknown;
  profile.lost = lost - std::min(lost, std::exchange(told_lost_, lost));
  const double now = seconds();
  profile.duration_ns = static_cast<std::uint64_t>((now - std::exchange(told_at_, now)) * 1e9);
  if (forgets) forget_told();
  return profile;
}

profile::Profile Recorder::new_code() {
  profile::Profile code;
  std::unordered_map<std::uint32_t, std::uint32_t> modules;  // of the registry: places in `code`
  const auto take = [&](std::uint32_t number, std::uint64_t address) {
    const auto [place, is_new] = modules.try_emplace(number, static_cast<std::uint32_t>(code.modules.size()));
    if (is_new) registry_->describe(number, code.modules.emplace_back());
    code.locations.push_back({.module = place->second, .address = address});
  };
  code_told_ = aggregator_.for_code_since(code_told_, take);
  return code;
}

profile::Profile Recorder::profile() {
  std::uint64_t unknown = unknown_counts_;
  profile::Profile profile;
  if (allocations_ != nullptr) allocations_->book(aggregator_);
  intake_->with_waiting([&] {
    aggregator_.join_wakers();
    std::vector<std::uint32_t> numbers;
    profile = aggregator_.build(
        counts(), unknown,
        [this](std::uint32_t number, profile::Module& module) { registry_->describe(number, module); }, names_,
        labels_.sets(), times_ ? &numbers : nullptr);
    scale_counts(profile);
    if (times_) write_times(profile, numbers);
  });
  const KernelSideStats stats = source_.samples->stats();
  profile.start_unix_ns = start_unix_ns_;
  profile.duration_ns = static_cast<std::uint64_t>(seconds() * 1e9);
  profile.lost = stats.lost + stats.lost_waits + unknown;
  std::string what = "the whole machine";
  if (command_) {
    what.clear();
    for (const std::string& argument : options_.command) what += (what.empty() ? "" : " ") + argument;
  } else if (!options_.targets.empty()) {
    what = "process";
    for (const std::uint32_t tgid : options_.targets) what += fmt::format(" {}", tgid);
    if (options_.children) what += " and its children";
  }
  profile.comments.push_back(fmt::format("windlass {}: {} at {} Hz", WINDLASS_VERSION, what, options_.frequency));
  if (!source_.limits.empty()) profile.comments.push_back(source_.limits);
  if (std::string lowered = lowered_text(); !lowered.empty()) profile.comments.push_back(std::move(lowered));
  put_program_first(profile, program_);
  return profile;
}

}  // namespace windlass::profiler
