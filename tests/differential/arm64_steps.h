// The unwinder's C over states of an emulator that runs Windows ARM64 functions, by a table of their rows.
#pragma once

#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/winarm64/lower.h"
#include "lookup/table/builder.h"
#include "lookup/table/project.h"
#include "support/a64_unwinder.h"
#include "support/arm64_emulator.h"

namespace windlass::test {

inline Expected<table::UnwindTable> table_of(const winarm64::Functions& functions) {
  table::TableBuilder builder;
  winarm64::RowEvaluator rows(functions);
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const winarm64::RuntimeFunction function = functions.stored(i);
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(functions.image(), function, storage);
    if (!record) continue;
    wl_rule none{};  // where there is no row
    none.cfa_kind = WL_CFA_UNSUPPORTED;
    std::uint64_t next = function.begin;
    const std::uint64_t end = next + record->length;
    builder.begin_function(function.begin, end);
    const auto add = [&](const FrameRow& row) {
      if (row.begin > next) builder.row(next, none);
      builder.row(row.begin, table::project(row, Architecture::kAArch64, WL_NO_XREG));
      next = row.end;
    };
    (void)rows.for_each_row(function, add, [](const Error&) {});
    if (next < end) builder.row(next, none);
    builder.end_function();
  }
  return builder.finish();
}

class KernelSteps {
 public:
  KernelSteps(const image::PeImage& image, const Arm64Emulator& emulator)
      : unwinder_([&](std::uint64_t address, void* to, std::size_t size) { return emulator.read(address, to, size); }) {
    const auto table = table_of(winarm64::Functions(image));
    EXPECT_TRUE(table);
    const auto module = table ? unwinder_.add_module(*table) : 0;
    EXPECT_TRUE(module);
    if (!module) return;
    // The emulator's return addresses lie in no module, which a step does not ask.
    unwinder_.set_mappings(
        {{image.image_base(), image.image_base() + image.image_size(), image.image_base(), *module, 0}});
  }

  std::size_t taken = 0, wrong = 0;
  std::map<std::string, std::size_t> refused;
  std::string first;

  void operator()(const Registers& state, const Registers& caller) {
    std::uint64_t x[31];
    for (RegisterNumber i = 0; i < 31; ++i) x[i] = state.get(i);
    wl_cursor cursor = A64Unwinder::cursor(x, state.sp(), state.pc().value());
    const int status = unwinder_.step(cursor);
    ++taken;
    if (status != WL_CONTINUE) {
      ++refused[kEnds[status]];
      return;
    }
    if (cursor.regs[WL_PC] == caller.get(30) && cursor.regs[WL_SP] == caller.sp() &&
        (!WL_VALID(&cursor, WL_FP) || cursor.regs[WL_FP] == caller.get(29)))
      return;
    if (++wrong == 1)
      first = fmt::format("at {:#x}: pc {:#x} sp {:#x} x29 {:#x}, not {:#x} {:#x} {:#x}", state.pc().value(),
                          cursor.regs[WL_PC], cursor.regs[WL_SP], cursor.regs[WL_FP], caller.get(30), caller.sp(),
                          caller.get(29));
  }
  void expect_right(const std::string& name) const {
    std::printf("%-14s %zu states, %zu steps by the memo, %zu wrong\n", name.c_str(), taken,
                static_cast<std::size_t>(unwinder_.plain_steps()), wrong);
    for (const auto& [why, count] : refused) std::printf("    %zu %s\n", count, why.c_str());
    EXPECT_EQ(wrong, 0U) << first;
    EXPECT_EQ(unwinder_.memo_differences(), 0U);
    EXPECT_GT(unwinder_.plain_steps(), taken / 20);
  }

 private:
  static constexpr const char* kEnds[] = {
#define WINDLASS_END_TEXT(name, text) text,
      WL_ENDS(WINDLASS_END_TEXT)
#undef WINDLASS_END_TEXT
  };

  A64Unwinder unwinder_;
};

}  // namespace windlass::test
