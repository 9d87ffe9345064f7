// Raw samples of AArch64 threads, on any host: a made-up program in a file, a stack, registers.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <initializer_list>

#include "base/aarch64_signal_frame.h"
#include "profiler/samples/raw_unwinder.h"
#include "support/walk_target.h"

namespace windlass::profiler {
namespace {

using dwarf::DW_CFA_offset;
using dwarf::DW_CFA_undefined;
using test::Bytes;

constexpr std::uint64_t kBias = 0xaaaa'0000'0000, kCode = 0x1000, kSize = 0x3000;
constexpr std::uint64_t kStack = 0xffff'8000'0000;
constexpr std::uint64_t kGenerated = 0xffff'7000'0000;  // code in no file; nothing of it can be read
constexpr std::uint64_t kUprobes = 0xffff'6000'0000;    // [uprobes], the kernel's
constexpr std::uint64_t kUserBits = 0x0000'ffff'ffff'ffff;
constexpr std::uint32_t kNop = 0xd503201f, kRet = 0xd65f03c0, kBl = 0x94000010;
constexpr RegisterNumber kX29 = 29, kX30 = 30, kSp = 31;

// The program. Each function's offset in the code, and where a call in it returns to.
constexpr std::uint64_t kStart = 0x000, kStartReturn = kStart + 8;      // the outermost
constexpr std::uint64_t kMiddle = 0x100, kMiddleReturn = kMiddle + 12;  // a frame of 32 bytes with a frame record
constexpr std::uint64_t kOmits = 0x200, kOmitsReturn = kOmits + 12;     // a frame of 16 that saves x30 only
constexpr std::uint64_t kLeaf = 0x300, kBareLeaf = 0x400;               // the latter without a row
constexpr std::uint64_t kRestorer = 0x500, kMuslRestorer = 0x600;       // the latter without a row
constexpr std::uint64_t kContext = 0x700;                               // where a function of a new context returns to

constexpr std::uint64_t at(std::uint64_t offset) { return kBias + kCode + offset; }

std::vector<std::byte> program(Architecture architecture) {
  std::vector<std::uint8_t> code(0x800);
  const auto put = [&](std::uint64_t offset, std::initializer_list<std::uint32_t> words) {
    for (const std::uint32_t word : words) std::memcpy(code.data() + offset, &word, 4), offset += 4;
  };
  put(kStart, {kNop, kBl, kNop});
  put(kMiddle, {0xa9be7bfd, 0x910003fd, kBl, 0xa8c27bfd, kRet});  // stp x29,x30,[sp,#-32]!; mov x29,sp; bl; ldp; ret
  put(kOmits, {0xf81f0ffe, kNop, kBl, 0xf84107fe, kRet});         // str x30,[sp,#-16]!; nop; bl; ldr x30,[sp],#16; ret
  put(kLeaf, {kNop, kRet});
  put(kBareLeaf, {0x8b000000, kRet});  // add x0,x0,x0
  put(kRestorer, {aarch64::kMovRtSigreturn, aarch64::kSvc, kRet});
  put(kMuslRestorer, {aarch64::kMovRtSigreturn, aarch64::kSvc, kRet});
  put(kContext, {kNop, 0xaa1303e0, 0xb5000060, 0x14000000 | ((kStart - kContext - 12) / 4 & 0x3ffffff), kNop,
                 0xd61f0200});  // mov x0,x19; cbnz x0,.+12; b start; nop; br x16

  test::CfiBuilder cfi;
  test::CieSpec spec;
  spec.return_register = 30;
  spec.instructions = {0x0c, 31, 0};
  const std::uint64_t cie = cfi.cie(spec);
  spec.augmentation = "zRS";
  const std::uint64_t signal = cfi.cie(spec);
  cfi.fde(cie, kCode + kStart, 16, {DW_CFA_undefined, 30});
  cfi.fde(cie, kCode + kMiddle, 20, {0x44, 0x0e, 32, DW_CFA_offset | 29, 4, DW_CFA_offset | 30, 3});
  cfi.fde(cie, kCode + kOmits, 20, {0x44, 0x0e, 16, DW_CFA_offset | 30, 2});
  cfi.fde(cie, kCode + kLeaf, 8, {});
  cfi.fde(cie, kCode + kContext, 16, {});
  // As the kernel's vdso has it: from one instruction before, and to the frame record that x29 points at.
  cfi.fde(signal, kCode + kRestorer - 4, 12, {0x0c, 29, 0, DW_CFA_offset | 29, 0, DW_CFA_offset | 30, 0x7f});
  cfi.raw().add(Bytes{0, 0, 0, 0});
  return test::elf_with_eh_frame(architecture, code, kCode, cfi.raw().data(), kSize);
}

class RawAArch64 : public testing::Test {
 protected:
  void SetUp() override {
    registers_.set_pc(CodeAddress::instruction(at(kLeaf)));
    registers_.set_sp(kStack);
    for (RegisterNumber reg = 0; reg <= kX30; ++reg) registers_.set(reg, 0x1000u + reg);
    registers_.set(kX30, at(kStartReturn));
  }
  void TearDown() override {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  void set(std::uint64_t address, std::uint64_t value) {
    std::memcpy(stack_.data() + (address - kStack), &value, sizeof value);
  }
  void in(std::uint64_t offset) { registers_.set_pc(CodeAddress::instruction(at(offset))); }
  // `pc` and the caller's x29 in a frame record.
  void record(std::uint64_t address, std::uint64_t fp, std::uint64_t pc) {
    set(address, fp);
    set(address + 8, pc);
  }

  std::vector<std::uint64_t> unwind(std::uint64_t mask = kUserBits, std::uint64_t bias = kBias) {
    char name[] = "/tmp/windlass-raw-XXXXXX";
    ::close(::mkstemp(name));
    path_ = name;
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(file_.data()), static_cast<std::streamsize>(file_.size()));
    struct stat status {};
    ::stat(name, &status);
    ModuleRegistry registry(nullptr);
    os::ProcMap map;
    map.begin = bias;
    map.end = bias + kSize;
    map.path = path_;
    map.file.inode = status.st_ino;
    const auto placed = registry.resolve(static_cast<std::uint32_t>(::getpid()), 0, map);
    MapSet maps;
    maps.add({map.begin, map.end, 0, placed.module, placed.bias, placed.kind});
    for (const std::uint64_t page : {kUprobes, kGenerated})
      maps.add({page, page + 0x1000, 0, 0, 0, MappingKind::kGenerated});

    RawSample sample;
    sample.tgid = static_cast<std::uint32_t>(::getpid());
    sample.registers = registers_;
    sample.stack = {kStack, stack_};
    sample.probed_pc = probed_pc_;
    sample.probed_returns = probed_returns_;
    RawUnwinder unwinder(registry, mask);
    if (after_another_machines_) {
      RawSample other = sample;
      other.registers = Registers(Architecture::kX86_64);
      other.registers.set_pc(sample.registers.pc());
      (void)unwinder.unwind(other, &maps);
    }
    const UnwoundStack stack = unwinder.unwind(sample, &maps);
    end_ = stack.end;
    certainty_ = stack.certainty;
    return stack.frames;
  }

