#include "profiler/processes/container_records.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include "profiler/processes/cgroup_names.h"
#include "profiler/processes/json_strings.h"
#include "profiler/processes/state_file.h"

namespace windlass::profiler {
namespace {

// k3s and MicroK8s bring their own containerd.
constexpr std::string_view kContainerd[] = {"/run/containerd", "/run/k3s/containerd",
                                            "/var/snap/microk8s/common/run/containerd"};
constexpr std::string_view kNamespaces[] = {"k8s.io", "default"};  // of the kubelet, of nerdctl and ctr
constexpr std::string_view kDrivers[] = {"overlay", "vfs", "btrfs", "zfs"};
constexpr std::string_view kDataRoot = "/var/lib/docker";
constexpr std::string_view kSnapDataRoot = "/var/snap/docker/common/var-lib-docker";
constexpr std::string_view kGraphRoot = "/var/lib/containers/storage";
constexpr std::size_t kMostSettings = std::size_t{1} << 20;

bool is_at(const JsonPath& path, std::initializer_list<std::string_view> keys) {
  return std::ranges::equal(path, keys);
}

struct Known {
  std::string_view key;
  std::string ContainerRecord::*value;
  std::string_view runtime;  // that writes it; empty: several do
};

// containerd: internal/cri/annotations; CRI-O and cri-dockerd: the labels of the kubelet (pkg/kubelet/types/labels.go).
constexpr Known kKnown[] = {
    {"io.kubernetes.cri.container-name", &ContainerRecord::pod_container, "containerd"},
    {"io.kubernetes.cri.sandbox-name", &ContainerRecord::pod, "containerd"},
    {"io.kubernetes.cri.sandbox-namespace", &ContainerRecord::pod_namespace, "containerd"},
    {"io.kubernetes.cri.sandbox-uid", &ContainerRecord::pod_uid, "containerd"},
    {"io.kubernetes.container.name", &ContainerRecord::pod_container, {}},
    {"io.kubernetes.pod.name", &ContainerRecord::pod, {}},
    {"io.kubernetes.pod.namespace", &ContainerRecord::pod_namespace, {}},
    {"io.kubernetes.pod.uid", &ContainerRecord::pod_uid, {}},
    {"nerdctl/name", &ContainerRecord::name, "containerd"},
};

// `by_any`: only what several runtimes write.
void take(std::string_view key, std::string& value, bool by_any, ContainerRecord& record) {
  const auto* known = std::ranges::find(kKnown, key, &Known::key);
  if (known == std::end(kKnown) || (by_any && !known->runtime.empty())) return;
  record.*known->value = std::move(value);
  if (!known->runtime.empty()) record.runtime = known->runtime;
}

}  // namespace

std::optional<ContainerRecord> parse_docker_config(std::string_view text) {
  ContainerRecord record;
  record.runtime = "docker";
  const bool read = read_json_strings(text, {.string = [&](const JsonPath& path, std::string& value) {
                                        if (is_at(path, {"Name"}))
                                          record.name = value.starts_with('/') ? value.substr(1) : std::move(value);
                                        else if (path.size() == 3 && path[0] == "Config" && path[1] == "Labels")
                                          take(path[2], value, true, record);
                                      }});
  if (!read || record.name.empty()) return std::nullopt;
  return record;
}

std::optional<ContainerRecord> parse_bundle(std::string_view text) {
  ContainerRecord record;
  const bool read = read_json_strings(text, {.string = [&](const JsonPath& path, std::string& value) {
                                        if (path.size() != 2 || path[0] != "annotations") return;
                                        if (path[1] == "io.container.manager" && value == "cri-o")
                                          record.runtime = "cri-o";
                                        take(path[1], value, false, record);
                                      }});
  if (!read || !record.is_known()) return std::nullopt;
  return record;
}

std::map<std::string, std::string> parse_storage(std::string_view text) {
  std::map<std::string, std::string> names;
  std::string id, name;
  const bool read = read_json_strings(text, {.string =
                                                 [&](const JsonPath& path, std::string& value) {
                                                   if (is_at(path, {"[]", "id"}))
                                                     id = std::move(value);
                                                   else if (is_at(path, {"[]", "names", "[]"}) && name.empty())
                                                     name = std::move(value);
                                                 },
                                             .end_of_object =
                                                 [&](const JsonPath& path) {
                                                   if (!is_at(path, {"[]"})) return;
                                                   if (!id.empty() && !name.empty()) names.try_emplace(id, name);
                                                   id.clear();
                                                   name.clear();
                                                 }});
  if (!read) names.clear();
  return names;
}

std::string parse_graph_root(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view key = line.substr(0, equals), value = line.substr(equals + 1);
    const auto strip = [](std::string_view& part) {
      part.remove_prefix(std::min(part.find_first_not_of(" \t"), part.size()));
      part = part.substr(0, part.find_last_not_of(" \t\r") + 1);
    };
    strip(key);
    strip(value);
    if (key == "graphroot" && value.size() >= 2 && value.front() == '"')
      return std::string(value.substr(1, value.find('"', 1) - 1));
  }
  return {};
}

