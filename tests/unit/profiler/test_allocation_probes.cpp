// Where allocations can be seen in a file.
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <set>
#include <string>

#include "alloc/probes.h"
#include "profiler/kernel/allocation_probes.h"

extern "C" {
[[gnu::section(".probes")]] constinit volatile std::uint16_t otel_memory_alloc_semaphore = 0;
[[gnu::section(".probes")]] constinit volatile std::uint16_t otel_memory_free_semaphore = 0;
}

namespace windlass::test {
namespace {

using profiler::AllocationProbe;
using profiler::AllocationProbes;

std::string file_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

[[gnu::noinline]] void pass_probes(const void* block) {
  alloc::tell_allocated(block, 1, 2);
  alloc::tell_freed(block);
}

TEST(AllocationProbes, OfASamplingAllocator) {
  pass_probes(this);
  AllocationProbes found;
  ASSERT_TRUE(profiler::add_sampler_probes("/proc/self/exe", 7, found));
  EXPECT_TRUE(found.follows_blocks());
  std::set<unsigned> kinds;
  for (const AllocationProbe& probe : found.probes) {
    kinds.insert(probe.place.kind);
    EXPECT_EQ(probe.tgid, 7u);
    EXPECT_NE(probe.offset, 0u);
    EXPECT_NE(probe.semaphore, 0u);
    EXPECT_NE(probe.place.block.kind, WL_OPERAND_NONE);
    EXPECT_EQ(probe.place.weight.kind != WL_OPERAND_NONE, probe.place.kind == WL_ALLOCATION_SAMPLE);
  }
  EXPECT_EQ(kinds, (std::set<unsigned>{WL_ALLOCATION_SAMPLE, WL_ALLOCATION_FREE}));
}

// memalign() and aligned_alloc() may be one function. Each place has one probe.
TEST(AllocationProbes, OfTheFunctionsOfLibc) {
  AllocationProbes found;
  ASSERT_TRUE(profiler::add_function_probes(file_of(reinterpret_cast<const void*>(&gnu_get_libc_version)), 8, found));
  EXPECT_FALSE(found.follows_blocks());
  EXPECT_GE(found.probes.size(), 7u);
  EXPECT_EQ(found.functions.size(), found.probes.size());
  std::set<std::uint64_t> offsets;
  for (const AllocationProbe& probe : found.probes) {
    EXPECT_TRUE(offsets.insert(probe.offset).second);
    EXPECT_EQ(probe.place.kind, WL_ALLOCATION_CALL);
    EXPECT_EQ(probe.place.ranges, found.functions.size());
    EXPECT_EQ(probe.place.passes_null, probe.place.reallocates);
  }
  EXPECT_EQ(std::ranges::count(found.probes, 1, [](const AllocationProbe& probe) { return probe.place.reallocates; }),
            1);
}

// Its operators call malloc(), which is libc's.
TEST(AllocationProbes, OfAFileWithoutMallocAreNone) {
  AllocationProbes found;
  const auto* const standard_library = reinterpret_cast<const void*>(static_cast<void (*)()>(&std::terminate));
  EXPECT_FALSE(profiler::add_function_probes(file_of(standard_library), 9, found));
  EXPECT_FALSE(profiler::add_sampler_probes("/dev/null", 9, found));
  EXPECT_TRUE(found.probes.empty());
}

}  // namespace
}  // namespace windlass::test
