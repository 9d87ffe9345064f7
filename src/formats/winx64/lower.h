// Windows x64 unwind information as rows. Epilogues of version 1, which it does not describe, are found ahead of time
// in the code, so that walking needs no code. At every instruction a row says what `virtual_unwind` does there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "formats/winx64/read.h"
#include "rows/known_rows.h"
#include "windlass/frame_row.h"
#include "windlass/function_ref.h"

namespace windlass::winx64 {

using RowSink = FunctionRef<void(const FrameRow& row)>;
using ProblemSink = FunctionRef<void(const Error& error)>;

// What has functions and unwind information without being a PE image: code that a runtime made (exec.h's UnwindImage,
// behind two references). It must not outlive what it is of.
class AnyImage {
 public:
  using Find = FunctionRef<std::optional<RuntimeFunction>(std::uint32_t rva)>;
  using Bytes = FunctionRef<ByteView(std::uint32_t rva, std::uint32_t wanted)>;
  AnyImage(Find find, Bytes bytes) : find_(find), bytes_(bytes) {}
  [[nodiscard]] bool find(std::uint32_t rva, RuntimeFunction& to) const {
    const auto found = find_(rva);
    if (found) to = *found;
    return found.has_value();
  }
  [[nodiscard]] ByteView bytes(std::uint32_t rva, std::uint32_t wanted) const { return bytes_(rva, wanted); }

 private:
  Find find_;
  Bytes bytes_;
};

// The rows of a function-table entry, by RVA, ascending and adjoining except for gaps. Registers are DWARF numbers
// (xmm6-15 are 23-32). rsi and rdi, which only Windows preserves, always have a rule. Linear in the code's size;
// allocates nothing. At most 64 changes in a prologue; more are a problem.
//
// A gap is code for which no row can express the codes. It is reported as a problem of code kUnsupported, with an RVA
// as `where`. Reasons: a machine frame that is not at the begin of the stack; a frame register that is restored before
// its use; a chain that mixes version 3 with others. A frame of 2 GiB or more is a problem of code kLimit.
void lower(const Functions& functions, const RuntimeFunction& entry, RowSink row, ProblemSink problem);
void lower(const AnyImage& image, const RuntimeFunction& entry, RowSink row, ProblemSink problem);

// The same for many functions of an image, in a third of the time: what functions have in common is worked out once.
// One evaluator a thread. Allocates at most 2 MiB. Where an image has more than 2,048 kinds of rows, equal neighbours
// may stay apart.
class RowEvaluator {
 public:
  // `functions` must outlive the evaluator.
  explicit RowEvaluator(const Functions& functions);
  ~RowEvaluator();
  RowEvaluator(const RowEvaluator&) = delete;
  RowEvaluator& operator=(const RowEvaluator&) = delete;

  // `numbered` gets rows in the place of `row`, where they have a number.
  void for_each_row(const RuntimeFunction& entry, NumberedRowSink numbered, RowSink row, ProblemSink problem);
  // The rows that the numbers stand for. Numbers are valid while a sink is called.
  [[nodiscard]] KnownRows& rows() const;

  // All rows one by one.
  void for_each_row(const RuntimeFunction& entry, RowSink row, ProblemSink problem);
  // While `row` is called: rows with the same number differ in their addresses and their CFA alone. 0: not numbered.
  [[nodiscard]] std::uint32_t number() const;

 private:
  const Functions& functions_;
  std::unique_ptr<class KnownLowering> known_;
};

// The row of one address of the entry, begin <= rva < end; it holds for that address alone. The same as `lower` gives,
// without looking at the rest of the function: linear in the number of codes. Errors: what would be a problem.
Expected<void> row_at(const Functions& functions, const RuntimeFunction& entry, std::uint32_t rva, FrameRow& to);
Expected<void> row_at(const AnyImage& image, const RuntimeFunction& entry, std::uint32_t rva, FrameRow& to);

}  // namespace windlass::winx64
