#include "profiler/kernel/kernel_side.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <ranges>

#include "base/monotonic.h"
#include "lookup/table/arena.h"
#include "os/descriptor.h"
#include "profiler/doctor/kernel_errors.h"
#include "profiler/doctor/online_cpus.h"
#include "profiler/doctor/system_trials.h"
#include "profiler/kernel/allocation_children.h"
#include "profiler/kernel/allocation_links.h"
#include "profiler/kernel/bpf_maps.h"
#include "profiler/kernel/bpf_object.h"
#include "profiler/kernel/descriptor_limit.h"
#include "profiler/kernel/event_filter.h"
#include "profiler/kernel/event_links.h"
#include "profiler/kernel/event_ring.h"
#include "profiler/kernel/kernel_modules.h"
#include "profiler/kernel/map_entries.h"
#include "profiler/kernel/mapping_sets.h"
#include "profiler/kernel/maps_ahead.h"
#include "profiler/kernel/perf_counters.h"
#include "profiler/kernel/program_aside.h"
#include "profiler/kernel/program_types.h"
#include "windlass.skel.h"
#include "windlass_bpf_state.h"
#include "windlass_condition_layout.h"
#include "windlass_interpreter_layout.h"

namespace windlass::profiler {
namespace {

constexpr std::uint32_t kMostThreads = 1U << 18;  // that wait at a time

perf_event_attr counter(const EventSpec& event) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = event.type;
  attr.config = event.config;
  attr.sample_period = event.period;
  return attr;
}

// Loading the other programs takes 25 ms. Where it takes longer than this, on an emulated machine, the sampler takes
// seconds. The agent could not unwind all samples of these.
constexpr std::chrono::milliseconds kFastLoad{100};

// The loaded programs and their maps; what each part of them is for has a class of its own.
class KernelSideImpl final : public KernelSide {
 public:
  explicit KernelSideImpl(const KernelSideOptions& options) : options_(options) { options_.choose_distinct_stacks(); }
  ~KernelSideImpl() override;
  std::expected<void, SystemError> load();

  std::expected<std::uint32_t, SystemError> add_module() override { return modules_->add_module(); }
  std::expected<void, SystemError> load_table(std::uint32_t id, const table::UnwindTable& table) override {
    return modules_->load_table(id, table);
  }
  void set_no_table(std::uint32_t id) override { modules_->set_no_table(id); }
  void remove_module(std::uint32_t id) override { modules_->remove_module(id); }
  const wl_module& module(std::uint32_t id) const override { return modules_->module(id); }

  std::expected<std::uint32_t, SystemError> publish(std::uint32_t tgid, std::span<const wl_mapping> mappings,
                                                    std::uint64_t epoch, const wl_interpreter* interpreter,
                                                    const ThreadPlaces& threads) override {
    ThreadPlaces places = threads;
    if (options_.thread_labels == ThreadLabelChoice::kNone) places.labels = {};
    places.labels.with_ids = options_.thread_labels == ThreadLabelChoice::kAll ? 1 : 0;
    return sets_->publish(tgid, {mappings, interpreter, places}, epoch, MappingSets::Clock::now());
  }
  void follow(std::uint32_t tgid) override { (void)add_target(tgid); }
  void forget(std::uint32_t tgid) override { sets_->forget(tgid, MappingSets::Clock::now()); }
  std::expected<void, SystemError> add_target(std::uint32_t tgid) override;
  void teach(const wl_learned_key& key, const wl_learned& lesson) override;

  std::expected<void, SystemError> start() override;
  void stop() override;
  void lower_rate(unsigned halvings) override { skeleton_->bss->wl_wanted_halvings = halvings; }
  int poll(std::chrono::milliseconds timeout, const Handler& handler) override;
  int event_fd() const override { return ring_.descriptor(); }
  void for_each_count(const CountHandler& handler, bool clear) override;
  void for_each_waiting(const WaitingHandler& handler) override;
  KernelSideStats stats() const override;
  table::Arena& arena() override { return *arena_; }

