// What a Mono's methods are called: "Namespace.Outer.Inner.Method", without parameters.
#pragma once

#include <cstdint>
#include <string>

#include "runtimes/mono/code_map.h"
#include "runtimes/mono/layout.h"
#include "windlass/walk.h"

namespace windlass::runtimes::mono {

// Empty: not known. A trampoline has the runtime's word for it: "[throw_exception]".
[[nodiscard]] std::string name_of(const Memory& memory, const Layout& layout, const CodeBlock& block);

}  // namespace windlass::runtimes::mono
