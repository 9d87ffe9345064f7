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
#include <vector>

#include "os/code_history.h"
#include "os/mapped_files.h"

namespace windlass::profiler {

class PerfMap {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

  // False where it cannot be opened, is no regular file, or was left behind by an earlier process of the number `tgid`.
  [[nodiscard]] bool open(const std::string& path, std::uint32_t tgid);
  [[nodiscard]] int fd() const { return file_.fd(); }

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
  struct Name {
    std::size_t at;
    std::uint32_t size;
  };
  bool add(std::string_view text, std::uint64_t since);
  [[nodiscard]] std::string_view name_of(const os::CodeHistory::Piece& line) const {
    return std::string_view(texts_).substr(names_[line.function].at, names_[line.function].size);
  }

  os::GrowingFile file_;
  std::uint64_t read_ = 0;       // bytes of it
  std::uint64_t last_read_ = 0;  // when
  std::string rest_;             // of a line whose end has not come
  std::string texts_;
  std::vector<Name> names_;  // in texts_
  os::CodeHistory lines_;
};

}  // namespace windlass::profiler
