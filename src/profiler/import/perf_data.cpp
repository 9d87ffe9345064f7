#include "profiler/import/perf_data.h"

#include <linux/perf_event.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "profiler/import/perf_file.h"
#include "profiler/import/perf_layout.h"
#include "profiler/import/perf_processes.h"
#include "profiler/import/perf_sample_record.h"
#include "profiler/import/perf_unwinder.h"
#include "windlass_ends.h"

namespace windlass::importer {
namespace {

using profile::kNone;

// kernel.perf_event_max_stack, unless somebody changed that.
constexpr std::size_t kMostChain = 127;

bool is_clock(const PerfAttr& attr) {
  return attr.type == PERF_TYPE_SOFTWARE &&
         (attr.config == PERF_COUNT_SW_CPU_CLOCK || attr.config == PERF_COUNT_SW_TASK_CLOCK);
}

std::string name_of(const PerfAttr& attr) {
  if (!attr.name.empty()) return attr.name;
  if (is_clock(attr)) return attr.config == PERF_COUNT_SW_CPU_CLOCK ? "cpu-clock" : "task-clock";
  return fmt::format("event {}:{:#x}", attr.type, attr.config);
}

class PerfDataReader {
 public:
  PerfDataReader(const PerfFile& file, const Limits& limits, const PerfFilePlaces& places)
      : file_(file), builder_(limits), code_(file, builder_, places), unwinder_(code_, processes_) {
    events_.assign(file.attrs.size(), kNone);
  }

  Expected<PerfProfile> read() {
    for (const PerfRecord& record : file_.records) {
      const bool is_sample = record.bytes.at<PerfHeader>(0)->type == kPerfSample;
      const auto done = is_sample ? add_sample(record) : processes_.apply(record.bytes);
      if (!done) return Failure(done.error());
      if (is_sample && record.time != 0) {
        if (first_time_ == 0) first_time_ = record.time;
        last_time_ = record.time;
      }
      builder_.count(unwinder_.take_work());
      if (!builder_.has_room()) break;
    }
    builder_.sort_events([this](std::uint32_t number) {
      return static_cast<std::uint64_t>(std::ranges::find(events_, number) - events_.begin());
    });
    auto profile = builder_.profile();
    if (!profile) return Failure(profile.error());
    PerfProfile result{.profile = std::move(*profile)};
    result.running_kernel = is_running_kernel_;
    keep_used_modules(result.profile);
    add_facts(result);
    return result;
  }

 private:
  std::uint32_t event_of(std::uint32_t attr) {
    if (events_[attr] != kNone) return events_[attr];
    const std::string name = name_of(file_.attrs[attr]);
    return events_[attr] = builder_.event(is_clock(file_.attrs[attr])
                                              ? profile::Event{.name = name}
                                              : profile::Event{.name = name, .unit = "count", .counted = name});
  }

  Expected<void> add_sample(const PerfRecord& record) {
    const auto parsed = parse_perf_sample(file_, record.bytes);
    if (!parsed) return Failure(parsed.error());
    const PerfAttr& attr = file_.attrs[parsed->attr];
    profile::Sample& sample = sample_;
    sample = {.pid = parsed->pid, .tid = parsed->tid};
    sample.event = event_of(parsed->attr);
    const std::uint64_t period = parsed->period                             ? *parsed->period
                                 : (attr.flags & PerfAttr::kFrequency) != 0 ? 1
                                                                            : attr.period;
    sample.count = is_clock(attr) ? 1 : period;
    sample.value = period;
    const std::string& of_thread = processes_.name_of(parsed->tid);
    const std::string& name = of_thread.empty() ? processes_.name_of(parsed->pid) : of_thread;
    if (!name.empty()) sample.comm = builder_.string(name);
    add_kernel(*parsed);
    add_user(*parsed, attr);
    const auto time = record.time != 0 ? std::optional(record.time) : std::nullopt;
    builder_.add(sample, time);
    for (const PerfReadValue& member : parsed->group) add_member(parsed->attr, member, time);
    return {};
  }

  // Of `perf record -e '{a,b}:S'`: only the leader `a` takes samples, each with what the others have counted so far.
  void add_member(std::uint32_t leader, const PerfReadValue& member, std::optional<std::uint64_t> time) {
    const std::uint32_t attr = attr_of(file_, member.id);
    if (attr == leader) return;
    const std::uint64_t before = std::exchange(counted_[member.id], member.value);
    if (member.value <= before) return;
    sample_.event = event_of(attr);
    sample_.value = member.value - before;
    sample_.count = is_clock(file_.attrs[attr]) ? 1 : sample_.value;
    builder_.add(sample_, time);
  }

  void add_kernel(const PerfSampleRecord& parsed) {
    bool is_return = false;
    for (const std::uint64_t address : parsed.kernel) {
      sample_.locations.push_back(builder_.location(code_.kernel(), address - (is_return ? 1 : 0)));
      is_return = true;
    }
    if (!parsed.kernel.empty() && !asked_kernel_) {
      asked_kernel_ = true;
      is_running_kernel_ = code_.is_running_kernel(processes_.kernel_text());
    }
  }

