// Stacks of Haskell's code, as GHC compiles it for Linux, from outside: a program of npm is recorded and
// single-stepped.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "support/child_program.h"
#include "support/elm_source.h"
#include "support/judged.h"
#include "support/npm_package.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/runtime_program.h"
#include "support/tested_version.h"

namespace windlass {
namespace {

const std::string kFolder = WINDLASS_HASKELL_DIRECTORY;
constexpr const char* kVersion = "0.8.8-1";  // of elm-format, which is static and has no symbols
constexpr const char* kIntegrity =
    "sha512-IvtmUTDw/V5mBeglLgtQMzWZPc0QvmqUmoJ+vipxYii3DJ/1KV2drtpvlLuFdBlFrehUivtrh4HhOTsdGXxyXQ==";

class Haskell : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::fetch_package(package_, "@avh4/elm-format-linux-x64", kVersion, kIntegrity))
      GTEST_SKIP() << "SKIPPED: elm-format cannot be fetched by npm pack";
    test::write_elm(source_, 6000);
  }
  [[nodiscard]] std::vector<std::string> words() const {
    return {package_ + "/elm-format", source_, "--output", kFolder + "/out.elm", "--yes"};
  }
  const std::string package_ = kFolder + "/elm-format", source_ = kFolder + "/Big.elm";
};

TEST_F(Haskell, StacksAreWhole) {
  if (const std::string why = test::no_privilege_to_sample(); !why.empty()) GTEST_SKIP() << why;
  const std::string profile = kFolder + "/work.pb.gz";
  const auto recorded = test::run(
      fmt::format("{} record -v -F 499 -o {} -- {} 2>&1", WINDLASS_COMMAND, profile, fmt::join(words(), " ")));
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto stacks = test::folded(WINDLASS_COMMAND, profile);
  const test::WholeShare share = test::whole_share(stacks);
  ::printf("%.2f%% of %lu whole\n", share.percent(), share.all);
  EXPECT_GT(share.all, 100U);
  EXPECT_GE(share.percent(), 99.0) << recorded.output;
  test::tested_version("elm-format", kVersion, "Haskell", share.all, share.whole);
}

// Runs the stopped thread until it comes to `address`, where it stops. False: it does not.
bool run_to(pid_t thread, std::uint64_t address) {
  const long code = ::ptrace(PTRACE_PEEKTEXT, thread, address, nullptr);
  const long trap = (code & ~0xffL) | 0xcc;
  if (::ptrace(PTRACE_POKETEXT, thread, address, trap) != 0) return false;
  bool arrived = false;
  for (int signal = 0; !arrived;) {
    int status = 0;
    if (::ptrace(PTRACE_CONT, thread, nullptr, signal) != 0 || ::waitpid(thread, &status, __WALL) != thread ||
        !WIFSTOPPED(status))
      return false;
    signal = WSTOPSIG(status);
    arrived = signal == SIGTRAP && status >> 16 == 0;
  }
  user_regs_struct registers{};
  if (::ptrace(PTRACE_GETREGS, thread, nullptr, &registers) != 0 || registers.rip != address + 1) return false;
  registers.rip = address;
  return ::ptrace(PTRACE_SETREGS, thread, nullptr, &registers) == 0 &&
         ::ptrace(PTRACE_POKETEXT, thread, address, code) == 0;
}

// StgRun in the file at `path`: it makes room of 16 KiB, and then jumps. 0: not found.
std::uint64_t find_run(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const std::string_view kRoom("\x48\x81\xec\x00\x40\x00\x00", 7);  // sub rsp, 0x4000
  const auto elf = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const std::size_t place = bytes.find(kRoom);
  if (place == std::string::npos) return 0;
  for (unsigned i = 0; i < elf->e_phnum; ++i) {
    const auto& segment = reinterpret_cast<const Elf64_Phdr*>(bytes.data() + elf->e_phoff)[i];
    if (segment.p_type == PT_LOAD && place - segment.p_offset < segment.p_filesz)
      return segment.p_vaddr + place - segment.p_offset;
  }
  return 0;
}

// The caller is the code that has called StgRun. So each round of steps begins where StgRun is called: behind any other
// stop the caller is not known, and the collector may run for millions of instructions.
TEST_F(Haskell, HasItsCallersAtEveryInstruction) {
  const test::ChildProgram program(words(), kFolder + "/output", STDOUT_FILENO);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_TRUE(test::stop(program.pid()));
  test::StepJudge judge(program.pid());
  const auto module_of = [&](std::uint64_t pc) { return walk::module_at(judge.target().space, pc); };
  const std::uint64_t room = find_run(words()[0]);  // the file is not position independent
  ASSERT_NE(module_of(room), nullptr);
  const auto run = module_of(room)->function_at(room);
  ASSERT_TRUE(run && run_to(program.pid(), run->begin));
  user_regs_struct registers{};
  ASSERT_EQ(::ptrace(PTRACE_GETREGS, program.pid(), nullptr, &registers), 0);
  const auto back = static_cast<std::uint64_t>(::ptrace(PTRACE_PEEKDATA, program.pid(), registers.rsp, nullptr));
  judge.ways.judges = [&](std::uint64_t pc) {
    const walk::Module* module = module_of(pc);
    FrameRow row;
    return module != nullptr && !module->generated() && module->info().path.ends_with("/elm-format") &&
           !module->row_at(pc, row).has_value();
  };
  const std::size_t judged = test::whole() ? 200'000 : 12'000, different = test::whole() ? 1'000 : 600;
  for (int round = 0; round < 50 && (judge.judged < judged || judge.instructions.size() < different); ++round) {
    ASSERT_TRUE(round == 0 || judge.run_on());
    ASSERT_TRUE(run_to(program.pid(), back - 5)) << "a direct call";
    for (std::size_t i = 0; i < 20'000; ++i) ASSERT_TRUE(judge.step());
  }
  test::expect_right(judge, 10'000, 500);
}

}  // namespace
}  // namespace windlass
