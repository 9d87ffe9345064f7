// Opening and closing spaces, their modules and threads.
#include <utility>

#include "capi/code.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "walk/module.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

class CallbackMemory final : public Memory {
 public:
  explicit CallbackMemory(const windlass_memory& memory) : memory_(memory) {}
  ~CallbackMemory() override {
    if (memory_.release != nullptr) memory_.release(memory_.user);
  }
  CallbackMemory(const CallbackMemory&) = delete;
  CallbackMemory& operator=(const CallbackMemory&) = delete;

  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override {
    return memory_.read(memory_.user, address, to, size) != 0;
  }

 private:
  windlass_memory memory_;
};

Target target_of(AddressSpace space) { return {TargetKind::kProcess, std::move(space)}; }

}  // namespace

extern "C" {

windlass_status windlass_open_self(windlass_space** space, windlass_error* error) {
  if (space == nullptr) return invalid("nowhere to put the handle", error);
  *space = nullptr;
  return opened(target_of(AddressSpace::self()), space, error);
}

windlass_status windlass_open_callbacks(uint32_t architecture, const windlass_memory* memory, windlass_space** space,
                                        windlass_error* error) {
  windlass_memory own;
  if (space == nullptr) return invalid("nowhere to put the handle", error);
  *space = nullptr;
  if (!is_architecture(architecture)) return invalid("unknown architecture", error);
  if (!take(memory, own) || own.read == nullptr) return invalid("windlass_memory is not set up", error);
  AddressSpace made(static_cast<Architecture>(architecture), std::make_unique<CallbackMemory>(own));
  return opened(target_of(std::move(made)), space, error);
}

windlass_status windlass_close(windlass_space* space) {
  if (!usable(space)) return WINDLASS_INVALID;
  close(*space);
  return WINDLASS_OK;
}

windlass_status windlass_space_architecture(const windlass_space* space, uint32_t* architecture) {
  if (!usable(space) || architecture == nullptr) return WINDLASS_INVALID;
  *architecture = static_cast<std::uint32_t>(space->target->space.architecture());
  return WINDLASS_OK;
}

windlass_status windlass_add_module(windlass_space* space, const windlass_module* module, windlass_error* error) {
  windlass_module given;
  if (!usable(space)) return invalid("the space is not open", error);
  if (!take(module, given) || (given.image == nullptr) != (given.image_size == 0))
    return invalid("windlass_module is not set up", error);
  ModuleInfo info{given.begin, given.end, given.bias, given.path != nullptr ? given.path : "",
                  given.file != nullptr ? given.file : ""};
  if (given.image == nullptr) return done(space->target->space.add_module(std::move(info)), error);
  const auto* bytes = static_cast<const std::byte*>(given.image);
  return done(space->target->space.add_module(std::move(info), std::vector<std::byte>(bytes, bytes + given.image_size)),
              error);
}

windlass_status windlass_add_code(windlass_space* space, const windlass_code* code, uint64_t* id,
                                  windlass_error* error) {
  CodeRange range;
  if (!usable(space)) return invalid("the space is not open", error);
  if (!from_c(code, space->target->space.architecture(), range)) return invalid("windlass_code is not set up", error);
  return added(space->target->space.add(std::move(range)), id, error);
}

windlass_status windlass_retire_code(windlass_space* space, uint64_t id, windlass_error* error) {
  if (!usable(space)) return invalid("the space is not open", error);
  return done(space->target->space.retire(CodeRangeId{id}), error);
}

windlass_status windlass_remove(windlass_space* space, uint64_t begin) {
  if (!usable(space)) return WINDLASS_INVALID;
  return done(space->target->space.remove(begin), nullptr);
}

windlass_status windlass_module_count(const windlass_space* space, size_t* count) {
  if (!usable(space) || count == nullptr) return WINDLASS_INVALID;
  *count = space->target->space.modules().size();
  return WINDLASS_OK;
}

windlass_status windlass_module_at(const windlass_space* space, size_t index, windlass_module* module) {
  if (!usable(space)) return WINDLASS_INVALID;
  const auto modules = space->target->space.modules();
  if (index >= modules.size()) return sized(module) ? WINDLASS_NOT_FOUND : WINDLASS_INVALID;
  return give(to_c(*modules[index]), module) ? WINDLASS_OK : WINDLASS_INVALID;
}

windlass_status windlass_find_module(const windlass_space* space, uint64_t address, windlass_module* module) {
  if (!usable(space) || !sized(module)) return WINDLASS_INVALID;
  const ModuleInfo* found = space->target->space.module_at(address);
  if (found == nullptr) return WINDLASS_NOT_FOUND;
  return give(to_c(*found), module) ? WINDLASS_OK : WINDLASS_INVALID;
}

windlass_status windlass_thread_count(const windlass_space* space, size_t* count) {
  if (!usable(space) || count == nullptr) return WINDLASS_INVALID;
  *count = space->target->threads.size();
  return WINDLASS_OK;
}

windlass_status windlass_thread_at(const windlass_space* space, size_t index, windlass_thread* thread,
                                   windlass_registers* registers) {
  if (!usable(space) || (thread != nullptr && !sized(thread)) || (registers != nullptr && !sized(registers)))
    return WINDLASS_INVALID;
  if (index >= space->target->threads.size()) return WINDLASS_NOT_FOUND;
  const Thread& found = space->target->threads[index];
  windlass_thread to{};
  to.id = found.id;
  to.name = found.name.c_str();
  to.flags = found.faulted ? WINDLASS_FAULTED : 0;
  if (thread != nullptr) (void)give(to, thread);
  if (registers != nullptr) (void)give(to_c(found.registers), registers);
  return WINDLASS_OK;
}

}  // extern "C"
