// Whole AArch64 stacks of real Windows functions, run by an emulator up to their calls, with ELF functions in between:
// every frame the walker finds has the registers that the function had at its call. The same stacks in minidumps.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "formats/winarm64/exec.h"
#include "support/arm64_emulator.h"
#include "support/dump_file.h"
#include "support/minidump_writer.h"
#include "support/pe_corpora.h"
#include "support/walk_target.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using test::Arm64Emulator;
using test::WalkTarget;
using winarm64::RuntimeFunction;

constexpr RegisterNumber kX19 = 19, kX29 = 29, kLr = 30, kD8 = 72;

bool is_call(std::uint32_t word) { return word >> 26 == 0x25 || (word & 0xffff'fc1f) == 0xd63f'0000; }  // bl, blr

// A stack of nested calls, and what each function's registers were.
class NestedCalls {
 public:
  NestedCalls(Arm64Emulator& emulator, const winarm64::Functions& functions)
      : emulator_(emulator), functions_(functions) {}

  // Makes a stack of `depth` functions, every `elf_every`-th (0: none) one of an ELF module, the innermost interrupted
  // somewhere.
  bool make(unsigned depth, unsigned elf_every) {
    frames_.clear();
    state_ = emulator_.call(0);
    state_.set(kLr, 0);  // the thread's start
    for (unsigned tries = 0; frames_.size() < depth && tries < 50 * depth; ++tries) {
      if (elf_every != 0 && frames_.size() % elf_every == elf_every - 1)
        enter_elf();
      else
        enter_function(frames_.size() + 1 == depth);
    }
    return frames_.size() == depth;
  }
  // Outermost first; the pc of all but the last is the return address.
  [[nodiscard]] const std::vector<Registers>& frames() const { return frames_; }
  [[nodiscard]] std::size_t taken() const { return taken_; }
  [[nodiscard]] std::size_t left_out() const { return left_out_; }

 private:
  // A part of the frame was made by a sibling, which has not run.
  static bool is_fragment(ByteView codes) {
    for (std::uint64_t at = 0; at < codes.size();) {
      const auto code = winarm64::code_at(codes, at);
      if (!code || code->operation == winarm64::Operation::kEndC) return true;
      at += code->size;
    }
    return codes.empty();
  }
  void enter_function(bool innermost) {
    const RuntimeFunction function = functions_.stored(emulator_.random() % functions_.size());
    winarm64::Expansion storage;
    if (function.kind() == winarm64::EntryKind::kParent) return;
    const auto record = winarm64::read_record(functions_.image(), function, storage);
    if (!record || function.kind() == winarm64::EntryKind::kPackedFragment || is_fragment(record->codes)) return;
    Registers state = state_;
    for (RegisterNumber i = 0; i < 18; ++i) state.set(i, emulator_.pointer());
    const std::uint64_t begin = emulator_.base() + function.begin;
    state.set_pc(CodeAddress::instruction(begin));
    // Arguments are made up: what writes where its callers' frames are is no function as compilers mean them.
    const std::vector<std::byte> callers = stack_from(state.sp());
    const std::uint64_t limit = innermost ? emulator_.random() % 30 : 200;
    bool reached = false;
    for (std::uint64_t steps = 0; steps <= limit && !reached; ++steps) {
      const std::uint64_t pc = state.pc().value();
      if (pc - begin >= record->length) break;
      const bool calls = is_call(emulator_.instruction(pc));
      reached = calls || (innermost && steps == limit);
      if (calls && !innermost) state.set_pc(CodeAddress::return_address(pc + 4));
      if (!reached && !emulator_.step(state)) break;
    }
    if (reached && stack_from(state_.sp()) == callers && gives_registers_back(state))
      called(state);
    else
      restore(callers);
  }
  // Not for V8's builtins, which have calling conventions of their own, and what made-up arguments made write over its
  // own saved registers. That single frames are executed rightly is for other tests to show (test_winarm64_truth).
  [[nodiscard]] bool gives_registers_back(const Registers& state) {
    Registers caller;
    if (!winarm64::virtual_unwind(functions_, {emulator_.base()}, emulator_, state, caller)) return false;
    bool same = caller.pc().value() == state_.get(kLr) && caller.sp() == state_.sp();
    for (RegisterNumber reg = kX19; reg < kD8 + 8; ++reg)
      same &= (reg > kX29 && reg < kD8) || caller.get(reg) == state_.get(reg);
    ++(same ? taken_ : left_out_);
    return same;
  }
  [[nodiscard]] std::vector<std::byte> stack_from(std::uint64_t sp) const {
    std::vector<std::byte> bytes(Arm64Emulator::kTop + 256 - sp);
    (void)emulator_.read(sp, bytes.data(), bytes.size());
    return bytes;
  }
  void restore(const std::vector<std::byte>& bytes) {
    for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + i, sizeof word);
      emulator_.write(state_.sp() + i, word);
    }
  }
  // stp x29,lr,[sp,#-32]!; stp x19,d8 behind them; a call.
  void enter_elf() {
    Registers state = state_;
    const std::uint64_t sp = state.sp() - 32;
    emulator_.write(sp, state.get(kX29));
    emulator_.write(sp + 8, state.get(kLr));
    emulator_.write(sp + 16, state.get(kX19));
    emulator_.write(sp + 24, state.get(kD8));
    state.set_sp(sp);
    for (const RegisterNumber reg : {kX29, kX19, kD8}) state.set(reg, emulator_.pointer());
    state.set_pc(CodeAddress::return_address(WalkTarget::pc(0x10)));
    called(state);
  }
  void called(const Registers& state) {
    frames_.push_back(state);
    state_ = state;
    state_.set(kLr, state.pc().value());
  }

  Arm64Emulator& emulator_;
  const winarm64::Functions& functions_;
  Registers state_;
  std::vector<Registers> frames_;
  std::size_t taken_ = 0, left_out_ = 0;
};