 private:
  std::expected<void, SystemError> load_programs();
  std::expected<void, SystemError> finish_sampler();
  [[nodiscard]] bool has_stand_in() const;
  [[nodiscard]] bool begins_early() const { return has_stand_in() && loads_fast_; }
  void choose_programs();
  void size_maps();
  std::expected<void, SystemError> open_arena();
  std::expected<void, SystemError> attach_tracepoints();
  std::expected<void, SystemError> find_resting();
  void for_each_wait(const std::function<void(const wl_wait&)>& handler) const;
  std::expected<void, SystemError> start_event(const EventSpec& event, std::uint64_t number);
  std::expected<void, SystemError> set_conditions(const EventSpec& event, std::uint64_t number);
  [[nodiscard]] const EventSpec* event_of(EventKind kind) const;
  [[nodiscard]] const EventSpec* wait_event() const;
  [[nodiscard]] wl_wakers walked_wakers() const;
  [[nodiscard]] std::uint64_t shortest_wait() const;

  KernelSideOptions options_;
  int cpus_ = 0;
  windlass_bpf* skeleton_ = nullptr;
  std::optional<ProgramAside> sampler_;  // while it is loaded
  bool loads_fast_ = false;
  bool in_turn_ = false;  // the sampler is loaded like the other programs
  MappedArray<wl_module> module_list_;
  MappedArray<wl_cpu_stats> cpu_stats_;
  os::Descriptor first_chunk_;
  std::unique_ptr<table::Arena> arena_;
  std::optional<KernelModules> modules_;
  std::optional<BpfProcessEntries> processes_;
  std::optional<MappingSets> sets_;
  EventRing ring_;
  PerfCounters counters_;
  std::vector<bpf_link*> tracepoint_links_;
  std::vector<bpf_link*> wait_links_;
  std::vector<bpf_link*> event_links_;  // of tracepoints and probes
  std::optional<AllocationChildren> allocation_children_;
  std::uint64_t stopped_ = 0;  // CLOCK_MONOTONIC, ns; 0: it goes on
};

KernelSideImpl::~KernelSideImpl() {
  stop();
  for (bpf_link* link : tracepoint_links_) bpf_link__destroy(link);
  sampler_.reset();                                            // which uses the skeleton
  if (skeleton_ != nullptr) windlass_bpf__destroy(skeleton_);  // the members' mappings keep their maps
}

const EventSpec* KernelSideImpl::event_of(EventKind kind) const {
  const auto found = std::ranges::find(options_.events, kind, &EventSpec::kind);
  return found != options_.events.end() ? &*found : nullptr;
}

// The samples of waits have its number. Which of them are of locks, too, is told when they have names.
const EventSpec* KernelSideImpl::wait_event() const {
  const EventSpec* all = event_of(EventKind::kWait);
  return all != nullptr ? all : event_of(EventKind::kLock);
}

wl_wakers KernelSideImpl::walked_wakers() const {
  const EventSpec *all = event_of(EventKind::kWait), *locks = event_of(EventKind::kLock);
  if (all != nullptr && all->wakers) return WL_WAKERS_OF_ALL;
  return locks != nullptr && locks->wakers ? WL_WAKERS_OF_LOCKS : WL_WAKERS_NONE;
}

std::uint64_t KernelSideImpl::shortest_wait() const {
  const EventSpec* wait = wait_event();
  return wait != nullptr ? wait->shortest_wait : 0;
}

// Probes and tracepoints take their time, so the clock and the waits come last.
std::expected<void, SystemError> KernelSideImpl::start() {
  if (!begins_early())
    if (auto finished = finish_sampler(); !finished) return finished;
  for (const bool last : {false, true}) {
    for (std::size_t number = 0; number < options_.events.size(); ++number) {
      const EventSpec& event = options_.events[number];
      if (last != (event.kind == EventKind::kCpuClock || &event == wait_event())) continue;
      if (auto started = start_event(event, number); !started) {
        stop();
        return started;
      }
    }
    if (last || !options_.allocations) continue;
    if (const auto attached = attach_allocations(*skeleton_, *options_.allocations, event_links_); !attached) {
      stop();
      return std::unexpected(explain_allocation_error(attached.error()));
    }
    allocation_children_.emplace(*skeleton_, *options_.allocations);
  }
  return {};
}

std::expected<void, SystemError> KernelSideImpl::start_event(const EventSpec& event, std::uint64_t number) {
  const auto& programs = skeleton_->progs;
  const auto refused = [&](int error) { return explain_event_error(event.name, error); };
  const auto attach = [&](const bpf_program& program) -> std::expected<void, SystemError> {
    const auto attached = attach_event(program, event, number, event_links_);
    return attached ? std::expected<void, SystemError>() : std::unexpected(refused(attached.error()));
  };
  switch (event.kind) {
    case EventKind::kCpuClock:
      return counters_.start(begins_early() ? programs.windlass_first_samples : programs.windlass_sample,
                             cpu_clock(options_.frequency), number,
                             [this](int error) { return explain_perf_error(error, options_.frequency); });
    case EventKind::kCounter: return counters_.start(programs.windlass_sample, counter(event), number, refused);
    case EventKind::kTracepoint:
      if (auto set = set_conditions(event, number); !set) return set;
      return attach(*programs.windlass_tracepoint);
    case EventKind::kKernelProbe:
    case EventKind::kProbe: return attach(*programs.windlass_probe);
    case EventKind::kWait:
    case EventKind::kLock: break;
  }
  if (&event != wait_event()) return {};
  for (bpf_program* program : {programs.windlass_waking, programs.windlass_switch}) {
    if (!bpf_program__autoload(program)) continue;
    bpf_link* link = bpf_program__attach(program);
    if (link == nullptr) return std::unexpected(refused(errno));
    wait_links_.push_back(link);
  }
  return find_resting();
}

std::expected<void, SystemError> KernelSideImpl::set_conditions(const EventSpec& event, std::uint64_t number) {
  if (event.filter.empty()) return {};
  const std::string format = tracepoint_format(event.category, event.point);
  if (format.empty()) return std::unexpected(explain_event_error(event.name, ENOENT));
  const auto compiled = compile_event_filter(event.filter, record_fields(format));
  if (!compiled)
    return std::unexpected(SystemError{fmt::format("the event {} cannot be recorded: {}", event.name, compiled.error()),
                                       EINVAL, RefusalKind::kUsage});
  const auto key = static_cast<__u32>(number);
  const int error = bpf_map_update_elem(bpf_map__fd(skeleton_->maps.conditions), &key, &*compiled, BPF_ANY);
  return error == 0 ? std::expected<void, SystemError>() : std::unexpected(explain_event_error(event.name, -error));
}

void KernelSideImpl::stop() {
  counters_.stop();
  for (bpf_link* link : wait_links_) bpf_link__destroy(link);
  wait_links_.clear();
  if (stopped_ == 0) stopped_ = monotonic_ns();
  allocation_children_.reset();
  // The last one first: frees are seen for longer than allocations.
  for (bpf_link* link : std::views::reverse(event_links_)) bpf_link__destroy(link);
  event_links_.clear();
}

// The threads that wait already. Their events come as those of others do.
std::expected<void, SystemError> KernelSideImpl::find_resting() {
  const auto refused = [](int error) {
    return std::unexpected(
        system_error(fmt::format("waiting threads cannot be listed: {}", std::strerror(error)), error));
  };
  bpf_link* pass = bpf_program__attach_iter(skeleton_->progs.windlass_resting, nullptr);
  if (pass == nullptr) return refused(errno);
  const int list = bpf_iter_create(bpf_link__fd(pass));
  const int error = errno;
  bpf_link__destroy(pass);
  if (list < 0) return refused(error);
  const os::Descriptor closed(list);
  char nothing[64];
  while (read(list, nothing, sizeof nothing) > 0) continue;
  return {};
}

void KernelSideImpl::size_maps() {
  auto& maps = skeleton_->maps;
  const auto cpus = static_cast<std::uint32_t>(cpus_);
  for (bpf_map* map : {maps.scratch, maps.raw_scratch, maps.memo, maps.trails, maps.stats})
    bpf_map__set_max_entries(map, cpus);
  const auto page = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE));
  const std::uint32_t ring = options_.ring_bytes != 0
                                 ? std::bit_ceil(std::min(options_.ring_bytes, 1U << 30))
                                 : ring_size(options_.frequency, static_cast<unsigned>(online_cpus().size()),
                                             options_.raw_bytes_per_second, options_.takes_ticks_alone());
  bpf_map__set_max_entries(maps.events, std::max({ring, 256 * 1024U, page}));
  bpf_map__set_max_entries(maps.counts, std::max(options_.distinct_stacks, 1024U));
  if (wait_event() != nullptr)
    bpf_map__set_max_entries(maps.waits, options_.all_processes ? kMostThreads : kMostThreads / 4);

  bpf_map__set_max_entries(maps.conditions, static_cast<std::uint32_t>(options_.events.size()));

  auto& data = *skeleton_->rodata;
  data.wl_max_user_frames = std::clamp(options_.user_frames, 1U, WL_MAX_USER_FRAMES);
  data.wl_max_kernel_frames = std::min(options_.kernel_frames, WL_MAX_KERNEL_FRAMES);
  data.wl_max_raw_stack = std::min(options_.raw_stack_bytes, WL_MAX_RAW_STACK);
  data.wl_raw_bytes_per_window = options_.raw_bytes_per_second * (1ULL << 27) / 1'000'000'000ULL;
  data.wl_work_per_window = static_cast<__u64>(std::clamp(options_.largest_share, 0.0, 1.0) * (1ULL << 27));
  data.wl_wakeup_bytes = bpf_map__max_entries(maps.events) / 8;
  data.wl_filter = options_.all_processes ? 0 : 1;
  const auto number_of = [this](const EventSpec* event) {
    return static_cast<__u16>(event != nullptr ? event - options_.events.data() : 0);
  };
  data.wl_clock_event = number_of(event_of(EventKind::kCpuClock));
  if (event_of(EventKind::kCpuClock) != nullptr) data.wl_most_halvings = most_halvings(options_.frequency);
  data.wl_wait_event = number_of(wait_event());
  data.wl_locks_only = event_of(EventKind::kWait) == nullptr ? 1 : 0;
  data.wl_walked_wakers = walked_wakers();
  data.wl_has_counters = event_of(EventKind::kCounter) != nullptr ? 1 : 0;
  data.wl_has_conditions =
      std::ranges::any_of(options_.events, [](const EventSpec& event) { return !event.filter.empty(); }) ? 1 : 0;
  data.wl_has_kernel_probes = event_of(EventKind::kKernelProbe) != nullptr ? 1 : 0;
  // Probes run where the process runs, the processor's counters interrupt everything (NMI), and a tracepoint may lie in
  // what the program of waits does. An interrupt may wake a thread while a counter of the kernel's is at work.
  const bool waits = wait_event() != nullptr, wakers = walked_wakers() != WL_WAKERS_NONE;
  const bool interrupts = std::ranges::any_of(options_.events, [&](const EventSpec& event) {
    return event.kind == EventKind::kProbe || event.kind == EventKind::kKernelProbe || options_.allocations ||
           (event.kind == EventKind::kTracepoint && waits) ||
           (event.kind == EventKind::kCounter && (wakers || event.type == PERF_TYPE_HARDWARE));
  });
  data.wl_can_be_interrupted = interrupts ? 1 : 0;
  data.wl_timeline = options_.timeline ? 1 : 0;
  data.wl_shortest_wait = shortest_wait();
  std::memcpy(&data.wl_filters, &options_.filters, sizeof options_.filters);
  data.wl_address_mask = options_.address_mask;
  data.wl_pidns_ino = options_.pid_namespace;
  prepare_allocations(*skeleton_, options_.allocations ? &*options_.allocations : nullptr, options_.allocation_period,
                      options_.allocation_event);
}

