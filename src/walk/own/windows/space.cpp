// The own process as an address space, on Windows.
#include <atomic>
#include <new>

#include "walk/own/windows/memory.h"
#include "walk/own/windows/modules.h"
#include "walk/space_modules.h"
#include "windlass/backtrace.h"
#include "winx64/exec.h"

namespace windlass {
namespace {

using OwnModuleList = AddressSpace::Modules;
constexpr auto kOwn = OwnModuleList::Process::kOwn;

alignas(AddressSpace) std::byte own_space[sizeof(AddressSpace)];
constinit std::atomic<bool> own_space_made = false;

}  // namespace

AddressSpace AddressSpace::self() {
  walk::know_own_modules();
  return {kOwnArchitecture, std::make_unique<walk::OwnMemory>(), std::make_unique<Modules>(kOwn)};
}

// Allocates nothing, and may run again: it then writes what is there.
static void make_own_space() {
  alignas(walk::OwnMemory) static std::byte memory[sizeof(walk::OwnMemory)];
  alignas(OwnModuleList) static std::byte modules[sizeof(OwnModuleList)];
  new (own_space) AddressSpace(kOwnArchitecture, std::unique_ptr<Memory>(new (memory) walk::OwnMemory),
                               std::unique_ptr<OwnModuleList>(new (modules) OwnModuleList(kOwn)));
  own_space_made.store(true, std::memory_order_release);
}

// Before any other initialiser that could walk, and for good.
[[gnu::constructor(101)]] static void make_own_space_early() {
  make_own_space();
  walk::know_own_modules();
}

const AddressSpace& own_process() {
  if (!own_space_made.load(std::memory_order_acquire)) [[unlikely]]
    make_own_space();
  return *std::launder(reinterpret_cast<const AddressSpace*>(own_space));
}

Expected<OwnFunction> own_function(std::uint64_t pc) {
  const walk::OwnImage* image = walk::find_own_image(pc);
  if (image == nullptr) return fail(ErrorCode::kNotFound, "address lies in no module", pc);
  const winx64::Functions& functions = image->functions();
  const auto rank = functions.table().last_at_or_before(static_cast<std::uint32_t>(pc - image->base()));
  const auto found = functions.find(static_cast<std::uint32_t>(pc - image->base()));
  if (!rank || !found) return fail(ErrorCode::kNotFound, "no function table entry covers the address", pc);
  const auto entry = winx64::primary(functions, *found);
  const auto info = entry ? winx64::info_of(functions, *entry) : fail(ErrorCode::kMalformed, "chain is broken", pc);
  if (!info) return std::unexpected(info.error());
  OwnFunction function;
  function.begin = image->base() + found->begin;
  function.end = image->base() + found->end;
  if (info->handler != 0) {
    function.lsda = image->base() + info->handler_data;
    function.personality = image->base() + info->handler;
  }
  function.fde = image->base() + functions.image().directory(image::PeDirectory::kException).rva +
                 functions.table().stored_index(*rank) * sizeof(winx64::RuntimeFunction);
  function.text_base = function.data_base = image->base();
  return function;
}

// Nothing is compiled ahead: unwind codes are found and executed in less time than a table would save.
void prepare() { walk::know_own_modules(); }

}  // namespace windlass
