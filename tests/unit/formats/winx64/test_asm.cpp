// Assembly texts, and what there are no directives for.
#include <gtest/gtest.h>

#include "windlass/format/winx64.h"

namespace windlass {
namespace {

using namespace prologue;

using winx64::Assembler;
using winx64::AssemblyOptions;
using Text = std::string;

constexpr RegisterNumber kRbx = 3, kRsi = 4, kRbp = 6, kXmm6 = 17 + 6;

// "4 .seh_stackalloc 40|..."; or the error.
Text directives(const Prologue& prologue, const AssemblyOptions& options) {
  const auto list = winx64::directives_of(prologue, options);
  if (!list) return list.error().text();
  Text out;
  for (const winx64::Directive& directive : *list) out += std::to_string(directive.offset) + " " + directive.text + "|";
  return out;
}
Text assembly(const Prologue& prologue, const AssemblyOptions& options) {
  const std::vector<std::byte> code(prologue.code_size, std::byte{0x90});
  const auto text = winx64::assembly_of(prologue, code, options);
  return text ? *text : text.error().text();
}

Prologue framed() {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 32};
  f.ops = {{1, push(kRbp)}, {4, SetFramePointer{kRbp}}, {8, Allocate{32}}, {12, Save{kRsi, 24}}, {16, Save{kXmm6, 0}}};
  return f;
}

TEST(WinX64Asm, Gas) {
  EXPECT_EQ(directives(framed(), {.name = "f"}),
            "0 .seh_proc f|1 .seh_pushreg %rbp|4 .seh_stackalloc 32|4 .seh_setframe %rbp, 32|12 .seh_savereg %rsi, 24|"
            "16 .seh_savexmm %xmm6, 0|16 .seh_endprologue|32 .seh_endproc|");
}

TEST(WinX64Asm, Masm) {
  EXPECT_EQ(directives(framed(), {.assembler = Assembler::kMasm, .name = "f"}),
            "0 f PROC FRAME|1 .pushreg rbp|4 .allocstack 32|4 .setframe rbp, 32|12 .savereg rsi, 24|"
            "16 .savexmm128 xmm6, 0|16 .endprolog|32 f ENDP|");
  Prologue f = framed();
  f.handler = prologue::Handler{0, true, true, {}};
  EXPECT_EQ(directives(f, {.assembler = Assembler::kMasm, .name = "f", .handler = "h"}).substr(0, 19),
            "0 f PROC FRAME:h|1 ");
}

TEST(WinX64Asm, EpiloguesOfTheSecondVersion) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 20};
  f.ops = {{1, push(kRbx)}, {5, Allocate{32}}};
  f.epilogues = {mirrored(f, 14)};
  EXPECT_EQ(directives(f, {.assembler = Assembler::kClang, .version = 2, .name = "f"}),
            "0 .seh_proc f|0 .seh_unwindversion 2|1 .seh_pushreg %rbx|5 .seh_stackalloc 32|5 .seh_endprologue|"
            "14 .seh_startepilogue|18 .seh_unwindv2start|19 .seh_endepilogue|20 .seh_endproc|");
}

TEST(WinX64Asm, MachineFrames) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 8};
  f.ops = {{0, MachineFrame{true}}, {1, push(kRbx)}};
  EXPECT_EQ(directives(f, {.assembler = Assembler::kClang, .name = "f"}),
            "0 .seh_proc f|0 .seh_pushframe @code|1 .seh_pushreg %rbx|1 .seh_endprologue|8 .seh_endproc|");
  EXPECT_EQ(directives(f, {.name = "f"}).substr(0, 38), "0 .seh_proc f|0 .seh_pushframe code|1 ");
  EXPECT_EQ(directives(f, {.assembler = Assembler::kMasm, .name = "f"}),
            "0 f PROC FRAME|0 .pushframe code|1 .pushreg rbx|1 .endprolog|8 f ENDP|");
}

