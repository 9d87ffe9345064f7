// The shared unwinder (bpf/windlass_step.h) as user code.
#include <gtest/gtest.h>

#include "profile/arena.h"
#include "windlass_user_env.h"

#include "windlass_step.h"

namespace windlass::profile {
namespace {

TEST(Arena, MergesWhatIsFreed) {
  auto made = Arena::create();
  ASSERT_TRUE(made.has_value());
  Arena& arena = **made;
  const auto a = arena.allocate(100), b = arena.allocate(200), c = arena.allocate(300);
  ASSERT_TRUE(a && b && c);
  arena.free(*a, 100);
  arena.free(*c, 300);
  arena.free(*b, 200);
  EXPECT_EQ(arena.bytes_used(), 0U);
  EXPECT_TRUE(arena.allocate(WL_CHUNK_SIZE - 8).has_value());
  EXPECT_EQ(arena.chunks(), 1U);
  EXPECT_FALSE(arena.allocate(WL_CHUNK_SIZE).has_value());
}

}  // namespace
}  // namespace windlass::profile
