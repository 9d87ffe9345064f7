// Generated code made known.
#include "windlass/jit/registration.h"

#include <deque>
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
static_assert(prologue::kNoRegister == WINDLASS_NO_REGISTER);

Shells<windlass_registrar> closed_registrars;

template <typename T>
bool is_whole(const T* begin, std::size_t count) {
  return count == 0 || begin != nullptr;
}

bool from_c(const windlass_op& from, prologue::Op& to) {
  to.end = from.end;
  switch (from.action) {
    case WINDLASS_ALLOCATE: to.action = prologue::Allocate{from.bytes}; return true;
    case WINDLASS_SAVE:
      to.action = prologue::Save{from.reg, from.offset, static_cast<std::uint32_t>(from.bytes), from.second};
      return from.bytes <= 0xffff'ffff;
    case WINDLASS_SET_FRAME_POINTER: to.action = prologue::SetFramePointer{from.reg, from.offset}; return true;
    case WINDLASS_SIGN_RETURN_ADDRESS: to.action = prologue::SignReturnAddress{}; return true;
    default: return false;
  }
}

bool from_c(const windlass_op* from, std::size_t count, std::vector<prologue::Op>& to) {
  if (!is_whole(from, count)) return false;
  to.resize(count);
  for (std::size_t i = 0; i < count; ++i)
    if (!from_c(from[i], to[i])) return false;
  return true;
}

bool from_c(const windlass_generated& from, Prologue& to) {
  to.architecture = kOwnArchitecture;
  to.code_size = from.code_size;
  if (!is_whole(from.epilogues, from.epilogue_count) || !from_c(from.ops, from.op_count, to.ops)) return false;
  for (std::size_t i = 0; i < from.epilogue_count; ++i) {
    const windlass_epilogue& given = from.epilogues[i];
    if (given.undone_count == 0) {
      to.epilogues.push_back(mirrored(to, given.begin));
      continue;
    }
    prologue::Epilogue epilogue{.begin = given.begin, .end = given.end};
    if (!from_c(given.undone, given.undone_count, epilogue.undone)) return false;
    to.epilogues.push_back(std::move(epilogue));
  }
  return true;
}

// An array of a caller's structs, of whichever version; each has the size of the first.
bool from_c(const windlass_generated* from, std::size_t count, std::vector<GeneratedFunction>& to,
            std::deque<Prologue>& prologues) {
  if (!sized(from)) return false;
  const auto* at = reinterpret_cast<const std::byte*>(from);
  for (std::size_t i = 0; i < count; ++i, at += from->size) {
    windlass_generated given;
    if (!take(reinterpret_cast<const windlass_generated*>(at), given) || given.size != from->size) return false;
    if (!from_c(given, prologues.emplace_back())) return false;
    GeneratedFunction function{.address = given.address, .size = given.code_size, .prologue = &prologues.back()};
    if (given.name != nullptr) function.name = given.name;
    function.personality = given.personality;
    function.language_data = given.language_data;
    to.push_back(function);
  }
  return true;
}

}  // namespace

bool windlass::capi::prologue_from_c(const windlass_generated& from, Prologue& to) { return ::from_c(from, to); }

extern "C" {

windlass_status windlass_open_registrar(uint32_t registry, const char* folder, windlass_registrar** registrar,
                                        windlass_error* error) {
  if (registrar == nullptr) return invalid("nowhere to put the registrar", error);
  if (registry > WINDLASS_REGISTRY_JITDUMP) return invalid("no such registry", error);
  auto opened = open_registrar(static_cast<Registry>(registry), {.folder = folder != nullptr ? folder : ""});
  if (!opened) return report(opened.error(), error);
  return open_shell(closed_registrars, registrar, error,
                    [&](windlass_registrar& shell) { shell.registrar = std::move(*opened); });
}

windlass_status windlass_register(windlass_registrar* registrar, const windlass_generated* functions, size_t count,
                                  uint64_t* id, windlass_error* error) {
  if (!usable(registrar)) return invalid("the registrar is closed", error);
  std::vector<GeneratedFunction> given;
  std::deque<Prologue> prologues;
  if (count == 0 || !from_c(functions, count, given, prologues))
    return invalid("windlass_generated is not set up", error);
  const auto added = registrar->registrar->add(given);
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
  std::vector<GeneratedFunction> given;
  std::deque<Prologue> prologues;
  if (count == 0 || from == nullptr || !from_c(functions, count, given, prologues))
    return invalid("windlass_generated is not set up, or where the code was", error);
  std::vector<MovedFunction> moved;
  moved.reserve(count);
  for (std::size_t i = 0; i < count; ++i) moved.push_back({from[i], given[i]});
  return done(registrar->registrar->move(RegistrationId{id}, moved), error);
}

windlass_status windlass_close_registrar(windlass_registrar* registrar) {
  if (!usable(registrar)) return WINDLASS_INVALID;
  close_shell(closed_registrars, *registrar, [](windlass_registrar& shell) { shell.registrar.reset(); });
  return WINDLASS_OK;
}

}  // extern "C"
