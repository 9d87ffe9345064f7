#include "agent/kernel_side.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <unordered_set>

#include "agent/descriptor_limit.h"
#include "agent/kernel_errors.h"
#include "agent/online_cpus.h"
#include "table/arena.h"
#include "table/unwind_table.h"
#include "windlass.skel.h"
#include "windlass_bpf_state.h"

namespace windlass::agent {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGrace = std::chrono::milliseconds(500);

constexpr std::uint32_t kHeadUnits = sizeof(wl_maps_head) >> WL_REF_SHIFT;

class KernelSideImpl final : public KernelSide {
 public:
  explicit KernelSideImpl(const KernelSideOptions& options) : options_(options) {}
  ~KernelSideImpl() override;
  std::expected<void, SystemError> load();

  std::expected<std::uint32_t, SystemError> add_module() override;
  std::expected<void, SystemError> load_table(std::uint32_t module, const table::UnwindTable& table) override;
  void set_no_table(std::uint32_t module) override;
  void remove_module(std::uint32_t module) override;
  const wl_module& module(std::uint32_t id) const override { return modules_[id]; }

  std::expected<std::uint32_t, SystemError> publish(std::uint32_t tgid, std::span<const wl_mapping> mappings,
                                                    std::uint64_t epoch) override;
  void forget(std::uint32_t tgid) override;
  std::expected<void, SystemError> add_target(std::uint32_t tgid) override;

  std::expected<void, SystemError> start() override;
  void stop() override;
  int poll(std::chrono::milliseconds timeout, const Handler& handler) override;
  int event_fd() const override { return ring_buffer__epoll_fd(ring_); }
  void for_each_count(const CountHandler& handler, bool clear) override;
  KernelSideStats stats() const override;
  std::uint64_t run_time_ns() const override;
  table::Arena& arena() override { return *arena_; }

 private:
  struct MappingSet {
    std::uint32_t maps = 0;  // as in wl_process
    std::uint32_t count = 0;
    std::vector<std::uint32_t> modules;
    bool retired = false;  // no longer the published one; a forked child may still use it
    bool hidden = false;   // its head says so: nobody can begin to use it
    Clock::time_point since;
    [[nodiscard]] std::size_t bytes() const { return sizeof(wl_maps_head) + count * sizeof(wl_mapping); }
  };
  struct ModuleState {
    std::vector<table::ArenaPiece> pieces;
    std::uint32_t users = 0;  // mapping sets, retired ones included
    bool used = false, removed = false;
  };

  void size_maps();
  std::expected<void, SystemError> open_arena();
  std::expected<void, SystemError> attach_tracepoints();
  void retire(std::uint32_t tgid);
  void housekeeping();
  void release_module(std::uint32_t id);

  KernelSideOptions options_;
  windlass_bpf* skeleton_ = nullptr;
  std::unique_ptr<table::Arena> arena_;
  wl_module* modules_ = nullptr;
  std::size_t modules_bytes_ = 0;
  wl_cpu_stats* stats_ = nullptr;
  std::size_t stats_bytes_ = 0;
  int cpus_ = 0;
  ring_buffer* ring_ = nullptr;
  const Handler* handler_ = nullptr;
  int handled_ = 0;
  std::vector<int> perf_fds_;
  std::vector<bpf_link*> perf_links_, tracepoint_links_;

