// The main thread of node, single-stepped. At each instruction of V8's builtins and of generated code the walker must
// give the caller of a shadow stack.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "integration/v8/program.h"
#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_facts.h"
#include "runtimes/v8/image_file.h"
#include "support/alarms.h"
#include "support/find_in_images.h"
#include "support/module_names.h"
#include "support/step_judge.h"
#include "support/whole.h"
#include "windlass/symbols.h"

namespace windlass {
namespace {

namespace v8 = runtimes::v8;
using test::StepJudge;

// Of the instructions that were not judged before: all callers that are known.
std::string compare_all(StepJudge& judge, const user_regs_struct& now) {
  const std::vector<StepJudge::Call>& calls = judge.calls_on(0);
  StackWalker walker(judge.target().space, test::registers_of(now));
  for (std::size_t i = calls.size(); i-- > 0;) {
    const bool stepped = walker.step();
    if (judge.ways.may_refuse && (!stepped || walker.frame().certainty >= FrameCertainty::kChained)) break;
    if (!stepped) return fmt::format("caller {}: {}", calls.size() - i, walker.error().text());
    if (walker.frame().pc().value() != calls[i].pc)
      return fmt::format("caller {}: pc {:#x}, not {:#x}", calls.size() - i, walker.frame().pc().value(), calls[i].pc);
  }
  return {};
}

void add_peers(StepJudge& judge, const std::string& program) {
  auto file = MappedFile::open(program);
  const auto facts = file ? v8::ImageFacts::read(file->bytes()) : Failure(file.error());
  const auto layout = facts ? v8::Layout::make(*facts) : Failure(facts.error());
  ASSERT_TRUE(layout);
  judge.add_peer("OTel's rule", [&judge, layout = *layout](const user_regs_struct& now) {
    return test::otel_v8(v8::Heap(judge.memory(), layout), now);
  });
}

// The builtin in the program's file at a pc; null: none is there.
const v8::ImageFacts::Builtin* builtin_at(const v8::ImageFacts& facts, const StepJudge& judge, std::uint64_t pc) {
  const walk::Module* module = walk::module_at(judge.target().space, pc);
  return module != nullptr && !module->info().file.empty() ? facts.builtin_at(pc - module->info().bias) : nullptr;
}

// A node without symbols, for as long as the test runs.
class StrippedNode {
 public:
  // `command`: what else is done to the file.
  explicit StrippedNode(const std::string& program, const std::string& command = "true") {
    stripped_ = test::run(fmt::format("strip -o {0} {1} && {2} {0}", path_, program, command)).status == 0;
    auto file = MappedFile::open(program);
    auto facts = file ? v8::ImageFacts::read(file->bytes()) : Failure(file.error());
    if (facts) facts_ = std::move(*facts);
  }
  ~StrippedNode() { (void)::unlink(path_.c_str()); }
  StrippedNode(const StrippedNode&) = delete;
  StrippedNode& operator=(const StrippedNode&) = delete;

