// Where allocations can be seen in a file.
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

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

// A probe without the arguments that are meant is another one. The file is this one, with the argument text of its
// notes changed in place.
TEST(AllocationProbes, OfOtherArgumentsAreNone) {
  pass_probes(this);
  std::ifstream in("/proc/self/exe", std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const std::string path = testing::TempDir() + "/other_arguments_" + std::to_string(::getpid());
  // Calls change(text, size) for the arguments of each probe of a name.
  const auto with = [&](std::string_view name, auto&& change) {
    std::string file = whole;
    const std::string key = std::string("otel_memory") + '\0' + std::string(name) + '\0';
    for (std::size_t at = file.find(key); at != std::string::npos; at = file.find(key, at + 1))
      if (std::string_view(file).substr(at + key.size()).starts_with("8@")) change(file.data() + at + key.size());
    std::ofstream(path, std::ios::binary) << file;
    AllocationProbes found;
    const bool samples = profiler::add_sampler_probes(path, 7, found);
    EXPECT_EQ(samples, !found.probes.empty());
    std::set<unsigned> kinds;
    for (const AllocationProbe& probe : found.probes) kinds.insert(probe.place.kind);
    return kinds;
  };
  using Kinds = std::set<unsigned>;
  const Kinds both{WL_ALLOCATION_SAMPLE, WL_ALLOCATION_FREE};
  EXPECT_EQ(with("alloc", [](char*) {}), both);
  EXPECT_EQ(with("alloc", [](char* text) { *std::strrchr(text, ' ') = '\0'; }), Kinds{}) << "two arguments";
  const auto write = [](std::string_view text) {
    return [text](char* to) {
      ASSERT_GE(std::strlen(to), text.size());
      std::memset(to, 0, std::strlen(to));
      std::ranges::copy(text, to);
    };
  };
  EXPECT_EQ(with("alloc", write("8@$1 8@$2 8@$3")), both);
  EXPECT_EQ(with("alloc", write("8@$1 8@$2 8@$3 8@$4")), Kinds{}) << "four arguments";
  for (const char* text : {"8@%? 8@$2 8@$3", "8@$1 8@%? 8@$3", "8@$1 8@$2 8@%?"})
    EXPECT_EQ(with("alloc", write(text)), Kinds{}) << text;
  EXPECT_EQ(with("free", write("8@%?")), Kinds{WL_ALLOCATION_SAMPLE});
  EXPECT_EQ(with("free", write("8@$")), Kinds{WL_ALLOCATION_SAMPLE});
  std::filesystem::remove(path);
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
