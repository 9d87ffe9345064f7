#include "cli/record_output.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "profiler/doctor/no_allocations.h"
#include "profiler/export/numbers.h"
#include "profiler/export/pprof.h"

namespace windlass::cli {
namespace {

using exporter::grouped;

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return part == whole ? "100%" : fmt::format("{:.2f}%", exporter::percent(part, whole));
}

// How many samples rest on what, by their least certain frame; nothing where unwind information described all.
void print_certainty(const profile::Profile& profile) {
  std::uint64_t samples[WL_CERTAINTY_COUNT] = {}, total = 0;
  for (const profile::Sample& sample : profile.samples) {
    samples[sample.certainty] += sample.count;
    total += sample.count;
  }
  if (samples[WL_DESCRIBED] == total) return;
  std::string shares;
  for (std::uint8_t certainty = 0; certainty < WL_CERTAINTY_COUNT; ++certainty)
    if (samples[certainty] != 0)
      shares += fmt::format("{}{} {}", shares.empty() ? "" : ", ", percent(samples[certainty], total),
                            profile::certainty_text(certainty));
  say("  least certain frame: {}\n", shares);
}

}  // namespace

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::begin(const std::string& text) {
  if (terminal_)
    note(text);
  else
    say("windlass: {}\n", text);
}

void ProgressLine::show(const profiler::RecordingProgress& progress) {
  if (!terminal_ && progress.seconds < next_plain_) return;
  const std::string line =
      fmt::format("{:.1f} s  {} samples  {} complete  {} lost", progress.seconds, grouped(progress.samples),
                  percent(progress.complete, progress.samples), grouped(progress.lost)) +
      (progress.has_cut ? "  no room for more stacks" : "");
  if (terminal_) return note(line);
  say("windlass: {}\n", line);
  while (next_plain_ <= progress.seconds) next_plain_ += kPlainInterval;
}