void expect_frames(const AddressSpace& space, const std::vector<Registers>& frames, const std::string& what) {
  StackWalker walker(space, frames.back());
  for (std::size_t i = frames.size(); i-- > 0;) {
    const Registers& truth = frames[i];
    const Registers& found = walker.frame().registers;
    const std::string where =
        fmt::format("{}, frame {} at {:#x} by {}", what, i, truth.pc().value(), origin_name(walker.frame().origin));
    ASSERT_EQ(found.pc(), truth.pc()) << where << walker.error().text();
    ASSERT_EQ(found.sp(), truth.sp()) << where;
    for (RegisterNumber reg = kX19; reg < kD8 + 8; ++reg) {
      if (reg > kX29 && reg < kD8) continue;
      ASSERT_TRUE(found.has(reg)) << where << " register " << reg;
      ASSERT_EQ(found.get(reg), truth.get(reg)) << where << " register " << reg;
    }
    ASSERT_EQ(walker.step(), i != 0) << where << ": " << walker.error().text();
  }
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << what << ' ' << walker.error().text();
}

class WinArm64Walk : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& corpus : test::pe_corpora(WINDLASS_PE_CORPORA, 1, image::PeMachine::kArm64))
      files_.insert(files_.end(), corpus.files.begin(), corpus.files.end());
    if (files_.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  }
  std::vector<std::string> files_;
};

