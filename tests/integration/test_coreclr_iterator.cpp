// The walk of managed stacks on the threads of a real CoreCLR, from outside: its frame list, its methods by their
// Windows unwind information, native frames by CFI. What the runtime prints of the same stack is the oracle.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "integration/coreclr/program.h"
#include "process/proc_file.h"
#include "process/proc_maps.h"
#include "process/process_memory.h"
#include "runtimes/coreclr/find.h"
#include "runtimes/coreclr/names.h"
#include "support/coreclr_walk.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using test::CoreClrRuntime;
namespace coreclr = runtimes::coreclr;

const std::string kBottom = "Chains.Bottom.Sleep(Int32)";

// "   at A.B(Int32 x, T[] y)" -> "A.B(Int32, T[])".
std::string without_parameter_names(const std::string& line) {
  const std::size_t open = line.find('(');
  std::string out = line.substr(0, open + 1);
  std::istringstream parameters(line.substr(open + 1, line.rfind(')') - open - 1));
  for (std::string type, name; parameters >> type >> name;) out += (out.back() == '(' ? "" : ", ") + type;
  return out + ")";
}

class Stack : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = test::make_coreclr_program("chains"); !why.empty()) GTEST_SKIP() << why;
    output_ = test::kCoreClrFolder + "/iterator-" + GetParam() + ".txt";
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (std::freopen(output_.c_str(), "w", stderr) == nullptr) ::_exit(2);
    ::setenv("DOTNET_DbgEnableMiniDump", "0", 1);
    const std::string program = test::kCoreClrFolder + "/chains";
    ::execl(program.c_str(), program.c_str(), GetParam(), nullptr);
    ::_exit(1);
  }
  void TearDown() override {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] bool runs() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }

  // The managed frames of the thread that has come to the bottom, as the walk shows them; empty: none has yet.
  std::vector<std::string> walked(managed::WalkFlags flags) {
    const process::MemoryFile memory(pid_);
    std::optional<std::uint64_t> at;
    for (const process::ProcMap& map :
         process::parse_proc_maps(process::read_proc_file("/proc/" + std::to_string(pid_) + "/maps")))
      if (map.has_file() && map.offset == 0 && !at)
        if (const auto found = coreclr::find_descriptor(memory, map.begin)) at = *found;
    const auto descriptor = at ? coreclr::Descriptor::read(memory, *at) : fail(ErrorCode::kNotFound, "not there", 0);
    if (!descriptor) return {};
    const auto map = coreclr::CodeMap::make(*descriptor);
    const auto frames = coreclr::ExplicitFrames::make(*descriptor);
    auto names = coreclr::Names::make(*descriptor);
    if (!map || !frames || !names) return {};
    auto target = open_process(static_cast<std::uint64_t>(pid_));
    if (!target) return {};
    const auto threads = frames->read(memory);
    if (!threads) return {};
    for (const Thread& thread : target->threads) {
      const auto list = std::ranges::find(*threads, thread.id, &coreclr::ThreadFrames::id);
      if (list == threads->end()) continue;
      CoreClrRuntime runtime(target->space.memory(), *map);
      runtime.set_frames(*list);
      const managed::ManagedThread walk{.space = &target->space, .runtime = &runtime, .frames = runtime.first_frame()};
      const bool native = (flags & managed::kNativeFrames) != 0;
      std::vector<std::string> shown;
      managed::ManagedWalker walker(walk, native ? thread.registers : Registers(Architecture::kX86_64),
                                    flags | managed::kFunctionsOnly | managed::kSkipCookieCheck |
                                        managed::kAllowAsyncWalk | managed::kThreadIsSuspended);
      while (walker.next())
        if (walker.frame().frameless()) shown.push_back(names->name_of(memory, walker.frame().function()));
      const auto bottom = std::ranges::find(shown, kBottom);
      if (bottom == shown.end()) continue;
      EXPECT_FALSE(walker.error()) << walker.error()->text();
      return {bottom, shown.end()};
    }
    return {};
  }
  std::vector<std::string> wait_for_bottom(managed::WalkFlags flags) {
    std::vector<std::string> stack;
    while (runs() && (stack = walked(flags)).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return stack;
  }

  std::vector<std::string> printed() {
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    std::vector<std::string> stack;
    std::ifstream lines(output_);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("   at ")) stack.push_back(without_parameter_names(line.substr(6)));
    return stack;
  }

  pid_t pid_ = -1;
  std::string output_;
};

// From the list of frames alone, as a collector walks a thread in native code; and from its registers.
TEST_P(Stack, IsWhatTheRuntimePrints) {
  const std::vector<std::string> from_frames = wait_for_bottom(managed::kDisableMissingFrameDetection);
  ASSERT_FALSE(from_frames.empty());
  const std::vector<std::string> from_registers = walked(managed::kNativeFrames);
  const std::vector<std::string> expected = printed();
  ASSERT_GT(expected.size(), 8U);
  EXPECT_EQ(from_frames, expected);
  EXPECT_EQ(from_registers, expected);
}
INSTANTIATE_TEST_SUITE_P(Chains, Stack, testing::Values("plain", "value", "finally"),
                         [](const auto& what) { return std::string(what.param); });

}  // namespace
}  // namespace windlass
