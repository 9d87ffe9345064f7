// The trace projection of a row: what a profiler needs to find the callers, in the 16 bytes that also go into the
// kernel. Evaluators of every format push these into a sink.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "windlass_table_layout.h"

namespace windlass::table {

using TraceRule = wl_rule;
static_assert(sizeof(TraceRule) == 16);

// A TraceRule as the two words it is in memory. Rows change a field or two at a time and are then read as a whole: in
// words that stays in registers, where narrow stores before a wide load would stall it.
struct PackedRule {
  // In `low`: the CFA's kind (8 bits) and register (8), four kinds of 4 bits, the CFA's offset (32).
  static constexpr int kCfaReg = 8, kFpKind = 16, kRaKind = 20, kXKind = 24, kFlags = 28, kCfaOffset = 32;
  // In `high`: three offsets of 16 bits, the CFA's argument (8), the proof (8).
  static constexpr int kFpOffset = 0, kRaOffset = 16, kXOffset = 32, kCfaArg = 48, kProof = 56;

  std::uint64_t low = 0, high = 0;

  static void put(std::uint64_t& word, int shift, std::uint64_t mask, std::uint64_t value) {
    word = (word & ~(mask << shift)) | (value & mask) << shift;
  }
  bool operator==(const PackedRule&) const = default;
  [[nodiscard]] TraceRule rule() const { return std::bit_cast<TraceRule>(*this); }
  [[nodiscard]] static PackedRule of(const TraceRule& rule) { return std::bit_cast<PackedRule>(rule); }
};

// The rule of code in which an address of 0 proves no end.
[[nodiscard]] inline TraceRule without_end(TraceRule rule) {
  const bool leads_on =
      rule.cfa_kind != WL_CFA_NONE && rule.cfa_kind != WL_CFA_UNSUPPORTED && rule.ra_kind != WL_REG_UNDEFINED;
  if (leads_on) rule.proof = WL_PROOF_NO_END;
  return rule;
}

// How a rule says [register + offset]: it has room for the CFA's register, the frame pointer and, where the CFA is
// plain, one more. To be asked in the order return address, frame pointer, extra register, once the CFA's part is
// filled in.
class BaseSettler {
 public:
  BaseSettler(TraceRule& rule, std::uint64_t frame_pointer) : rule_(rule), frame_pointer_(frame_pointer) {}
  // The wl_reg_kind; nothing where the rule cannot say it.
  [[nodiscard]] std::optional<std::uint8_t> kind(std::uint64_t reg) {
    if (reg == rule_.cfa_reg && rule_.cfa_kind != WL_CFA_UNSUPPORTED) return WL_REG_BASE;
    if (reg == frame_pointer_) return WL_REG_FP;
    if (rule_.cfa_kind != WL_CFA_REG || reg > 15 || (has_argument_ && reg != rule_.arg_reg)) return std::nullopt;
    has_argument_ = true;
    rule_.arg_reg = static_cast<std::uint8_t>(reg);
    return WL_REG_ARG;
  }

 private:
  TraceRule& rule_;
  std::uint64_t frame_pointer_;
  bool has_argument_ = false;
};

// The rule holds from `begin` on, until the next row or the end of its function.
struct TraceRow {
  std::uint64_t begin;
  TraceRule rule;
};

}  // namespace windlass::table
