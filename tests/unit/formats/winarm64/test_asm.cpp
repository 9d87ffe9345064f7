// Directives as text, and what the assemblers cannot say. That LLVM's assembler makes the bytes of write() of them is
// tested by asking it (test_winarm64_write_asm).
#include <gtest/gtest.h>

#include "windlass/format/winarm64.h"

namespace windlass::winarm64 {
namespace {

using namespace prologue;

Prologue sample() {
  Prologue f{.architecture = Architecture::kAArch64, .code_size = 72};
  f.ops = {{4, SignReturnAddress{}},  {8, Save{19, 0, 80, 20}},  {12, Save{21, 16, 0, 22}},
           {16, Save{72, 32, 0, 73}}, {20, Save{29, 48, 0, 30}}, {24, SetFramePointer{29, 48}},
           {32, Allocate{4096}}};
  f.epilogues = {mirrored(f, 40)};
  // mov sp,x29 with an offset has no macro: add sp instead.
  auto& undone = f.epilogues[0].undone;
  undone.erase(undone.begin() + 1);
  for (std::size_t i = 1; i < undone.size(); ++i) undone[i].end -= 4;
  f.epilogues[0].end -= 4;
  return f;
}

std::string text_of(const std::vector<Directive>& list) {
  std::string text;
  for (const Directive& directive : list)
    text += std::to_string(directive.offset) +
            (directive.replaces != 0 ? "-" + std::to_string(directive.replaces) : "") + " " + directive.text + "\n";
  return text;
}

// The epilogue's `add sp` is the body's: what follows shares the prologue's codes.
TEST(WinArm64Assembly, Clang) {
  const auto list = directives_of(sample(), {.name = "f"});
  ASSERT_TRUE(list) << list.error().text();
  EXPECT_EQ(text_of(*list),
            "0 .seh_proc f\n4 .seh_pac_sign_lr\n8 .seh_save_r19r20_x 80\n12 .seh_save_next\n16 .seh_save_fregp d8, 32\n"
            "20 .seh_save_fplr 48\n24 .seh_add_fp 48\n28 .seh_nop\n32 .seh_stackalloc 4096\n32 .seh_endprologue\n"
            "44 .seh_startepilogue\n48 .seh_save_fplr 48\n52 .seh_save_fregp d8, 32\n"
            "56 .seh_save_next\n60 .seh_save_r19r20_x 80\n64 .seh_pac_sign_lr\n64 .seh_endepilogue\n72 .seh_endproc\n");
}

TEST(WinArm64Assembly, Armasm64) {
  Prologue f = sample();
  f.handler = prologue::Handler{};
  const auto list = directives_of(f, {.assembler = Assembler::kArmasm64, .name = "f", .handler = "h"});
  ASSERT_TRUE(list) << list.error().text();
  EXPECT_EQ(text_of(*list),
            "0 NESTED_ENTRY f,,h\n4-4 PROLOG_SIGN_RETURN_ADDRESS\n8-4 PROLOG_SAVE_REG_PAIR x19, x20, #-80!\n"
            "12-4 PROLOG_SAVE_NEXT_PAIR\n16-4 PROLOG_SAVE_REG_PAIR d8, d9, #32\n"
            "24-8 PROLOG_SAVE_REG_PAIR fp, lr, #48\n28-4 PROLOG_NOP\n32-4 PROLOG_STACK_ALLOC 4096\n"
            "44-4 EPILOG_STACK_FREE 4096\n48-4 EPILOG_RESTORE_REG_PAIR fp, lr, #48\n"
            "52-4 EPILOG_RESTORE_REG_PAIR d8, d9, #32\n56-4 EPILOG_RESTORE_NEXT_PAIR\n"
            "60-4 EPILOG_RESTORE_REG_PAIR x19, x20, #80!\n64-4 EPILOG_AUTHENTICATE_RETURN_ADDRESS\n68-4 EPILOG_END\n"
            "72 NESTED_END\n");
  const std::vector<std::byte> code(72);
  const auto source = assembly_of(f, code, {.assembler = Assembler::kArmasm64, .name = "f", .handler = "h"});
  ASSERT_TRUE(source);
  EXPECT_NE(source->find("PROLOG_NOP DCD 0x00000000\n"), std::string::npos);
  EXPECT_NE(source->find("EPILOG_END DCD 0x00000000\n    DCD 0x00000000\nNESTED_END\n"), std::string::npos) << *source;
}

TEST(WinArm64Assembly, AFrameRecordThatFpDoesNotPointTo) {
  Prologue f{.architecture = Architecture::kAArch64, .code_size = 16};
  f.ops = {{4, Save{29, 0, 16, 30}}};
  f.epilogues = {mirrored(f, 8)};
  const auto list = directives_of(f, {.assembler = Assembler::kArmasm64, .name = "f"});
  ASSERT_TRUE(list) << list.error().text();
  EXPECT_NE(text_of(*list).find("PROLOG_SAVE_REG_PAIR_NO_FP fp, lr, #-16!"), std::string::npos) << text_of(*list);
}

TEST(WinArm64Assembly, Leaf) {
  const Prologue leaf{.architecture = Architecture::kAArch64, .code_size = 8};
  const auto list = directives_of(leaf, {});
  ASSERT_TRUE(list);
  EXPECT_TRUE(list->empty());
}

TEST(WinArm64Assembly, Limits) {
  struct Case {
    const char* sentence;
    ErrorCode code;
    std::uint64_t where;
    Prologue prologue;
    AssemblyOptions options;
  };
  const auto function = [](std::vector<prologue::Op> ops) {
    return Prologue{.architecture = Architecture::kAArch64, .code_size = 100, .ops = std::move(ops)};
  };
  Prologue many = function({{4, Allocate{16}}});
  for (std::uint32_t at = 8; at < 48; at += 8) many.epilogues.push_back(mirrored(many, at));
  Prologue parts = function({{4, Allocate{16}}});
  parts.parts = {{20, 40, {{24, Save{19}}}, {}}};
  Prologue handler = function({{4, Allocate{16}}});
  handler.handler = prologue::Handler{.data = {std::byte{1}}};
  const AssemblyOptions armasm{.assembler = Assembler::kArmasm64, .handler = "h"};
  const std::vector<Case> cases = {
      {"names", ErrorCode::kMalformed, 0, many, {.name = ""}},
      {"names", ErrorCode::kMalformed, 0, handler, {}},
      {"no directive", ErrorCode::kUnsupported, 20, parts, {}},
      {"four epilogues", ErrorCode::kLimit, 40, many, armasm},
      {"without data", ErrorCode::kUnsupported, 0, handler, armasm},
      {"wrong code", ErrorCode::kUnsupported, 4, function({{4, Save{20, 0, 16}}}), armasm},
      {"wrong code", ErrorCode::kUnsupported, 4, function({{4, Save{73, 0, 16}}}), armasm},
      {"sets fp only", ErrorCode::kUnsupported, 8, function({{4, Allocate{32}}, {8, SetFramePointer{29}}}), armasm},
      {"no one sub", ErrorCode::kUnsupported, 4, function({{4, Allocate{4112}}}), armasm},
      {"no multiple of 16", ErrorCode::kMalformed, 4, function({{4, Allocate{8}}}), {}},
  };
  for (const Case& one : cases) {
    const auto list = directives_of(one.prologue, one.options);
    ASSERT_FALSE(list) << one.sentence;
    EXPECT_NE(std::string(list.error().what).find(one.sentence), std::string::npos) << list.error().text();
    EXPECT_EQ(list.error().code, one.code) << one.sentence;
    EXPECT_EQ(list.error().where, one.where) << one.sentence;
  }
  const std::vector<std::byte> code(96);
  EXPECT_EQ(assembly_of(many, code, {}).error().code, ErrorCode::kMalformed);
}

}  // namespace
}  // namespace windlass::winarm64
