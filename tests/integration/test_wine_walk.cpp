// Live Wine processes: every thread's stack down to its start, PE and ELF frames in one, compared with the stacks that
// the program prints.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/mapped_file.h"
#include "formats/image/pe_names.h"
#include "os/proc_file.h"
#include "support/wine_program.h"
#include "walk/target/modules.h"
#include "walk/target/process_memory.h"
#include "windlass/symbols.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using test::WineProgram;

// A dump's "C:\\Windows\\X.DLL" and a process's "/usr/.../x.dll" are one image.
std::string base_name(const std::string& path) {
  std::string name = path.substr(path.find_last_of("\\/") + 1);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

// Functions of PE modules.
class Names {
 public:
  std::string of(const Frame& frame) {
    if (frame.module == nullptr || !frame.module->windows) return {};
    const auto [entry, is_new] = images_.try_emplace(base_name(frame.module->path));
    Image& image = entry->second;
    if (is_new)
      if (auto file = MappedFile::open(frame.module->path)) {
        image.file = std::move(*file);
        if (auto parsed = image::PeImage::parse(image.file.bytes())) image.symbols = image::PeSymbols::make(*parsed);
      }
    const auto symbol = image.symbols.nearest(static_cast<std::uint32_t>(frame.pc().lookup() - frame.module->bias));
    return symbol ? std::string(symbol->name) : std::string();
  }

 private:
  struct Image {
    MappedFile file;
    image::PeSymbols symbols;
  };
  std::map<std::string, Image> images_;
};

struct Stack {
  std::vector<std::uint64_t> pcs;
  std::vector<std::string> names;  // of PE functions; empty where not known, or ELF
  std::vector<bool> windows;
  WalkEnd end = WalkEnd::kRunning;
  std::string error;

  [[nodiscard]] bool has(const std::string& name) const { return std::ranges::find(names, name) != names.end(); }
  // Do these functions stand in it in this order, innermost first?
  [[nodiscard]] bool has_in_order(const std::vector<std::string>& wanted) const {
    std::size_t at = 0;
    for (const std::string& name : names) at += at < wanted.size() && name == wanted[at] ? 1 : 0;
    return at == wanted.size();
  }
  [[nodiscard]] std::string text() const {
    std::ostringstream out;
    for (std::size_t i = 0; i < pcs.size(); ++i) out << std::hex << pcs[i] << ' ' << names[i] << '\n';
    out << end_name(end) << ' ' << error;
    return out.str();
  }
};

std::vector<Stack> walk(const AddressSpace& space, const std::vector<Thread>& threads, Names& names) {
  std::vector<Stack> stacks;
  for (const Thread& thread : threads) {
    Stack& stack = stacks.emplace_back();
    StackWalker walker(space, thread.registers);
    do {
      stack.pcs.push_back(walker.frame().pc().value());
      stack.names.push_back(names.of(walker.frame()));
      stack.windows.push_back(walker.frame().module != nullptr && walker.frame().module->windows);
    } while (walker.step());
    stack.end = walker.end_reason();
    stack.error = walker.error().text();
  }
  return stacks;
}

// What must stand between the function that waits and the thread's start, innermost first.
const std::map<std::string, std::vector<std::string>> kChains = {
    {"main", {"main", "mainCRTStartup"}},
    {"deep", {"recurse", "recurse", "recurse", "deep_thread"}},
    {"qsort", {"compare", "sorting_thread"}},
    {"dll", {"relayed", "relay", "relay", "relay", "relay", "relay", "relay", "relaying_thread"}},
    {"apc", {"on_apc", "KiUserApcDispatcher", "NtDelayExecution", "SleepEx", "apc_thread"}},
    {"fault", {"on_exception", "KiUserExceptionDispatcher", "fault", "faulting_thread"}},
    {"raise", {"on_exception", "RtlRaiseException", "RaiseException", "raising_thread"}},
    {"landing", {"catching_thread"}},
    {"timer", {"on_timer"}},
};

// What Wine's Unix side calls back is printed to the first callback's frame: the system's own unwinder stops there.
const std::map<std::string, std::vector<std::string>> kCallbackChains = {
    {"window", {"on_message", "KiUserCallbackDispatcher", "NtUserCreateWindowEx", "CreateWindowExA", "window_thread"}},
    {"nested",
     {"on_nested_message", "KiUserCallbackDispatcher", "NtUserSetWindowPos", "move", "on_nested_message",
      "KiUserCallbackDispatcher", "NtUserSetWindowPos", "move", "on_nested_message", "KiUserCallbackDispatcher",
      "NtUserSetWindowPos", "move", "on_nested_message", "KiUserCallbackDispatcher", "NtUserSetWindowPos", "move",
      "nesting_thread"}},
};

class WineWalk : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (test::find_wine().empty() || ::access(kProgram, R_OK) != 0) return;
    program_ = new WineProgram(WINDLASS_WINE_PREFIX, {kProgram});
    published_ = test::read_stacks(*program_, kLines);
  }
  static void TearDownTestSuite() {
    delete program_;
    program_ = nullptr;
  }
  void SetUp() override {
    if (test::find_wine().empty()) GTEST_SKIP() << "there is no Wine (package wine64)";
    if (program_ == nullptr)
      GTEST_SKIP() << "the program was not built: there is no MinGW (package g++-mingw-w64-x86-64)";
    ASSERT_EQ(published_.size(), kLines) << "the program did not start its threads";
  }

  // The stack whose frames from the function that printed it on are those printed; the first pc, in that function, is
  // another one now.
  static void expect_published(const std::vector<Stack>& stacks, const std::string& name, bool live) {
    const std::vector<std::uint64_t>& pcs = published_[name];
    const Stack* closest = nullptr;
    for (const Stack& stack : stacks) {
      const auto waits = std::ranges::find(stack.names, "publish_and_wait") - stack.names.begin();
      const std::vector<std::uint64_t> below(stack.pcs.begin() + std::min<long>(waits + 1, std::ssize(stack.pcs)),
                                             stack.pcs.end());
      if (below.empty() || pcs.size() < 2 || below.front() != pcs[1]) continue;
      closest = &stack;
      EXPECT_EQ(below, std::vector<std::uint64_t>(pcs.begin() + 1, pcs.end())) << name << '\n' << stack.text();
      EXPECT_EQ(stack.end, WalkEnd::kComplete) << name << '\n' << stack.text();
      std::vector<std::string> chain = kChains.at(name);
      chain.insert(chain.begin(), "publish_and_wait");
      chain.push_back("BaseThreadInitThunk");
      chain.push_back("RtlUserThreadStart");
      EXPECT_TRUE(stack.has_in_order(chain)) << name << '\n' << stack.text();
      EXPECT_EQ(stack.windows.front(), !live) << "a wait is in Wine's Unix side";
    }
    EXPECT_NE(closest, nullptr) << name << " is in no stack";
  }

  // Finds the stack with the printed frames, up to the dispatcher with which they end. Below it are the Unix side's
  // frames. Each callback's frames lie between the code that called back and its dispatcher.
  static void expect_called_back(const std::vector<Stack>& stacks, const std::string& name) {
    std::vector<std::uint64_t> pcs = published_[name];
    pcs.erase(std::ranges::find(pcs, kMark), pcs.end());
    ASSERT_GE(pcs.size(), 3u) << name;
    const auto stack = std::ranges::find_if(stacks, [&](const Stack& it) {
      return !std::ranges::search(it.pcs, std::vector(pcs.begin() + 1, pcs.end())).empty();
    });
    ASSERT_NE(stack, stacks.end()) << name << " is in no stack";
    EXPECT_EQ(stack->end, WalkEnd::kComplete) << name << '\n' << stack->text();
    std::vector<std::string> chain = kCallbackChains.at(name);
    chain.insert(chain.begin(), "publish_and_wait");
    chain.push_back("BaseThreadInitThunk");
    chain.push_back("RtlUserThreadStart");
    EXPECT_TRUE(stack->has_in_order(chain)) << name << '\n' << stack->text();
    const auto printed = std::ranges::count(chain, "publish_and_wait");
    EXPECT_EQ(std::ranges::count(stack->names, "publish_and_wait"), printed) << stack->text();
    for (const char* function : {"on_message", "on_nested_message", "move", "KiUserCallbackDispatcher"})
      EXPECT_EQ(std::ranges::count(stack->names, function), std::ranges::count(chain, function)) << stack->text();
    for (std::size_t i = 0; i + 1 < stack->names.size(); ++i) {
      if (stack->names[i] == "KiUserCallbackDispatcher") {
        EXPECT_FALSE(stack->windows[i + 1]) << stack->text();
      }
    }
  }

  static constexpr std::uint64_t kMark = 0xdeadbabe;  // that Wine 8 has in place of a callback's return address
  static constexpr std::size_t kLines = 1 + 9 + 2;    // the process, the threads of kChains and kCallbackChains
  static constexpr const char* kProgram = WINDLASS_WINE_WORKLOADS "/wine_stacks.exe";
  static inline WineProgram* program_ = nullptr;
  static inline std::map<std::string, std::vector<std::uint64_t>> published_;
};

