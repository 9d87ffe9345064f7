// Whose code an image holds, as its header says.
#pragma once

#include <optional>

#include "windlass/bytes.h"
#include "windlass/registers.h"

namespace windlass::image {

struct CodeMachine {
  bool known = false;  // the image is ELF or PE; other code is taken for that of the process it is in
  std::optional<Architecture> architecture;  // empty: of a machine that is not known here

  // May its unwind information and its instructions say something about a stack of this architecture?
  [[nodiscard]] bool runs_on(Architecture stack) const { return !known || architecture == stack; }
};

// Constant time; no memory.
[[nodiscard]] CodeMachine machine_of(ByteView image);

}  // namespace windlass::image
