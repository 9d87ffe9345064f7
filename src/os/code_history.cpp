#include "os/code_history.h"

#include <algorithm>

namespace windlass::os {

const CodeHistory::Numbers& CodeHistory::at_page(std::uint64_t page) const {
  static const Numbers kNone;
  const auto known = by_page_.find(page);
  return known != by_page_.end() ? known->second : kNone;
}

CodeHistory::Pages CodeHistory::pages_of(std::uint64_t begin, std::uint64_t size) {
  const std::uint64_t first = begin >> kPageShift;
  return {first, ((begin + (size - 1)) >> kPageShift) - first + 1};
}

void CodeHistory::add(const Piece& piece) {
  if (piece.size == 0) return;
  const auto number = static_cast<std::uint32_t>(pieces_.size());
  const Pages pages = pages_of(piece.begin, piece.size);
  if (pages.count > kMaxPages) {
    large_.push_back(number);
  } else {
    for (std::uint64_t page = pages.first; page < pages.first + pages.count; ++page) by_page_[page].push_back(number);
  }
  pieces_.push_back(piece);
}

void CodeHistory::for_each_in(std::uint64_t begin, std::uint64_t size, FunctionRef<void(const Piece&)> callback) const {
  if (size == 0) return;
  const auto look = [&](const Numbers& numbers) {
    for (const std::uint32_t number : numbers)
      if (pieces_[number].contains(begin) || pieces_[number].begin - begin < size) callback(pieces_[number]);
  };
  look(large_);
  const Pages pages = pages_of(begin, size);
  if (pages.count > kMaxPages) {
    for (const Piece& piece : pieces_)
      if (piece.contains(begin) || piece.begin - begin < size) callback(piece);
    return;
  }
  for (std::uint64_t page = pages.first; page < pages.first + pages.count; ++page) look(at_page(page));
}

const CodeHistory::Piece* CodeHistory::find(std::uint64_t address, std::uint64_t time) const {
  const auto last_of = [&](const Numbers& numbers) -> const Piece* {
    for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
      const Piece& piece = pieces_[*number];
      if (piece.since <= time && piece.contains(address)) return &piece;
    }
    return nullptr;
  };
  const Piece *small = last_of(at_page(address >> kPageShift)), *large = last_of(large_);
  return small == nullptr || (large != nullptr && large > small) ? large : small;
}

const CodeHistory::Piece* CodeHistory::find_first(std::uint64_t address) const {
  const auto first_of = [&](const Numbers& numbers) -> const Piece* {
    const auto found =
        std::ranges::find_if(numbers, [&](std::uint32_t number) { return pieces_[number].contains(address); });
    return found != numbers.end() ? &pieces_[*found] : nullptr;
  };
  const Piece *small = first_of(at_page(address >> kPageShift)), *large = first_of(large_);
  return small == nullptr || (large != nullptr && large < small) ? large : small;
}

}  // namespace windlass::os
