// A file server that has stopped, while a program of it runs on from the page cache: it stops no recording and no walk.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/privilege.h"
#include "support/silent_mount.h"

// What GDB looks for in a program that makes code. Here its list begins where the server has the bytes.
struct JitEntry {
  JitEntry *next, *previous;
  const char* file;
  std::uint64_t size;
};
struct JitDescriptor {
  std::uint32_t version, action;
  JitEntry *relevant, *first;
};
extern "C" {
[[gnu::visibility("default"), gnu::used]] JitDescriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};
[[gnu::visibility("default"), gnu::used, gnu::noinline]] void __jit_debug_register_code() { asm volatile(""); }
}

namespace windlass::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Long enough for a machine that compiles beside it; who is blocked is so for ever.
constexpr auto kLongest = 300s;

// Until a process has used some CPU time, and so is past its start.
void await_work(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  const auto works = [&] {
    return ::clock_getcpuclockid(pid, &clock) == 0 && ::clock_gettime(clock, &used) == 0 &&
           (used.tv_sec > 0 || used.tv_nsec > 100'000'000);
  };
  for (const auto end = Clock::now() + kLongest; !works() && Clock::now() < end;) std::this_thread::sleep_for(10ms);
}

class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const fs::path& output = "/dev/null") {
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(file, 1);
    ::dup2(file, 2);
    ::execv(argv[0], argv.data());
    _exit(126);
  }
  // A blocked program is left alone: it ends when the thing that blocks it ends.
  ~Program() {
    ::kill(pid_, SIGKILL);
    (void)ended_within(1s);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  void interrupt() const { ::kill(pid_, SIGINT); }
  bool ended_within(std::chrono::milliseconds time) {
    for (const auto end = Clock::now() + time; !ended_ && Clock::now() < end; std::this_thread::sleep_for(10ms))
      ended_ = ::waitpid(pid_, nullptr, WNOHANG) == pid_;
    return ended_;
  }

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
};

// A process whose list of generated code begins in a page of the file that nobody has read yet.
[[noreturn]] void spin_with_list_in(const std::string& path, std::size_t offset) {
  constexpr std::size_t kPage = 4096;
  const int file = ::open(path.c_str(), O_RDONLY);
  void* page = ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, file, static_cast<off_t>(offset));
  void* code = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (file < 0 || page == MAP_FAILED || code == MAP_FAILED) _exit(1);
  constexpr unsigned char kReturn = 0xc3;
  std::memcpy(code, &kReturn, sizeof kReturn);
  __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = static_cast<JitEntry*>(page);
  for (;;) reinterpret_cast<void (*)()>(code)();
}

class SilentServer : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    folder_ = fs::path(testing::TempDir()) / fmt::format("windlass-silent-{}", ::getpid());
    fs::create_directories(folder_ / "mount");
    mount_ = std::make_unique<SilentMount>(folder_ / "mount", fs::canonical("/bin/sh"));
    if (!mount_->problem().empty()) GTEST_SKIP() << mount_->problem();
    on_server_ = std::make_unique<Program>(spin(mount_->path()));
    elsewhere_ = std::make_unique<Program>(spin(fs::canonical("/bin/sh")));
    for (const Program* program : {on_server_.get(), elsewhere_.get()}) await_work(program->pid());
    mount_->stop_answering();
  }
  void TearDown() override {
    mount_.reset();
    on_server_.reset();
    elsewhere_.reset();
    fs::remove_all(folder_);
  }
  static std::vector<std::string> spin(const std::string& shell) { return {shell, "-c", "while :; do :; done"}; }
  [[nodiscard]] fs::path log() const { return folder_ / "log"; }
  [[nodiscard]] std::string said() const {
    std::ifstream file(log());
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  [[nodiscard]] std::vector<std::string> record(const std::vector<std::string>& rest) const {
    std::vector<std::string> all{WINDLASS_COMMAND, "record", "-a", "-F", "997", "-o", folder_ / "p.pb.gz"};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

  fs::path folder_;
  std::unique_ptr<SilentMount> mount_;
  std::unique_ptr<Program> on_server_, elsewhere_;
};

TEST_F(SilentServer, TheRestOfTheMachineIsRecordedAsAlways) {
  Program recorder(record({"--duration", "2"}), log());
  ASSERT_TRUE(recorder.ended_within(kLongest)) << said();
  const auto profile = exporter::read_pprof_file(folder_ / "p.pb.gz");
  ASSERT_TRUE(profile) << said();
  std::uint64_t of_server = 0, of_other = 0, whole = 0;
  for (const profile::Sample& sample : profile->samples) {
    const bool other = sample.pid == static_cast<std::uint32_t>(elsewhere_->pid());
    of_server += sample.pid == static_cast<std::uint32_t>(on_server_->pid()) ? sample.count : 0;
    of_other += other ? sample.count : 0;
    whole += other && sample.end == WL_END_COMPLETE ? sample.count : 0;
  }
  EXPECT_GT(of_server, 0u) << said();
  EXPECT_GT(of_other, 0u) << said();
  EXPECT_GE(static_cast<double>(whole), 0.9 * static_cast<double>(of_other)) << said();
  EXPECT_NE(said().find("does not answer"), std::string::npos) << said();
}

TEST_F(SilentServer, AnInterruptEndsTheRecording) {
  Program recorder(record({}), log());
  EXPECT_FALSE(recorder.ended_within(2s)) << said();
  recorder.interrupt();
  EXPECT_TRUE(recorder.ended_within(kLongest)) << said();
}

#if defined(__x86_64__)
TEST_F(SilentServer, MemoryThatItBacksStopsNoRecording) {
  constexpr std::size_t kSize = 4 << 20;
  mount_->answer_again();
  fs::create_directories(folder_ / "other");
  std::ofstream(folder_ / "large") << std::string(kSize, 'x');
  const SilentMount other(folder_ / "other", folder_ / "large");
  ASSERT_EQ(other.problem(), "");
  const pid_t maker = ::fork();
  if (maker == 0) spin_with_list_in(other.path(), kSize / 2);
  await_work(maker);
  other.stop_answering();
  const std::string wanted = fmt::format("memory of process {} does not answer", maker);
  // On a busy machine the recorder may not come to look there in two seconds.
  for (const char* seconds : {"2", "10", "60"}) {
    Program recorder(record({"--duration", seconds}), log());
    EXPECT_TRUE(recorder.ended_within(kLongest)) << said();
    if (said().find(wanted) != std::string::npos) break;
  }
  EXPECT_NE(said().find(wanted), std::string::npos) << said();
  other.answer_again();
  ::kill(maker, SIGKILL);
  EXPECT_EQ(::waitpid(maker, nullptr, 0), maker);
}
#endif

TEST_F(SilentServer, AWalkOfTheProgramEnds) {
  Program walk({WINDLASS_COMMAND, "walk", fmt::format("{}", on_server_->pid())}, log());
  EXPECT_TRUE(walk.ended_within(kLongest)) << said();
  EXPECT_NE(said().find("does not answer"), std::string::npos) << said();
}

}  // namespace
}  // namespace windlass::test
