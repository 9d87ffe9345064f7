#include "cli/version.h"

namespace windlass::cli {

const Linkage kLinkage{"one static file", "the program debuginfod-find", ""};

}  // namespace windlass::cli
