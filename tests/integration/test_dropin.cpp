// Programs that know nothing of Windlass, run with and without libwindlass-unwind.so preloaded. Their output must be
// the same: every frame, every name, every exception.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Outcome {
  int status = -1;
  std::vector<std::string> lines;
};

Outcome run(const std::string& command) {
  Outcome run;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return run;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) run.lines.emplace_back(line);
  const int status = ::pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

Outcome preloaded(const std::string& command) { return run("env LD_PRELOAD=" WINDLASS_DROPIN " " + command); }

// The same lines, with the first difference named.
void expect_same(const Outcome& with, const Outcome& without) {
  EXPECT_EQ(with.status, without.status);
  ASSERT_EQ(with.lines.size(), without.lines.size());
  for (std::size_t i = 0; i < with.lines.size(); ++i) ASSERT_EQ(with.lines[i], without.lines[i]) << "line " << i;
}

// Needs only the decoder of instructions, and libraries that every process has.
TEST(Dropin, NeedsFewLibraries) {
  const Outcome dynamic = run("readelf -dW " WINDLASS_DROPIN);
  ASSERT_EQ(dynamic.status, 0);
  std::size_t needed = 0;
  for (const std::string& line : dynamic.lines) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    ++needed;
    bool known = false;
    for (const char* library : {"[libgcc_s.so", "[libc.so", "[ld-linux", "[libZydis.so"})
      known |= line.find(library) != std::string::npos;
    EXPECT_TRUE(known) << line;
  }
  EXPECT_GE(needed, 3u);
}

TEST(Dropin, ExceptionsStayLibgccs) {
  const Outcome without = run(WINDLASS_DROPIN_PROGRAMS "/dropin_exceptions");
  EXPECT_EQ(without.status, 3);
  EXPECT_GT(without.lines.size(), 15u);
  expect_same(preloaded(WINDLASS_DROPIN_PROGRAMS "/dropin_exceptions"), without);
}

TEST(Dropin, BacktraceAndItaniumAbi) {
  const Outcome without = run(WINDLASS_DROPIN_PROGRAMS "/dropin_stacks");
  EXPECT_EQ(without.status, 0);
  EXPECT_GT(without.lines.size(), 40u);
  expect_same(preloaded(WINDLASS_DROPIN_PROGRAMS "/dropin_stacks"), without);
}

// Code made at run time, added by the C interface's names: to the drop-in, and to a copy of the library beside it.
TEST(Dropin, GeneratedCode) {
  EXPECT_EQ(run(WINDLASS_DROPIN_PROGRAMS "/dropin_generated").status, 2);
  for (const char* program : {"/dropin_generated", "/dropin_generated_windlass"}) {
    const Outcome with = preloaded(std::string(WINDLASS_DROPIN_PROGRAMS) + program);
    EXPECT_EQ(with.status, 0) << program;
    ASSERT_EQ(with.lines.size(), 1u);
    EXPECT_EQ(with.lines[0], "every stack is whole\n");
  }
}

// A code manager of libwindlass.so's: the drop-in, another copy of the library, reads the same table.
TEST(Dropin, ManagedCode) {
  EXPECT_NE(run(WINDLASS_DROPIN_PROGRAMS "/dropin_managed").status, 0) << "others cannot walk it";
  const Outcome with = preloaded(WINDLASS_DROPIN_PROGRAMS "/dropin_managed");
  EXPECT_EQ(with.status, 0);
  ASSERT_EQ(with.lines.size(), 1u);
  EXPECT_EQ(with.lines[0], "every stack is whole\n");
}

#if defined(WINDLASS_HAS_LIBUNWIND)
// libunwind names a function by the closest exported symbol before it, if it has no other. Where those names are wrong,
// ours may be absent. They are left out of the comparison.
Outcome without_names(Outcome run) {
  for (std::string& line : run.lines) {
    std::istringstream words(line);
    std::string kept;
    for (std::string word; words >> word;)
      if (word.find('+') == std::string::npos || word.find("+0x") != std::string::npos) kept += word + ' ';
    line = kept;
  }
  return run;
}

TEST(Dropin, LibunwindsOwnInterface) {
  const Outcome without = run(WINDLASS_DROPIN_PROGRAMS "/dropin_unw");
  EXPECT_EQ(without.status, 0);
  EXPECT_GT(without.lines.size(), 30u);
  const Outcome with = preloaded(WINDLASS_DROPIN_PROGRAMS "/dropin_unw");
  expect_same(without_names(with), without_names(without));
  // main has the same name in both.
  bool named = false;
  for (const std::string& line : with.lines) named |= line.find(" main+") != std::string::npos;
  EXPECT_TRUE(named);
}

// Where libunwind throws, it needs its own cursors.
TEST(Dropin, ExceptionsStayLibunwinds) {
  const Outcome without = run(WINDLASS_DROPIN_PROGRAMS "/dropin_exceptions_libunwind");
  EXPECT_EQ(without.status, 3);
  EXPECT_GT(without.lines.size(), 12u);
  expect_same(preloaded(WINDLASS_DROPIN_PROGRAMS "/dropin_exceptions_libunwind"), without);
}

// The same source against windlass/c/libunwind.h, linked.
TEST(Dropin, LibunwindsSourcesCompile) {
  const Outcome other = run(WINDLASS_DROPIN_PROGRAMS "/dropin_unw");
  Outcome own = run(WINDLASS_DROPIN_PROGRAMS "/dropin_unw_windlass");
  EXPECT_EQ(own.status, 0);
  ASSERT_EQ(own.lines.size(), other.lines.size());
}
#else
TEST(Dropin, LibunwindsOwnInterface) { GTEST_SKIP() << "libunwind-dev is not installed"; }
#endif

