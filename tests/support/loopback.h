// A question to a server on this machine.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "os/descriptor.h"

namespace windlass::test {

// A connection to a port of 127.0.0.1; none if nobody listens.
inline os::Descriptor connect_to(std::uint16_t port) {
  os::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&place), sizeof place) != 0) return {};
  return socket;
}

// What comes back for `request` up to the end of the connection.
inline std::string ask(std::uint16_t port, const std::string& request) {
  const os::Descriptor socket = connect_to(port);
  if (!socket) return "no connection";
  (void)::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);  // it may be cut off
  std::string answer;
  char buffer[65536];
  for (ssize_t got; (got = ::recv(socket.get(), buffer, sizeof buffer, 0)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(got));
  return answer;
}

}  // namespace windlass::test
