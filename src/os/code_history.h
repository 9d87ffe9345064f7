// The history of code that comes, goes and moves. Tells the piece of code at an address at a time. A piece counts from
// its time on, until a later piece covers its range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "windlass/function_ref.h"

namespace windlass::os {

// One thread at a time. Takes 4 bytes more for each page of 4 KiB that a piece of up to 1 MiB touches.
class CodeHistory {
 public:
  static constexpr std::uint32_t kGone = ~std::uint32_t{0};

  struct Piece {
    std::uint64_t begin = 0, size = 0;  // bytes; the range does not wrap around
    std::uint64_t since = 0;            // CLOCK_MONOTONIC, ns
    std::uint32_t function = kGone;     // the caller's number; kGone: from then on there is nothing
    [[nodiscard]] bool contains(std::uint64_t address) const { return address - begin < size; }
  };

  // Add pieces in the order of time. Of two pieces of one time, the later call counts. A piece without a size is
  // ignored.
  void add(const Piece& piece);
  // Calls back for pieces that have addresses of a range, those of many pages several times. Linear in the pieces of
  // its pages.
  void for_each_in(std::uint64_t begin, std::uint64_t size, FunctionRef<void(const Piece&)> callback) const;

  // The last piece that had come by a time and has the address; null: none had. Looks through the pieces of the
  // address's page that are later.
  [[nodiscard]] const Piece* find(std::uint64_t address, std::uint64_t time) const;
  // The first one that has the address, of all times. Linear in the pieces of its page.
  [[nodiscard]] const Piece* find_first(std::uint64_t address) const;

  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }  // in the order of add()

 private:
  static constexpr unsigned kPageShift = 12;
  static constexpr std::uint64_t kMaxPages = 256;  // of a piece that is found by its pages

  using Numbers = std::vector<std::uint32_t>;
  struct Pages {
    std::uint64_t first = 0, count = 0;
  };
  [[nodiscard]] static Pages pages_of(std::uint64_t begin, std::uint64_t size);
  [[nodiscard]] const Numbers& at_page(std::uint64_t page) const;

  std::vector<Piece> pieces_;
  std::unordered_map<std::uint64_t, Numbers> by_page_;
  Numbers large_;
};

}  // namespace windlass::os
