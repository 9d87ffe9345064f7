// Modules of the own process by the names the dynamic linker has for them, and functions by their call frame
// information as it is mapped.
#include <link.h>
#include <unistd.h>

#include <climits>

#include "walk/own/modules.h"
#include "walk/own_modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

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

void walk::know_own_modules() {
  refresh_loaded();
  dl_iterate_phdr(name_module, nullptr);
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
