#include "cli/service_notices.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "os/descriptor.h"

namespace windlass::cli {

void notify_manager(std::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::size_t size = path == nullptr ? 0 : std::strlen(path);
  if (size == 0 || size >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, size);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // unix(7): an abstract name
  const os::Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  (void)sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size));
}

bool wants_watchdog() {
  const char* microseconds = std::getenv("WATCHDOG_USEC");
  if (microseconds == nullptr || *microseconds == '\0') return false;
  const char* pid = std::getenv("WATCHDOG_PID");
  return pid == nullptr || pid == std::to_string(getpid());
}

}  // namespace windlass::cli
