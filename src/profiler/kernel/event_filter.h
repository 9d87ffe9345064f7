// The filter of a tracepoint's event, as people write it: `prev_prio < 100 && !(next_comm == "make")`. It becomes
// conditions that the kernel side looks at (bpf/windlass_condition_layout.h).
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "windlass_condition_layout.h"

namespace windlass::profiler {

// A field of a tracepoint's record. `kind` is missing where a filter can do nothing with it: an array of numbers, and
// the common fields, which BPF programs do not see.
struct RecordField {
  std::string name;
  std::uint16_t offset = 0;
  std::uint16_t size = 0;
  std::optional<wl_field_kind> kind{};
};

// `format`: a file `format` below /sys/kernel/tracing/events (Documentation/trace/events.rst of Linux, section 4).
// Lines of other forms are left out.
[[nodiscard]] std::vector<RecordField> record_fields(std::string_view format);

// The language is that of the kernel's own filters (section 5 there) without `~`: numbers with == != < <= > >= &, texts
// with == !=, && before ||, ! in front of parentheses. An error says what is wrong and where, with a way out. Linear in
// the length of the text.
[[nodiscard]] std::expected<wl_conditions, std::string> compile_event_filter(std::string_view text,
                                                                             const std::vector<RecordField>& fields);

// The file `format` of a tracepoint of this kernel; empty if there is none, or tracefs is not mounted.
[[nodiscard]] std::string tracepoint_format(const std::string& category, const std::string& point);

}  // namespace windlass::profiler
