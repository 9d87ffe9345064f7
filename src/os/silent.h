// What does not answer (readers.h), in words for people.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace windlass::os {

// Of what Readers::take_silent() gives: "memory of process 12", "the file system at /mnt (fuse)". Printable ASCII
// alone, whatever the machine's users have called it.
[[nodiscard]] std::string describe_silent(const std::string& subject);

// Which file system a path is on, by its name and a /proc/PID/mountinfo, which no server is asked for.
class ServerMounts {
 public:
  ServerMounts() = default;
  explicit ServerMounts(std::string_view mounts);
  // "device 0:57"; empty where that is no server's.
  [[nodiscard]] std::string server_of(std::string_view path) const;

 private:
  std::map<std::string, std::string, std::less<>> servers_;  // by mount point
};

}  // namespace windlass::os
