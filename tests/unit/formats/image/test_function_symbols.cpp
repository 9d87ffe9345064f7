#include "formats/image/function_symbols.h"

#include <gtest/gtest.h>
#include <link.h>

#include <algorithm>

#include "base/mapped_file.h"

namespace windlass::image {
namespace {

[[gnu::noinline]] int known_function(int n) {
  volatile int sum = 0;
  for (int i = 0; i < n; ++i) sum = sum + i;
  return sum;
}

std::uint64_t own_bias() {
  std::uint64_t bias = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uint64_t*>(to) = info->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &bias);
  return bias;
}

TEST(FunctionSymbols, OfThisProgram) {
  const auto file = MappedFile::open("/proc/self/exe");
  ASSERT_TRUE(file);
  const auto image = ElfImage::parse(file->bytes());
  ASSERT_TRUE(image);
  const FunctionSymbols symbols(*image);
  ASSERT_GT(symbols.size(), 100u);
  EXPECT_EQ(known_function(4), 6);
  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(&known_function) - own_bias();
  EXPECT_EQ(symbols.start_of(begin), begin);
  EXPECT_EQ(symbols.start_of(begin + 5), begin);
  EXPECT_NE(symbols.start_of(begin - 1), begin);
  EXPECT_EQ(symbols.start_of(0), 0u);
  EXPECT_EQ(symbols.start_of(~std::uint64_t{0}), 0u);
  EXPECT_EQ(FunctionSymbols().start_of(begin), 0u);
}

// Every byte around each start: the one pass over all symbols finds what the sorted ones do.
TEST(FunctionSymbols, OnePassFindsTheSame) {
  std::size_t compared = 0;
  for (const char* path : {"/proc/self/exe", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"}) {
    const auto file = MappedFile::open(path);
    if (!file) continue;
    const auto image = ElfImage::parse(file->bytes());
    ASSERT_TRUE(image) << path;
    const FunctionSymbols symbols(*image);
    std::uint64_t last = 0;
    for (const ExecutableSegment& segment : image->executable_segments())
      last = std::max(last, segment.vaddr + segment.memsz);
    const std::uint64_t step = last / 997 + 1;
    for (std::uint64_t at = 0; at < last + step; at += step)
      for (const std::uint64_t start : {at, symbols.start_of(at)})
        for (const std::uint64_t address : {start - 1, start, start + 1}) {
          EXPECT_EQ(FunctionSymbols::start_in(*image, address), symbols.start_of(address)) << path << ' ' << address;
          compared += symbols.start_of(address) != 0;
        }
    EXPECT_EQ(FunctionSymbols::start_in(*image, ~std::uint64_t{0}), symbols.start_of(~std::uint64_t{0}));
  }
  EXPECT_GT(compared, 1000u);
}

}  // namespace
}  // namespace windlass::image
