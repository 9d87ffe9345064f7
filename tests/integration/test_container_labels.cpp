// Labels of processes in a real container, as the runtime calls the group and writes down the name.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "os/proc_file.h"
#include "profiler/processes/cgroup_tree.h"
#include "profiler/processes/process_labels.h"
#include "profiler/processes/sample_filter.h"
#include "support/run_command.h"

namespace windlass::test {
namespace {

namespace fs = std::filesystem;
using profiler::Label;

std::string value_of(const std::vector<Label>& labels, std::string_view key) {
  const auto found = std::ranges::find(labels, key, &Label::key);
  return found != labels.end() ? found->value : "(none)";
}

class Podman : public testing::Test {
 protected:
  void SetUp() override {
    if (run("command -v podman && command -v runc").status != 0) GTEST_SKIP() << "podman or runc is not installed";
    // What podman mounts for itself ends with this process.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      GTEST_SKIP() << "no privilege to make a container";
    char folder[] = "/tmp/windlass-labels-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    podman_ = fmt::format(
        "cd {0} && podman --root {0}/store --runroot {0}/run --storage-driver vfs --cgroup-manager cgroupfs ", folder_);
    fs::create_directory(folder_ + "/image");
    std::ofstream(folder_ + "/wait.c") << "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n";
    const CommandResult made =
        run(fmt::format("cd {0} && cc -static -o image/wait wait.c && tar -C image -cf image.tar wait && {1} import -q "
                        "image.tar alone 2>&1",
                        folder_, podman_));
    ASSERT_EQ(made.status, 0) << made.output;
  }
  void TearDown() override {
    if (folder_.empty()) return;
    run(podman_ + "rm -f -a -t 0 2>&1");
    run("rm -rf --one-file-system " + folder_);
  }
  // The id; the number of its first process is in `pid`.
  std::string start(const std::string& options, std::uint32_t& pid) {
    CommandResult result = run(podman_ +
                               "run -d --runtime runc --network none --log-driver none --ulimit nofile=1024:1024 "
                               "--ulimit nproc=1024:1024 " +
                               options + " alone /wait 2>&1");
    EXPECT_EQ(result.status, 0) << result.output;
    std::string id = result.output.substr(0, result.output.find('\n'));
    result = run(podman_ + "inspect -f '{{.State.Pid}}' " + id);
    std::from_chars(result.output.data(), result.output.data() + result.output.size(), pid);
    EXPECT_GT(pid, 1u) << result.output;
    return id;
  }
  std::string folder_, podman_;
};

TEST_F(Podman, NameIdAndGroup) {
  profiler::LabelOptions options;
  options.environment = {"container", "CHOSEN"};
  profiler::ProcessLabels labels(options, {.root = {}, .stores = {folder_ + "/store"}, .kubelet = {}});
  std::uint32_t pid = 0, other = 0;
  const std::string id = start("--name my-box --user 65534 -e CHOSEN=yes", pid);
  const std::string other_id = start("--name other-box", other);
  const auto found = labels.of(pid);
  EXPECT_EQ(value_of(found, "container.id"), id);
  EXPECT_EQ(value_of(found, "container.name"), "my-box");
  EXPECT_EQ(value_of(found, "container.runtime.name"), "podman");
  EXPECT_EQ(value_of(found, "process.executable.path"), "/wait");
  EXPECT_EQ(value_of(found, "process.owner"), "nobody");
  EXPECT_EQ(value_of(found, "env.container"), "podman");
  EXPECT_EQ(value_of(found, "env.CHOSEN"), "yes");
  EXPECT_TRUE(value_of(found, "process.linux.cgroup").ends_with("/libpod-" + id))
      << value_of(found, "process.linux.cgroup");
  EXPECT_EQ(value_of(found, "k8s.pod.uid"), "(none)");
  const auto others = labels.of(other);
  EXPECT_EQ(value_of(others, "container.id"), other_id);
  EXPECT_EQ(value_of(others, "container.name"), "other-box");
  // SetUp() has made mounts that the first process does not see.
  EXPECT_EQ(profiler::machine_root(), ::access("/proc/1/root/", X_OK) == 0 ? "/proc/1/root" : "");
  // The monitor, its parent, is outside.
  const CommandResult monitor = run(fmt::format("ps -o ppid= -p {}", pid));
  EXPECT_EQ(value_of(labels.of(static_cast<std::uint32_t>(std::atoi(monitor.output.c_str()))), "container.id"),
            "(none)");
}

// What a kernel program would compare is the number of the group's folder.
TEST_F(Podman, AFilterOfItsGroup) {
  using enum profiler::FilterKind;
  profiler::FilterPlaces places;
  places.cgroup_mount = profiler::find_cgroup_mount(os::read_proc_file("/proc/self/mountinfo"));
  if (places.cgroup_mount.empty()) GTEST_SKIP() << "cgroup v2 is not mounted";
  places.containers.stores = {folder_ + "/store"};
  std::uint32_t pid = 0, other = 0;
  const std::string id = start("--name my-box", pid);
  start("--name other-box", other);
  const std::string path = value_of(profiler::ProcessLabels({}).of(pid), "process.linux.cgroup");
  struct stat status {};
  ASSERT_EQ(::stat((places.cgroup_mount + path).c_str(), &status), 0);
  const std::vector<std::uint64_t> expected = {status.st_ino};  // the id, since Linux 5.5
  const std::string inner = places.cgroup_mount + path + "/inner";
  ASSERT_EQ(::mkdir(inner.c_str(), 0755), 0);  // the outermost one is compared with
  for (const profiler::FilterOption& option :
       {profiler::FilterOption{kCgroup, path}, profiler::FilterOption{kCgroup, places.cgroup_mount + path},
        profiler::FilterOption{kContainer, "my-box"}, profiler::FilterOption{kContainer, id},
        profiler::FilterOption{kContainer, id.substr(0, 12)}}) {
    const auto filter = profiler::make_filter({&option, 1}, places);
    ASSERT_TRUE(filter) << filter.error();
    EXPECT_EQ(filter->wanted.cgroups, expected) << option.value;
  }
  EXPECT_EQ(::rmdir(inner.c_str()), 0);
}

}  // namespace
}  // namespace windlass::test