TEST_F(WineWalk, StacksAreWhatTheProgramSays) {
  const auto target = open_process(static_cast<std::uint64_t>(program_->pid()));
  ASSERT_TRUE(target) << target.error().text();
  EXPECT_TRUE(target->problems.empty());
  Names names;
  const auto stacks = walk(target->space, target->threads, names);
  for (const auto& [name, chain] : kChains) expect_published(stacks, name, true);
  for (const auto& [name, chain] : kCallbackChains) expect_called_back(stacks, name);
  for (const ModuleInfo* module : target->space.modules())
    EXPECT_TRUE(!module->windows || !module->file.empty()) << module->path;
}

#ifdef WINDLASS_SYMBOLS
// The public symbol reader has the same names: of the process as it was opened, and as others see it.
TEST_F(WineWalk, TheSymbolReaderNamesPeFrames) {
  const auto target = open_process(static_cast<std::uint64_t>(program_->pid()));
  ASSERT_TRUE(target) << target.error().text();
  const auto from_outside = Symbolizer::of_process(static_cast<std::uint64_t>(program_->pid()));
  ASSERT_TRUE(from_outside) << from_outside.error().text();
  const Symbolizer of_target = Symbolizer::of_target(*target);
  Names unused;
  auto stacks = walk(target->space, target->threads, unused);
  for (const Symbolizer* symbols : {&*from_outside, &of_target}) {
    for (std::size_t i = 0; i < stacks.size(); ++i) {
      stacks[i].names.clear();
      for (const Frame& frame : StackWalker(target->space, target->threads[i].registers)) {
        const NamedAddress named = symbols->name(frame);
        stacks[i].names.emplace_back(named.frames.empty() ? "" : named.frames.back().function);
      }
    }
    for (const auto& [name, chain] : kChains) expect_published(stacks, name, true);
    for (const auto& [name, chain] : kCallbackChains) expect_called_back(stacks, name);
  }
}
#endif

