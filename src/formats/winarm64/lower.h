// Windows ARM64 unwind information as rows: at every instruction the same caller as virtual_unwind, or an error that
// says why no row can say it.
#pragma once

#include <cstdint>
#include <memory>

#include "formats/winarm64/exec.h"
#include "formats/winarm64/read.h"
#include "rows/known_rows.h"
#include "windlass/frame_row.h"
#include "windlass/function_ref.h"

namespace windlass::winarm64 {

// What a sequence of codes says, relative to the registers of the frame it is applied to.
struct SymbolicFrame {
  // x19-x29, lr, d8-d15: preserved registers, and the one the return address comes back in.
  static constexpr unsigned kRegisters = 12 + 8, kFp = 10, kLr = 11;
  // Not saved; saved at sp + offset; at x29 + offset; behind what is counted in lengths of SVE vectors.
  enum class Base : std::int32_t { kRegister, kOnSp, kOnFp, kUnknown };
  struct Slot {
    Base base = Base::kRegister;
    std::int32_t offset = 0;
    bool operator==(const Slot&) const = default;
  };

  Base base = Base::kOnSp;  // the caller's sp = base + offset
  std::int64_t offset = 0;
  Slot slots[kRegisters];
  Slot return_address;  // where `jumps`
  bool return_signed = false;
  bool jumps = false;  // clear_unwound_to_call: the caller's pc is an instruction, not behind a call
  bool operator==(const SymbolicFrame&) const = default;

  [[nodiscard]] static RegisterNumber number(unsigned i) {
    return static_cast<RegisterNumber>(i < 12 ? 19 + i : 72 + (i - 12));
  }
};
// Makes `frame` the result of the codes from `index` on. The length of SVE vectors is not known here. kMalformed and
// kTruncated are as for virtual_unwind(). kUnsupported:
// - system frames;
// - sp or lr found behind an allocation of vectors;
// - x29 used after it was loaded;
// - 1 GiB or more.
[[nodiscard]] Expected<void> execute_symbolically(ByteView codes, std::uint32_t index, SymbolicFrame& frame);

// One evaluator a thread. Functions that one evaluator lowers share what their codes come to.
class RowEvaluator {
 public:
  using RowSink = FunctionRef<void(const FrameRow&)>;

  // Rows have RVAs plus `base`.
  explicit RowEvaluator(const Functions& functions, std::uint64_t base = 0);
  ~RowEvaluator();
  RowEvaluator(const RowEvaluator&) = delete;
  RowEvaluator& operator=(const RowEvaluator&) = delete;

  // For all functions of an image: keeps rows, too, so that for_each_row() takes half the time. Allocates 2 MiB. Where
  // an image has more than 2,048 kinds of rows, equal neighbours may stay apart.
  void keep_rows();

  // Ascending, disjoint rows over the function's whole range, equal neighbours made one. Instructions for which there
  // can be no row are reported and left out; an entry that cannot be read is the returned error. No allocation; linear
  // in the number of codes times the instructions of prologue and epilogues.
  Expected<void> for_each_row(RuntimeFunction function, RowSink emit, ErrorSink report);
  // The same after keep_rows(). `numbered` gets rows in the place of `emit`, where they have a number.
  Expected<void> for_each_row(RuntimeFunction function, NumberedRowSink numbered, RowSink emit, ErrorSink report);
  // After keep_rows(): the rows that the numbers stand for. Numbers are valid while a sink is called.
  [[nodiscard]] KnownRows& rows() const;
  // The row of one address of the function; it holds for that instruction alone. Linear in the number of codes and
  // scopes. Errors: as for_each_row, and what it would report.
  Expected<void> row_at(RuntimeFunction function, std::uint32_t rva, FrameRow& to);
  // While `emit` is called: rows with the same number differ in their addresses and their CFA alone. 0: not numbered,
  // as all rows without keep_rows().
  [[nodiscard]] std::uint32_t number() const;

 private:
  void cover(const UnwindRecord& record, std::uint32_t end);
  void body(std::uint32_t end);
  void epilogue(std::uint32_t index, std::uint32_t start, std::uint32_t end);
  void state(std::uint32_t end, std::uint32_t index);
  void prologue_rows(std::uint32_t instructions, std::uint32_t words);
  [[nodiscard]] const SymbolicFrame* frame_at(std::uint32_t index);
  void flush();
  void report_problem(const Error& error);
  Expected<void> lower_function(RuntimeFunction function);
  // The same by what is kept.
  [[nodiscard]] bool known_state(std::uint32_t end, std::uint32_t index);
  [[nodiscard]] std::uint32_t behind(std::uint32_t index, std::uint32_t count) const;
  [[nodiscard]] std::uint32_t instructions_from(std::uint32_t index) const;

  const Functions& functions_;
  std::uint64_t base_;
  // While a function is lowered: instructions are counted in words from its start.
  ByteView codes_;
  std::uint32_t begin_ = 0;
  std::uint32_t at_ = 0;       // first word that has no state yet
  std::uint32_t pending_ = 0;  // first word of the row being made
  bool has_pending_ = false;
  SymbolicFrame frame_;
  // Frames by their first codes, whatever the function: enough codes for nearly all frames.
  struct MemoKey {
    std::uint64_t codes[4] = {};
    std::uint32_t size = 0;  // in bytes; 0: none; 33: `codes` and others behind them
    bool operator==(const MemoKey&) const = default;
  };
  struct Memo {
    MemoKey key;
    SymbolicFrame frame;
  };
  static constexpr std::size_t kMemos = 64;
  Memo memos_[kMemos];
  const RowSink* emit_ = nullptr;
  const ErrorSink* report_ = nullptr;
  FrameRow row_;
  std::unique_ptr<class KnownLowering> known_;
  struct KnownCodes* known_codes_ = nullptr;  // those of the function
  std::uint32_t number_ = 0;                  // of the known row that is being made, from pending_ on; 0: none is
  CfaWord cfa_{};
};

}  // namespace windlass::winarm64