  mutable std::mutex mutex_;
  std::vector<ModuleState> module_states_;
  std::vector<std::uint32_t> free_modules_;
  std::uint32_t next_space_ = 1;
  std::map<std::uint32_t, MappingSet> sets_;          // by space
  std::map<std::uint32_t, std::uint32_t> published_;  // tgid -> space
  Clock::time_point last_housekeeping_{};
};

KernelSideImpl::~KernelSideImpl() {
  stop();
  for (bpf_link* link : tracepoint_links_) bpf_link__destroy(link);
  if (ring_ != nullptr) ring_buffer__free(ring_);
  arena_.reset();
  if (modules_ != nullptr) munmap(modules_, modules_bytes_);
  if (stats_ != nullptr) munmap(stats_, stats_bytes_);
  if (skeleton_ != nullptr) windlass_bpf__destroy(skeleton_);
}

void KernelSideImpl::size_maps() {
  auto& maps = skeleton_->maps;
  const auto cpus = static_cast<std::uint32_t>(cpus_);
  for (bpf_map* map : {maps.scratch, maps.raw_scratch, maps.memo, maps.stats}) bpf_map__set_max_entries(map, cpus);
  const auto page = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE));
  bpf_map__set_max_entries(maps.events, std::bit_ceil(std::clamp(options_.ring_bytes, 256 * 1024U, 1U << 30) | page));
  bpf_map__set_max_entries(maps.counts, std::max(options_.distinct_stacks, 1024U));

  auto& data = *skeleton_->rodata;
  data.wl_max_user_frames = std::clamp(options_.user_frames, 1U, WL_MAX_USER_FRAMES);
  data.wl_max_kernel_frames = std::min(options_.kernel_frames, WL_MAX_KERNEL_FRAMES);
  data.wl_max_raw_stack = std::min(options_.raw_stack_bytes, WL_MAX_RAW_STACK);
  data.wl_raw_bytes_per_window = options_.raw_bytes_per_second * (1ULL << 27) / 1'000'000'000ULL;
  data.wl_wakeup_bytes = bpf_map__max_entries(maps.events) / 8;
  data.wl_filter = options_.all_processes ? 0 : 1;
  data.wl_address_mask = options_.address_mask;
  data.wl_pidns_ino = options_.pid_namespace;
}

std::expected<void, SystemError> KernelSideImpl::open_arena() {
  const int outer = bpf_map__fd(skeleton_->maps.arena);
  auto arena = table::Arena::create([outer](std::uint32_t index, std::byte* at) -> Expected<void> {
    bpf_map_create_opts options{};
    options.sz = sizeof options;
    options.map_flags = BPF_F_MMAPABLE;
    const int inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, "wl_chunk", 4, WL_CHUNK_SIZE + WL_CHUNK_SLACK, 1, &options);
    if (inner < 0) return fail(ErrorCode::kSystem, "memory for the arena", index, static_cast<unsigned>(-inner));
    Expected<void> result;
    if (mmap(at, WL_CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, inner, 0) == MAP_FAILED) {
      result = fail(ErrorCode::kSystem, "mapping the arena", index, static_cast<unsigned>(errno));
    } else if (const int error = bpf_map_update_elem(outer, &index, &inner, BPF_ANY); error != 0) {
      result = fail(ErrorCode::kSystem, "growing the arena", index, static_cast<unsigned>(-error));
    }
    close(inner);  // the outer map and the mapping hold it
    return result;
  });
  if (!arena) return std::unexpected(system_error(arena.error().text(), static_cast<int>(arena.error().detail)));
  arena_ = std::move(*arena);

  modules_bytes_ = sizeof(wl_module) * WL_MAX_MODULES;
  void* at = mmap(nullptr, modules_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(skeleton_->maps.modules), 0);
  if (at == MAP_FAILED) return std::unexpected(system_error("the module list cannot be mapped", errno));
  modules_ = static_cast<wl_module*>(at);
  stats_bytes_ = ((sizeof(wl_cpu_stats) + 7) & ~std::size_t{7}) * static_cast<std::size_t>(cpus_);
  at = mmap(nullptr, stats_bytes_, PROT_READ, MAP_SHARED, bpf_map__fd(skeleton_->maps.stats), 0);
  if (at == MAP_FAILED) return std::unexpected(system_error("the statistics cannot be mapped", errno));
  stats_ = static_cast<wl_cpu_stats*>(at);
  return {};
}

