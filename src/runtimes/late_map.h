// A runtime's description of its code that cannot be read before the process has got far enough. Reading is tried again
// until it succeeds.
#pragma once

#include <optional>

#include "windlass/error.h"

namespace windlass::runtimes {

template <typename Layout, typename CodeMap>
class LateMap {
 public:
  // Asks read(), an Expected<Layout>, unless it has answered before. kUnreadable: not yet.
  template <typename Read>
  void prepare(Read&& read) {
    if (ready_) return;
    const Expected<Layout> layout = read();
    ready_ = layout || layout.error().code != ErrorCode::kUnreadable;
    problem_.reset();
    if (layout) {
      layout_ = *layout;
      map_.emplace(layout_);
    } else {
      problem_ = layout.error();
    }
  }

  // It has answered, with a map or with what is wrong.
  [[nodiscard]] bool is_ready() const { return ready_; }
  [[nodiscard]] const std::optional<Error>& problem() const { return problem_; }
  [[nodiscard]] explicit operator bool() const { return map_.has_value(); }
  // What follows only where there is a map.
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] CodeMap& operator*() { return *map_; }
  [[nodiscard]] CodeMap* operator->() { return &*map_; }

 private:
  bool ready_ = false;
  Layout layout_;
  std::optional<CodeMap> map_;  // refers to the layout
  std::optional<Error> problem_;
};

}  // namespace windlass::runtimes
