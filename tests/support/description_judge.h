// What describe() says of a function, held against all its ways in an emulator.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/registers.h"
#include "flow/described_frames.h"
#include "support/ways.h"
#include "support/written_function.h"
#include "walk/apply.h"
#include "windlass/jit/describe.h"

namespace windlass::test {

struct Function {
  std::string name;
  std::uint64_t begin;
  std::vector<std::byte> code;
};

inline const FrameRow* row_at(const std::vector<FrameRow>& rows, std::uint64_t offset) {
  auto next = std::upper_bound(rows.begin(), rows.end(), offset,
                               [](std::uint64_t at, const FrameRow& row) { return at < row.begin; });
  if (next == rows.begin()) return nullptr;
  --next;
  return offset < next->end ? &*next : nullptr;
}

struct Tally {
  std::size_t functions = 0, whole = 0, with_prologue = 0;
  std::size_t proved = 0, unproved = 0;                          // bytes
  std::size_t judged = 0, run_unproved = 0, calls_that_end = 0;  // instructions
  std::map<std::string_view, std::size_t> reasons, no_prologue;
  std::size_t written[2] = {}, unwound = 0;  // functions, instructions, as Windows' versions 1 and 2
  std::map<std::string, std::size_t> not_written[2];
  std::vector<std::string> wrong;

  [[nodiscard]] double share() const {
    return static_cast<double>(proved) / static_cast<double>(std::max<std::size_t>(proved + unproved, 1));
  }
};

template <typename W>
class DescriptionJudge {
 public:
  [[nodiscard]] bool ok() const { return ways_.ok(); }

  void function(const Function& function, const DescribeOptions& options, bool as_windows, Tally& tally) {
    const auto found = describe(function.code, function.begin, kArchitecture, options);
    ASSERT_TRUE(found) << found.error().text();
    ++tally.functions;
    tally.whole += found->whole();
    tally.with_prologue += found->prologue.has_value();
    if (!found->prologue) ++tally.no_prologue[found->no_prologue];
    for (const FrameRow& row : found->rows) tally.proved += row.end - row.begin;
    for (const Unproved& stretch : found->unproved) {
      tally.unproved += stretch.end - stretch.begin;
      tally.reasons[reason_text(stretch.reason)] += stretch.end - stretch.begin;
    }
    std::vector<FrameRow> by_prologue;
    if (found->prologue) by_prologue = *rows_of(*found->prologue);
    // The same as Windows' unwinder takes it from what is written.
    std::unique_ptr<WrittenFunction> held[2];
    for (std::uint8_t version : {1, 2}) {
      if (!found->prologue || !as_windows) continue;
      std::vector<std::uint8_t> code(function.code.size());
      std::memcpy(code.data(), function.code.data(), code.size());
      auto made = WrittenFunction::make(*found->prologue, code, version);
      if (made)
        held[version - 1] = std::move(*made);
      else
        ++tally.not_written[version - 1][made.error().what];
      tally.written[version - 1] += held[version - 1] != nullptr;
    }
    const auto at = [&](std::uint32_t offset, const Registers& now) {
      const FrameRow* const row = row_at(found->rows, offset);
      ++(row != nullptr ? tally.judged : tally.run_unproved);
      if (row == nullptr) return;
      const auto kept = check(function, offset, *row, now, "row",
                              options.keeps_frame_pointer_only ? kFramePointer : kPreserved, tally);
      if (!found->prologue) return;
      const FrameRow* const said = row_at(by_prologue, offset);
      ASSERT_NE(said, nullptr);
      // Of what is lost a Prologue says nothing.
      (void)check(function, offset, *said, now, "prologue", kept, tally);
      for (const auto& windows : held)
        if (windows)
          unwind(function, offset, *windows, popped_at(*found->prologue, function, offset), now, kept, tally);
    };
    // A call does not change the description, so a different frame behind the call means that the call does not return.
    const auto comes_back = [&](std::uint32_t call, std::uint32_t next) {
      const FrameRow *const before = row_at(found->rows, call), *const behind = row_at(found->rows, next);
      const bool same = before != nullptr && behind != nullptr && flow::same_rules(*before, *behind);
      tally.calls_that_end += !same;
      return same;
    };
    ways_.run(function.code, function.begin, at, comes_back);
  }

 private:
  static constexpr Architecture kArchitecture = W::kArchitecture;
  static constexpr std::span<const RegisterNumber> kPreserved = W::kPreserved;
  static constexpr RegisterNumber kFramePointerNumber[] = {Registers::fp_number(kArchitecture)};
  static constexpr std::span<const RegisterNumber> kFramePointer = kFramePointerNumber;

