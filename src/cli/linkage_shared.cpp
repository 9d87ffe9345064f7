#include "cli/version.h"

namespace windlass::cli {

const Linkage kLinkage{"with shared libraries", "libdw", ""};

}  // namespace windlass::cli
