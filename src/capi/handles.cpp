#include "capi/handles.h"

#include <utility>

namespace windlass::capi {
namespace {

Shells<windlass_space> closed_spaces;
Shells<windlass_unwind_info> closed_infos;

}  // namespace

windlass_space* take_shell(Target target) {
  windlass_space* shell = closed_spaces.take();
  if (shell != nullptr) shell->target.emplace(std::move(target));
  return shell;
}

windlass_unwind_info* take_shell(std::unique_ptr<UnwindReader> reader) {
  windlass_unwind_info* shell = closed_infos.take();
  if (shell != nullptr) shell->reader = std::move(reader);
  return shell;
}

void open_shell(windlass_space& shell) { shell.change(); }
void open_shell(windlass_unwind_info& shell) { shell.change(); }

void close_shell(windlass_space& shell) {
  if (shell.open()) shell.change();
  shell.target.reset();
  closed_spaces.keep(shell);
}

void close_shell(windlass_unwind_info& shell) {
  if (shell.open()) shell.change();
  shell.reader.reset();
  closed_infos.keep(shell);
}

}  // namespace windlass::capi
