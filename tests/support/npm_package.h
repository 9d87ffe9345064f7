// Packages of the npm registry, for tests that have WINDLASS_FETCH.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>

#include "support/run_command.h"

namespace windlass::test {

// Is the package in the folder, or could it be fetched? It cannot where the registry is out of reach, and for no other
// reason.
inline bool fetch_package(const std::string& folder, const char* package, const char* version, const char* integrity) {
  const auto done = run(fmt::format("test -f {0}/.integrity || sh {1} {2} {3} {4} {0} 2>&1", folder, WINDLASS_FETCH,
                                    package, version, integrity));
  constexpr int kOutOfReach = 1;
  EXPECT_TRUE(done.status == 0 || done.status == kOutOfReach) << done.output;
  return done.status == 0;
}

}  // namespace windlass::test