std::expected<void, SystemError> KernelSideImpl::attach_tracepoints() {
  for (bpf_program* program : {skeleton_->progs.windlass_fork, skeleton_->progs.windlass_exec,
                               skeleton_->progs.windlass_exit, skeleton_->progs.windlass_unmapped_area}) {
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
  const LibbpfLog log;
  raise_descriptor_limit();  // maps, programs and events are descriptors, too
  cpus_ = libbpf_num_possible_cpus();
  if (cpus_ <= 0)
    return std::unexpected(SystemError{
        "the number of CPUs cannot be told (/sys/devices/system/cpu/possible). Way out: mount -t sysfs sysfs /sys",
        -cpus_, RefusalKind::kMissing});
  bpf_object_open_opts open_options{};
  open_options.sz = sizeof open_options;
  if (!options_.btf_path.empty()) open_options.btf_custom_path = options_.btf_path.c_str();
  skeleton_ = windlass_bpf__open_opts(&open_options);
  if (skeleton_ == nullptr) return std::unexpected(explain_load_error(errno, log.text(), options_.btf_path));
  size_maps();
  ProgramLogs program_logs;
  if (options_.program_stats != nullptr) program_logs.watch(skeleton_->obj);
  if (const int error = windlass_bpf__load(skeleton_); error != 0) {
    return std::unexpected(explain_load_error(-error, log.text(), options_.btf_path));
  }
  if (options_.program_stats != nullptr) *options_.program_stats = program_logs.read();
  if (auto opened = open_arena(); !opened) return opened;
  auto handle = [](void* context, void* data, std::size_t size) {
    auto& self = *static_cast<KernelSideImpl*>(context);
    ++self.handled_;
    if (self.handler_ != nullptr && size >= sizeof(wl_event_head)) {
      (*self.handler_)(*static_cast<const wl_event_head*>(data), size);
    }
    return 0;
  };
  ring_ = ring_buffer__new(bpf_map__fd(skeleton_->maps.events), handle, this, nullptr);
  if (ring_ == nullptr) return std::unexpected(system_error("the event ring cannot be opened", errno));
  module_states_.reserve(1024);
  for (const std::uint32_t tgid : options_.targets) {
    if (auto added = add_target(tgid); !added) return added;
  }
  // Processes are followed from here on, before anybody looks at /proc: nothing falls between.
  return attach_tracepoints();
}

// ---- modules ------------------------------------------------------------------------------------------------------

std::expected<std::uint32_t, SystemError> KernelSideImpl::add_module() {
  const std::lock_guard lock(mutex_);
  std::uint32_t id;
  if (!free_modules_.empty()) {
    id = free_modules_.back();
    free_modules_.pop_back();
  } else if (module_states_.size() < WL_MAX_MODULES) {
    id = static_cast<std::uint32_t>(module_states_.size());
    module_states_.emplace_back();
  } else {
    return std::unexpected(SystemError{fmt::format("more than {} modules", WL_MAX_MODULES), ENOSPC});
  }
  module_states_[id] = ModuleState{};
  module_states_[id].used = true;
  modules_[id] = wl_module{};
  modules_[id].x_reg = WL_NO_XREG;
  return id;
}

std::expected<void, SystemError> KernelSideImpl::load_table(std::uint32_t id, const table::UnwindTable& table) {
  auto placed = table::load_table(table, *arena_);
  if (!placed) {
    return std::unexpected(SystemError{"loading a table: " + placed.error().text(), ENOMEM});
  }
  const std::lock_guard lock(mutex_);
  if (id >= module_states_.size() || !module_states_[id].used || module_states_[id].removed ||
      modules_[id].state == WL_MODULE_READY) {
    for (const auto& piece : placed->pieces) arena_->free(piece.ref, piece.bytes);
    return std::unexpected(SystemError{fmt::format("module {} takes no table", id), EINVAL});
  }
  module_states_[id].pieces = std::move(placed->pieces);
  wl_module& module = modules_[id];
  module.first_page = placed->module.first_page;
  module.page_count = placed->module.page_count;
  module.directory = placed->module.directory;
  module.palette = placed->module.palette;
  module.x_reg = placed->module.x_reg;
  std::atomic_ref(module.state).store(WL_MODULE_READY, std::memory_order_release);
  return {};
}

void KernelSideImpl::set_no_table(std::uint32_t id) {
  std::atomic_ref(modules_[id].state).store(WL_MODULE_NO_TABLE, std::memory_order_release);
}

void KernelSideImpl::remove_module(std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  if (id < module_states_.size()) module_states_[id].removed = true;
  if (module_states_[id].users == 0) release_module(id);
}

// No mapping set names it any more, and those that did are past their grace period. Call with the lock.
void KernelSideImpl::release_module(std::uint32_t id) {
  ModuleState& state = module_states_[id];
  if (!state.used) return;
  modules_[id].state = WL_MODULE_PENDING;
  for (const auto& piece : state.pieces) arena_->free(piece.ref, piece.bytes);
  state = ModuleState{};
  free_modules_.push_back(id);
}

// ---- processes ----------------------------------------------------------------------------------------------------

std::expected<std::uint32_t, SystemError> KernelSideImpl::publish(std::uint32_t tgid,
                                                                  std::span<const wl_mapping> mappings,
                                                                  std::uint64_t epoch) {
  MappingSet set;
  set.count = static_cast<std::uint32_t>(mappings.size());
  auto object = arena_->allocate(set.bytes());
  if (!object) return std::unexpected(SystemError{"a process's mappings: " + object.error().text(), ENOMEM});
  const std::lock_guard lock(mutex_);
  const std::uint32_t space = next_space_++;
  auto* head = reinterpret_cast<wl_maps_head*>(arena_->at(*object));
  *head = wl_maps_head{space, set.count};
  if (!mappings.empty()) std::memcpy(head + 1, mappings.data(), mappings.size_bytes());
  set.maps = *object + kHeadUnits;
  for (const wl_mapping& mapping : mappings) set.modules.push_back(mapping.module);
  std::sort(set.modules.begin(), set.modules.end());
  set.modules.erase(std::unique(set.modules.begin(), set.modules.end()), set.modules.end());

  const wl_process process{set.maps, set.count, space, 0, epoch};
  const int error = bpf_map_update_elem(bpf_map__fd(skeleton_->maps.processes), &tgid, &process, BPF_ANY);
  if (error != 0) {
    arena_->free(*object, set.bytes());
    return std::unexpected(
        SystemError{fmt::format("process {} cannot be published: {}", tgid, std::strerror(-error)), -error});
  }
  for (const std::uint32_t module : set.modules) {
    if (module < module_states_.size()) ++module_states_[module].users;
  }
  retire(tgid);
  published_[tgid] = space;
  sets_.emplace(space, std::move(set));
  return space;
}

void KernelSideImpl::retire(std::uint32_t tgid) {
  auto found = published_.find(tgid);
  if (found == published_.end()) return;
  MappingSet& set = sets_.at(found->second);
  set.retired = true;
  set.since = Clock::now();
  published_.erase(found);
}

void KernelSideImpl::forget(std::uint32_t tgid) {
  const std::lock_guard lock(mutex_);
  bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.processes), &tgid);
  retire(tgid);
}

