#include "profiler/processes/process_labels.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <utility>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "os/descriptor.h"
#include "os/living_thread.h"
#include "os/mapped_files.h"
#include "os/proc_file.h"
#include "profiler/processes/cgroup_names.h"

namespace windlass::profiler {
namespace {

using namespace label_keys;

template <typename Labels>
void add(Labels& labels, std::string_view key, std::string_view value) {
  if (!value.empty())
    labels.insert_or_assign(std::string(key), std::string(value.substr(0, ProcessLabels::kMostValue)));
}

// Of files that do not wait for the process's memory. So no reader process is needed, and asking one takes longer.
std::string read_here(int folder, const std::string& name, std::size_t most) {
  const std::string path = os::living_name(folder, name);
  const os::Descriptor file(::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text = file ? os::read_proc_file(file.get(), most) : std::string();
  text.resize(std::min(text.size(), most));
  return text;
}

std::string environment_of(std::uint32_t pid, int folder, std::size_t most) {
  const auto number = static_cast<pid_t>(pid);
  const os::Descriptor file = os::open_proc_file(number, folder, "environ");
  if (!file) return {};
  std::string text = os::read_proc_file_of(number, file.get(), most);
  text.resize(std::min(text.size(), most));
  return text;
}

// The path that the process was started by, without the kernel's note that the file has been deleted or replaced.
std::string executable_of(int folder) {
  std::string path(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(folder, os::living_name(folder, "exe").c_str(), path.data(), path.size());
  path.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  constexpr std::string_view kMark = " (deleted)";  // fs/d_path.c
  if (path.ends_with(kMark)) path.resize(path.size() - kMark.size());
  return path;
}

}  // namespace

const char* find_variable(const std::string& environment, std::string_view name) {
  for (std::size_t at = 0; at < environment.size();) {
    const char* entry = environment.c_str() + at;
    const std::string_view text(entry);
    if (text.starts_with(name) && text.substr(name.size()).starts_with('=')) return entry + name.size() + 1;
    at += text.size() + 1;
  }
  return nullptr;
}

ProcessLabels::ProcessLabels(LabelOptions options, ContainerPlaces places)
    : options_(std::move(options)), users_(places.root + "/etc/passwd"), containers_(std::move(places)) {}

std::vector<Label> ProcessLabels::of(std::uint32_t pid) {
  Labels labels;
  // An open folder stays that of one process: reads in it fail once the process has gone, whoever has its number then.
  const os::Descriptor folder(
      ::open(fmt::format("/proc/{}", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
  if (folder) {
    if (options_.process) add(labels, kProcess, std::to_string(pid));
    add_executable(pid, folder.get(), labels);
    add_cgroup(folder.get(), labels);
    add_owner(folder.get(), labels);
    add_environment(pid, folder.get(), labels);
  }
  for (const Label& label : options_.fixed) labels.insert_or_assign(label.key, label.value);
  std::vector<Label> sorted;
  sorted.reserve(labels.size());
  for (auto& [key, value] : labels) sorted.push_back({key, std::move(value)});
  return sorted;
}

void ProcessLabels::add_executable(std::uint32_t pid, int folder, Labels& labels) {
  if (options_.executable) {
    const std::string path = executable_of(folder);
    add(labels, kExecutablePath, path);
    add(labels, kExecutableName, std::string_view(path).substr(path.rfind('/') + 1));
  }
  if (options_.build_id)
    add(labels, kBuildId, build_id(fmt::format("/proc/{}/exe", os::living_thread(static_cast<pid_t>(pid)))));
}

std::string ProcessLabels::build_id(const std::string& path) {
  struct stat status {};
  if (!os::status_of(path, status)) return {};
  const FileKey key(status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  const auto found = build_ids_.find(key);
  if (found != build_ids_.end()) return found->second;
  const os::Descriptor file(os::open_regular(path));
  if (!file) return {};
  std::string id;
  if (const auto mapped = MappedFile::from_fd(file.get()))
    if (const auto image = image::ElfImage::parse(mapped->bytes())) id = image->build_id();
  if (build_ids_.size() >= kMostExecutables) build_ids_.clear();
  return build_ids_.emplace(key, std::move(id)).first->second;
}

void ProcessLabels::add_cgroup(int folder, Labels& labels) {
  if (!options_.cgroup && !options_.unit && !options_.container && !options_.kubernetes) return;
  const CgroupNames names = parse_cgroup(read_here(folder, "cgroup", kMostCgroup));
  if (options_.cgroup) add(labels, kCgroup, names.path);
  if (options_.unit) {
    add(labels, kUnit, names.unit);
    add(labels, kUserUnit, names.user_unit);
  }
  if (!options_.container && !options_.kubernetes) return;
  ContainerRecord record;
  if (!names.container_id.empty()) {
    const User* user = names.user ? users_.find(*names.user) : nullptr;
    record = containers_.find(names.container_id, user != nullptr ? user->home : "", !names.pod_uid.empty());
  }
  if (options_.container) {
    add(labels, kContainerId, names.container_id);
    add(labels, kContainerName, names.container_name.empty() ? record.name : names.container_name);
    add(labels, kContainerRuntime, names.runtime.empty() ? record.runtime : names.runtime);
  }
  if (options_.kubernetes) {
    add(labels, kPodUid, names.pod_uid.empty() ? record.pod_uid : names.pod_uid);
    add(labels, kPod, record.pod);
    add(labels, kPodNamespace, record.pod_namespace);
    add(labels, kPodContainer, record.pod_container);
  }
}

void ProcessLabels::add_owner(int folder, Labels& labels) {
  if (!options_.owner) return;
  const std::string status = read_here(folder, "status", 65536);
  // Real, effective, saved and file system's user (proc(5)).
  std::string_view numbers = os::status_field(status, "Uid");
  numbers.remove_prefix(std::min(numbers.find('\t') + 1, numbers.size()));
  std::uint32_t number = 0;
  if (std::from_chars(numbers.data(), numbers.data() + numbers.size(), number).ec != std::errc()) return;
  const User* user = users_.find(number);
  add(labels, kOwner, user != nullptr ? user->name : std::to_string(number));
}

void ProcessLabels::add_environment(std::uint32_t pid, int folder, Labels& labels) const {
  if (options_.environment.empty()) return;
  const std::string environment = environment_of(pid, folder, kMostEnvironment);
  for (const std::string& name : options_.environment)
    if (const char* value = find_variable(environment, name)) add(labels, std::string(kEnvironment) + name, value);
}

}  // namespace windlass::profiler
