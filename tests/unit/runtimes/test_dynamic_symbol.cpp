// Symbols of what is loaded in this process, as the dynamic linker finds them.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <vector>

#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "os/process_memory.h"
#include "runtimes/dynamic_symbol.h"

namespace windlass::runtimes {
namespace {

std::uint64_t base_of(const void* inside) {
  Dl_info info{};
  return ::dladdr(inside, &info) != 0 ? reinterpret_cast<std::uint64_t>(info.dli_fbase) : 0;
}

TEST(DynamicSymbol, IsWhereTheLinkerFindsIt) {
  const os::MemoryFile memory(::getpid());
  const void* environment = ::dlsym(RTLD_DEFAULT, "_r_debug");
  ASSERT_NE(environment, nullptr);
  const auto found = find_dynamic_symbol(memory, base_of(environment), "_r_debug");
  ASSERT_TRUE(found.has_value()) << found.error().text();
  EXPECT_EQ(*found, reinterpret_cast<std::uint64_t>(environment));
}

TEST(DynamicSymbol, OfNobodyOrNoImageIsNotFound) {
  const os::MemoryFile memory(::getpid());
  const std::uint64_t base = base_of(::dlsym(RTLD_DEFAULT, "_r_debug"));
  EXPECT_EQ(find_dynamic_symbol(memory, base, "no_such_symbol_at_all").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(find_dynamic_symbol(memory, base, "_r_debu").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(find_dynamic_symbol(memory, base + 4096, "_r_debug").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(find_dynamic_symbol(memory, 0, "_r_debug").error().code, ErrorCode::kNotFound);
}

// As the linker maps a library: the file as a whole, then each part over it. Data of this program stand farther from
// its begin in memory than in the file.
TEST(DynamicSymbol, AnImageIsLoadedOnceEachPartIsInItsPlace) {
  const os::MemoryFile memory(::getpid());
  const std::uint64_t base = base_of(reinterpret_cast<const void*>(&base_of));
  const std::vector<os::ProcMap> maps = os::parse_proc_maps(os::read_proc_file("/proc/self/maps"));
  const auto first = std::ranges::find(maps, base, &os::ProcMap::begin);
  ASSERT_NE(first, maps.end());
  EXPECT_TRUE(is_loaded(memory, maps, *first));
  // The file as one mapping: where a part stands elsewhere in memory than in the file, the loader moves it afterwards.
  const bool parts_move = std::ranges::any_of(
      maps, [&](const os::ProcMap& map) { return map.path == first->path && map.begin - base != map.offset; });
  os::ProcMap all = *first;
  for (const os::ProcMap& map : maps)
    if (map.path == first->path) all.end = map.end;
  EXPECT_EQ(is_loaded(memory, std::span(&all, 1), all), !parts_move);
  os::ProcMap other = all;
  other.begin = base + 1;  // no image there
  EXPECT_TRUE(is_loaded(memory, std::span(&all, 1), other));
  all.offset += 4096;
  EXPECT_FALSE(is_loaded(memory, std::span(&all, 1), all));
}

}  // namespace
}  // namespace windlass::runtimes
