// Which source the samples of a recording come from: BPF programs, or, where this user may not load any, perf events of
// the user's own processes.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <string>

#include "profiler/doctor/system_facts.h"
#include "profiler/kernel/kernel_side.h"
#include "profiler/processes/process_events.h"
#include "profiler/processes/targets.h"
#include "profiler/samples/perf_sampler.h"

namespace windlass::profiler {

struct OpenedSource {
  std::unique_ptr<SampleSource> samples;
  KernelSide* kernel = nullptr;  // the same, if it is the BPF programs: it wants tables
  // What a recording cannot show because BPF was refused, and the refusal; empty with BPF.
  std::string limits, refusal;
};

// `options`: all but what is to be sampled, which `targets` and `facts` say. With BPF, `process_events` is opened, too;
// perf events bring their own, which go to `sink` while they are polled.
[[nodiscard]] std::expected<OpenedSource, SystemError> open_source(KernelSideOptions options, const Targets& targets,
                                                                   const SystemFacts& facts,
                                                                   ProcessEventSource& process_events,
                                                                   PerfSampler::ProcessSink sink);

}  // namespace windlass::profiler
