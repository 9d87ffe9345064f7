// The own process as an address space, on Windows.
#include <atomic>
#include <new>

#include "walk/own/windows/memory.h"
#include "walk/own/windows/modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

alignas(AddressSpace) std::byte own_space[sizeof(AddressSpace)];
constinit std::atomic<bool> own_space_made = false;

}  // namespace

AddressSpace AddressSpace::self() {
  walk::know_own_modules();
  AddressSpace space(kOwnArchitecture, std::make_unique<walk::OwnMemory>());
  space.own_ = true;
  return space;
}

// Allocates nothing, and may run again: it then writes what is there.
void walk::make_own_space() {
  alignas(OwnMemory) static std::byte memory[sizeof(OwnMemory)];
  auto* space = new (own_space) AddressSpace(kOwnArchitecture, std::unique_ptr<Memory>(new (memory) OwnMemory));
  space->own_ = true;
  own_space_made.store(true, std::memory_order_release);
}

// Before any other initialiser that could walk, and for good.
[[gnu::constructor(101)]] static void make_own_space_early() {
  walk::make_own_space();
  walk::know_own_modules();
}

const AddressSpace& own_process() {
  if (!own_space_made.load(std::memory_order_acquire)) [[unlikely]]
    walk::make_own_space();
  return *std::launder(reinterpret_cast<const AddressSpace*>(own_space));
}

// Nothing is compiled ahead: unwind codes are found and executed in less time than a table would save.
void prepare() { walk::know_own_modules(); }

}  // namespace windlass
