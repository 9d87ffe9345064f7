// A regular file of whoever it is, opened for reading.
#pragma once

#include <sys/stat.h>

#include "os/descriptor.h"

namespace windlass::os {

struct OpenedRegular {
  Descriptor file;        // none: errno says why, ETIMEDOUT that nothing answered
  struct stat status {};  // of the file, which `file` may be a copy of (readers.h)
  bool remote = false;    // reads of it may block: of Readers::open_growing() alone
};

}  // namespace windlass::os
