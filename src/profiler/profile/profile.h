// A profile in memory: what the agent collects, what symbolisation completes, what every exporter writes.
// Indexes are into the vectors of Profile; strings are owned here once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "windlass_ends.h"

namespace windlass::profile {

inline constexpr std::uint32_t kNone = 0xffffffff;

// A file (or kernel, vdso, anonymous memory) that code was mapped from.
struct Module {
  std::string path;  // as the process saw it; "[kernel]", "[vdso]", "[anon]"
  // Where symbolisation can open it after sampling: /proc/PID/root/..., map_files, or /proc/self/fd/N of a descriptor
  // kept open, which outlives the process. Empty: `path` is tried, and used only if its build id agrees.
  std::string open_path{};
  std::string build_id{};  // lower-case hex, empty if unknown
  // One executable mapping, in the numbering of Location::address (bias taken off); for pprof.
  std::uint64_t begin = 0, end = 0, file_offset = 0;
  std::uint32_t pid = 0;  // "[anon]" only: the process it belongs to (/tmp/perf-PID.map names its code); 0 = shared
  bool is_kernel = false;
};

struct Function {
  std::string name;           // demangled, with parameters; "name@plt" for a linkage stub
  std::string system_name{};  // as in the symbol table; equal to `name` if it was not mangled
  std::string file{};         // source file of the lines that name this function
  std::uint32_t start_line = 0;
};

struct Line {
  std::uint32_t function = kNone;
  std::uint32_t line = 0;
};

// One code address. `address` is relative to the module as its ELF file numbers it (bias taken off); for kernel and
// anonymous memory it is absolute. For a return address it is the return address - 1, so that it names the call.
struct Location {
  std::uint32_t module = kNone;
  std::uint64_t address = 0;
  std::vector<Line> lines{};         // innermost inlined function first; empty until symbolised or when unknown
  bool interpreted = false;          // `lines` begins with what an interpreter's evaluator, which is here, ran
  std::uint64_t function_begin = 0;  // of the symbol that names it, else by the unwind information; 0: unknown
};

struct Sample {
  std::vector<std::uint32_t> locations{};  // innermost first, kernel frames before user frames
  std::uint64_t count = 0;
  std::uint32_t pid = 0, tid = 0;
  std::uint32_t comm = kNone;  // index into Profile::strings
  std::uint8_t end = 0;        // wl_end: complete, or why truncated
  std::uint8_t certainty = 0;  // wl_certainty of its least certain frame
};

struct Profile {
  std::vector<std::string> strings;
  std::vector<Module> modules;
  std::vector<Function> functions;
  std::vector<Location> locations;
  std::vector<Sample> samples;

  std::uint64_t period_ns = 0;  // CPU time between two samples of a CPU
  std::uint64_t start_unix_ns = 0;
  std::uint64_t duration_ns = 0;
  std::uint64_t lost = 0;             // samples the ring buffer had no room for
  std::vector<std::string> comments;  // how it was recorded, for people
};

// Text of a wl_end; "unknown" for a number this build does not know.
[[nodiscard]] constexpr const char* end_text(std::uint8_t end) {
  constexpr const char* kTexts[] = {
#define WL_END_TEXT(name, text) text,
      WL_ENDS(WL_END_TEXT)
#undef WL_END_TEXT
  };
  return end < WL_END_COUNT ? kTexts[end] : "unknown";
}

// Text of a wl_certainty; "unknown" for a number this build does not know.
[[nodiscard]] constexpr const char* certainty_text(std::uint8_t certainty) {
  constexpr const char* kTexts[] = {
#define WL_CERTAINTY_TEXT(name, text) text,
      WL_CERTAINTIES(WL_CERTAINTY_TEXT)
#undef WL_CERTAINTY_TEXT
  };
  return certainty < WL_CERTAINTY_COUNT ? kTexts[certainty] : "unknown";
}

// Proven to have all its callers. A kernel thread's stack is whole without a user part.
[[nodiscard]] constexpr bool is_whole(std::uint8_t end) { return end == WL_END_COMPLETE || end == WL_END_KERNEL_ONLY; }
// Has all its callers as far as frame pointers say, and nothing proves some of them.
[[nodiscard]] constexpr bool is_chained(std::uint8_t end) { return end == WL_END_CHAINED; }
// Every other end lost callers.
[[nodiscard]] constexpr bool is_truncated(std::uint8_t end) { return !is_whole(end) && !is_chained(end); }

}  // namespace windlass::profile
