// What does not answer (readers.h), in words for people.
#pragma once

#include <string>

namespace windlass::process {

// Of what Readers::take_silent() gives: "memory of process 12", "the file system at /mnt (fuse)". Printable ASCII
// alone, whatever the machine's users have called it.
[[nodiscard]] std::string describe_silent(const std::string& subject);

}  // namespace windlass::process