// One thread spins, one was suspended while it did: Wine's handler of SIGUSR1 waits on top of the loop.
TEST_F(WineWalk, InterruptedLoopsAreWalkedWhereverTheyAre) {
  for (int round = 0; round < 50; ++round) {
    const auto target = open_process(static_cast<std::uint64_t>(program_->pid()));
    ASSERT_TRUE(target) << target.error().text();
    Names names;
    unsigned spinning = 0, suspended = 0;
    for (const Stack& stack : walk(target->space, target->threads, names)) {
      if (!stack.has("spinning_thread")) continue;
      EXPECT_TRUE(stack.has_in_order({"spin_outer", "spinning_thread", "BaseThreadInitThunk", "RtlUserThreadStart"}))
          << stack.text();
      EXPECT_EQ(stack.end, WalkEnd::kComplete) << stack.text();
      ++(stack.windows.front() ? spinning : suspended);
    }
    EXPECT_GE(spinning + suspended, 2u);
    EXPECT_GE(suspended, 1u);
  }
}

// Without a file, the images are read from memory: the same stacks.
TEST_F(WineWalk, ImagesInMemoryGiveTheSameStacks) {
  const auto pid = program_->pid();
  const auto target = open_process(static_cast<std::uint64_t>(pid));
  ASSERT_TRUE(target) << target.error().text();
  Target other(TargetKind::kProcess, AddressSpace(Architecture::kX86_64, std::make_unique<walk::ProcessMemory>(pid)));
  const auto maps = os::parse_proc_maps(os::read_proc_file("/proc/" + std::to_string(pid) + "/maps"));
  const auto none = [](const os::ProcMap&, walk::BuildId&) { return std::vector<walk::FileCandidate>(); };
  (void)walk::add_modules(other, maps, none, 4096, [](auto) { return manager::PublishedCodes(); });
  Names names;
  const auto expected = walk(target->space, target->threads, names);
  const auto found = walk(other.space, target->threads, names);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].pcs, expected[i].pcs) << expected[i].text() << "\nbut\n" << found[i].text();
    EXPECT_EQ(found[i].end, expected[i].end);
  }
}

