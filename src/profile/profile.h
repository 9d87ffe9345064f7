// A profile in memory: what the agent collects, what symbolisation completes, what every exporter writes.
// Indexes are into the vectors of Profile; strings are owned here once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace windlass::profile {

inline constexpr std::uint32_t kNone = 0xffffffff;

// A file (or kernel, vdso, anonymous memory) that code was mapped from.
struct Module {
  std::string path;       // as the process saw it; "[kernel]", "[vdso]", "[anon]"
  std::string open_path;  // where the agent can open it (/proc/PID/root/..., map_files); empty = nowhere
  std::string build_id;   // lower-case hex, empty if unknown
  std::uint64_t begin = 0, end = 0, file_offset = 0;  // one mapping of it, for pprof
  bool is_kernel = false;
};

struct Function {
  std::string name;         // demangled
  std::string system_name;  // as in the symbol table
  std::string file;
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
  std::vector<Line> lines;  // innermost inlined function first; empty until symbolised or when unknown
};

struct Sample {
  std::vector<std::uint32_t> locations;  // innermost first, kernel frames before user frames
  std::uint64_t count = 0;
  std::uint32_t pid = 0, tid = 0;
  std::uint32_t comm = kNone;  // index into Profile::strings
  std::uint8_t end = 0;        // wl_end: complete, or why truncated
};

struct Profile {
  std::vector<std::string> strings;
  std::vector<Module> modules;
  std::vector<Function> functions;
  std::vector<Location> locations;
  std::vector<Sample> samples;

  std::uint64_t period_ns = 0;    // CPU time between two samples of a CPU
  std::uint64_t start_unix_ns = 0;
  std::uint64_t duration_ns = 0;
  std::uint64_t lost = 0;         // samples the ring buffer had no room for
  std::vector<std::string> comments;  // how it was recorded, for people
};

}  // namespace windlass::profile
