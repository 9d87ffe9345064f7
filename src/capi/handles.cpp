#include "capi/handles.h"

#include <mutex>
#include <new>
#include <utility>

namespace windlass::capi {
namespace {

std::mutex free_lock;
windlass_space* free_shells = nullptr;

windlass_space* reuse_shell() {
  const std::lock_guard hold(free_lock);
  windlass_space* shell = free_shells;
  if (shell != nullptr) free_shells = shell->next_free;
  return shell;
}

}  // namespace

windlass_space* take_shell(AddressSpace space) {
  windlass_space* shell = reuse_shell();
  if (shell == nullptr) shell = new (std::nothrow) windlass_space;
  if (shell != nullptr) shell->space.emplace(std::move(space));
  return shell;
}

void open_shell(windlass_space& shell) { shell.generation.fetch_add(1, std::memory_order_release); }

void close_shell(windlass_space& shell) {
  if (shell.open()) shell.generation.fetch_add(1, std::memory_order_release);
  shell.attachment.reset();
  shell.space.reset();
  shell.threads.clear();
  shell.problems.clear();
  shell.notes.clear();
  const std::lock_guard hold(free_lock);
  shell.next_free = free_shells;
  free_shells = &shell;
}

}  // namespace windlass::capi
