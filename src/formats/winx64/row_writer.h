// Rows of Windows x64 functions while they are made, and on their way out.
#pragma once

#include <bit>
#include <cstdint>

#include "formats/winx64/epilogue.h"
#include "formats/winx64/lower.h"
#include "formats/winx64/registers.h"
#include "formats/winx64/unwound.h"
#include "rows/known_rows.h"

namespace windlass::winx64 {

// A row in the making. Until `finish` places are told from the registers of the frame, after it from the CFA where that
// is told from the same register.
struct Row {
  std::uint8_t base = kRsp;    // instruction number
  bool machine_frame = false;  // the CFA is loaded from there, and what is undone is all that there is
  bool too_large = false;      // an offset is 2 GiB or more: no row
  std::int64_t offset = 0;     // from the base, of what is undone so far; then of the CFA
  RegisterRule return_address = RegisterRule::undefined();
  std::uint64_t saved = 0;  // by DWARF number
  RegisterRule saved_at[33];

  Row() {}  // NOLINT(modernize-use-equals-default): saved_at has what `saved` says, and copies cost that much
  Row(const Row& other) { *this = other; }
  Row& operator=(const Row& other) {  // NOLINT(bugprone-unhandled-self-assignment): bears it
    base = other.base;
    machine_frame = other.machine_frame;
    too_large = other.too_large;
    offset = other.offset;
    return_address = other.return_address;
    saved = other.saved;
    other.each_saved([&](unsigned reg) { saved_at[reg] = other.saved_at[reg]; });
    return *this;
  }
  template <typename Callback>
  void each_saved(Callback&& callback) const {
    for (std::uint64_t rest = saved; rest != 0; rest &= rest - 1)
      callback(static_cast<unsigned>(std::countr_zero(rest)));
  }
  // At [from + at], `from` an instruction number.
  void save(unsigned reg, unsigned from, std::int64_t at) {
    saved |= std::uint64_t{1} << reg;
    saved_at[reg] = RegisterRule::at_register(dwarf_number(from), narrow(at));
  }
  void save_at_cfa(unsigned reg, std::int64_t at) {
    saved |= std::uint64_t{1} << reg;
    saved_at[reg] = RegisterRule::at_cfa(narrow(at));
  }
  [[nodiscard]] bool saves(unsigned reg) const { return (saved >> reg & 1) != 0; }
  // The frame register's value leads on, `above` what rsp was. False: it would have to be read first.
  [[nodiscard]] bool take_base(std::uint8_t number, std::uint32_t above) {
    if (saves(dwarf_number(number))) return false;
    base = number;
    offset = -std::int64_t{above};
    return true;
  }
  void start() { *this = Row(); }
  // Behind the return, which pops `arguments` bytes more.
  void finish(std::uint16_t arguments) {
    return_address = RegisterRule::at_cfa(-8 - arguments);
    offset += 8 + std::int64_t{arguments};
    (void)narrow(offset);
    each_saved([&](unsigned reg) {
      const RegisterRule& rule = saved_at[reg];
      if (rule.reg() == dwarf_number(base)) saved_at[reg] = RegisterRule::at_cfa(narrow(rule.offset() - offset));
    });
  }
  // What is undone ends at a machine frame: [error code] rip cs rflags rsp ss.
  void enter_machine_frame(bool error_code) {
    const std::int64_t rip = offset + (error_code ? 8 : 0);
    machine_frame = true;
    return_address = RegisterRule::at_register(dwarf_number(base), narrow(rip));
    offset = narrow(rip + 24);
  }
  std::int32_t narrow(std::int64_t at) {
    too_large |= !fits_row(at);
    return static_cast<std::int32_t>(at);
  }
  bool operator==(const Row& other) const {
    if (base != other.base || machine_frame != other.machine_frame || offset != other.offset ||
        return_address != other.return_address || saved != other.saved)
      return false;
    bool same = true;
    each_saved([&](unsigned reg) { same = same && saved_at[reg] == other.saved_at[reg]; });
    return same;
  }
};

// The offset of the CFA in front of an epilogue's release.
[[nodiscard]] inline std::int64_t released_offset(const EpilogueMatch& match) {
  return match.displacement + std::int64_t{8} * match.pop_count + 8 + match.return_pops;
}

// Makes the row of an epilogue behind so many of its pops; `releases`: in front of its release. Everything counts from
// the CFA, which is behind the return.
inline void row_in_epilogue(const EpilogueMatch& match, unsigned first_pop, bool releases, Row& row) {
  row.start();
  if (releases && match.release == EpilogueMatch::Release::kLea) row.base = match.base;
  std::int64_t below = std::int64_t{8} * (match.pop_count - first_pop) + 8 + match.return_pops;  // the CFA
  row.offset = (releases ? match.displacement : 0) + below;
  (void)row.narrow(row.offset);
  row.return_address = RegisterRule::at_cfa(-8 - match.return_pops);
  for (unsigned i = first_pop; i < match.pop_count; ++i, below -= 8)
    row.save_at_cfa(dwarf_number(match.pops[i]), -below);
}

// Gives rows to the sink, those that say the same as one.
class RowWriter {
 public:
  // `known`: for add_known().
  explicit RowWriter(RowSink sink, KnownRows* known = nullptr) : sink_(sink), known_(known) {}
  ~RowWriter() {
    flush();
    give_waiting();
  }
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;

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
  // The same of a row that is kept. It is not compared with one that add() or add_next() wrote.
  void add_known(std::uint32_t begin, std::uint32_t end, CfaWord cfa, std::uint32_t number) {
    if (begin >= end) return;
    if (number_ == number && out_.end == begin && cfa_ == cfa) {
      out_.end = end;
      return;
    }
    flush();
    number_ = number;
    out_.begin = begin;
    out_.end = end;
    cfa_ = cfa;
  }
  // The row behind the last one, up to `end`: the CFA is at rsp + `offset`, and the registers without a bit in `saved`
  // are back. Where the others stand does not change: they are given from the CFA.
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
    if (number_ != 0) return give_known();
    if (!open_) return;
    open_ = false;
    fill(row_, out_);
    give_waiting();
    sink_(out_);
  }
  // Known rows are given together, and before all that comes behind.
  void give_waiting() {
    if (known_ != nullptr) known_->give_waiting();
  }
  // All of the row but its addresses.
  static void fill(const Row& row, FrameRow& to) {
    // Registers that calls preserve, unlike those of System V: rows say so where they are not saved, too.
    constexpr std::uint64_t kAlways = std::uint64_t{1} << 4 | std::uint64_t{1} << 5;  // rsi, rdi
    const RegisterNumber base = dwarf_number(row.base);
    const auto offset = static_cast<std::int32_t>(row.offset);
    to.cfa = row.machine_frame ? CfaRule::loaded(base, offset, 0) : CfaRule::at(base, offset);
    to.return_address = row.return_address;
    to.signal_frame = row.machine_frame;
    to.registers.clear();
    for (std::uint64_t rest = row.saved | kAlways; rest != 0; rest &= rest - 1) {
      const auto reg = static_cast<unsigned>(std::countr_zero(rest));
      to.registers.append(static_cast<RegisterNumber>(reg),
                          row.saves(reg) ? row.saved_at[reg] : RegisterRule::same_value());
    }
  }

 private:
  void give_known() {
    known_->add({as_word(out_.begin), as_word(out_.end), cfa_, number_});
    number_ = 0;
  }

  RowSink sink_;
  KnownRows* known_;
  bool open_ = false;
  std::uint32_t number_ = 0;  // of the row that is open; 0: it is no known one
  CfaWord cfa_{};             // of that row
  Row row_;
  FrameRow out_;
};

}  // namespace windlass::winx64
