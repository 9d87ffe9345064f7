// What container runtimes have written down of a container: its name, and the pod it belongs to.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/processes/container_record.h"
#include "profiler/processes/kubelet.h"

namespace windlass::profiler {

// Docker's config.v2.json. The labels of cri-dockerd name the pod.
[[nodiscard]] std::optional<ContainerRecord> parse_docker_config(std::string_view text);
// The config.json of an OCI bundle, by the annotations of containerd, nerdctl and CRI-O; of others it says nothing.
[[nodiscard]] std::optional<ContainerRecord> parse_bundle(std::string_view text);
// The containers.json of containers/storage (podman, CRI-O): names by id. A container has one, or more.
[[nodiscard]] std::map<std::string, std::string> parse_storage(std::string_view text);
// The value of `graphroot` in a storage.conf (containers-storage.conf(5)); empty if there is none.
[[nodiscard]] std::string parse_graph_root(std::string_view text);

// "data-root" of Docker's daemon.json; empty if there is none.
[[nodiscard]] std::string parse_data_root(std::string_view text);

struct ContainerPlaces {
  std::string root{};                 // the folder in which the machine's own "/" is; empty: "/"
  std::vector<std::string> stores{};  // of podman, besides the usual ones
  std::string kubelet{};              // KubeletAddress::parse(); empty: is not asked
};

// The folder in which the machine's "/" is, as ContainerPlaces::root: "/proc/1/root" if the first process has other
// mounts, as for a recorder in a container that sees all processes; else empty.
[[nodiscard]] std::string machine_root();

// Not thread-safe. What is found is kept; what is not is looked for again after kAgain.
class ContainerRecords {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;  // of a file
  static constexpr std::size_t kMostKept = 4096;                   // containers
  static constexpr std::chrono::seconds kAgain = std::chrono::seconds(10);

  explicit ContainerRecords(ContainerPlaces places);
  // `home`: of the user whose rootless podman it may be; empty: nobody's. `in_pod`: the kubelet may know it.
  [[nodiscard]] const ContainerRecord& find(const std::string& id, const std::string& home, bool in_pod);

 private:
  struct Kept {
    ContainerRecord record;
    std::chrono::steady_clock::time_point until;  // as long as nothing was found
  };
  [[nodiscard]] ContainerRecord read(const std::string& id, const std::string& home, bool in_pod);
  void add_storage_name(const std::string& id, const std::string& home, ContainerRecord& record) const;

  ContainerPlaces places_;
  std::string graph_root_, data_root_;
  std::optional<Kubelet> kubelet_;
  std::map<std::string, Kept> kept_;
};

}  // namespace windlass::profiler