// ---- profilers of other people, unchanged ---------------------------------------------------------------------------

// A folder that goes away with the test.
class Folder {
 public:
  Folder() { made_ = ::mkdtemp(path_) != nullptr; }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string path(const std::string& name) const { return std::string(path_) + "/" + name; }
  [[nodiscard]] bool made() const { return made_; }

 private:
  char path_[32] = "/tmp/windlass-dropin-XXXXXX";
  bool made_ = false;
};

const char* const kProgram = WINDLASS_DROPIN_PROGRAMS "/dropin_allocations";

bool installed(const std::string& library) { return !library.empty() && library.find("NOTFOUND") == std::string::npos; }

struct Stacks {
  std::size_t different = 0;
  std::uint64_t count = 0;
  std::uint64_t frames = 0;  // of all of them together
  bool operator==(const Stacks&) const = default;
};

// gperftools' heap profiles: "in use: bytes [all: bytes] @ pc pc ...".
Stacks read_heap_profile(const std::string& file) {
  Stacks stacks;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    unsigned long all = 0;
    int pcs = 0;
    if (std::sscanf(line.c_str(), " %*u: %*u [ %lu: %*u] @%n", &all, &pcs) != 1 || pcs == 0) continue;
    ++stacks.different;
    stacks.count += all;
    std::istringstream words(line.substr(static_cast<std::size_t>(pcs)));
    for (std::string word; words >> word;) stacks.frames += all;
  }
  return stacks;
}

TEST(Dropin, GperftoolsHeapProfiler) {
  if (!installed(WINDLASS_TCMALLOC)) GTEST_SKIP() << "libtcmalloc is not installed";
  const Folder folder;
  ASSERT_TRUE(folder.made());
  for (const char* method : {"libunwind", "libgcc"}) {
    Stacks stacks[2];
    for (const bool ours : {false, true}) {
      const std::string file = folder.path(std::string(method) + (ours ? ".ours" : ".theirs"));
      const Outcome outcome =
          run("env TCMALLOC_STACKTRACE_METHOD=" + std::string(method) + " HEAPPROFILE=" + file +
              " LD_PRELOAD=" + (ours ? WINDLASS_DROPIN ":" : "") + WINDLASS_TCMALLOC + " " + kProgram);
      EXPECT_EQ(outcome.status, 0);
      stacks[ours ? 1 : 0] = read_heap_profile(file + ".0001.heap");
    }
    EXPECT_GT(stacks[0].count, 10000u) << method;
    EXPECT_GE(stacks[1].frames, stacks[0].frames) << method;
    EXPECT_EQ(stacks[1].count, stacks[0].count) << method;
    EXPECT_EQ(stacks[1].different, stacks[0].different) << method;
  }
}

// gperftools' CPU profiles: words; a header of five, then {count, depth, pcs}.
TEST(Dropin, GperftoolsCpuProfiler) {
  if (!installed(WINDLASS_PROFILER_LIBRARY)) GTEST_SKIP() << "libprofiler is not installed";
  const Folder folder;
  ASSERT_TRUE(folder.made());
  std::uint64_t shallowest[2] = {~0ull, ~0ull};
  for (const bool ours : {false, true}) {
    const std::string file = folder.path(ours ? "ours" : "theirs");
    const Outcome outcome =
        run("env CPUPROFILE_FREQUENCY=1000 CPUPROFILE=" + file + " LD_PRELOAD=" + (ours ? WINDLASS_DROPIN ":" : "") +
            WINDLASS_PROFILER_LIBRARY + " " + kProgram);
    EXPECT_EQ(outcome.status, 0);
    std::ifstream in(file, std::ios::binary);
    std::vector<std::uint64_t> words;
    for (std::uint64_t word = 0; in.read(reinterpret_cast<char*>(&word), sizeof word);) words.push_back(word);
    for (std::size_t i = 5; i + 2 < words.size() && words[i] != 0; i += 2 + words[i + 1])
      shallowest[ours ? 1 : 0] = std::min(shallowest[ours ? 1 : 0], words[i + 1]);
  }
  if (shallowest[0] == ~0ull || shallowest[1] == ~0ull) GTEST_SKIP() << "no ticks of the profiling timer";
  // Below main there are _start and two functions of libc; its own handler's frame is there in both.
  EXPECT_GE(shallowest[1], 4u);
}

// heaptrack writes every new stack as "t pc parent" and every allocation as "+".
TEST(Dropin, Heaptrack) {
  if (!installed(WINDLASS_HEAPTRACK)) GTEST_SKIP() << "heaptrack is not installed";
  const Folder folder;
  ASSERT_TRUE(folder.made());
  std::uint64_t nodes[2] = {};
  std::uint64_t allocations[2] = {};
  for (const bool ours : {false, true}) {
    const std::string file = folder.path(ours ? "ours" : "theirs");
    const Outcome outcome =
        run("env DUMP_HEAPTRACK_OUTPUT=" + file + " LD_PRELOAD=" + (ours ? WINDLASS_DROPIN ":" : "") +
            WINDLASS_HEAPTRACK + " " + kProgram);
    EXPECT_EQ(outcome.status, 0);
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      nodes[ours ? 1 : 0] += line.rfind("t ", 0) == 0 ? 1 : 0;
      allocations[ours ? 1 : 0] += line.rfind('+', 0) == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(allocations[0], 10000u);
  EXPECT_EQ(allocations[1], allocations[0]);
  EXPECT_GE(nodes[1], nodes[0]);
}

}  // namespace
