// libdw asks debuginfod servers by a client that it gets by dlopen(), which a static program does not have. This file
// stands in for libdw's file of that client: whichever is linked is the one that dwfl_standard_find_debuginfo() asks.
#include <elfutils/libdwfl.h>

#include "symbols/debuginfod_program.h"

// libdw's own names, which its archive then has no need to give (debuginfod-client.o).
// NOLINTBEGIN(bugprone-reserved-identifier): they are libdw's
extern "C" {

int __libdwfl_debuginfod_find_debuginfo(Dwfl* /*dwfl*/, const unsigned char* build_id, std::size_t length) {
  return windlass::symbols::find_by_debuginfod("debuginfo", {build_id, length});
}

int __libdwfl_debuginfod_find_executable(Dwfl* /*dwfl*/, const unsigned char* build_id, std::size_t length) {
  return windlass::symbols::find_by_debuginfod("executable", {build_id, length});
}

void __libdwfl_debuginfod_end(debuginfod_client* /*client*/) {}

debuginfod_client* dwfl_get_debuginfod_client(Dwfl* /*dwfl*/) { return nullptr; }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
