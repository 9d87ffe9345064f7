// i386: words of four bytes, its own register numbers, addresses that wrap at four gigabytes; its registers as the
// kernel hands them out; its core files.
#include <gtest/gtest.h>

#include <elf.h>

#include <cstring>

#include "support/byte_sink.h"
#include "support/dump_file.h"
#include "support/walk_target.h"
#include "walk/target/regsets.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using test::ByteSink;
using test::DumpFile;
using test::WordMemory;

constexpr std::uint64_t kCode = 0x8048000, kSize = 0x1000, kSp = 0xffff'd000;
constexpr RegisterNumber kEax = 0, kEcx = 1, kEdx = 2, kEbx = 3, kEsp = 4, kEbp = 5, kEsi = 6, kEdi = 7, kEip = 8;

// Words of four bytes at addresses; all else is unreadable.
class NarrowMemory : public WordMemory {
 public:
  void set(std::uint64_t address, std::uint32_t value) {
    std::uint64_t& both = words[address & ~std::uint64_t{7}];
    const unsigned shift = address % 8 * 8;
    both = (both & ~(std::uint64_t{0xffff'ffff} << shift)) | std::uint64_t{value} << shift;
  }
};

class I386 : public testing::Test {
 protected:
  I386() {
    auto owned = std::make_unique<NarrowMemory>();
    memory_ = owned.get();
    space_.emplace(Architecture::kI386, std::move(owned));
    registers_.set_sp(kSp);
    for (const RegisterNumber reg : {kEax, kEbx, kEbp, kEsi, kEdi}) registers_.set(reg, 0x1000u + reg);
    registers_.set_pc(CodeAddress::instruction(kCode + 4));
  }
  void add(std::vector<FrameRow> rows) {
    CodeRange range{.begin = kCode, .end = kCode + kSize};
    range.rows = std::move(rows);
    const auto added = space_->add(std::move(range));
    ASSERT_TRUE(added) << added.error().text();
  }
  static FrameRow row(const CfaRule& cfa) {
    FrameRow row;
    row.begin = kCode;
    row.end = kCode + 0x100;
    row.cfa = cfa;
    row.return_address = RegisterRule::at_cfa(-4);
    return row;
  }
  // A word above every slot lets a load of eight bytes through, and gives it away.
  void push(std::uint64_t address, std::uint32_t value) {
    memory_->set(address, value);
    memory_->set(address + 4, 0xdddd'dddd);
  }

  NarrowMemory* memory_ = nullptr;
  std::optional<AddressSpace> space_;
  Registers registers_{Architecture::kI386};
};

TEST_F(I386, ARowOfFourByteSlots) {
  FrameRow at = row(CfaRule::at(kEsp, 24));
  ASSERT_TRUE(at.registers.set(kEbx, RegisterRule::at_cfa(-8)));
  ASSERT_TRUE(at.registers.set(kEbp, RegisterRule::at_cfa(-12)));
  add({at});
  push(kSp + 20, kCode + 0x200);
  memory_->set(kSp + 16, 0xffff'fff0);
  memory_->set(kSp + 12, 77);
  for (const bool again : {false, true}) {  // the second time as a call site whose row is kept
    if (again) registers_.set_pc(CodeAddress::return_address(kCode + 4));
    for (int i = 0; i < (again ? 2 : 1); ++i) {
      StackWalker walker(*space_, registers_, WalkOptions{100, true});
      ASSERT_TRUE(walker.step()) << end_name(walker.end_reason()) << ": " << walker.error().text();
      const Registers& caller = walker.frame().registers;
      EXPECT_EQ(caller.pc(), CodeAddress::return_address(kCode + 0x200));
      EXPECT_EQ(caller.sp(), kSp + 24);
      EXPECT_EQ(caller.get(kEbx), 0xffff'fff0u);
      EXPECT_EQ(caller.get(kEbp), 77u);
      EXPECT_EQ(caller.get(kEsi), 0x1000u + kEsi) << "calls preserve it";
      EXPECT_EQ(caller.get(kEdi), 0x1000u + kEdi);
      EXPECT_FALSE(caller.has(kEax));
      EXPECT_EQ(walker.frame().saved.at(caller, kEip), kSp + 20);
      EXPECT_EQ(walker.frame().certainty, FrameCertainty::kDescribed);
    }
  }
}

TEST_F(I386, AddressesWrap) {
  registers_.set(kEbx, 0xffff'fff8);
  FrameRow at = row(CfaRule::at(kEbx, 0x1010));
  add({at});
  push(0x1004, kCode + 0x200);
  StackWalker walker(*space_, registers_, WalkOptions{100, true});
  ASSERT_TRUE(walker.step()) << end_name(walker.end_reason()) << ": " << walker.error().text();
  EXPECT_EQ(walker.frame().sp(), 0x1008u);
}

TEST_F(I386, ACallOfANullPointer) {
  registers_.set_pc(CodeAddress::instruction(0));
  add({});
  push(kSp, kCode + 0x200);
  StackWalker walker(*space_, registers_, WalkOptions{100, true});
  ASSERT_TRUE(walker.step()) << end_name(walker.end_reason()) << ": " << walker.error().text();
  EXPECT_EQ(walker.frame().origin, FrameOrigin::kLeaf);
  EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kCode + 0x200));
  EXPECT_EQ(walker.frame().sp(), kSp + 4);
}

TEST_F(I386, TheChainOfFramePointers) {
  registers_.set_pc(CodeAddress::return_address(kCode + 4));
  registers_.set(kEbp, kSp + 12);  // a multiple of four is all that it must be
  add({});
  push(kSp + 12, static_cast<std::uint32_t>(kSp) + 0x100);
  push(kSp + 16, kCode + 0x200);
  StackWalker walker(*space_, registers_, WalkOptions{100, true});
  ASSERT_TRUE(walker.step()) << end_name(walker.end_reason()) << ": " << walker.error().text();
  EXPECT_EQ(walker.frame().origin, FrameOrigin::kFramePointer);
  EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kCode + 0x200));
  EXPECT_EQ(walker.frame().sp(), kSp + 20);
  EXPECT_EQ(walker.frame().registers.get(kEbp), kSp + 0x100);
  EXPECT_FALSE(walker.frame().registers.has(kEbx)) << "what the function has saved is lost";
}

// libgcc on its way to a landing pad: the registers in the frame of _Unwind_RaiseException are the landing pad's by
// now, whose frame the second of two struct _Unwind_Context tells.
TEST_F(I386, TheLandingPadsFrame) {
  constexpr std::uint64_t kCfa = kSp + 0x200, kTargetCfa = kSp + 0x300;
  constexpr std::uint64_t kOwn = kSp + 0x20, kTarget = kSp + 0x90;
  constexpr std::pair<RegisterNumber, std::uint64_t> kSlots[] = {{kEax, 28}, {kEdx, 24}, {kEbx, 20}, {kEsi, 16},
                                                                 {kEdi, 12}, {kEbp, 8},  {kEip, 4}};
  constexpr unsigned kRegisters = 18;  // of i386's _Unwind_Context; the CFA and the pc stand behind them
  for (std::uint64_t at = kSp; at < kTargetCfa + 16; at += 4) memory_->set(at, 0);
  for (std::uint64_t at = kCode; at < kCode + 0x200; at += 4) memory_->set(at, 0x90909090);
  for (const auto& [reg, below] : kSlots) {
    const auto slot = static_cast<std::uint32_t>(kCfa - below), target = static_cast<std::uint32_t>(kTargetCfa - below);
    memory_->set(kOwn + 4 * reg, slot);
    memory_->set(kTarget + 4 * reg, reg == kEax || reg == kEdx ? slot : target);
    memory_->set(target, 0x7000u + reg);
  }
  memory_->set(kCfa - 4, kCode + 0x180);
  memory_->set(kTargetCfa - 4, kCode + 0x200);
  memory_->set(kOwn + 4 * kRegisters, static_cast<std::uint32_t>(kCfa));
  memory_->set(kOwn + 4 * kRegisters + 4, kCode + 0x180);
  memory_->set(kTarget + 4 * kRegisters, static_cast<std::uint32_t>(kTargetCfa));
  memory_->set(kTarget + 4 * kRegisters + 4, kCode + 0x240);
  memory_->set(kCode + 8, 0xe1ff59cc);  // mov esp, ecx; pop ecx; jmp ecx, from kCode + 7 on
  memory_->set(kCode + 4, 0x89909090);

  FrameRow at = row(CfaRule::at(kEbp, 8));
  at.end = kCode + 7;
  for (const auto& [reg, below] : kSlots)
    if (reg != kEip) {
      ASSERT_TRUE(at.registers.set(reg, RegisterRule::at_cfa(-static_cast<std::int32_t>(below))));
    }
  FrameRow before_move = row(CfaRule::at(kEcx, 4)), behind_move = row(CfaRule::at(kEsp, 4)), entry = behind_move;
  before_move.begin = kCode + 7, before_move.end = behind_move.begin = kCode + 9;
  behind_move.end = kCode + 10;
  entry.begin = kCode + 0x40;
  add({at, before_move, behind_move, entry});
  registers_.set(kEbp, kCfa - 8);
  {
    StackWalker walker(*space_, registers_, WalkOptions{100, true});
    ASSERT_TRUE(walker.step()) << end_name(walker.end_reason()) << ": " << walker.error().text();
    const Registers& landing = walker.frame().registers;
    EXPECT_EQ(landing.pc(), CodeAddress::return_address(kCode + 0x200));
    EXPECT_EQ(landing.sp(), kTargetCfa);
    for (const RegisterNumber reg : {kEbx, kEbp, kEsi, kEdi}) EXPECT_EQ(landing.get(reg), 0x7000u + reg);
    EXPECT_FALSE(landing.has(kEax));
  }
  // Nothing but the jump is left: it goes to an instruction, and not back behind a call.
  registers_.set(kEcx, kSp + 0x10);
  memory_->set(kSp + 0x10, kCode + 0x240);
  memory_->set(kSp, kCode + 0x240);
  for (const auto& [pc, found] : {std::pair(kCode + 7, CodeAddress::instruction(kCode + 0x240)),
                                  std::pair(kCode + 9, CodeAddress::instruction(kCode + 0x240)),
                                  std::pair(kCode + 0x40, CodeAddress::return_address(kCode + 0x240))}) {
    registers_.set_pc(CodeAddress::instruction(pc));
    StackWalker walker(*space_, registers_, WalkOptions{100, true});
    ASSERT_TRUE(walker.step()) << end_name(walker.end_reason()) << ": " << walker.error().text();
    EXPECT_EQ(walker.frame().pc(), found) << pc - kCode;
  }
}

// struct user_regs_struct32: each register by its place.
TEST(I386Registers, AsTheKernelHandsThemOut) {
  ByteSink bytes;
  for (std::uint32_t i = 0; i < 17; ++i) bytes.put(0xf000'0000 + i);
  const ByteView view(bytes.bytes().data(), bytes.size());
  const auto registers = walk::general_registers(Architecture::kI386, view);
  ASSERT_TRUE(registers);
  const std::pair<RegisterNumber, std::uint64_t> places[] = {{kEbx, 0}, {1, 1},    {2, 2},     {kEsi, 3}, {kEdi, 4},
                                                             {kEbp, 5}, {kEax, 6}, {kEip, 12}, {kEsp, 15}};
  for (const auto& [reg, place] : places) EXPECT_EQ(registers->get(reg), 0xf000'0000 + place) << reg;
  EXPECT_FALSE(walk::general_registers(Architecture::kI386, *view.sub(0, 64)));
}

// fs/compat_binfmt_elf.c: every structure with 4-byte words.
std::vector<std::byte> core_file() {
  const auto note = [](ByteSink& out, std::uint32_t type, const ByteSink& desc) {
    out.put(Elf32_Nhdr{5, static_cast<std::uint32_t>(desc.size()), type});
    out.append(std::string_view("CORE\0\0\0", 8));
    out.append(desc.bytes());
    out.align(4);
  };
  ByteSink notes;
  ByteSink status;
  status.zeros(72);
  status.set(12, std::uint16_t{11});
  status.set(24, std::uint32_t{4711});
  for (std::uint32_t i = 0; i < 17; ++i) status.put(0x1000 + i);
  status.put(std::uint32_t{0});
  note(notes, NT_PRSTATUS, status);
  ByteSink info;
  info.zeros(124);
  info.set(12, std::uint32_t{4711});
  info.set(28, 'p');
  info.set(44, 'a');
  note(notes, NT_PRPSINFO, info);
  ByteSink auxiliary;
  for (const std::uint32_t word : {AT_PAGESZ, 4096, AT_ENTRY, 0x8048100}) auxiliary.put(word);
  note(notes, NT_AUXV, auxiliary);
  ByteSink files;
  for (const std::uint32_t word : {1u, 4096u, 0x8048000u, 0x8049000u, 3u}) files.put(word);
  files.append(std::string_view("/no/such/program\0", 17));
  note(notes, NT_FILE, files);

  ByteSink out;
  Elf32_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS32;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_CORE;
  header.e_machine = EM_386;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf32_Phdr);
  header.e_phnum = 2;
  out.put(header);
  const auto size = static_cast<std::uint32_t>(notes.size());
  constexpr std::uint32_t kNotes = sizeof header + 2 * sizeof(Elf32_Phdr);
  out.put(Elf32_Phdr{PT_NOTE, kNotes, 0, 0, size, 0, 0, 4});
  out.put(Elf32_Phdr{PT_LOAD, kNotes + size, 0x8048000, 0, 16, 0x1000, PF_R | PF_X, 4096});
  out.append(notes.bytes());
  for (std::uint32_t i = 0; i < 4; ++i) out.put(0x5000 + i);
  return out.bytes();
}

TEST(I386Core, WhatWasPutIn) {
  const DumpFile file(core_file());
  const auto target = open_core(file.path());
  ASSERT_TRUE(target) << target.error().text();
  for (const Error& problem : target->problems) ADD_FAILURE() << problem.text();
  EXPECT_EQ(target->space.architecture(), Architecture::kI386);
  EXPECT_EQ(target->process, 4711u);
  EXPECT_EQ(target->command, "a");
  ASSERT_EQ(target->threads.size(), 1u);
  EXPECT_EQ(target->threads[0].id, 4711u);
  EXPECT_EQ(target->threads[0].name, "p");
  EXPECT_TRUE(target->threads[0].faulted);
  EXPECT_EQ(target->threads[0].registers.get(kEbx), 0x1000u);
  EXPECT_EQ(target->threads[0].registers.get(kEip), 0x100cu);
  EXPECT_EQ(target->threads[0].registers.sp(), 0x100fu);
  std::uint32_t word = 0;
  EXPECT_TRUE(target->space.memory().read(0x804800c, &word, sizeof word));
  EXPECT_EQ(word, 0x5003u);
  ASSERT_NE(target->space.module_at(0x8048ffc), nullptr) << "the mapped file is code";
}

// Every damaged byte is an error or a problem, and never more.
TEST(I386Core, CutAnywhere) {
  const std::vector<std::byte> whole = core_file();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const DumpFile file(std::vector<std::byte>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    const auto target = open_core(file.path());
    EXPECT_TRUE(!target || !target->problems.empty()) << size;
  }
}

}  // namespace
}  // namespace windlass
