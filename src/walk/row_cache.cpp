#include "walk/row_cache.h"

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
constexpr std::uint64_t kPreserved[] = {preserved_slots(Architecture::kX86_64),
                                        preserved_slots(Architecture::kAArch64)};

bool add(CallSiteRow& row, unsigned slot, const RegisterRule& rule) {
  if (!rule.is(RegisterRule::kAtCfa) || slot >= Registers::kSlots || row.saved == CallSiteRow::kMaxSaved) return false;
  row.slot[row.saved] = static_cast<std::uint8_t>(slot);
  row.offset[row.saved] = static_cast<std::int16_t>(rule.offset());
  return row.offset[row.saved++] == rule.offset();
}

}  // namespace

void RowCache::keep(std::uint64_t module, std::uint64_t pc, const FrameRow& row, FrameOrigin origin,
                    Architecture architecture) {
  if (module == 0 || !row.cfa.is(CfaRule::kRegister) || row.signal_frame) return;
  CallSiteRow kept{};
  kept.module = module;
  kept.pc = pc;
  kept.cfa_reg = static_cast<std::uint8_t>(row.cfa.reg());
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
  // The newest first; what was kept before it goes.
  CallSiteRow* const set = rows_ + first_of_set(module, pc);
  if (!set[0].is(module, pc)) set[1] = set[0];
  set[0] = kept;
}

bool apply_in_place(const CallSiteRow& row, const AddressSpace& space, Frame& frame, const Module*& module) {
  Registers& registers = frame.registers;
  const Memory& memory = space.memory();
  if (!registers.has(row.cfa_reg)) return false;
  const std::uint64_t cfa = registers.get(row.cfa_reg) + static_cast<std::uint64_t>(std::int64_t{row.cfa_offset});
  if (cfa <= registers.sp() || !is_stack_address(cfa)) return false;
  std::uint64_t value[CallSiteRow::kMaxSaved];
  for (unsigned i = 0; i < row.saved; ++i)
    if (!memory.read(cfa + static_cast<std::uint64_t>(std::int64_t{row.offset[i]}), &value[i], sizeof value[i]))
      return false;
  value[0] &= ~(row.return_signed ? space.pointer_mask() : space.unsigned_mask());
  const CodeAddress pc = CodeAddress::return_address(value[0]);
  const ModuleInfo& here = module->info();
  const Module* next = module;
  if (pc.lookup() - here.begin >= here.end - here.begin) next = space.find(pc.lookup());
  if (value[0] == 0 || next == nullptr) return false;

  registers.keep_slots(row.preserved);
  registers.set_sp(cfa);
  for (unsigned i = 0; i < row.saved; ++i) {
    registers.set_slot(row.slot[i], value[i]);
    frame.saved.set_slot(row.slot[i], cfa + static_cast<std::uint64_t>(std::int64_t{row.offset[i]}));
  }
  registers.set_pc(pc);
  frame.origin = row.origin;
  frame.signal_frame = false;
  frame.module = &next->info();
  module = next;
  return true;
}

}  // namespace windlass::walk
