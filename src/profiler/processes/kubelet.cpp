#include "profiler/processes/kubelet.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "os/descriptor.h"
#include "profiler/processes/json_strings.h"

namespace windlass::profiler {
namespace {

using Clock = std::chrono::steady_clock;

// Of PodStatus: each list holds ContainerStatus.
constexpr std::string_view kStatuses[] = {"containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"};

class PodReader {
 public:
  void string(const JsonPath& path, std::string& value) {
    if (path.size() < 4 || path[0] != "items" || path[1] != "[]") return;
    if (path.size() == 4 && path[2] == "metadata") {
      if (path[3] == "name")
        pod_.pod = std::move(value);
      else if (path[3] == "namespace")
        pod_.pod_namespace = std::move(value);
      else if (path[3] == "uid")
        pod_.pod_uid = std::move(value);
    } else if (path.size() == 6 && is_status(path)) {
      if (path[5] == "name")
        container_.second.pod_container = std::move(value);
      else if (path[5] == "containerID")
        set_id(value);
    }
  }
  void end(const JsonPath& path) {
    if (path.size() == 5 && is_status(path)) {
      if (!container_.first.empty()) pending_.push_back(std::move(container_));
      container_ = {};
    } else if (path.size() == 2) {
      finish_pod();
    }
  }
  std::map<std::string, ContainerRecord> take() { return std::move(containers_); }

 private:
  static bool is_status(const JsonPath& path) {
    return path[0] == "items" && path[2] == "status" && std::ranges::find(kStatuses, path[3]) != std::end(kStatuses) &&
           path[4] == "[]";
  }
  // "containerd://ID"
  void set_id(const std::string& value) {
    const std::size_t at = value.find("://");
    if (at == std::string::npos) return;
    container_.first = value.substr(at + 3);
    container_.second.runtime = value.substr(0, at);
  }
  // The pod's names may come behind its containers.
  void finish_pod() {
    for (auto& [id, record] : pending_) {
      record.pod = pod_.pod;
      record.pod_namespace = pod_.pod_namespace;
      record.pod_uid = pod_.pod_uid;
      containers_.insert_or_assign(std::move(id), std::move(record));
    }
    pending_.clear();
    pod_ = {};
  }

  ContainerRecord pod_;
  std::pair<std::string, ContainerRecord> container_;
  std::vector<std::pair<std::string, ContainerRecord>> pending_;
  std::map<std::string, ContainerRecord> containers_;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

SocketAddress socket_address(const std::string& host, std::uint16_t port) {
  SocketAddress address;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&address.storage, &v4, sizeof v4);
    address.size = sizeof v4;
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&address.storage, &v6, sizeof v6);
    address.size = sizeof v6;
  }
  return address;
}

bool wait_for(int socket, short events, Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd wanted{socket, events, 0};
  return left > 0 && ::poll(&wanted, 1, static_cast<int>(left)) == 1;
}

bool connect_to(int socket, const SocketAddress& address, Clock::time_point until) {
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return true;
  if (errno != EINPROGRESS || !wait_for(socket, POLLOUT, until)) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

bool send_all(int socket, std::string_view text, Clock::time_point until) {
  while (!text.empty()) {
    if (!wait_for(socket, POLLOUT, until)) return false;
    const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
  }
  return true;
}

// Until the other side ends it; empty if that is too late or too much.
std::string receive_all(int socket, Clock::time_point until, std::size_t most) {
  std::string text;
  std::vector<char> piece(65536);
  while (wait_for(socket, POLLIN, until)) {
    const ssize_t got = ::recv(socket, piece.data(), piece.size(), 0);
    if (got == 0) return text;
    if (got < 0 && errno != EAGAIN && errno != EINTR) break;
    text.append(piece.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (text.size() > most) break;
  }
  return {};
}

}  // namespace

std::map<std::string, ContainerRecord> parse_pods(std::string_view text) {
  PodReader reader;
  const bool read =
      read_json_strings(text, {.string = [&](const JsonPath& path, std::string& value) { reader.string(path, value); },
                               .end_of_object = [&](const JsonPath& path) { reader.end(path); }});
  return read ? reader.take() : std::map<std::string, ContainerRecord>();
}

std::expected<KubeletAddress, std::string> KubeletAddress::parse(std::string_view text) {
  if (text.starts_with("https:"))
    return std::unexpected("the kubelet is asked without TLS. Way out: its read-only port, or kubectl proxy");
  const std::string_view scheme = "http://";
  if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  KubeletAddress address;
  const std::size_t slash = std::min(text.find('/'), text.size());
  address.path = slash < text.size() && text.substr(slash) != "/" ? text.substr(slash) : "/pods";
  const std::string_view place = text.substr(0, slash);
  const std::size_t colon = place.rfind(':');
  std::string_view host = place.substr(0, std::min(colon, place.size()));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  address.host = host;
  const std::string_view port = colon == std::string_view::npos ? "" : place.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port == 0 ||
      socket_address(address.host, address.port).size == 0 || address.path.find_first_of(" \r\n") != std::string::npos)
    return std::unexpected("the kubelet's address is no numeric one. Way out: http://127.0.0.1:10255");
  return address;
}

std::string get_pods(const KubeletAddress& address, std::chrono::milliseconds patience, std::size_t most) {
  const auto until = Clock::now() + patience;
  const SocketAddress to = socket_address(address.host, address.port);
  const os::Descriptor socket(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || !connect_to(socket.get(), to, until)) return {};
  // An answer to HTTP/1.0 ends with the connection, and is not chunked.
  const std::string request = "GET " + address.path + " HTTP/1.0\r\nHost: " + address.host + "\r\n\r\n";
  if (!send_all(socket.get(), request, until)) return {};
  const std::string answer = receive_all(socket.get(), until, most);
  const std::size_t body = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.") || answer.find(" 200 ") != 8 || body == std::string::npos) return {};
  return answer.substr(body + 4);
}

const ContainerRecord* Kubelet::find(const std::string& id) {
  const auto found = containers_.find(id);
  if (found != containers_.end()) return &found->second;
  const auto now = Clock::now();
  if (now < next_) return nullptr;
  const std::string pods = get_pods(address_, kPatience, kMostBytes);
  next_ = now + (pods.empty() ? kSilent : kAgain);
  if (pods.empty()) return nullptr;
  containers_ = parse_pods(pods);
  const auto again = containers_.find(id);
  return again != containers_.end() ? &again->second : nullptr;
}

}  // namespace windlass::profiler
