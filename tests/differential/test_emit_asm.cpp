// The text of `emit`, assembled and linked beside the code that it describes, by common tools. The image's unwind
// information must agree with the spans at every instruction.
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "base/registers.h"
#include "differential/peer.h"
#include "lookup/sources/unwind_source.h"
#include "support/run_command.h"
#include "windlass/jit/emit.h"

namespace windlass {
namespace {

using Bytes = std::vector<unsigned char>;

struct Toolchain {
  const char* name;
  Architecture architecture;
  emit::Syntax syntax;
  std::vector<const char*> needs;
  const char* commands;  // in a folder with code.s, made by `code` below, and info.s; they make `image`
};
const Toolchain kToolchains[] = {
    {"elf_binutils",
     Architecture::kX86_64,
     emit::Syntax::kElf,
     {"as", "ld"},
     "as code.s -o code.o && as info.s -o info.o && ld -shared --eh-frame-hdr code.o info.o -o image"},
    {"elf_llvm",
     Architecture::kX86_64,
     emit::Syntax::kElf,
     {"llvm-mc-22", "ld"},
     "llvm-mc-22 -triple=x86_64-linux-gnu -filetype=obj code.s -o code.o && "
     "llvm-mc-22 -triple=x86_64-linux-gnu -filetype=obj info.s -o info.o && "
     "ld -shared --eh-frame-hdr code.o info.o -o image"},
    {"elf_aarch64",
     Architecture::kAArch64,
     emit::Syntax::kElf,
     {"aarch64-linux-gnu-as", "aarch64-linux-gnu-ld"},
     "aarch64-linux-gnu-as code.s -o code.o && aarch64-linux-gnu-as info.s -o info.o && "
     "aarch64-linux-gnu-ld -shared --eh-frame-hdr code.o info.o -o image"},
    {"windows_binutils",
     Architecture::kX86_64,
     emit::Syntax::kGas,
     {"x86_64-w64-mingw32-as"},
     "x86_64-w64-mingw32-as code.s -o code.o && x86_64-w64-mingw32-as info.s -o info.o && "
     "x86_64-w64-mingw32-ld -shared code.o info.o -o image"},
    {"windows_llvm",
     Architecture::kX86_64,
     emit::Syntax::kGas,
     {"llvm-mc-22", "lld-link-19"},
     "llvm-mc-22 -triple=x86_64-windows -filetype=obj code.s -o code.o && "
     "llvm-mc-22 -triple=x86_64-windows -filetype=obj info.s -o info.o && "
     "lld-link-19 /dll /noentry /out:image code.o info.o"},
    {"windows_arm64",
     Architecture::kAArch64,
     emit::Syntax::kGas,
     {"llvm-mc-22", "lld-link-19"},
     "llvm-mc-22 -triple=aarch64-windows -filetype=obj code.s -o code.o && "
     "llvm-mc-22 -triple=aarch64-windows -filetype=obj info.s -o info.o && "
     "lld-link-19 /dll /noentry /machine:arm64 /out:image code.o info.o"},
};

// A function that has a frame from its begin, one that sets up two and begins without, one without, and a leaf.
std::vector<Bytes> functions_of(Architecture architecture) {
  if (architecture == Architecture::kAArch64)
    return {{0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0x1f, 0x20,
             0x03, 0xd5, 0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6},
            {0x1f, 0x20, 0x03, 0xd5, 0xfd, 0x7b, 0xbe, 0xa9, 0xfd, 0x43, 0x00, 0x91, 0xfd, 0x7b, 0xc2, 0xa8,
             0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0x1f, 0x20, 0x03, 0xd5, 0xc0, 0x03, 0x5f, 0xd6},
            {0xff, 0x43, 0x00, 0xd1, 0xff, 0x43, 0x00, 0x91, 0xc0, 0x03, 0x5f, 0xd6},
            {0xc0, 0x03, 0x5f, 0xd6}};
  // No returns: where there are, Windows' unwinders and ours know better than the span (x64 exception handling, "Unwind
  // procedure": epilogues are recognised by their instructions).
  return {{0x55, 0x48, 0x89, 0xe5, 0x90, 0x0f, 0x0b},
          {0x85, 0xc0, 0x74, 0x08, 0x55, 0x48, 0x8b, 0xec, 0x90, 0x90, 0x0f, 0x0b, 0x55, 0x48, 0x89, 0xe5, 0x90, 0x0f,
           0x0b},
          {0x50, 0xff, 0xd0, 0x0f, 0x0b},
          {0x31, 0xc0, 0x0f, 0x0b}};
}

// Functions 32 bytes apart behind 32 bytes of nothing, by symbols f0, f1, ... or all by `base`.
struct Code {
  static constexpr std::uint64_t kApart = 32;
  Code(Architecture which, bool elf, bool by_base) : architecture(which), bytes(functions_of(which)) {
    // What a shared object exports may be elsewhere: it cannot be described by distances.
    const std::string_view visibility = elf ? ".hidden" : ".globl";
    text = fmt::format(".text\n.p2align 5\n.globl base\n{} base\nbase:\n", visibility);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      text += fmt::format(".p2align 5\n.globl f{0}\n{1} f{0}\nf{0}:\n", i, visibility);
      for (const unsigned char byte : bytes[i]) text += fmt::format(".byte {}\n", byte);
      functions.push_back({.symbol = by_base ? "base" : fmt::format("f{}", i),
                           .addend = by_base ? static_cast<std::int64_t>(i * kApart) : 0,
                           .address = i * kApart,
                           .code = std::as_bytes(std::span(bytes[i]))});
    }
  }
  Architecture architecture;
  std::vector<Bytes> bytes;
  std::vector<emit::Function> functions;
  std::string text;
};

class EmitAssembly : public testing::TestWithParam<Toolchain> {
 protected:
  void SetUp() override {
    for (const char* tool : GetParam().needs)
      if (!peer::have(tool)) GTEST_SKIP() << "SKIPPED: there is no " << tool;
    folder_ = peer::first_line("mktemp -d");
  }
  void TearDown() override {
    if (!folder_.empty()) test::run("rm -r '" + folder_ + "'");
  }

