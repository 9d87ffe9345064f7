// The handles of the C interface. A space's shell is never given back to the allocator, but kept for the next one, so
// that a closed handle is recognised without touching freed memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "windlass/target.h"
#include "windlass/walk.h"
#include "windlass/windlass.h"

struct windlass_space {
  std::atomic<std::uint64_t> generation{0};  // odd: open. Counts up at every opening and closing
  windlass_space* next_free = nullptr;
  std::optional<windlass::AddressSpace> space;
  std::vector<windlass::Thread> threads;
  std::vector<windlass::Error> problems;
  std::vector<std::string> notes;
  std::shared_ptr<void> attachment;  // Target's

  [[nodiscard]] bool open() const { return (generation.load(std::memory_order_acquire) & 1) != 0; }
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
      : owner(&space), generation(space.generation), walker(*space.space, registers, options) {}
};

namespace windlass::capi {

[[nodiscard]] inline bool usable(const windlass_space* space) { return space != nullptr && space->open(); }
[[nodiscard]] inline bool usable(const windlass_cursor* cursor) {
  return cursor != nullptr && cursor->magic == windlass_cursor::kAlive &&
         cursor->owner->generation.load(std::memory_order_acquire) == cursor->generation;
}

// A closed shell of one's own for the space, or null where there is no memory.
[[nodiscard]] windlass_space* take_shell(AddressSpace space);
// Marks it as open, after it was filled.
void open_shell(windlass_space& shell);
// Empties it and keeps it for later.
void close_shell(windlass_space& shell);

}  // namespace windlass::capi
