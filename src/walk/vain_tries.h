// Which pages of generated code it is no use to follow by the registers of the moment (by_present_jump). That takes
// milliseconds, and what it comes to cannot be kept. In most generated code it comes to nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "walk/function_memo.h"

namespace windlass::walk {

// One thread only.
class VainTries {
 public:
  static constexpr unsigned kMostInARow = 16;     // on a page
  static constexpr unsigned kThenOneIn = 16;      // of the next ones
  static constexpr std::size_t kMaxPages = 4096;  // then all is forgotten

  // Shall the code at the place be followed? If so, then say with note() what came of it.
  [[nodiscard]] bool is_due(const CodePlace& at) {
    const auto known = in_vain_.find(key_of(at));
    if (known == in_vain_.end() || known->second < kMostInARow) return true;
    return ++known->second % kThenOneIn == 0;
  }
  void note(const CodePlace& at, bool came_to_something) {
    if (in_vain_.size() >= kMaxPages) in_vain_.clear();
    unsigned& count = in_vain_[key_of(at)];
    if (came_to_something)
      count = 0;
    else if (count < kMostInARow)
      ++count;
  }

 private:
  static std::uint64_t key_of(const CodePlace& at) { return (at.address >> 12) ^ at.code * 0x9e37'79b9'7f4a'7c15; }
  std::unordered_map<std::uint64_t, unsigned> in_vain_;
};

}  // namespace windlass::walk
