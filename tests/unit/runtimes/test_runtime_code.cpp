// Methods of a runtime that are kept, on a runtime that counts its calls; and when a process is searched for a runtime.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/monotonic.h"
#include "base/registers.h"
#include "formats/dwarf/constants.h"
#include "runtimes/find.h"
#include "runtimes/laid_out_runtime.h"
#include "runtimes/runtime_code.h"
#include "support/fake_coreclr.h"
#include "support/walk_target.h"
#include "walk/inside.h"
#include "walk/module.h"
#include "walk/space_modules.h"

namespace windlass::runtimes {
namespace {

class CountedMethod final : public Method {
 public:
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    to = FrameRow();
    to.begin = address;
    to.end = address + 1;
    to.cfa = CfaRule::at(x86_64::kRsp, 8);
    to.return_address = RegisterRule::at_cfa(-8);
    return {};
  }
  bool may_be_outermost(std::uint64_t address) const override { return address >= outermost_from; }
  void for_each_row(sources::RowSink, sources::ErrorSink) const override {}
  [[nodiscard]] std::size_t bytes() const override { return size; }
  std::size_t size = 100;
  std::uint64_t outermost_from = 0;
};

struct Counts {
  int asked = 0, checked = 0, named = 0;
  bool lasting = true, understood = true, names_the_past = false;
  std::size_t bytes = 100;
  std::uint64_t outermost_from = 0;  // an address: what is before it is entered by the runtime's code alone
  std::map<std::uint64_t, std::pair<std::uint64_t, const char*>> methods;  // begin: end, name
};

// A layout that is in a word of its process: not there yet, refused, or good.
struct WordLayout {
  std::uint64_t word;
};
struct WordMap {
  explicit WordMap(const WordLayout& layout) : word(layout.word) {}
  std::uint64_t word;
};

class WordRuntime final : public LaidOutRuntime<WordLayout, WordMap> {
 public:
  static constexpr std::uint64_t kImage = 0x1000, kRefused = 13;
  explicit WordRuntime(std::shared_ptr<const Memory> memory) : LaidOutRuntime(std::move(memory), kImage, read) {}
  bool is_still(const Method&) override { return true; }
  // Not inlined: GCC 12 would warn of tables that are not there, which is_not_ready() has ruled out.
  [[gnu::noinline]] Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    if (is_not_ready()) return fail(ErrorCode::kUnreadable, "not yet", address);
    if (!tables_) return Failure(*tables_.problem());
    auto method = std::make_unique<CountedMethod>();
    method->begin = tables_->map.word;
    return method;
  }

 private:
  static Expected<WordLayout> read(const Memory& memory, std::uint64_t image) {
    std::uint64_t word = 0;
    if (!memory.read(image, &word, sizeof word)) return fail(ErrorCode::kUnreadable, "no word", image);
    if (word == kRefused) return fail(ErrorCode::kUnsupported, "another layout", image);
    return WordLayout{word};
  }
};

TEST(LaidOutRuntime, IsTriedUntilItsProcessHasGotFarEnough) {
  for (const std::uint64_t word : {std::uint64_t{77}, WordRuntime::kRefused}) {
    const auto memory = std::make_shared<test::WordMemory>();
    WordRuntime runtime(memory);
    EXPECT_TRUE(runtime.is_understood()) << "not known to be of another kind";
    ASSERT_TRUE(runtime.problem());
    EXPECT_EQ(runtime.problem()->code, ErrorCode::kUnreadable);
    EXPECT_FALSE(runtime.method_at(1));
    memory->set(WordRuntime::kImage, word);
    const auto method = runtime.method_at(1);
    const bool is_good = word != WordRuntime::kRefused;
    ASSERT_EQ(method.has_value(), is_good);
    EXPECT_EQ(runtime.is_understood(), is_good);
    EXPECT_EQ(runtime.problem().has_value(), !is_good);
    memory->set(WordRuntime::kImage, 78);
    const auto again = runtime.method_at(1);
    ASSERT_EQ(again.has_value(), is_good) << "an answer is the last one";
    if (is_good) {
      EXPECT_EQ((*again)->begin, 77u);
    } else {
      EXPECT_EQ(again.error().code, ErrorCode::kUnsupported);
    }
  }
}

