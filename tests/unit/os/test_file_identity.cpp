#include "os/file_identity.h"

#include <gtest/gtest.h>

namespace windlass::os {
namespace {

TEST(FileIdentity, TheBuildIdDecidesBeforeTheInode) {
  const FileIdentity both{.inode = 7, .build_id = "aabb"};
  EXPECT_EQ(compare(both, "aabb", 8), Sameness::kSame);  // overlayfs shows another inode
  EXPECT_EQ(compare(both, "aabc", 7), Sameness::kOther);
  EXPECT_EQ(compare(both, "", 7), Sameness::kOther);  // written over in place
}

TEST(FileIdentity, WithoutABuildIdTheInode) {
  const FileIdentity inode{.major = 8, .minor = 1, .inode = 7, .build_id = {}};
  EXPECT_EQ(compare(inode, "aabb", 7), Sameness::kSame);
  EXPECT_EQ(compare(inode, "aabb", 8), Sameness::kOther);
  EXPECT_EQ(compare(inode, "", 0), Sameness::kOther);  // it cannot be asked for
}

TEST(FileIdentity, NothingKnownIsNeither) {
  EXPECT_EQ(compare({}, "aabb", 7), Sameness::kUnknown);
  EXPECT_EQ(compare({}, "", 0), Sameness::kUnknown);
}

TEST(FileIdentity, BuildIdAsAGuid) {
  const std::string file = "00112233445566778899aabbccddeeff01020304";
  EXPECT_TRUE(is_same_build_id(file, file));
  EXPECT_TRUE(is_same_build_id(file, "33221100554477668899aabbccddeeff"));
  EXPECT_TRUE(is_same_build_id(file, "00112233445566778899aabbccddeeff"));
  EXPECT_FALSE(is_same_build_id(file, "33221100554477668899aabbccddeefe"));
  EXPECT_FALSE(is_same_build_id(file, "0011223344556677"));  // a beginning is not enough
  EXPECT_FALSE(is_same_build_id("0011", "00112233445566778899aabbccddeeff"));
}

}  // namespace
}  // namespace windlass::os
