// What a test has seen of a release of a runtime, for the table of tested versions. tests/tested_versions.py reads it
// from the results of ./test.
#pragma once

#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <cctype>
#include <cstdint>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "support/run_command.h"

namespace windlass::test {

// "17.0.15" of what a command prints: digits and dots, the first that have both. Empty: there are none.
inline std::string version_in(const std::string& printed) {
  for (std::size_t i = 0; i < printed.size();) {
    std::size_t end = i;
    while (end < printed.size() && (std::isdigit(static_cast<unsigned char>(printed[end])) != 0 || printed[end] == '.'))
      ++end;
    const std::string part = printed.substr(i, end - i);
    const std::size_t dot = part.find('.');
    if (dot != std::string::npos && dot != 0 && dot + 1 != part.size()) return part;
    i = end + 1;
  }
  return "";
}

// The version that a program prints of itself.
inline std::string version_of(const std::string& command) { return version_in(run(command + " 2>&1").output); }

// `way`: of several in one test. `wrong`: of those whose every call is known.
inline void tested_version(const std::string& runtime, const std::string& version, const std::string& way,
                           std::uint64_t samples, std::uint64_t whole, std::optional<std::uint64_t> wrong = {}) {
  utsname machine{};
  uname(&machine);
  testing::Test::RecordProperty(
      fmt::format("tested/{}/{}/{}", runtime, version, way),
      fmt::format("{} {} {} {}", machine.machine, samples, whole, wrong ? std::to_string(*wrong) : "-"));
}

}  // namespace windlass::test
