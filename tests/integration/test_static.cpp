// The command as one file that needs no other: in a root that holds little or nothing else.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/child_program.h"
#include "support/loopback.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/synthetic_profile.h"
#include "symbols/debuginfod_program.h"

namespace windlass::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Arguments = std::vector<std::string>;

constexpr std::uintmax_t kMostBytes = 10'000'000;
constexpr double kWhole = 0.99;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

void write_program(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
  fs::permissions(path, fs::perms::owner_all);
}

// A walk of a program that has just been started: again, until it is past its beginning.
template <class Walk>
CommandResult until_in_main(const Walk& walk) {
  CommandResult result = walk();
  for (int i = 0; i < 3000 && !contains(result.output, " main"); ++i, result = walk())
    std::this_thread::sleep_for(100ms);
  return result;
}

class StaticCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / fmt::format("windlass-static-{}", getpid());
    fs::create_directories(folder_);
    fs::copy_file(WINDLASS_STATIC_COMMAND, folder_ / "windlass");
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(StaticCommand, NamesNoOtherFileAndIsSmall) {
  const auto file = MappedFile::open((folder_ / "windlass").string());
  ASSERT_TRUE(file);
  const auto bytes = file->bytes();
  EXPECT_LE(bytes.size(), kMostBytes);
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  EXPECT_EQ(header.e_type, ET_DYN) << "it is not placed at random";
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    EXPECT_NE(segment.p_type, static_cast<Elf64_Word>(PT_INTERP)) << "it names a dynamic linker";
    if (segment.p_type != PT_DYNAMIC) continue;
    for (std::size_t at = 0; at < segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry;
      std::memcpy(&entry, bytes.data() + segment.p_offset + at, sizeof entry);
      EXPECT_NE(entry.d_tag, DT_NEEDED) << "it names a library";
    }
  }
}

TEST_F(StaticCommand, VersionSaysWhatIsInIt) {
  const CommandResult version = run((folder_ / "windlass").string() + " --version");
  EXPECT_EQ(version.status, 0);
  EXPECT_TRUE(version.output.starts_with("windlass " WINDLASS_VERSION)) << version.output;
  EXPECT_TRUE(contains(version.output, ", one static file\n")) << version.output;
  EXPECT_TRUE(contains(version.output, "libbpf 1.")) << version.output;
  EXPECT_TRUE(contains(version.output, "Zydis 4.")) << version.output;
  EXPECT_TRUE(contains(version.output, "debuginfod-find")) << version.output;
}

// A root with the command and no other file, but /proc and /sys. A child has it in a mount namespace of its own, so
// that nothing stays mounted.
class StaticRoot : public StaticCommand {
 protected:
  void SetUp() override {
    StaticCommand::SetUp();
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    for (const char* name : {"proc", "sys"}) fs::create_directory(folder_ / name);
    const CommandResult first = in_root({"/windlass", "--version"});
    if (first.status == kNoMount) GTEST_SKIP() << "mount: " << first.output;
    ASSERT_EQ(first.status, 0) << first.output;
  }

  void TearDown() override {
    fs::remove(log());
    StaticCommand::TearDown();
  }

  [[nodiscard]] fs::path log() const { return folder_.string() + ".log"; }  // beside the root: what it prints

  [[nodiscard]] pid_t start_in_root(const Arguments& arguments) const {
    std::vector<char*> argv;
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const std::string proc = folder_ / "proc", sys = folder_ / "sys";
    const fs::path output = log();
    fs::remove(output);
    const pid_t child = ::fork();
    if (child == 0) {
      const int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
      ::dup2(fd, STDOUT_FILENO);
      ::dup2(fd, STDERR_FILENO);
      if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("/proc", proc.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0 ||
          ::mount("/sys", sys.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0 || ::chroot(folder_.c_str()) != 0 ||
          ::chdir("/") != 0) {
        ::perror("mount");
        ::_exit(kNoMount);
      }
      ::execv(argv[0], argv.data());
      ::perror(argv[0]);
      ::_exit(126);
    }
    return child;
  }
  [[nodiscard]] CommandResult result_of(pid_t child) const {
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text_of(log())};
  }
  [[nodiscard]] CommandResult in_root(const Arguments& arguments) const { return result_of(start_in_root(arguments)); }

