// Symbols that come as text: the running kernel's, and the maps that JIT compilers write for perf.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "symbols/symbol_result.h"

namespace windlass::symbols {

// Names kernel addresses by /proc/kallsyms. `addresses` are ascending. An address belongs to the last text symbol at or
// before it, if that is less than 1 MiB before. The next symbol must be of the same kernel module, or begin at most
// 4096 bytes after the symbol: nothing else tells the end of a module's last symbol. Without privilege the file has
// only zeros, and nothing is named.
void name_from_kallsyms(const std::string& path, std::span<const std::uint64_t> addresses, ModuleNames& names);

// perf's /tmp/perf-PID.map: lines "START SIZE name", hexadecimal. Where ranges overlap, the later line is the code that
// was there last. Only a regular file is read, in bounded memory.
void name_from_perf_map(const std::string& path, std::span<const std::uint64_t> addresses, ModuleNames& names);

}  // namespace windlass::symbols