std::expected<void, SystemError> KernelSideImpl::open_arena() {
  const auto& maps = skeleton_->maps;
  auto arena = table::Arena::create(chunks_of(bpf_map__fd(maps.arena), first_chunk_.get()));
  if (!arena) return std::unexpected(explain_memory_error(arena.error()));
  arena_ = std::move(*arena);
  if (!module_list_.map(bpf_map__fd(maps.modules), WL_MAX_MODULES, PROT_READ | PROT_WRITE))
    return std::unexpected(explain_memory_error(
        Error{ErrorCode::kSystem, "mapping the module list", 0, static_cast<std::uint64_t>(errno)}));
  if (!cpu_stats_.map(bpf_map__fd(maps.stats), static_cast<std::size_t>(cpus_), PROT_READ))
    return std::unexpected(explain_memory_error(
        Error{ErrorCode::kSystem, "mapping the statistics", 0, static_cast<std::uint64_t>(errno)}));
  modules_.emplace(module_list_.items(), *arena_, skeleton_->bss->wl_go_way);
  processes_.emplace(bpf_map__fd(maps.processes), skeleton_->bss->wl_process_changes);
  sets_.emplace(*processes_, *modules_, *arena_);
  return {};
}

std::expected<void, SystemError> KernelSideImpl::attach_tracepoints() {
  const auto& programs = skeleton_->progs;
  for (bpf_program* program : {programs.windlass_fork, programs.windlass_exec, programs.windlass_exit,
                               programs.windlass_unmapped_area, programs.windlass_mapped}) {
    if (!bpf_program__autoload(program)) continue;
    bpf_link* link = bpf_program__attach(program);
    if (link == nullptr) {
      const int error = errno;
      return std::unexpected(explain_tracepoint_error(error, bpf_program__name(program), options_.btf_path));
    }
    tracepoint_links_.push_back(link);
  }
  return {};
}

