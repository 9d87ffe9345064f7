// A description of terminals like xterm, for machines that have none (a container that holds nothing but the command).
#pragma once

#include <string>

namespace windlass::cli {

inline constexpr const char* kOwnTerminal = "windlass-xterm";  // its name

// A compiled entry (term(5)) as the variable TERMINFO may hold one: "hex:1A01...".
[[nodiscard]] std::string terminal_description();

}  // namespace windlass::cli
