// Code managers.
#include <utility>

#include "capi/code.h"
#include "capi/handles.h"
#include "windlass/backtrace.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

Shells<windlass_code_manager> closed_managers;

}  // namespace

extern "C" {

windlass_status windlass_open_code_manager(uint64_t begin, uint64_t end, uint32_t functions,
                                           windlass_code_manager** manager, windlass_error* error) {
  if (manager == nullptr) return invalid("nowhere to put the code manager", error);
  CodeManagerOptions options;
  if (functions != 0) options.functions = functions;
  auto created = CodeManager::create(begin, end, options);
  if (!created) return report(created.error(), error);
  windlass_code_manager* shell = closed_managers.take();
  if (shell == nullptr) return no_memory(error);
  if (const auto status = windlass_add_own_managed_code(created->fd(), &shell->own, error); status != WINDLASS_OK) {
    closed_managers.keep(*shell);
    return status;
  }
  shell->manager.emplace(std::move(*created));
  shell->change();
  *manager = shell;
  return WINDLASS_OK;
}

windlass_status windlass_manage(windlass_code_manager* manager, const uint64_t* removed, size_t removed_count,
                                const windlass_generated* functions, size_t count, windlass_error* error) {
  if (!usable(manager)) return invalid("the code manager is closed", error);
  if ((removed == nullptr && removed_count != 0) || (functions == nullptr && count != 0))
    return invalid("a count without what is counted", error);
  GeneratedFunctions given;
  if (const auto status = from_c(functions, count, given, error); status != WINDLASS_OK) return status;
  return done(manager->manager->update(std::span(removed, removed_count), given.all), error);
}

windlass_status windlass_find_managed(const windlass_code_manager* manager, uint64_t address, windlass_generated* found,
                                      char* name, size_t name_size) {
  if (!usable(manager) || !sized(found) || (name == nullptr && name_size != 0)) return WINDLASS_INVALID;
  const auto function = manager->manager->reader().find(address);
  if (!function) return status_of(function.error().code);
  windlass_generated to{};
  to.address = function->begin;
  to.code_size = function->size;
  to.user = function->user;
  if (name_size != 0) {
    const auto text = manager->manager->reader().name(address, std::span(name, name_size - 1));
    if (!text) return status_of(text.error().code);
    name[text->size()] = 0;
    to.name = name;
  }
  return give(to, found) ? WINDLASS_OK : WINDLASS_INVALID;
}

int windlass_code_manager_fd(const windlass_code_manager* manager) {
  return usable(manager) ? manager->manager->fd() : -1;
}

windlass_status windlass_close_code_manager(windlass_code_manager* manager) {
  if (!usable(manager)) return WINDLASS_INVALID;
  manager->change();
  const windlass_status status = windlass_retire_own_code(manager->own, nullptr);
  manager->manager.reset();
  closed_managers.keep(*manager);
  return status;
}

}  // extern "C"
