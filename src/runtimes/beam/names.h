// What Erlang's functions are called: "lists:map/2", as the virtual machine prints them.
#pragma once

#include <cstdint>
#include <string>

#include "runtimes/beam/code_map.h"
#include "runtimes/beam/layout.h"
#include "windlass/walk.h"

namespace windlass::runtimes::beam {

// Empty: there is no such atom. `term` has its tag.
[[nodiscard]] std::string atom_text(const Memory& memory, const Layout& layout, std::uint64_t term);
[[nodiscard]] std::string name_of(const Memory& memory, const Layout& layout, const Function& function);

}  // namespace windlass::runtimes::beam
