// Sections that GNU as and ld 2.47 made of assembly text (in the comments), with what their readelf says of them, and
// rows in readelf's words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/registers.h"
#include "windlass/frame_row.h"

namespace windlass::test {

inline std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> bytes;
  int high = -1;
  for (const char c : text) {
    if (c == ' ') continue;
    const int digit = c <= '9' ? c - '0' : c - 'a' + 10;
    if (high >= 0) bytes.push_back(static_cast<std::byte>(high << 4 | digit));
    high = high >= 0 ? -1 : digit;
  }
  return bytes;
}

// Functions of x86-64, at 0x1000: one that realigns its stack (DRAP); one without a caller; a signal frame; one that
// pushes rbx; one that keeps rbp in r8, and then has no caller.
inline constexpr std::uint64_t kSFrameX64Address = 0x20c0;
inline constexpr std::string_view kSFrameX64 =
    "e2de0305 0300f800 05000000 0e000000 58000000 00000000 50000000 24efffff ffffffff 1c000000 00000000 30efffff"
    "ffffffff 02000000 29000000 22efffff ffffffff 01000000 30000000 13efffff ffffffff 03000000 38000000 06efffff"
    "ffffffff 03000000 46000000 06000001 00000439 08050451 00110a51 00003300 130a33f8 00330016 0a510000 33001b0a"
    "39080033 00010000 00000000 01008000 00000308 03000000 00000308 01031002 03080300 00010000 04390801 0a391000"
    "41000200";
inline const std::vector<std::string> kSFrameX64Rows = {
    "1000 sp+8 u f",      "1005 r10+0 u f",    "1011 r10+0 (fp+0) f", "1013 (fp-8) (fp+0) f", "1016 r10+0 (fp+0) f",
    "101b sp+8 (fp+0) f", "101c RA undefined", "101e sp+8 u f S",     "101f sp+8 u f",        "1020 sp+16 u f",
    "1021 sp+8 u f",      "1022 sp+8 u f",     "1023 sp+16 r8+0 f",   "1024 RA undefined"};

// Of AArch64, at 0x1000: a frame record with a signed return address, a saved x30 alone, one signed with the B key, one
// without a caller.
inline constexpr std::uint64_t kSFrameA64Address = 0x1120;
inline constexpr std::string_view kSFrameA64 =
    "e2de0305 02000000 04000000 0c000000 3c000000 00000000 40000000 c4feffff ffffffff 1c000000 00000000 d0feffff"
    "ffffffff 10000000 1b000000 d0feffff ffffffff 08000000 2a000000 d0feffff ffffffff 04000000 35000000 06000000"
    "00000300 04830008 8720e8e0 0c8620e8 e0148300 18030003 00000000 00030004 0510f00c 03000200 20000000 03000483"
    "00010000 00000000";
inline const std::vector<std::string> kSFrameA64Rows = {
    "1000 sp+0 u u",    "1004 sp+0 u u[s]", "1008 sp+32 c-32 c-24[s]", "100c fp+32 c-32 c-24[s]",
    "1014 sp+0 u u[s]", "1018 sp+0 u u",    "101c sp+0 u u",           "1020 sp+16 u c-16",
    "1028 sp+0 u u",    "102c sp+0 u u",    "1030 sp+0 u u[s]",        "103c RA undefined"};

inline std::string sframe_place(Architecture architecture, std::uint64_t reg, std::int32_t offset, bool loaded) {
  const std::string name = reg == stack_pointer(architecture)   ? "sp"
                           : reg == frame_pointer(architecture) ? "fp"
                                                                : fmt::format("r{}", reg);
  return fmt::format(fmt::runtime(loaded ? "({}{:+})" : "{}{:+}"), name, offset);
}

inline std::string sframe_rule(Architecture architecture, const RegisterRule& rule) {
  switch (rule.kind()) {
    case RegisterRule::kAtCfa: return fmt::format("c{:+}", rule.offset());
    case RegisterRule::kInRegister: return sframe_place(architecture, rule.reg(), 0, false);
    case RegisterRule::kRegisterValue: return sframe_place(architecture, rule.reg(), rule.offset(), false);
    case RegisterRule::kAtRegister: return sframe_place(architecture, rule.reg(), rule.offset(), true);
    case RegisterRule::kSameValue: return "u";
    default: return fmt::format("kind {}", int{rule.kind()});
  }
}

// What a row says of the CFA, the frame pointer and the return address; of anything else nothing.
inline std::string sframe_text(Architecture architecture, const FrameRow& row) {
  if (row.return_address.is(RegisterRule::kUndefined)) return "RA undefined";
  if (row.cfa.is(CfaRule::kExpression) || (row.cfa.is(CfaRule::kLoaded) && row.cfa.addend() != 0)) return "CFA else";
  const RegisterRule* fp = row.registers.find(frame_pointer(architecture));
  const bool usual = architecture == Architecture::kX86_64
                         ? row.return_address == RegisterRule::at_cfa(-8)
                         : row.return_address == RegisterRule::in_register(aarch64::kX30);
  return fmt::format("{} {} {}{}{}",
                     sframe_place(architecture, row.cfa.reg(), row.cfa.offset(), row.cfa.is(CfaRule::kLoaded)),
                     fp == nullptr ? "u" : sframe_rule(architecture, *fp),
                     !usual                                  ? sframe_rule(architecture, row.return_address)
                     : architecture == Architecture::kX86_64 ? "f"
                                                             : "u",
                     row.return_signed ? "[s]" : "", row.signal_frame ? " S" : "");
}

}  // namespace windlass::test