class CountingRuntime final : public Runtime {
 public:
  explicit CountingRuntime(Counts& counts) : counts_(counts) {}
  Architecture architecture() const override { return Architecture::kX86_64; }
  bool is_understood() const override { return counts_.understood; }
  bool names_the_past() const override { return counts_.names_the_past; }
  std::string build_id() const override { return "b1d0"; }
  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    ++counts_.asked;
    const auto after = counts_.methods.upper_bound(address);
    if (after == counts_.methods.begin() || address >= std::prev(after)->second.first)
      return fail(ErrorCode::kNotFound, "none", address);
    auto method = std::make_unique<CountedMethod>();
    method->begin = std::prev(after)->first;
    method->end = std::prev(after)->second.first;
    method->name = std::prev(after)->second.second;
    method->lasting = counts_.lasting;
    method->size = counts_.bytes;
    method->outermost_from = counts_.outermost_from;
    return method;
  }
  // Of an interpreter: rbp stands for the method, what it points to for the line.
  std::optional<FrameFunction> frame_function(const Method& method, std::uint64_t, const Registers& frame,
                                              const Memory& memory) override {
    std::uint64_t place = 0;
    if (method.name != "interpreter" || !memory.read(frame.get(6), &place, sizeof place)) return std::nullopt;
    return FrameFunction{frame.get(6), place};
  }
  sources::NamedFunction name_of(const FrameFunction& function) override {
    ++counts_.named;
    return {"m" + std::to_string(function.function), "f", static_cast<std::uint32_t>(function.place)};
  }
  bool is_still(const Method& method) override {
    ++counts_.checked;
    const auto at = counts_.methods.find(method.begin);
    return at != counts_.methods.end() && at->second.second == method.name;
  }

 private:
  Counts& counts_;
};

std::string name_at(manager::PublishedCode& code, std::uint64_t address) {
  std::vector<sources::NamedFunction> names;
  code.functions_at(address, 0, 0, names);
  return names.empty() ? "-" : names.back().name;
}

// A process of one page, until it ends.
class EndingMemory final : public Memory {
 public:
  bool ended = false;
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (ended || address > 4096 || size > 4096 - address) return false;
    std::memset(to, 0, size);
    return true;
  }
};

std::shared_ptr<RuntimeCode> code_of(Counts& counts,
                                     std::shared_ptr<const Memory> memory = std::make_shared<EndingMemory>()) {
  return std::make_shared<RuntimeCode>(std::make_unique<CountingRuntime>(counts), std::move(memory), os::ProcMap());
}

// A stub of which its runtime has no row: push rbp; push rbx; je +1; nop; pop rbx; pop rbp; ret; call to itself; ret.
constexpr std::uint64_t kStub = 0x100;
constexpr std::uint8_t kStubCode[] = {0x55, 0x53, 0x74, 0x01, 0x90, 0x5b, 0x5d, 0xc3, 0xe8, 0, 0, 0, 0, 0xc3};

class StubMethod final : public Method {
 public:
  Expected<void> row_at(std::uint64_t address, FrameRow&) const override {
    return fail(ErrorCode::kNotFound, "none", address);
  }
  void for_each_row(sources::RowSink, sources::ErrorSink) const override {}
  [[nodiscard]] std::size_t bytes() const override { return sizeof *this; }
};

