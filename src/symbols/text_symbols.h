// Symbols that come as text: the running kernel's, and the maps that JIT compilers write for perf.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "symbols/symbol_result.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

// Names kernel addresses by /proc/kallsyms (kernel_symbols.h). `addresses` are ascending. The names that were read
// ahead are used if nothing at the addresses can have changed since.
void name_from_kallsyms(const SymbolizeOptions& options, std::span<const std::uint64_t> addresses, ModuleNames& names);

// perf's /tmp/perf-PID.map: lines "START SIZE name", hexadecimal. Where ranges overlap, the later line is the code that
// was there last. Only a regular file is read, in bounded memory.
void name_from_perf_map(const std::string& path, std::span<const std::uint64_t> addresses, ModuleNames& names);

}  // namespace windlass::symbols
