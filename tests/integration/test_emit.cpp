// `windlass emit` on code as runtimes ship it: node's builtins, which have no unwind information. With the emitted
// information, libgcc and gdb walk through them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/run_command.h"

namespace windlass {
namespace {

using test::run;

class Emit : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "windlass-emit-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  // With what goes to stderr.
  [[nodiscard]] test::CommandResult emit(const std::string& arguments) const {
    return run(fmt::format("cd '{}' && '{}' emit {} 2>&1", folder_, WINDLASS_COMMAND, arguments));
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
};

// ---- node ---------------------------------------------------------------------------------------------------------

class EmitNode : public Emit {
 protected:
  static constexpr const char* kProgram =
      "--jitless --no-short-builtin-calls --no-warnings -e 'function f(n) { return n ? f(n - 1) + 1 : process.umask(0) "
      "} f(3)'";

  void SetUp() override {
    Emit::SetUp();
    node_ = run("readlink -f \"$(command -v node)\"").output;
    while (!node_.empty() && node_.back() == '\n') node_.pop_back();
    if (node_.empty()) GTEST_SKIP() << "SKIPPED: there is no node";
    // The text names addresses, so the program has to be where it was linked.
    if (run(fmt::format("readelf -h '{}' | grep -q 'EXEC' && readelf -sW '{}' | grep -q Builtins_", node_, node_))
            .status != 0)
      GTEST_SKIP() << "SKIPPED: this node has no symbols of its builtins, or is position-independent";
    const auto emitted = emit(fmt::format("--addresses --syntax elf --functions 'Builtins_*' -o b.s '{}'", node_));
    ASSERT_EQ(emitted.status, 0) << emitted.output;
    // ld leaves out what describes no section's code, if it may.
    const auto linked =
        run(fmt::format("cd '{}' && as b.s -o b.o && ld --traditional-format -e 0 --section-start=.eh_frame=0x20000000 "
                        "-o b.elf b.o 2>&1",
                        folder_));
    ASSERT_EQ(linked.status, 0) << linked.output;
  }
  [[nodiscard]] std::uint64_t start_of_program() const {
    const auto entry = run(fmt::format("readelf -h '{}' | sed -n 's/.*Entry point address: *//p'", node_));
    return std::stoull(entry.output, nullptr, 16);
  }

