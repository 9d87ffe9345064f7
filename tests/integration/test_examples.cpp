// The examples do what their first lines say.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "support/await_sleep.h"

namespace {

struct Outcome {
  int status = -1;
  std::string text;
  [[nodiscard]] bool says(const std::string& what) const { return text.find(what) != std::string::npos; }
};

Outcome run(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char piece[4096];
  while (const std::size_t size = std::fread(piece, 1, sizeof piece, pipe)) outcome.text.append(piece, size);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}
Outcome example(const std::string& name) { return run(WINDLASS_EXAMPLES_DIR "/example_" + name); }

// A process that sleeps below main, until the test ends.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      ::execl("/bin/sleep", "sleep", "1000", nullptr);
      _exit(127);
    }
    if (!windlass::test::await_sleep(pid_)) ADD_FAILURE() << "sleep(1) does not come to its sleep";
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  [[nodiscard]] std::string id() const { return std::to_string(pid_); }

 private:
  pid_t pid_;
};

TEST(Examples, OwnStack) {
  for (const char* name : {"own_stack", "own_stack_cpp"}) {
    const Outcome outcome = example(name);
    EXPECT_EQ(outcome.status, 0);
    for (const char* function : {"inner", "outer", "main", "__libc_start_main", "_start"})
      EXPECT_TRUE(outcome.says(function)) << name << ": " << function << " is not in\n" << outcome.text;
  }
  EXPECT_TRUE(example("own_stack").says("complete"));
}

TEST(Examples, SignalHandler) {
  const Outcome outcome = example("signal_handler");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(outcome.says("frames, complete")) << outcome.text;
  EXPECT_GE(std::atoi(outcome.text.c_str() + outcome.text.rfind('\n', outcome.text.size() - 2) + 1), 15)
      << outcome.text;
}

TEST(Examples, Jit) {
  const Outcome outcome = example("jit");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("its caller was found by: code")) << outcome.text;
}

// Under debuggers and profilers: test_jit_examples.
TEST(Examples, JitBytes) {
  const Outcome outcome = example("jit_bytes");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("windlass: 6 frames, generated code is number 2, complete")) << outcome.text;
}

TEST(Examples, JitCode) {
  const Outcome outcome = example("jit_code_cpp");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("frames, the generated one left by: cfi, complete")) << outcome.text;
}

TEST(Examples, JitUnwindInfo) {
  const Outcome outcome = example("jit_unwind_info_cpp");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(
      outcome.says("RUNTIME_FUNCTION 1000..103c, information at 2000\n"
                   "UNWIND_INFO 01 10 07 25 10 68 00 00 0c 34 03 00 04 03 04 32 01 50 00 00\n"))
      << outcome.text;
  EXPECT_TRUE(outcome.says("  16..50  CFA = r6+16  r3 at CFA-24  r6 at CFA-16  r23 at CFA-48")) << outcome.text;
}

TEST(Examples, UnwindInfo) {
  const std::string path = WINDLASS_EXAMPLES_DIR "/example_unwind_info";
  std::size_t functions[2] = {}, rows[2] = {};
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = run(path + (i == 0 ? " " : "_cpp ") + path);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_FALSE(outcome.says("problem")) << outcome.text;
    EXPECT_TRUE(outcome.says("entry point: ")) << outcome.text;
    const std::size_t counts = outcome.text.find_first_of(":\n") + 1;
    EXPECT_EQ(std::sscanf(outcome.text.c_str() + counts, "%zu functions, %zu rows", &functions[i], &rows[i]), 2)
        << outcome.text;
  }
  EXPECT_GE(functions[0], 4u);
  EXPECT_GT(rows[0], functions[0]);
  EXPECT_EQ(functions[0], functions[1]);
  EXPECT_EQ(rows[0], rows[1]);
  EXPECT_EQ(run(path + " /etc/passwd").status, 1);
}

TEST(Examples, Collector) {
  const Outcome outcome = example("collector");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("moved, 1 places updated")) << outcome.text;
}

TEST(Examples, Managed) {
  const Outcome outcome = example("managed");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(outcome.text,
            "walked: inner outer; outcome 0, 1 moved\n"
            "thrown through: inner\nthrown through: outer\n"
            "caught: an object, where it is now\n"
            "outer went on behind its handler: yes\n");
}

TEST(Examples, SamplingProfiler) {
  const Outcome outcome = example("sampling_profiler");
  EXPECT_EQ(outcome.status, 0);
  int inside[4] = {};
  int all = 0;
  ASSERT_EQ(std::sscanf(outcome.text.c_str(),
                        "main in %d of %d samples hot in %d of %*d samples cold in %d of %*d samples spin in %d",
                        &inside[0], &all, &inside[1], &inside[2], &inside[3]),
            5)
      << outcome.text;
  if (all < 20) GTEST_SKIP() << "too few ticks of the profiling timer";
  // Nearly all of the time is spent in spin; a tick may fall before or after.
  EXPECT_GE(inside[0], all - all / 20 - 1);
  EXPECT_GE(inside[3], all - all / 20 - 1);
  EXPECT_GE(inside[1] + inside[2], all - all / 20 - 1);
  EXPECT_GT(inside[1], inside[2]);
}

