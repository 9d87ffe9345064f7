// Names for the addresses of a profile, after sampling: functions, inlined frames, files and lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::symbols {

class KernelSymbolsAhead;

struct SymbolizeOptions {
  unsigned threads = 0;  // modules worked on at a time; 0 = one a CPU
  bool lines = true;     // inlined frames, files and lines from DWARF; false: symbol tables only
  std::string kallsyms = "/proc/kallsyms";
  KernelSymbolsAhead* kernel = nullptr;     // what was read of it before; null: nothing
  std::string perf_map_directory = "/tmp";  // of perf-PID.map
  std::string debug_directory{};            // searched before the system's (for the .build-id layout); empty = none
};

struct SymbolizeStats {
  std::uint64_t addresses = 0;     // distinct (module, address) pairs
  std::uint64_t named = 0;         // of these, with at least one function
  std::uint64_t with_lines = 0;    // of these, with a source line
  std::uint64_t modules = 0;       // modules with at least one address
  std::uint64_t opened = 0;        // of these, files that could be opened
  double seconds = 0;              // wall time
  std::vector<std::string> notes;  // what could not be read and why, for people; one a module at most
};

// Fills Location::lines and Profile::functions. Locations that already have lines are left alone. An address is named
// only by a symbol or debug entry whose range contains it; otherwise its lines stay empty and exporters print
// "module+0xoffset", where offset is the start of its function if the unwind information has it (one frame a function).
// Separate debug files are found by build id and .gnu_debuglink under /usr/lib/debug, and asked of debuginfod servers
// if DEBUGINFOD_URLS is set. Work is done once a distinct address, modules in parallel. Throws nothing; what cannot be
// read stays unnamed and is noted. Not to be called on one Profile from two threads.
SymbolizeStats symbolize(profile::Profile& profile, const SymbolizeOptions& options = {}) noexcept;

// C++ (Itanium), Rust (legacy and v0) and D names to readable ones, Rust hashes dropped; anything else as it is.
[[nodiscard]] std::string demangle(const char* name);

}  // namespace windlass::symbols
