// Raw samples of managed runtimes, unwound by the agent, which teaches the kernel side's code; then unwound by that.
// What the kernel side calls whole must be what the agent found: the frames, and which function runs in each.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "profiler/samples/frame_teacher.h"
#include "profiler/samples/raw_unwinder.h"
#include "profiler/samples/taken_words.h"
#include "profiler/samples/user_frame.h"
#include "support/kernel_walk.h"
#include "support/privilege.h"
#include "support/raw_samples.h"
#include "support/run_command.h"
#ifdef __x86_64__
#include "integration/coreclr/program.h"
#endif

namespace windlass::profiler {
namespace {

struct Program {
  const char* name;
  const char* needs;
  const char* file;
  const char* text;
  const char* command;  // with the file as {}
};
void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }

class LearnedFrames : public testing::TestWithParam<Program> {};

// Where the kernel side reads a frame in memory of the runtime instead.
bool is_held(const MapSet& maps, std::uint64_t frame) {
  return std::ranges::any_of(maps.published(), [&](const auto& code) {
    return std::ranges::any_of(code->holding_code(),
                               [&](const auto& held) { return held.range.contains(lookup_address(frame)); });
  });
}

// What a function's lessons say of a frame's place is what is said of the place alone.
void expect_same_lessons(const MapSet& maps, std::uint64_t frame) {
  const CodeAddress pc = code_address(frame);
  const Mapping* mapping = maps.find(pc.lookup());
  const auto* code = mapping != nullptr ? maps.published_of(*mapping) : nullptr;
  if (code == nullptr) return;
  const auto all = (*code)->lessons_around(pc);
  const auto found = std::ranges::find_if(all, [&](const auto& it) { return it.stretch.contains(pc.lookup()); });
  if (found == all.end()) return;
  const auto& lesson = is_exact(frame) ? found->interrupted : found->called;
  if (!lesson) return;
  const auto alone = (*code)->lesson(pc);
  ASSERT_TRUE(alone);
  EXPECT_EQ(std::memcmp(&*lesson, &*alone, sizeof *alone), 0) << std::hex << frame;
}

// Until the process has used that much CPU time, which takes long on a busy machine.
void run_for(pid_t pid, double seconds) {
  clockid_t clock{};
  timespec used{};
  ASSERT_EQ(::clock_getcpuclockid(pid, &clock), 0);
  for (int i = 0; i < 3000; ++i) {
    ::usleep(100'000);
    ASSERT_EQ(::clock_gettime(clock, &used), 0);
    if (static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9 >= seconds) return;
  }
}

// What a program's frames are taught by, and whether some of them take words along.
struct Lessons {
  std::size_t samples = ~std::size_t{0};  // the first ones
  bool words = true;
  std::size_t percent = 80;  // of the whole stacks are walked by the kernel side, at least
};

void expect_those_of_the_agent(const char* name, const std::string& command, const Lessons& lessons) {
  const test::Child child(command);
  run_for(child.pid(), 1);  // what runs often is compiled
  const std::vector<test::Event> events = test::sample(child.pid(), std::chrono::seconds(1));
  child.stop();
  ASSERT_GE(events.size(), test::kFewest);

  ModuleRegistry registry(nullptr);
  ProcessTable table([&](std::uint32_t tgid, std::uint32_t parent, const os::ProcMap& map) {
    return registry.resolve(tgid, parent, map);
  });
  ASSERT_TRUE(table.scan(child.pid(), 1));
  const MapSet& maps = *table.find(child.pid())->maps;
  ASSERT_FALSE(maps.published().empty());
  const int process = ::open(fmt::format("/proc/{}/mem", child.pid()).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(process, 0);

  RawSample now;
  const auto kernel = test::KernelWalk::make(maps, registry, [&](std::uint64_t address, void* to, std::size_t size) {
    if (now.stack.read(address, to, size) || now.code.read(address, to, size)) return true;
    // Stacks have gone on since. A row may say of what was just popped that it is below sp: the red zone counts, too.
    constexpr std::uint64_t kRedZone = 128;
    const bool stack = address + kRedZone - now.stack.address < WL_MAX_RAW_STACK + kRedZone;
    return !stack && ::pread(process, to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
  });
  ASSERT_NE(kernel, nullptr);
  RawUnwinder unwinder(registry);
  FrameTeacher teacher([&](const wl_learned_key& key, const wl_learned& lesson) { kernel->teach(key, lesson); });
  const FrameTeacher::Pupil process_of{0, 0, maps};
  TakenWords taken;
  std::vector<RawEvent> samples;
  std::vector<UnwoundStack> expected;
  for (const test::Event& event : events) {
    auto parsed = parse_raw_event(reinterpret_cast<const wl_event_head&>(event[0]), event.size() * 8);
    ASSERT_TRUE(parsed);
    expected.push_back(unwinder.unwind(parsed->sample, &maps));
    if (samples.size() < lessons.samples) teacher.teach(process_of, expected.back().frames, parsed->sample.time);
    samples.push_back(std::move(*parsed));
  }
  std::set<std::uint64_t> places;
  for (const UnwoundStack& stack : expected)
    if (!stack.frames.empty()) places.insert(stack.frames.begin(), stack.frames.end() - 1);
  for (const std::uint64_t frame : places) expect_same_lessons(maps, frame);
  std::size_t whole = 0, by_kernel = 0, named = 0;
  std::vector<std::uint64_t> frames;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    now = samples[i].sample;
    const UnwoundStack& agent = expected[i];
    if (agent.end != WL_END_COMPLETE || std::ranges::any_of(agent.frames, [&](auto f) { return is_held(maps, f); }))
      continue;
    ++whole;
    if (kernel->walk(now.registers, WL_MAX_USER_FRAMES, frames) != WL_END_COMPLETE) continue;
    ++by_kernel;
    EXPECT_EQ(frames, agent.frames);
    auto functions = taken.functions({now.time, frames, kernel->taken_words()}, process_of, teacher);
    functions.resize(frames.size());
    auto by_agent = agent.functions;
    by_agent.resize(frames.size());
    EXPECT_EQ(functions, by_agent);
    named += static_cast<std::size_t>(std::ranges::count_if(functions, [](auto function) { return function != 0; }));
    if (testing::Test::HasFailure()) break;
  }
  ::close(process);
  fmt::print("{}: {} samples, {} whole, {} of these by the kernel side, {} frames with words\n", name, samples.size(),
             whole, by_kernel, named);
  EXPECT_EQ(named != 0, lessons.words);
  EXPECT_GE(by_kernel * 100,
            whole * lessons.percent);  // more, where the code is not in its prologues and epilogues all the time
}

TEST_P(LearnedFrames, AreThoseOfTheAgent) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const Program& program = GetParam();
  if (::access(program.needs, X_OK) != 0) GTEST_SKIP() << program.needs << " is not here";
  const std::string folder = testing::TempDir() + fmt::format("learned_{}_{}", program.name, ::getpid());
  std::filesystem::create_directory(folder);
  const std::string file = folder + "/" + program.file;
  std::ofstream(file) << program.text;
  expect_those_of_the_agent(program.name, fmt::format(fmt::runtime(program.command), file), {});
  std::filesystem::remove_all(folder);
}

#ifdef __x86_64__
// A few lessons serve all methods of .NET: the kernel side reads their unwind information. Interrupted instructions
// that may be in an epilogue are learned one by one.
TEST(LearnedFramesOfDotNet, AreThoseOfTheAgent) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (const std::string why = test::make_coreclr_program("methods"); !why.empty()) GTEST_SKIP() << why;
  expect_those_of_the_agent("dotnet", "exec " + test::kCoreClrFolder + "/methods",
                            {.samples = 20, .words = false, .percent = 50});
}
#endif

constexpr const char* kScript = R"(
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
class A { constructor(x) { this.x = x; } area() { return this.x * this.x; } }
function sorted(n) {
  const a = [];
  for (let i = 0; i < n; i++) a.push(new A((i * 7919) % 1000));
  return a.map(x => x.area()).sort((x, y) => x - y).filter(x => x % 2).length;
}
for (let i = 0; i < 9; i++) /a(b|c)+d$/.test('abcbcd'.repeat(i));  // its code is where V8 is looked for
for (let sum = 0;; ) { sum += fib(15) + sorted(500) + JSON.parse(JSON.stringify([...Array(99).keys()].map(String))).length; }
)";
constexpr const char* kClass = R"(
import java.util.*;
import java.util.stream.*;
public class Learned {
  static long fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
  interface Shape { double area(); }
  record Square(double a) implements Shape { public double area() { return a * a; } }
  record Circle(double r) implements Shape { public double area() { return 3.14 * r * r; } }
  static long round() {
    Map<String, Integer> map = new HashMap<>();
    for (int i = 0; i < 500; i++) map.merge("k" + i % 97, 1, Integer::sum);
    List<Shape> list = new ArrayList<>();
    for (int i = 0; i < 500; i++) list.add(i % 2 == 0 ? new Square(i) : new Circle(i));
    return fib(15) + map.size() + (long)list.stream().mapToDouble(Shape::area).sorted().sum();
  }
  static long run() {
    long sum = 0;
    while (sum != 1) sum += round();
    return sum;
  }
  public static void main(String[] arguments) { System.out.println(run()); }
}
)";
constexpr Program kPrograms[] = {
    {"node", "/usr/bin/node", "learned.js", kScript, "exec node {}"},
    {"node_interpreted", "/usr/bin/node", "learned.js", kScript, "exec node --no-opt --no-sparkplug {}"},
    {"node_baseline", "/usr/bin/node", "learned.js", kScript, "exec node --no-opt --always-sparkplug {}"},
    {"java", "/usr/bin/java", "Learned.java", kClass, "exec java {}"},
    {"java_c1", "/usr/bin/java", "Learned.java", kClass, "exec java -XX:TieredStopAtLevel=1 {}"},
    {"java_interpreted", "/usr/bin/java", "Learned.java", kClass, "exec java -Xint {}"},
};
// What is learned serves a recording: the raw stacks are those of its beginning.
TEST(LearnedFramesOfRecord, FewSamplesGoToTheAgent) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (::access("/usr/bin/node", X_OK) != 0) GTEST_SKIP() << "/usr/bin/node is not here";
  const std::string file = testing::TempDir() + fmt::format("learned_{}.js", ::getpid());
  std::ofstream(file) << kScript;
  const auto recorded =
      test::run(fmt::format("{} record -v -F 997 --duration 8 -o /dev/null -- node {} 2>&1", WINDLASS_COMMAND, file));
  std::filesystem::remove(file);
  std::smatch found;
  const std::regex line("kernel: ([0-9,]+) repeats counted, ([0-9,]+) new stacks, ([0-9,]+) unwound by the agent");
  ASSERT_TRUE(std::regex_search(recorded.output, found, line)) << recorded.output;
  const auto number = [&](std::size_t i) {
    std::string digits = found[i];
    std::erase(digits, ',');
    return std::stoul(digits);
  };
  EXPECT_GT(number(1) + number(2), number(3)) << recorded.output;
}

INSTANTIATE_TEST_SUITE_P(Programs, LearnedFrames, testing::ValuesIn(kPrograms),
                         [](const auto& program) { return program.param.name; });

}  // namespace
}  // namespace windlass::profiler