  std::string node_;
};

TEST_F(EmitNode, LibgccWalksThroughTheBuiltins) {
  const std::uint64_t start = start_of_program();
  const auto frames = [&](const std::string& environment) {
    const auto out = run(fmt::format("cd '{}' && {} LD_PRELOAD='{}' '{}' {} 2>&1", folder_, environment,
                                     WINDLASS_BACKTRACE_AT_UMASK, node_, kProgram));
    std::vector<std::uint64_t> pcs;
    for (std::size_t at = 0; (at = out.output.find("frame ", at)) != std::string::npos; ++at)
      pcs.push_back(std::stoull(out.output.substr(at + 6), nullptr, 16));
    return pcs;
  };
  const auto reaches_start = [&](const std::vector<std::uint64_t>& pcs) {
    return std::any_of(pcs.begin(), pcs.end(), [&](std::uint64_t pc) { return pc > start && pc < start + 64; });
  };
  const auto without = frames(""), with = frames("WINDLASS_EH_FRAME=b.elf");
  fmt::print("libgcc: {} frames without, {} with\n", without.size(), with.size());
  EXPECT_FALSE(reaches_start(without)) << "this node needs no help";
  EXPECT_TRUE(reaches_start(with));
  // f calls itself three times: interpreted, all of them return to the same place.
  std::size_t most = 0;
  for (const std::uint64_t pc : with)
    most = std::max<std::size_t>(most, static_cast<std::size_t>(std::count(with.begin(), with.end(), pc)));
  EXPECT_GE(most, 4u);
}

TEST_F(EmitNode, GdbWalksThroughTheBuiltins) {
  if (run("command -v gdb").status != 0) GTEST_SKIP() << "SKIPPED: there is no gdb";
  const auto backtrace = [&](const std::string& more) {
    return run(fmt::format("cd '{}' && timeout 100 gdb -batch -nx -ex 'set debuginfod enabled off' -ex 'set breakpoint "
                           "pending on' -ex 'break umask' -ex run {} -ex bt --args '{}' {} 2>&1 | grep '^#'",
                           folder_, more, node_, kProgram))
        .output;
  };
  const std::string without = backtrace(""), with = backtrace("-ex 'add-symbol-file b.elf'");
  if (without.empty()) GTEST_SKIP() << "SKIPPED: gdb does not run node here";
  EXPECT_EQ(without.find(" in _start ()"), std::string::npos) << without;
  EXPECT_NE(with.find(" in _start ()"), std::string::npos) << with;
}

// ---- the command ----------------------------------------------------------------------------------------------------

TEST_F(Emit, ABlobAndAList) {
  write("blob", std::string("\x55\x48\x89\xe5\x5d\xc3", 6) + std::string(10, '\x90') + std::string("\xff\xd0\xc3", 3));
  write("list", "# start size name\n0 6 framed\n10 3 bare\n");
  const auto by_names = emit("--mode n+1 -o out.s blob list");
  EXPECT_EQ(by_names.status, 0) << by_names.output;
  EXPECT_NE(by_names.output.find("2 functions, 2 descriptions"), std::string::npos) << by_names.output;
  EXPECT_NE(text("out.s").find(".rva framed+0\n.rva framed+6\n"), std::string::npos) << text("out.s");
  EXPECT_NE(text("out.s").find(".rva bare+0\n.rva bare+3\n"), std::string::npos) << text("out.s");
  EXPECT_EQ(emit("--mode n+1 --base code --functions 'b*' -o out.s blob list").status, 0);
  EXPECT_EQ(text("out.s").find("framed"), std::string::npos);
  EXPECT_NE(text("out.s").find(".rva code+16\n.rva code+19\n"), std::string::npos) << text("out.s");
  EXPECT_NE(emit("blob list").output.find(".pdata"), std::string::npos) << "on standard output";
}

TEST_F(Emit, AnObjectThatIsNotLinked) {
  write("a.s",
        ".text\n.type f, @function\nf: push %rbp\nmov %rsp, %rbp\npop %rbp\nret\n.size f, . - f\n"
        ".section .more,\"ax\"\n.type g, @function\ng: call f\nret\n.size g, . - g\n");
  ASSERT_EQ(run(fmt::format("cd '{}' && as a.s -o a.o", folder_)).status, 0);
  const auto done = emit("--mode n+1 --syntax elf -o out.s a.o");
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(text("out.s").find(".reloc ., R_X86_64_PC32, f+0\n"), std::string::npos) << text("out.s");
  EXPECT_NE(text("out.s").find(".reloc ., R_X86_64_PC32, g+0\n"), std::string::npos)
      << "another section is no neighbour: " << text("out.s");
}

// Functions that call and jump to others, in their section, in others and in other files, through jump tables and the
// GOT.
constexpr const char* kNotLinked = R"(
int other(int), far(int);
extern int data[];
static int (*pointer)(int) = far;
__attribute__((noinline)) static int near(int x) { return other(x) + data[x]; }
int calls(int x) { int a[8]; for (int i = 0; i < 8; ++i) a[i] = near(i + x) + other(i); return a[x & 7] + far(x); }
int tail(int x) { return x > 3 ? near(x - 1) : other(x + near(x)); }
int through(int x) { return pointer(x) + 1; }
int choose(int x) {
  switch (x) {
    case 0: return other(1) + 1;
    case 1: return near(7) * 3;
    case 2: return far(1) + far(2);
    case 3: return data[0] + other(3);
    case 4: return tail(2) - 1;
    case 5: return other(9) / 3;
    case 6: return calls(4) ^ 1;
    default: return 0;
  }
}
)";

// The result for an object must be that for the linked program.
TEST_F(Emit, WhatAnObjectCallsIsFollowedAsOnceItIsLinked) {
  write("a.c", kNotLinked);
  write("b.c",
        "int far(int x) { return x; } int data[9]; int other(int x) { return far(x) + 1; } int tail(int), choose(int), "
        "through(int); void _start(void) { tail(1); choose(2); through(3); for (;;) {} }");
  const std::string none = "-ffreestanding -nostdlib -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-inline";
  std::size_t compared = 0;
  for (const std::string compiler : {"gcc", "clang-19", "aarch64-linux-gnu-gcc", "clang-19 --target=aarch64-linux-gnu"})
    for (const std::string how : {"-O1", "-O2 -fpic", "-Os -fno-pic -ffunction-sections"}) {
      const bool arm = compiler.find("aarch64") != std::string::npos;
      if (run("command -v " + compiler.substr(0, compiler.find(' '))).status != 0) continue;
      const auto made = run(
          fmt::format("cd '{}' && exec 2>&1 && {} {} {} -c a.c && {} {} {} -c b.c && {} -static {} -o linked a.o b.o",
                      folder_, compiler, how, none, compiler, how, none, arm ? "aarch64-linux-gnu-gcc" : "gcc", none));
      ASSERT_EQ(made.status, 0) << compiler << how << made.output;
      for (const std::string function : {"calls", "tail", "through", "choose", "near"}) {
        const auto of_object = emit("--syntax elf --functions " + function + " -o object.s a.o");
        const auto of_program = emit("--syntax elf --functions " + function + " -o program.s linked");
        ASSERT_EQ(of_object.status, of_program.status) << of_object.output << of_program.output;
        if (of_object.status != 0) continue;  // its code is another's
        EXPECT_EQ(text("object.s"), text("program.s")) << compiler << ' ' << how << ' ' << function;
        ++compared;
      }
    }
  EXPECT_GE(compared, 16U);
}

// The command of docs/reference/commands.md: an object without unwind information, what is emitted assembled beside it,
// and both linked. A walk from behind each of its calls gets to main, and all of the program is in the table that ld
// makes.
TEST_F(Emit, WhatIsEmittedForAnObjectIsLinkedBesideIt) {
  write("f.s",
        ".globl f\n.type f, @function\nf: push %rbx\nsub $16, %rsp\ncall g\ncall g\nadd $16, %rsp\npop "
        "%rbx\nret\n.size f, . - f\n"
        ".section .note.GNU-stack,\"\",@progbits\n");
  write("m.c", R"(
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>
void f(void);
int main(void);
static int walks;
static _Unwind_Reason_Code frame(struct _Unwind_Context* context, void* found) {
  if (_Unwind_GetRegionStart(context) == (_Unwind_Ptr)main) ++*(int*)found;
  return 0;
}
void g(void) { int found = 0; _Unwind_Backtrace(frame, &found); walks += found; }
static int has_table(struct dl_phdr_info* info, size_t size, void* found) {
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME) {
      const unsigned char* table = (const unsigned char*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
      *(int*)found = table[2] != 0xff;  // how the number of its entries is written: none
      return 1;
    }
  return 1;
}
int main(void) {
  int table = 0;
  dl_iterate_phdr(has_table, &table);
  f();
  printf("%d walks, table %d\n", walks, table);
}
)");
  for (const std::string linker : {"bfd", "gold", "lld"}) {
    if (run("command -v ld." + linker).status != 0) continue;
    const auto made = run(
        fmt::format("cd '{}' && exec 2>&1 && gcc -c f.s -o f.o && '{}' emit --syntax elf f.o 2>/dev/null >frames.s && "
                    "as frames.s -o frames.o && gcc -fuse-ld={} m.c f.o frames.o -o program",
                    folder_, WINDLASS_COMMAND, linker));
    EXPECT_EQ(made.status, 0) << linker;
    EXPECT_EQ(made.output, "") << linker << " says nothing";
    EXPECT_EQ(run(path("program")).output, "2 walks, table 1\n") << linker;
  }
}

TEST_F(Emit, WhatOfAnObjectCannotBeFollowed) {
  write(
      "a.s",
      ".text\n.type f, @function\nf: ret\n.size f, . - f\n.type g, @function\ng: nop\n.reloc ., R_X86_64_RELATIVE, x\n"
      "call g\nret\n.size g, . - g\n.section .more,\"ax\"\n.type h, @function\nh: push %rax\ncall f\npop "
      "%rax\nret\n.size h, . - h\n");
  ASSERT_EQ(run(fmt::format("cd '{}' && as a.s -o a.o", folder_)).status, 0);
  EXPECT_EQ(emit("--functions g --syntax elf a.o").output,
            "windlass: a.o: 0x42: a relocation of this type is not known (0x8)\n");
  EXPECT_EQ(emit("--functions '[fh]' --syntax elf -o out.s a.o").status, 0) << "another function's is of no account";
  EXPECT_NE(emit("--functions '[fh]' --base f --syntax elf a.o").output.find("another section than the --base"),
            std::string::npos);
  EXPECT_NE(emit("--functions '[fh]' --mode whole --syntax elf a.o").output.find("of one section only"),
            std::string::npos);
  EXPECT_NE(emit("--functions '[fh]' --addresses --syntax elf a.o").output.find("has no addresses"), std::string::npos);
  EXPECT_EQ(emit("--functions h --base h --syntax elf -o out.s a.o").status, 0);
}

TEST_F(Emit, AnObjectsOwnDescriptionsAreLeftOut) {
  write("a.c", "int g(int); int f(int x) { return g(x) + 1; }");
  write("b.s", ".globl g\n.type g, @function\ng: push %rax\npop %rax\nret\n.size g, . - g\n.section .note.GNU-stack\n");
  ASSERT_EQ(
      run(fmt::format("cd '{}' && cc -O1 -ffunction-sections -c a.c b.s && ld -r -o all.o a.o b.o", folder_)).status,
      0);
  const auto done = emit("--syntax elf -o out.s all.o");
  EXPECT_NE(done.output.find("1 functions, 1 descriptions; 1 functions were described already"), std::string::npos)
      << done.output;
  EXPECT_EQ(text("out.s").find(" f+"), std::string::npos);
}

TEST_F(Emit, WhatIsDescribedAlreadyIsLeftOut) {
  // Of a function with call frame information, one without, and one without that is a leaf.
  write("a.c",
        "int printf(const char*, ...); int described(void) { return printf(\"\"); } int main(void) { return "
        "described(); }");
  write("b.s",
        ".globl bare\n.type bare, @function\nbare: push %rax\npop %rax\nret\n.size bare, . - bare\n.section "
        ".note.GNU-stack\n");
  ASSERT_EQ(run(fmt::format("cd '{}' && cc -O1 a.c b.s -o program", folder_)).status, 0);
  const auto done = emit("--functions '[bdm]*' --syntax elf -o out.s program");
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find("1 functions, 1 descriptions; 2 functions were described already"), std::string::npos)
      << done.output;
  EXPECT_NE(text("out.s").find(".reloc ., R_X86_64_PC32, bare+0\n"), std::string::npos) << text("out.s");
  EXPECT_EQ(
      emit("--functions main program").output,
      "windlass: program: no function without unwind information (1 have it already). Way out: symbols in the file, or "
      "other --functions\n");
}