  // The caller's registers that the row gives, of those in `registers`.
  std::vector<RegisterNumber> check(const Function& function, std::uint32_t offset, const FrameRow& row,
                                    const Registers& now, std::string_view what,
                                    std::span<const RegisterNumber> registers, Tally& tally) {
    constexpr walk::ApplyContext kAllSlotsLive{.slots_below_sp_are_dead = false};
    const Registers& truth = ways_.caller();
    Registers caller;
    const walk::StepStatus status = walk::apply(row, ways_, kAllSlotsLive, now, caller, nullptr);
    std::vector<RegisterNumber> given;
    std::string wrong;
    if (!status.ok()) wrong = " " + status.error.text();
    if (status.ok() && caller.pc().value() != truth.pc().value()) wrong += " pc";
    if (status.ok() && caller.sp() != truth.sp())
      wrong += fmt::format(" sp{:+}", static_cast<std::int64_t>(caller.sp() - truth.sp()));
    for (const RegisterNumber reg : registers) {
      if (!caller.has(reg)) continue;
      given.push_back(reg);
      if (caller.get(reg) != truth.get(reg)) wrong += " " + register_text(kArchitecture, reg);
    }
    if (!wrong.empty())
      tally.wrong.push_back(
          fmt::format("{} at {:#x}+{:#x}, by its {}:{}", function.name, function.begin, offset, what, wrong));
    return given;
  }

  static std::string code_around(const Function& function, std::uint32_t offset) {
    constexpr std::uint32_t kBytes = 24;
    const std::size_t begin = offset < kBytes ? 0 : offset - kBytes;
    std::string text;
    for (std::size_t i = begin; i < std::min<std::size_t>(offset + kBytes, function.code.size()); ++i)
      text += fmt::format("{}{:02x}", i == offset ? " " : "", static_cast<unsigned>(function.code[i]));
    return text;
  }

  // Of the caller's arguments by the end of the epilogue at `offset`, `ret n`: no row tells of it, the unwinder does.
  static std::uint64_t popped_at(const Prologue& prologue, const Function& function, std::uint32_t offset) {
    for (const prologue::Epilogue& epilogue : prologue.epilogues)
      if (offset >= epilogue.begin && offset < epilogue.end && epilogue.end >= 3 &&
          function.code[epilogue.end - 3] == std::byte{0xc2})
        return std::to_integer<std::uint64_t>(function.code[epilogue.end - 2]);
    return 0;
  }

  // As Windows does; to where the code is in the image.
  void unwind(const Function& function, std::uint32_t offset, const WrittenFunction& held, std::uint64_t popped,
              const Registers& now, std::span<const RegisterNumber> registers, Tally& tally) {
    const std::uint64_t base = held.image().image_base();
    Registers frame = now;
    frame.set_pc(CodeAddress::instruction(base + WrittenFunction::kFunction + offset));
    winx64::Unwound unwound;
    const Registers& truth = ways_.caller();
    const auto ok = winx64::virtual_unwind(held.functions(), base, ways_, frame, unwound);
    std::string wrong = ok ? "" : " " + ok.error().text();
    if (ok && unwound.caller.pc().value() != truth.pc().value()) wrong += " pc";
    if (ok && unwound.caller.sp() != truth.sp() && unwound.caller.sp() != truth.sp() + popped) wrong += " sp";
    for (const RegisterNumber reg : registers)
      if (ok && unwound.caller.get(reg) != truth.get(reg)) wrong += " " + register_text(kArchitecture, reg);
    ++tally.unwound;
    if (!wrong.empty())
      tally.wrong.push_back(fmt::format("{} at {:#x}+{:#x}, as Windows:{}; code {}", function.name, function.begin,
                                        offset, wrong, code_around(function, offset)));
  }

  W ways_;
};

inline void report(std::string_view name, const Tally& tally) {
  fmt::print(
      "{}: {} functions, {} whole, {} with a prologue; {:.2f}% of {} bytes; {} instructions judged, {} of the unproved "
      "run, {} calls that end\n",
      name, tally.functions, tally.whole, tally.with_prologue, 100 * tally.share(), tally.proved + tally.unproved,
      tally.judged, tally.run_unproved, tally.calls_that_end);
  for (const auto& [reason, bytes] : tally.reasons) fmt::print("    unproved: {:42} {:8} bytes\n", reason, bytes);
  for (const auto& [reason, count] : tally.no_prologue) fmt::print("    no prologue: {:54} {:8}\n", reason, count);
  for (int i = 0; i < 2 && tally.unwound != 0; ++i) {
    fmt::print("    written as Windows' version {}: {}; {} instructions unwound\n", i + 1, tally.written[i],
               tally.unwound);
    for (const auto& [reason, count] : tally.not_written[i]) fmt::print("      not: {:60} {:8}\n", reason, count);
  }
  for (std::size_t i = 0; i < tally.wrong.size() && i < 20; ++i) fmt::print("    {}\n", tally.wrong[i]);
}

// Of the calls that are run at most `ending` are said not to return, as a share of the instructions.
inline void expect_right(const Tally& tally, double ending) {
  EXPECT_EQ(tally.wrong.size(), 0u);
  EXPECT_GT(tally.judged, 4000u);
  EXPECT_LE(static_cast<double>(tally.calls_that_end), ending * static_cast<double>(tally.judged));
}

}  // namespace windlass::test