std::expected<void, SystemError> KernelSideImpl::load() {
  const LibbpfLog log;       // what libbpf says goes into the error
  raise_descriptor_limit();  // maps, programs and events are descriptors, too
  cpus_ = libbpf_num_possible_cpus();
  if (cpus_ <= 0)
    return std::unexpected(SystemError{
        "the number of CPUs cannot be told (/sys/devices/system/cpu/possible). Way out: mount -t sysfs sysfs /sys",
        -cpus_, RefusalKind::kMissing});
  if (auto loaded = load_programs(); !loaded) return loaded;
  if (auto opened = open_arena(); !opened) return opened;
  if (!ring_.is_open())
    if (auto opened = ring_.open(bpf_map__fd(skeleton_->maps.events)); !opened) return opened;
  for (const std::uint32_t tgid : options_.targets) {
    if (auto added = add_target(tgid); !added) return added;
  }
  // Processes are followed from here on, before anybody looks at /proc: nothing falls between.
  return attach_tracepoints();
}

std::expected<void, SystemError> KernelSideImpl::load_programs() {
  const LibbpfLog log;
  bpf_object_open_opts open_options{};
  open_options.sz = sizeof open_options;
  ProgramTypes types(options_.btf_path);
  open_options.btf_custom_path = types.path();
  sampler_.emplace(options_.program_stats == nullptr && !in_turn_ ? "windlass_sample" : "");
  skeleton_ = windlass_bpf__open_opts(&open_options);  // which copies what it needs of the object
  forget_bpf_object();
  if (skeleton_ == nullptr) return std::unexpected(explain_load_error(errno, log.text(), options_.btf_path));
  size_maps();
  auto& maps = skeleton_->maps;
  if (has_stand_in()) sampler_->put_into(maps.sampler);
  // Where this cannot open the ring, load() says why.
  const auto open_ring = [this](int map) { (void)ring_.open(map); };
  MapsAhead ahead({maps.counts, maps.learned, maps.processes, maps.epochs, maps.targets}, maps.events, open_ring,
                  maps.arena);
  const auto kernel = KernelTypes::read();
  const KernelTypes* of_kernel = kernel ? &*kernel : nullptr;
  types.write(*bpf_object__btf(skeleton_->obj), of_kernel);
  // Without it, what is mapped over other code at an address of the program's choice is known when perf's event has
  // come.
  bpf_program__set_autoload(skeleton_->progs.windlass_mapped, try_hook(of_kernel) == 0);
  choose_programs();
  ProgramLogs program_logs;
  if (options_.program_stats != nullptr) program_logs.watch(skeleton_->obj);
  ahead.give();
  const auto begun = std::chrono::steady_clock::now();
  const int error = windlass_bpf__load(skeleton_);
  loads_fast_ = std::chrono::steady_clock::now() - begun < kFastLoad;
  sampler_->end_of_load();
  if (error != 0) return std::unexpected(explain_load_error(-error, log.text(), options_.btf_path));
  first_chunk_ = os::Descriptor(ahead.take_chunk());
  if (options_.program_stats != nullptr) *options_.program_stats = program_logs.read();
  return {};
}

