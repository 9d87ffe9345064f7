// What `windlass --version` prints: lines, the last without its end.
#pragma once

#include <string>

namespace windlass::cli {

// What differs between the ways to link the command: linkage_shared.cpp or linkage_static.cpp.
struct Linkage {
  const char* file;        // what kind of file the command is
  const char* debuginfod;  // who asks debuginfod servers
};
extern const Linkage kLinkage;

// The commit of the sources; "" if it is not known. cmake/commit.cmake writes it.
extern const char* const kCommit;

[[nodiscard]] std::string version_text();

}  // namespace windlass::cli
