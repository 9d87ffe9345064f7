#include "capi/handles.h"

#include <mutex>
#include <new>
#include <utility>

namespace windlass::capi {
namespace {

// Shells of one kind that are closed.
template <typename Shell>
class FreeShells {
 public:
  // One of them, else a new one; null where there is no memory.
  Shell* take() {
    const std::lock_guard hold(lock_);
    Shell* shell = first_;
    if (shell == nullptr) return new (std::nothrow) Shell;
    first_ = shell->next_free;
    return shell;
  }
  void keep(Shell& shell) {
    const std::lock_guard hold(lock_);
    shell.next_free = first_;
    first_ = &shell;
  }

 private:
  std::mutex lock_;
  Shell* first_ = nullptr;
};

FreeShells<windlass_space> free_spaces;
FreeShells<windlass_unwind_info> free_infos;

template <typename Shell>
void count_up(Shell& shell) {
  shell.generation.fetch_add(1, std::memory_order_release);
}

}  // namespace

windlass_space* take_shell(AddressSpace space) {
  windlass_space* shell = free_spaces.take();
  if (shell != nullptr) shell->space.emplace(std::move(space));
  return shell;
}

windlass_unwind_info* take_shell(std::unique_ptr<UnwindReader> reader) {
  windlass_unwind_info* shell = free_infos.take();
  if (shell != nullptr) shell->reader = std::move(reader);
  return shell;
}

void open_shell(windlass_space& shell) { count_up(shell); }
void open_shell(windlass_unwind_info& shell) { count_up(shell); }

void close_shell(windlass_space& shell) {
  if (shell.open()) count_up(shell);
  shell.attachment.reset();
  shell.space.reset();
  shell.threads.clear();
  shell.problems.clear();
  shell.notes.clear();
  free_spaces.keep(shell);
}

void close_shell(windlass_unwind_info& shell) {
  if (shell.open()) count_up(shell);
  shell.reader.reset();
  free_infos.keep(shell);
}

}  // namespace windlass::capi
