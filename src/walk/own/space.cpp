// Modules of the own process by the names the dynamic linker has for them.
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

}  // namespace windlass