class StubRuntime final : public Runtime {
 public:
  Architecture architecture() const override { return Architecture::kX86_64; }
  Expected<std::unique_ptr<Method>> method_at(std::uint64_t) override {
    auto method = std::make_unique<StubMethod>();
    method->begin = kStub;
    method->end = kStub + sizeof kStubCode;
    return method;
  }
  bool is_still(const Method&) override { return true; }
  bool is_told_by_code(const Method&) const override { return told; }
  std::optional<std::vector<wl_taken>> words_of(const Method&, CodeAddress) override { return std::vector<wl_taken>(); }
  bool told = true;
};

class StubMemory final : public Memory {
 public:
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (address < kStub || address - kStub > sizeof kStubCode || size > sizeof kStubCode - (address - kStub))
      return false;
    std::memcpy(to, kStubCode + (address - kStub), size);
    return true;
  }
};

TEST(RuntimeCode, AStubTeachesWhatItsInstructionsSayForCertain) {
  const auto lesson_at = [](std::uint64_t offset, bool told = true) {
    auto runtime = std::make_unique<StubRuntime>();
    runtime->told = told;
    const auto code = std::make_shared<RuntimeCode>(std::move(runtime), std::make_shared<StubMemory>(), os::ProcMap());
    return code->lesson(CodeAddress::instruction(kStub + offset));
  };
  const std::map<std::uint64_t, int> sp{{0, 8}, {1, 16}, {2, 24}, {4, 24}, {5, 24}, {6, 16}, {7, 8}};
  for (const auto& [offset, bytes] : sp) {
    const auto lesson = lesson_at(offset);
    ASSERT_TRUE(lesson) << offset;
    EXPECT_EQ(lesson->rule.cfa_kind, WL_CFA_REG);
    EXPECT_EQ(lesson->rule.cfa_reg, x86_64::kRsp);
    EXPECT_EQ(lesson->rule.cfa_offset, bytes) << offset;
    EXPECT_EQ(lesson->rule.proof, WL_PROOF_CODE);
  }
  EXPECT_FALSE(lesson_at(2, false)) << "its runtime says more of it";
  const auto code =
      std::make_shared<RuntimeCode>(std::make_unique<StubRuntime>(), std::make_shared<StubMemory>(), os::ProcMap());
  EXPECT_FALSE(code->lesson(CodeAddress::return_address(kStub + 13))) << "behind a call nothing is certain";
}

TEST(RuntimeCode, AsksOnceForWhatLasts) {
  Counts counts{.methods = {{100, {200, "one"}}, {200, {300, "two"}}}};
  const auto code = code_of(counts);
  EXPECT_EQ(name_at(*code, 100), "one");
  EXPECT_EQ(name_at(*code, 199), "one");
  code->set_time(1);
  counts.methods.clear();
  EXPECT_EQ(name_at(*code, 150), "one");
  EXPECT_EQ(counts.asked, 1);
  EXPECT_EQ(counts.checked, 0);
  EXPECT_EQ(name_at(*code, 250), "-");
}

// The last samples of a process are looked at when it is gone.
TEST(RuntimeCode, WhatWasThereLastStaysKnownWhenItsMemoryIsGone) {
  Counts counts{.lasting = false, .methods = {{100, {200, "one"}}, {200, {300, "two"}}}};
  const auto memory = std::make_shared<EndingMemory>();
  const auto code = code_of(counts, memory);
  EXPECT_EQ(name_at(*code, 150), "one");
  EXPECT_EQ(name_at(*code, 250), "two");
  counts.methods.erase(200);
  code->set_time(monotonic_ns());
  EXPECT_EQ(name_at(*code, 250), "-") << "something else may be there";
  counts.methods.clear();
  memory->ended = true;
  code->set_time(monotonic_ns());
  EXPECT_EQ(name_at(*code, 150), "one");
  EXPECT_EQ(name_at(*code, 350), "-");
}