// May windlass_first_samples stand in for the sampler while that is verified? Of a command that begins, nothing is
// known before: its first samples are the agent's. AArch64 has jumps to other programs since Linux 6.0 only.
bool KernelSideImpl::has_stand_in() const {
#ifdef __x86_64__
  return options_.held != 0 && options_.takes_ticks_alone() && options_.program_stats == nullptr && !in_turn_;
#else
  return false;
#endif
}

// What the verifier said aside is not kept. A second side loads the sampler in its turn, and says why it is refused.
std::expected<void, SystemError> KernelSideImpl::finish_sampler() {
  const int error = sampler_->finish();
  if (error == 0) return {};
  KernelSideImpl second(options_);
  second.in_turn_ = true;
  const auto again = second.load();
  return std::unexpected(again ? explain_load_error(error, {}, options_.btf_path) : again.error());
}

// Those that no event needs are not loaded: the verifier takes its time for each.
void KernelSideImpl::choose_programs() {
  const auto& programs = skeleton_->progs;
  const bool waits = wait_event() != nullptr;
  const bool samples = event_of(EventKind::kCpuClock) != nullptr || event_of(EventKind::kCounter) != nullptr;
  bpf_program__set_autoload(programs.windlass_sample, samples);
  bpf_program__set_autoload(programs.windlass_first_samples, has_stand_in());
  bpf_program__set_autoload(programs.windlass_switch, waits);
  bpf_program__set_autoload(programs.windlass_resting, waits);
  bpf_program__set_autoload(programs.windlass_waking, walked_wakers() != WL_WAKERS_NONE);
  bpf_program__set_autoload(programs.windlass_tracepoint, event_of(EventKind::kTracepoint) != nullptr);
  bpf_program__set_autoload(programs.windlass_probe,
                            event_of(EventKind::kProbe) != nullptr || event_of(EventKind::kKernelProbe) != nullptr);
}

