// A process's perf map while it grows, and what it said when: a line counts from when it turned up until a later one
// covers its range. It may be gone, or its process, before a profile is written.
//
// Bounds: kMaxBytes of a file, after which nothing more is read of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "process/descriptor.h"

namespace windlass::agent {

class PerfMap {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

  // False where it cannot be opened, or is no regular file.
  [[nodiscard]] bool open(const std::string& path);
  [[nodiscard]] int fd() const { return file_.get(); }

  // Takes what has come since the last call; `now`, CLOCK_MONOTONIC in ns, ascends. True if a line covers what an
  // earlier one has, by another name: the same address is something else from now on.
  bool read(std::uint64_t now);

  struct Function {
    std::uint64_t begin;
    std::string_view name;  // valid until the next read()
  };
  // What an address was at a time: by the last line there was then, else by the first one that came.
  [[nodiscard]] std::optional<Function> find(std::uint64_t address, std::uint64_t time) const;

 private:
  static constexpr unsigned kPageShift = 12;
  static constexpr std::uint64_t kMaxPages = 256;  // of a function that is found by its pages

  struct Line {
    std::uint64_t begin, size, since;
    std::size_t name_at;
    std::uint32_t name_size;
  };
  bool add(std::string_view text, std::uint64_t since);
  [[nodiscard]] std::string_view name_of(const Line& line) const {
    return std::string_view(names_).substr(line.name_at, line.name_size);
  }
  template <typename Use>
  void for_each_at(std::uint64_t page, Use&& use) const;

  process::Descriptor file_;
  std::uint64_t read_ = 0;       // bytes of it
  std::uint64_t last_read_ = 0;  // when
  std::string rest_;             // of a line whose end has not come
  std::string names_;
  std::vector<Line> lines_;  // in their order
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> by_page_;
  std::vector<std::uint32_t> large_;
};

}  // namespace windlass::agent
