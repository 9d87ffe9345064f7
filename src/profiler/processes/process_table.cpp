#include "profiler/processes/process_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "os/jitdump.h"
#include "os/living_thread.h"
#include "os/moved_text.h"
#include "os/proc_file.h"
#include "os/process_memory.h"
#include "profiler/processes/thread_context.h"
#include "runtimes/find.h"

namespace windlass::profiler {

const Mapping* MapSet::find(std::uint64_t address) const {
  auto after = std::upper_bound(mappings_.begin(), mappings_.end(), address,
                                [](std::uint64_t a, const Mapping& mapping) { return a < mapping.begin; });
  if (after == mappings_.begin()) return nullptr;
  --after;
  return address < after->end ? &*after : nullptr;
}

void MapSet::remove(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  auto first = std::lower_bound(mappings_.begin(), mappings_.end(), begin,
                                [](const Mapping& mapping, std::uint64_t a) { return mapping.end <= a; });
  auto last = first;
  std::vector<Mapping> rest;
  for (; last != mappings_.end() && last->begin < end; ++last) {
    if (last->begin < begin) {
      rest.push_back(*last);
      rest.back().end = begin;
    }
    if (last->end > end) {
      rest.push_back(*last);
      rest.back().file_offset += end - last->begin;
      rest.back().begin = end;
    }
  }
  const auto at = mappings_.erase(first, last);
  mappings_.insert(at, rest.begin(), rest.end());
}

void MapSet::add(const Mapping& mapping) {
  if (published_.empty() || mapping.published()) return put(mapping);
  const auto put_piece = [&](std::uint64_t begin, std::uint64_t end, const auto& code) {
    Mapping piece = mapping;
    piece.begin = begin;
    piece.end = end;
    piece.file_offset += begin - mapping.begin;
    if (code != nullptr) piece.publisher = code->address();
    put(piece);
  };
  if (mapping.kind == MappingKind::kFile)
    manager::cut_file_by(published_, mapping.begin, mapping.end, put_piece);
  else
    manager::cut_by(published_, mapping.begin, mapping.end, put_piece);
}

void MapSet::set_published(manager::PublishedCodes published) {
  published_ = std::move(published);
  std::vector<Mapping> before;
  before.swap(mappings_);
  for (Mapping& mapping : before) {
    mapping.publisher = 0;
    add(mapping);
  }
}

const std::shared_ptr<manager::PublishedCode>* MapSet::published_of(const Mapping& mapping) const {
  if (!mapping.published()) return nullptr;
  const auto code =
      std::ranges::find_if(published_, [&](const auto& it) { return it->address() == mapping.publisher; });
  return code != published_.end() ? &*code : nullptr;
}

void MapSet::put(const Mapping& mapping) {
  remove(mapping.begin, mapping.end);
  const auto at = std::upper_bound(mappings_.begin(), mappings_.end(), mapping.begin,
                                   [](std::uint64_t a, const Mapping& other) { return a < other.begin; });
  mappings_.insert(at, mapping);
}

ProcessTable::ProcessTable(Resolver resolver, MapsReader reader, ImageFinder images)
    : resolver_(std::move(resolver)), reader_(std::move(reader)), images_(std::move(images)) {}

Process& ProcessTable::get(std::uint32_t tgid) {
  Process& process = processes_[tgid];
  process.tgid = tgid;
  return process;
}

void ProcessTable::mark(Process& process) {
  if (process.dirty) return;
  process.dirty = true;
  dirty_.push_back(process.tgid);
}

void ProcessTable::apply(const ProcessEvent& event) {
  switch (event.kind) {
    case ProcessEventKind::kFork: fork(event); break;
    case ProcessEventKind::kExec: {
      Process& process = get(event.tgid);
      if (event.time < process.scan_time) break;
      if (event.time < process.changed) {  // came late, behind the new program's mappings
        scan(event.tgid, process.changed);
        process.passing.clear();
        break;
      }
      process.maps = {};
      process.has_pe = process.scan_due = false;
      process.passing.clear();
      process.changed = event.time;
      process.exit_time = 0;
      mark(process);
      break;
    }
    case ProcessEventKind::kMap: map(event); break;
    case ProcessEventKind::kExit:  // the leader's; other threads may live on, the kernel side tells when none does
    case ProcessEventKind::kComm:
    case ProcessEventKind::kLost: break;
  }
}

void ProcessTable::fork(const ProcessEvent& event) {
  Process& known = get(event.tgid);
  const Process* parent = find(event.parent_tgid);
  if (known.exit_time == 0 && (event.time < known.scan_time || event.time < known.changed)) return;
  Process child;
  child.tgid = event.tgid;
  child.parent = event.parent_tgid;
  child.dirty = known.dirty;
  if (parent != nullptr) {
    child.maps = parent->maps;
    child.has_pe = parent->has_pe;
    child.passing = parent->passing;
  }
  known = std::move(child);
  if (parent == nullptr) scan(event.tgid, event.time);
  mark(known);
}

// Is it code in no file that comes between two parts of one file? It may be the file's: os/moved_text.h.
static bool may_be_moved(const MapSet& maps, const Mapping& now) {
  const Mapping* before = maps.find(now.begin - 1);
  const Mapping* behind = maps.find(now.end);
  const auto is_of_file = [](const Mapping* it) { return it != nullptr && !it->generated(); };
  return now.generated() && is_of_file(before) && is_of_file(behind) && before->module == behind->module &&
         before->bias == behind->bias;
}

static Mapping mapping_of(const os::ProcMap& map, const ProcessTable::CodeLocation& placement) {
  return {.begin = map.begin,
          .end = map.end,
          .file_offset = map.offset,
          .module = placement.module,
          .bias = placement.bias,
          .kind = placement.kind,
          .silent = placement.silent,
          .interpreter = placement.interpreter};
}

void ProcessTable::map(const ProcessEvent& event) {
  Process& process = get(event.tgid);
  if (event.time < process.scan_time) return;
  if (process.maps->mappings().size() >= kMaxMappings) {
    ++dropped_mappings_;
    return;
  }
  if (os::shows_jitdump(event.map)) return publish(process, event);
  const CodeLocation placement = resolver_(event.tgid, process.parent, event.map);
  const Mapping mapping = mapping_of(event.map, placement);
  const bool moved = may_be_moved(*process.maps, mapping);
  for (const auto& code : process.maps->published()) {
    if (mapping.generated() && !moved) code->note_code(event.map);
    if (!mapping.generated() && code->is_in_file_of(event.map)) code->note_file_code(event.map);
  }
  note_passing(process, mapping);
  process.maps.writable().add(mapping);
  note_scan(process, placement, moved);
  process.changed = std::max(process.changed, event.time);
  mark(process);
}

// The page of a jitdump that is mapped as code is none.
void ProcessTable::publish(Process& process, const ProcessEvent& event) {
  manager::PublishedCodes codes = process.maps->published();
  if (std::ranges::any_of(codes, [&](const auto& code) { return code->is_of(event.map); })) return;
  auto code = manager::open_published(static_cast<pid_t>(event.tgid), static_cast<pid_t>(process.parent), event.map);
  if (!code) return;  // gone before it could be opened
  manager::add(codes, std::move(*code));
  process.maps.writable().set_published(std::move(codes));
  process.changed = std::max(process.changed, event.time);
  mark(process);
}

// The kernel merges and splits mappings of anonymous memory.
static bool is_same_code(const Mapping& a, const Mapping& b) {
  return a.module == b.module && a.generated() == b.generated() && (a.generated() || a.bias == b.bias);
}

bool Process::is_passing(std::uint64_t begin, std::uint64_t end) const {
  return std::ranges::any_of(passing, [&](const auto& range) { return range.first < end && begin < range.second; });
}

// Where the kernel side has told of it before (mmap chose the address, or it hooks what makes code) it is over nothing
// that is known.
void ProcessTable::note_passing(Process& process, const Mapping& now) {
  if (now.generated()) return;
  const auto& mappings = process.maps->mappings();
  auto known = std::ranges::upper_bound(mappings, now.begin, {}, &Mapping::end);
  for (; known != mappings.end() && known->begin < now.end; ++known) {
    if (known->generated() || is_same_code(*known, now)) continue;
    std::pair<std::uint64_t, std::uint64_t> range{std::min(known->begin, now.begin), std::max(known->end, now.end)};
    const auto touches = [&](const auto& other) { return other.first <= range.second && range.first <= other.second; };
    for (const auto& other : process.passing)
      if (touches(other)) range = {std::min(range.first, other.first), std::max(range.second, other.second)};
    std::erase_if(process.passing, touches);
    process.passing.insert(std::ranges::upper_bound(process.passing, range), range);
    if (process.passing.size() > Process::kMaxPassing) {
      process.passing.pop_back();
      process.passing.back().second = ~std::uint64_t{0};
    }
  }
}

// The first PE image makes the anonymous code before it suspect, too.
void ProcessTable::note_scan(Process& process, const CodeLocation& placement, bool moved) {
  const bool first = placement.pe && !process.has_pe;
  process.has_pe |= placement.pe;
  if (process.scan_due) return;
  const auto& mappings = process.maps->mappings();
  const bool of_file = placement.kind == MappingKind::kFile;
  const bool image =
      images_ && process.has_pe && !(of_file && !(first && std::ranges::any_of(mappings, &Mapping::generated)));
  const bool table = !of_file && std::ranges::count_if(mappings, &Mapping::generated) == 1;
  if (!image && !table && !moved && !placement.interpreter && !placement.has_threads()) return;
  want_scan(process);
}

void ProcessTable::want_scan(Process& process) {
  process.scan_due = true;
  if (std::ranges::find(scan_due_, process.tgid) == scan_due_.end()) scan_due_.push_back(process.tgid);
}

void ProcessTable::for_each_scan_due(const std::function<void(std::uint32_t tgid)>& due) {
  std::vector<std::uint32_t> all;
  all.swap(scan_due_);
  for (const std::uint32_t tgid : all) {
    const auto is_due = [&] {
      const auto found = processes_.find(tgid);
      return found != processes_.end() && found->second.scan_due && found->second.exit_time == 0;
    };
    if (!is_due()) continue;
    due(tgid);
    if (is_due()) want_scan(get(tgid));
  }
}

void ProcessTable::unmap(std::uint32_t tgid, std::uint64_t time, std::uint64_t begin, std::uint64_t length) {
  const auto found = processes_.find(tgid);
  if (found == processes_.end() || time < found->second.scan_time) return;
  const std::uint64_t end = begin + length < begin ? ~0ull : begin + length;
  const auto& mappings = found->second.maps->mappings();
  const bool hit = std::any_of(mappings.begin(), mappings.end(),
                               [&](const Mapping& mapping) { return mapping.begin < end && begin < mapping.end; });
  if (!hit) return;
  found->second.maps.writable().remove(begin, end);
  found->second.code_replaced = true;
  mark(found->second);
}

void ProcessTable::set_epoch(std::uint32_t tgid, std::uint64_t epoch) {
  Process& process = get(tgid);
  if (process.epoch == epoch) return;
  process.epoch = epoch;
  mark(process);
}

void ProcessTable::exit(std::uint32_t tgid, std::uint64_t time) {
  const auto found = processes_.find(tgid);
  if (found == processes_.end() || found->second.exit_time != 0) return;
  found->second.exit_time = std::max<std::uint64_t>(time, 1);
  dead_.push_back({tgid, found->second.exit_time});
  forget_dead(found->second.exit_time);
}

void ProcessTable::forget_dead(std::uint64_t now) {
  while (!dead_.empty() && (dead_.size() > kMaxDead || dead_.front().time + kDeadNs < now)) {
    const auto oldest = processes_.find(dead_.front().tgid);
    // The number may have been given to a new process meanwhile.
    if (oldest != processes_.end() && oldest->second.exit_time == dead_.front().time) processes_.erase(oldest);
    dead_.pop_front();
  }
}

// What the mappings show of it; what is known already stays.
static manager::PublishedCodes open_published(std::uint32_t tgid, std::uint32_t parent,
                                              const std::vector<os::ProcMap>& maps,
                                              const manager::PublishedCodes& known) {
  manager::PublishedCodes codes;
  for (const os::ProcMap& map : maps) {
    if (!manager::shows_published(map)) continue;
    const auto same = std::ranges::find_if(known, [&](const auto& code) { return code->is_of(map); });
    if (same != known.end()) {
      manager::add(codes, *same);
    } else if (auto code = manager::open_published(static_cast<pid_t>(tgid), static_cast<pid_t>(parent), map)) {
      manager::add(codes, std::move(*code));
    }
  }
  // Samples come in some milliseconds old: what was read a moment ago serves the next ones, too.
  constexpr std::uint64_t kMoment = 2'000'000;
  const auto open_memory = [&] { return std::make_shared<os::MemoryFile>(static_cast<pid_t>(tgid), kMoment); };
  const auto open_file = [&](const os::ProcMap& map) {
    return runtimes::open_mapped_file(static_cast<pid_t>(tgid), static_cast<pid_t>(parent), map);
  };
  runtimes::add_runtimes(codes, maps, open_memory, open_file, known);
  return codes;
}

// Where the threads of a process keep their labels, by the files in `contexts` that define OpenTelemetry's variable. A
// program finds that of the file that is mapped first, as a rule; the record's pointer is the same in all of them.
static wl_label_source find_labels(std::uint32_t tgid, const std::vector<os::ProcMap>& maps,
                                   const std::vector<os::FileIdentity>& contexts) {
  const os::MemoryFile memory(static_cast<pid_t>(tgid));
  // Its library is also its loader. One of two names is the file's, by distribution.
  const bool musl = std::ranges::any_of(maps, [](const os::ProcMap& map) {
    return map.path.ends_with("/libc.so") || map.path.find("/ld-musl-") != std::string::npos;
  });
  for (const os::ProcMap& map : maps) {
    const auto is_of = [&](const os::FileIdentity& file) { return map.is_at(map.begin, file); };
    if (map.offset != 0 || std::ranges::none_of(contexts, is_of)) continue;
    if (const auto labels = find_thread_context(memory, map.begin, musl)) return *labels;
  }
  return {};
}

static ProcessTable::CodeLocation location_of(const ProcessTable::Image& image) {
  ProcessTable::CodeLocation location{image.module, image.begin, MappingKind::kFile, true};
  location.thread_slot = image.thread_slot;
  return location;
}

// What /proc says by now; null if it cannot be read.
std::shared_ptr<MapSet> ProcessTable::read_maps(std::uint32_t tgid, std::uint32_t parent, bool& has_pe,
                                                const MapSet& known) {
  std::string text;
  if (!reader_(tgid, text)) return nullptr;
  std::vector<os::ProcMap> all = os::parse_proc_maps(text);
  os::name_moved_text(static_cast<pid_t>(tgid), static_cast<pid_t>(parent), all);
  std::vector<Image> images;
  const auto is_unnamed_code = [](const os::ProcMap& map) { return map.executable && !map.has_file(); };
  if (images_ && std::ranges::any_of(all, is_unnamed_code)) images = images_(tgid, parent, all);
  has_pe = !images.empty();
  auto set = std::make_shared<MapSet>();
  set->set_published(open_published(tgid, parent, all, known.published()));
  std::vector<os::FileIdentity> contexts;
  for (const os::ProcMap& map : all) {
    if (!map.executable || os::shows_jitdump(map)) continue;
    if (set->mappings().size() >= kMaxMappings) {
      ++dropped_mappings_;
      continue;
    }
    const auto image =
        std::ranges::find_if(images, [&](const Image& it) { return map.begin >= it.begin && map.end <= it.end; });
    const CodeLocation placement = image != images.end() ? location_of(*image) : resolver_(tgid, parent, map);
    has_pe |= placement.pe;
    if (placement.thread_context) contexts.push_back(map.file);
    if (placement.goroutines.kind != WL_LABELS_NONE) set->set_labels(placement.goroutines);
    if (placement.thread_slot != 0) set->set_thread_slot(placement.thread_slot);
    set->add(mapping_of(map, placement));
  }
  if (!contexts.empty() && set->labels().kind == WL_LABELS_NONE) set->set_labels(find_labels(tgid, all, contexts));
  if (set->expects_interpreter()) {
    const auto open_memory = [&] { return std::make_shared<os::MemoryFile>(static_cast<pid_t>(tgid)); };
    set->set_interpreters(runtimes::find_interpreters(all, open_memory, known.interpreters()));
  }
  return set;
}

bool ProcessTable::is_current(const Process& process) {
  bool has_pe = false;
  const auto set = read_maps(process.tgid, process.parent, has_pe, *process.maps);
  if (set == nullptr) return true;
  const auto& now = set->mappings();
  return std::ranges::all_of(process.maps->mappings(), [&](const Mapping& known) {
    auto it = std::ranges::upper_bound(now, known.begin, {}, &Mapping::end);
    while (it != now.end() && it->begin < known.end && is_same_code(known, *it)) ++it;
    return it == now.end() || it->begin >= known.end;
  });
}

bool ProcessTable::scan(std::uint32_t tgid, std::uint64_t now) {
  bool has_pe = false;
  const std::shared_ptr<const MapSet> before = get(tgid).maps.share();
  auto set = read_maps(tgid, get(tgid).parent, has_pe, *before);
  if (set == nullptr) return false;
  Process& process = get(tgid);
  for (const Mapping& mapping : set->mappings()) note_passing(process, mapping);
  process.has_pe = has_pe;
  process.scan_due = false;
  process.scan_time = now;
  process.exit_time = 0;
  constexpr std::uint64_t kLoading = 1'000'000'000;
  if (set->expects_interpreter() && set->interpreters().empty() && now < process.changed + kLoading) want_scan(process);
  process.maps.set(std::move(set));
  mark(process);
  return true;
}

const Process* ProcessTable::find(std::uint32_t tgid) const {
  const auto found = processes_.find(tgid);
  return found == processes_.end() ? nullptr : &found->second;
}

void ProcessTable::for_each(const std::function<void(const Process&)>& use) const {
  for (const auto& [tgid, process] : processes_) use(process);
}

void ProcessTable::publish_anew(std::uint32_t tgid) {
  const auto found = processes_.find(tgid);
  if (found == processes_.end() || found->second.exit_time != 0) return;
  MapSet& maps = found->second.maps.writable();
  maps.set_published(manager::PublishedCodes(maps.published()));
  mark(found->second);
}

void ProcessTable::take_dirty(const std::function<void(Process&)>& publish) {
  std::vector<std::uint32_t> dirty;
  dirty.swap(dirty_);
  for (const std::uint32_t tgid : dirty) {
    const auto found = processes_.find(tgid);
    if (found == processes_.end() || !found->second.dirty) continue;
    found->second.dirty = false;
    publish(found->second);
  }
}

std::vector<std::uint32_t> ProcessTable::alive() const {
  std::vector<std::uint32_t> tgids;
  for (const auto& [tgid, process] : processes_)
    if (process.exit_time == 0) tgids.push_back(tgid);
  return tgids;
}

bool ProcessTable::read_proc_maps(std::uint32_t tgid, std::string& text) {
  text = os::read_proc_file(fmt::format("/proc/{}/maps", tgid));
  if (text.empty())
    if (const auto thread = os::living_thread(static_cast<pid_t>(tgid)); thread != static_cast<pid_t>(tgid))
      text = os::read_proc_file(fmt::format("/proc/{}/task/{}/maps", tgid, thread));
  return !text.empty();  // a kernel thread's is empty, a zombie's too
}

std::vector<std::uint32_t> list_processes() {
  const std::vector<pid_t> ids = os::list_ids("/proc");
  return {ids.begin(), ids.end()};
}

}  // namespace windlass::profiler