std::expected<void, SystemError> KernelSideImpl::add_target(std::uint32_t tgid) {
  const std::uint8_t target = tgid == options_.held ? WL_TARGET_HELD : WL_TARGET_SAMPLED;
  const int error = bpf_map_update_elem(bpf_map__fd(skeleton_->maps.targets), &tgid, &target, BPF_ANY);
  if (error == 0) return {};
  return std::unexpected(
      SystemError{fmt::format("process {} cannot be chosen for sampling: {}. Way out: record the whole machine with -a",
                              tgid, std::strerror(-error)),
                  -error});
}

// A lesson that finds no room is given again when its code is met again.
void KernelSideImpl::teach(const wl_learned_key& key, const wl_learned& lesson) {
  wl_learned checked = lesson;
  checked.check = wl_learned_check(&lesson, key);
  (void)bpf_map_update_elem(bpf_map__fd(skeleton_->maps.learned), &key, &checked, BPF_ANY);
}

int KernelSideImpl::poll(std::chrono::milliseconds timeout, const Handler& handler) {
  const int count = !allocation_children_ ? ring_.poll(timeout, handler)
                                          : ring_.poll(timeout, [&](const wl_event_head& head, std::size_t size) {
                                              allocation_children_->take(head, size);
                                              handler(head, size);
                                            });
  if (allocation_children_) allocation_children_->look_again();
  sets_->housekeeping(MappingSets::Clock::now());
  return count;
}

