// The own process, on Windows.
#include "walk/own/windows/modules.h"
#include "windlass/backtrace.h"

namespace windlass {

// Nothing is compiled ahead: unwind codes are found and executed in less time than a table would save.
void prepare() { walk::know_own_modules(); }

}  // namespace windlass
