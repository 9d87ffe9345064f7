#include "profiler/processes/perf_map.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

namespace windlass::profiler {
namespace {

class PerfMapTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "perf-map-" + std::to_string(::getpid());
    write("");
    ASSERT_TRUE(map_.open(path_, own_process()));
  }
  static std::uint32_t own_process() { return static_cast<std::uint32_t>(::getpid()); }
  void TearDown() override { std::remove(path_.c_str()); }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::app) << text; }
  [[nodiscard]] std::string at(std::uint64_t address, std::uint64_t time) const {
    const auto found = map_.find(address, time);
    return found ? std::string(found->name) : std::string();
  }

  std::string path_;
  PerfMap map_;
};

// Process numbers come again, and maps stay in /tmp.
TEST_F(PerfMapTest, AMapOfAnEarlierProcessIsNotTaken) {
  const auto written = [this](std::time_t time) {
    const timespec times[] = {{time, 0}, {time, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
    return path_;
  };
  PerfMap map;
  const std::time_t now = std::time(nullptr);
  EXPECT_FALSE(map.open(written(now - 365 * 86400L), own_process()));
  EXPECT_TRUE(map.open(written(now + 1), own_process()));
  EXPECT_TRUE(map.open(written(now - 365 * 86400L), 0)) << "of a process that is gone, nobody knows when it began";
  // pid 1 began with the machine
  EXPECT_TRUE(map.open(written(now), 1));
}

TEST_F(PerfMapTest, ALineCountsFromWhenItTurnedUp) {
  write("1000 100 one\n");
  EXPECT_FALSE(map_.read(10));
  EXPECT_FALSE(map_.read(20));
  write("1000 80 two\n");
  EXPECT_TRUE(map_.read(30)) << "the same address, another name";
  EXPECT_EQ(at(0x1000, 15), "one");
  EXPECT_EQ(at(0x1000, 25), "two") << "it came between 20 and 30";
  EXPECT_EQ(at(0x107f, 25), "two");
  EXPECT_EQ(at(0x1080, 25), "one") << "behind it";
  EXPECT_EQ(at(0x1100, 25), "");
  EXPECT_EQ(map_.find(0x1080, 25)->begin, 0x1000u);
  std::remove(path_.c_str());
  EXPECT_FALSE(map_.read(40));
  EXPECT_EQ(at(0x1000, 15), "one") << "the file is gone";
}

// What ran before its line was seen has the first name that comes.
TEST_F(PerfMapTest, AnEarlierSampleHasTheFirstName) {
  EXPECT_FALSE(map_.read(10));
  write("2000 10 first\n");
  EXPECT_FALSE(map_.read(20));
  write("2000 10 second\n");
  EXPECT_TRUE(map_.read(30));
  EXPECT_EQ(at(0x2005, 5), "first");
  EXPECT_EQ(at(0x2005, 100), "second");
}

TEST_F(PerfMapTest, LinesComeInPieces) {
  write("3000 10 na");
  EXPECT_FALSE(map_.read(10));
  EXPECT_EQ(at(0x3000, 10), "");
  write("me of it\n0x4000 0x10\tsecond\nnonsense\n 5000 0 empty\nffffffffffffffff 2 beyond\n");
  EXPECT_FALSE(map_.read(20));
  EXPECT_EQ(at(0x300f, 20), "name of it");
  EXPECT_EQ(at(0x4000, 20), "second");
  EXPECT_EQ(at(0x5000, 20), "");
}

TEST_F(PerfMapTest, FunctionsOfAllSizes) {
  write("10000000 100000000 heap\n10000ff0 20 across\n20000000 4000 pages\n");
  EXPECT_TRUE(map_.read(10)) << "some within another";
  EXPECT_EQ(at(0x1'0000'0000, 10), "heap");
  EXPECT_EQ(at(0x10000ff0, 10), "across");
  EXPECT_EQ(at(0x1000100f, 10), "across");
  EXPECT_EQ(at(0x10001010, 10), "heap");
  EXPECT_EQ(at(0x20003fff, 10), "pages");
}

TEST_F(PerfMapTest, AFileThatWasBegunAnewIsReadAnew) {
  write("1000 100 a_long_name_of_the_program_before\n");
  EXPECT_FALSE(map_.read(10));
  std::ofstream(path_, std::ios::trunc) << "1000 100 b\n";
  EXPECT_TRUE(map_.read(20));
  EXPECT_EQ(at(0x1000, 20), "b");
}

}  // namespace
}  // namespace windlass::profiler
