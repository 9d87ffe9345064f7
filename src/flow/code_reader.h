// The code being followed, read in lines: one read of the target serves several instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "flow/synthesis.h"

namespace windlass::flow {

class CodeReader {
 public:
  void start(const CodeSource& source) {
    source_ = &source;
    ++start_;
  }
  // What is read is paid for from there, one for each time: an instruction is read once. With nothing left, no code can
  // be read.
  void pay_from(Budget& budget) { budget_ = &budget; }
  [[nodiscard]] const CodeSource& source() const { return *source_; }

  // Up to `size` bytes of code at `address`: how many there are.
  std::size_t read(std::uint64_t address, std::uint8_t* to, std::size_t size) {
    if (budget_ != nullptr && !budget_->spend(1)) return 0;
    if (const Line& line = line_of(address); line.state == Line::kWhole && address % kLine + size <= kLine) {
      const std::uint8_t* const from = line.bytes + address % kLine;
      if (size == kWord)  // AArch64's instructions, by one load
        std::memcpy(to, from, kWord);
      else
        std::memcpy(to, from, size);
      return size;
    }
    std::size_t done = 0;
    while (done < size) {
      const Line& line = line_of(address + done);
      if (line.state == Line::kNoCode) break;
      if (line.state == Line::kRagged) {  // memory, or what is known of it, begins or ends within the line
        std::size_t piece = size - done;
        while (piece > 0 && !source_->read(address + done, to + done, piece)) --piece;
        return done + piece;
      }
      const std::size_t within = (address + done) % kLine;
      const std::size_t piece = size - done < kLine - within ? size - done : kLine - within;
      std::memcpy(to + done, line.bytes + within, piece);
      done += piece;
    }
    return done;
  }

 private:
  static constexpr std::size_t kLine = 64, kLines = 128, kWord = 4;
  struct Line {
    std::uint64_t start = 0;  // read since which start(): forgetting all lines is free
    std::uint64_t address = 0;
    enum State : std::uint8_t { kWhole, kRagged, kNoCode } state = kNoCode;
    std::uint8_t bytes[kLine];
  };

  const Line& line_of(std::uint64_t address) {
    const std::uint64_t base = address & ~std::uint64_t{kLine - 1};
    Line& line = lines_[base / kLine % kLines];
    if (line.start == start_ && line.address == base) return line;
    if (source_->kind(address) == CodeKind::kNoCode) {  // what else is in the line may be some
      line.start = 0;
      line.state = Line::kNoCode;
      return line;
    }
    line.start = start_;
    line.address = base;
    line.state = source_->read(base, line.bytes, kLine) ? Line::kWhole : Line::kRagged;
    return line;
  }

  const CodeSource* source_ = nullptr;
  Budget* budget_ = nullptr;
  std::uint64_t start_ = 0;
  Line lines_[kLines];
};

}  // namespace windlass::flow
