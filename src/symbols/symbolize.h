// Names for the addresses of a profile, after sampling: functions, inlined frames, files and lines.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::symbols {

class KernelSymbolsAhead;
class ModuleNames;
class NamesAhead;

// Names from symbol files (symbol_files.h). Any number of threads may ask.
class SymbolFileNames {
 public:
  virtual ~SymbolFileNames() = default;
  // There is a file for this build id; or one that cannot be read, of which name() has a note.
  [[nodiscard]] virtual bool has(const std::string& build_id) = 0;
  // As ModuleSymbols::name().
  virtual void name(const profile::Module& module, std::span<const std::uint64_t> addresses, ModuleNames& names) = 0;
};

struct SymbolizeOptions {
  unsigned threads = 0;  // modules worked on at a time; 0 = one a CPU
  bool lines = true;     // inlined frames, files and lines from DWARF; false: symbol tables only
  std::string kallsyms = "/proc/kallsyms";
  KernelSymbolsAhead* kernel = nullptr;     // what was read of it before; null: nothing
  NamesAhead* ahead = nullptr;              // what was named before, with the same options; null: nothing
  std::string perf_map_directory = "/tmp";  // of perf-PID.map
  std::string debug_directory{};            // searched before the system's (for the .build-id layout); empty = none
  std::vector<std::string> pdb_files{};     // tried for each PE image, before those beside it
  std::string symbol_path{};                // folders of PDB files, as in _NT_SYMBOL_PATH; empty = that
  SymbolFileNames* symbol_files = nullptr;  // asked before the module's own file; null: none
  // Symbol files alone are asked. Locations with names get better ones if none of these has a source line.
  bool late = false;
  bool go_table = true;       // name code of Go programs by their own table
  bool only_windows = false;  // leave all but PE images unnamed
};

struct SymbolizeStats {
  std::uint64_t addresses = 0;     // distinct (module, address) pairs
  std::uint64_t named = 0;         // of these, with at least one function
  std::uint64_t ahead = 0;         // of all: were known before
  std::uint64_t with_lines = 0;    // of these, with a source line
  std::uint64_t modules = 0;       // modules with at least one address
  std::uint64_t opened = 0;        // of these, files that could be opened
  double seconds = 0;              // wall time
  std::vector<std::string> notes;  // what could not be read and why, for people; one a module at most
};

// Fills Location::lines and Profile::functions. Locations that already have lines are left alone. An address is named
// only by a symbol or debug entry whose range contains it. Otherwise its lines stay empty, and exporters print
// "module+0xoffset". There offset is the start of the function, if the unwind information has it (one frame a
// function). Separate debug files are found by build id and .gnu_debuglink under /usr/lib/debug. Debuginfod servers are
// asked if DEBUGINFOD_URLS is set. Each distinct address is worked on once, and modules in parallel. Throws nothing:
// things that cannot be read stay unnamed and are noted. Not to be called on one Profile from two threads.
SymbolizeStats symbolize(profile::Profile& profile, const SymbolizeOptions& options = {}) noexcept;

// Makes C++ (Itanium), Rust (legacy and v0) and D names readable, and simple ones of Microsoft's C++. Drops the hashes
// of Rust's names. "name@plt" is the stub of a name. Returns other names unchanged.
[[nodiscard]] std::string demangle(const char* name);

}  // namespace windlass::symbols
