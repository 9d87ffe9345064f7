// The bytes written for a Prologue, and Prologues that cannot be written.
#include <gtest/gtest.h>

#include "formats/winx64/encode.h"

namespace windlass {
namespace {

using namespace prologue;

using Text = std::string;
constexpr RegisterNumber kRax = 0, kRcx = 2, kRbx = 3, kRsi = 4, kRdi = 5, kRbp = 6, kRsp = 7, kR12 = 12;
constexpr RegisterNumber kXmm5 = 17 + 5, kXmm6 = 17 + 6;

Text hex(std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  Text out;
  for (const std::byte value : bytes) {
    out += kDigits[std::to_integer<unsigned>(value) >> 4];
    out += kDigits[std::to_integer<unsigned>(value) & 15];
  }
  return out;
}
// "1000-1020:2000 " for each entry, then the bytes; or the error.
Text written(const Prologue& prologue, winx64::WriteOptions options = {}) {
  options.function = 0x1000;
  options.info = 0x2000;
  const auto made = winx64::write(prologue, options);
  if (!made) return made.error().text();
  Text out;
  for (const winx64::RuntimeFunction& entry : made->entries) {
    char line[64];
    std::snprintf(line, sizeof line, "%x-%x:%x ", entry.begin, entry.end, entry.info);
    out += line;
  }
  return out + hex(made->bytes);
}
Prologue function(std::vector<prologue::Op> ops, std::uint32_t size = 64) {
  return {.architecture = Architecture::kX86_64, .code_size = size, .ops = std::move(ops)};
}

TEST(WinX64Write, PushAllocateSave) {
  const Prologue f = function({{1, push(kRbx)}, {5, Allocate{64}}, {10, Save{kRsi, 56}}, {15, Save{kXmm6, 32}}});
  EXPECT_EQ(written(f),
            "1000-1040:2000 010f0600"
            "0f680200"
            "0a640700"
            "0572"
            "0130");
}

TEST(WinX64Write, FramePointerLast) {
  const Prologue f =
      function({{1, push(kRbp)}, {5, Allocate{64}}, {10, SetFramePointer{kRbp, 32}}, {15, Save{kRsi, 56}}});
  EXPECT_EQ(written(f),
            "1000-1040:2000 010f0525"
            "0f640700"
            "0a03"
            "0572"
            "0150"
            "0000");
}

// push rbp; mov rbp, rsp; push rsi; sub rsp, 56; mov [rsp+40], rbx: the codes claim 32 bytes below rbp.
TEST(WinX64Write, FramePointerFirst) {
  const Prologue f =
      function({{1, push(kRbp)}, {4, SetFramePointer{kRbp}}, {5, push(kRsi)}, {9, Allocate{56}}, {14, Save{kRbx, 40}}});
  EXPECT_EQ(written(f),
            "1000-1040:2000 010e0725"
            "0e340100"
            "05640300"
            "0403"
            "0432"
            "0150"
            "0000");
}

TEST(WinX64Write, NothingSavedBelowFramePointerNeedsNoClaim) {
  const Prologue f = function({{1, push(kRbp)}, {4, SetFramePointer{kRbp}}, {8, Allocate{32}}});
  EXPECT_EQ(written(f),
            "1000-1040:2000 01080205"
            "0403"
            "0150");
}

TEST(WinX64Write, HomeAreaIsToldWhenRspHasArrived) {
  const Prologue f = function({{5, Save{kRbx, 8}}, {6, push(kRdi)}, {10, Allocate{32}}});
  EXPECT_EQ(written(f).substr(0, 60), "0x5: a register is saved before the frame it counts from is ");
  EXPECT_EQ(written(f, {.saves_can_wait = true}),
            "1000-1040:2000 010a0400"
            "0a340600"
            "0a32"
            "0670");
  const Prologue leaf = function({{5, Save{kRbx, 8}}});
  EXPECT_EQ(written(leaf),
            "1000-1040:2000 01050200"
            "05340100");
}

TEST(WinX64Write, PartsAreChained) {
  Prologue f = function({{4, Allocate{40}}});
  f.parts = {{20, 40, {{25, Save{kRbx, 32}}}, {{35, 40, {{40, Save{kRbx, 32}}}}}}, {50, 64, {{55, Save{kRsi, 32}}}}};
  EXPECT_EQ(written(f),
            "1000-1014:2000 1014-1028:2008 1028-1032:201c 1032-1040:202c "
            "01040100"
            "04420000"
            "21050200"
            "05340400"
            "00100000"
            "14100000"
            "00200000"
            "21000000"
            "00100000"
            "14100000"
            "00200000"
            "21050200"
            "05640400"
            "00100000"
            "14100000"
            "00200000");
}

TEST(WinX64Write, PartsOfALeafStandAlone) {
  Prologue f = function({});
  EXPECT_EQ(written(f), "");
  f.parts = {{20, 40, {{21, push(kRbx)}}}};
  EXPECT_EQ(written(f),
            "1014-1028:2000 01010100"
            "01300000");
  f.handler = prologue::Handler{0x3000, true, false, {}};
  EXPECT_EQ(written(f),
            "1000-1014:2000 1014-1028:2008 1028-1040:2000 09000000"
            "00300000"
            "09010100"
            "01300000"
            "00300000");
}

TEST(WinX64Write, HandlerWithData) {
  Prologue f = function({{4, Allocate{40}}});
  f.handler = prologue::Handler{0x3000, true, true, {std::byte{1}, std::byte{2}, std::byte{3}}};
  EXPECT_EQ(written(f),
            "1000-1040:2000 19040100"
            "04420000"
            "00300000"
            "01020300");
  f.handler->on_exception = f.handler->on_unwind = false;
  EXPECT_EQ(written(f), "0x0: handler is called in neither pass");
}

TEST(WinX64Write, Relocations) {
  Prologue f = function({{4, Allocate{40}}});
  f.parts = {{20, 64, {{25, Save{kRbx, 32}}}}};
  f.handler = prologue::Handler{0, true, true, {}};
  const auto made = winx64::write(f);
  ASSERT_TRUE(made);
  using Base = winx64::ImageRelative::Base;
  ASSERT_EQ(made->relocations.size(), 4U);
  EXPECT_EQ(made->relocations[0].at, 8U);
  EXPECT_EQ(made->relocations[0].base, Base::kHandler);
  EXPECT_EQ(made->relocations[1].at, 20U);
  EXPECT_EQ(made->relocations[1].base, Base::kFunction);
  EXPECT_EQ(made->relocations[3].base, Base::kInfo);
}

// As V8's embedded builtins are: thousands of functions of one shape, each with an entry, and one information.
TEST(WinX64Write, OneWriterForManyFunctions) {
  Prologue builtin = function({{1, push(kRbp)}, {4, SetFramePointer{kRbp}}}, 32);
  builtin.handler = prologue::Handler{0x9000, true, false, {}};
  Prologue other = function({{4, Allocate{40}}}, 32), broken = function({{4, Allocate{12}}}, 32);
  other.parts = {{10, 20, {{15, Save{kRbx, 32}}}}};
  winx64::Writer writer({.info = 0x100000});
  for (std::uint32_t i = 0; i < 4000; ++i) ASSERT_TRUE(writer.add(builtin, 0x1000 + i * 32));
  const std::vector<std::byte> once = writer.written().bytes;
  EXPECT_EQ(hex(once),
            "09040205"
            "0403"
            "0150"
            "00900000");
  ASSERT_EQ(writer.written().entries.size(), 4000U);
  EXPECT_EQ(writer.written().entries[3999],
            (winx64::RuntimeFunction{0x1000 + 3999 * 32, 0x1000 + 4000 * 32, 0x100000}));
  EXPECT_EQ(writer.written().relocations.size(), 1U);
  // An error adds nothing, and what is chained is each function's own.
  broken.parts = other.parts;
  EXPECT_FALSE(writer.add(broken, 0x80000));
  EXPECT_EQ(writer.written().bytes, once);
  ASSERT_TRUE(writer.add(other, 0x80000));
  ASSERT_TRUE(writer.add(other, 0x80020));
  const winx64::Written all = std::move(writer).take();
  ASSERT_EQ(all.entries.size(), 4006U);
  EXPECT_EQ(all.entries[4000].info, all.entries[4003].info);
  EXPECT_NE(all.entries[4001].info, all.entries[4004].info);
  EXPECT_EQ(all.relocations.back().function, 4001U);
  const auto alone = winx64::write(other, {.function = 0x80020, .info = 0x100000});
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->entries[0].begin, all.entries[4003].begin);
}

TEST(WinX64Write, SecondVersionTellsEpilogues) {
  Prologue f = function({{1, push(kRbx)}, {3, push(kR12)}, {7, Allocate{32}}}, 40);
  f.epilogues = {mirrored(f, 10), mirrored(f, 32)};
  ASSERT_EQ(f.epilogues[1].end, 40U);
  EXPECT_EQ(written(f, {.version = 2}),
            "1000-1028:2000 02070500"
            "0416"
            "1a06"
            "0732"
            "03c0"
            "0130"
            "0000");
  f.code_size = 45;  // none ends the function
  EXPECT_EQ(written(f, {.version = 2}),
            "1000-102d:2000 02070700"
            "0406"
            "0906"
            "1f06"
            "0006"
            "0732"
            "03c0"
            "0130"
            "0000");
}

// With the code at hand. An exit by which no unwinder of version 1 recognises an epilogue has no entry. Nor have the
// pops before it an entry in which an unwinder would have to find it.
TEST(WinX64Write, ExitsThatUnwindersDoNotKnow) {
  const auto with = [](std::vector<std::uint8_t> exit, std::uint8_t version = 1) {
    std::vector<std::uint8_t> code = {0x53, 0x41, 0x54, 0x90, 0x41, 0x5c, 0x5b};  // push rbx; push r12; nop; pops
    code.insert(code.end(), exit.begin(), exit.end());
    const auto size = static_cast<std::uint32_t>(code.size());
    Prologue f = function({{1, push(kRbx)}, {3, push(kR12)}}, size);
    f.epilogues = {{4, size, {{6, push(kR12)}, {7, push(kRbx)}}}};
    const auto made =
        winx64::write(f, {.version = version, .function = 0x1000, .info = 0x2000}, std::as_bytes(std::span(code)));
    if (!made) return made.error().text();
    Text out;
    for (const winx64::RuntimeFunction& entry : made->entries) {
      char line[64];
      std::snprintf(line, sizeof line, "%x-%x:%x ", entry.begin, entry.end, entry.info);
      out += line;
    }
    return out + hex(made->bytes);
  };
  const Text codes = "0103020003c00130", apart = "1000-1006:2000 1006-1007:2008 " + codes + "0100010000300000";
  EXPECT_EQ(with({0xc3}), "1000-1008:2000 " + codes);
  EXPECT_EQ(with({0xeb, 0x10}), "1000-1009:2000 " + codes) << "a jump out of the function";
  EXPECT_EQ(with({0x48, 0xff, 0xe1}), "1000-100a:2000 " + codes) << "marked by a REX.W";
  EXPECT_EQ(with({0xff, 0x25, 0, 0, 0, 0}), "1000-100d:2000 " + codes) << "through an import slot";
  EXPECT_EQ(with({0xff, 0xe1}), apart) << "jmp rcx";
  EXPECT_EQ(with({0x41, 0xff, 0xe2}), apart) << "jmp r10";
  EXPECT_EQ(with({0xff, 0x60, 0x08}), apart) << "jmp [rax + 8]";
  EXPECT_EQ(with({0xeb, 0xf7}), apart) << "a jump to the function's begin";
  EXPECT_EQ(with({0x89, 0xd8, 0xc3}), apart) << "mov eax, ebx in front of the return";
  EXPECT_EQ(with({0xff, 0xe1}, 2).substr(0, 15), "1000-1009:2000 ") << "version 2 describes it";
}

TEST(WinX64Write, TheCodeIsOfTheFunctionsSize) {
  const std::byte code[3] = {};
  const auto made = winx64::write(function({{1, push(kRbx)}}, 4), {}, code);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().text(), "0x3: the code is of another size than the prologue says (0x4)");
}