void KernelSideImpl::for_each_count(const CountHandler& handler, bool clear) {
  const auto hand_out = [&](const wl_stack_key& key, const wl_count& count) {
    if (count.count != 0 || count.value != 0) handler(key, count);
  };
  (void)for_each_entry<wl_stack_key, wl_count>(bpf_map__fd(skeleton_->maps.counts), hand_out, clear);
}

void KernelSideImpl::for_each_waiting(const WaitingHandler& handler) {
  const std::uint64_t now = stopped_ != 0 ? stopped_ : monotonic_ns();
  for_each_wait([&](const wl_wait& wait) {
    const std::uint64_t lasted = wait.since < now ? now - wait.since : 0;
    handler({wait.key, wait.since, lasted >= shortest_wait() ? lasted : 0});
  });
}

// Those that go on.
void KernelSideImpl::for_each_wait(const std::function<void(const wl_wait&)>& handler) const {
  if (wait_event() == nullptr) return;
  const auto hand_out = [&](std::uint32_t, const wl_wait& wait) {
    if (wait.since != 0) handler(wait);
  };
  (void)for_each_entry<std::uint32_t, wl_wait>(bpf_map__fd(skeleton_->maps.waits), hand_out);
}

KernelSideStats KernelSideImpl::stats() const {
  KernelSideStats sum;
  for (const wl_cpu_stats& one : cpu_stats_.items()) {
    sum.samples += one.samples;
    sum.other_processes += one.idle;
    sum.counted += one.counted;
    sum.stack_events += one.stack_events;
    sum.raw_events += one.raw_events;
    sum.lost += one.lost;
    sum.left_out += one.left_out;
    sum.halvings = std::max(sum.halvings, static_cast<unsigned>(one.halvings));
    sum.raw_refused += one.raw_refused;
    sum.raw_bytes += one.raw_bytes;
    sum.user_frames += one.user_frames;
    sum.memo_hits += one.memo_hits;
    sum.followed_frames += one.followed_frames;
    sum.managed_stacks += one.managed_stacks;
    sum.learned_stacks += one.learned_stacks;
    sum.lost_process_events += one.lost_process_events;
    sum.waits += one.waits;
    sum.short_waits += one.short_waits;
    sum.lost_waits += one.lost_waits;
    sum.lost_times += one.lost_times;
    sum.unfollowed += one.unfollowed;
    for (unsigned end = 0; end < WL_END_COUNT; ++end) sum.ends[end] += one.ends[end];
  }
  const auto& programs = skeleton_->progs;
  for (const bpf_program* program :
       {programs.windlass_sample, programs.windlass_first_samples, programs.windlass_switch, programs.windlass_waking,
        programs.windlass_tracepoint, programs.windlass_probe, programs.windlass_allocation, programs.windlass_free}) {
    bpf_prog_info info{};
    std::uint32_t size = sizeof info;
    if (bpf_program__fd(program) >= 0 && bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) == 0)
      sum.run_time_ns += info.run_time_ns;
  }
  sum.sampler_refusal = begins_early() ? sampler_->refusal() : 0;
  return sum;
}

}  // namespace

bool KernelSideOptions::takes_ticks_alone() const {
  const auto is_tick = [](const EventSpec& event) { return event.kind == EventKind::kCpuClock; };
  return !allocations && std::ranges::all_of(events, is_tick);
}

void KernelSideOptions::choose_distinct_stacks() {
  if (distinct_stacks == 0)
    distinct_stacks = counted_stacks(frequency, static_cast<unsigned>(online_cpus().size()), takes_ticks_alone());
}

std::expected<std::unique_ptr<KernelSide>, SystemError> KernelSide::open(const KernelSideOptions& options) {
  auto side = std::make_unique<KernelSideImpl>(options);
  if (auto loaded = side->load(); !loaded) return std::unexpected(loaded.error());
  return side;
}

}  // namespace windlass::profiler
