#include "capi/handles.h"

#include <utility>

namespace windlass::capi {
namespace {

Shells<windlass_space> closed_spaces;

}  // namespace

windlass_status opened(Expected<Target> target, windlass_space** to, windlass_error* error) {
  if (!target) return report(target.error(), error);
  return open_shell(closed_spaces, to, error, [&](windlass_space& shell) { shell.target.emplace(std::move(*target)); });
}

void close(windlass_space& space) {
  close_shell(closed_spaces, space, [](windlass_space& shell) { shell.target.reset(); });
}

}  // namespace windlass::capi
