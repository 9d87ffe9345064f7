// Reads that can be left behind. A file that answers is read as without readers; one that does not costs its patience
// once.
#include "os/readers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "os/mapped_files.h"
#include "os/proc_file.h"
#include "os/process_memory.h"
#include "os/reader_rights.h"
#include "os/silent.h"
#include "support/process_reading.h"
#include "support/silent_mount.h"

namespace windlass::os {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A page that is never there until it is given: whoever reads it waits.
class AbsentPage {
 public:
  AbsentPage() {
    page_ = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fault_ = Descriptor(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
    uffdio_api api{};
    api.api = UFFD_API;
    uffdio_register all{};
    all.range = range();
    all.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (!fault_ || ::ioctl(fault_.get(), UFFDIO_API, &api) != 0 || ::ioctl(fault_.get(), UFFDIO_REGISTER, &all) != 0)
      problem_ = fmt::format("userfaultfd: {}", std::strerror(errno));
  }
  ~AbsentPage() { ::munmap(page_, kSize); }
  AbsentPage(const AbsentPage&) = delete;
  AbsentPage& operator=(const AbsentPage&) = delete;

  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] iovec place() const { return {page_, 8}; }
  void give() const {
    uffdio_zeropage zero{};
    zero.range = range();
    EXPECT_EQ(::ioctl(fault_.get(), UFFDIO_ZEROPAGE, &zero), 0);
  }

 private:
  static constexpr std::size_t kSize = 4096;
  [[nodiscard]] uffdio_range range() const { return {reinterpret_cast<std::uintptr_t>(page_), kSize}; }
  void* page_ = nullptr;
  Descriptor fault_;
  std::string problem_;
};

class ReadersTest : public testing::Test {
 protected:
  // Far more than a loaded machine needs for a call that is answered.
  static constexpr ReaderTimes kTimes{.patience = 1s, .starting = 1s, .arriving = 3s, .hurry = 100ms};

  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / fmt::format("windlass-readers-{}", ::getpid());
    fs::create_directories(folder_ / "mount");
    readers_ = Readers::start(kTimes);
    ASSERT_NE(readers_, nullptr);
  }
  void TearDown() override {
    readers_.reset();
    fs::remove_all(folder_);
  }
  ssize_t read(const iovec& place) {
    std::byte bytes[8];
    return readers_->memory(::getpid(), {&place, 1}, bytes);
  }

  fs::path folder_;
  std::unique_ptr<Readers> readers_;
};

TEST_F(ReadersTest, AFileIsHandedOverWithWhatItIs) {
  const std::string path = folder_ / "a";
  std::ofstream(path) << "content";
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  const OpenedRegular opened = readers_->open_regular(path);
  ASSERT_TRUE(opened.file);
  EXPECT_EQ(opened.status.st_ino, status.st_ino);
  EXPECT_NE(::fcntl(opened.file.get(), F_GETFD) & FD_CLOEXEC, 0);
  char bytes[16] = {};
  EXPECT_EQ(::pread(opened.file.get(), bytes, sizeof bytes, 0), 7);
  EXPECT_STREQ(bytes, "content");
  struct stat again {};
  EXPECT_TRUE(readers_->status(path, again));
  EXPECT_EQ(again.st_size, 7);
}

// A path of a mapping that is another file's by now leads to the first file as long as files are kept.
TEST_F(ReadersTest, FilesOfAProcessThatStandsStillAreOpenedOnce) {
  if (::access("/proc/self/map_files", X_OK) != 0) GTEST_SKIP() << "no map_files";
  const auto file = [&](const char* name, char first) {
    std::ofstream(folder_ / name) << first;
    return Descriptor(::open((folder_ / name).c_str(), O_RDONLY | O_CLOEXEC));
  };
  const Descriptor a = file("a", 'a'), b = file("b", 'b');
  void* const place = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, a.get(), 0);
  const auto begin = reinterpret_cast<std::uintptr_t>(place);
  const std::string path = fmt::format("/proc/{}/map_files/{:x}-{:x}", ::getpid(), begin, begin + 4096);
  const auto first_byte = [&] {
    const OpenedRegular opened = readers_->open_regular(path);
    char byte = '-';
    struct stat status {};
    if (opened.file && ::pread(opened.file.get(), &byte, 1, 0) == 1 && ::fstat(opened.file.get(), &status) == 0) {
      EXPECT_EQ(opened.status.st_ino, status.st_ino);
    }
    return byte;
  };
  if (first_byte() == '-') GTEST_SKIP() << "map_files cannot be opened here";
  readers_->keep_mapped_files_of(::getpid());
  EXPECT_EQ(first_byte(), 'a');
  ASSERT_EQ(::mmap(place, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, b.get(), 0), place);
  EXPECT_EQ(first_byte(), 'a');
  readers_->keep_mapped_files_of(0);
  EXPECT_EQ(first_byte(), 'b');
  readers_->keep_mapped_files_of(1);  // another process's
  EXPECT_EQ(first_byte(), 'b');
  ASSERT_EQ(::mmap(place, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, a.get(), 0), place);
  EXPECT_EQ(first_byte(), 'a');
  ::munmap(place, 4096);
}

