#include "walk/row_cache.h"

#include <algorithm>
#include <iterator>

#include "base/reads_stacks.h"
#include "base/registers.h"
#include "walk/inside.h"
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
bool pack(const FrameRow& row, FrameOrigin origin, Architecture architecture, KeptRow& packed) {
  if (row.signal_frame) return false;
  packed.origin = origin;
  if (row.return_address.is(RegisterRule::kUndefined)) return true;
  const unsigned cfa_slot = Registers::slot_of(architecture, row.cfa.is(CfaRule::kRegister) ? row.cfa.reg() : ~0u);
  if (cfa_slot >= Registers::kSlots) return false;
  packed.cfa_slot = static_cast<std::uint8_t>(cfa_slot);
  packed.cfa_offset = row.cfa.offset();
  packed.return_signed = row.return_signed;
  packed.preserved = kPreserved[static_cast<unsigned>(architecture)];
  if (!add(packed, Registers::slot_of(architecture, Registers::pc_number(architecture)), row.return_address))
    return false;
  for (const RegisterEntry entry : row.registers) {
    const unsigned slot = Registers::slot_of(architecture, entry.reg);
    if (slot >= Registers::kSlots) continue;
    if (entry.rule.is(RegisterRule::kSameValue))  // rsi and rdi, which only Windows preserves
      packed.preserved |= std::uint64_t{1} << slot;
    else if (!add(packed, slot, entry.rule))
      return false;
  }
  return find_extent(packed, static_cast<int>(Registers::word_size(architecture)));
}

// The words at `from` are those at `lowest`: into the registers they belong to.
template <typename Word>
WINDLASS_READS_STACKS inline void restore(const KeptRow& row, const std::byte* from, std::uint64_t lowest,
                                          Registers& registers, SavedLocations& saved) {
  const auto word = [&](unsigned i) WINDLASS_READS_STACKS {
    Word value;
    __builtin_memcpy(&value, from + row.offset[i], sizeof value);
    saved.set_slot(row.slot[i], lowest + static_cast<std::uint64_t>(row.offset[i]));
    return std::uint64_t{value};
  };
  // How many there are differs from frame to frame, and no processor foresees it.
  registers.set_slots(row.slot, word, std::make_integer_sequence<unsigned, KeptRow::kUsual>());
  for (unsigned i = KeptRow::kUsual; i < row.saved; ++i) registers.set_slot(row.slot[i], word(i));
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

// What a kept row leads to: its words, read, and the pc among them.
template <typename Word>
struct Located {
  std::byte copy[KeptRow::kMaxWords * sizeof(Word)];
  const std::byte* words;
  std::uint64_t lowest;
  std::uint64_t cfa;
  CodeAddress pc;
};

// False where anything is out of the ordinary. The return address is not taken from [written, written + size).
template <typename Word>
WINDLASS_READS_STACKS inline bool locate(const KeptRow& row, const AddressSpace& space, const Registers& registers,
                                         std::uint64_t written, std::uint64_t written_size, Located<Word>& to) {
  if (!registers.has_slot(row.cfa_slot)) return false;
  to.cfa = moved(registers.get_slot(row.cfa_slot), row.cfa_offset);
  to.lowest = moved(to.cfa, row.lowest);
  if (to.cfa <= registers.sp() || to.lowest < registers.sp() || !is_stack_address(registers.architecture(), to.cfa))
    return false;
  const std::uint64_t return_at = to.lowest + static_cast<std::uint64_t>(row.offset[0]);
  if (return_at - written < written_size) return false;
  const std::size_t size = row.words * sizeof(Word);
  to.words = space.memory().in_place(to.lowest, size);
  if (to.words == nullptr) {
    if (!space.memory().read(to.lowest, to.copy, size)) return false;
    to.words = to.copy;
  }
  to.pc = CodeAddress::return_address(return_address<Word>(row, to.words) &
                                      ~(row.return_signed ? space.pointer_mask() : space.unsigned_mask()));
  return to.pc.value() != 0;
}

template <typename Word>
WINDLASS_READS_STACKS inline void restore(const KeptRow& row, const Located<Word>& from, Registers& registers,
                                          SavedLocations& saved) {
  registers.keep_slots(row.preserved);
  registers.set_sp(from.cfa);
  restore<Word>(row, from.words, from.lowest, registers, saved);
  registers.set_pc(from.pc);
}

template <typename Word>
WINDLASS_READS_STACKS bool apply_words(const KeptRow& row, const AddressSpace& space, const WalkOptions& options,
                                       Frame& frame, const Module*& module) {
  Located<Word> found;
  if (!locate(row, space, frame.registers, options.written_begin, options.written_end - options.written_begin, found))
    return false;
  const ModuleInfo& here = module->info();
  const Module* next = module;
  if (found.pc.lookup() - here.begin >= here.end - here.begin || module->has_gaps())
    next = module_at(space, found.pc.lookup());
  if (next == nullptr) return false;

  restore(row, found, frame.registers, frame.saved);
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

bool apply_in_place(const KeptRow& row, const AddressSpace& space, Registers& registers, SavedLocations& saved) {
  Located<std::uint64_t> found;
  if (!locate(row, space, registers, 0, 0, found)) return false;
  restore(row, found, registers, saved);
  return true;
}

}  // namespace windlass::walk
