#include "capi/handles.h"

#include <utility>

namespace windlass::capi {
namespace {

Shells<windlass_space> closed;

}  // namespace

windlass_space* take_shell(AddressSpace space) {
  windlass_space* shell = closed.take();
  if (shell != nullptr) shell->space.emplace(std::move(space));
  return shell;
}

void open_shell(windlass_space& shell) { shell.change(); }

void close_shell(windlass_space& shell) {
  if (shell.open()) shell.change();
  shell.attachment.reset();
  shell.space.reset();
  shell.threads.clear();
  shell.problems.clear();
  shell.notes.clear();
  closed.keep(shell);
}

}  // namespace windlass::capi