TEST_F(WinArm64Walk, PeAndElfFramesInOneStack) {
  std::size_t stacks = 0, frames = 0, taken = 0, left_out = 0;
  for (const std::string& path : files_) {
    const auto file = MappedFile::open(path);
    const auto image = image::PeImage::parse(file->bytes());
    ASSERT_TRUE(image);
    const winarm64::Functions functions(*image);
    Arm64Emulator emulator(*image);
    ASSERT_TRUE(emulator.ok());
    NestedCalls calls(emulator, functions);
    for (unsigned round = 0; round < 60; ++round) {
      if (!calls.make(24, round % 2 == 0 ? 4 : 0)) continue;
      WalkTarget target(Architecture::kAArch64);
      // CFA = sp + 32; x29, lr, x19, d8 from there
      target.function(0, 0x40, {0x0e, 32, 0x80 | 29, 4, 0x80 | 30, 3, 0x80 | 19, 2, 0x05, 72, 1});
      target.start();
      ASSERT_TRUE(target.space().add_module(
          {emulator.base(), emulator.base() + image->image_size(), emulator.base(), "x.exe", path, true}));
      for (std::uint64_t at = calls.frames().back().sp() & ~7ULL; at < Arm64Emulator::kTop + 256; at += 8) {
        std::uint64_t word = 0;
        if (emulator.read(at, &word, sizeof word)) target.memory().set(at, word);
      }
      expect_frames(target.space(), calls.frames(), fmt::format("{} round {}", path, round));
      if (HasFatalFailure()) return;
      ++stacks;
      frames += calls.frames().size();
    }
    taken += calls.taken();
    left_out += calls.left_out();
  }
  std::printf("%zu stacks, %zu frames; %zu calls left out\n", stacks, frames, left_out);
  EXPECT_GT(stacks, 100u);
  EXPECT_LT(left_out * 4, taken);
}

// A small dump has stacks and registers; the image comes from a symbol store, or with a name of another case.
TEST_F(WinArm64Walk, Minidumps) {
  const std::string& path = files_.front();
  const auto file = MappedFile::open(path);
  const auto image = image::PeImage::parse(file->bytes());
  ASSERT_TRUE(image);
  const winarm64::Functions functions(*image);
  Arm64Emulator emulator(*image);
  NestedCalls calls(emulator, functions);
  ASSERT_TRUE(calls.make(24, 0));
  const std::uint64_t sp = calls.frames().back().sp() & ~15ULL;
  test::MinidumpWriter writer(Architecture::kAArch64);
  writer.windows = true;
  std::vector<std::byte> stack(Arm64Emulator::kTop + 256 - sp);
  ASSERT_TRUE(emulator.read(sp, stack.data(), stack.size()));
  writer.threads = {{7, calls.frames().back(), "", sp, stack}};
  writer.modules = {{emulator.base(), image->image_size(), "C:\\Program Files\\Node\\Node.exe"}};
  writer.modules[0].timestamp = image->timestamp();
  const test::DumpFile dump(writer.write());
  const std::filesystem::path root = dump.path() + ".root";
  const auto id = fmt::format("{:08X}{:x}", image->timestamp(), image->image_size());
  for (const std::filesystem::path& place :
       {root / "node.exe" / id / "NODE.EXE", root / "PROGRAM FILES" / "node" / "node.exe", root / "node.EXE"}) {
    std::filesystem::create_directories(place.parent_path());
    std::filesystem::create_symlink(std::filesystem::absolute(path), place);
    DumpOptions options;
    options.files.sysroot = root;
    const auto target = open_minidump(dump.path(), options);
    ASSERT_TRUE(target) << target.error().text();
    ASSERT_EQ(target->threads.size(), 1u);
    EXPECT_TRUE(target->notes.empty());
    expect_frames(target->space, calls.frames(), place);
    // Code that the dump leaves out is read from the file.
    std::uint32_t word = 0;
    EXPECT_TRUE(target->space.memory().read(calls.frames()[3].pc().value() - 4, &word, sizeof word));
    EXPECT_TRUE(is_call(word));
    std::filesystem::remove_all(root);
  }
  // Another file of that name is not believed.
  writer.modules[0].timestamp += 1;
  const test::DumpFile other(writer.write());
  std::filesystem::create_directories(root);
  std::filesystem::create_symlink(std::filesystem::absolute(path), root / "node.exe");
  DumpOptions options;
  options.files.sysroot = root;
  const auto target = open_minidump(other.path(), options);
  ASSERT_TRUE(target) << target.error().text();
  ASSERT_EQ(target->notes.size(), 1u);
  EXPECT_NE(target->notes[0].find("is not the file that ran"), std::string::npos);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace windlass