TEST_F(Emit, ErrorsNameThePlace) {
  write("blob", std::string(16, '\x90'));
  const auto expect = [&](const std::string& list, const std::string& arguments, int status,
                          const std::string& message) {
    write("list", list);
    const auto done = emit(arguments);
    EXPECT_EQ(done.status, status) << done.output;
    EXPECT_NE(done.output.find(message), std::string::npos) << done.output;
  };
  expect("0 4 a\nzz 4 b\n", "blob list", 1, "list: line 2: not 'START SIZE NAME'");
  expect("0x0 4 a\n", "blob list", 1, "list: line 1: not 'START SIZE NAME'");
  expect("0 4 a\n8 20 b\n", "blob list", 1, "list: line 2: 0x8: code beyond the blob's end");
  expect("0 8 a\n4 8 b\n", "--mode function blob list", 1, "a function begins before the end of the one before it");
  expect("0 4 a\n", "--functions x blob list", 1, "no function without unwind information");
  expect("", "blob", 1, "not an ELF file");
  expect("", "missing list", 3, "missing: cannot open the file");
  expect("", "--mode n blob", 2, "--mode");
  expect("0 4 a\n", "--mode function -o /nonexistent/out blob list", 3, "/nonexistent/out");
  expect("0 4 a\n", "--mode function --syntax elf --handler h blob list", 1, "handler");
}

}  // namespace
}  // namespace windlass
