// How a recording comes to be: targets, samples, and the parts that work on them.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "os/priority.h"
#include "os/proc_file.h"
#include "os/process_memory.h"
#include "profiler/doctor/no_allocations.h"
#include "profiler/doctor/system_probe.h"
#include "profiler/processes/cgroup_tree.h"
#include "profiler/processes/live_process.h"
#include "profiler/processes/thread_context.h"
#include "profiler/samples/recorder.h"

namespace windlass::profiler {
namespace {

// The names of the labels that a process's threads set (ThreadLabels::ReadKeys).
std::optional<std::vector<std::string>> label_keys_of(std::uint32_t tgid) {
  std::string text;
  if (!ProcessTable::read_proc_maps(tgid, text)) return std::nullopt;
  const auto keys = read_label_keys(os::MemoryFile(static_cast<pid_t>(tgid)), os::parse_proc_maps(text));
  return keys ? std::optional(*keys) : std::nullopt;
}

}  // namespace

Recorder::~Recorder() = default;

std::expected<std::unique_ptr<Recorder>, SystemError> Recorder::open(const RecorderOptions& options) {
  auto recorder = std::unique_ptr<Recorder>(new Recorder(options));
  const SystemFacts facts = read_system_facts(options.btf_path);
  if (auto refused = refuse_place(facts)) return std::unexpected(std::move(*refused));
  if (recorder->targets_.everything()) recorder->remarks_ = recording_limits(facts);
  if (auto opened = recorder->open_allocations(); !opened) return std::unexpected(opened.error());
  if (auto found = recorder->find_targets(facts); !found) return std::unexpected(found.error());
  if (auto found = recorder->find_allocators(); !found) return std::unexpected(found.error());
  // The command has been started: it does not inherit the priority. But it is in the same session.
  os::raise_priority(options.command.empty());
  if (auto opened = recorder->open_samples(facts); !opened) return std::unexpected(opened.error());
  if (auto opened = recorder->open_table_cache(); !opened) return std::unexpected(opened.error());
  recorder->make_parts();
  return recorder;
}

// Of a command: it loads a library that counts.
std::expected<void, SystemError> Recorder::open_allocations() {
  if (!options_.alloc || options_.command.empty()) return {};
  const std::string& program = options_.command.front();
  const auto obstacle = preload_obstacle(find_command(program));
  if (obstacle && obstacle->ends_it)
    return std::unexpected(SystemError{fmt::format("allocations of {} cannot be recorded: {}", program, obstacle->text),
                                       0, RefusalKind::kMissing});
  auto opened = Allocations::open(*options_.alloc);
  if (!opened) return std::unexpected(std::move(opened.error()));
  allocations_ = std::move(*opened);
  return {};
}

// Of processes that run already: they are probed from outside.
std::expected<void, SystemError> Recorder::find_allocators() {
  if (!options_.alloc || !options_.command.empty()) return {};
  const auto all = targets_.chosen();
  auto found = find_allocation_probes(options_.targets, all);
  if (!found) return std::unexpected(std::move(found.error()));
  remarks_.insert(remarks_.end(), found->remarks.begin(), found->remarks.end());
  if (!found->follows_blocks())
    events_ = RecordingEvents::of(options_.events, options_.frequency, AllocationEvents::kAllocated);
  allocation_probes_ = std::move(*found);
  return {};
}

std::expected<void, SystemError> Recorder::find_targets(const SystemFacts& facts) {
  for (std::uint32_t& tgid : options_.targets) {
    const auto target = find_target(tgid, facts);
    if (!target) return std::unexpected(target.error());
    if (tgid != *target)
      remarks_.push_back(
          fmt::format("{} is a thread of process {}, which is recorded with all of its threads", tgid, *target));
    tgid = *target;
    targets_.add(tgid);
  }
  if (options_.children) add_children();
  if (options_.command.empty()) return {};
  // First of all: the child shall inherit nothing of what the profiler changes about itself.
  auto command = ChildCommand::start(
      options_.command, allocations_ != nullptr ? allocations_->environment() : std::vector<std::string>());
  if (!command) return std::unexpected(command.error());
  command_.emplace(std::move(*command));
  targets_.add(static_cast<std::uint32_t>(command_->pid()));
  return {};
}

// What may not be looked at is left out, as children that come later are.
void Recorder::add_children() {
  for (const std::uint32_t child : descendants_of(options_.targets)) {
    if (targets_.contains(child) || !read_life_status(child).alive()) continue;
    targets_.add(child);
    if (source_.samples != nullptr) source_.samples->follow(child);
  }
}

std::expected<void, SystemError> Recorder::open_samples(const SystemFacts& facts) {
  KernelSideOptions kernel_options;
  kernel_options.frequency = options_.frequency;
  kernel_options.events = options_.events;
  kernel_options.timeline = options_.timeline.has_value();
  kernel_options.allocations = allocation_probes_;
  kernel_options.allocation_period = options_.alloc.value_or(1);
  kernel_options.allocation_event = events_.allocated;
  if (!options_.filters.empty()) {
    const FilterPlaces places{find_cgroup_mount(os::read_proc_file("/proc/self/mountinfo")), container_places()};
    const auto refused = [](const std::string& text) {
      return std::unexpected(SystemError{text, ENOENT, RefusalKind::kMissing});
    };
    const auto filter = make_filter(options_.filters, places);
    if (!filter) return refused(filter.error());
    const auto filters = filters_of(*filter);
    if (!filters) return refused(filters.error());
    kernel_options.filters = *filters;
  }
  if (command_) kernel_options.held = static_cast<std::uint32_t>(command_->pid());
  kernel_options.btf_path = options_.btf_path;
  kernel_options.thread_labels = options_.thread_labels;
  kernel_options.choose_distinct_stacks();
  most_counted_ = std::size_t{kernel_options.distinct_stacks} / 4 * 3;
  auto opened = open_source(std::move(kernel_options), targets_, facts, process_events_,
                            [this](ProcessEvent&& event) { queue_.push(std::move(event)); });
  if (!opened) return std::unexpected(opened.error());
  source_ = std::move(*opened);
  // Processes are followed from here on. What was started since they were first looked for is found now.
  if (options_.children) add_children();
  return {};
}

// Only the kernel side has tables.
std::expected<void, SystemError> Recorder::open_table_cache() {
  constexpr std::string_view kNowhere = "none";
  if (options_.table_cache == kNowhere || source_.kernel == nullptr) return {};
  const bool asked = !options_.table_cache.empty();
  auto opened = TableCache::open(asked ? options_.table_cache : TableCache::default_folder());
  if (opened)
    table_cache_ = std::move(*opened);
  else if (asked)
    return std::unexpected(SystemError{std::move(opened.error()), EACCES, RefusalKind::kMissing});
  else
    no_table_cache_ = std::move(opened.error());
  return {};
}

ContainerPlaces Recorder::container_places() const {
  return {.root = machine_root(), .stores = {}, .kubelet = options_.kubelet};
}

void Recorder::make_parts() {
  registry_ = std::make_unique<ModuleRegistry>(source_.kernel, 0, table_cache_.get());
  ModuleRegistry& registry = *registry_;
  table_ = std::make_unique<ProcessTable>(
      [&registry](std::uint32_t tgid, std::uint32_t parent, const os::ProcMap& map) {
        return registry.resolve(tgid, parent, map);
      },
      ProcessTable::read_proc_maps,
      [&registry](std::uint32_t tgid, std::uint32_t parent, const std::vector<os::ProcMap>& maps) {
        return registry.find_images(tgid, parent, maps);
      });
  follower_ = std::make_unique<ProcessFollower>(
      *table_, *source_.samples, targets_, [&registry](std::uint32_t module) { return registry.kernel_id(module); },
      ProcessFollower::this_machine());
  unwinder_ = std::make_unique<RawUnwinder>(registry);
  intake_ = std::make_unique<SampleIntake>(
      *table_, *unwinder_, names_, aggregator_, [this](std::uint32_t tgid) { follower_->rescan(tgid, now_); },
      [this](std::uint32_t tgid) { follower_->seek_tables(tgid, now_); },
      [this](const wl_learned_key& key, const wl_learned& lesson) { source_.samples->teach(key, lesson); });
  intake_->set_budget(budget_);
  if (allocation_probes_ && allocation_probes_->follows_blocks())
    intake_->set_in_use(events_.allocated, events_.in_use);
  process_labels_ = std::make_unique<ProcessLabels>(options_.labels, container_places());
  const auto read = [this](std::uint32_t tgid) -> std::optional<ProcessLabelSets::Set> {
    auto set = process_labels_->of(tgid);
    if (!read_life_status(tgid).alive()) return std::nullopt;
    return set;
  };
  labels_ = ProcessLabelSets(read, process_labels_->of(0));  // no process has this number: the fixed labels
  thread_labels_ = ThreadLabels(label_keys_of);
  intake_->set_labels(labels_, thread_labels_);
  if (!options_.timeline) return;
  times_.emplace(*options_.timeline);
  intake_->set_times(*times_, tick_ns());
}

}  // namespace windlass::profiler