// Windows' own dumps. A small one has stacks and registers, and its images are files of the prefix. A full one has the
// images, too.
TEST_F(WineWalk, MinidumpsHaveTheSameStacks) {
  const std::string small = WINDLASS_WINE_WORKLOADS "/small.dmp", full = WINDLASS_WINE_WORKLOADS "/full.dmp";
  WineProgram writer(WINDLASS_WINE_PREFIX, {WINDLASS_WINE_WORKLOADS "/wine_dump.exe",
                                            std::to_string(published_["process"].at(0)), "Z:" + small, "Z:" + full});
  ASSERT_EQ(writer.wait(), 0) << "the dumps could not be written";
  const auto live = open_process(static_cast<std::uint64_t>(program_->pid()));
  ASSERT_TRUE(live) << live.error().text();
  Names names;
  (void)walk(live->space, live->threads, names);  // whose files are known
  for (const bool with_files : {true, false}) {
    DumpOptions options;
    if (with_files) options.files.sysroot = WINDLASS_WINE_PREFIX;
    const auto dump = open_minidump(with_files ? small : full, options);
    ASSERT_TRUE(dump) << dump.error().text();
    for (const Error& problem : dump->problems) ADD_FAILURE() << problem.text();
    EXPECT_EQ(dump->threads.size(), live->threads.size());
    unsigned files = 0, in_memory = 0;
    for (const ModuleInfo* module : dump->space.modules())
      if (module->windows) ++(module->file.empty() ? in_memory : files);
    EXPECT_EQ(in_memory == 0, with_files);
    EXPECT_GT(files, 0u);
    const auto stacks = walk(dump->space, dump->threads, names);
    for (const auto& [name, chain] : kChains) expect_published(stacks, name, false);
    unsigned spinning = 0;
    for (const Stack& stack : stacks) {
      if (!stack.has("spinning_thread")) continue;
      EXPECT_TRUE(stack.has_in_order({"spin_outer", "spinning_thread", "BaseThreadInitThunk", "RtlUserThreadStart"}))
          << stack.text();
      EXPECT_EQ(stack.end, WalkEnd::kComplete) << stack.text();
      ++spinning;
    }
    EXPECT_EQ(spinning, 2u);
  }
  ::unlink(small.c_str());
  ::unlink(full.c_str());
}

}  // namespace
}  // namespace windlass
