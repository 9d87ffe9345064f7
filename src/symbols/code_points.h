// Where the names of an ELF file's code change: symbols, functions and inlined calls of DWARF, rows of line tables.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <vector>

namespace windlass::symbols {

// The addresses at which SymbolFile::name() may have another answer, in no order, some more than once. Reads all debug
// information. True: the symbol table has local symbols, so that it is a full one.
bool add_code_points(Dwfl_Module* module, std::vector<std::uint64_t>& to);

}  // namespace windlass::symbols