TEST(RuntimeCode, LooksAgainOnceATimeForWhatMayGo) {
  Counts counts{.lasting = false, .methods = {{100, {200, "one"}}}};
  const auto code = code_of(counts);
  EXPECT_EQ(name_at(*code, 150), "one");
  EXPECT_EQ(name_at(*code, 151), "one");
  EXPECT_EQ(counts.checked, 0);
  code->set_time(monotonic_ns());
  EXPECT_EQ(name_at(*code, 150), "one");
  EXPECT_EQ(name_at(*code, 151), "one");
  EXPECT_EQ(counts.checked, 1);
  code->set_time(2);
  EXPECT_EQ(name_at(*code, 150), "one");
  EXPECT_EQ(counts.checked, 1) << "it was looked at after that time";
  code->set_time(monotonic_ns());
  counts.methods = {{100, {140, "new"}}, {140, {200, "other"}}};
  EXPECT_EQ(name_at(*code, 150), "other");
  EXPECT_EQ(name_at(*code, 120), "new");
}

// Also where it begins before what was there: of the rest of that nothing is known any more.
// The sample is of code that was taken away before anybody asked what it was.
TEST(RuntimeCode, CodeThatIsGoneIsNamedByWhatWasThereLast) {
  Counts counts;
  counts.lasting = false;
  counts.methods[16] = {32, "a"};
  const auto code = code_of(counts);
  EXPECT_EQ(name_at(*code, 20), "a");
  counts.methods.clear();
  code->set_time(monotonic_ns());
  EXPECT_EQ(name_at(*code, 20), "-") << "a runtime that reads the process for it";
  counts.names_the_past = true;
  EXPECT_EQ(name_at(*code, 20), "a");
  EXPECT_EQ(name_at(*code, 32), "-");
  counts.methods[16] = {24, "b"};
  EXPECT_EQ(name_at(*code, 20), "b");
  EXPECT_EQ(name_at(*code, 28), "-") << "what is there now covers what was";
}

TEST(RuntimeCode, WhatNewCodeCoversIsForgotten) {
  Counts counts{.methods = {{140, {160, "one"}}, {160, {200, "two"}}}};
  const auto code = code_of(counts);
  EXPECT_EQ(name_at(*code, 150), "one");
  EXPECT_EQ(name_at(*code, 190), "two");
  counts.methods = {{100, {180, "new"}}};
  EXPECT_EQ(name_at(*code, 120), "new");
  EXPECT_EQ(name_at(*code, 150), "new");
  EXPECT_EQ(name_at(*code, 190), "-");
}

TEST(RuntimeCode, ForgetsAllWhereItWouldKeepTooMuch) {
  Counts counts{.bytes = RuntimeCode::kMaxBytes / 2 - 1,
                .methods = {{100, {200, "one"}}, {200, {300, "two"}}, {300, {400, "three"}}}};
  const auto code = code_of(counts);
  for (const std::uint64_t at : {100U, 200U, 300U, 300U, 100U}) EXPECT_NE(name_at(*code, at), "-");
  EXPECT_EQ(counts.asked, 4);
}

TEST(RuntimeCode, AnswersForNothingWhereItIsNotUnderstood) {
  Counts counts;
  const auto code = code_of(counts);
  EXPECT_EQ(code->end(), ~std::uint64_t{0});
  counts.understood = false;
  EXPECT_EQ(code->end(), 0U);
}

// A mapping of the runtime's file may come between two looks at /proc, by an event.
TEST(RuntimeCode, KnowsItsFileByWhatAnEventSaysOfIt) {
  os::ProcMap map;
  map.file.inode = 7;
  Counts counts;
  const auto code = std::make_shared<RuntimeCode>(std::make_unique<CountingRuntime>(counts), nullptr, map);
  EXPECT_TRUE(code->is_of(map));
  EXPECT_TRUE(code->is_in_file_of(map));
  os::ProcMap event;
  EXPECT_FALSE(code->is_in_file_of(event));
  event.file.build_id = "b1d0";
  EXPECT_TRUE(code->is_in_file_of(event));
  event.file.build_id = "b1d1";
  EXPECT_FALSE(code->is_in_file_of(event));
}

