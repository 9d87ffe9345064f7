// The own process as an address space, and its registers: what does not depend on the system.
#include <atomic>
#include <bit>
#include <new>

#include "base/pointer_authentication.h"
#include "walk/inside.h"
#include "walk/own/capture.h"
#include "walk/own/own_memory.h"
#include "walk/own/whole_walk.h"
#include "walk/own_modules.h"
#include "walk/space_modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

using OwnModuleList = walk::Inside::Modules;
constexpr auto kOwn = OwnModuleList::Process::kOwn;

alignas(AddressSpace) std::byte own_space[sizeof(AddressSpace)];
constinit std::atomic<bool> own_space_made = false;

}  // namespace

AddressSpace AddressSpace::self() {
  walk::know_own_modules();
  AddressSpace space(kOwnArchitecture, std::make_unique<walk::OwnMemory>(), std::make_unique<Modules>(kOwn));
  space.set_pointer_mask(~user_code_mask());
  return space;
}

// Allocates nothing, and may run again: it then writes what is there.
static void make_own_space() {
  alignas(walk::OwnMemory) static std::byte memory[sizeof(walk::OwnMemory)];
  alignas(OwnModuleList) static std::byte modules[sizeof(OwnModuleList)];
  auto* space = new (own_space)
      AddressSpace(walk::Inside::space(kOwnArchitecture, std::unique_ptr<Memory>(new (memory) walk::OwnMemory),
                                       std::unique_ptr<OwnModuleList>(new (modules) OwnModuleList(kOwn))));
  space->set_pointer_mask(~user_code_mask());
  own_space_made.store(true, std::memory_order_release);
}

// Before any other initialiser that could walk, and for good.
[[gnu::constructor(101)]] static void make_own_space_early() {
  make_own_space();
  (void)walk::undescribed_code();
}

const AddressSpace& own_process() {
  // A preloaded memory profiler walks from other libraries' initialisers; there is but one thread then.
  if (!own_space_made.load(std::memory_order_acquire)) [[unlikely]]
    make_own_space();
  return *std::launder(reinterpret_cast<const AddressSpace*>(own_space));
}

Registers registers_from_capture(const std::uint64_t* slots) {
  Registers registers(kOwnArchitecture);
  for (std::uint64_t rest = walk::preserved_slots(); rest != 0; rest &= rest - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(rest));
    registers.set_slot(slot, slots[slot]);
  }
  const auto at = [&](RegisterNumber reg) { return slots[registers.slot_of(reg)]; };
  registers.set_sp(at(Registers::sp_number(kOwnArchitecture)));
  registers.set_pc(CodeAddress::return_address(at(Registers::pc_number(kOwnArchitecture))));
  return registers;
}

const walk::Module& walk::undescribed_code() {
  static constinit std::atomic<const Module*> made = nullptr;
  alignas(Module) static std::byte storage[sizeof(Module)];
  if (const Module* code = made.load(std::memory_order_acquire); code != nullptr) return *code;
  // As own_process() makes its own: there is but one thread then.
  auto* code = new (storage) Module(ModuleInfo{}, sources::generated_source(), 0, {}, true);
  code->forget_id();
  made.store(code, std::memory_order_release);
  return *code;
}

std::size_t walk::whole_walk(StackWalker& walker, std::uint64_t* pcs, std::size_t max, WalkEnd* end) {
  std::size_t depth = 0;
  do pcs[depth++] = walker.frame().pc().value();
  while (depth < max && walker.step());
  if (end != nullptr) *end = depth == max ? WalkEnd::kLimit : walker.end_reason();
  return depth;
}

}  // namespace windlass