  void add_user(const PerfSampleRecord& parsed, const PerfAttr& attr) {
    const bool has_chain = (attr.sample_type & kSampleCallchain) != 0;
    if (parsed.registers && is_running_kernel_ && code_.were_writing(parsed.kernel)) {
      add_frame(parsed.pid, parsed.registers->pc());
      sample_.end = WL_END_REGISTER_LOST;
      sample_.certainty = WL_DESCRIBED;
      return;
    }
    if (parsed.registers) {
      const PerfStack stack = unwinder_.unwind(parsed);
      for (const CodeAddress frame : stack.frames) add_frame(parsed.pid, frame);
      sample_.end = stack.end;
      sample_.certainty = stack.certainty;
      return;
    }
    std::vector<CodeAddress> frames;
    for (const std::uint64_t address : parsed.user)
      frames.push_back(frames.empty() ? CodeAddress::instruction(address) : CodeAddress::return_address(address));
    if (!parsed.branches.empty()) {
      frames.resize(std::min<std::size_t>(frames.size(), 1));
      for (const std::uint64_t call : parsed.branches) frames.push_back(CodeAddress::instruction(call));
    }
    for (const CodeAddress frame : frames) add_frame(parsed.pid, frame);
    if (frames.empty()) {
      sample_.end = has_chain ? WL_END_KERNEL_ONLY : WL_END_DEPTH;
      return;
    }
    sample_.certainty = WL_CHAINED;
    if (!has_chain) {
      sample_.certainty = WL_DESCRIBED;
      sample_.end = WL_END_DEPTH;  // no call graph was recorded
    } else if (unwinder_.proves_end(parsed.pid, frames.back())) {
      sample_.end = WL_END_CHAINED;
    } else {
      const bool is_full = !parsed.branches.empty() || parsed.kernel.size() + parsed.user.size() >= kMostChain;
      sample_.end = is_full ? WL_END_DEPTH : WL_END_BAD_FRAME_POINTER;
    }
  }

  void add_frame(std::uint32_t pid, CodeAddress frame) {
    const PerfProcesses::Process* process = processes_.find(pid);
    const PerfMapping* mapping = process == nullptr ? nullptr : PerfProcesses::mapping_at(*process, frame.lookup());
    if (mapping == nullptr) {
      sample_.locations.push_back(builder_.location(kNone, frame.lookup()));
      return;
    }
    const PerfCodeFile& file = code_.of(*mapping, processes_, pid);
    sample_.locations.push_back(builder_.location(file.module, frame.lookup() - file.bias_of(*mapping)));
  }

  // Processes have many files mapped that no sample is in.
  static void keep_used_modules(profile::Profile& profile) {
    std::vector<std::uint32_t> numbers(profile.modules.size(), kNone);
    std::vector<profile::Module> used;
    for (profile::Location& location : profile.locations) {
      if (location.module == kNone) continue;
      std::uint32_t& number = numbers[location.module];
      if (number == kNone) {
        number = static_cast<std::uint32_t>(used.size());
        used.push_back(std::move(profile.modules[location.module]));
      }
      location.module = number;
    }
    profile.modules = std::move(used);
  }

  void add_facts(PerfProfile& result) const {
    profile::Profile& profile = result.profile;
    profile.lost = processes_.lost();
    profile.duration_ns = last_time_ - first_time_;
    if (!file_.command.empty()) profile.comments.push_back(file_.command);
    if (!file_.host.empty() || !file_.release.empty())
      profile.comments.push_back(fmt::format("recorded on {} {}", file_.host, file_.release));
    for (const profile::Module& module : profile.modules)
      if (!module.is_kernel && module.pid == 0 && module.open_path.empty() && module.path != "[vdso]")
        result.notes.push_back(fmt::format("{}: not here, or not the file that was mapped", module.path));
    if (asked_kernel_ && !is_running_kernel_)
      result.notes.emplace_back("[kernel]: not the one that runs here, so its functions have no names");
    if (!architecture_of(file_))
      result.notes.push_back(
          fmt::format("stacks of {} are not unwound: only those of x86_64 and aarch64", file_.machine));
  }

  const PerfFile& file_;
  ProfileBuilder builder_;
  PerfProcesses processes_;
  PerfCode code_;
  PerfUnwinder unwinder_;
  std::vector<std::uint32_t> events_;                         // of each attribute; kNone: no sample yet
  std::unordered_map<std::uint64_t, std::uint64_t> counted_;  // by members of groups so far, by id
  profile::Sample sample_;                                    // at hand
  std::uint64_t first_time_ = 0, last_time_ = 0;
  bool asked_kernel_ = false, is_running_kernel_ = false;
};

}  // namespace

Expected<PerfProfile> read_perf_data(ByteView bytes, const Limits& limits, const PerfFilePlaces& places) {
  const auto file = read_perf_file(bytes, limits);
  if (!file) return Failure(file.error());
  return PerfDataReader(*file, limits, places).read();
}

}  // namespace windlass::importer