  void hold(emit::Mode mode, bool by_base) {
    SCOPED_TRACE(fmt::format("mode {}, {}", static_cast<int>(mode), by_base ? "by one symbol" : "by symbols"));
    const Code code(GetParam().architecture, GetParam().syntax == emit::Syntax::kElf, by_base);
    const auto spans = emit::spans_of(code.functions, {.architecture = code.architecture, .mode = mode});
    ASSERT_TRUE(spans) << spans.error().text();
    const auto text = emit::text_of(*spans, code.functions, {.syntax = GetParam().syntax});
    ASSERT_TRUE(text) << text.error().text();
    std::ofstream(folder_ + "/code.s") << code.text;
    std::ofstream(folder_ + "/info.s") << *text;
    const auto made = test::run(fmt::format("cd '{}' && ({}) 2>&1", folder_, GetParam().commands));
    ASSERT_EQ(made.status, 0) << made.output.substr(0, 2000) << *text;
    const auto file = MappedFile::open(folder_ + "/image");
    ASSERT_TRUE(file);
    const auto source = sources::open_source(file->bytes(), image::PeLayout::kFile);
    ASSERT_TRUE(source) << source.error().text();
    compare(**source, code, *spans);
  }

  // The image's first function is where its first function with unwind information is: that is a span of f0.
  static void compare(const sources::UnwindSource& source, const Code& code, const std::vector<emit::Span>& spans) {
    std::uint64_t first = 0;
    source.for_each_function(
        [&](const sources::Function& function) {
          first = function.begin;
          return false;
        },
        [](const Error& error) { ADD_FAILURE() << error.text(); });
    ASSERT_NE(first, 0u);
    const std::uint64_t f0 = first - static_cast<std::uint64_t>(spans.front().offset);
    std::size_t held = 0;
    std::vector<bool> described(code.functions.back().address + Code::kApart);
    for (const emit::Span& span : spans) {
      const auto rows = rows_of(span.prologue);
      ASSERT_TRUE(rows);
      const std::uint64_t begin = f0 + code.functions[span.function].address + static_cast<std::uint64_t>(span.offset);
      for (const FrameRow& wanted : *rows)
        for (std::uint64_t at = wanted.begin; at < wanted.end; ++at, ++held) {
          described[begin + at - f0] = true;
          FrameRow row;
          const auto found = source.row_at(begin + at, row);
          ASSERT_TRUE(found) << found.error().text();
          EXPECT_EQ(row.cfa, wanted.cfa) << "byte " << begin + at - f0;
          EXPECT_EQ(row.return_address, wanted.return_address) << "byte " << begin + at - f0;
        }
    }
    EXPECT_GT(held, 20u);
    for (std::uint64_t at = 0; at < described.size(); ++at)
      if (!described[at]) {
        EXPECT_FALSE(source.function_at(f0 + at)) << "byte " << at;
      }
  }

  std::string folder_;
};

TEST_P(EmitAssembly, WhatIsLinkedSaysWhatTheSpansSay) {
  for (const auto mode : {emit::Mode::kWhole, emit::Mode::kFunctions, emit::Mode::kFrames})
    for (const bool by_base : {false, true}) hold(mode, by_base);
}

INSTANTIATE_TEST_SUITE_P(Tools, EmitAssembly, testing::ValuesIn(kToolchains),
                         [](const auto& tools) { return std::string(tools.param.name); });

}  // namespace
}  // namespace windlass