// More files than requests that are sent at once, and paths without one among them.
TEST_F(ReadersTest, FilesOfAProcessThatStandsStillAreOpenedTogether) {
  if (::access("/proc/self/map_files", X_OK) != 0) GTEST_SKIP() << "no map_files";
  constexpr std::size_t kFiles = 3 * Readers::kMostTogether;
  std::vector<std::string> paths;
  std::vector<void*> places;
  for (std::size_t i = 0; i < kFiles; ++i) {
    const std::string name = folder_ / fmt::format("file{}", i);
    std::ofstream(name) << static_cast<char>('0' + i);
    const Descriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    places.push_back(::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.get(), 0));
    const auto begin = reinterpret_cast<std::uintptr_t>(places.back());
    paths.push_back(fmt::format("/proc/{}/map_files/{:x}-{:x}", ::getpid(), begin, begin + 4096));
    if (i % 10 == 0) paths.push_back(fmt::format("/proc/{}/map_files/{:x}-{:x}", ::getpid(), i + 1, i + 2));
  }
  if (!readers_->open_regular(paths.front()).file) GTEST_SKIP() << "map_files cannot be opened here";
  readers_->keep_mapped_files_of(::getpid());
  readers_->open_kept(paths);
  readers_->open_kept(paths);
  for (void* const place : places) ::munmap(place, 4096);
  std::string found;
  for (const std::string& path : paths) {
    const OpenedRegular opened = readers_->open_regular(path);
    char byte = '-';
    if (opened.file && ::pread(opened.file.get(), &byte, 1, 0) == 1) found += byte;
  }
  std::string expected;
  for (std::size_t i = 0; i < kFiles; ++i) expected += static_cast<char>('0' + i);
  EXPECT_EQ(found, expected);
  std::ofstream(folder_ / "last") << "last";
  EXPECT_TRUE(readers_->open_regular(folder_ / "last").file);
}

TEST_F(ReadersTest, RefusalsAreTheSystems) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  EXPECT_FALSE(readers_->open_regular(folder_ / "none").file);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(readers_->open_regular("/dev/null").file);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_TRUE(readers_->text(folder_ / "none", 100).empty());
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(read({reinterpret_cast<void*>(8), 8}), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(readers_->left_behind(), 0u);
}

TEST_F(ReadersTest, MemoryAndTextOfAnySize) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  std::string all(3'000'000, 'x');
  for (std::size_t i = 0; i < all.size(); i += 997) all[i] = static_cast<char>('a' + i % 26);
  std::string got(all.size() - 10, '\0');
  const iovec from[] = {{all.data(), 1000}, {all.data() + 1010, all.size() - 1010}};
  ASSERT_EQ(readers_->memory(::getpid(), from, std::as_writable_bytes(std::span(got))),
            static_cast<ssize_t>(got.size()));
  EXPECT_EQ(got.substr(0, 1000), all.substr(0, 1000));
  EXPECT_EQ(got.substr(1000), all.substr(1010));
  std::ofstream(folder_ / "long") << all;
  EXPECT_EQ(readers_->text(folder_ / "long", all.size()), all);
  EXPECT_EQ(readers_->text(folder_ / "long", 16384).size(), 16384u);
}

