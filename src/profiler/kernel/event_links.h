// Programs attached to what events happen at: tracepoints and places in code.
#pragma once

#include <cstdint>
#include <expected>
#include <vector>

#include "profiler/kernel/event_specs.h"

struct bpf_link;
struct bpf_program;

namespace windlass::profiler {

// From here on `program` runs at each event of `event`, a tracepoint or a probe, and finds `number` as its cookie. The
// links are added to `links`, also some of them before an error, which is an errno.
[[nodiscard]] std::expected<void, int> attach_event(const bpf_program& program, const EventSpec& event,
                                                    std::uint64_t number, std::vector<bpf_link*>& links);

}  // namespace windlass::profiler
