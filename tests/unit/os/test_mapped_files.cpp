#include "os/mapped_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "os/proc_file.h"
#include "os/process_memory.h"
#include "support/process_reading.h"

namespace windlass::os {
namespace {

std::vector<std::string> paths_of(const std::vector<FileCandidate>& files) {
  std::vector<std::string> paths;
  for (const FileCandidate& file : files) paths.push_back(file.path);
  return paths;
}

TEST(MappedFiles, TheCertainWayFirstThenNames) {
  ProcMap map;
  map.begin = 0x7000;
  map.end = 0x9000;
  map.path = "/lib/a.so";
  map.file.inode = 77;
  const auto files = files_of(10, 9, map);
  EXPECT_EQ(paths_of(files), (std::vector<std::string>{"/proc/10/map_files/7000-9000", "/proc/10/root/lib/a.so",
                                                       "/proc/9/root/lib/a.so", "/lib/a.so"}));
  EXPECT_TRUE(files[0].certain);
  EXPECT_EQ(files[0].inode, 0u);
  for (std::size_t i = 1; i < files.size(); ++i) {
    EXPECT_FALSE(files[i].certain) << files[i].path;
    EXPECT_EQ(files[i].inode, 77u) << files[i].path;
  }
  EXPECT_EQ(files_of(10, 0, map).size(), 3u);
}

TEST(MappedFiles, ADeletedFilesNameIsNotTried) {
  ProcMap map;
  map.begin = 0x7000;
  map.end = 0x9000;
  map.set_path("/lib/a.so (deleted)");
  EXPECT_EQ(paths_of(files_of(10, 9, map)), std::vector<std::string>{"/proc/10/map_files/7000-9000"});
}

TEST(MappedFiles, OnlyRegularFilesAreOpened) {
  const int self = open_regular("/proc/self/exe");
  ASSERT_GE(self, 0);
  EXPECT_NE(::fcntl(self, F_GETFD) & FD_CLOEXEC, 0);
  ::close(self);
  EXPECT_EQ(open_regular("/dev/null"), -1);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(open_regular("/"), -1);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(open_regular("/no/such/file"), -1);
  EXPECT_EQ(errno, ENOENT);
  char folder[] = "/tmp/windlass-fifo-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string fifo = std::string(folder) + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(open_regular(fifo), -1);  // and does not wait for a writer
  ::unlink(fifo.c_str());
  ::rmdir(folder);
}

TEST(MappedFiles, TheVdsoIsAWholeFile) {
  if (::getauxval(AT_SYSINFO_EHDR) == 0) GTEST_SKIP() << "no vdso here (qemu-user)";
  const int fd = open_vdso();
  ASSERT_GE(fd, 0);
  const auto file = MappedFile::from_fd(fd);
  ::close(fd);
  ASSERT_TRUE(file);
  for (const ProcMap& map : parse_proc_maps(read_proc_file("/proc/self/maps"))) {
    if (map.path != "[vdso]") continue;
    EXPECT_LE(file->bytes().size(), map.end - map.begin);
  }
  const auto image = image::ElfImage::parse(file->bytes());
  ASSERT_TRUE(image) << image.error().text();
  EXPECT_FALSE(image->build_id().empty());
  EXPECT_FALSE(image->executable_segments().empty());
  EXPECT_FALSE(image->sections().empty());
}

TEST(ReadMemory, AllOrNothing) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  const int here = 41;
  int there = 0;
  EXPECT_TRUE(read_memory(::getpid(), reinterpret_cast<std::uint64_t>(&here), &there, sizeof there));
  EXPECT_EQ(there, 41);
  EXPECT_FALSE(read_memory(::getpid(), 0, &there, sizeof there));
}

TEST(ProcFile, WhatCannotBeReadIsEmptyAndSaysWhy) {
  EXPECT_FALSE(read_proc_file("/proc/self/maps").empty());
  errno = 0;
  EXPECT_TRUE(read_proc_file("/proc/self/no-such-file").empty());
  EXPECT_EQ(errno, ENOENT);
  errno = 0;
  EXPECT_TRUE(read_proc_file("/proc/self").empty());  // opens, but cannot be read
  EXPECT_EQ(errno, EISDIR);
}

TEST(ProcFile, FieldsOfAStatus) {
  const std::string_view text = "Name:\tTgid:\t9\nTgid:\t42\nNSpid:\t42\t1\nlast:\tone";
  EXPECT_EQ(status_field(text, "Name"), "Tgid:\t9");
  EXPECT_EQ(status_field(text, "Tgid"), "42");
  EXPECT_EQ(status_field(text, "NSpid"), "42\t1");
  EXPECT_EQ(status_field(text, "last"), "one");
  EXPECT_EQ(status_field(text, "gid"), "");
  EXPECT_EQ(status_field("", "x"), "");
}

}  // namespace
}  // namespace windlass::os
