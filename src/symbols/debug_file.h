// Where an ELF file's separate debug information is, asked so that nobody waits for a file that does not answer.
#pragma once

#include <elfutils/libdwfl.h>

#include <string>
#include <vector>

namespace windlass::symbols {

[[nodiscard]] std::string build_id_of(Dwfl_Module* module);  // in hexadecimal digits; empty: it has none

// Dwfl_Callbacks::find_debuginfo. It is libdwfl's own, but where reads of others' files go by readers
// (os/readers.h): then each file that libdwfl would try is opened by those. The module's user data is the list of
// debug trees, a std::vector<std::string>, or null.
int find_debug_file(Dwfl_Module* module, void** userdata, const char* name, Dwarf_Addr base, const char* file,
                    const char* link, GElf_Word link_crc, char** found);

}  // namespace windlass::symbols
