// What following code has read of code that may change. Read again later, it says if the code is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "flow/synthesis.h"

namespace windlass::walk {

// A hash of one more word.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e37'79b9'7f4a'7c15;
  return hash ^ hash >> 29;
}

class CodeReads {
 public:
  // Pieces of 64 bytes. Beyond that the code cannot be compared.
  static constexpr std::size_t kMost = 512;

  // What reading from `source` has come to, in the order of the reads.
  void note(const flow::CodeSource& source, std::uint64_t address, std::size_t size, bool is_read);
  [[nodiscard]] bool is_too_much() const { return reads_.size() > kMost; }
  [[nodiscard]] std::size_t size() const { return reads_.size(); }
  // Reads all of it again: is the code the same?
  [[nodiscard]] bool are_same(const flow::CodeSource& source) const;

 private:
  struct Read {
    std::uint64_t address;
    std::uint32_t size;
    bool operator==(const Read&) const = default;
  };
  static bool add(const Read& read, const flow::CodeSource& source, std::uint64_t& digest);
  bool is_noted(const Read& read, const flow::CodeSource& source, bool must_be_read);

  std::vector<Read> reads_;
  std::uint64_t digest_ = 0;
};

}  // namespace windlass::walk
