#include "profiler/processes/sample_filter.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/shown.h"
#include "base/system_reason.h"
#include "profiler/processes/cgroup_names.h"
#include "profiler/processes/cgroup_tree.h"
#include "profiler/processes/user_names.h"

namespace windlass::profiler {
namespace {

using Result = std::expected<void, std::string>;

constexpr std::size_t kShortestId = 4;  // digits of an id that stand for it

constexpr std::pair<std::string_view, FilterKind> kKinds[] = {{"cgroup=", FilterKind::kCgroup},
                                                              {"container=", FilterKind::kContainer},
                                                              {"comm=", FilterKind::kThreadName},
                                                              {"uid=", FilterKind::kUser}};

std::string reason(int error) {
  if (error == EXDEV) return "no group of cgroup v2";
  char text[128];
  system_reason(static_cast<std::uint64_t>(error), text, sizeof text);
  return text;
}

std::string as_typed(const FilterOption& option) {
  const auto* kind = std::ranges::find(kKinds, option.kind, &std::pair<std::string_view, FilterKind>::second);
  const std::string_view word = kind->first.substr(0, kind->first.size() - 1);
  return option.exclude ? fmt::format("--exclude {}={}", word, shown(option.value))
                        : fmt::format("--{} {}", word, shown(option.value));
}

class FilterMaker {
 public:
  explicit FilterMaker(const FilterPlaces& places)
      : places_(places), records_(places.containers), users_(places.containers.root + "/etc/passwd") {}

  Result add(const FilterOption& option, FilterNumbers& numbers) {
    switch (option.kind) {
      case FilterKind::kCgroup: return add_cgroup(option.value, numbers);
      case FilterKind::kContainer: return add_container(option.value, numbers);
      case FilterKind::kThreadName: return add_thread_name(option.value, numbers);
      case FilterKind::kUser: return add_user(option.value, numbers);
    }
    return {};
  }

 private:
  struct Container {
    std::string name;
    std::vector<std::string> paths;
  };

  Result need_mount() const {
    if (!places_.cgroup_mount.empty()) return {};
    return std::unexpected("cgroup v2 is not mounted. Way out: mount -t cgroup2 none /sys/fs/cgroup/unified");
  }

  // A path as /proc/PID/cgroup has it, or the whole one of the folder.
  Result add_cgroup(const std::string& path, FilterNumbers& numbers) const {
    if (const Result mounted = need_mount(); !mounted) return mounted;
    if (!path.starts_with('/'))
      return std::unexpected("no path from the root. Way out: one of /proc/PID/cgroup, as /system.slice/cron.service");
    const bool whole = path == places_.cgroup_mount || path.starts_with(places_.cgroup_mount + "/");
    const auto id = cgroup_id(whole ? path : places_.cgroup_mount + path);
    if (!id)
      return std::unexpected(
          fmt::format("{}. Way out: a group below {}", reason(id.error()), shown(places_.cgroup_mount)));
    numbers.cgroups.push_back(*id);
    return {};
  }

  // By id; the outermost groups of each. Of LXC, which has no ids, by name.
  const std::map<std::string, Container>& containers() {
    if (listed_) return containers_;
    listed_ = true;
    visit_groups(places_.cgroup_mount, [&](const std::string& path) {
      const CgroupNames names = parse_cgroup("0::" + path);
      const std::string& id = names.container_id.empty() ? names.container_name : names.container_id;
      if (id.empty()) return true;
      Container& container = containers_[id];
      const bool inside =
          std::ranges::any_of(container.paths, [&](const std::string& outer) { return path.starts_with(outer + "/"); });
      if (inside) return true;
      const User* user = names.user ? users_.find(*names.user) : nullptr;
      if (container.paths.empty())
        container.name = names.container_id.empty()
                             ? id
                             : records_.find(id, user != nullptr ? user->home : "", !names.pod_uid.empty()).name;
      container.paths.push_back(path);
      return true;  // containers can be nested
    });
    return containers_;
  }