TEST(RuntimeCode, NumbersWhatAnInterpreterRuns) {
  class Lines final : public Memory {
   public:
    bool read(std::uint64_t address, void* to, std::size_t size) const override {
      const std::uint64_t line = address * 10;
      if (size != sizeof line || address > 100) return false;
      std::memcpy(to, &line, size);
      return true;
    }
  };
  Counts counts{.methods = {{100, {200, "interpreter"}}, {200, {300, "compiled"}}}};
  const auto source = code_of(counts);
  const Lines memory;
  Registers frame(Architecture::kX86_64);
  frame.set(6, 7);
  const std::uint64_t first = source->frame_function(150, frame, memory);
  EXPECT_NE(first, 0U);
  EXPECT_EQ(source->frame_function(160, frame, memory), first);
  EXPECT_EQ(counts.named, 1);
  EXPECT_EQ(source->frame_function(250, frame, memory), 0U);  // code of one function
  EXPECT_EQ(source->frame_function(350, frame, memory), 0U);  // nobody's
  frame.set(6, 8);
  EXPECT_NE(source->frame_function(150, frame, memory), first);
  frame.set(6, 101);
  EXPECT_EQ(source->frame_function(150, frame, memory), 0U);  // cannot be read
  std::vector<sources::NamedFunction> names;
  EXPECT_EQ(source->functions_at(150, first, 0, names), 100U);
  EXPECT_EQ(source->functions_at(150, 0, 0, names), 100U);
  EXPECT_EQ(source->functions_at(250, 0, 0, names), 200U);
  EXPECT_EQ(source->functions_at(350, 0, 0, names), 0U);
  ASSERT_EQ(names.size(), 3U);
  EXPECT_EQ(names[0].name, "m7");
  EXPECT_EQ(names[0].line, 70U);
  EXPECT_EQ(names[1].name, "interpreter");
  EXPECT_EQ(names[2].name, "compiled");
  source->functions_at(150, 1000, 0, names);  // no such number: the code's
  ASSERT_EQ(names.size(), 4U);
  EXPECT_EQ(names.back().name, "interpreter");
}

TEST(RuntimeCode, IsASource) {
  Counts counts{.methods = {{100, {200, "one"}}}};
  const auto source = code_of(counts)->make_source();
  FrameRow row;
  EXPECT_TRUE(source->row_at(130, row).has_value());
  EXPECT_EQ(source->row_at(200, row).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(source->function_start(130), 100U);
}

// A runtime's code, called by code of a file that says of itself that it has no caller.
class Walk {
 public:
  explicit Walk(Counts& counts) {
    test::CfiBuilder cfi;
    cfi.fde(cfi.cie(), kStart, 0x100, {dwarf::DW_CFA_undefined, 16});
    const test::Bytes end{0, 0, 0, 0};
    cfi.raw().add(end);
    using Modules = walk::Inside::Modules;
    auto modules = std::make_unique<Modules>(Modules::Process::kOther);
    Modules& to = *modules;
    auto memory = std::make_unique<test::WordMemory>();
    memory_ = memory.get();
    space_ = walk::Inside::space(Architecture::kX86_64, std::move(memory), std::move(modules));
    EXPECT_TRUE(to.insert(std::make_unique<walk::Module>(
        ModuleInfo{kFile, kFile + 0x2000, kFile, "program", {}},
        test::elf_with_eh_frame(Architecture::kX86_64, {}, kStart, cfi.raw().data(), 0x2000))));
    const auto code = code_of(counts);
    auto module =
        std::make_unique<walk::Module>(ModuleInfo{kMethods, kMethods + 0x1000, 0, "", {}}, code->make_source(), code);
    module->forget_id();  // its functions come and go
    EXPECT_TRUE(to.insert(std::move(module)));
  }
  // Of a stack with these return addresses, from an instruction on.
  WalkEnd end(std::uint64_t pc, const std::vector<std::uint64_t>& returns) {
    for (std::size_t i = 0; i < returns.size(); ++i) memory_->set(kStack + 8 * i, returns[i]);
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(pc));
    registers.set_sp(kStack);
    StackWalker walker(*space_, registers);
    frames = 1;
    while (walker.step()) ++frames;
    return walker.end_reason();
  }

  static constexpr std::uint64_t kFile = 0x5555'0000'0000, kStart = 0x1000, kMethods = 0x7000'0000, kStack = 0x1000;
  std::size_t frames = 0;

 private:
  test::WordMemory* memory_ = nullptr;
  std::optional<AddressSpace> space_;
};

