// A runtime's description of its code that cannot be read before the process has got far enough. Reading is tried again
// until it succeeds.
#pragma once

#include <optional>
#include <utility>

#include "windlass/error.h"

namespace windlass::runtimes {

// `Tables` is made of what was read, and does not move: its parts may refer to each other.
template <typename Tables>
class LateMap {
 public:
  // Asks read(), an Expected, unless it has answered before. kUnreadable: not yet.
  template <typename Read>
  void prepare(Read&& read) {
    if (ready_) return;
    auto found = read();
    ready_ = found || found.error().code != ErrorCode::kUnreadable;
    problem_.reset();
    if (found)
      tables_.emplace(std::move(*found));
    else
      problem_ = found.error();
  }

  // It has answered, with tables or with what is wrong.
  [[nodiscard]] bool is_ready() const { return ready_; }
  [[nodiscard]] const std::optional<Error>& problem() const { return problem_; }
  [[nodiscard]] explicit operator bool() const { return tables_.has_value(); }
  // What follows only where there are tables.
  [[nodiscard]] Tables* operator->() { return &*tables_; }
  [[nodiscard]] const Tables* operator->() const { return &*tables_; }

 private:
  bool ready_ = false;
  std::optional<Tables> tables_;
  std::optional<Error> problem_;
};

// For a runtime whose parts may be understood each by itself.
template <typename CodeMap, typename Names>
struct Parts {
  std::optional<CodeMap> map;
  std::optional<Names> names;
  std::optional<Error> problem;  // of the first that is not understood

  void take(Expected<CodeMap> read) { take(std::move(read), map); }
  void take(Expected<Names> read) { take(std::move(read), names); }

 private:
  template <typename Part>
  void take(Expected<Part> read, std::optional<Part>& to) {
    if (read)
      to = std::move(*read);
    else if (!problem)
      problem = read.error();
  }
};

}  // namespace windlass::runtimes
