#include "os/living_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "os/mapped_files.h"
#include "os/perf_map.h"
#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "os/process_memory.h"
#include "support/ended_main_thread.h"
#include "support/process_reading.h"

namespace windlass::os {
namespace {

const char kWord[] = "the same in parent and child";

class LivingThread : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << "SKIPPED: " << reason;
    ASSERT_TRUE(child_.ready());
    number_ = std::to_string(child_.pid());
  }
  [[nodiscard]] std::vector<ProcMap> maps() const {
    const Descriptor folder(::open(("/proc/" + number_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return parse_proc_maps(read_proc_file(open_proc_file(child_.pid(), folder.get(), "maps").get()));
  }

  test::EndedMainThread child_{[](void*) -> void* {
    for (;;) ::pause();
  }};
  std::string number_;
};

TEST_F(LivingThread, IsTheOneThatIsLeft) {
  EXPECT_EQ(living_thread(child_.pid()), child_.thread());
  EXPECT_EQ(living_thread(::getpid()), ::getpid());
}

TEST_F(LivingThread, NoneIsTheProcessItself) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT), 0);
  errno = 77;
  EXPECT_EQ(living_thread(ended), ended);  // a zombie
  EXPECT_EQ(errno, 77);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  EXPECT_EQ(living_thread(ended), ended);  // gone
}

TEST_F(LivingThread, MemoryIsRead) {
  ASSERT_TRUE(read_proc_file("/proc/" + number_ + "/maps").empty());  // what this is about
  char word[sizeof kWord] = {};
  const auto address = reinterpret_cast<std::uint64_t>(kWord);
  EXPECT_TRUE(read_memory(child_.pid(), address, word, sizeof word));
  EXPECT_STREQ(word, kWord);
  char again[sizeof kWord] = {};
  EXPECT_TRUE(MemoryFile(child_.pid()).read(address, again, sizeof again));
  EXPECT_STREQ(again, kWord);
}

TEST_F(LivingThread, MappingsAndTheirFiles) {
  const auto all = maps();
  const auto at = reinterpret_cast<std::uint64_t>(kWord);
  const auto own = std::ranges::find_if(all, [&](const ProcMap& map) { return map.begin <= at && at < map.end; });
  ASSERT_NE(own, all.end());
  const Descriptor file = open_mapped(child_.pid(), 0, *own);
  ASSERT_TRUE(file);
  struct stat status {};
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  EXPECT_EQ(status.st_ino, own->file.inode);
  // Below its own root, not by a path that may be another one there.
  const Descriptor below(open_regular(files_of(child_.pid(), 0, *own)[1].path));
  EXPECT_TRUE(below);
  EXPECT_EQ(::access(perf_map_path(child_.pid()).substr(0, perf_map_path(child_.pid()).find("/tmp/")).c_str(), F_OK),
            0);
}

}  // namespace
}  // namespace windlass::os