void ProgressLine::note(const std::string& text) {
  if (!terminal_) return;
  say_text("\r\033[K" + shown(text));
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

ProfileFile::ProfileFile(const std::string& path) : path_(path), name_(path) {
  if (path != "-") return;
  name_ = "standard output";
  descriptor_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  dup2(STDERR_FILENO, STDOUT_FILENO);
}

bool ProfileFile::replaceable() const {
  struct stat status {};
  return descriptor_ < 0 && (stat(path_.c_str(), &status) != 0 || S_ISREG(status.st_mode));
}

std::expected<void, std::string> ProfileFile::check() const {
  const auto refused = [this](const char* reason) {
    return std::unexpected(fmt::format("cannot write {}: {}", name_, reason));
  };
  if (descriptor_ >= 0) {
    if (isatty(descriptor_) == 1) return refused("a terminal cannot show a profile");
    return {};
  }
  if (path_.empty()) return std::unexpected("cannot write the profile: the name of its file is empty");
  if (struct stat status{}; stat(path_.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    return refused(std::strerror(EISDIR));
  if (!replaceable()) {
    if (access(path_.c_str(), W_OK) != 0) return refused(std::strerror(errno));
    return {};
  }
  if (access(path_.c_str(), F_OK) == 0 && access(path_.c_str(), W_OK) != 0) return refused(std::strerror(errno));
  const std::string probe = fmt::format("{}.{}", path_, getpid());
  const int fd = open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return refused(std::strerror(errno));
  close(fd);
  unlink(probe.c_str());
  return {};
}

Expected<void> ProfileFile::write(const profile::Profile& profile, const std::atomic<bool>* given_up) const {
  if (descriptor_ < 0) return exporter::write_pprof_file(profile, path_, given_up);
  TextWriter out(descriptor_);
  return exporter::write_pprof(profile, out, given_up);
}

// Of what processes say of the code that they make.
static void print_problems(const profiler::ProcessTable& processes) {
  processes.for_each([](const profiler::Process& process) {
    for (const auto& code : process.maps->published())
      if (const auto problem = code->problem())
        say("  what process {} says of its code: {}\n", process.tgid, problem->text());
  });
}

static std::string truncated_where(profiler::Recorder& recorder, const profiler::Aggregator::Truncation& entry) {
  using In = profiler::Aggregator::TruncatedIn;
  const profiler::CodeFile* file = entry.in == In::kFile ? recorder.modules().find(entry.module) : nullptr;
  switch (entry.in) {
    case In::kFile: return file != nullptr ? "in " + file->path : "in a file";
    case In::kKernel: return "in the kernel";
    case In::kGenerated: return "in code without a file";
    case In::kUnmapped: return "in memory that is not mapped";
    case In::kWaker: return "in the waker";
    case In::kNothing: return "without a frame";
  }
  return "";
}

// Of the stacks without their outermost frames: how many, and in which files they end.
static void print_truncated(profiler::Recorder& recorder, const std::map<std::uint8_t, std::uint64_t>& truncated,
                            std::size_t most_files) {
  const auto where = recorder.truncations();
  for (const auto& [end, count] : truncated) {
    std::string modules;
    std::size_t named = 0;
    for (const auto& entry : where) {
      if (entry.end != end || named == most_files) continue;
      modules +=
          fmt::format("{}{} {}", named++ == 0 ? ": " : ", ", grouped(entry.count), truncated_where(recorder, entry));
    }
    say("  {} truncated, {}{}\n", grouped(count), profile::end_text(end), modules);
  }
}

static void print_details(profiler::Recorder& recorder) {
  const auto kernel = recorder.kernel_stats();
  const auto tables = recorder.modules().totals();
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  say("  kernel: {} repeats counted, {} new stacks, {} unwound by the agent ({} bytes), {} refused\n",
      grouped(kernel.counted), grouped(kernel.stack_events), grouped(kernel.raw_events), grouped(kernel.raw_bytes),
      grouped(kernel.raw_refused));
  if (kernel.lost_times != 0) say("    {} times lost\n", grouped(kernel.lost_times));
  if (kernel.waits + kernel.short_waits + kernel.lost_waits != 0)
    say("    {} waits, {} shorter ones, {} lost\n", grouped(kernel.waits), grouped(kernel.short_waits),
        grouped(kernel.lost_waits));
  if (kernel.run_time_ns != 0)  // sysctl kernel.bpf_stats_enabled
    say("    {:.3f} s in the sampler, {} ns a sample\n", static_cast<double>(kernel.run_time_ns) * 1e-9,
        grouped(kernel.run_time_ns / std::max<std::uint64_t>(kernel.samples - kernel.other_processes, 1)));
  if (kernel.managed_stacks != 0) say("    {} stacks by the tables of code managers\n", grouped(kernel.managed_stacks));
  if (kernel.learned_stacks != 0)
    say("    {} stacks with frames of managed runtimes\n", grouped(kernel.learned_stacks));
  for (unsigned end = 0; end < WL_END_COUNT; ++end)
    if (kernel.ends[end] != 0)
      say("    {}: {}\n", profile::end_text(static_cast<std::uint8_t>(end)), grouped(kernel.ends[end]));
  const walk::CodeMemo& memo = recorder.unwinder().memo();
  if (memo.followed() != 0)
    say("  code without rows: followed {} times, known {} times\n", grouped(memo.followed()), grouped(memo.kept()));
  say("  tables: {} of {} files, {} rows, {} bytes, {:.2f} CPU seconds\n", tables.tables, tables.files,
      grouped(tables.rows), grouped(tables.bytes), tables.compile_seconds);
  if (const profiler::TableCache* cache = recorder.table_cache()) {
    const auto counts = cache->counts();
    say("    {} of them from other recordings, {} kept for the next ones, {} refused{}\n", tables.from_cache,
        counts.kept, counts.refused,
        counts.error != 0 ? fmt::format("; writing: {}", std::strerror(counts.error)) : "");
  } else if (!recorder.tables_kept_nowhere().empty()) {
    say("    {}\n", recorder.tables_kept_nowhere());
  }
  if (tables.from_memory != 0) say("    {} of files that may not be opened, from memory\n", tables.from_memory);
  say("  processes: {}, looked up again in /proc: {}\n", recorder.processes().size(), recorder.rescans());
  say("  agent: {:.2f} s user, {:.2f} s system, {} KiB at most\n", seconds(used.ru_utime), seconds(used.ru_stime),
      used.ru_maxrss);
  for (const auto& failure : recorder.modules().failures())
    say("  no table for {}: {}\n", failure.path, failure.reason);
}

static void print_managed_heaps(const profiler::Recorder& recorder, const profile::Profile& profile) {
  std::set<std::string_view> languages;
  if (const auto& command = recorder.options().command; !command.empty())
    languages.insert(profiler::managed_heap_of(profiler::find_command(command.front())));
  for (const profile::Module& module : profile.modules) languages.insert(profiler::managed_heap_of(module.path));
  languages.erase(std::string_view());
  for (const std::string_view language : languages)
    say("  the heap of {} is not in these values: its objects are not from malloc()\n", language);
}

// What is not in the sums of allocations.
static void print_allocations(const profiler::Recorder& recorder, const profile::Profile& profile) {
  const auto stats = recorder.allocation_stats();
  if (!stats) return;
  print_managed_heaps(recorder, profile);
  if (stats->processes == 0) {
    const std::string& command = recorder.options().command.front();
    const auto obstacle = profiler::preload_obstacle(profiler::find_command(command));
    say("  no allocations: {} did not call libwindlass_alloc.so: {}\n", command,
        obstacle ? obstacle->text : "it may have an allocator of its own, or a loader that preloads nothing");
  }
  if (stats->lost != 0)
    say("  {} samples of allocations lost: there were too many different stacks. Way out: fewer samples, --alloc=4M\n",
        grouped(stats->lost));
  if (stats->unfollowed != 0)
    say("  {} samples of allocations count as freed at once: there were too many blocks. Way out: fewer samples, "
        "--alloc=4M\n",
        grouped(stats->unfollowed));
  if (stats->malformed != 0)
    say("  {} stacks of allocations left out: a program has overwritten what it shares with the recording\n",
        grouped(stats->malformed));
}

// The samples that have no time, of the events that have some.
static void print_times(const profiler::Recorder& recorder, const profile::Profile& profile) {
  const profiler::TimeLine* times = recorder.times();
  if (times == nullptr) return;
  std::uint64_t samples = 0, timed = 0;
  for (const profile::Sample& sample : profile.samples) {
    const std::uint64_t per_time = profile.events[sample.event].per_time;
    if (per_time == 0) continue;
    samples += sample.count;
    timed += sample.times * per_time;
  }
  if (samples == timed) return;
  if (times->given_up() == 0)
    say("  {} of {} samples have no time\n", grouped(samples - timed), grouped(samples));
  else
    say("  {} of {} samples have no time: those before {:.1f} s were given up. Way out: more memory, --timeline=256M\n",
        grouped(samples - timed), grouped(samples), recorder.seconds_since_start(times->first_kept()));
}

static void print_lost(const profiler::Recorder& recorder, const profile::Profile& profile) {
  if (profile.lost == 0 || recorder.limits().empty()) return;
  say("  samples are lost while a ring of perf events is full. Way out: a lower -F, EVENT@N with a larger N, or sysctl "
      "kernel.perf_event_mlock_kb=4096\n");
}

static void print_cut(const std::map<std::uint8_t, std::uint64_t>& truncated, std::uint64_t total) {
  const auto cut = truncated.find(WL_END_NO_ROOM);
  if (cut == truncated.end()) return;
  say("  {} of {} samples have their innermost function alone: there were too many different stacks. "
      "Way out: a shorter recording, or a lower -F\n",
      grouped(cut->second), grouped(total));
}

static void print_lowered(const profiler::Recorder& recorder) {
  if (const std::string lowered = recorder.lowered_text(); !lowered.empty())
    say("  {}: a sample of that time counts for those left out, too. Way out: a lower -F\n", lowered);
}

static void print_refused_sampler(const profiler::Recorder& recorder) {
  if (const int refusal = recorder.kernel_stats().sampler_refusal; refusal != 0)
    say("  the agent has unwound all samples, as the kernel refused the program that does ({}). Way out: windlass "
        "doctor "
        "-v says why\n",
        std::strerror(refusal));
}

static void print_missing_labels(const profiler::Recorder& recorder) {
  const profiler::Recorder::MissingLabels missing = recorder.missing_labels();
  if (missing.too_many)
    say("  more than {} different sets of labels: some samples lack theirs. Way out: --thread-labels none, or --labels "
        "none\n",
        grouped(profiler::ProcessLabelSets::kMostSets));
  if (missing.of_threads != 0)
    say("  the labels of threads are lost of {} stacks. Way out: a lower -F\n", grouped(missing.of_threads));
}

void print_summary(profiler::Recorder& recorder, const profile::Profile& profile, bool verbose) {
  const exporter::Totals totals = exporter::totals_of(profile, {0, true});
  const std::uint64_t total = totals.samples, complete = total - totals.truncated - totals.chained;
  std::map<std::uint8_t, std::uint64_t> truncated;
  for (const profile::Sample& sample : profile.samples)
    if (profile::is_truncated(sample.end)) truncated[sample.end] += sample.count;
  const double elapsed = static_cast<double>(profile.duration_ns) * 1e-9;
  if (total == 0)
    say("windlass: {}\n", profiler::explain_no_samples(recorder.no_samples()));
  else
    say("windlass: {} {} in {:.1f} s, {} with complete stacks, {}{} lost{}\n", grouped(total),
        name_of(profile, {0, true}), elapsed, percent(complete, total),
        totals.chained == 0 ? "" : percent(totals.chained, total) + " chained by frame pointers, ",
        grouped(profile.lost), recorder.limits().empty() ? "" : "; " + recorder.limits());
  for (std::uint32_t event = 1; event < profile.events.size(); ++event) {
    const profile::ValueType type = shown_of(profile, event);
    say("  {}\n", exporter::summary_line(profile, type, exporter::totals_of(profile, type)));
  }
  print_allocations(recorder, profile);
  print_times(recorder, profile);
  print_lost(recorder, profile);
  print_cut(truncated, total);
  print_lowered(recorder);
  print_refused_sampler(recorder);
  print_missing_labels(recorder);
  print_certainty(profile);
  print_problems(recorder.processes());
  print_truncated(recorder, truncated, verbose ? 8 : 2);
  if (verbose) print_details(recorder);
}

void print_names(const symbols::SymbolizeStats& named) {
  if (named.addresses == 0) return;
  say("  names: of {} addresses, {} have one; {} were looked up while recording\n", grouped(named.addresses),
      grouped(named.named), grouped(named.ahead));
}

}  // namespace windlass::cli
