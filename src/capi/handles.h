// The handles of the C interface.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "capi/shells.h"
#include "windlass/c/unwind_info.h"
#include "windlass/jit/code_manager.h"
#include "windlass/jit/registration.h"
#include "windlass/target.h"
#include "windlass/unwind_info.h"
#include "windlass/walk.h"

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

[[nodiscard]] inline bool usable(const windlass_cursor* cursor) {
  return cursor != nullptr && cursor->magic == windlass_cursor::kAlive &&
         cursor->owner->generation.load(std::memory_order_acquire) == cursor->generation;
}

// The handle of a target, or why there is none.
[[nodiscard]] windlass_status opened(Expected<Target> target, windlass_space** to, windlass_error* error);
void close(windlass_space& space);

}  // namespace windlass::capi
