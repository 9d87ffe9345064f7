// The handles of the C interface.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "capi/shells.h"
#include "windlass/code_manager.h"
#include "windlass/registration.h"
#include "windlass/target.h"
#include "windlass/unwind_info.h"
#include "windlass/walk.h"
#include "windlass/windlass_unwind_info.h"

struct windlass_space : windlass::capi::Shell<windlass_space> {
  std::optional<windlass::Target> target;  // with a space alone where there is neither process nor dump
};

struct windlass_unwind_info : windlass::capi::Shell<windlass_unwind_info> {
  std::unique_ptr<windlass::UnwindReader> reader;
};

struct windlass_registrar : windlass::capi::Shell<windlass_registrar> {
  std::unique_ptr<windlass::Registrar> registrar;
};

struct windlass_code_manager : windlass::capi::Shell<windlass_code_manager> {
  std::optional<windlass::CodeManager> manager;
  std::uint64_t own = 0;  // its id in this process's walks
};

struct windlass_cursor {
  static constexpr std::uint64_t kAlive = 0x77696e646c617373;  // "windlass"

  std::uint64_t magic = kAlive;
  const windlass_space* owner;
  std::uint64_t generation;
  std::uint64_t index = 0;
  windlass::StackWalker walker;

  windlass_cursor(const windlass_space& space, const windlass::Registers& registers,
                  const windlass::WalkOptions& options)
      : owner(&space), generation(space.generation), walker(space.target->space, registers, options) {}
};

namespace windlass::capi {

[[nodiscard]] inline bool usable(const windlass_space* space) { return space != nullptr && space->open(); }
[[nodiscard]] inline bool usable(const windlass_unwind_info* info) { return info != nullptr && info->open(); }
[[nodiscard]] inline bool usable(const windlass_registrar* registrar) {
  return registrar != nullptr && registrar->open();
}
[[nodiscard]] inline bool usable(const windlass_code_manager* manager) { return manager != nullptr && manager->open(); }
[[nodiscard]] inline bool usable(const windlass_cursor* cursor) {
  return cursor != nullptr && cursor->magic == windlass_cursor::kAlive &&
         cursor->owner->generation.load(std::memory_order_acquire) == cursor->generation;
}

// A closed shell of one's own for what is given, or null where there is no memory.
[[nodiscard]] windlass_space* take_shell(Target target);
[[nodiscard]] windlass_unwind_info* take_shell(std::unique_ptr<UnwindReader> reader);
// Marks it as open, after it was filled.
void open_shell(windlass_space& shell);
void open_shell(windlass_unwind_info& shell);
// Empties it and keeps it for later.
void close_shell(windlass_space& shell);
void close_shell(windlass_unwind_info& shell);

}  // namespace windlass::capi