TEST(RuntimeCode, AStackThatLeavesByAFrameThatTheRuntimeDoesNotListIsNotWhole) {
  constexpr std::uint64_t kMethod = Walk::kMethods + 100, kEntry = Walk::kMethods + 200;
  constexpr std::uint64_t kCaller = Walk::kFile + Walk::kStart + 0x10;
  Counts counts{.outermost_from = kEntry,
                .methods = {{kMethod, {kMethod + 100, "method"}}, {kEntry, {kEntry + 100, "entry"}}}};
  Walk walk(counts);
  EXPECT_EQ(walk.end(kMethod + 5, {kEntry + 5, kCaller}), WalkEnd::kComplete);
  EXPECT_EQ(walk.frames, 3U);
  EXPECT_EQ(walk.end(kMethod + 5, {kMethod + 25, kEntry + 5, kCaller}), WalkEnd::kComplete);
  EXPECT_EQ(walk.end(kMethod + 5, {kCaller}), WalkEnd::kGuessed) << "the entry's frame was skipped";
  EXPECT_EQ(walk.frames, 2U) << "what is there is shown";
  EXPECT_EQ(walk.end(kMethod + 5, {kMethod + 25, kCaller}), WalkEnd::kGuessed);
  EXPECT_EQ(walk.end(kMethod + 5, {0}), WalkEnd::kGuessed) << "a method has a caller";
}

// ---- finding
// ----------------------------------------------------------------------------------------------------------

os::ProcMap map_of(std::uint64_t begin, const char* path, bool executable, std::uint64_t inode) {
  os::ProcMap map;
  map.begin = begin;
  map.end = begin + 4096;
  map.path = path;
  map.executable = executable;
  map.readable = true;
  map.file.inode = inode;
  return map;
}

constexpr auto no_file = [](const os::ProcMap& map) -> Expected<MappedFile> {
  return fail(ErrorCode::kNotFound, "there is no file", map.begin);
};

TEST(FindRuntimes, LooksAtTheMemoryOnlyWhereThereIsCodeOfNoFile) {
  int opened = 0;
  const auto open_memory = [&]() -> std::shared_ptr<const Memory> {
    ++opened;
    return std::make_shared<test::BlockMemory>(0, std::vector<std::byte>(16384));
  };
  std::vector<os::ProcMap> maps = {map_of(4096, "/bin/some_test_program", true, 77), map_of(0, "[vdso]", true, 0)};
  manager::PublishedCodes codes;
  add_runtimes(codes, maps, open_memory, no_file, {});
  EXPECT_EQ(opened, 0);
  std::uint64_t inode = 100;
  for (const char* path : {"", "/memfd:doublemapper"}) {
    maps[0].file.inode = inode++;  // a file that has been looked at is not looked at again
    maps.push_back(map_of(8192, path, true, 0));
    maps.back().deleted = path[0] != 0;
    add_runtimes(codes, maps, open_memory, no_file, {});
    add_runtimes(codes, maps, open_memory, no_file, {});
    maps.pop_back();
  }
  EXPECT_EQ(opened, 4) << "to look, and to see that it was still there to look at";
  EXPECT_TRUE(codes.empty());
}