  using Frames = std::vector<std::uint64_t>;
  Registers registers_{Architecture::kAArch64};
  std::vector<std::byte> stack_ = std::vector<std::byte>(0x2000);
  std::vector<std::byte> file_ = program(Architecture::kAArch64);
  std::string path_;
  unsigned end_ = WL_END_COUNT, certainty_ = WL_GUESSED;
  std::uint64_t probed_pc_ = 0;
  std::array<RawSample::ProbedReturn, WL_PROBED_RETURNS> probed_returns_{};
  bool after_another_machines_ = false;  // the unwinder has met the process with such registers before
};

TEST_F(RawAArch64, LeavesReturnByTheLinkRegister) {
  EXPECT_EQ(unwind(), (Frames{at(kLeaf) | WL_FRAME_EXACT, at(kStartReturn)}));
  EXPECT_EQ(end_, WL_END_COMPLETE) << profile::end_text(static_cast<std::uint8_t>(end_));
  EXPECT_EQ(certainty_, WL_DESCRIBED);
}

// A leaf with a uretprobe returns to an address of the kernel's. The return address that the kernel keeps belongs to
// the caller with its sp; one of a function that a longjmp has left belongs to no frame.
TEST_F(RawAArch64, AFunctionWithAUretprobeReturnsToWhatTheKernelKeeps) {
  registers_.set(kX30, kUprobes);
  record(kStack, 0, at(kOmitsReturn));
  set(kStack + 32, at(kStartReturn));
  EXPECT_NE(unwind(), (Frames{at(kLeaf) | WL_FRAME_EXACT, at(kMiddleReturn), at(kOmitsReturn), at(kStartReturn)}));
  EXPECT_NE(end_, WL_END_COMPLETE);

  probed_pc_ = kUprobes;
  probed_returns_[0] = {kStack - 64, at(kStartReturn)};
  probed_returns_[1] = {kStack, at(kMiddleReturn)};
  EXPECT_EQ(unwind(), (Frames{at(kLeaf) | WL_FRAME_EXACT, at(kMiddleReturn), at(kOmitsReturn), at(kStartReturn)}));
  EXPECT_EQ(end_, WL_END_COMPLETE) << profile::end_text(static_cast<std::uint8_t>(end_));
}

// A process that has executed a program of another machine (by binfmt_misc, or i386's on x86-64).
TEST_F(RawAArch64, WhatAnotherMachinesSampleLeftIsNotUsed) {
  after_another_machines_ = true;
  EXPECT_EQ(unwind(), (Frames{at(kLeaf) | WL_FRAME_EXACT, at(kStartReturn)}));
  EXPECT_EQ(end_, WL_END_COMPLETE);
}

TEST_F(RawAArch64, LeavesWithoutARowToo) {
  in(kBareLeaf);
  EXPECT_EQ(unwind(), (Frames{at(kBareLeaf) | WL_FRAME_EXACT, at(kStartReturn)}));
  EXPECT_EQ(end_, WL_END_COMPLETE);
  EXPECT_EQ(certainty_, WL_PROVED);
}

TEST_F(RawAArch64, FramesByRows) {
  registers_.set(kX30, at(kMiddleReturn));
  record(kStack, 0, at(kOmitsReturn));
  set(kStack + 32, at(kStartReturn));
  EXPECT_EQ(unwind(), (Frames{at(kLeaf) | WL_FRAME_EXACT, at(kMiddleReturn), at(kOmitsReturn), at(kStartReturn)}));
  EXPECT_EQ(end_, WL_END_COMPLETE);
}

// glibc's makecontext() clears x29, but leaves no 0 for a return address.
TEST_F(RawAArch64, ContextsBeginWhereNoCallReturnsTo) {
  registers_.set(kX29, 0);
  registers_.set(kX30, at(kContext));
  EXPECT_EQ(unwind(), (Frames{at(kLeaf) | WL_FRAME_EXACT, at(kContext)}));
  EXPECT_EQ(end_, WL_END_COMPLETE);
  registers_.set(kX29, kStack + 0x100);  // somebody has a frame
  EXPECT_EQ(unwind().front(), at(kLeaf) | WL_FRAME_EXACT);
  EXPECT_NE(end_, WL_END_COMPLETE);
}

TEST_F(RawAArch64, AuthenticationCodesAreStrippedByTheKernelsMask) {
  registers_.set(kX30, at(kMiddleReturn) | 0x0055'0000'0000'0000);
  record(kStack, 0, at(kStartReturn) | 0x002a'0000'0000'0000);
  const Frames expected{at(kLeaf) | WL_FRAME_EXACT, at(kMiddleReturn), at(kStartReturn)};
  EXPECT_EQ(unwind(), expected);
  EXPECT_EQ(end_, WL_END_COMPLETE);
  EXPECT_NE(unwind(~std::uint64_t{0}), expected);
  EXPECT_EQ(end_, WL_END_NO_MAPPING);
}

TEST_F(RawAArch64, AddressesOf52Bits) {
  constexpr std::uint64_t kHigh = 0x000a'aaaa'0000'0000;
  in(kLeaf);
  registers_.set_pc(CodeAddress::instruction(kHigh + kCode + kLeaf));
  registers_.set(kX30, (kHigh + kCode + kStartReturn) | 0x0050'0000'0000'0000);
  EXPECT_EQ(unwind(0x000f'ffff'ffff'ffff, kHigh),
            (Frames{(kHigh + kCode + kLeaf) | WL_FRAME_EXACT, kHigh + kCode + kStartReturn}));
  EXPECT_EQ(end_, WL_END_COMPLETE);
}

// From a handler, and while the trampoline itself runs.
TEST_F(RawAArch64, SignalTrampolinesAreKnownByTheirInstructions) {
  for (const std::uint64_t restorer : {kRestorer, kMuslRestorer}) {
    for (std::uint64_t i = 0; i <= 30; ++i)
      set(kStack + static_cast<std::uint64_t>(aarch64::kSignalRegisters) + 8 * i,
          i == 30 ? at(kStartReturn) : 0x2000 + i);
    set(kStack + static_cast<std::uint64_t>(aarch64::kSignalSp), kStack + 0x1800);
    set(kStack + static_cast<std::uint64_t>(aarch64::kSignalPc), at(kLeaf + 4));
    registers_.set(kX29, kStack + 0x1000);  // what the vdso's row would follow
    record(kStack + 0x1000, 0, at(kMiddleReturn));
    const Frames rest{at(kLeaf + 4) | WL_FRAME_EXACT, at(kStartReturn)};
    for (const std::uint64_t offset : {restorer, restorer + 4}) {
      in(offset);
      Frames expected{at(offset) | WL_FRAME_EXACT};
      expected.insert(expected.end(), rest.begin(), rest.end());
      EXPECT_EQ(unwind(), expected) << offset;
      EXPECT_EQ(end_, WL_END_COMPLETE);
    }
    in(kLeaf);
    registers_.set(kX30, at(restorer));
    Frames expected{at(kLeaf) | WL_FRAME_EXACT, at(restorer)};
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_EQ(unwind(), expected) << restorer;
    EXPECT_EQ(end_, WL_END_COMPLETE);
  }
}

// The pc of a thread in rt_sigreturn stands behind the trampoline, at the first instruction of what follows it.
TEST_F(RawAArch64, TheSystemCallThatReturnsFromAHandler) {
  set(kStack + static_cast<std::uint64_t>(aarch64::kSignalRegisters) + 8 * 30, at(kStartReturn));
  set(kStack + static_cast<std::uint64_t>(aarch64::kSignalSp), kStack + 0x1800);
  set(kStack + static_cast<std::uint64_t>(aarch64::kSignalPc), at(kLeaf + 4));
  for (const std::uint64_t restorer : {kRestorer, kMuslRestorer}) {
    in(restorer + 8);
    registers_.set(8, aarch64::kRtSigreturn);
    EXPECT_EQ(unwind(), (Frames{at(restorer + 4) | WL_FRAME_EXACT, at(kLeaf + 4) | WL_FRAME_EXACT, at(kStartReturn)}));
    EXPECT_EQ(end_, WL_END_COMPLETE);
    registers_.set(8, 0);  // some function that follows
    EXPECT_EQ(unwind().front(), at(restorer + 8) | WL_FRAME_EXACT);
    EXPECT_NE(unwind().at(1), at(kLeaf + 4) | WL_FRAME_EXACT);
  }
}

// Generated code has frame records, which do not record sp. A compiled function's own record does.
TEST_F(RawAArch64, FrameRecordsLeadThroughGeneratedCode) {
  const std::uint64_t generated = kGenerated + 0x40;
  registers_.set(kX30, generated);
  registers_.set(kX29, kStack + 0x100);
  record(kStack + 0x100, kStack + 0x200, at(kMiddleReturn));
  record(kStack + 0x200, 0, at(kOmitsReturn));
  set(kStack + 0x220, at(kStartReturn));
  EXPECT_EQ(unwind(),
            (Frames{at(kLeaf) | WL_FRAME_EXACT, generated, at(kMiddleReturn), at(kOmitsReturn), at(kStartReturn)}));
  EXPECT_EQ(end_, WL_END_CHAINED) << "nothing shows that the generated code uses its frame pointer";
  EXPECT_EQ(certainty_, WL_CHAINED);
}

TEST_F(RawAArch64, BehindAFrameRecordSpIsNotGuessed) {
  registers_.set(kX30, kGenerated + 0x40);
  registers_.set(kX29, kStack + 0x100);
  record(kStack + 0x100, kStack + 0x200, at(kOmitsReturn));
  set(kStack + 0x110, at(kStartReturn));  // where sp would be if the record were all of the frame
  EXPECT_EQ(unwind(), (Frames{at(kLeaf) | WL_FRAME_EXACT, kGenerated + 0x40, at(kOmitsReturn)}));
  EXPECT_EQ(end_, WL_END_REGISTER_LOST);
}

TEST_F(RawAArch64, FrameRecordsBelowTheStackAreNone) {
  registers_.set(kX30, kGenerated + 0x40);
  registers_.set(kX29, kStack - 0x100);
  EXPECT_EQ(unwind().size(), 2u);
  EXPECT_EQ(end_, WL_END_BAD_FRAME_POINTER);
}

TEST_F(RawAArch64, CodeOfAnotherMachineIsNotTakenForThisOnes) {
  file_ = program(Architecture::kX86_64);
  EXPECT_EQ(unwind().size(), 1u);
  EXPECT_EQ(end_, WL_END_OTHER_MACHINE);
  file_ = program(Architecture::kAArch64);  // as 32-bit ARM
  file_[4] = std::byte{1};
  file_[18] = std::byte{40};
  EXPECT_EQ(unwind().size(), 1u);
  EXPECT_EQ(end_, WL_END_OTHER_MACHINE);
}

TEST(RawEvent, RegistersAreThoseOfItsMachine) {
  wl_raw_event event{};
  for (std::uint64_t i = 0; i < WL_RAW_REGISTERS; ++i) event.regs[i] = 0x100 + i;
  event.code_before = 8;
  event.stack_address = 0x2000;

  event.machine = WL_MACHINE_AARCH64;
  auto parsed = parse_raw_event(event.head, sizeof event);
  ASSERT_TRUE(parsed);
  const Registers& arm = parsed->sample.registers;
  EXPECT_EQ(arm.architecture(), Architecture::kAArch64);
  for (RegisterNumber i = 0; i <= kSp; ++i) EXPECT_EQ(arm.get(i), 0x100u + i);
  EXPECT_EQ(arm.pc(), CodeAddress::instruction(0x120));
  EXPECT_EQ(parsed->sample.stack.address, 0x2000u);
  EXPECT_EQ(parsed->sample.code.address, 0x118u);

  event.machine = WL_MACHINE_X86_64;
  parsed = parse_raw_event(event.head, sizeof event);
  ASSERT_TRUE(parsed);
  const Registers& x64 = parsed->sample.registers;
  EXPECT_EQ(x64.architecture(), Architecture::kX86_64);
  for (RegisterNumber i = 0; i < 16; ++i) EXPECT_EQ(x64.get(i), 0x100u + i);
  EXPECT_EQ(x64.pc(), CodeAddress::instruction(0x110));

  // The lower halves of x86-64's, by i386's own numbers.
  event.machine = WL_MACHINE_I386;
  for (auto& value : event.regs) value |= 0xabcd'0000'0000;
  parsed = parse_raw_event(event.head, sizeof event);
  ASSERT_TRUE(parsed);
  const Registers& x86 = parsed->sample.registers;
  EXPECT_EQ(x86.architecture(), Architecture::kI386);
  const std::uint64_t rax_rcx_rdx_rbx_rsp_rbp_rsi_rdi[] = {0, 2, 1, 3, 7, 6, 4, 5};
  for (RegisterNumber i = 0; i < 8; ++i) EXPECT_EQ(x86.get(i), 0x100 + rax_rcx_rdx_rbx_rsp_rbp_rsi_rdi[i]) << i;
  EXPECT_EQ(x86.pc(), CodeAddress::instruction(0x110));

  event.machine = 3;
  parsed = parse_raw_event(event.head, sizeof event);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass::profiler
