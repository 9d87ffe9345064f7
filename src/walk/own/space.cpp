// The own process as an address space: what others need a module list for is asked of the dynamic linker each time.
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <new>

#include "arch/pointer_authentication.h"
#include "walk/own/memory.h"
#include "walk/own/modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

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
  AddressSpace space(kOwnArchitecture, std::make_unique<walk::OwnMemory>());
  space.set_pointer_mask(~user_code_mask());
  space.own_ = true;
  return space;
}

// Allocates nothing, and may run again: it then writes what is there.
void walk::make_own_space() {
  alignas(OwnMemory) static std::byte memory[sizeof(OwnMemory)];
  auto* space = new (own_space) AddressSpace(kOwnArchitecture, std::unique_ptr<Memory>(new (memory) OwnMemory));
  space->set_pointer_mask(~user_code_mask());
  space->own_ = true;
  own_space_made.store(true, std::memory_order_release);
}

// Before any other initialiser that could walk, and for good.
[[gnu::constructor(101)]] static void make_own_space_early() { walk::make_own_space(); }

const AddressSpace& own_process() {
  // A preloaded memory profiler walks from other libraries' initialisers; there is but one thread then.
  if (!own_space_made.load(std::memory_order_acquire)) [[unlikely]]
    walk::make_own_space();
  return *std::launder(reinterpret_cast<const AddressSpace*>(own_space));
}

}  // namespace windlass
