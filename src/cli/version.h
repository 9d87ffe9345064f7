// What `windlass --version` prints: lines, the last without its end.
#pragma once

#include <string>

namespace windlass::cli {

// What differs between the ways to link the command: linkage_shared.cpp, linkage_static.cpp or left_out.cpp.
struct Linkage {
  const char* file;        // what kind of file the command is
  const char* debuginfod;  // who asks debuginfod servers
  const char* left_out;    // what `record` says that it does not know; "" if that is nothing
};
extern const Linkage kLinkage;

// The commit of the sources; "" if it is not known. cmake/commit.cmake writes it.
extern const char* const kCommit;

[[nodiscard]] std::string version_text();

}  // namespace windlass::cli
