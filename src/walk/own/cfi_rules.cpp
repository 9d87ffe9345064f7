#include "walk/own/cfi_rules.h"

#include <algorithm>

#include "flow/eh_return.h"
#include "lookup/table/unusual_rows.h"
#include "walk/own/rules.h"

namespace windlass::walk {
namespace {

// Eight bytes at a time. Not by memchr: that is a call into a page of code that a first walk would have to wait for.
[[gnu::hot]] bool has_byte(const ByteView& bytes, std::uint8_t wanted) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  const std::uint8_t* at = bytes.u8();
  const std::uint8_t* const end = at + bytes.size();
  for (; end - at >= 8; at += 8) {
    std::uint64_t word;
    __builtin_memcpy(&word, at, sizeof word);
    word ^= kOnes * wanted;  // a byte that is 0 now borrows
    if (((word - kOnes) & ~word & kOnes << 7) != 0) return true;
  }
  return std::find(at, end, wanted) != end;
}

}  // namespace

// libgcc's functions that go to a landing pad save registers for it that no other function saves. On the way there
// their rows describe a frame that is no longer there (flow/eh_return.h): that is for those who know better.
[[gnu::hot]] bool CfiRules::may_have_landed(std::uint64_t key) const {
  constexpr std::uint8_t kSaves0 = 0x80, kSaves1 = 0x81;  // DW_CFA_offset of rax and rdx, x0 and x1
  const auto has = [&](std::uint8_t code) { return has_byte(found_.fde.instructions, code); };
  FrameRow row;
  if (!has(kSaves0) || !has(kSaves1) || !module_->module().row_at(lookup_address(key), row) ||
      !flow::saves_landing_registers(row, kOwnArchitecture))
    return false;
  // Whether a call on x86-64 is on the way there is said by the code behind it alone.
  const bool knows = kIsX64 && (key & kInstructionBit) == 0 && always_readable(key, flow::kEhReturnBytes);
  return !knows ||
         flow::leads_to_eh_return(ByteView(reinterpret_cast<const std::byte*>(key), flow::kEhReturnBytes), key);
}

[[gnu::hot]] bool CfiRules::find(const OwnModule& module, std::uint64_t key, table::TraceRule& rule) {
  if (&module != module_) {
    module_ = nullptr;
    interpreter_.reset();
    if (!module.cfi(cfi_)) return false;
    module_ = &module;
  }
  const std::uint64_t address = lookup_address(key);
  if (!cfi_.header.find(cfi_.eh_frame, address, found_)) return false;
  if (!interpreter_ || interpreted_ != found_.cie.offset) {
    interpreter_.emplace(cfi_.eh_frame, State(WL_NO_XREG));
    interpreted_ = found_.cie.offset;
  }
  bool given = false;
  (void)interpreter_->run(found_.fde, [&](std::uint64_t begin, std::uint64_t end, const State& state) {
    if (address < begin || address >= end) return true;
    rule = state.rule().rule();
    given = true;
    return false;
  });
  if (given && may_have_landed(key)) rule = table::for_the_agent(rule);
  return given;
}

}  // namespace windlass::walk