std::string parse_data_root(std::string_view text) {
  std::string root;
  const bool read = read_json_strings(text, {.string = [&](const JsonPath& path, std::string& value) {
                                        if (is_at(path, {"data-root"})) root = std::move(value);
                                      }});
  return read ? root : "";
}

std::string machine_root() {
  std::error_code error;
  const auto first = std::filesystem::read_symlink("/proc/1/ns/mnt", error);
  const auto own = std::filesystem::read_symlink("/proc/self/ns/mnt", error);
  return first.empty() || own.empty() || first == own ? "" : "/proc/1/root";
}

ContainerRecords::ContainerRecords(ContainerPlaces places) : places_(std::move(places)) {
  graph_root_ = parse_graph_root(read_state_file(places_.root + "/etc/containers/storage.conf", kMostSettings));
  if (graph_root_.empty()) graph_root_ = kGraphRoot;
  data_root_ = parse_data_root(read_state_file(places_.root + "/etc/docker/daemon.json", kMostSettings));
  if (data_root_.empty()) data_root_ = kDataRoot;
  if (const auto address = KubeletAddress::parse(places_.kubelet)) kubelet_.emplace(*address);
}

const ContainerRecord& ContainerRecords::find(const std::string& id, const std::string& home, bool in_pod) {
  const auto now = std::chrono::steady_clock::now();
  const auto found = kept_.find(id);
  if (found != kept_.end() && (found->second.record.is_known() || now < found->second.until))
    return found->second.record;
  if (kept_.size() >= kMostKept) kept_.clear();
  return kept_.insert_or_assign(id, Kept{read(id, home, in_pod), now + kAgain}).first->second.record;
}

ContainerRecord ContainerRecords::read(const std::string& id, const std::string& home, bool in_pod) {
  // It becomes part of paths.
  if (!is_container_id(id)) return {};
  const auto text = [&](std::string_view folder, std::string_view name) {
    std::string path = places_.root;
    path.append(folder).append("/").append(id).append(name);
    return read_state_file(path, kMostBytes);
  };
  std::vector<std::string> dockers = {data_root_, std::string(kSnapDataRoot)};
  if (!home.empty()) dockers.push_back(home + "/.local/share/docker");
  for (const std::string& docker : dockers)
    if (auto record = parse_docker_config(text(docker + "/containers", "/config.v2.json"))) {
      // An image can have any label, too.
      return in_pod ? *record : ContainerRecord{.name = record->name, .runtime = record->runtime};
    }
  for (const std::string_view folder : kContainerd)
    for (const std::string_view space : kNamespaces) {
      const std::string tasks = std::string(folder) + "/io.containerd.runtime.v2.task/" + std::string(space);
      if (auto record = parse_bundle(text(tasks, "/config.json"))) return *record;
    }
  ContainerRecord record;
  if (auto bundle = parse_bundle(text("/run/containers/storage/overlay-containers", "/userdata/config.json")))
    record = std::move(*bundle);
  add_storage_name(id, home, record);
  if (!record.is_known() && in_pod && kubelet_)
    if (const ContainerRecord* told = kubelet_->find(id)) record = *told;
  return record;
}

void ContainerRecords::add_storage_name(const std::string& id, const std::string& home, ContainerRecord& record) const {
  std::vector<std::string> stores = places_.stores;
  stores.push_back(places_.root + graph_root_);
  if (!home.empty()) stores.push_back(places_.root + home + "/.local/share/containers/storage");
  for (const std::string& store : stores)
    for (const std::string_view driver : kDrivers) {
      const std::string path = store + "/" + std::string(driver) + "-containers/containers.json";
      const auto names = parse_storage(read_state_file(path, kMostBytes));
      const auto found = names.find(id);
      if (found == names.end()) continue;
      record.name = found->second;
      return;
    }
}

}  // namespace windlass::profiler
