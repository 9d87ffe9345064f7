#include "lookup/table/extra_register.h"

#include <cstring>

#include "formats/dwarf/constants.h"
#include "windlass_table_layout.h"

namespace windlass::table {

namespace {

constexpr std::size_t kVector = 16;
constexpr std::size_t kBlock = 64;
using Vector [[gnu::vector_size(kVector)]] = std::uint8_t;

Vector load(const std::uint8_t* at) {
  Vector value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool any(Vector value) {
  std::uint64_t halves[2];
  std::memcpy(halves, &value, sizeof value);
  return (halves[0] | halves[1]) != 0;
}

// Where `numbers` are callee-saved registers, frame pointer aside. x86-64: rbx, r12-r15; AArch64: x19-x28.
template <Architecture architecture>
Vector callee_saved(Vector numbers) {
  if constexpr (architecture == Architecture::kX86_64)
    return reinterpret_cast<Vector>((numbers == 3) | ((numbers & 0xfc) == 12));
  else
    return reinterpret_cast<Vector>((numbers - 19) < 10);
}

// def_cfa or def_cfa_register with such a register: numbers 0x0c and 0x0d. Nothing else is ever used for it.
template <Architecture architecture>
bool is_suspect(const std::uint8_t* block) {
  static_assert(dwarf::DW_CFA_def_cfa == 0x0c && dwarf::DW_CFA_def_cfa_register == 0x0d);
  Vector found{};
  for (std::size_t i = 0; i < kBlock; i += kVector) {
    const auto takes_register = reinterpret_cast<Vector>((load(block + i) & 0xfe) == 0x0c);
    found |= takes_register & callee_saved<architecture>(load(block + i + 1));
  }
  return any(found);
}

template <Architecture architecture>
std::vector<std::uint64_t> entries_of(const dwarf::CfiSection& section) {
  const std::uint8_t* bytes = section.bytes.u8();
  const std::uint64_t size = section.bytes.size();
  // Blocks are looked at as they are reached: entries follow one another, and so do blocks.
  std::vector<std::uint64_t> entries;
  std::uint64_t looked_at = 0;   // blocks before this one have been looked at
  std::uint64_t suspect_to = 0;  // past the last suspect block found so far
  for (std::uint64_t at = 0; size - at >= 4;) {
    std::uint32_t length;
    std::memcpy(&length, bytes + at, sizeof length);
    if (length >= 0xfffffff0 || length > size - at - 4) break;
    const std::uint64_t end = at + 4 + length;
    while (looked_at < end) {
      // The last few bytes are too near the end for whole vectors.
      const bool whole = size - looked_at > kBlock;
      looked_at += kBlock;
      if (!whole || is_suspect<architecture>(bytes + looked_at - kBlock)) suspect_to = looked_at;
    }
    // Suspect blocks before this entry's begin belong to the ones before; a block it shares counts for both.
    if (suspect_to > at) entries.push_back(at);
    at = end;
  }
  return entries;
}

}  // namespace

std::uint32_t preserved_registers(Architecture architecture) {
  std::uint32_t registers = 0;
  for (unsigned reg = 0; reg < kTrackable; ++reg) registers |= std::uint32_t{is_callee_saved(architecture, reg)} << reg;
  return registers;
}

std::uint8_t choose_extra_register(const CfaRegisterUse& use, std::uint32_t preserved) {
  std::uint8_t best = WL_NO_XREG;
  for (unsigned reg = 0; reg < kTrackable && reg < use.size(); ++reg) {
    if (use[reg] == 0 || (preserved >> reg & 1) == 0) continue;
    if (best == WL_NO_XREG || use[reg] > use[best]) best = static_cast<std::uint8_t>(reg);
  }
  return best;
}

std::vector<std::uint64_t> suspect_entries(const dwarf::CfiSection& section) {
  return section.architecture == Architecture::kAArch64 ? entries_of<Architecture::kAArch64>(section)
                                                        : entries_of<Architecture::kX86_64>(section);
}

}  // namespace windlass::table
