// In place of kinds.cpp in the command that ./demo builds (WINDLASS_DEMO).
#include "runtimes/kinds.h"

namespace windlass::runtimes {

std::span<const Kind> kinds() { return {}; }
std::span<const InterpreterKind> interpreter_kinds() { return {}; }

}  // namespace windlass::runtimes
