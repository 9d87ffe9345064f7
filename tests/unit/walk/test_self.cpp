#include <execinfo.h>
#include <gtest/gtest.h>

#include <vector>

#include "windlass/backtrace.h"

namespace windlass {
namespace {

// The frames above this function, as glibc sees them.
[[gnu::noinline]] void expect_like_glibc() {
  std::uint64_t ours[512];
  void* theirs[512];
  const std::size_t depth = backtrace(ours, 512);
  const int peer_depth = ::backtrace(theirs, 512);
  ASSERT_EQ(depth, static_cast<std::size_t>(peer_depth));
  for (std::size_t i = 1; i < depth; ++i) EXPECT_EQ(ours[i], reinterpret_cast<std::uint64_t>(theirs[i])) << i;
}

TEST(Self, WalksLikeGlibc) { expect_like_glibc(); }

}  // namespace
}  // namespace windlass