TEST(Examples, OtherProcess) {
  const Sleeper sleeper;
  for (const char* name : {"target ", "target_cpp "}) {
    const Outcome outcome = example(name + sleeper.id());
    if (outcome.status == 1 && outcome.says("not permitted")) GTEST_SKIP() << "ptrace is not allowed here";
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_TRUE(outcome.says("sleep")) << outcome.text;
    EXPECT_TRUE(outcome.says("libc.so.6")) << outcome.text;
    EXPECT_FALSE(outcome.says("  [")) << outcome.text;
  }
  EXPECT_EQ(example("target 999999999").status, 1);
}

TEST(Examples, ResampledProcess) {
  const Sleeper sleeper;
  for (const char* name : {"resample ", "resample_cpp "}) {
    const Outcome outcome = example(name + sleeper.id() + " 5");
    if (outcome.status == 1 && outcome.says("not permitted")) GTEST_SKIP() << "ptrace is not allowed here";
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_TRUE(outcome.says("5 looks, ")) << outcome.text;
    EXPECT_FALSE(outcome.says("stood for 0.000 ms")) << outcome.text;
  }
  EXPECT_EQ(example("resample 999999999 5").status, 1);
}

#ifdef WINDLASS_SYMBOLS
TEST(Examples, NamedStack) {
  const Outcome outcome = example("named_stack_cpp");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(outcome.text.starts_with("#0   0x")) << outcome.text;
  for (const char* frame : {" inlined (inlined) at ", "named_stack.cpp:4\n", " outer+0x", " main+0x", " _start+0x"})
    EXPECT_TRUE(outcome.says(frame)) << frame << " is not in\n" << outcome.text;
  const Outcome in_c = example("named_stack");
  EXPECT_EQ(in_c.status, 0);
  const std::size_t first = in_c.text.find(" main+0x");
  EXPECT_LT(first, in_c.text.find('\n')) << in_c.text;
}

TEST(Examples, WalkProcess) {
  const Sleeper sleeper;
  for (const char* name : {"walk_process_cpp ", "walk_process "}) {
    const Outcome outcome = example(name + sleeper.id());
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    for (const std::string& text :
         {sleeper.id() + " sleep\n", std::string("clock_nanosleep"), std::string("/sleep+0x")})
      EXPECT_TRUE(outcome.says(text)) << name << ": " << text << " is not in\n" << outcome.text;
    EXPECT_EQ(example(name + std::string("999999999")).status, 1);
  }
}

#ifdef WINDLASS_JIT_FUNCTION
TEST(Examples, JitFunction) {
  const Outcome outcome = example("jit_function_cpp");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  const std::size_t generated = outcome.text.find(" generated+0x");
  EXPECT_NE(generated, std::string::npos) << outcome.text;
  EXPECT_LT(generated, outcome.text.find(" main+0x")) << outcome.text;
  EXPECT_TRUE(outcome.says(" _start+0x")) << outcome.text;
}
#endif

// What is no comment and not empty.
std::size_t lines_of_code(const std::string& name) {
  std::ifstream file(WINDLASS_EXAMPLES_SOURCES "/" + name);
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    count += first != std::string::npos && line.compare(first, 2, "//") != 0 ? 1 : 0;
  }
  return count;
}

TEST(Examples, TheCommonestTasksAreShort) {
  const std::pair<const char*, std::size_t> bounds[] = {
      {"named_stack.cpp", 8}, {"walk_process.cpp", 12}, {"jit_function.cpp", 20}};
  for (const auto& [name, most] : bounds) {
    EXPECT_GT(lines_of_code(name), 0U) << name;
    EXPECT_LE(lines_of_code(name), most) << name;
  }
}

TEST(Examples, NameAddresses) {
  const std::string program = WINDLASS_EXAMPLES_DIR "/example_name_addresses";
  const std::string main = run("nm " + program + " | sed -n 's/ T main$//p'").text;
  ASSERT_FALSE(main.empty());
  const Outcome file = example("name_addresses " + program + " 0x" + main.substr(0, main.find('\n')) + " 0");
  EXPECT_EQ(file.status, 0);
  EXPECT_TRUE(file.says("  main at ")) << file.text;
  EXPECT_TRUE(file.says("name_addresses.c:")) << file.text;
  EXPECT_TRUE(file.says("0 " + program + "+0\n")) << file.text;
  const Sleeper sleeper;
  const std::string libc =
      run("sed -n 's/^\\([0-9a-f]*\\)-.* r-xp .*libc.so.6$/\\1/p' /proc/" + sleeper.id() + "/maps").text;
  ASSERT_FALSE(libc.empty());
  const Outcome process = example("name_addresses " + sleeper.id() + " 0x" + libc.substr(0, libc.find('\n')));
  EXPECT_EQ(process.status, 0) << process.text;
  EXPECT_TRUE(process.says("/libc.so.6+0x")) << process.text;
  EXPECT_EQ(example("name_addresses 999999999 0").status, 1);
}
#endif

TEST(Examples, Core) {
  const Sleeper sleeper;
  char prefix[] = "/tmp/windlass-core-XXXXXX";
  ASSERT_NE(::mkdtemp(prefix), nullptr);
  const std::string core = std::string(prefix) + "/core." + sleeper.id();
  const Outcome made = run("gcore -o " + std::string(prefix) + "/core " + sleeper.id());
  if (made.status != 0) {
    ::rmdir(prefix);
    GTEST_SKIP() << "gcore does not work here";
  }
  const Outcome live = example("target " + sleeper.id());
  const Outcome dead = example("target " + core);
  EXPECT_EQ(dead.status, 0) << dead.text;
  EXPECT_EQ(dead.text, live.text);
  ::unlink(core.c_str());
  ::rmdir(prefix);
}

}  // namespace