TEST_F(ReadersTest, MemoryThatDoesNotAnswerCostsItsPatienceOnce) {
  const AbsentPage page;
  if (!page.problem().empty()) GTEST_SKIP() << page.problem();
  const auto begin = Clock::now();
  EXPECT_EQ(read(page.place()), -1);
  EXPECT_EQ(errno, ETIMEDOUT);
  EXPECT_GE(Clock::now() - begin, kTimes.patience);
  EXPECT_EQ(readers_->left_behind(), 1u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(read(page.place()), -1);
  EXPECT_LT(Clock::now() - begin, 10 * kTimes.patience);
  EXPECT_EQ(readers_->left_behind(), 1u);
  EXPECT_EQ(readers_->take_silent(), std::vector<std::string>{fmt::format("/proc/{}/mem", ::getpid())});
  EXPECT_TRUE(readers_->take_silent().empty());
  EXPECT_TRUE(readers_->is_silent(::getpid(), 0));
  EXPECT_FALSE(readers_->is_silent(::getppid(), 0));
  // Another reader serves all else.
  std::ofstream(folder_ / "a") << "content";
  EXPECT_EQ(readers_->text(folder_ / "a", 100), "content");
}

// In one go, as one by one; and behind one that never comes.
TEST_F(ReadersTest, TextsOfAProcessComeTogether) {
  const std::string path = fmt::format("/proc/{}", ::getpid());
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::vector<std::string> names = {"auxv", "no such file", "cmdline", "comm"};
  const std::vector<std::string> texts = readers_->texts(folder.get(), ::getpid(), names, 1'000'000);
  ASSERT_EQ(texts.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(texts[i], readers_->text(fmt::format("{}/{}", path, names[i]), 1'000'000)) << names[i];
  EXPECT_TRUE(texts[1].empty());
  EXPECT_FALSE(texts[3].empty());
  EXPECT_EQ(readers_->left_behind(), 0u);
}

TEST_F(ReadersTest, TextsBehindASilentOneAreReadByAnother) {
  const std::string content = folder_ / "content";
  std::ofstream(content) << "content";
  const test::SilentMount mount(folder_ / "mount", content);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  mount.stop_answering();
  const Descriptor folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::vector<std::string> names = {"content", mount.path().substr(folder_.string().size() + 1), "content"};
  EXPECT_EQ(readers_->texts(folder.get(), 1, names, 100), (std::vector<std::string>{"content", "", "content"}));
  EXPECT_EQ(readers_->left_behind(), 1u);
  mount.answer_again();
}

// The first one is no starter's; others come once it is left behind.
TEST_F(ReadersTest, OneReaderIsReplacedLikeOthers) {
  const auto of_children = [] { return read_proc_file(fmt::format("/proc/self/task/{}/children", ::gettid())); };
  readers_.reset();
  const std::string none = of_children();
  readers_ = Readers::start_one(kTimes);
  ASSERT_NE(readers_, nullptr);
  const std::string one = of_children();
  std::ofstream(folder_ / "a") << "content";
  EXPECT_EQ(readers_->text(folder_ / "a", 100), "content");
  EXPECT_EQ(of_children(), one) << "one process, and no starter";
  EXPECT_NE(one, none);
  const AbsentPage page;
  if (!page.problem().empty()) GTEST_SKIP() << page.problem();
  EXPECT_EQ(read(page.place()), -1);
  EXPECT_EQ(errno, ETIMEDOUT);
  EXPECT_EQ(readers_->left_behind(), 1u);
  EXPECT_EQ(readers_->text(folder_ / "a", 100), "content");
  EXPECT_NE(of_children(), one) << "a starter";
  const auto begin = Clock::now();
  readers_.reset();  // waits for no reader
  EXPECT_LT(Clock::now() - begin, kTimes.patience);
}

TEST_F(ReadersTest, WhatAnswersAfterAllIsAskedAgain) {
  const AbsentPage page;
  if (!page.problem().empty()) GTEST_SKIP() << page.problem();
  EXPECT_EQ(read(page.place()), -1);
  page.give();
  for (int i = 0; i < 500 && read(page.place()) != 8; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(read(page.place()), 8);
  EXPECT_EQ(readers_->left_behind(), 0u);
}

TEST_F(ReadersTest, WhoHasToEndDoesNotWait) {
  const AbsentPage page;
  if (!page.problem().empty()) GTEST_SKIP() << page.problem();
  readers_ = Readers::start({.patience = 100s, .starting = 100s, .arriving = 200s, .hurry = 50ms});
  int stop[2];
  ASSERT_EQ(::pipe2(stop, O_CLOEXEC), 0);
  readers_->end_at(stop[0], 0);
  const auto begin = Clock::now();
  const std::jthread stopper([&] {
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(::write(stop[1], "x", 1), 1);
  });
  EXPECT_EQ(read(page.place()), -1);
  EXPECT_LT(Clock::now() - begin, 50s);
  ::close(stop[0]);
  ::close(stop[1]);
}

TEST_F(ReadersTest, ATimeToEndIsOneToHurry) {
  const AbsentPage page;
  if (!page.problem().empty()) GTEST_SKIP() << page.problem();
  readers_ = Readers::start({.patience = 100s, .starting = 100s, .arriving = 200s, .hurry = 50ms});
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  readers_->end_at(-1, static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + 200'000'000 +
                           static_cast<std::uint64_t>(now.tv_nsec));
  const auto begin = Clock::now();
  EXPECT_EQ(read(page.place()), -1);
  EXPECT_LT(Clock::now() - begin, 50s);
}

// However much does not answer, what answers is read, and the readers that wait are bounded.
TEST_F(ReadersTest, HundredsOfSilentThingsStopNobodyElse) {
  readers_ = Readers::start({.patience = 10ms, .starting = 1s, .arriving = 1s, .hurry = 10ms});
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor empty(ends[0]), writer(ends[1]);  // whoever reads waits
  const auto ask = [&](std::size_t number) {
    errno = 0;
    return readers_->text(empty.get(), static_cast<pid_t>(1 + number), 100);
  };
  constexpr std::size_t kMore = 20;
  for (std::size_t i = 0; i < Readers::kMostLeft + kMore; ++i) {
    EXPECT_EQ(ask(i), "");
    EXPECT_EQ(errno, ETIMEDOUT) << i;
  }
  // The first ones were killed, and are silent all the same.
  for (int i = 0; i < 1000 && readers_->left_behind() > Readers::kMostLeft; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(readers_->left_behind(), Readers::kMostLeft);
  EXPECT_EQ(ask(0), "");
  EXPECT_EQ(errno, ETIMEDOUT);
  EXPECT_LE(readers_->left_behind(), Readers::kMostLeft);
  // A busy machine may be late with one answer, and what was late is silent.
  std::string text;
  for (int i = 0; i < 100 && text.empty(); ++i) {
    const std::string path = folder_ / fmt::format("a{}", i);
    std::ofstream(path) << "content";
    text = readers_->text(path, 100);
  }
  EXPECT_EQ(text, "content");
}

// The value of a line of /proc/PID/status.
std::string status_of_process(pid_t pid, std::string_view name) {
  const std::string text = read_proc_file(fmt::format("/proc/{}/status", pid));
  return std::string(status_field(text, name));
}

std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", pid));
  return {std::istream_iterator<pid_t>(list), {}};
}

TEST_F(ReadersTest, AReaderHasTheRightsOfAReader) {
  EXPECT_EQ(readers_->text("/proc/self/comm", 100), "windlass-reader\n");
  const std::vector<pid_t> starters = children_of(::getpid());
  if (starters.empty()) GTEST_SKIP() << "no list of children";
  const std::vector<pid_t> mine = children_of(starters.back());
  ASSERT_EQ(mine.size(), 1u);
  if (::prctl(PR_GET_SECCOMP) < 0) GTEST_SKIP() << "no seccomp";
  EXPECT_EQ(status_of_process(mine[0], "NoNewPrivs"), "1");
  EXPECT_EQ(status_of_process(mine[0], "Seccomp"), "2");
}

// What is no reader's is an error, not an end.
TEST(ReaderRights, AreToReadAlone) {
  const std::string path = testing::TempDir() + fmt::format("windlass-rights-{}", ::getpid());
  std::ofstream(path) << "content";
  const pid_t child = ::fork();
  if (child == 0) {
    // Not _exit(): in front of what never returns, the address sanitizer asks for the signal stack, which is refused.
    const auto end_with = [](int result) { ::syscall(SYS_exit_group, result); };
    keep_rights_of_reader();
    if (::prctl(PR_GET_SECCOMP) >= 0 || errno == EINVAL) end_with(77);  // not refused
    const auto refused = [](long result) { return result == -1 && errno == EPERM; };
    char bytes[8];
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (::pread(file, bytes, 7, 0) != 7 || ::close(file) != 0) end_with(1);
    if (!refused(::open(path.c_str(), O_WRONLY)) || !refused(::open(path.c_str(), O_RDWR))) end_with(2);
    if (!refused(::open((path + "-new").c_str(), O_RDONLY | O_CREAT, 0600))) end_with(3);
    if (!refused(::socket(AF_INET, SOCK_STREAM, 0)) || !refused(::socket(AF_UNIX, SOCK_STREAM, 0))) end_with(4);
    if (!refused(::kill(::getppid(), 0)) || !refused(::ptrace(PTRACE_SEIZE, ::getppid(), 0, 0))) end_with(5);
    if (!refused(::unlink(path.c_str())) || !refused(::fork())) end_with(6);
    const iovec here{bytes, sizeof bytes};
    if (!refused(::process_vm_writev(::getpid(), &here, 1, &here, 1, 0))) end_with(7);
    if (::process_vm_readv(::getpid(), &here, 1, &here, 1, 0) != sizeof bytes) end_with(8);
    end_with(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  fs::remove(path);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Each name below a mount is another one, and one server.
TEST_F(ReadersTest, AServerThatStopsCostsOneReader) {
  const std::string content = folder_ / "content";
  std::ofstream(content) << "content";
  const test::SilentMount mount(folder_ / "mount", content);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  mount.stop_answering();
  for (int i = 0; i < 20; ++i) {
    const std::string path = fmt::format("{}-{}", mount.path(), i);
    struct stat status {};
    EXPECT_FALSE(readers_->open_regular(path).file);
    EXPECT_EQ(errno, ETIMEDOUT);
    EXPECT_FALSE(readers_->status(path, status));
    EXPECT_EQ(errno, ETIMEDOUT);
  }
  EXPECT_EQ(readers_->left_behind(), 1u);
  ASSERT_EQ(readers_->take_silent().size(), 1u);
  mount.answer_again();
}

// Whoever reads from a program waits for its end, not for its readers'.
TEST_F(ReadersTest, TheyHoldNothingOfTheProgramsOpen) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto readers = Readers::start(kTimes);
  EXPECT_TRUE(readers->text(folder_ / "none", 100).empty());  // there is a reader now
  ::close(ends[1]);
  pollfd end{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 20'000), 1);
  EXPECT_NE(end.revents & POLLHUP, 0);
  ::close(ends[0]);
}

TEST_F(ReadersTest, AFileOfAServerIsCopiedAndSilentOnceThatStops) {
  const std::string content = folder_ / "content";
  std::ofstream(content) << std::string(300'000, 'x') << "end";
  const test::SilentMount mount(folder_ / "mount", content);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  const OpenedRegular opened = readers_->open_regular(mount.path());
  ASSERT_TRUE(opened.file) << std::strerror(errno);
  EXPECT_EQ(opened.status.st_ino, 2u);
  mount.stop_answering();
  char end[8] = {};
  EXPECT_EQ(::pread(opened.file.get(), end, sizeof end, 300'000), 3);
  EXPECT_STREQ(end, "end");

  const dev_t device = opened.status.st_dev;
  const auto begin = Clock::now();
  EXPECT_FALSE(readers_->open_regular(mount.path(), device, true).file);
  EXPECT_EQ(errno, ETIMEDOUT);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(readers_->open_regular(fmt::format("/proc/{}/none", i), device).file);
  EXPECT_LT(Clock::now() - begin, 10 * kTimes.patience);
  EXPECT_EQ(readers_->left_behind(), 1u);
  EXPECT_TRUE(readers_->is_silent(::getpid(), device));
  EXPECT_FALSE(readers_->is_silent(::getpid(), 0));
  // What is on another device is not its matter.
  EXPECT_TRUE(readers_->open_regular(content, 0, true).file);

  mount.answer_again();
  OpenedRegular again;
  for (int i = 0; i < 500 && !again.file; ++i) {
    std::this_thread::sleep_for(10ms);
    again = readers_->open_regular(mount.path(), device, true);
  }
  EXPECT_TRUE(again.file);
  EXPECT_FALSE(readers_->is_silent(::getpid(), device));
}

TEST(ReaderSubjects, ArePartsOfAProcess) {
  EXPECT_EQ(subject_of("/proc/12/maps"), "/proc/12/maps");
  EXPECT_EQ(subject_of("/proc/12/root/lib/a.so"), "/proc/12/root");
  EXPECT_EQ(subject_of("/proc/12/map_files/1-2"), "/proc/12/map_files");
  EXPECT_EQ(subject_of("/lib/a.so"), "/lib/a.so");
  EXPECT_TRUE(is_of_other("/proc/1/maps"));
  EXPECT_FALSE(is_of_other("/proc/self/maps"));
  EXPECT_FALSE(is_of_other(fmt::format("/proc/{}/maps", ::getpid())));
  EXPECT_FALSE(is_of_other("/proc/modules"));
  EXPECT_TRUE(is_own("/proc/self/fd/3"));
}

TEST(SilentInWords, NamesProcessesAndHidesWhatIsNotPrintable) {
  EXPECT_EQ(describe_silent("/proc/12/mem"), "memory of process 12");
  EXPECT_EQ(describe_silent("/proc/12/maps"), "the list of mappings of process 12");
  EXPECT_EQ(describe_silent("/proc/12/root"), "a file of process 12");
  EXPECT_EQ(describe_silent("/tmp/a\x1b[2J"), "the file /tmp/a?[2J");
  EXPECT_EQ(describe_silent("device 0:987654"), "the file system of device 0:987654");
}

TEST(ServerOfAPath, IsThatOfTheInnermostMount) {
  const ServerMounts mounts(
      "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "22 21 0:50 / /mnt rw,nosuid shared:5 - fuse.sshfs host: rw\n"
      "23 22 8:2 / /mnt/disk rw - xfs /dev/sdb1 rw\n"
      "24 21 0:51 / /with\\040blank rw - nfs4 host:/ rw\n"
      "25 21 0:52 / /layers rw - overlay overlay rw\n"
      "26 21 0:53 / /twice rw - nfs4 host:/ rw\n"
      "27 26 0:54 / /twice rw - nfs4 host:/ rw\n");
  EXPECT_EQ(mounts.server_of("/lib/a.so"), "");
  EXPECT_EQ(mounts.server_of("/mnt/a.so"), "device 0:50");
  EXPECT_EQ(mounts.server_of("/mnt"), "");
  EXPECT_EQ(mounts.server_of("/mntx/a.so"), "");
  EXPECT_EQ(mounts.server_of("/mnt/disk/a.so"), "");
  EXPECT_EQ(mounts.server_of("/with blank/a.so"), "device 0:51");
  EXPECT_EQ(mounts.server_of("/layers/a.so"), "");
  EXPECT_EQ(mounts.server_of("/twice/a.so"), "device 0:54");
  EXPECT_EQ(ServerMounts("garbage\n - \n").server_of("/a"), "");
  EXPECT_EQ(mounts.server_of("mnt/a.so"), "");
  EXPECT_EQ(mounts.server_of(""), "");
}

// The functions of the folder give the same by readers as without.
TEST(ReadersInUse, AreAskedByTheFunctionsOfTheFolder) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  volatile int here = 7;  // before the fork
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  const std::string maps = fmt::format("/proc/{}/maps", child);
  const std::string before = read_proc_file(maps);
  int there = 0;
  use_readers(Readers::start({.patience = 1s}));
  EXPECT_EQ(read_proc_file(maps), before);
  EXPECT_TRUE(read_memory(child, reinterpret_cast<std::uintptr_t>(&here), &there, sizeof there));
  EXPECT_EQ(there, 7);
  there = 0;
  EXPECT_TRUE(MemoryFile(child).read(reinterpret_cast<std::uintptr_t>(&here), &there, sizeof there));
  EXPECT_EQ(there, 7);
  EXPECT_GE(Descriptor(open_regular(fmt::format("/proc/{}/exe", child))).get(), 0);
  use_readers(nullptr);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// Memory that was read before an event does not serve questions about it; what was read since then does.
TEST(ReadersInUse, ReadMemoryOnceForAllEventsBeforeIt) {
  constexpr std::uint64_t kAnHour = 3'600'000'000'000;
  auto* const shared = static_cast<std::atomic<int>*>(
      ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(shared), MAP_FAILED);
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  use_readers(Readers::start({.patience = 1s}));
  {
    const MemoryFile memory(child, kAnHour);
    const auto read = [&] {
      int there = -1;
      EXPECT_TRUE(memory.read(reinterpret_cast<std::uintptr_t>(shared), &there, sizeof there));
      return there;
    };
    const std::uint64_t before = monotonic_ns();
    *shared = 1;
    EXPECT_EQ(read(), 1);
    *shared = 2;
    memory.set_time(before);
    EXPECT_EQ(read(), 1) << "it was read behind that event";
    memory.set_time(monotonic_ns());
    EXPECT_EQ(read(), 2) << "the process has gone on since it was read";
    *shared = 3;
    memory.set_time(before);
    EXPECT_EQ(read(), 2) << "an older event is served by it, too";
  }
  use_readers(nullptr);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::munmap(shared, sizeof *shared);
}

}  // namespace
}  // namespace windlass::os
