// What a reader process may do, from when it has been started.
#pragma once

namespace windlass::os {

// The system calls it makes, and to open files for reading alone; every other one fails with EPERM from here on
// (seccomp). A kernel without such filters leaves it as it is.
void keep_rights_of_reader();

}  // namespace windlass::os
