// The pods of a node, as its kubelet lists them.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/processes/container_record.h"

namespace windlass::profiler {

// A PodList (Kubernetes API, core/v1): the records of all containers that have an id, by id.
[[nodiscard]] std::map<std::string, ContainerRecord> parse_pods(std::string_view text);

// Where a kubelet answers without TLS: its read-only port, or `kubectl proxy`.
struct KubeletAddress {
  std::string host;  // numeric; IPv6 without brackets
  std::uint16_t port = 0;
  std::string path;
  // "http://127.0.0.1:10255", "10.0.0.1:10255", "http://[::1]:8001/api/v1/nodes/NODE/proxy/pods". Without a path
  // "/pods". The error is a sentence for people.
  [[nodiscard]] static std::expected<KubeletAddress, std::string> parse(std::string_view text);
};

// GET of it, the body of an answer 200; empty otherwise. Waits `patience` at most, and takes `most` bytes.
[[nodiscard]] std::string get_pods(const KubeletAddress& address, std::chrono::milliseconds patience, std::size_t most);

// Not thread-safe.
class Kubelet {
 public:
  static constexpr std::chrono::milliseconds kPatience = std::chrono::milliseconds(300);
  static constexpr std::chrono::seconds kAgain = std::chrono::seconds(10);   // for a container that it did not list
  static constexpr std::chrono::seconds kSilent = std::chrono::seconds(60);  // after no answer
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;

  explicit Kubelet(KubeletAddress address) : address_(std::move(address)) {}
  // Null: not known.
  [[nodiscard]] const ContainerRecord* find(const std::string& id);

 private:
  KubeletAddress address_;
  std::map<std::string, ContainerRecord> containers_;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace windlass::profiler
