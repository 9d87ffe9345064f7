// describe() on code of just-in-time compilers: HotSpot's in a living process, and V8's builtins in node. The code is
// run along all its paths in an emulator. The row at every instruction must give the caller, and the share of code with
// a row must not fall.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/description_judge.h"
#include "support/elf_code.h"
#include "support/run_command.h"
#include "support/whole.h"
#include "support/x64_ways.h"
#include "windlass/jit/describe.h"

namespace windlass {
namespace {

using test::Function;
using test::Tally;
using Judge = test::DescriptionJudge<test::X64Ways>;

// ---- V8 -----------------------------------------------------------------------------------------------------------

TEST(DescribeJit, BuiltinsOfNode) {
  std::string node = test::run("readlink -f \"$(command -v node)\"").output;
  while (!node.empty() && node.back() == '\n') node.pop_back();
  test::ElfCode file;
  if (node.empty() || !file.open(node)) GTEST_SKIP() << "SKIPPED: there is no node";
  std::istringstream symbols(test::run(fmt::format("nm -S '{}' | grep ' Builtins_'", node)).output);
  std::vector<Function> functions;
  std::string address, size, type, name;
  while (symbols >> address >> size >> type >> name) {
    Function function{name, std::stoull(address, nullptr, 16), {}};
    function.code.resize(std::stoull(size, nullptr, 16));
    if (!function.code.empty() && file.read(function.begin, function.code.data(), function.code.size()))
      functions.push_back(std::move(function));
  }
  if (functions.empty()) GTEST_SKIP() << "SKIPPED: this node has no symbols of its builtins";
  Judge judge;
  ASSERT_TRUE(judge.ok());
  Tally builtins, handlers;
  DescribeOptions options{.keeps_frame_pointer_only = true};
  options.read = [&](std::uint64_t at, void* to, std::size_t bytes) { return file.read(at, to, bytes); };
  for (std::size_t i = 0; i < functions.size(); i += test::stride(16)) {
    judge.function(functions[i], options, true, functions[i].name.ends_with("Handler") ? handlers : builtins);
  }
  report("builtins", builtins);
  report("bytecode handlers", handlers);
  expect_right(builtins, 0.01);
  expect_right(handlers, 0.01);
  // Also those that end by a jump to a register, right at each of their instructions. Not written are those whose
  // frames Windows' codes cannot say.
  for (const Tally* tally : {&builtins, &handlers})
    for (const std::size_t written : tally->written) EXPECT_GE(written * 100, tally->with_prologue * 70);
  // Not proved there is what a jump to a computed address leads to, and code behind a stack of a size of its own.
  EXPECT_GE(builtins.share(), 0.985);
  EXPECT_GE(handlers.share(), 0.99);
}

// ---- HotSpot ------------------------------------------------------------------------------------------------------

class Java {
 public:
  bool start() {
    std::string file = testing::TempDir() + "windlass-java-XXXXXX";
    if (mkdtemp(file.data()) == nullptr) return false;
    folder_ = file;
    file = folder_ + "/Work.java";
    std::FILE* source = std::fopen(file.c_str(), "w");
    if (source == nullptr) return false;
    std::fputs(kProgram, source);
    std::fclose(source);
    // Until its standard input ends; the compiler that it starts with is most of what is compiled.
    pipe_ = ::popen(fmt::format("exec java '{}' '{}/pid' > /dev/null 2>&1", file, folder_).c_str(), "w");
    for (unsigned i = 0; i < 600 && pid_ == 0; ++i) {
      ::usleep(100'000);
      pid_ = std::atoi(test::run(fmt::format("cat '{}/pid' 2> /dev/null", folder_)).output.c_str());
    }
    return pid_ != 0;
  }
  ~Java() {
    if (pipe_ != nullptr) ::pclose(pipe_);
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // The methods compiled so far, by the level of the compiler: 0 a wrapper of a native method, 1 to 3 C1, 4 C2.
  std::map<int, std::vector<Function>> methods() const {
    std::map<int, std::vector<Function>> found;
    const int memory = ::open(fmt::format("/proc/{}/mem", pid_).c_str(), O_RDONLY);
    std::istringstream list(test::run(fmt::format("jcmd {} Compiler.codelist", pid_)).output);
    for (std::string line; std::getline(list, line);) {  // ID LEVEL STATE NAME [HEADER, BEGIN - END]
      int id = 0, level = 0, state = 0, at = 0;
      unsigned long header = 0, begin = 0, end = 0;
      const std::size_t bracket = line.rfind(" [0x");
      if (bracket == std::string::npos || std::sscanf(line.c_str(), "%d %d %d %n", &id, &level, &state, &at) != 3 ||
          std::sscanf(line.c_str() + bracket, " [%lx, %lx - %lx]", &header, &begin, &end) != 3 || end <= begin ||
          state != 0)  // its first instruction is overwritten
        continue;
      Function function{line.substr(static_cast<std::size_t>(at), bracket - static_cast<std::size_t>(at)), begin, {}};
      function.code.resize(end - begin);
      if (::pread(memory, function.code.data(), function.code.size(), static_cast<off_t>(begin)) ==
          static_cast<ssize_t>(function.code.size()))
        found[level].push_back(std::move(function));
    }
    ::close(memory);
    return found;
  }

 private:
  static constexpr const char* kProgram = R"(
import java.util.*;
import java.nio.file.*;
public class Work {
  interface Shape { double area(); }
  record Circle(double r) implements Shape { public double area() { return r * r * 3; } }
  record Square(double a) implements Shape { public double area() { return a * a; } }
  static int depth(int n) { if (n == 0) throw new IllegalStateException("deep"); return depth(n - 1) + 1; }
  static synchronized int locked(int n) { return n * 31; }
  public static void main(String[] arguments) throws Exception {
    Map<String, Integer> counts = new HashMap<>();
    double sum = 0;
    int caught = 0;
    for (long end = System.nanoTime() + 1500000000L, i = 0; System.nanoTime() < end; ++i) {
      Shape shape = i % 3 == 0 ? new Circle(i) : new Square(i);
      sum += shape.area() + locked((int) i);
      counts.merge("k" + i % 1000, 1, Integer::sum);
      try { depth((int) (i % 7)); } catch (IllegalStateException e) { ++caught; }
      String text = String.format("%d", i % 100) + sum;
      if (text.hashCode() == 42) counts.clear();
      int[] numbers = new int[64];
      for (int j = 0; j < numbers.length; ++j) numbers[j] = (int) (i ^ j * 7919);
      Arrays.sort(numbers);
      sum += Arrays.stream(numbers).filter(n -> n > 0).count();
    }
    Path pid = Path.of(arguments[0] + ".new");
    Files.writeString(pid, ProcessHandle.current().pid() + "\n");
    Files.move(pid, Path.of(arguments[0]));
    System.in.read();
  }
}
)";
  std::string folder_;
  std::FILE* pipe_ = nullptr;
  int pid_ = 0;
};

// The runtime's knowledge of a method beside its code: the landing pads of its callees' exceptions and of callers that
// are taken apart, and the stubs of its calls (`mov rbx, METHOD; jmp`, runtime of src/hotspot/cpu/x86).
struct Stubs {
  std::vector<LandingPad> pads;
  std::vector<std::uint32_t> entries;
};

Stubs stubs_of(const Function& method) {
  Stubs found;
  const auto is = [&](std::size_t at, std::initializer_list<int> bytes) {
    return at + bytes.size() <= method.code.size() &&
           std::equal(bytes.begin(), bytes.end(), method.code.begin() + static_cast<std::ptrdiff_t>(at),
                      [](int x, std::byte y) { return static_cast<std::byte>(x) == y; });
  };
  const auto size = static_cast<std::uint32_t>(method.code.size());
  std::uint32_t handler = 0;  // the last one: mov r10, HERE; push r10; jmp
  for (std::uint32_t at = 0; at + 17 <= size; ++at) {
    std::uint64_t here = 0;
    std::memcpy(&here, &method.code[at + 2], sizeof here);
    if (is(at, {0x49, 0xba}) && here == method.begin + at && is(at + 10, {0x41, 0x52, 0xe9})) handler = at;
  }
  if (handler == 0) return found;
  // The other one in front of it: C1's call, mov rdi, and rsp, call, hlt; C2's jmp.
  constexpr std::uint32_t kOfC1 = 25, kJump = 5, kStub = 16;
  std::vector<std::uint32_t> pads = {handler};
  if (handler > kOfC1 && is(handler - kOfC1, {0xe8}) && is(handler - 1, {0xf4}))
    pads.push_back(handler - kOfC1);
  else if (handler > kJump && is(handler - kJump, {0xe9}))
    pads.push_back(handler - kJump);
  std::uint32_t end = pads.back();
  for (; end > kStub && is(end - kStub + 1, {0x48, 0xbb}) && is(end - 5, {0xe9}); end -= kStub)
    found.entries.push_back(end - kStub + 1);
  // C1's that takes the exception to the caller: mov rax, [r15 + N]; mov qword [r15 + N], 0.
  for (std::uint32_t at = 0; at + kStub < end; ++at)
    if (is(at, {0x49, 0x8b, 0x87}) && is(at + 7, {0x49, 0xc7, 0x87}) &&
        std::equal(&method.code[at + 3], &method.code[at + 7], &method.code[at + 10]))
      pads.push_back(at);
  // With the frame that most of the method has. A call that is no method's has pushed more, and does not throw.
  const auto alone = describe(method.code, method.begin, Architecture::kX86_64, {.keeps_frame_pointer_only = true});
  std::map<std::int64_t, std::uint64_t> bytes;
  for (const FrameRow& row : alone->rows) bytes[row.cfa.offset()] += row.end - row.begin;
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  for (const FrameRow& row : alone->rows)
    if (row.cfa.offset() == most->first)
      for (const std::uint32_t pad : pads)
        found.pads.push_back({static_cast<std::uint32_t>(row.begin), static_cast<std::uint32_t>(row.end), pad});
  return found;
}

TEST(DescribeJit, MethodsOfHotSpot) {
  if (test::run("command -v java && command -v jcmd").status != 0) GTEST_SKIP() << "SKIPPED: there is no java";
  Java java;
  ASSERT_TRUE(java.start());
  Judge judge;
  ASSERT_TRUE(judge.ok());
  Tally tallies[3];
  for (const auto& [level, methods] : java.methods())
    for (std::size_t i = 0; i < methods.size(); i += test::stride(level == 0 || level == 4 ? 1 : 8)) {
      const Stubs stubs = stubs_of(methods[i]);
      const DescribeOptions options{
          .keeps_frame_pointer_only = true, .landing_pads = stubs.pads, .entries = stubs.entries};
      judge.function(methods[i], options, true, tallies[level == 0 ? 0 : level == 4 ? 2 : 1]);
    }
  report("wrappers of native methods", tallies[0]);
  report("C1", tallies[1]);
  report("C2", tallies[2]);
  // Not proved is what the runtime alone leads to: where a handler of an exception begins, code behind a load that
  // faults. Which methods are compiled is another choice each time.
  constexpr double kLeast[] = {0.999, 0.92, 0.8};
  for (int kind = 0; kind < 3; ++kind) {
    EXPECT_GE(tallies[kind].functions, 20u);
    EXPECT_GE(tallies[kind].share(), kLeast[kind]);
    EXPECT_EQ(tallies[kind].with_prologue, tallies[kind].functions);
    expect_right(tallies[kind], 0.01);
    for (const std::size_t written : tallies[kind].written) EXPECT_GE(written * 100, tallies[kind].functions * 90);
  }
}

}  // namespace
}  // namespace windlass
