// What an SBCL's functions are called, as Lisp prints it: "SORT", "SB-IMPL::STABLE-SORT-LIST", "(SETF CAR)".
#pragma once

#include <cstdint>
#include <string>

#include "runtimes/sbcl/code_map.h"
#include "runtimes/sbcl/layout.h"
#include "windlass/walk.h"

namespace windlass::runtimes::sbcl {

// Empty: not known, or the objects are none of SBCL 2.2.9's.
[[nodiscard]] std::string name_of(const Memory& memory, const Layout& layout, const Function& function);

}  // namespace windlass::runtimes::sbcl