  Result add_container(const std::string& wanted, FilterNumbers& numbers) {
    if (const Result mounted = need_mount(); !mounted) return mounted;
    std::vector<const Container*> by_name, by_id;
    for (const auto& [id, container] : containers()) {
      if (container.name == wanted && !wanted.empty()) by_name.push_back(&container);
      if (wanted.size() >= kShortestId && id.starts_with(wanted)) by_id.push_back(&container);
    }
    const auto& found = by_name.empty() ? by_id : by_name;
    if (found.empty())
      return std::unexpected(
          "no container in cgroup v2. Way out: an id of podman ps, docker ps or crictl ps, or --cgroup");
    if (found.size() > 1) return std::unexpected(fmt::format("{} containers. Way out: a whole id", found.size()));
    const std::size_t before = numbers.cgroups.size();
    for (const std::string& path : found.front()->paths)
      if (const auto id = cgroup_id(places_.cgroup_mount + path)) numbers.cgroups.push_back(*id);
    // An empty list would fit every group.
    if (numbers.cgroups.size() == before) return std::unexpected("its group has gone. Way out: podman ps, docker ps");
    return {};
  }

  // The kernel cuts longer names off, so the beginning is what can be compared.
  static Result add_thread_name(const std::string& name, FilterNumbers& numbers) {
    if (name.empty()) return std::unexpected("no name. Way out: one of ps -eLo comm");
    ThreadName bytes{};
    std::copy_n(name.begin(), std::min(name.size(), bytes.size() - 1), bytes.begin());
    numbers.thread_names.push_back(bytes);
    return {};
  }

  Result add_user(const std::string& user, FilterNumbers& numbers) {
    std::uint32_t number = 0;
    const char* end = user.data() + user.size();
    const auto [at, error] = std::from_chars(user.data(), end, number);
    if (error == std::errc() && at == end) {
      numbers.users.push_back(number);
      return {};
    }
    const auto named = users_.number_of(user);
    if (!named && users_.none())  // a container without the file, another mount namespace
      return std::unexpected(
          "/etc/passwd names nobody, as seen from here. Way out: the user's number, which id -u prints outside");
    if (!named) return std::unexpected("no user of /etc/passwd. Way out: the number that id -u prints");
    numbers.users.push_back(*named);
    return {};
  }

  const FilterPlaces& places_;
  ContainerRecords records_;
  UserNames users_;
  std::map<std::string, Container> containers_;
  bool listed_ = false;
};

template <typename Number>
void make_unique(std::vector<Number>& numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::ranges::unique(numbers).begin(), numbers.end());
}

}  // namespace

std::expected<FilterOption, std::string> parse_exclude(std::string_view text) {
  for (const auto& [prefix, kind] : kKinds)
    if (text.starts_with(prefix)) return FilterOption{kind, std::string(text.substr(prefix.size())), true};
  return std::unexpected(
      fmt::format("{}: no such condition. Way out: cgroup=PATH, container=NAME, comm=NAME or uid=USER", shown(text)));
}

std::expected<SampleFilter, std::string> make_filter(std::span<const FilterOption> options,
                                                     const FilterPlaces& places) {
  SampleFilter filter;
  FilterMaker maker(places);
  for (const FilterOption& option : options)
    if (const Result added = maker.add(option, option.exclude ? filter.excluded : filter.wanted); !added)
      return std::unexpected(as_typed(option) + ": " + added.error());
  for (FilterNumbers* numbers : {&filter.wanted, &filter.excluded}) {
    make_unique(numbers->cgroups);
    make_unique(numbers->thread_names);
    make_unique(numbers->users);
  }
  return filter;
}

std::expected<wl_filters, std::string> filters_of(const SampleFilter& filter) {
  wl_filters filters{};
  const auto fill = [&](const FilterNumbers& from, wl_filter_list& to) {
    if (std::max({from.cgroups.size(), from.thread_names.size(), from.users.size()}) > WL_MAX_FILTERS) return false;
    to.comms = static_cast<__u32>(from.thread_names.size());
    to.uids = static_cast<__u32>(from.users.size());
    to.cgroups = static_cast<__u32>(from.cgroups.size());
    for (std::size_t i = 0; i < from.thread_names.size(); ++i)
      std::memcpy(to.comm[i], from.thread_names[i].data(), sizeof to.comm[i]);
    std::ranges::copy(from.users, to.uid);
    std::ranges::copy(from.cgroups, to.cgroup);
    if (to.comms + to.uids + to.cgroups != 0) filters.used = 1;
    return true;
  };
  if (fill(filter.wanted, filters.only) && fill(filter.excluded, filters.except)) return filters;
  return std::unexpected(
      fmt::format("more than {} names, users or cgroups to filter by. Way out: fewer; a cgroup holds those below it",
                  WL_MAX_FILTERS));
}

}  // namespace windlass::profiler
