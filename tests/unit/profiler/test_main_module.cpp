#include "profiler/processes/main_module.h"

#include <gtest/gtest.h>

namespace windlass::profiler {
namespace {

using profile::Profile;

// Threads that begin in libc, and a main thread that begins in the program.
Profile two_threads() {
  Profile p;
  for (const char* path : {"[kernel]", "/lib/libc.so.6", "/bin/program"}) p.modules.push_back({.path = path});
  p.modules[0].is_kernel = true;
  for (std::uint32_t module = 0; module < 3; ++module)
    p.locations.push_back({.module = module, .address = 16 * module});
  p.samples.push_back({.locations = {0, 1}, .count = 100, .pid = 7, .tid = 8});
  p.samples.push_back({.locations = {0, 1, 2}, .count = 3, .pid = 7, .tid = 7});
  p.samples.push_back({.locations = {1}, .count = 50, .pid = 7, .tid = 7, .end = WL_END_KERNEL_ONLY});
  return p;
}

TEST(MainModule, TheOneThatTheProcessRuns) {
  Profile p = two_threads();
  put_program_first(p, "/lib/libc.so.6");
  EXPECT_EQ(p.modules[0].path, "/lib/libc.so.6");
  EXPECT_EQ(p.locations[0].module, 1u);
  EXPECT_EQ(p.locations[1].module, 0u);
  EXPECT_EQ(p.locations[2].module, 2u);
}

TEST(MainModule, ElseWhereMainThreadsBegin) {
  for (const char* program : {"", "/no/such/program"}) {
    Profile p = two_threads();
    put_program_first(p, program);
    ASSERT_EQ(p.modules.size(), 3u);
    EXPECT_EQ(p.modules[0].path, "/bin/program");
    const char* of_location[] = {"[kernel]", "/lib/libc.so.6", "/bin/program"};
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(p.modules[p.locations[i].module].path, of_location[i]);
  }
}

TEST(MainModule, NobodyKnows) {
  Profile p = two_threads();
  for (profile::Sample& sample : p.samples) sample.tid = 9;
  put_program_first(p, "");
  EXPECT_EQ(p.modules[0].path, "[kernel]");
  Profile empty;
  put_program_first(empty, "x");
  EXPECT_TRUE(empty.modules.empty());
}

}  // namespace
}  // namespace windlass::profiler
