// A program of this machine, run to its end: its output, bounded in size and time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/error.h"

namespace windlass::os {

struct ChildProgram {
  std::vector<const char*> arguments{};  // the first is looked for in PATH; without the null pointer at the end
  int input = -1;                        // the program's standard input; -1: /dev/null
  std::vector<int> inherited{};          // the program's descriptors 3, 4 ...
  std::chrono::milliseconds patience{0};
  std::size_t most_bytes = 0;  // of its standard output
};

struct ChildEnd {
  int status = 0;      // of its exit; 128 + signal if one ended it
  std::string output;  // standard output; standard error is dropped
};

// Without a shell. The program has no other descriptors and no blocked signals. Thread-safe; not signal-safe.
//
// Errors: kNotFound: there is no such program. kLimit: it printed more than `most_bytes`. kSystem, ETIMEDOUT: it took
// too long. Then it was killed. kSystem with another errno: it was not started.
[[nodiscard]] Expected<ChildEnd> run_program(const ChildProgram& program);

// The same, with the output piece by piece as it comes. `most_bytes` does not count. If `take` fails, the program is
// killed, and the error is that of `take`. The status of the program's end as in ChildEnd.
using TakeOutput = std::function<Expected<void>(std::string_view)>;
[[nodiscard]] Expected<int> run_program(const ChildProgram& program, const TakeOutput& take);

}  // namespace windlass::os