std::expected<void, SystemError> KernelSideImpl::add_target(std::uint32_t tgid) {
  const std::uint8_t one = 1;
  const int error = bpf_map_update_elem(bpf_map__fd(skeleton_->maps.targets), &tgid, &one, BPF_ANY);
  if (error == 0) return {};
  return std::unexpected(
      SystemError{fmt::format("process {} cannot be targeted: {}", tgid, std::strerror(-error)), -error});
}

// Frees retired mapping sets: first, when no process entry names one any more (forked children inherit them), its head
// is made invalid; a grace period later, when whoever began with it must be done, its memory is given back.
void KernelSideImpl::housekeeping() {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (now - last_housekeeping_ < kGrace) return;
  last_housekeeping_ = now;
  const bool any = std::any_of(sets_.begin(), sets_.end(), [](const auto& entry) { return entry.second.retired; });
  if (!any) return;
  std::unordered_set<std::uint32_t> in_use;
  const int processes = bpf_map__fd(skeleton_->maps.processes);
  std::uint32_t key = 0, next = 0;
  const std::uint32_t* at = nullptr;
  for (std::uint32_t i = 0; i < 1u << 20 && bpf_map_get_next_key(processes, at, &next) == 0; ++i) {
    wl_process process{};
    if (bpf_map_lookup_elem(processes, &next, &process) == 0) in_use.insert(process.space);
    key = next;
    at = &key;
  }
  for (auto entry = sets_.begin(); entry != sets_.end();) {
    MappingSet& set = entry->second;
    const bool idle = set.retired && !in_use.contains(entry->first) && now - set.since >= kGrace;
    if (!idle) {
      ++entry;
      continue;
    }
    auto* head = reinterpret_cast<wl_maps_head*>(arena_->at(set.maps - kHeadUnits));
    if (!set.hidden) {
      std::atomic_ref(head->space).store(0, std::memory_order_release);
      set.hidden = true;
      set.since = now;
      ++entry;
      continue;
    }
    for (const std::uint32_t module : set.modules) {
      if (module >= module_states_.size()) continue;
      if (--module_states_[module].users == 0 && module_states_[module].removed) release_module(module);
    }
    arena_->free(set.maps - kHeadUnits, set.bytes());
    entry = sets_.erase(entry);
  }
}

