// `windlass record` with filters, and with labels of processes.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "profiler/processes/cgroup_tree.h"
#include "profiler/profile/profile.h"
#include "support/emulated.h"
#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass::test {
namespace {

using profile::Profile;
using profile::Sample;

class Filters : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    path_ = testing::TempDir() + fmt::format("windlass-filters-{}.pb.gz", getpid());
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    for (const std::string& group : groups_) ::rmdir(group.c_str());
  }

  // A program of threads that work and wait, under a shell that waits for it.
  void record(const std::string& options, const std::string& before = "") {
    const std::string script = fmt::format("{}{} 30 & wait", before, WINDLASS_WAITS);
    done_ = run(fmt::format("NAMED=value {} record {} -o {} --off-cpu {} -- sh -c '{}' 2>&1", WINDLASS_COMMAND,
                            rate_option(), path_, options, script));
    auto read = exporter::read_pprof_file(path_);
    ASSERT_TRUE(read.has_value()) << done_.output;
    profile_ = std::move(*read);
  }
  // The names of threads, by event.
  [[nodiscard]] std::set<std::string> names(std::uint32_t event) const {
    std::set<std::string> names;
    for (const Sample& sample : profile_.samples)
      if (sample.event == event) names.insert(profile_.strings[sample.comm]);
    return names;
  }
  [[nodiscard]] std::map<std::string, std::string> labels_of(const Sample& sample) const {
    std::map<std::string, std::string> labels;
    for (const profile::Label& label : profile_.label_sets[sample.labels])
      labels[profile_.strings[label.key]] = profile_.strings[label.value];
    return labels;
  }

  const std::string root_ = std::filesystem::exists("/etc/passwd") ? "root" : "0";
  std::string path_;
  CommandResult done_;
  Profile profile_;
  std::vector<std::string> groups_;  // of cgroup v2, the inner first
};

TEST_F(Filters, ByThreadName) {
  record("--comm sh");
  EXPECT_EQ(names(1), std::set<std::string>{"sh"}) << done_.output;
  record("--exclude comm=sh");
  EXPECT_FALSE(names(0).empty());
  EXPECT_FALSE(names(0).contains("sh"));
  EXPECT_FALSE(names(1).contains("sh"));
  record("--comm waits --comm sh --exclude comm=sh");
  EXPECT_EQ(names(0), std::set<std::string>{"waits"}) << done_.output;
}

TEST_F(Filters, ByUser) {
  record("--uid " + root_);
  EXPECT_TRUE(names(0).contains("waits")) << done_.output;
  record("--uid 65534");
  EXPECT_TRUE(profile_.samples.empty());
  EXPECT_NE(done_.output.find("no thread passes the filters"), std::string::npos) << done_.output;
  record("--exclude uid=0");
  EXPECT_TRUE(profile_.samples.empty());
  // Both conditions hold.
  record("--uid " + root_ + " --comm sh");
  EXPECT_EQ(names(1), std::set<std::string>{"sh"});
}

TEST_F(Filters, ByCgroup) {
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string mount = profiler::find_cgroup_mount(std::string(std::istreambuf_iterator<char>(mounts), {}));
  if (mount.empty()) GTEST_SKIP() << "cgroup version 2 is not mounted";
  const std::string outer = mount + fmt::format("/windlass-{}", getpid()), inner = outer + "/inner";
  if (mkdir(outer.c_str(), 0755) != 0) GTEST_SKIP() << "no cgroup can be made here";
  groups_ = {inner, outer};
  ASSERT_EQ(mkdir(inner.c_str(), 0755), 0);
  const std::string move = fmt::format("echo 0 > {}/cgroup.procs; ", inner);
  for (const std::string& group : {outer, inner}) {
    record("--cgroup " + group, move);
    EXPECT_TRUE(names(0).contains("waits")) << done_.output;
    EXPECT_TRUE(names(1).contains("sh")) << done_.output;
  }
  record("--exclude cgroup=" + outer, move);
  EXPECT_FALSE(names(0).contains("waits")) << done_.output;
  record("--cgroup " + inner);
  EXPECT_TRUE(profile_.samples.empty()) << "the program is not in it";
}

TEST_F(Filters, WhatIsNotThereIsSaid) {
  const auto said = [](const std::string& options) {
    return run(fmt::format("{} record {} -o /dev/null -- true 2>&1", WINDLASS_COMMAND, options)).output;
  };
  // A small root has no users.
  const std::string user = said("--uid no-such-user");
  EXPECT_TRUE(user.find("no user of /etc/passwd. Way out: ") != std::string::npos ||
              user.find("/etc/passwd names nobody, as seen from here. Way out: ") != std::string::npos)
      << user;
  EXPECT_NE(said("--cgroup /no/such/group").find("Way out: "), std::string::npos);
  EXPECT_NE(said("--exclude nonsense=1").find("no such condition"), std::string::npos);
  EXPECT_NE(said("--label nonsense").find("nonsense is no label"), std::string::npos);
  EXPECT_NE(said("--labels nonsense").find("there are no labels nonsense"), std::string::npos);
  std::string many;
  for (int i = 0; i < 17; ++i) many += fmt::format("--uid {} ", i);
  EXPECT_NE(said(many).find("more than 16 names, users or cgroups"), std::string::npos) << said(many);
}

TEST_F(Filters, LabelsAreThoseOfTheProcess) {
  record("--labels executable,owner --label version=1.2 --label-env NAMED");
  std::set<std::string> programs;
  for (const Sample& sample : profile_.samples) {
    const auto labels = labels_of(sample);
    EXPECT_EQ(labels.at("version"), "1.2");
    EXPECT_EQ(labels.at("env.NAMED"), "value");
    EXPECT_EQ(labels.at("process.owner"), root_);
    EXPECT_FALSE(labels.contains("process.pid"));
    EXPECT_EQ(labels.contains("reason"), sample.event == 1);
    programs.insert(labels.at("process.executable.name"));
  }
  EXPECT_TRUE(programs.contains("waits")) << done_.output;
  record("--labels none");
  for (const Sample& sample : profile_.samples) EXPECT_EQ(labels_of(sample).size(), sample.event);
}

}  // namespace
}  // namespace windlass::test
