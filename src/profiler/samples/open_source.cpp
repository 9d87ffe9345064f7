#include "profiler/samples/open_source.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "profiler/doctor/kernel_errors.h"

namespace windlass::profiler {
namespace {

std::expected<OpenedSource, SystemError> open_own_events(const KernelSideOptions& options, const Targets& targets,
                                                         PerfSampler::ProcessSink sink, SystemError&& why) {
  auto sampler = PerfSampler::open(
      {.frequency = options.frequency, .events = options.events, .timeline = options.timeline, .held = options.held},
      targets.chosen(), std::move(sink));
  if (!sampler) {
    why.text += fmt::format(". Without BPF it fails, too: {}", sampler.error().text);
    return std::unexpected(std::move(why));
  }
  OpenedSource opened;
  opened.limits = fmt::format("by perf events: user space only, up to {} KiB of each stack",
                              ((*sampler)->stack_bytes() + 1023) / 1024);
  opened.refusal = std::move(why.text);
  opened.samples = std::move(*sampler);
  return opened;
}

// What of a recording needs BPF programs; empty: nothing. Both off-cpu and context-switches are the kernel's event of a
// switch. Linux gives the samples of two such events the id of one (perf_sample_data.sample_flags), as 6.18 does.
std::string needs_programs(const KernelSideOptions& options) {
  if (options.filters.used != 0) return "a choice of threads";
  if (options.allocations) return "allocations of a process that runs already";
  for (const EventSpec& spec : options.events)
    if (!is_plain_event(spec))
      return spec.kind == EventKind::kWait ? "--wakers" : fmt::format("the event {}", spec.name);
  const auto has = [&](std::string_view name) {
    return std::ranges::find(options.events, name, &EventSpec::name) != options.events.end();
  };
  return has(kWaitEvent) && has("context-switches") ? "off-cpu together with context-switches" : "";
}

}  // namespace

std::expected<OpenedSource, SystemError> open_source(KernelSideOptions options, const Targets& targets,
                                                     const SystemFacts& facts, ProcessEventSource& process_events,
                                                     PerfSampler::ProcessSink sink) {
  if (facts.child_pid_namespace()) options.pid_namespace = facts.pid_namespace;
  options.all_processes = targets.everything();
  options.targets = targets.chosen();
  auto kernel = KernelSide::open(options);
  if (!kernel) {
    SystemError& error = kernel.error();
    if (error.kind == RefusalKind::kPrivilege) {
      const std::string wanting = needs_programs(options);
      if (!wanting.empty()) {
        error.text = fmt::format("{} can only be recorded with BPF: {}", wanting, error.text);
        return std::unexpected(std::move(error));
      }
    }
    if (error.kind == RefusalKind::kPrivilege && !targets.everything())
      return open_own_events(options, targets, std::move(sink), std::move(error));
    if (error.kind == RefusalKind::kPrivilege && facts.perf_event_paranoid.value_or(3) <= 2)
      error.text += ". Processes of your own can be recorded as it is: record -- CMD, or -p PID";
    return std::unexpected(std::move(error));
  }
  if (const auto events = process_events.open(); !events) {
    const int error = static_cast<int>(events.error().detail);
    return std::unexpected(events.error().what == ProcessEventSource::kMappingRing
                               ? explain_perf_ring_error(error)
                               : explain_perf_error(error, options.frequency));
  }
  OpenedSource opened;
  opened.kernel = kernel->get();
  opened.samples = std::move(*kernel);
  return opened;
}

}  // namespace windlass::profiler