  static constexpr int kNoMount = 99;
};

struct Count {
  std::uint64_t all = 0, whole = 0;
};

Count count(const fs::path& path) {
  Count count;
  const auto profile = exporter::read_pprof_file(path.string());
  EXPECT_TRUE(profile) << (profile ? "" : profile.error().text());
  if (!profile) return count;
  for (const profile::Sample& sample : profile->samples) {
    count.all += sample.count;
    if (profile::is_whole(sample.end)) count.whole += sample.count;
  }
  return count;
}

TEST_F(StaticRoot, RecordsReportsWalksAndDumpsWithNoOtherFile) {
  // Its own work is what is recorded: the rows of a file of nine megabytes.
  const CommandResult recorded =
      in_root({"/windlass", "record", "-F", "997", "-o", "/p.pb.gz", "--", "/windlass", "rows", "/windlass"});
  EXPECT_EQ(recorded.status, 0) << recorded.output.substr(0, 2000);
  const Count samples = count(folder_ / "p.pb.gz");
  EXPECT_GE(samples.all, 5u);
  EXPECT_GE(static_cast<double>(samples.whole), kWhole * static_cast<double>(samples.all));

  const CommandResult report = in_root({"/windlass", "report", "/p.pb.gz"});
  EXPECT_EQ(report.status, 0) << report.output;
  EXPECT_TRUE(contains(report.output, "windlass+0x")) << report.output;
  const CommandResult page = in_root({"/windlass", "report", "--html", "/p.pb.gz"});
  EXPECT_EQ(page.status, 0) << page.output.substr(0, 2000);
  EXPECT_TRUE(contains(page.output, "<html"));
  const CommandResult dump = in_root({"/windlass", "dump", "/windlass"});
  EXPECT_EQ(dump.status, 0) << dump.output.substr(0, 2000);
  EXPECT_TRUE(contains(dump.output, "DW_CFA_def_cfa"));
  ASSERT_FALSE(fs::exists(folder_ / "bin")) << "another file was there";
}

