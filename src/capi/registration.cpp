// Generated code made known.
#include "windlass/jit/registration.h"

#include <utility>
#include <vector>

#include "capi/code.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "windlass/backtrace.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

static_assert(static_cast<int>(Registry::kFrameInfo) == WINDLASS_REGISTRY_FRAME_INFO);
static_assert(static_cast<int>(Registry::kJitdump) == WINDLASS_REGISTRY_JITDUMP);
static_assert(static_cast<int>(Registry::kCodeManager) == WINDLASS_REGISTRY_CODE_MANAGER);

Shells<windlass_registrar> closed_registrars;

}  // namespace

extern "C" {

windlass_status windlass_open_registrar(uint32_t registry, const windlass_registrar_options* options,
                                        windlass_registrar** registrar, windlass_error* error) {
  if (registrar == nullptr) return invalid("nowhere to put the registrar", error);
  if (registry > WINDLASS_REGISTRY_JITDUMP && registry != WINDLASS_REGISTRY_CODE_MANAGER)
    return invalid("no such registry", error);
  windlass_registrar_options given{};
  if (options != nullptr && !take(options, given)) return invalid("windlass_registrar_options is not set up", error);
  auto opened = open_registrar(static_cast<Registry>(registry), {.folder = given.folder != nullptr ? given.folder : "",
                                                                 .heap_begin = given.heap_begin,
                                                                 .heap_end = given.heap_end});
  if (!opened) return report(opened.error(), error);
  return open_shell(closed_registrars, registrar, error,
                    [&](windlass_registrar& shell) { shell.registrar = std::move(*opened); });
}

windlass_status windlass_register(windlass_registrar* registrar, const windlass_generated* functions, size_t count,
                                  uint64_t* id, windlass_error* error) {
  if (!usable(registrar)) return invalid("the registrar is closed", error);
  if (count == 0) return invalid("no function is given", error);
  GeneratedFunctions given;
  if (const auto status = from_c(functions, count, given, error); status != WINDLASS_OK) return status;
  const auto added = registrar->registrar->add(given.all);
  if (!added) return report(added.error(), error);
  if (id != nullptr) *id = static_cast<std::uint64_t>(*added);
  return WINDLASS_OK;
}

windlass_status windlass_unregister(windlass_registrar* registrar, uint64_t id, windlass_error* error) {
  if (!usable(registrar)) return invalid("the registrar is closed", error);
  return done(registrar->registrar->remove(RegistrationId{id}), error);
}

windlass_status windlass_move(windlass_registrar* registrar, uint64_t id, const uint64_t* from,
                              const windlass_generated* functions, size_t count, windlass_error* error) {
  if (!usable(registrar)) return invalid("the registrar is closed", error);
  if (count == 0 || from == nullptr) return invalid("no function is given, or not where it was", error);
  GeneratedFunctions given;
  if (const auto status = from_c(functions, count, given, error); status != WINDLASS_OK) return status;
  std::vector<MovedFunction> moved;
  moved.reserve(count);
  for (std::size_t i = 0; i < count; ++i) moved.push_back({from[i], given.all[i]});
  return done(registrar->registrar->move(RegistrationId{id}, moved), error);
}

windlass_status windlass_close_registrar(windlass_registrar* registrar) {
  if (!usable(registrar)) return WINDLASS_INVALID;
  close_shell(closed_registrars, *registrar, [](windlass_registrar& shell) { shell.registrar.reset(); });
  return WINDLASS_OK;
}

}  // extern "C"