TEST(WinX64Asm, DataWhereThereAreNoDirectives) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 4};
  f.ops = {{1, Allocate{8}}};
  f.parts = {{2, 4, {{3, Save{kRbx, 0}}}}};
  EXPECT_EQ(directives(f, {.name = "f"}), "0x2: the assembler has no directive for this");
  EXPECT_EQ(assembly(f, {.name = "f"}),
            ".section .text\n.globl f\nf:\n.byte 144, 144, 144, 144\n"
            ".section .xdata$f,\"dr\"\n.p2align 2\nf_unwind_info:\n"
            ".byte 1, 1, 1, 0, 1, 2, 0, 0, 33, 1, 2, 0, 1, 52, 0, 0\n"
            ".rva f+0\n.rva f+2\n.rva f_unwind_info+0\n"
            ".section .pdata$f,\"dr\"\n.p2align 2\n"
            ".rva f+0\n.rva f+2\n.rva f_unwind_info+0\n.rva f+2\n.rva f+4\n.rva f_unwind_info+8\n");
  EXPECT_EQ(assembly(f, {.assembler = Assembler::kMasm, .name = "f"}),
            ".CODE\nf PROC\nDB 144, 144, 144, 144\nf ENDP\n"
            "xdata SEGMENT READONLY ALIGN(4) ALIAS(\".xdata\")\n"
            "f_unwind_info DB 1, 1, 1, 0, 1, 2, 0, 0, 33, 1, 2, 0, 1, 52, 0, 0\n"
            "DD IMAGEREL f+0\nDD IMAGEREL f+2\nDD IMAGEREL f_unwind_info+0\nxdata ENDS\n"
            "pdata SEGMENT READONLY ALIGN(4) ALIAS(\".pdata\")\n"
            "DD IMAGEREL f+0\nDD IMAGEREL f+2\nDD IMAGEREL f_unwind_info+0\n"
            "DD IMAGEREL f+2\nDD IMAGEREL f+4\nDD IMAGEREL f_unwind_info+8\npdata ENDS\nEND\n");
}

TEST(WinX64Asm, LeavesNeedNothing) {
  const Prologue leaf{.architecture = Architecture::kX86_64, .code_size = 2};
  EXPECT_EQ(directives(leaf, {.name = "f"}), "");
  EXPECT_EQ(assembly(leaf, {.name = "f"}), ".section .text\n.globl f\nf:\n.byte 144, 144\n");
  EXPECT_EQ(assembly(leaf, {.assembler = Assembler::kMasm, .name = "f"}), ".CODE\nf PROC\nDB 144, 144\nf ENDP\nEND\n");
}

TEST(WinX64Asm, Refusals) {
  Prologue f = framed();
  const Text none = "0x0: the assembler has no directive for this";
  EXPECT_EQ(directives(f, {.version = 2, .name = "f"}), none);
  f.handler = prologue::Handler{0, true, true, {std::byte{1}}};
  EXPECT_EQ(directives(f, {.name = "f"}), "0x0: assembly needs the names of the function and of its handler");
  EXPECT_EQ(directives(f, {.name = ""}), "0x0: assembly needs the names of the function and of its handler");
  EXPECT_EQ(directives(f, {.assembler = Assembler::kMasm, .name = "f", .handler = "h"}), none);
  EXPECT_EQ(directives(f, {.assembler = Assembler::kClang, .version = 2, .name = "f", .handler = "h"}), none);
  f.ops.push_back({300, Allocate{8}});
  f.code_size = 400;
  EXPECT_EQ(directives(f, {.name = "f", .handler = "h"}), "0x12c: a prologue has at most 255 bytes (0x12c)");
  EXPECT_EQ(assembly(f, {.name = "f", .handler = "h"}), "0x12c: a prologue has at most 255 bytes (0x12c)");
  const auto text = winx64::assembly_of(framed(), {}, {.name = "f"});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().text(), "0x20: code is not of the size the prologue says");
}

}  // namespace
}  // namespace windlass
