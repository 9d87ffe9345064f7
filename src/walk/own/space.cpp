// The own process as an address space: what others need a module list for is asked of the dynamic linker each time.
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <new>

#include "arch/pointer_authentication.h"
#include "walk/own/memory.h"
#include "walk/own/modules.h"
#include "walk/space_modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

using OwnModuleList = AddressSpace::Modules;
constexpr auto kOwn = OwnModuleList::Process::kOwn;

alignas(AddressSpace) std::byte own_space[sizeof(AddressSpace)];
constinit std::atomic<bool> own_space_made = false;

std::string program_path() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : std::string();
}

// Gives the modules names, and enters them.
int name_module(dl_phdr_info* info, std::size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const walk::OwnModule* module = walk::OwnModules::find(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (module == nullptr || !module->module().info().path.empty()) return 0;
    const char* name = info->dlpi_name != nullptr ? info->dlpi_name : "";
    module->module().set_name(*name != '\0' ? std::string(name) : program_path());
    return 0;
  }
  return 0;
}

}  // namespace

AddressSpace AddressSpace::self() {
  walk::refresh_loaded();
  dl_iterate_phdr(name_module, nullptr);
  AddressSpace space(kOwnArchitecture, std::make_unique<walk::OwnMemory>(), std::make_unique<Modules>(kOwn));
  space.set_pointer_mask(~user_code_mask());
  return space;
}

// Allocates nothing, and may run again: it then writes what is there.
static void make_own_space() {
  alignas(walk::OwnMemory) static std::byte memory[sizeof(walk::OwnMemory)];
  alignas(OwnModuleList) static std::byte modules[sizeof(OwnModuleList)];
  auto* space = new (own_space) AddressSpace(kOwnArchitecture, std::unique_ptr<Memory>(new (memory) walk::OwnMemory),
                                             std::unique_ptr<OwnModuleList>(new (modules) OwnModuleList(kOwn)));
  space->set_pointer_mask(~user_code_mask());
  own_space_made.store(true, std::memory_order_release);
}

// Before any other initialiser that could walk, and for good.
[[gnu::constructor(101)]] static void make_own_space_early() { make_own_space(); }

const AddressSpace& own_process() {
  // A preloaded memory profiler walks from other libraries' initialisers; there is but one thread then.
  if (!own_space_made.load(std::memory_order_acquire)) [[unlikely]]
    make_own_space();
  return *std::launder(reinterpret_cast<const AddressSpace*>(own_space));
}

Expected<OwnFunction> own_function(std::uint64_t pc) {
  walk::LoadedObject object;
  if (!walk::find_loaded(pc, object)) return fail(ErrorCode::kNotFound, "address lies in no module", pc);
  walk::MappedCfi cfi;
  if (auto mapped = walk::map_cfi(object, cfi); !mapped) return std::unexpected(mapped.error());
  dwarf::LocatedFde found;
  if (auto located = cfi.header.find(cfi.eh_frame, pc, found); !located) return std::unexpected(located.error());
  const auto follow = [](const std::optional<dwarf::EncodedPointer>& pointer) -> std::uint64_t {
    if (!pointer) return 0;
    std::uint64_t value = pointer->value;
    if (pointer->indirect && !own_process().memory().read(value, &value, sizeof value)) return 0;
    return value;
  };
  OwnFunction function;
  function.begin = found.fde.begin;
  function.end = found.fde.end;
  function.lsda = follow(found.fde.lsda);
  function.personality = follow(found.cie.personality);
  function.fde = cfi.eh_frame.address + found.fde.offset;
  function.text_base = cfi.eh_frame.text_address;
  function.data_base = cfi.eh_frame.data_address;
  function.signal_frame = found.cie.signal_frame;
  return function;
}

}  // namespace windlass
