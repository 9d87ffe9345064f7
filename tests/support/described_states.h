// The state of a described function at an offset of its code, as numbers. So rows that count from different registers
// can be compared: they are the same if they lead to the same addresses.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <fmt/format.h>

#include "rows/frame_state.h"
#include "windlass/prologue.h"

namespace windlass::test {

// The frame behind all instructions that end at or before `at`. The description has been checked.
inline FrameState described_state(const Prologue& f, std::uint32_t at) {
  FrameState state(f.architecture);
  const auto apply = [&](const std::vector<prologue::Op>& ops) {
    for (const prologue::Op& op : ops)
      if (op.end <= at) (void)state.apply(op);
  };
  const auto undo = [&](const std::vector<prologue::Epilogue>& epilogues) {
    for (const prologue::Epilogue& epilogue : epilogues) {
      if (at < epilogue.begin || at >= epilogue.end) continue;
      for (const prologue::Op& op : epilogue.undone)
        if (op.end <= at) (void)state.undo(op);
    }
  };
  apply(f.ops);
  for (const prologue::Part& part : f.parts) {
    if (at < part.begin || at >= part.end) continue;
    apply(part.ops);
    undo(part.epilogues);
  }
  undo(f.epilogues);
  return state;
}

inline constexpr std::int64_t kDescribedCfa = 0x10'0000'0000;

// Where a row finds the CFA, the return address and each saved register, if sp and the frame pointer are as described.
inline std::map<std::string, std::string> places(const FrameRow& row, const FrameState& state, Architecture of) {
  const auto value = [&](RegisterNumber reg) {
    const bool by_pointer = state.pointer() && state.pointer()->reg == reg;
    if (!by_pointer && reg != Registers::sp_number(of)) return std::int64_t{0};
    return kDescribedCfa - static_cast<std::int64_t>(by_pointer ? state.pointer()->depth : state.depth());
  };
  const std::int64_t at = value(row.cfa.reg()) + row.cfa.offset();
  std::map<std::string, std::string> found{{"cfa", fmt::format("{}{:x}", row.signal_frame ? "at " : "", at)}};
  const auto place = [&](const std::string& name, const RegisterRule& rule) {
    if (rule.is(RegisterRule::kAtCfa)) found[name] = fmt::format("[{:x}]", at + rule.offset());
    if (rule.is(RegisterRule::kAtRegister)) found[name] = fmt::format("[{:x}]", value(rule.reg()) + rule.offset());
    if (rule.is(RegisterRule::kInRegister)) found[name] = fmt::format("r{}", rule.reg());
  };
  place("return", row.return_address);
  if (row.return_signed) found["signed"];
  for (const RegisterEntry& entry : row.registers) place(std::to_string(entry.reg), entry.rule);
  return found;
}

}  // namespace windlass::test
