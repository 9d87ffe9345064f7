#include "flow/eh_return.h"

#include <algorithm>
#include <cstring>

#include "base/registers.h"
#include "flow/aarch64_encoding.h"
#include "flow/stack_effect.h"

namespace windlass::flow {
namespace {

using Kind = StackEffect::Kind;

constexpr RegisterNumber kRcx = 2, kEcx = 1;

// The offset behind the instruction that moves rsp.
std::optional<std::uint64_t> find_eh_return(ByteView code, std::uint64_t address, Architecture architecture) {
  const RegisterNumber from = architecture == Architecture::kI386 ? kEcx : kRcx;
  const std::uint64_t end = std::min<std::uint64_t>(code.size(), kEhReturnBytes);
  unsigned calls = 0;
  StraightCode line(code, address, end, 0, architecture);
  while (const auto effect = line.next()) {
    switch (effect->kind) {
      case Kind::kSet:
        if (effect->reg != from) return std::nullopt;
        return line.end();
      case Kind::kCall:
        if (++calls > 1) return std::nullopt;
        break;
      case Kind::kJump:  // into the loop that takes frames off the shadow stack
        if (effect->target < address + line.end() || effect->target >= address + end) return std::nullopt;
        break;
      case Kind::kReturn:
      case Kind::kUnknown: return std::nullopt;
      default: break;
    }
  }
  return std::nullopt;
}

constexpr std::uint32_t kAddX4ToSp = 0x8b24'63ff, kRet = 0xd65f'03c0;
constexpr unsigned kX4 = 4;

a64::Word word_at(ByteView code, std::uint64_t offset) {
  a64::Word word{};
  std::memcpy(&word.bits, code.data() + offset, sizeof word.bits);
  return word;
}

bool sets_x4(a64::Word word) {
  if (word.is_branch_or_system()) return false;
  if (!word.is_load_store()) return word.rd() == kX4;
  const bool loads = word.bit(22), of_vectors = word.bit(26);
  return loads && !of_vectors && (word.rd() == kX4 || (word.is_pair() && word.rt2() == kX4));
}

}  // namespace

bool saves_landing_registers(const FrameRow& row, Architecture architecture) {
  const RegisterNumber second = architecture == Architecture::kI386 ? 2 : 1;
  const auto saved = [&](RegisterNumber reg) {
    const RegisterRule* rule = row.registers.find(reg);
    return rule != nullptr && rule->is(RegisterRule::kAtCfa);
  };
  return !row.signal_frame && saved(0) && saved(second);
}

bool leads_to_eh_return(ByteView code, std::uint64_t address, Architecture architecture) {
  return find_eh_return(code, address, architecture).has_value();
}

bool behind_eh_return(ByteView before, Architecture architecture) {
  constexpr std::uint8_t kMovRspRcx[kEhReturnMove] = {0x48, 0x89, 0xcc};
  const std::size_t skipped = architecture == Architecture::kI386 ? 1 : 0;  // mov esp, ecx has no prefix
  return before.size() == sizeof kMovRspRcx &&
         std::memcmp(before.data() + skipped, kMovRspRcx + skipped, sizeof kMovRspRcx - skipped) == 0;
}

WayOut way_out(ByteView function, std::uint64_t begin, std::uint64_t pc) {
  constexpr unsigned kMost = 64;  // instructions
  constexpr std::uint32_t kMovX4Zero = 0xd280'0004;
  bool called = false, set = false;
  for (unsigned i = 0; i < kMost; ++i, pc += 4) {
    const std::uint64_t offset = pc - begin;
    if (offset % 4 != 0 || offset >= function.size() || function.size() - offset < 4) break;
    const a64::Word word = word_at(function, offset);
    if (word.bits == kAddX4ToSp) return called || set ? WayOut::kLanding : WayOut::kAsX4HasIt;
    if (word.bits == kMovX4Zero) break;
    set |= sets_x4(word);
    if (word.is_b()) {
      pc = word.branch_target(pc) - 4;
    } else if (word.is_call()) {
      if (called) break;
      called = true;
    } else if (word.is_branch_register() || word.is_b_cond() || word.is_cbz() || word.is_tbz()) {
      break;
    }
  }
  return WayOut::kPlain;
}

std::vector<EhReturnPart> landing_parts(ByteView function, std::uint64_t begin) {
  std::vector<EhReturnPart> parts;
  const auto add = [&](std::uint64_t at, std::uint64_t end) {
    if (!parts.empty() && begin + at <= parts.back().end)
      parts.back().end = begin + end;
    else
      parts.push_back({begin + at, begin + end});
  };
  for (std::uint64_t at = 0; at + 4 <= function.size(); at += 4) {
    if (way_out(function, begin, begin + at) == WayOut::kPlain) continue;
    // What is called in front of it returns into it.
    const bool called = at != 0 && word_at(function, at - 4).is_call();
    const bool left = word_at(function, at).bits == kAddX4ToSp;
    add(at - (called ? 4 : 0), std::min<std::uint64_t>(at + (left ? kEhReturnEnd : 4), function.size()));
  }
  return parts;
}

bool is_eh_return_end(ByteView code) {
  return code.size() == kEhReturnEnd && word_at(code, 0).bits == kAddX4ToSp && word_at(code, 4).bits == kRet;
}

std::optional<EhReturnPart> eh_return_part(ByteView function, std::uint64_t address) {
  constexpr std::size_t kMostBytes = 1 << 20;
  StraightCode line(function, address, kMostBytes);
  while (const auto effect = line.next()) {
    if (effect->kind != Kind::kCall) continue;
    const ByteView behind = *function.sub(line.end(), function.size() - line.end());
    const auto moved = find_eh_return(behind, address + line.end(), Architecture::kX86_64);
    if (!moved) continue;
    StraightCode way_out(function, address, kMostBytes, line.end() + *moved);
    while (const auto last = way_out.next())
      if (last->kind == Kind::kJump || last->kind == Kind::kReturn) break;
    if (way_out.failed()) return std::nullopt;
    return EhReturnPart{address + line.offset(), address + way_out.end()};
  }
  return std::nullopt;
}

}  // namespace windlass::flow
