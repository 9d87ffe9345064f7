#include "profiler/processes/cgroup_names.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace windlass::profiler {
namespace {

constexpr std::string_view kDeleted = " (deleted)";  // kernel/cgroup/cgroup.c, proc_cgroup_show()

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_decimal(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<std::string_view> between(std::string_view text, std::string_view prefix, std::string_view suffix) {
  if (text.size() < prefix.size() + suffix.size() || !text.starts_with(prefix) || !text.ends_with(suffix))
    return std::nullopt;
  return text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
}

std::vector<std::string_view> components_of(std::string_view path) {
  std::vector<std::string_view> components;
  while (!path.empty()) {
    const std::string_view component = path.substr(0, path.find('/'));
    if (!component.empty() && component != "..") components.push_back(component);
    path.remove_prefix(std::min(component.size() + 1, path.size()));
  }
  return components;
}

std::string runtime_of(std::string_view prefix) {
  if (prefix == "docker") return "docker";
  if (prefix == "libpod" || prefix == "libpod_parent") return "podman";
  if (prefix == "cri-containerd" || prefix == "nerdctl") return "containerd";
  if (prefix == "crio") return "cri-o";
  return {};
}

// "docker-ID.scope", "libpod-ID", "SLICE:cri-containerd:ID", "ID". `above` is the component before it.
void find_container(std::string_view component, std::string_view above, CgroupNames& names) {
  std::string_view name = component;
  if (name.ends_with(".scope")) name.remove_suffix(6);
  std::string_view id = name, prefix = above;
  if (!is_container_id(name)) {
    const std::size_t end = name.find_last_of("-:");
    if (end == std::string_view::npos) return;
    id = name.substr(end + 1);
    prefix = name.substr(0, end);
    if (name[end] == ':') prefix.remove_prefix(prefix.find_last_of(':') + 1);  // npos + 1 is 0
  }
  // The monitor of a container is not in the container: "crio-conmon-ID.scope", "libpod-conmon-ID.scope".
  if (!is_container_id(id) || prefix.ends_with("conmon")) return;
  names.container_id = id;
  names.container_name.clear();
  names.runtime = runtime_of(prefix);
}

// "kubepods-burstable-podUID.slice" with underscores in the UID, "podUID", "kubepods-podUID.slice:crio:ID".
void find_pod(std::string_view component, CgroupNames& names) {
  component = component.substr(0, component.find(".slice"));
  const std::size_t at = component.rfind("-pod");
  std::string_view uid;
  if (at != std::string_view::npos)
    uid = component.substr(at + 4);
  else if (component.starts_with("pod"))
    uid = component.substr(3);
  std::string dashed(uid.substr(0, 37));
  std::ranges::replace(dashed, '_', '-');
  std::string digits = dashed;
  std::erase(digits, '-');
  // A static pod's UID is a hash without dashes.
  if (digits.size() == 32 && is_hex(digits) && (dashed.size() == 32 || dashed.size() == 36)) names.pod_uid = dashed;
}

void find_containers(const std::vector<std::string_view>& components, CgroupNames& names) {
  std::string_view above;
  for (const std::string_view component : components) {
    std::string_view lxc;
    if (component.starts_with("lxc.payload."))
      lxc = component.substr(12);
    else if (above == "lxc" || above == "lxc.payload")
      lxc = component;
    if (!lxc.empty()) {
      names.container_id.clear();
      names.container_name = lxc;
      names.runtime = "lxc";
    } else if (above == "buildkit") {
      names.container_id = component;
      names.container_name.clear();
      names.runtime = "buildkit";
    } else {
      find_container(component, above, names);
    }
    find_pod(component, names);
    above = component;
  }
}

// systemd, src/basic/unit-name.c: unit_name_is_valid(), of the types that have a cgroup.
bool is_unit(std::string_view name) {
  constexpr std::string_view kTypes[] = {".service", ".scope", ".socket", ".mount", ".swap", ".slice"};
  constexpr std::string_view kSpecial = ":-_.\\@";
  return name.size() < 256 &&
         std::ranges::any_of(
             kTypes, [&](std::string_view type) { return name.ends_with(type) && name.size() > type.size(); }) &&
         std::ranges::all_of(name, [&](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kSpecial.contains(c);
         });
}

// The first component that is no slice, if that is a unit; `at` is behind it then (cg_path_get_unit()).
std::string next_unit(const std::vector<std::string_view>& components, std::size_t& at) {
  for (; at < components.size(); ++at) {
    std::string_view name = components[at];
    if (name.starts_with('_')) name.remove_prefix(1);  // cg_escape(): so that it is no file of the kernel's
    if (!is_unit(name)) return {};
    if (name.ends_with(".slice")) continue;
    ++at;
    return std::string(name);
  }
  return {};
}

void find_units(const std::vector<std::string_view>& components, CgroupNames& names) {
  std::size_t at = 0;
  const std::string unit = next_unit(components, at);
  if (unit.empty()) return;
  names.unit = unit;
  const auto manager = between(unit, "user@", ".service");
  if (manager && is_decimal(*manager)) names.user_unit = next_unit(components, at);
}

void find_user(const std::vector<std::string_view>& components, CgroupNames& names) {
  for (const std::string_view component : components) {
    const auto number = between(component, "user-", ".slice");
    std::uint32_t user = 0;
    if (!number || !is_decimal(*number)) continue;
    if (std::from_chars(number->data(), number->data() + number->size(), user).ec == std::errc()) names.user = user;
    return;
  }
}

// The paths, by the order in which they are believed.
std::vector<std::string_view> paths_of(std::string_view text) {
  std::vector<std::string_view> unified, systemd, others;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos || !is_decimal(line.substr(0, first))) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    std::string_view path = line.substr(second + 1);
    if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
    (controllers.empty() ? unified : controllers == "name=systemd" ? systemd : others).push_back(path);
  }
  unified.insert(unified.end(), systemd.begin(), systemd.end());
  unified.insert(unified.end(), others.begin(), others.end());
  return unified;
}

}  // namespace

bool is_container_id(std::string_view text) {
  if (text.size() == 64) return is_hex(text);
  const std::size_t dash = text.find('-');  // Fargate: a task, and a number of the container in it
  return dash == 32 && is_hex(text.substr(0, dash)) && text.size() <= 43 && is_decimal(text.substr(dash + 1));
}

CgroupNames parse_cgroup(std::string_view text) {
  CgroupNames names;
  for (const std::string_view path : paths_of(text)) {
    const auto components = components_of(path);
    if (names.path.empty() || (components_of(names.path).empty() && !components.empty())) names.path = path;
    if (names.container_id.empty() && names.container_name.empty()) find_containers(components, names);
    if (names.unit.empty()) find_units(components, names);
    if (!names.user) find_user(components, names);
  }
  return names;
}

}  // namespace windlass::profiler
