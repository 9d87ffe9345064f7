#include "walk/row_cache.h"

#include <algorithm>
#include <iterator>

#include "arch/registers.h"
#include "base/reads_stacks.h"
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

bool add(KeptRow& row, unsigned slot, const RegisterRule& rule) {
  if (!rule.is(RegisterRule::kAtCfa) || slot >= Registers::kSlots || row.saved == KeptRow::kMaxSaved) return false;
  row.slot[row.saved] = static_cast<std::uint8_t>(slot);
  row.offset[row.saved] = static_cast<std::int16_t>(rule.offset());
  return row.offset[row.saved++] == rule.offset();
}

// Where the saved registers lie; false if that is too far apart. Their offsets count from there on.
bool find_extent(KeptRow& row, int word) {
  const auto [lowest, highest] = std::minmax_element(row.offset, row.offset + row.saved);
  const int words = (*highest - *lowest) / word + 1;
  if (words > static_cast<int>(KeptRow::kMaxWords)) return false;
  row.lowest = *lowest;
  row.words = static_cast<std::uint8_t>(words);
  for (unsigned i = 0; i < row.saved; ++i) row.offset[i] = static_cast<std::int16_t>(row.offset[i] - row.lowest);
  for (unsigned i = row.saved; i < KeptRow::kUsual; ++i) {
    row.slot[i] = row.slot[0];
    row.offset[i] = row.offset[0];
  }
  return std::all_of(row.offset, row.offset + row.saved, [&](int offset) { return offset % word == 0; });
}

// Everything but module and key; false for a row of another form.
bool pack(const FrameRow& row, FrameOrigin origin, Architecture architecture, KeptRow& kept) {
  if (row.signal_frame) return false;
  kept.origin = origin;
  if (row.return_address.is(RegisterRule::kUndefined)) return true;
  const unsigned cfa_slot = Registers::slot_of(architecture, row.cfa.is(CfaRule::kRegister) ? row.cfa.reg() : ~0u);
  if (cfa_slot >= Registers::kSlots) return false;
  kept.cfa_slot = static_cast<std::uint8_t>(cfa_slot);
  kept.cfa_offset = row.cfa.offset();
  kept.return_signed = row.return_signed;
  kept.preserved = kPreserved[static_cast<unsigned>(architecture)];
  if (!add(kept, Registers::slot_of(architecture, Registers::pc_number(architecture)), row.return_address))
    return false;
  for (const RegisterEntry entry : row.registers) {
    const unsigned slot = Registers::slot_of(architecture, entry.reg);
    if (slot >= Registers::kSlots) continue;
    if (entry.rule.is(RegisterRule::kSameValue))  // rsi and rdi, which only Windows preserves
      kept.preserved |= std::uint64_t{1} << slot;
    else if (!add(kept, slot, entry.rule))
      return false;
  }
  return find_extent(kept, static_cast<int>(Registers::word_size(architecture)));
}

// The words at `from` are those at `lowest`: into the registers they belong to.
template <typename Word>
WINDLASS_READS_STACKS inline void restore(const KeptRow& row, const std::byte* from, std::uint64_t lowest,
                                          Frame& frame) {
  const auto word = [&](unsigned i) WINDLASS_READS_STACKS {
    Word value;
    __builtin_memcpy(&value, from + row.offset[i], sizeof value);
    frame.saved.set_slot(row.slot[i], lowest + static_cast<std::uint64_t>(row.offset[i]));
    return std::uint64_t{value};
  };
  // How many there are differs from frame to frame, and no processor foresees it.
  frame.registers.set_slots(row.slot, word, std::make_integer_sequence<unsigned, KeptRow::kUsual>());
  for (unsigned i = KeptRow::kUsual; i < row.saved; ++i) frame.registers.set_slot(row.slot[i], word(i));
}

template <typename Word>
WINDLASS_READS_STACKS inline std::uint64_t return_address(const KeptRow& row, const std::byte* from) {
  Word word;
  __builtin_memcpy(&word, from + row.offset[0], sizeof word);
  return word;
}

std::uint64_t moved(std::uint64_t address, std::int32_t offset) {
  return address + static_cast<std::uint64_t>(std::int64_t{offset});
}

template <typename Word>
WINDLASS_READS_STACKS bool apply_words(const KeptRow& row, const AddressSpace& space, const WalkOptions& options,
                                       Frame& frame, const Module*& module) {
  Registers& registers = frame.registers;
  if (!registers.has_slot(row.cfa_slot)) return false;
  const std::uint64_t cfa = moved(registers.get_slot(row.cfa_slot), row.cfa_offset);
  const std::uint64_t lowest = moved(cfa, row.lowest);
  if (cfa <= registers.sp() || lowest < registers.sp() || !is_stack_address(registers.architecture(), cfa))
    return false;
  const std::uint64_t return_at = lowest + static_cast<std::uint64_t>(row.offset[0]);
  if (return_at - options.written_begin < options.written_end - options.written_begin) return false;
  const std::size_t size = row.words * sizeof(Word);
  std::byte copy[KeptRow::kMaxWords * sizeof(Word)];
  const std::byte* words = space.memory().in_place(lowest, size);
  if (words == nullptr) {
    if (!space.memory().read(lowest, copy, size)) return false;
    words = copy;
  }
  const CodeAddress pc = CodeAddress::return_address(
      return_address<Word>(row, words) & ~(row.return_signed ? space.pointer_mask() : space.unsigned_mask()));
  const ModuleInfo& here = module->info();
  const Module* next = module;
  if (pc.lookup() - here.begin >= here.end - here.begin || module->has_gaps()) next = space.find(pc.lookup());
  if (pc.value() == 0 || next == nullptr) return false;

  registers.keep_slots(row.preserved);
  registers.set_sp(cfa);
  restore<Word>(row, words, lowest, frame);
  registers.set_pc(pc);
  frame.origin = row.origin;
  frame.certainty = FrameCertainty::kDescribed;
  frame.signal_frame = false;
  frame.module = &next->info();
  module = next;
  return true;
}

}  // namespace

void RowCache::keep(std::uint64_t module, CodeAddress pc, const FrameRow& row, FrameOrigin origin,
                    Architecture architecture) {
  KeptRow kept{};
  if (module == 0 || !pack(row, origin, architecture, kept)) return;
  kept.module = module;
  kept.key = KeptRow::key_of(pc);
  // The newest first; what was kept before it goes.
  KeptRow* const set = rows_ + first_of_set(module, kept.key);
  if (!set[0].is(module, kept.key)) set[1] = set[0];
  set[0] = kept;
}

bool apply_in_place(const KeptRow& row, const AddressSpace& space, const WalkOptions& options, Frame& frame,
                    const Module*& module) {
  if (Registers::word_size(frame.registers.architecture()) == sizeof(std::uint64_t)) [[likely]]
    return apply_words<std::uint64_t>(row, space, options, frame, module);
  return apply_words<std::uint32_t>(row, space, options, frame, module);
}

}  // namespace windlass::walk
