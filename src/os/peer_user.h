// Whose program is at the other end of a connection within this machine.
#pragma once

#include <sys/types.h>

#include <optional>

namespace windlass::os {

// The user of the socket that `connection`, a TCP socket over IPv4, is connected to; nothing if the kernel's list of
// sockets (/proc/net/tcp, tcp6) does not have it or cannot be read. Reads the whole list. Not signal-safe.
[[nodiscard]] std::optional<uid_t> peer_user(int connection);

}  // namespace windlass::os