TEST_F(StaticRoot, ServesThePage) {
  ASSERT_TRUE(exporter::write_pprof_file(testing::synthetic_profile(), (folder_ / "p.pb.gz").string()));
  const pid_t server = start_in_root({"/windlass", "view", "--no-browser", "/p.pb.gz"});
  const std::string before = "http://127.0.0.1:";
  std::string address;
  for (int i = 0; i < 6000 && address.empty() && ::waitpid(server, nullptr, WNOHANG) == 0; ++i) {
    const std::string said = text_of(log());
    const std::size_t at = said.find(before), end = said.find('\n', at);
    if (at != std::string::npos && end != std::string::npos)
      address = said.substr(at + before.size(), end - at - before.size());
    std::this_thread::sleep_for(10ms);
  }
  ASSERT_FALSE(address.empty()) << text_of(log());
  const std::string answer = ask(static_cast<std::uint16_t>(std::atoi(address.c_str())),
                                 "GET " + address.substr(address.find('/')) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  ::kill(server, SIGINT);
  EXPECT_EQ(result_of(server).status, 0);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer.substr(0, 200);
  // The served page may ask the server, which its profile says; the scripts are the same.
  const auto scripts_of = [](const std::string& page) {
    return page.substr(std::min(page.find("<script id=\"calculator\""), page.size()));
  };
  EXPECT_EQ(scripts_of(answer), scripts_of(in_root({"/windlass", "report", "--html", "/p.pb.gz"}).output));
  EXPECT_GT(scripts_of(answer).size(), 10'000u);
}

TEST_F(StaticRoot, RecordsAndWalksOtherPrograms) {
  fs::copy_file(WINDLASS_STATIC_WORKLOAD, folder_ / "work");
  const CommandResult recorded = in_root({"/windlass", "record", "-F", "997", "-o", "/p.pb.gz", "--", "/work", "3"});
  EXPECT_EQ(recorded.status, 0) << recorded.output;
  const Count samples = count(folder_ / "p.pb.gz");
  EXPECT_GE(samples.all, 20u) << recorded.output;
  EXPECT_GE(static_cast<double>(samples.whole), kWhole * static_cast<double>(samples.all)) << recorded.output;
  const CommandResult report = in_root({"/windlass", "report", "/p.pb.gz"});
  EXPECT_EQ(report.status, 0) << report.output;
  EXPECT_TRUE(contains(report.output, "work_")) << "the functions have names: " << report.output;

  const ChildProgram work({WINDLASS_STATIC_WORKLOAD, "3600"}, "/dev/null", STDOUT_FILENO);
  const CommandResult walk = until_in_main([&] { return in_root({"/windlass", "walk", std::to_string(work.pid())}); });
  EXPECT_EQ(walk.status, 0) << walk.output;
  EXPECT_TRUE(contains(walk.output, " main")) << walk.output;
}

TEST_F(StaticRoot, ShowsWhatRunsNow) {
  fs::copy_file(WINDLASS_STATIC_WORKLOAD, folder_ / "work");
  const CommandResult shown = in_root({"/windlass", "top", "--batch", "3", "--rows", "200", "--", "/work", "30"});
  EXPECT_EQ(shown.status, 0) << shown.output;
  EXPECT_TRUE(contains(shown.output, "work_")) << shown.output;
}

TEST_F(StaticRoot, RecordsBusyboxBesideIt) {
  const CommandResult which = run("which busybox");
  ASSERT_EQ(which.status, 0) << "there is no busybox: install busybox-static";
  fs::create_directory(folder_ / "bin");
  fs::copy_file(fs::canonical(which.output.substr(0, which.output.find('\n'))), folder_ / "bin/busybox");
  if (in_root({"/bin/busybox", "true"}).status != 0) GTEST_SKIP() << "this busybox needs other files";
  const CommandResult recorded = in_root({"/windlass", "record", "-F", "997", "-o", "/p.pb.gz", "--", "/bin/busybox",
                                          "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"});
  EXPECT_EQ(recorded.status, 0) << recorded.output;
  EXPECT_GE(count(folder_ / "p.pb.gz").all, 50u) << recorded.output;
  const CommandResult report = in_root({"/windlass", "report", "/p.pb.gz"});
  EXPECT_TRUE(contains(report.output, "busybox+0x")) << report.output;
}

// A root as Alpine's: its C library is musl, which has no unwind information, and there is no other.
TEST_F(StaticRoot, RecordsWhereMuslIsTheLibrary) {
  const fs::path musl = "/lib/ld-musl-x86_64.so.1", program = WINDLASS_REPLAY_TARGET "_on_musl";
  if (!fs::exists(musl) || !fs::exists(program)) GTEST_SKIP() << "musl is not here";
  fs::create_directory(folder_ / "lib");
  fs::copy_file(fs::canonical(musl), folder_ / musl.relative_path());
  fs::copy_file(program, folder_ / "work");
  const CommandResult recorded = in_root({"/windlass", "record", "-F", "997", "-o", "/p.pb.gz", "--", "/work", "3"});
  EXPECT_EQ(recorded.status, 0) << recorded.output;
  const Count samples = count(folder_ / "p.pb.gz");
  EXPECT_GE(samples.all, 20u) << recorded.output;
  EXPECT_GE(static_cast<double>(samples.whole), 0.9 * static_cast<double>(samples.all)) << recorded.output;
  EXPECT_TRUE(contains(in_root({"/windlass", "report", "/p.pb.gz"}).output, "sort_some"));
}

TEST_F(StaticRoot, IsWhatTheDemoTakes) {
  if (!fs::exists(WINDLASS_DEMO)) GTEST_SKIP() << "the sources are not here";
  // In a copy of what it reads, so that an out/ that is there stays as it is.
  fs::create_directory(folder_ / "cmake");
  fs::copy_file(WINDLASS_DEMO, folder_ / "demo");
  fs::copy_file(fs::path(WINDLASS_DEMO).parent_path() / "cmake/setup.sh", folder_ / "cmake/setup.sh");
  const CommandResult demo = run(fmt::format("{0}/demo --static {0}/windlass 2>&1", folder_.string()));
  EXPECT_EQ(demo.status, 0) << demo.output;
  EXPECT_TRUE(contains(demo.output, "cc1plus")) << demo.output;
  EXPECT_GE(count(folder_ / "out/demo.pb.gz").all, 20u) << demo.output;
  EXPECT_FALSE(fs::exists(folder_ / "build")) << "it built something";
  EXPECT_EQ(run(fmt::format("{0}/demo --static {0}/none 2>&1", folder_.string())).status, 2);
}

// An image that holds nothing but the file. What podman keeps is in the folder, too.
TEST_F(StaticRoot, RunsInAContainerOfNothingElse) {
  if (run("command -v podman && command -v runc").status != 0) GTEST_SKIP() << "podman or runc is not installed";
  const std::string root = folder_.string();
  const std::string podman = fmt::format(
      "cd {0} && podman --root {0}/store --runroot {0}/run --storage-driver vfs --cgroup-manager cgroupfs ", root);
  const CommandResult import =
      run(fmt::format("tar -C {0} -cf {0}.tar windlass && {1} import -q {0}.tar alone 2>&1", root, podman));
  fs::remove(root + ".tar");
  ASSERT_EQ(import.status, 0) << import.output;
  fs::create_directory(folder_ / "out");
  const std::string in_it =
      podman + fmt::format(
                   "run --rm --runtime runc --privileged --network none --log-driver none --ulimit nofile=1024:1024 "
                   "--ulimit nproc=1024:1024 -v {}/out:/out alone /windlass ",
                   root);
  const CommandResult version = run(in_it + "--version 2>&1");
  EXPECT_EQ(version.status, 0) << version.output;
  EXPECT_TRUE(contains(version.output, "one static file")) << version.output;
  const CommandResult recorded =
      run(in_it + "record -F 4999 -o /out/p.pb.gz -- /windlass rows /windlass 2>&1 > /dev/null");
  EXPECT_EQ(recorded.status, 0) << recorded.output;
  EXPECT_GE(count(folder_ / "out/p.pb.gz").all, 5u) << recorded.output;
  EXPECT_EQ(run(in_it + "report /out/p.pb.gz").status, 0);
  run(podman + "rmi alone");
}

// A program `debuginfod-find` of our own in front of the others: it notes how it is run, and answers.
class StaticDebuginfod : public StaticCommand {
 protected:
  void SetUp() override {
    StaticCommand::SetUp();
    const char* path = std::getenv("PATH");
    path_ = path != nullptr ? path : "/bin:/usr/bin";
    ::setenv("PATH", (folder_.string() + ":" + path_).c_str(), 1);
    ::setenv("DEBUGINFOD_URLS", "http://127.0.0.1:9/", 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    ::unsetenv("DEBUGINFOD_URLS");
    StaticCommand::TearDown();
  }
  void answer(const std::string& line) const {
    write_program(folder_ / "debuginfod-find",
                  fmt::format("#!/bin/sh\necho \"$# $*\" >> {}/asked\n{}\n", folder_.string(), line));
  }
  [[nodiscard]] std::string asked() const { return text_of(folder_ / "asked"); }

  std::string path_;
};

constexpr unsigned char kBuildId[] = {0x00, 0x3b, 0x20, 0x2f, 0xff};  // with characters that a shell would take

TEST_F(StaticDebuginfod, IsAskedByTheDigitsOfABuildId) {
  std::ofstream(folder_ / "found") << "found";
  answer("echo " + (folder_ / "found").string());
  const int fd = symbols::find_by_debuginfod("debuginfo", kBuildId);
  ASSERT_GE(fd, 0);
  char text[16] = {};
  EXPECT_EQ(::read(fd, text, sizeof text), 5);
  EXPECT_STREQ(text, "found");
  ::close(fd);
  EXPECT_EQ(asked(), "2 debuginfo 003b202fff\n");
}

TEST_F(StaticDebuginfod, IsAskedForSourcesByTheirFullPath) {
  std::ofstream(folder_ / "found") << "found";
  answer("echo " + (folder_ / "found").string());
  const auto find = [](const char* path) { return symbols::find_source_by_debuginfod("003b202fff", path); };
  const int fd = find("/a b/$x;y.c");
  EXPECT_GE(fd, 0);
  ::close(fd);
  EXPECT_EQ(find("x.c"), -1);
  EXPECT_EQ(find("--help"), -1);
  EXPECT_EQ(symbols::find_source_by_debuginfod("--help", "/x.c"), -1);
  EXPECT_EQ(asked(), "3 source 003b202fff /a b/$x;y.c\n");
}

TEST_F(StaticDebuginfod, NothingIsFoundWhereItFails) {
  EXPECT_EQ(symbols::find_by_debuginfod("debuginfo", kBuildId), -1) << "there may be no server";
  for (const char* line :
       {"exit 1", "echo relative", "echo /there/is/none", "yes", "kill -9 $$", "echo /etc/passwd; exit 1"}) {
    answer(line);
    EXPECT_EQ(symbols::find_by_debuginfod("debuginfo", kBuildId), -1) << line;
  }
}

TEST_F(StaticDebuginfod, WhatDoesNotAnswerIsEnded) {
  answer("exec sleep 1000");  // longer than this test may take
  EXPECT_EQ(symbols::find_by_debuginfod("debuginfo", kBuildId, 200ms), -1);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "it goes on";
}

TEST_F(StaticDebuginfod, IsNotRunWithoutServers) {
  ::unsetenv("DEBUGINFOD_URLS");
  answer("exit 1");
  EXPECT_EQ(symbols::find_by_debuginfod("debuginfo", kBuildId), -1);
  EXPECT_EQ(asked(), "");
}

TEST_F(StaticDebuginfod, WhatNoServerHasIsAskedForOnce) {
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  fs::copy_file(WINDLASS_REPLAY_TARGET "_stripped", folder_ / "stripped");
  answer("exit 1");
  const CommandResult recording =
      run(fmt::format("{0}/windlass record --duration 1 -o {0}/p.pb.gz -- {0}/stripped 3600 2>&1", folder_.string()));
  ASSERT_EQ(recording.status, 0) << recording.output;
  std::istringstream lines(asked());
  std::map<std::string, int> times;
  for (std::string line; std::getline(lines, line);) ++times[line];
  EXPECT_FALSE(times.empty()) << recording.output;
  for (const auto& [question, count] : times) EXPECT_EQ(count, 1) << question;
}

// The command names a stripped program by what the server has.
TEST_F(StaticDebuginfod, GivesTheCommandItsNames) {
  fs::copy_file(WINDLASS_REPLAY_TARGET "_stripped", folder_ / "stripped");
  answer("[ $1 = debuginfo ] && echo " WINDLASS_REPLAY_TARGET);
  const ChildProgram work({(folder_ / "stripped").string(), "3600"}, "/dev/null", STDOUT_FILENO);
  const std::string walk = fmt::format("{}/windlass walk {} 2>&1", folder_.string(), work.pid());
  const CommandResult named = until_in_main([&] { return run(walk); });
  EXPECT_TRUE(contains(named.output, " main")) << named.output;
  EXPECT_TRUE(contains(asked(), "2 debuginfo ")) << asked();
  const CommandResult unnamed = run("unset DEBUGINFOD_URLS; " + walk);
  EXPECT_FALSE(contains(unnamed.output, " main")) << unnamed.output;
}

}  // namespace
}  // namespace windlass::test
