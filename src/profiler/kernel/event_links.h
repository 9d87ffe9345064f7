// Programs attached to what events happen at: tracepoints and places in code.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "profiler/kernel/event_specs.h"

struct bpf_link;
struct bpf_program;

namespace windlass::profiler {

// At a place in a file, by its offset, in the process `pid` or in all (-1). `number`: the program's cookie.
// `semaphore`: the offset of a static probe's, or 0; kernels before 4.20 refuse others. Null and errno if it cannot.
[[nodiscard]] bpf_link* attach_uprobe(const bpf_program& program, int pid, const std::string& file,
                                      std::uint64_t offset, std::uint64_t semaphore, std::uint64_t number);

// From here on `program` runs at each event of `event`, a tracepoint or a probe, and finds `number` as its cookie. The
// links are added to `links`, also some of them before an error, which is an errno.
[[nodiscard]] std::expected<void, int> attach_event(const bpf_program& program, const EventSpec& event,
                                                    std::uint64_t number, std::vector<bpf_link*>& links);

}  // namespace windlass::profiler
