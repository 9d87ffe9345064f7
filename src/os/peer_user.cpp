#include "os/peer_user.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>

namespace windlass::os {
namespace {

// "0100007F:A455", as /proc/net/tcp has it: the address as the number that the machine reads, the port in host order.
std::string listed(const sockaddr_in& place) {
  return fmt::format("{:08X}:{:04X}", place.sin_addr.s_addr, ntohs(place.sin_port));
}

// In a line of the list: number, local address, remote address, state, queues, timer, retransmissions, user.
std::optional<uid_t> user_in(const char* list, const std::string& local, const std::string& remote) {
  std::ifstream file(list);
  const std::string wanted = " " + local + " " + remote + " ";
  for (std::string line; std::getline(file, line);) {
    if (line.find(wanted) == std::string::npos) continue;
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 7; ++i) words >> word;
    uid_t user = 0;
    if (words >> user) return user;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uid_t> peer_user(int connection) {
  sockaddr_in own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (getsockname(connection, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 || peer.sin_family != AF_INET)
    return std::nullopt;
  const std::string local = listed(peer), remote = listed(own);
  if (const auto user = user_in("/proc/net/tcp", local, remote)) return user;
  const std::string mapped = "0000000000000000FFFF0000";  // IPv4 by a socket of IPv6
  return user_in("/proc/net/tcp6", mapped + local, mapped + remote);
}

}  // namespace windlass::os
