#include "walk/row_cache.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "arch/registers.h"
#include "walk/module.h"
#include "walk/progress.h"

namespace windlass::walk {
namespace {

// The slots of the registers that calls preserve.
constexpr std::uint64_t preserved_slots(Architecture architecture) {
  std::uint64_t slots = 0;
  for (RegisterNumber reg = 0; reg < 128; ++reg)
    if (is_callee_saved(architecture, reg)) slots |= std::uint64_t{1} << Registers::slot_of(architecture, reg);
  return slots;
}
constexpr std::uint64_t kPreserved[] = {preserved_slots(Architecture::kX86_64), preserved_slots(Architecture::kAArch64),
                                        preserved_slots(Architecture::kI386)};
static_assert(std::size(kPreserved) == kArchitectures);

bool add(CallSiteRow& row, unsigned slot, const RegisterRule& rule) {
  if (!rule.is(RegisterRule::kAtCfa) || slot >= Registers::kSlots || row.saved == CallSiteRow::kMaxSaved) return false;
  row.slot[row.saved] = static_cast<std::uint8_t>(slot);
  row.offset[row.saved] = static_cast<std::int16_t>(rule.offset());
  return row.offset[row.saved++] == rule.offset();
}

// Where the saved registers lie; false if that is too far apart.
bool find_extent(CallSiteRow& row, int word) {
  const auto [lowest, highest] = std::minmax_element(row.offset, row.offset + row.saved);
  const int words = (*highest - *lowest) / word + 1;
  if (words > static_cast<int>(CallSiteRow::kMaxWords)) return false;
  row.lowest = *lowest;
  row.words = static_cast<std::uint8_t>(words);
  return std::all_of(row.offset, row.offset + row.saved, [&](int offset) { return (offset - row.lowest) % word == 0; });
}

}  // namespace

void RowCache::keep(std::uint64_t module, std::uint64_t pc, const FrameRow& row, FrameOrigin origin,
                    Architecture architecture) {
  if (module == 0 || !row.cfa.is(CfaRule::kRegister) || row.signal_frame) return;
  CallSiteRow kept{};
  kept.module = module;
  kept.pc = pc;
  const unsigned cfa_slot = Registers::slot_of(architecture, row.cfa.reg());
  if (cfa_slot >= Registers::kSlots) return;
  kept.cfa_slot = static_cast<std::uint8_t>(cfa_slot);
  kept.cfa_offset = row.cfa.offset();
  kept.return_signed = row.return_signed;
  kept.origin = origin;
  kept.preserved = kPreserved[static_cast<unsigned>(architecture)];
  if (!add(kept, Registers::slot_of(architecture, Registers::pc_number(architecture)), row.return_address)) return;
  for (const RegisterEntry entry : row.registers) {
    const unsigned slot = Registers::slot_of(architecture, entry.reg);
    if (slot >= Registers::kSlots) continue;
    if (entry.rule.is(RegisterRule::kSameValue))  // rsi and rdi, which only Windows preserves
      kept.preserved |= std::uint64_t{1} << slot;
    else if (!add(kept, slot, entry.rule))
      return;
  }
  if (!find_extent(kept, static_cast<int>(Registers::word_size(architecture)))) return;
  // The newest first; what was kept before it goes.
  CallSiteRow* const set = rows_ + first_of_set(module, pc);
  if (!set[0].is(module, pc)) set[1] = set[0];
  set[0] = kept;
}

bool apply_in_place(const CallSiteRow& row, const AddressSpace& space, const WalkOptions& options, Frame& frame,
                    const Module*& module) {
  Registers& registers = frame.registers;
  const Memory& memory = space.memory();
  if (!registers.has_slot(row.cfa_slot)) return false;
  const std::uint64_t cfa = registers.get_slot(row.cfa_slot) + static_cast<std::uint64_t>(std::int64_t{row.cfa_offset});
  if (cfa <= registers.sp() || !is_stack_address(registers.architecture(), cfa)) return false;
  const std::uint64_t return_at = cfa + static_cast<std::uint64_t>(std::int64_t{row.offset[0]});
  if (return_at - options.written_begin < options.written_end - options.written_begin) return false;
  const unsigned word = Registers::word_size(registers.architecture());
  std::uint64_t words[CallSiteRow::kMaxWords];
  if (!memory.read(cfa + static_cast<std::uint64_t>(std::int64_t{row.lowest}), words, std::size_t{row.words} * word))
    return false;
  const auto saved = [&](unsigned i) {
    const auto at = static_cast<unsigned>(row.offset[i] - row.lowest);
    if (word == sizeof *words) [[likely]]
      return words[at / sizeof *words];
    std::uint32_t narrow = 0;
    std::memcpy(&narrow, reinterpret_cast<const char*>(words) + at, sizeof narrow);
    return std::uint64_t{narrow};
  };
  const std::uint64_t return_address = saved(0) & ~(row.return_signed ? space.pointer_mask() : space.unsigned_mask());
  const CodeAddress pc = CodeAddress::return_address(return_address);
  const ModuleInfo& here = module->info();
  const Module* next = module;
  if (pc.lookup() - here.begin >= here.end - here.begin || module->has_gaps()) next = space.find(pc.lookup());
  if (return_address == 0 || next == nullptr) return false;

  registers.keep_slots(row.preserved);
  registers.set_sp(cfa);
  for (unsigned i = 0; i < row.saved; ++i) {
    registers.set_slot(row.slot[i], saved(i));
    frame.saved.set_slot(row.slot[i], cfa + static_cast<std::uint64_t>(std::int64_t{row.offset[i]}));
  }
  registers.set_pc(pc);
  frame.origin = row.origin;
  frame.certainty = FrameCertainty::kDescribed;
  frame.signal_frame = false;
  frame.module = &next->info();
  module = next;
  return true;
}

}  // namespace windlass::walk