TEST(WinX64Write, FarEpiloguesGetEntriesOfTheirOwn) {
  Prologue f = function({{4, Allocate{40}}}, 10000);
  f.epilogues = {mirrored(f, 100), mirrored(f, 5000), mirrored(f, 9995)};
  const auto made = winx64::write(f, {.version = 2, .function = 0x1000, .info = 0x2000});
  ASSERT_TRUE(made) << made.error().text();
  ASSERT_EQ(made->entries.size(), 3U);
  EXPECT_EQ(made->entries[0].end, 0x1000 + 105U);
  EXPECT_EQ(made->entries[1].end, 0x1000 + 5005U);
  EXPECT_EQ(made->entries[2].end, 0x1000 + 10000U);
}

TEST(WinX64Write, EveryLimitIsAnError) {
  const auto why = [](std::vector<prologue::Op> ops, std::uint32_t size = 1000) {
    return written(function(std::move(ops), size));
  };
  EXPECT_EQ(why({{255, push(kRbx)}}).substr(0, 4), "1000");
  EXPECT_EQ(why({{256, push(kRbx)}}), "0x100: a prologue has at most 255 bytes (0x100)");
  EXPECT_EQ(why({{4, Allocate{12}}}), "0x4: an allocation is a multiple of 8, at most 4G - 8 bytes (0xc)");
  EXPECT_EQ(why({{4, Allocate{0xffff'fff8}}}).substr(0, 4), "1000");
  EXPECT_EQ(why({{4, Allocate{0x1'0000'0000}}}),
            "0x4: an allocation is a multiple of 8, at most 4G - 8 bytes (0x100000000)");
  EXPECT_EQ(why({{4, Allocate{40}}, {5, push(kRbx)}}), "0x5: a push comes before every allocation and save (0x3)");
  EXPECT_EQ(why({{1, push(kRbx)}, {6, Save{kRsi, 32}}, {7, push(kRdi)}}),
            "0x6: a register is saved before the frame it counts from is complete: the codes would be wrong while rsp "
            "still moves (0x4)");
  EXPECT_EQ(why({{1, push(kRcx)}}),
            "0x1: only rbx, rbp, rsi, rdi, r12 to r15 and xmm6 to xmm15 are saved; the push of another register is an "
            "allocation of 8 (0x2)");
  EXPECT_EQ(why({{4, Allocate{40}}, {9, Save{kXmm5, 16}}}).substr(0, 14), "0x9: only rbx,");
  EXPECT_EQ(why({{4, Allocate{40}}, {9, Save{kRsp, 16}}}).substr(0, 14), "0x9: only rbx,");
  EXPECT_EQ(why({{4, Allocate{40}}, {9, Save{kRbx, 12}}}),
            "0x9: a register is saved at a multiple of 8 from the frame, below 4G (0xc)");
  EXPECT_EQ(why({{4, Allocate{40}}, {9, Save{kXmm6, 8}}}),
            "0x9: an xmm register is saved at a multiple of 16 from the frame, below 4G (0x8)");
  EXPECT_EQ(why({{1, push(kRax)}}).substr(0, 14), "0x1: only rbx,");
  EXPECT_EQ(why({{3, SetFramePointer{kRax}}}),
            "0x3: rax cannot be the frame pointer: its number says that there is none");
  EXPECT_EQ(why({{3, SetFramePointer{kRcx}}}), "0x3: the frame pointer is a register that calls preserve (0x2)");
  EXPECT_EQ(why({{3, SetFramePointer{kXmm6}}}), "0x3: the frame pointer is a register that calls preserve (0x17)");
  EXPECT_EQ(why({{3, SetFramePointer{kRbp}}}), "0x3: the frame pointer is set before its old value was saved (0x6)");
  EXPECT_EQ(why({{1, push(kRbp)}, {8, Allocate{512}}, {12, SetFramePointer{kRbp, 256}}}),
            "0xc: the frame pointer's offset is a multiple of 16, at most 240 (0x100)");
  EXPECT_EQ(why({{1, push(kRbp)}, {8, Allocate{512}}, {12, SetFramePointer{kRbp, 8}}}),
            "0xc: the frame pointer's offset is a multiple of 16, at most 240 (0x8)");
  EXPECT_EQ(
      why({{1, push(kRbp)}, {4, SetFramePointer{kRbp}}, {8, Allocate{512}}, {13, Save{kRbx, 512 - 240}}}).substr(0, 4),
      "1000");
  EXPECT_EQ(
      why({{1, push(kRbp)}, {4, SetFramePointer{kRbp}}, {8, Allocate{512}}, {13, Save{kRbx, 512 - 248}}}),
      "0xd: a register is saved at most 240 bytes, less the offset, below where the frame pointer was set (0xf8)");
  EXPECT_EQ(why({{1, push(kRbx)}, {1, MachineFrame{}}}),
            "0x1: a machine frame comes before everything else, on x86-64");
  EXPECT_EQ(why({{1, SignReturnAddress{}}}), "0x1: return address is signed twice, or on x86-64");
  EXPECT_EQ(why({{4, Allocate{8}}}, 0xffff'ffff), "0xffffffff: function reaches past what an RVA can name (0x1000)");
  std::vector<prologue::Op> many;
  for (std::uint32_t i = 1; i <= 128; ++i) many.push_back({i, Allocate{136}});
  EXPECT_EQ(why(many), "0x80: operations and epilogues fill at most 255 slots (0x100)");
}

TEST(WinX64Write, WhatIsAskedForIsChecked) {
  Prologue f = function({{4, Allocate{40}}});
  EXPECT_EQ(written(f, {.version = 4}), "0x0: versions 1, 2 and 3 are written (0x4)");
  const auto odd = winx64::write(f, {.function = 0x1000, .info = 0x2002});
  ASSERT_FALSE(odd);
  EXPECT_STREQ(odd.error().what, "unwind information stands at a multiple of 4");
  f.architecture = Architecture::kAArch64;
  EXPECT_EQ(written(f), "0x0: prologue is not of x86-64");
}

// push rbp; mov rbp, rsp; push r12; push rbx; sub rsp, 64: what JITs and GCC begin with, and the ways out of it.
Prologue early_pointer() {
  return function({{1, push(kRbp)}, {4, SetFramePointer{kRbp}}, {6, push(kR12)}, {7, push(kRbx)}, {11, Allocate{64}}});
}

TEST(WinX64Write, MirroredEpilogueOfAnEarlyFramePointer) {
  Prologue f = early_pointer();
  f.epilogues = {mirrored(f, 31)};  // add rsp, 64; pop rbx; pop r12; pop rbp; ret
  EXPECT_EQ(f.epilogues[0].end, 40U);
  EXPECT_EQ(written(f),
            "1000-1040:2000 010b0715073400"
            "0006c40100"
            "0403"
            "0412"
            "0150"
            "0000");
  // Version 2: pop r12, pop rbp and ret have an entry of their own, as the pops of rbx and r12 undo no push code.
  EXPECT_EQ(written(f, {.version = 2}),
            "1000-1024:2000 1024-1028:2014 1028-1040:2020 "
            "020b0715073400"
            "0006c40100"
            "0403"
            "0412"
            "0150"
            "0000"
            "02000400"
            "0416"
            "0006"
            "00c0"
            "0050"
            "22000015"
            "00100000"
            "24100000"
            "00200000");
}

TEST(WinX64Write, FramePointersThatMoveNothingMayBeListed) {
  Prologue f = early_pointer();
  const std::vector<prologue::Op> lea = {{35, Allocate{64}}, {36, push(kRbx)}, {38, push(kR12)}, {39, push(kRbp)}};
  f.epilogues = {{31, 40, lea}};
  for (const std::uint8_t version : {1, 2}) {
    const Text plain = written(f, {.version = version});
    EXPECT_EQ(plain.substr(0, 5), "1000-");
    for (const std::uint32_t end : {38U, 39U}) {
      Prologue same = f;
      auto& undone = same.epilogues[0].undone;
      undone.insert(undone.begin() + 3, {end, SetFramePointer{kRbp}});
      EXPECT_EQ(written(same, {.version = version}), plain);
    }
  }
}

TEST(WinX64Write, Leave) {
  Prologue f = function({{1, push(kRbp)}, {4, SetFramePointer{kRbp}}, {8, Allocate{64}}}, 20);
  f.epilogues = {{18, 20, {{19, Allocate{64}}, {19, SetFramePointer{kRbp}}, {19, push(kRbp)}}}};
  EXPECT_EQ(written(f),
            "1000-1014:2000 01080205"
            "0403"
            "0150");
  EXPECT_EQ(written(f, {.version = 2}),
            "1000-1013:2000 1013-1014:2008 02080205"
            "0403"
            "0150"
            "02000200"
            "0116"
            "0006");
}

TEST(WinX64Write, EpiloguesThatUnwindersDoNotKnow) {
  Prologue f = function({{1, push(kRbx)}, {5, Allocate{40}}, {10, Save{kRsi, 32}}});
  const auto with = [&](Epilogue epilogue, std::uint8_t version) {
    f.epilogues = {std::move(epilogue)};
    return written(f, {.version = version}).substr(0, 30);
  };
  const Epilogue two{20, 40, {{25, Save{kRsi, 32}}, {29, Allocate{8}}, {33, Allocate{32}}, {34, push(kRbx)}}};
  EXPECT_EQ(with(two, 1).substr(0, 4), "1000");  // `add rsp, 32; pop; ret` is found
  EXPECT_EQ(with(two, 2), "0x1d: version 2 describes epil");
  const Epilogue three{
      20, 50, {{25, Save{kRsi, 32}}, {29, Allocate{8}}, {33, Allocate{8}}, {37, Allocate{24}}, {38, push(kRbx)}}};
  EXPECT_EQ(with(three, 1), "0x1d: version 1 knows epilogue");
  const Epilogue late{20, 40, {{24, Allocate{8}}, {29, Save{kRsi, 24}}, {33, Allocate{32}}, {34, push(kRbx)}}};
  EXPECT_EQ(with(late, 1), "0x18: version 1 knows epilogue");
  const Epilogue moved{20, 40, {{25, Save{kRsi, 32}}, {30, Save{kRbx, 40}}, {34, Allocate{48}}}};
  EXPECT_EQ(with(moved, 1).substr(0, 4), "1000");
  EXPECT_EQ(with(moved, 2), "1000-1022:2000 1022-1028:200c ");  // the jump or return has an entry to itself
  const Epilogue apart{20, 40, {{25, Save{kRsi, 32}}, {29, Allocate{40}}, {35, push(kRbx)}}};
  EXPECT_EQ(with(apart, 1), "0x1d: version 1 knows epilogue");  // something else stands between the two
  EXPECT_EQ(with(apart, 2), "0x1d: version 2 describes epil");
  const Epilogue slow{20, 60, {{25, Save{kRsi, 32}}, {29, Allocate{40}}, {30, push(kRbx)}}};
  // The pop has an entry to itself, and what follows is a leaf's.
  EXPECT_EQ(with(slow, 1), "1000-101d:2000 101d-101e:200c ");
  EXPECT_EQ(with(slow, 2), "1000-101d:2000 101d-101e:200c ");
  const Epilogue scattered{20, 60, {{25, Save{kRsi, 32}}, {29, Allocate{40}}, {35, push(kRbx)}}};
  EXPECT_EQ(with(scattered, 1), "0x1d: version 1 knows epilogue");
}

// As the checked JIT prints it: the first one is that of Matt Warren's "Stack Walking in the .NET Runtime".
TEST(JitUnwindDump, IsTheClrs) {
  Prologue f{.code_size = 0x4e};
  f.ops = {{1, prologue::push(6)}, {2, prologue::push(5)}, {3, prologue::push(4)}, {7, prologue::Allocate{96}}};
  EXPECT_EQ(winx64::jit_unwind_dump(winx64::write(f)->bytes, 0, 0x4e).value(),
            "Unwind Info:\n"
            "  >> Start offset   : 0x000000 (not in unwind data)\n"
            "  >>   End offset   : 0x00004e (not in unwind data)\n"
            "  Version           : 1\n"
            "  Flags             : 0x00\n"
            "  SizeOfProlog      : 0x07\n"
            "  CountOfUnwindCodes: 4\n"
            "  FrameRegister     : none (0)\n"
            "  FrameOffset       : N/A (no FrameRegister) (Value=0)\n"
            "  UnwindCodes       :\n"
            "    CodeOffset: 0x07 UnwindOp: UWOP_ALLOC_SMALL (2)     OpInfo: 11 * 8 + 8 = 96 = 0x60\n"
            "    CodeOffset: 0x03 UnwindOp: UWOP_PUSH_NONVOL (0)     OpInfo: rsi (6)\n"
            "    CodeOffset: 0x02 UnwindOp: UWOP_PUSH_NONVOL (0)     OpInfo: rdi (7)\n"
            "    CodeOffset: 0x01 UnwindOp: UWOP_PUSH_NONVOL (0)     OpInfo: rbp (5)\n");
  Prologue g{.code_size = 100};
  g.ops = {{1, prologue::push(6)}, {8, prologue::Allocate{0x1000}}, {13, prologue::SetFramePointer{6, 0x20}}};
  g.handler = prologue::Handler{.rva = 0x40};
  const std::string text = winx64::jit_unwind_dump(winx64::write(g)->bytes, 0, 100).value();
  EXPECT_NE(text.find("  Flags             : 0x03 ( UNW_FLAG_EHANDLER UNW_FLAG_UHANDLER)\n"), std::string::npos);
  EXPECT_NE(text.find("  FrameRegister     : rbp (5)\n  FrameOffset       : 2 * 16 = 0x20\n"), std::string::npos);
  EXPECT_NE(text.find("    CodeOffset: 0x0D UnwindOp: UWOP_SET_FPREG (3)       OpInfo: Unused (0)\n"
                      "    CodeOffset: 0x08 UnwindOp: UWOP_ALLOC_LARGE (1)     OpInfo: 0 - Scaled small  \n"
                      "      Size: 512 * 8 = 4096 = 0x01000\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(winx64::jit_unwind_dump({}, 0, 1).error().code, ErrorCode::kTruncated);
}

}  // namespace
}  // namespace windlass
