#include "os/proc_maps.h"

#include <gtest/gtest.h>

namespace windlass::os {
namespace {

TEST(ProcMaps, AllThatALineSays) {
  const auto maps = parse_proc_maps(
      "55d0-55e0 r--p 00000000 08:01 42 /bin/x\n"
      "55e0-55f0 r-xp 00001000 08:01 42                 /bin/with space\n"
      "7000-8000 rwxp 00000000 00:00 0 \n"
      "9000-a000 --xp 00002000 00:10 7  /tmp/new\\012line (deleted)\n"
      "garbage\n"
      "b000-a000 r-xp 00000000 00:10 7 /backwards\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]");
  ASSERT_EQ(maps.size(), 5u);
  EXPECT_TRUE(maps[0].readable);
  EXPECT_FALSE(maps[0].executable);
  EXPECT_EQ(maps[1].path, "/bin/with space");
  EXPECT_EQ(maps[1].offset, 0x1000u);
  EXPECT_EQ(maps[1].file, (FileIdentity{.major = 8, .minor = 1, .inode = 42, .build_id = {}}));
  EXPECT_TRUE(maps[1].executable);
  EXPECT_EQ(maps[2].path, "");
  EXPECT_EQ(maps[3].path, "/tmp/new\nline");
  EXPECT_EQ(maps[3].file.major, 0u);
  EXPECT_EQ(maps[3].file.minor, 0x10u);
  EXPECT_TRUE(maps[3].deleted);
  EXPECT_FALSE(maps[3].readable);
  EXPECT_TRUE(maps[3].executable);
  EXPECT_TRUE(maps[3].has_file());
  EXPECT_EQ(maps[4].path, "[vsyscall]");
}

TEST(ProcMaps, AFileIsKnownByDeviceAndInode) {
  const auto maps = parse_proc_maps("55e0-55f0 r-xp 00001000 08:01 42 /bin/x\n");
  ASSERT_EQ(maps.size(), 1u);
  EXPECT_TRUE(maps[0].is_at(0x55e0, {.major = 8, .minor = 1, .inode = 42, .build_id = {}}));
  EXPECT_FALSE(maps[0].is_at(0x55e1, {.major = 8, .minor = 1, .inode = 42, .build_id = {}}));
  EXPECT_FALSE(maps[0].is_at(0x55e0, {.major = 9, .minor = 1, .inode = 42, .build_id = {}}));
  EXPECT_FALSE(maps[0].is_at(0x55e0, {.major = 8, .minor = 2, .inode = 42, .build_id = {}}));
  EXPECT_FALSE(maps[0].is_at(0x55e0, {.major = 8, .minor = 1, .inode = 43, .build_id = {}}));
}

TEST(ProcMaps, PathsThatLeadToNoFile) {
  for (const char* path : {"", "//anon", "[heap]", "[vdso]", "[anon:name]", "anon_inode:[perf_event]", "/dev/zero",
                           "/SYSV00000000 (deleted)"}) {
    ProcMap map;
    map.set_path(path);
    EXPECT_FALSE(map.has_file()) << path;
  }
  ProcMap map;
  map.set_path("/memfd:code (deleted)");  // code may have been loaded from it
  EXPECT_TRUE(map.has_file());
  map.set_path("/device/x");
  EXPECT_TRUE(map.has_file());
  EXPECT_FALSE(map.deleted);
}

}  // namespace
}  // namespace windlass::os