// Wine copies code out of such files. Windows' names are in any case.
TEST(FindRuntimes, LooksAtImagesOfWindowsWithoutCodeOfTheirOwn) {
  const auto looks_at = [](const char* path) {
    bool opened = false;
    const auto open_memory = [&]() -> std::shared_ptr<const Memory> {
      opened = true;
      return std::make_shared<test::BlockMemory>(0, std::vector<std::byte>(16384));
    };
    static std::uint64_t inode = 1000;
    const std::vector<os::ProcMap> maps = {map_of(4096, path, false, inode++), map_of(8192, "", true, 0)};
    manager::PublishedCodes codes;
    add_runtimes(codes, maps, open_memory, no_file, {});
    return opened;
  };
  for (const char* path : {"/x/node.exe", "/x/NODE.EXE", "/x/Node.Exe", "/x/v8.DLL", "/x/pty.Node"})
    EXPECT_TRUE(looks_at(path)) << path;
  for (const char* path : {"/x/node_exe", "/x/node.exes", "exe"}) EXPECT_FALSE(looks_at(path)) << path;
}

TEST(FindRuntimes, AProcessThatEndsMeanwhileSaysNothingOfItsFiles) {
  int opened = 0;
  const auto open_memory = [&]() -> std::shared_ptr<const Memory> {
    return std::make_shared<test::BlockMemory>(0, std::vector<std::byte>(++opened % 2 == 1 ? 16384 : 0));
  };
  const std::vector<os::ProcMap> maps = {map_of(4096, "/bin/that_ends", true, 78), map_of(8192, "", true, 0)};
  manager::PublishedCodes codes;
  for (int look = 0; look < 3; ++look) add_runtimes(codes, maps, open_memory, no_file, {});
  EXPECT_EQ(opened, 6) << "the next process with that file is looked at";
}

// Data about a moment is read after that moment, for walks and for names.
TEST(RuntimeCode, TellsItsMemoryTheMomentAskedFor) {
  class Told final : public TimedMemory {
   public:
    mutable std::uint64_t time = 0;
    void set_time(std::uint64_t to) const override { time = to; }
    bool read(std::uint64_t, void*, std::size_t) const override { return false; }
  };
  const auto memory = std::make_shared<Told>();
  const OpenedMemory opened(memory);
  ASSERT_EQ(opened.timed, memory.get());
  Counts counts;
  os::ProcMap map;
  const auto code =
      std::make_shared<RuntimeCode>(std::make_unique<CountingRuntime>(counts), opened.memory, map, opened.timed);
  code->set_time(7);
  EXPECT_EQ(memory->time, 7u);
  std::vector<sources::NamedFunction> functions;
  (void)code->functions_at(0, 0, 9, functions);
  EXPECT_EQ(memory->time, 9u);
}

TEST(FindRuntimes, KeepsThoseThatAreWhereTheyWere) {
  Counts counts;
  const std::vector<os::ProcMap> maps = {map_of(4096, "/lib/libsome_runtime.so", true, 78), map_of(8192, "", true, 0)};
  const manager::PublishedCodes known = {std::make_shared<RuntimeCode>(std::make_unique<CountingRuntime>(counts),
                                                                       std::make_shared<EndingMemory>(), maps[0])};
  const auto open_memory = []() -> std::shared_ptr<const Memory> {
    return std::make_shared<test::BlockMemory>(0, std::vector<std::byte>());
  };
  manager::PublishedCodes codes;
  add_runtimes(codes, maps, open_memory, no_file, known);
  EXPECT_EQ(codes, known);
  std::vector<os::ProcMap> moved = maps;
  moved[0].begin += 0x100000;
  codes.clear();
  add_runtimes(codes, moved, open_memory, no_file, known);
  EXPECT_TRUE(codes.empty());
}

}  // namespace
}  // namespace windlass::runtimes
