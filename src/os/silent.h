// What does not answer (readers.h), in words for people.
#pragma once

#include <string>
#include <string_view>

namespace windlass::os {

// Of what Readers::take_silent() gives: "memory of process 12", "the file system at /mnt (fuse)". Printable ASCII
// alone, whatever the machine's users have called it.
[[nodiscard]] std::string describe_silent(const std::string& subject);

// "device 0:57": the file system that a path is on, by its name and a /proc/PID/mountinfo, which no server is asked
// for; empty where that is no server's.
[[nodiscard]] std::string server_at(std::string_view mounts, std::string_view path);

}  // namespace windlass::os
