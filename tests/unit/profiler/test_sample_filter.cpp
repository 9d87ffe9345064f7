#include "profiler/processes/sample_filter.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "os/proc_file.h"
#include "profiler/processes/cgroup_tree.h"

namespace windlass::profiler {
namespace {

namespace fs = std::filesystem;
using enum FilterKind;

std::string error_of(const FilterOption& option, const FilterPlaces& places = {}) {
  const auto filter = make_filter({&option, 1}, places);
  return filter ? "" : filter.error();
}

// mountinfo of Linux 6.1: hybrid, v2 alone, and a container's.
TEST(CgroupTree, Mounts) {
  EXPECT_EQ(
      find_cgroup_mount("32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
                        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:1 master:2 - cgroup2 cgroup2 rw\n"),
      "/sys/fs/cgroup/unified");
  EXPECT_EQ(find_cgroup_mount("30 23 0:26 /../.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n"), "/sys/fs/cgroup");
  EXPECT_EQ(find_cgroup_mount("30 23 0:26 /part /a ro - cgroup2 cgroup rw\n31 23 0:26 / /b ro - cgroup2 cgroup rw"),
            "/b");
  EXPECT_EQ(find_cgroup_mount("30 23 0:26 / /with\\040blank\\134 ro - cgroup2 cgroup rw\n"), "/with blank\\");
  for (const char* text : {"", "\n\n", "30 23 0:26 / /sys - cgroup2", "30 23 0:26 / /sys ro -", "- cgroup2",
                           "30 23 0:26 / /sys ro a b c -", "1 2 3 / /x ro - tmpfs cgroup2 rw\n"})
    EXPECT_EQ(find_cgroup_mount(text), "") << text;
}

TEST(SampleFilter, ThreadNames) {
  const FilterOption options[] = {
      {kThreadName, "worker"}, {kThreadName, "worker"}, {kThreadName, "a name longer than 15 bytes", true}};
  const auto filter = make_filter(options, {});
  ASSERT_TRUE(filter);
  EXPECT_EQ(filter->wanted.thread_names, (std::vector<ThreadName>{{'w', 'o', 'r', 'k', 'e', 'r'}}));
  ASSERT_EQ(filter->excluded.thread_names.size(), 1u);
  EXPECT_STREQ(filter->excluded.thread_names[0].data(), "a name longer t");
  EXPECT_TRUE(filter->wanted.users.empty() && filter->wanted.cgroups.empty());
  EXPECT_EQ(error_of({kThreadName, ""}), "--comm : no name. Way out: one of ps -eLo comm");
}

TEST(SampleFilter, Excluded) {
  const auto shown = [](std::string_view text) {
    const auto option = parse_exclude(text);
    return option ? fmt::format("{} {} {}", static_cast<int>(option->kind), option->value, option->exclude)
                  : option.error();
  };
  EXPECT_EQ(shown("cgroup=/a=b"), "0 /a=b true");
  EXPECT_EQ(shown("container=box"), "1 box true");
  EXPECT_EQ(shown("comm=x"), "2 x true");
  EXPECT_EQ(shown("uid=0"), "3 0 true");
  EXPECT_EQ(shown("co\x1bmm"),
            "co\\x1bmm: no such condition. Way out: cgroup=PATH, container=NAME, comm=NAME or uid=USER");
}

TEST(SampleFilter, WithoutCgroupV2) {
  const std::string why = "cgroup v2 is not mounted. Way out: mount -t cgroup2 none /sys/fs/cgroup/unified";
  EXPECT_EQ(error_of({kCgroup, "/a"}), "--cgroup /a: " + why);
  EXPECT_EQ(error_of({kContainer, "box", true}), "--exclude container=box: " + why);
}

class FilterFolder : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/windlass-filter-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    root_ = folder;
    fs::create_directories(root_ + "/etc");
    std::ofstream(root_ + "/etc/passwd") << "a:x:1:1::/home/a:\nb:x:70000:1::/home/b:\n";
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string root_;
};

TEST_F(FilterFolder, Users) {
  const FilterPlaces places{.cgroup_mount = {}, .containers = {.root = root_, .stores = {}, .kubelet = {}}};
  const FilterOption options[] = {{kUser, "b"}, {kUser, "5"}, {kUser, "70000"}, {kUser, "a", true}};
  const auto filter = make_filter(options, places);
  ASSERT_TRUE(filter);
  EXPECT_EQ(filter->wanted.users, (std::vector<std::uint32_t>{5, 70000}));
  EXPECT_EQ(filter->excluded.users, (std::vector<std::uint32_t>{1}));
  for (const char* user : {"", "none", "-1", "4294967296", "1x"})
    EXPECT_EQ(error_of({kUser, user}, places),
              fmt::format("--uid {}: no user of /etc/passwd. Way out: the number that id -u prints", user));
  const FilterPlaces closed{.cgroup_mount = {}, .containers = {.root = root_ + "/none", .stores = {}, .kubelet = {}}};
  EXPECT_EQ(
      error_of({kUser, "b"}, closed),
      "--uid b: /etc/passwd names nobody, as seen from here. Way out: the user's number, which id -u prints outside");
  const FilterOption number[] = {{kUser, "5"}};
  EXPECT_EQ(make_filter(number, closed)->wanted.users, std::vector<std::uint32_t>{5});
}

// A folder of another file system.
TEST_F(FilterFolder, WhatIsNoGroup) {
  const FilterPlaces places{.cgroup_mount = root_, .containers = {.root = root_, .stores = {}, .kubelet = {}}};
  EXPECT_EQ(error_of({kCgroup, "etc"}, places),
            "--cgroup etc: no path from the root. Way out: one of /proc/PID/cgroup, as /system.slice/cron.service");
  EXPECT_EQ(error_of({kCgroup, "/etc"}, places),
            "--cgroup /etc: no group of cgroup v2. Way out: a group below " + root_);
  EXPECT_EQ(error_of({kCgroup, root_ + "/etc"}, places),
            fmt::format("--cgroup {0}/etc: no group of cgroup v2. Way out: a group below {0}", root_));
  EXPECT_EQ(error_of({kCgroup, root_}, places),
            fmt::format("--cgroup {0}: no group of cgroup v2. Way out: a group below {0}", root_));
  EXPECT_EQ(error_of({kCgroup, "/none"}, places),
            "--cgroup /none: No such file or directory. Way out: a group below " + root_);
  EXPECT_EQ(error_of({kCgroup, "/etc/passwd"}, places),
            "--cgroup /etc/passwd: Not a directory. Way out: a group below " + root_);
}

TEST_F(FilterFolder, ContainersThatAreNotThere) {
  const std::string first = std::string(60, 'a') + "1111", second = std::string(60, 'a') + "2222";
  for (const std::string& id : {first, second}) fs::create_directories(root_ + "/docker/" + id + "/inner");
  const FilterPlaces places{.cgroup_mount = root_, .containers = {.root = root_, .stores = {}, .kubelet = {}}};
  const std::string none =
      ": no container in cgroup v2. Way out: an id of podman ps, docker ps or crictl ps, or --cgroup";
  EXPECT_EQ(error_of({kContainer, "aaaa"}, places), "--container aaaa: 2 containers. Way out: a whole id");
  EXPECT_EQ(error_of({kContainer, "aaa"}, places), "--container aaa" + none);
  EXPECT_EQ(error_of({kContainer, ""}, places), "--container " + none);
  EXPECT_EQ(error_of({kContainer, "inner"}, places), "--container inner" + none);
  EXPECT_EQ(error_of({kContainer, first}, places),
            "--container " + first + ": its group has gone. Way out: podman ps, docker ps");
}

TEST_F(FilterFolder, GroupsOfATree) {
  for (const char* path : {"/a/b/c", "/d"}) fs::create_directories(root_ + path);
  fs::create_directory_symlink(root_, root_ + "/d/loop");
  std::vector<std::string> seen;
  visit_groups(root_, [&](const std::string& path) {
    seen.push_back(path);
    return path != "/a/b";
  });
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector<std::string>{"/a", "/a/b", "/d", "/etc"}));
  visit_groups(root_ + "/none", [](const std::string&) -> bool { throw 0; });
}

}  // namespace
}  // namespace windlass::profiler
