#include "profiler/processes/process_follower.h"

#include <algorithm>
#include <utility>

#include "profiler/kernel/kernel_side.h"
#include "profiler/processes/live_process.h"

namespace windlass::profiler {

ProcessFollower::System ProcessFollower::this_machine() {
  return {monotonic_ns, thread_time_ns, list_processes, process_exists};
}

ProcessFollower::ProcessFollower(ProcessTable& table, SampleSource& source, Targets& targets, ModuleNumber number,
                                 System system)
    : table_(table), source_(source), targets_(targets), number_(std::move(number)), system_(std::move(system)) {}

std::vector<std::uint32_t> ProcessFollower::all() const {
  return targets_.everything() ? system_.processes() : targets_.chosen();
}

void ProcessFollower::scan_all(const std::function<bool()>& stopped) {
  for (const std::uint32_t tgid : all()) {
    if (stopped()) return;
    table_.scan(tgid, system_.now());
  }
}

// ---- events ---------------------------------------------------------------------------------------------------------

void ProcessFollower::on_process(const ProcessEvent& event) {
  if (event.kind == ProcessEventKind::kLost) {
    rescan_all_due_ = true;
    return;
  }
  // Processes outside of this PID namespace have no number in it, and dead ones none any more (perf_event_pid() in
  // kernel/events/core.c).
  if (event.tgid == 0 || event.tgid == ~0u) return;
  if (event.kind == ProcessEventKind::kFork && targets_.contains(event.parent_tgid)) targets_.add(event.tgid);
  if (event.kind == ProcessEventKind::kExec) table_looks_.erase(event.tgid);
  if (!targets_.contains(event.tgid)) return;
  table_.apply(event);
  scan_due();  // the next event may be a sample in the code that has come
}

namespace {

ProcessEvent fork_of(std::uint32_t child, const wl_event_head& head) {
  ProcessEvent event;
  event.kind = ProcessEventKind::kFork;
  event.time = head.time;
  event.tgid = child;
  event.parent_tgid = head.tgid;
  return event;
}

}  // namespace

bool ProcessFollower::on_kernel(const wl_event_head& head, std::size_t size) {
  if (head.type != WL_EVENT_EXEC && head.type != WL_EVENT_FORK && head.type != WL_EVENT_UNMAP &&
      head.type != WL_EVENT_EXIT)
    return false;
  if (size < sizeof(wl_process_event)) {
    ++malformed_;
    return true;
  }
  const auto& event = reinterpret_cast<const wl_process_event&>(head);
  switch (head.type) {
    case WL_EVENT_EXEC:
      if (targets_.contains(head.tgid)) table_.set_epoch(head.tgid, event.epoch);
      break;
    case WL_EVENT_FORK: {
      const auto child = static_cast<std::uint32_t>(event.address);
      targets_.add(child);  // the kernel side reports those of targets only
      // perf's event comes before this one, or never: where many processes map much, its ring runs over.
      if (const Process* known = table_.find(child);
          known == nullptr || known->exit_time != 0 || known->maps->mappings().empty())
        table_.apply(fork_of(child, head));
      table_.set_epoch(child, event.epoch);
      break;
    }
    case WL_EVENT_UNMAP:
      table_.unmap(head.tgid, head.time, event.address, event.length);
      table_.set_epoch(head.tgid, event.epoch);
      break;
    default: on_end(head.tgid, head.time); break;
  }
  return true;
}

void ProcessFollower::on_end(std::uint32_t tgid, std::uint64_t time) {
  table_.exit(tgid, time);
  source_.forget(tgid);
  targets_.remove(tgid);
  table_looks_.erase(tgid);
  image_looks_.erase(tgid);
  last_rescan_.erase(tgid);
}

// ---- what no event says ---------------------------------------------------------------------------------------------

void ProcessFollower::rescan(std::uint32_t tgid, std::uint64_t now) {
  if (!targets_.contains(tgid)) return;
  if (last_rescan_.size() > kMaxRescanEntries) last_rescan_.clear();
  auto& last = last_rescan_[tgid];
  if (last != 0 && now < last + kRescanInterval) return;
  last = now;
  ++rescans_;
  table_.scan(tgid, now);
}

void ProcessFollower::seek_tables(std::uint32_t tgid, std::uint64_t now) {
  if (!targets_.contains(tgid)) return;
  if (table_looks_.size() > kMaxRescanEntries) table_looks_.clear();
  TableLook& look = table_looks_[tgid];
  if (now < look.next) return;
  look.next = now + look.interval;
  look.interval = std::min(2 * look.interval, kLongestTableInterval);
  ++rescans_;
  table_.scan(tgid, now);
}

void ProcessFollower::finish_round(std::uint64_t now) {
  if (rescan_all_due_ && to_scan_.empty() && now > last_rescan_all_ + kRescanInterval) rescan_all(now);
  scan_some();
  if (now > last_sweep_ + kSweepInterval) sweep(now);
  scan_due();
  look_at_starting(now);
  table_.take_dirty([this](Process& process) { publish(process); });
}

void ProcessFollower::rescan_all(std::uint64_t now) {
  last_rescan_all_ = now;
  rescan_all_due_ = false;
  to_scan_ = all();
  ++rescans_;
}

// Thousands of processes take seconds, in which the rings would run over.
void ProcessFollower::scan_some() {
  const std::uint64_t begin = system_.now();
  while (!to_scan_.empty() && system_.now() < begin + kRescanShare) {
    table_.scan(to_scan_.back(), system_.now());
    to_scan_.pop_back();
  }
}

void ProcessFollower::sweep(std::uint64_t now) {
  last_sweep_ = now;
  const auto lost = source_.stats().lost_process_events;
  rescan_all_due_ |= lost != seen_lost_process_events_;
  seen_lost_process_events_ = lost;
  for (const std::uint32_t tgid : table_.alive())
    if (!system_.exists(tgid)) on_end(tgid, now);
  table_.forget_dead(now);
}

void ProcessFollower::look_at_starting(std::uint64_t now) {
  if (now < last_start_look_ + kStartInterval) return;
  last_start_look_ = now;
  for (const std::uint32_t tgid : std::exchange(starting_, {})) table_.publish_anew(tgid);
}

// Soon, since until then the code has no names and no rows; but reading /proc shall not take more than this share of
// the time where a process makes code all the time (a JIT under Wine). The scan that opens a runtime takes far longer
// than others of the process, so that the shorter one of two counts.
void ProcessFollower::scan_due() {
  table_.for_each_scan_due([this](std::uint32_t tgid) {
    if (image_looks_.size() > kMaxRescanEntries) image_looks_.clear();
    ImageLook& look = image_looks_[tgid];
    const std::uint64_t now = system_.now();
    if (now < look.next) return;
    const std::uint64_t before = system_.processor_time();
    table_.scan(tgid, now);
    const std::uint64_t took = system_.processor_time() - before;
    look.next = system_.now() + std::min(took, look.took) * kImageScanShare;
    look.took = took;
    ++rescans_;
  });
}

// Has some of the code that is to be published been replaced by now? In doubt it has: reading /proc shall not take more
// than its share of the time.
bool ProcessFollower::may_be_replaced(const Process& process) {
  if (system_.now() < next_check_) return true;
  const std::uint64_t before = system_.processor_time();
  const bool current = table_.is_current(process);
  next_check_ = system_.now() + (system_.processor_time() - before) * kImageScanShare;
  return !current;
}

namespace {

// Makes a mapping of its own of the part that holds frames.
void split_off(const manager::PublishedCode::HoldingCode& holding, std::vector<wl_mapping>& published) {
  const auto [begin, end] = holding.range;
  const auto within = std::ranges::find_if(
      published, [&](const wl_mapping& mapping) { return mapping.begin <= begin && end <= mapping.end; });
  if (within == published.end()) return;
  wl_mapping front = *within, part = *within, behind = *within;
  front.end = part.begin = begin;
  behind.begin = part.end = end;
  part.kind = WL_MAPPING_HELD;
  part.held = holding.frame;
  std::vector<wl_mapping> parts;
  for (const wl_mapping& one : {front, part, behind})
    if (one.begin < one.end) parts.push_back(one);
  published.insert(published.erase(within), parts.begin(), parts.end());
}

}  // namespace

wl_mapping ProcessFollower::for_the_kernel(const Process& process, const Mapping& mapping) const {
  wl_mapping made{};
  made.begin = mapping.begin;
  made.end = mapping.end;
  made.module = number_(mapping.module);
  if (mapping.published()) {
    made.kind = WL_MAPPING_MANAGED;
    made.table = mapping.publisher;
  } else if (mapping.generated()) {
    made.kind = WL_MAPPING_GENERATED;
  } else if (process.is_passing(mapping.begin, mapping.end)) {
    // Of modules that come and go unnoticed the agent alone has the right rows: those of the sample's time. There is no
    // table at the module's first address, so the kernel side gives up there.
    made.kind = WL_MAPPING_MANAGED;
    made.table = mapping.bias;
  } else {
    made.kind = WL_MAPPING_FILE;
    made.bias = mapping.bias;
  }
  if (const auto* code = process.maps->published_of(mapping)) {
    if ((*code)->teaches()) made.kind = WL_MAPPING_LEARNED;
    if (const wl_way way = (*code)->way_to_stack(); way.there != 0) made.kind = WL_MAPPING_SWITCHED, made.way = way;
  }
  return made;
}

void ProcessFollower::publish(Process& process) {
  if (process.exit_time != 0 || !targets_.contains(process.tgid)) return;
  const auto& mappings = process.maps->mappings();
  std::vector<wl_mapping> published;
  published.reserve(mappings.size());
  for (const Mapping& mapping : mappings) {
    if (mapping.begin >> 63 != 0) continue;  // vsyscall
    published.push_back(for_the_kernel(process, mapping));
  }
  for (const auto& code : process.maps->published()) {
    if (code->is_starting()) starting_.insert(process.tgid);
    for (const auto& holding : code->holding_code()) split_off(holding, published);
  }
  if (published.empty()) return;
  // The kernel side gives a process a new epoch when a mapping comes over code of the set it has. One that came before
  // the set did (dlclose and dlopen within the time that events take) is over nothing it knows, and it would go on with
  // the rows of what is gone. Where that is to be expected, the set is there first, so that nothing is missed from then
  // on; then it is compared with /proc; and only then is it used.
  if (process.code_replaced) {
    (void)source_.publish(process.tgid, published, kNoEpoch);
    if (may_be_replaced(process)) return table_.postpone(process);
  }
  const auto recorded = manager::recorded_interpreter(process.maps->interpreters());
  (void)source_.publish(process.tgid, published, process.epoch,
                        recorded != nullptr ? recorded->get()->layout() : nullptr,
                        {process.maps->labels(), process.maps->thread_slot()});
}

}  // namespace windlass::profiler
