// The texts, word for word where no assembler here reads them (test_emit_asm has the others assembled and linked).
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "windlass/jit/emit.h"

namespace windlass::emit {
namespace {

struct Example {
  std::vector<unsigned char> code = {0xff, 0xd0, 0x55, 0x48, 0x89, 0xe5, 0xc3};
  std::vector<Function> functions = {{.symbol = "blob", .addend = 64, .code = std::as_bytes(std::span(code))}};
  std::vector<Span> spans = *spans_of(functions, {.mode = Mode::kFrames, .as_v8 = true});

  [[nodiscard]] std::string text(const TextOptions& options) const {
    const auto text = text_of(spans, functions, options);
    EXPECT_TRUE(text) << text.error().text();
    return text ? *text : "";
  }
};

TEST(EmitText, Masm) {
  EXPECT_EQ(Example().text({.syntax = Syntax::kMasm, .handler = "crash", .handler_on_unwind = false}),
            "EXTERN crash:PROC\n"
            "EXTERN blob:PROC\n"
            "xdata SEGMENT READONLY ALIGN(4) ALIAS(\".xdata\")\n"
            "windlass_unwind_info DB 9, 4, 2, 5, 4, 3, 1, 80\n"
            "DD IMAGEREL crash+0\n"
            "xdata ENDS\n"
            "pdata SEGMENT READONLY ALIGN(4) ALIAS(\".pdata\")\n"
            "DD IMAGEREL blob+60\nDD IMAGEREL blob+66\nDD IMAGEREL windlass_unwind_info+0\n"
            "DD IMAGEREL blob+66\nDD IMAGEREL blob+71\nDD IMAGEREL windlass_unwind_info+0\n"
            "pdata ENDS\n"
            "END\n");
}

TEST(EmitText, HandlersOfWindowsAlone) {
  EXPECT_NE(Example().text({.handler = "crash"}).find(".byte 25, 4, 2, 5, 4, 3, 1, 80\n.rva crash+0\n"),
            std::string::npos);
  const Example example;
  const auto text = text_of(example.spans, example.functions, {.syntax = Syntax::kElf, .handler = "crash"});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kUnsupported);
}

// sub rsp, 40; call f; add rsp, 40; ret. A nop behind the call is the remedy.
TEST(EmitText, CallsAboutWhichNoHandlerIsAsked) {
  const auto text_of_code = [](std::vector<unsigned char> code, const TextOptions& options) {
    const std::vector<Function> functions = {{.symbol = "f", .code = std::as_bytes(std::span(code))}};
    const auto spans = spans_of(functions, {});
    EXPECT_TRUE(spans) << spans.error().text();
    const auto text = spans ? text_of(*spans, functions, options) : "";
    return text ? *text : text.error().text();
  };
  const std::vector<unsigned char> bare = {0x48, 0x83, 0xec, 40, 0xe8, 1, 2, 3, 4, 0x48, 0x83, 0xc4, 40, 0xc3};
  const std::vector<unsigned char> apart = {0x48, 0x83, 0xec, 40, 0xe8, 1, 2, 3, 4, 0x90, 0x48, 0x83, 0xc4, 40, 0xc3};
  const std::string advice = " the handler is not asked about the call in front of f+9: put a nop behind the call\n";
  EXPECT_NE(text_of_code(bare, {.handler = "crash"}).find("\n#" + advice), std::string::npos);
  EXPECT_NE(text_of_code(bare, {.syntax = Syntax::kMasm, .handler = "crash"}).find("\n;" + advice), std::string::npos);
  EXPECT_EQ(text_of_code(bare, {}).find("not asked"), std::string::npos);
  EXPECT_EQ(text_of_code(apart, {.handler = "crash"}).find("not asked"), std::string::npos);
}

// Names come out of files: they are quoted, and none ends its line.
TEST(EmitText, SymbolsThatAreNoPlainWords) {
  Example example;
  const auto text_of_symbol = [&](const std::string& symbol, Syntax syntax) {
    example.functions[0].symbol = symbol;
    const auto text = text_of(example.spans, example.functions, {.syntax = syntax});
    return text ? *text : text.error().text();
  };
  EXPECT_NE(text_of_symbol("main.(*T).run \"\\", Syntax::kElf)
                .find(".reloc ., R_X86_64_PC32, \"main.(*T).run \\\"\\\\\"+60\n"),
            std::string::npos);
  EXPECT_NE(text_of_symbol("?f@@YAXXZ", Syntax::kGas).find(".rva \"?f@@YAXXZ\"+60\n"), std::string::npos);
  EXPECT_NE(text_of_symbol("?f@@YAXXZ", Syntax::kMasm).find("DD IMAGEREL ?f@@YAXXZ+60\n"), std::string::npos);
  EXPECT_NE(text_of_symbol("a b", Syntax::kMasm).find("this assembler"), std::string::npos);
  for (const Syntax syntax : {Syntax::kElf, Syntax::kGas, Syntax::kMasm})
    for (const char* symbol : {"x\n.byte 1", "x\x1b", "x\xff", "x\xe2\x80\xae"})
      EXPECT_NE(text_of_symbol(symbol, syntax).find("a symbol's name has characters"), std::string::npos) << symbol;
}

// Of every record its length says where the next one is, to the very end: a length of 0 would hide other files'.
TEST(EmitText, CallFrameInformationHasNoTerminator) {
  const Example example;
  const auto text = text_of(example.spans, example.functions, {.syntax = Syntax::kElf});
  ASSERT_TRUE(text);
  std::vector<unsigned> bytes;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(".long ")) bytes.insert(bytes.end(), 4, 0xee);
    if (!line.starts_with(".byte ")) continue;
    std::istringstream values(line.substr(6));
    for (std::string value; std::getline(values, value, ',');)
      bytes.push_back(static_cast<unsigned>(std::stoul(value)));
  }
  unsigned records = 0;
  std::size_t at = 0;
  for (std::size_t size = 1; at + 4 <= bytes.size() && size != 0; at += 4 + size, ++records)
    size = bytes[at] | bytes[at + 1] << 8 | bytes[at + 2] << 16 | bytes[at + 3] << 24;
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(records, 1 + example.spans.size());
}

TEST(EmitText, WithoutSpansThereIsNothingToSay) { EXPECT_EQ(*text_of({}, {}, {}), ""); }

TEST(EmitText, WhatAFormatCannotSayNamesTheAddress) {
  Example example;
  example.functions[0].address = 0x4000;
  example.spans[1].prologue.ops = {{4, prologue::Allocate{12}}};
  const auto text = text_of(example.spans, example.functions, {});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().where, 0x4006u);
}

}  // namespace
}  // namespace windlass::emit
