// Rows of Windows x64 functions while they are made, and on their way out.
#pragma once

#include <bit>
#include <cstdint>

#include "winx64/lower.h"
#include "winx64/registers.h"

namespace windlass::winx64 {

// A row in the making. Offsets count from the base register's value until `finish`, from the CFA after it.
struct Row {
  std::uint8_t base = kRsp;  // instruction number
  std::int64_t offset = 0;   // of what is undone so far; then of the CFA
  std::int64_t return_at = 0;
  std::uint64_t saved = 0;  // by DWARF number
  std::int64_t saved_at[33];

  Row() {}  // NOLINT(modernize-use-equals-default): saved_at has what `saved` says, and copies cost that much
  Row(const Row& other) { *this = other; }
  Row& operator=(const Row& other) {  // NOLINT(bugprone-unhandled-self-assignment): bears it
    base = other.base;
    offset = other.offset;
    return_at = other.return_at;
    saved = other.saved;
    other.each_saved([&](unsigned reg) { saved_at[reg] = other.saved_at[reg]; });
    return *this;
  }
  template <typename Callback>
  void each_saved(Callback&& callback) const {
    for (std::uint64_t rest = saved; rest != 0; rest &= rest - 1)
      callback(static_cast<unsigned>(std::countr_zero(rest)));
  }
  void save(unsigned reg, std::int64_t at) {
    saved |= std::uint64_t{1} << reg;
    saved_at[reg] = at;
  }
  [[nodiscard]] bool saves(unsigned reg) const { return (saved >> reg & 1) != 0; }
  void finish(std::uint16_t arguments) {
    return_at = -8 - std::int64_t{arguments};
    offset += 8 + std::int64_t{arguments};
    each_saved([&](unsigned reg) { saved_at[reg] -= offset; });
  }
  bool operator==(const Row& other) const {
    if (base != other.base || offset != other.offset || return_at != other.return_at || saved != other.saved)
      return false;
    bool same = true;
    each_saved([&](unsigned reg) { same = same && saved_at[reg] == other.saved_at[reg]; });
    return same;
  }
};

// Gives rows to the sink, those that say the same as one.
class Writer {
 public:
  explicit Writer(RowSink sink) : sink_(sink) {}
  ~Writer() { flush(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void add(std::uint32_t begin, std::uint32_t end, const Row& row) {
    if (begin >= end) return;
    if (open_ && out_.end == begin && row_ == row) {
      out_.end = end;
      return;
    }
    flush();
    open_ = true;
    out_.begin = begin;
    out_.end = end;
    row_ = row;
  }
  // The row behind the last one, up to `end`: the CFA is at rsp + `offset`, and the registers without a bit in `saved`
  // are back. Where the others stand does not change: they are told from the CFA.
  void add_next(std::uint32_t end, std::int64_t offset, std::uint64_t saved) {
    if (row_.base == kRsp && row_.offset == offset && row_.saved == saved) {
      out_.end = end;
      return;
    }
    flush();
    open_ = true;
    out_.begin = out_.end;
    out_.end = end;
    row_.base = kRsp;
    row_.offset = offset;
    row_.saved = saved;
  }
  void flush() {
    if (!open_) return;
    open_ = false;
    out_.cfa = CfaRegister{dwarf_number(row_.base), row_.offset};
    out_.return_address = AtCfa{row_.return_at};
    out_.registers.clear();
    constexpr std::uint64_t kAlways = std::uint64_t{1} << 4 | std::uint64_t{1} << 5;  // rsi, rdi
    for (std::uint64_t rest = row_.saved | kAlways; rest != 0; rest &= rest - 1) {
      const auto reg = static_cast<RegisterNumber>(std::countr_zero(rest));
      if (row_.saves(reg))
        out_.registers.append(reg, AtCfa{row_.saved_at[reg]});
      else
        out_.registers.append(reg, SameValue{});
    }
    sink_(out_);
  }

 private:
  RowSink sink_;
  bool open_ = false;
  Row row_;
  FrameRow out_;
};

}  // namespace windlass::winx64