// ---- sampling and events ------------------------------------------------------------------------------------------

std::expected<void, SystemError> KernelSideImpl::start() {
  for (const int cpu : online_cpus()) {
    perf_event_attr attr{};
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_CPU_CLOCK;
    attr.freq = 1;
    attr.sample_freq = options_.frequency;
    attr.exclude_idle = 1;
    const int fd = static_cast<int>(syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC));
    if (fd < 0) {
      const int error = errno;
      stop();
      return std::unexpected(explain_perf_error(error, options_.frequency));
    }
    bpf_link* link = bpf_program__attach_perf_event(skeleton_->progs.windlass_sample, fd);
    if (link == nullptr) {
      const int error = errno;
      close(fd);
      stop();
      return std::unexpected(
          system_error(fmt::format("sampling cannot start on CPU {}: {}", cpu, std::strerror(error)), error));
    }
    perf_fds_.push_back(fd);
    perf_links_.push_back(link);
  }
  if (!perf_fds_.empty()) return {};
  return std::unexpected(
      system_error("no CPU could be sampled: none that /sys/devices/system/cpu/online names is online", ENODEV));
}

void KernelSideImpl::stop() {
  for (const int fd : perf_fds_) ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
  for (bpf_link* link : perf_links_) bpf_link__destroy(link);  // closes the perf events too
  perf_links_.clear();
  perf_fds_.clear();
}

int KernelSideImpl::poll(std::chrono::milliseconds timeout, const Handler& handler) {
  handled_ = 0;
  handler_ = &handler;
  ring_buffer__consume(ring_);
  if (handled_ == 0 && timeout.count() > 0) {
    epoll_event event{};
    epoll_wait(ring_buffer__epoll_fd(ring_), &event, 1, static_cast<int>(timeout.count()));
    ring_buffer__consume(ring_);
  }
  handler_ = nullptr;
  housekeeping();
  return handled_;
}

void KernelSideImpl::for_each_count(const CountHandler& handler, bool clear) {
  const int counts = bpf_map__fd(skeleton_->maps.counts);
  wl_stack_key key{}, next{};
  const wl_stack_key* at = nullptr;
  std::vector<wl_stack_key> seen;
  while (bpf_map_get_next_key(counts, at, &next) == 0 && seen.size() <= 2 * std::size_t{options_.distinct_stacks}) {
    seen.push_back(next);
    key = next;
    at = &key;
  }
  for (const wl_stack_key& entry : seen) {
    std::uint64_t count = 0;
    if (bpf_map_lookup_elem(counts, &entry, &count) != 0) continue;
    if (clear) bpf_map_delete_elem(counts, &entry);
    if (count != 0) handler(entry, count);
  }
}

KernelSideStats KernelSideImpl::stats() const {
  KernelSideStats sum;
  for (int cpu = 0; cpu < cpus_; ++cpu) {
    const wl_cpu_stats& one = stats_[cpu];
    sum.samples += one.samples;
    sum.other_processes += one.idle;
    sum.counted += one.counted;
    sum.stack_events += one.stack_events;
    sum.raw_events += one.raw_events;
    sum.lost += one.lost;
    sum.raw_refused += one.raw_refused;
    sum.raw_bytes += one.raw_bytes;
    sum.user_frames += one.user_frames;
    sum.memo_hits += one.memo_hits;
    sum.lost_process_events += one.lost_process_events;
    for (unsigned end = 0; end < WL_END_COUNT; ++end) sum.ends[end] += one.ends[end];
  }
  return sum;
}

std::uint64_t KernelSideImpl::run_time_ns() const {
  bpf_prog_info info{};
  std::uint32_t size = sizeof info;
  if (bpf_obj_get_info_by_fd(bpf_program__fd(skeleton_->progs.windlass_sample), &info, &size) != 0) return 0;
  return info.run_time_ns;
}

}  // namespace

std::expected<std::unique_ptr<KernelSide>, SystemError> KernelSide::open(const KernelSideOptions& options) {
  auto side = std::make_unique<KernelSideImpl>(options);
  if (auto loaded = side->load(); !loaded) return std::unexpected(loaded.error());
  return side;
}

}  // namespace windlass::agent
