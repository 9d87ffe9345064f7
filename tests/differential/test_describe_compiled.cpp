// describe() on compiled code, x86-64 and AArch64: frames as GCC and clang make them, with and without optimisation,
// frame pointers and authenticated return addresses, and a C library. The code is run along all its paths in an
// emulator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/a64_ways.h"
#include "support/description_judge.h"
#include "support/elf_code.h"
#include "support/run_command.h"
#include "support/whole.h"
#include "support/x64_ways.h"

namespace windlass {
namespace {

using test::Function;
using test::Tally;
template <typename W>
using Judge = test::DescriptionJudge<W>;

constexpr const char* kSource = R"(
extern long other(long, ...);
extern double real(double);
extern void taken(void*);
extern void __attribute__((noreturn)) ends(void);
long leaf(long a, long b) { return a * b + 1; }
long one_call(long a) { return other(a) + 1; }
long tail(long a) { return other(a + 1); }
long many(long a, long b, long c, long d, long e, long f, long g, long h) {
  long x = other(a), y = other(b), z = other(c), w = other(d);
  return other(e) + other(f) * x + other(g) * y + other(h) * z + w + a + b + c + d + e + f + g + h;
}
double reals(double a, double b, double c) { return real(a) * b + real(b) * c + real(c) * a; }
long wrapped(long a, long* p) { if (!p) return a; long s = 0; for (long i = 0; i < a; ++i) s += other(p[i], s, a, i); return s; }
long local(long a) { char buffer[300]; taken(buffer); return buffer[a]; }
long large(long a) { char buffer[70000]; taken(buffer); return buffer[a]; }
long variable(long n) { char buffer[n]; taken(buffer); long x = other(n); taken(buffer); return x + buffer[1]; }
long aligned(long n) { _Alignas(64) char buffer[100]; taken(buffer); return other(n) + buffer[n]; }
long arguments(long n, ...) { __builtin_va_list l; __builtin_va_start(l, n); long s = 0; while (n--) s += __builtin_va_arg(l, long); __builtin_va_end(l); return s; }
long on_the_stack(long a) { return other(1, 2, 3, 4, 5, 6, 7, 8, a, a + 1, a + 2) + a; }
long ended(long a) { if (a < 0) ends(); long x = other(a); if (x == 3) { other(4); ends(); } return x; }
long chosen(long a, long b) {
  switch (a) { case 0: return other(b); case 1: return b; case 2: return other(b, 2) + 1; case 3: return b * 3;
               case 4: return other(b, 4) + b; case 5: other(1); case 6: return other(6) - b; default: return -1; }
}
struct large_value { long v[9]; };
struct large_value returned(long a) { struct large_value r; for (int i = 0; i < 9; ++i) r.v[i] = other(a, i); return r; }
long deep(long n) { return n < 2 ? n : deep(n - 1) + deep(n - 2); }
)";

template <typename W>
void functions_of(const std::string& path, const std::string& nm, std::size_t every, Judge<W>& judge, Tally& tally) {
  test::ElfCode file;
  ASSERT_TRUE(file.open(path)) << path;
  std::istringstream symbols(test::run(fmt::format("{} -S '{}' | grep -i ' [tw] '", nm, path)).output);
  DescribeOptions options;
  options.read = [&](std::uint64_t at, void* to, std::size_t bytes) { return file.read(at, to, bytes); };
  std::set<std::uint64_t> seen;
  std::string address, size, type, name;
  while (symbols >> address >> size >> type >> name) {
    Function function{name, std::stoull(address, nullptr, 16), {}};
    if (!seen.insert(function.begin).second || seen.size() % every != 0) continue;
    function.code.resize(std::stoull(size, nullptr, 16));
    if (!function.code.empty() && file.read(function.begin, function.code.data(), function.code.size()))
      judge.function(function, options, false, tally);
  }
}

// Every function of the source by the compiler, with each of its options and with no others.
template <typename W>
void compiled_by(const std::string& compiler, const std::string& nm, std::vector<std::string> all_options) {
  if (test::run(fmt::format("command -v {} && command -v {}", compiler.substr(0, compiler.find(' ')), nm)).status != 0)
    GTEST_SKIP() << "SKIPPED: there is no " << compiler;
  std::string folder = testing::TempDir() + "windlass-frames-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/frames.c") << kSource;
  Judge<W> judge;
  ASSERT_TRUE(judge.ok());
  all_options.insert(all_options.end(),
                     {"-O0", "-O2", "-Os", "-O2 -fomit-frame-pointer", "-O2 -fno-omit-frame-pointer"});
  Tally tally;
  for (const std::string& options : all_options) {
    const auto made = test::run(fmt::format("cd '{}' && {} {} -w -shared -fPIC -nostdlib -o frames.so frames.c 2>&1",
                                            folder, compiler, options));
    ASSERT_EQ(made.status, 0) << made.output;
    functions_of(folder + "/frames.so", nm, 1, judge, tally);
  }
  std::filesystem::remove_all(folder);
  report(compiler, tally);
  expect_right(tally, 0.02);
  EXPECT_GE(tally.functions, 16 * all_options.size());
  EXPECT_GE(tally.share(), 0.99);
  EXPECT_GE(tally.with_prologue * 100, tally.functions * 95);
}

const std::vector<std::string> kX64 = {"-O1 -fcf-protection -fstack-protector-all", "-O2 -mno-red-zone",
                                       "-O2 -fstack-clash-protection", "-O3 -march=haswell"};
const std::vector<std::string> kA64 = {"-O2 -mbranch-protection=standard", "-O1 -mbranch-protection=pac-ret+leaf+b-key",
                                       "-O2 -march=armv8.3-a -mbranch-protection=standard -fstack-protector-all"};

TEST(DescribeX64, FramesOfGcc) { compiled_by<test::X64Ways>("gcc", "nm", kX64); }
TEST(DescribeX64, FramesOfClang) { compiled_by<test::X64Ways>("clang-19", "nm", kX64); }
TEST(DescribeAarch64, FramesOfGcc) {
  compiled_by<test::A64Ways>("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-nm", kA64);
}
TEST(DescribeAarch64, FramesOfClang) {
  compiled_by<test::A64Ways>("clang-19 --target=aarch64-linux-gnu -fuse-ld=lld", "aarch64-linux-gnu-nm", kA64);
}

TEST(DescribeAarch64, TheCLibrary) {
  const std::string path = "/usr/aarch64-linux-gnu/lib/libc.so.6";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "SKIPPED: " << path << " is not on this machine";
  Judge<test::A64Ways> judge;
  ASSERT_TRUE(judge.ok());
  Tally tally;
  functions_of(path, "aarch64-linux-gnu-nm -D", test::stride(5), judge, tally);
  report("libc", tally);
  expect_right(tally, 0.02);
  EXPECT_GE(tally.share(), 0.95);
}

}  // namespace
}  // namespace windlass