  [[nodiscard]] bool is_made() const { return stripped_ && !facts_.builtins().empty(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  // One byte of it, which nothing executes.
  [[nodiscard]] bool spoil_padding() const {
    const auto file = MappedFile::open(path_);
    const auto image = file ? image::ElfImage::parse(file->bytes()) : Failure(file.error());
    if (!image) return false;
    const std::uint64_t at = facts_.builtins()[1].begin - 1;
    const auto has = [&](const image::Segment& it) { return it.type == PT_LOAD && at - it.vaddr < it.filesz; };
    const auto segment = std::ranges::find_if(image->segments(), has);
    if (segment == image->segments().end()) return false;
    const std::uint64_t offset = at - segment->vaddr + segment->offset;
    std::fstream to(path_, std::ios::in | std::ios::out | std::ios::binary);
    to.seekp(static_cast<std::streamoff>(offset)).put('\x90');
    return to.flush().good() && file->bytes().data()[offset] == std::byte{0x90};
  }
  // By the symbols that the program had; null: none is there.
  [[nodiscard]] const v8::ImageFacts::Builtin* builtin(const StepJudge& judge, std::uint64_t pc) const {
    return builtin_at(facts_, judge, pc);
  }

 private:
  std::string path_ = test::kV8Folder + "/stripped_node." + std::to_string(::getpid());
  bool stripped_ = false;
  v8::ImageFacts facts_;
};

// Builtins have the names of the file's symbols, or of those that it had.
void set_ways(StepJudge& judge, const StrippedNode* stripped = nullptr) {
  judge.ways.also = [&judge, seen = std::size_t{0}](const user_regs_struct& now, const StepJudge::Call&) mutable {
    if (judge.instructions.size() == seen) return std::string();
    seen = judge.instructions.size();
    return compare_all(judge, now);
  };
  judge.ways.preserved = {6};  // rbp; all others are the caller's to save
  judge.ways.moves_return_address = true;
  const auto symbols = std::make_shared<Symbolizer>(Symbolizer::of_space(judge.target().space));
  const auto known = std::make_shared<std::map<std::uint64_t, std::string>>();  // builtins stay where they are
  const auto name = [&judge, symbols, known, stripped](std::uint64_t pc) {
    if (judge.generated(pc) == nullptr) return std::string();
    if (stripped != nullptr) {
      const v8::ImageFacts::Builtin* builtin = stripped->builtin(judge, pc);
      return builtin != nullptr ? "Builtins_" + builtin->name : std::string();
    }
    const auto [found, is_new] = known->try_emplace(pc);
    const NamedAddress named = is_new ? symbols->name(CodeAddress::instruction(pc)) : NamedAddress();
    if (!named.frames.empty()) found->second = named.frames.back().linkage_name;
    return found->second;
  };
  // The frames of optimised code become those of the interpreter; an exception is handled by a frame further up.
  judge.ways.remakes_stack = [name, &judge](const user_regs_struct& before, const user_regs_struct& now) {
    const std::string builtin = name(before.rip);
    return builtin.starts_with("Builtins_DeoptimizationEntry") ||
           (builtin.starts_with("Builtins_CEntry") && now.rsp > before.rsp && judge.makes_sp(before.rip));
  };
  judge.ways.place = [name, &judge](std::uint64_t pc) {
    const walk::Module* module = judge.generated(pc);
    const std::uint64_t begin = module != nullptr ? module->function_start(pc) : 0;
    return fmt::format(" [{}+{:#x}]", name(pc), pc - begin);
  };
  judge.ways.name = [&judge](const Frame& frame) {
    const std::uint64_t pc = frame.pc().value();
    return test::made_name(judge.generated(pc), pc, frame.function);
  };
}

void judge_all(StepJudge& judge, int major, const test::NodeWay& way, std::string_view what) {
  const std::size_t functions = test::whole() && !way.is_wasm() ? 40 : 10, judged = test::whole() ? 20'000 : 1'000;
  judge.run(test::whole() ? 200'000 : 30'000,
            [&] { return judge.methods.size() >= functions && judge.judged >= judged; });
  ::printf("%s %d %s: %zu instructions judged, %zu different ones of %zu builtins and functions: %zu wrong\n",
           what.data(), major, way.name, judge.judged, judge.instructions.size(), judge.methods.size(), judge.wrong);
  ::printf("%s", judge.peers_text().c_str());
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_GE(judge.judged, judged);
  EXPECT_GE(judge.methods.size(), functions);
}

// `set`: what it judges by.
void judge_program(const std::string& file, int major, const test::NodeWay& way, std::string_view what,
                   const std::function<void(StepJudge&)>& set) {
  SCOPED_TRACE(fmt::format("{} {}", file, way.name));
  const test::NodeProgram program(file, way, {"step", way.seconds});
  ASSERT_FALSE(program.printed().empty());
  ASSERT_TRUE(test::stop(program.pid()));
  StepJudge judge(program.pid());
  // The main thread may wait for another one, and for good (seen twice).
  const test::Alarms alarms(900'000);
  set(judge);
  judge_all(judge, major, way, what);
  ::kill(program.pid(), SIGKILL);
  ::waitpid(program.pid(), nullptr, __WALL);
}

TEST(V8Steps, EveryInstructionHasItsCaller) {
  const std::vector<test::NodeRelease> releases = test::all_node_releases();
  if (releases.empty()) GTEST_SKIP() << "no node";
  for (const test::NodeRelease& release : releases) {
    const bool is_oldest = release.major <= test::kFirstThatTells, is_newest = release.major == 26;
    int turn = is_newest ? 1 : 0;  // an ordinary run takes half of the ways of two releases, the others of another
    if (!test::whole() && &release != &releases.front() && !is_oldest && !is_newest) continue;
    for (const test::NodeWay& way : test::node_ways(release.major)) {
      if (!test::whole() && turn++ % 2 != 0) continue;
      judge_program(release.program, release.major, way, "node", [&](StepJudge& judge) {
        set_ways(judge);
        add_peers(judge, release.program);
      });
    }
  }
}

// The builtins of a stripped node are found by the list that V8 has for itself.
TEST(V8Steps, EveryInstructionOfAStrippedNodeHasItsCaller) {
  const std::vector<test::NodeRelease> releases = test::node_releases();
  if (releases.empty()) GTEST_SKIP() << "no node";
  for (const test::NodeRelease& release : releases) {
    if (!test::whole() && &release != &releases.front() && &release != &releases.back()) continue;
    const StrippedNode stripped(release.program);
    ASSERT_TRUE(stripped.is_made());
    for (const test::NodeWay& way : test::node_ways(release.major)) {
      const std::string name = way.name;
      if (!test::whole() && name != "interpreted" && name != "tiers") continue;
      judge_program(stripped.path(), release.major, way, "stripped node",
                    [&](StepJudge& judge) { set_ways(judge, &stripped); });
    }
  }
}

// The layout is that of the version that the file names.
TEST(V8Steps, EveryInstructionOfDenoHasItsCaller) {
  const std::string deno = test::deno();
  if (deno.empty()) GTEST_SKIP() << "no deno";
  const auto file = MappedFile::open(deno);
  ASSERT_TRUE(file);
  const auto facts = v8::ImageFacts::read_without_symbols(file->bytes());
  ASSERT_TRUE(facts) << facts.error().text();
  for (const test::NodeWay& way : test::deno_ways()) {
    if (!test::whole() && way.name != std::string_view("tiers")) continue;
    judge_program(deno, 0, way, "deno", [&](StepJudge& judge) {
      set_ways(judge);
      judge.ways.remakes_stack = [&](const user_regs_struct& before, const user_regs_struct& now) {
        const v8::ImageFacts::Builtin* at = builtin_at(*facts, judge, before.rip);
        return at != nullptr && (at->name.starts_with("DeoptimizationEntry") ||
                                 (at->name.empty() && now.rsp > before.rsp && judge.makes_sp(before.rip)));
      };
    });
  }
}

// To the file of a node: it has nothing for debuggers.
constexpr const char* kWithoutFacts = "LC_ALL=C sed -i s/v8dbg_/xxdbg_/g";

// Of a program that says nothing of its V8: instructions may be refused, one of `share`.
void judge_builtins(const StrippedNode& stripped, const test::NodeRelease& release, std::size_t share) {
  for (const test::NodeWay& way : test::node_ways(release.major)) {
    if (way.name != std::string("interpreted") && way.name != std::string("tiers")) continue;
    SCOPED_TRACE(fmt::format("{} {}", release.program, way.name));
    const test::NodeProgram node(stripped.path(), way, {"step", way.seconds});
    ASSERT_FALSE(node.printed().empty());
    ASSERT_TRUE(test::stop(node.pid()));
    StepJudge judge(node.pid());
    const test::Alarms alarms(900'000);
    set_ways(judge);
    const auto builtin = [&](std::uint64_t pc) { return stripped.builtin(judge, pc); };
    judge.ways.may_refuse = judge.ways.takes_arguments = true;
    // One builtin makes its caller's frame. At a return the registers are the caller's, whatever they were at the
    // call.
    judge.ways.judges = [&](std::uint64_t pc) {
      const v8::ImageFacts::Builtin* at = builtin(pc);
      std::uint8_t opcode = 0;
      return at != nullptr && at->name != "BaselineOutOfLinePrologue" &&
             judge.memory().read(pc, &opcode, sizeof opcode) && opcode != 0xc3;
    };
    judge.ways.remakes_stack = [&](const user_regs_struct& before, const user_regs_struct& now) {
      const v8::ImageFacts::Builtin* at = builtin(before.rip);
      return at != nullptr && (at->name.starts_with("DeoptimizationEntry") ||
                               (at->name.starts_with("CEntry") && now.rsp > before.rsp && judge.makes_sp(before.rip)));
    };
    judge.ways.place = [&](std::uint64_t pc) {
      const v8::ImageFacts::Builtin* at = builtin(pc);
      return at != nullptr ? fmt::format(" [{}]", at->name) : std::string();
    };
    // A program may be in a short loop for as long as it is stepped.
    judge.run(test::whole() ? 200'000 : 40'000,
              [&] { return judge.judged >= 2'000 && judge.instructions.size() >= 600; });
    std::map<std::string, std::size_t> refused;
    for (const std::uint64_t pc : judge.refused)
      if (const auto* at = builtin(pc)) ++refused[at->name];
    std::string names;
    for (const auto& [name, count] : refused) names += fmt::format(" {} {}", name, count);
    ::printf("%d %s: %zu instructions judged, %zu different ones: %zu wrong, %zu different ones refused:%s\n",
             release.major, way.name, judge.judged, judge.instructions.size(), judge.wrong, judge.refused.size(),
             names.c_str());
    EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
    EXPECT_GE(judge.judged, 2'000U);
    EXPECT_LT(judge.refused.size() * share, judge.instructions.size());
    ::kill(node.pid(), SIGKILL);
    ::waitpid(node.pid(), nullptr, __WALL);
  }
}

// As Chromium and Electron are. Most builtins are found by V8's own list, the others are code like any other. They move
// their return address, and take their arguments off the stack.
TEST(V8Steps, BuiltinsInAListHaveTheirCallers) {
  constexpr int kFirstWithAnyText = 22;  // earlier ones compare the text of the version with another
  const std::vector<test::NodeRelease> releases = test::node_releases();
  if (releases.empty()) GTEST_SKIP() << "no node";
  for (const test::NodeRelease& release : releases) {
    if (release.major < kFirstWithAnyText || (!test::whole() && &release != &releases.back())) continue;
    const StrippedNode stripped(release.program, std::string(kWithoutFacts) + "';s/-node[.]/-nope./g'");
    ASSERT_TRUE(stripped.is_made());
    judge_builtins(stripped, release, 8);
  }
}

// Here the list is refused: code between two builtins is no padding.
TEST(V8Steps, BuiltinsWithoutSymbolsHaveTheirCallers) {
  const std::vector<test::NodeRelease> releases = test::node_releases();
  if (releases.empty()) GTEST_SKIP() << "no node";
  const StrippedNode stripped(releases.front().program, kWithoutFacts);
  ASSERT_TRUE(stripped.is_made());
  ASSERT_TRUE(stripped.spoil_padding());
  judge_builtins(stripped, releases.front(), 2);
}

// Optimised code that is left for good: its frame moves from the stack into an object of V8's. At the builtin's first
// instruction the frame is on the stack. Its caller stays the same until the frames that replace it are there.
class LeftFrame {
 public:
  LeftFrame(pid_t pid, const v8::ImageFile::Deoptimizing& builtin, std::uint64_t bias)
      : judge_(pid), pid_(pid), begin_(builtin.builtin.begin + bias), code_(builtin.code) {
    size_ = builtin.builtin.end - builtin.builtin.begin;
  }

  std::size_t judged = 0, within = 0, wrong = 0;  // within: C++ that the builtin calls
  std::string first_wrong;

  // From the first instruction to the last one that has rows. False: the process has ended, or does not get there.
  bool run() {
    constexpr std::size_t kMostSteps = 400'000, kSparse = 61;
    user_regs_struct now{};
    if (!read(now) || !take_truth(now)) return false;
    for (std::size_t i = 0; i < kMostSteps; ++i) {
      const std::uint64_t offset = now.rip - begin_;
      if (offset == code_.left) is_left_ = true;
      if (is_left_ && offset >= code_.end && offset < size_) return true;
      if (offset < size_ || i % kSparse == 0) compare(now);
      int status = 0;
      if (::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) != 0 || ::waitpid(pid_, &status, __WALL) != pid_ ||
          !WIFSTOPPED(status) || !read(now))
        return false;
    }
    return false;
  }

 private:
  bool read(user_regs_struct& to) const { return ::ptrace(PTRACE_GETREGS, pid_, nullptr, &to) == 0; }
  [[nodiscard]] bool is_builtin(std::uint64_t pc) const { return pc - begin_ <= size_; }

  // From the builtin's frame on; `frame_pointer`: in the frame behind it.
  std::vector<std::uint64_t> walk(const user_regs_struct& now, std::uint64_t& frame_pointer) const {
    std::vector<std::uint64_t> pcs;
    StackWalker walker(judge_.target().space, test::registers_of(now));
    do {
      const Frame& frame = walker.frame();
      if (pcs.empty() && !is_builtin(frame.pc().value())) continue;
      if (pcs.size() == 1) frame_pointer = frame.registers.get(6);
      pcs.push_back(frame.pc().value());
    } while (walker.step());
    if (walker.end_reason() != WalkEnd::kComplete) pcs.push_back(0);
    return pcs;
  }

  bool take_truth(const user_regs_struct& now) {
    std::uint64_t frame_pointer = 0;
    std::array<std::uint64_t, 2> words{};
    frames_ = walk(now, frame_pointer);
    frame_pointer_ = now.rbp;
    if (!judge_.memory().read(now.rbp, words.data(), sizeof words) || frames_.size() < 4 || frames_[2] != words[1])
      return false;
    callers_frame_pointer_ = words[0];
    return true;
  }

  void compare(const user_regs_struct& now) {
    std::uint64_t frame_pointer = 0;
    const std::vector<std::uint64_t> found = walk(now, frame_pointer);
    ++judged;
    within += is_builtin(now.rip) ? 0 : 1;
    const auto skipped = static_cast<std::ptrdiff_t>(is_left_ ? 2 : 1);
    const bool right = found.size() + static_cast<std::size_t>(skipped - 1) == frames_.size() &&
                       std::equal(found.begin() + 1, found.end(), frames_.begin() + skipped) &&
                       frame_pointer == (is_left_ ? callers_frame_pointer_ : frame_pointer_);
    if (right) return;
    ++wrong;
    if (first_wrong.size() > 2000) return;
    first_wrong +=
        fmt::format("at {:#x} (+{:#x}) sp {:#x} rbp {:#x}: {} frames of {}, fp {:#x}, caller {:#x}, not {:#x}\n",
                    now.rip, now.rip - begin_, now.rsp, now.rbp, found.size(), frames_.size(), frame_pointer,
                    found.size() > 1 ? found[1] : 0, frames_[static_cast<std::size_t>(skipped)]);
  }

  StepJudge judge_;
  pid_t pid_;
  std::uint64_t begin_, size_ = 0;
  v8::Deoptimization code_;
  bool is_left_ = false;
  std::vector<std::uint64_t> frames_;  // at the first instruction; 0 behind the last one: they are not whole
  std::uint64_t frame_pointer_ = 0, callers_frame_pointer_ = 0;
};

// A breakpoint instruction at each address, while there is one of these. Debug registers would leave the code as it is,
// but virtual machines need not have any.
class Breakpoints {
 public:
  Breakpoints(pid_t pid, const std::vector<std::uint64_t>& addresses) : pid_(pid) {
    constexpr long kFirstByte = 0xff, kBreakpoint = 0xcc;
    for (const std::uint64_t address : addresses) {
      errno = 0;
      const long word = ::ptrace(PTRACE_PEEKTEXT, pid, address, nullptr);
      are_set_ &= errno == 0 && ::ptrace(PTRACE_POKETEXT, pid, address, (word & ~kFirstByte) | kBreakpoint) == 0;
      words_.emplace_back(address, word);
    }
  }
  ~Breakpoints() {
    for (const auto& [address, word] : words_ | std::views::reverse) ::ptrace(PTRACE_POKETEXT, pid_, address, word);
  }
  Breakpoints(const Breakpoints&) = delete;
  Breakpoints& operator=(const Breakpoints&) = delete;

  [[nodiscard]] bool are_set() const { return are_set_; }

 private:
  pid_t pid_;
  bool are_set_ = true;
  std::vector<std::pair<std::uint64_t, long>> words_;
};

// Lets the process go until it comes to one of the addresses. No other thread of it may come there.
bool run_to(pid_t pid, const std::vector<std::uint64_t>& addresses) {
  const Breakpoints breakpoints(pid, addresses);
  if (!breakpoints.are_set()) return false;
  for (int signal = 0;;) {
    int status = 0;
    if (::ptrace(PTRACE_CONT, pid, nullptr, signal) != 0 || ::waitpid(pid, &status, __WALL) != pid ||
        !WIFSTOPPED(status))
      return false;
    if (WSTOPSIG(status) == SIGTRAP && status >> 16 == 0) break;
    signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
  }
  user_regs_struct now{};
  if (::ptrace(PTRACE_GETREGS, pid, nullptr, &now) != 0) return false;
  --now.rip;  // the breakpoint's one byte
  return ::ptrace(PTRACE_SETREGS, pid, nullptr, &now) == 0;
}

TEST(V8Steps, WhatCalledCodeThatIsLeftForGoodIsKnown) {
  const std::vector<test::NodeRelease> releases = test::node_releases();
  if (releases.empty()) GTEST_SKIP() << "no node";
  for (const test::NodeRelease& release : releases) {
    SCOPED_TRACE(release.program);
    const test::NodeWay way{"deopt", {"--allow-natives-syntax"}, "", WINDLASS_V8_SOURCES "/deopt.js"};
    const test::NodeProgram program(release.program, way, {});
    ASSERT_FALSE(program.printed().empty());
    const auto file = v8::ImageFile::open(*MappedFile::open(release.program));
    ASSERT_TRUE(file);
    ASSERT_EQ((*file)->deoptimizing().size(), release.major == 18 ? 3U : 2U);  // one is not used
    struct Place {
      std::uint64_t address, bias;
      const v8::ImageFile::Deoptimizing* builtin;
    };
    std::vector<Place> places;
    std::vector<std::uint64_t> addresses;
    for (const auto& map : test::maps_of(program.pid())) {
      if (!map.executable || map.path != release.program) continue;
      const auto bias = (*file)->bias_of(map);
      if (!bias) continue;
      for (const auto& builtin : (*file)->deoptimizing()) {
        const std::uint64_t address = builtin.builtin.begin + *bias;
        if (address < map.begin || address >= map.end) continue;
        places.push_back({address, *bias, &builtin});
        addresses.push_back(address);
      }
    }
    ASSERT_FALSE(places.empty());
    ASSERT_TRUE(test::stop(program.pid()));
    std::map<std::string, std::size_t> judged;
    std::size_t within = 0;
    for (int i = 0; i < (test::whole() ? 60 : 12); ++i) {
      ASSERT_TRUE(run_to(program.pid(), addresses));
      user_regs_struct now{};
      ASSERT_EQ(::ptrace(PTRACE_GETREGS, program.pid(), nullptr, &now), 0);
      const auto place = std::ranges::find(places, now.rip, &Place::address);
      ASSERT_NE(place, places.end());
      LeftFrame frame(program.pid(), *place->builtin, place->bias);
      ASSERT_TRUE(frame.run());
      EXPECT_EQ(frame.wrong, 0U) << place->builtin->builtin.name << "\n" << frame.first_wrong;
      judged[place->builtin->builtin.name] += frame.judged;
      within += frame.within;
    }
    EXPECT_EQ(judged.size(), 2U);
    EXPECT_GT(within, 100U);
    for (const auto& [name, count] : judged)
      ::printf("node %d %s: %zu instructions judged\n", release.major, name.c_str(), count);
    ::kill(program.pid(), SIGKILL);
    ::waitpid(program.pid(), nullptr, __WALL);
  }
}

}  // namespace
}  // namespace windlass
