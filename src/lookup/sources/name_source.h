// Names of code made at run time, by the maker of the code. Names of files come from symbols (src/symbols).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "windlass/registers.h"
#include "windlass/walk.h"

namespace windlass::sources {

struct NamedFunction {
  std::string name;
  std::string file = {};  // Of the source, with the line in it; empty, 0: not known.
  std::uint32_t line = 0;
};

// Addresses are the process's. Thread-safe. Calls may allocate and lock.
class NameSource {
 public:
  static constexpr std::size_t kMaxName = std::size_t{1} << 16;  // Holds any name of a code manager or a jitdump.
  static constexpr std::uint64_t kTimeSet = 0;                   // The moment that the source was set to.

  virtual ~NameSource() = default;

  // Appends the function that had an address at a time (CLOCK_MONOTONIC in ns), after the functions that were inlined
  // in it there, innermost first. `function` is the result of frame_function() for the frame. Appends nothing if
  // nothing is known. Returns where the code of the function begins.
  virtual std::uint64_t functions_at(std::uint64_t address, std::uint64_t function, std::uint64_t time,
                                     std::vector<NamedFunction>& to) = 0;
  // For a frame in code that runs many functions, for example an interpreter's: a number that stands for the function
  // it runs. 0: the code's address says the function. Reads the frame.
  [[nodiscard]] virtual std::uint64_t frame_function(std::uint64_t /*address*/, const Registers& /*frame*/,
                                                     const Memory& /*memory*/) {
    return 0;
  }
};

}  // namespace windlass::sources
