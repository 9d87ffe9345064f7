// Assembly texts of made-up functions, assembled by binutils, LLVM and llvm-ml (MASM's syntax), linked, and held
// against the bytes that are written without an assembler.
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "differential/peer.h"
#include "formats/winx64/encode.h"
#include "support/run_command.h"
#include "support/x64_functions.h"

namespace windlass {
namespace {

using namespace prologue;

using test::MadeFunction;
using winx64::Assembler;

constexpr const char* kLinker = "x86_64-w64-mingw32-ld";
constexpr const char* kGas = "x86_64-w64-mingw32-as";
constexpr const char* kReadobj = "llvm-readobj-22";

class Workshop {
 public:
  Workshop() {
    char name[] = "/tmp/windlass-asm-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~Workshop() { (void)test::run("rm -rf " + directory_); }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  [[nodiscard]] std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  // Empty, or what the tool said.
  [[nodiscard]] std::string run(const std::string& command) const {
    const test::CommandResult result = test::run("cd " + directory_ + " && " + command + " 2>&1");
    return result.status == 0 ? "" : command + "\n" + result.output.substr(0, 2000);
  }

 private:
  std::string directory_;
};

struct Case {
  const char* name;
  Assembler assembler;
  std::uint8_t version;
  const char* tool;
  const char* command;
};
constexpr Case kCases[] = {
    {"GAS", Assembler::kGas, 1, kGas, "x86_64-w64-mingw32-as -o code.o code.s"},
    {"GAS, version 2", Assembler::kGas, 2, kGas, "x86_64-w64-mingw32-as -o code.o code.s"},
    {"clang", Assembler::kClang, 1, "llvm-mc-22", "llvm-mc-22 -triple x86_64-windows -filetype=obj -o code.o code.s"},
    {"clang, version 2", Assembler::kClang, 2, "llvm-mc-22",
     "llvm-mc-22 -triple x86_64-windows -filetype=obj -o code.o code.s"},
    {"MASM", Assembler::kMasm, 1, "llvm-ml-22", "llvm-ml-22 --m64 /c /Fo code.o code.s"},
};

class Program {
 public:
  // Functions that can be written, as one source text.
  Program(const Case& what, unsigned count) : what_(what), random_(99) {
    for (const bool error_code : {false, true}) {
      // llvm-ml wants `.pushframe @code`, against MASM's manual.
      if (!error_code || what_.assembler != Assembler::kMasm) add(interrupted(error_code));
    }
    while (functions_.size() < count) {
      test::X64FunctionMaker maker([&](std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); });
      add(maker.make());
    }
    if (what_.assembler == Assembler::kMasm) text_ += "END\n";
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::size_t with_directives() const { return with_directives_; }

  // Every function's entries and information in the linked image are what write() makes.
  void expect_in(const image::PeImage& image) const {
    const winx64::Functions table(image);
    std::uint32_t at = image.sections()[0].rva;
    std::size_t entries = 0;
    for (const MadeFunction& made : functions_) {
      Prologue prologue = made.prologue;
      const auto first = first_entry(table, made, at);
      const auto info = first ? winx64::read_unwind_info(image, first->info) : fail(ErrorCode::kNotFound, "", at);
      if (prologue.handler && info) prologue.handler->rva = info->handler;
      const auto written =
          winx64::write(prologue, {.version = what_.version, .function = at, .info = first ? first->info : 0},
                        std::as_bytes(std::span(made.code.bytes())));
      ASSERT_TRUE(written);
      for (const winx64::RuntimeFunction& entry : written->entries) EXPECT_EQ(table.find(entry.begin), entry) << at;
      entries += written->entries.size();
      if (first) expect_bytes(image, first->info, written->bytes, at);
      at += prologue.code_size;
    }
    EXPECT_EQ(entries, table.size());
  }

 private:
  static MadeFunction interrupted(bool error_code) {
    MadeFunction made;
    made.code.push(3);
    made.code.add_rsp(-32);
    made.code.nop();
    made.prologue.ops = {{0, MachineFrame{error_code}}, {1, push(3)}, {5, Allocate{32}}};
    made.prologue.code_size = made.code.at();
    return made;
  }

  void add(const MadeFunction& made) {
    const std::span<const std::uint8_t> code(made.code.bytes());
    winx64::AssemblyOptions options{.assembler = what_.assembler, .version = what_.version};
    options.name = fmt::format("f{}", functions_.size());
    options.handler = "handler";
    auto source = winx64::assembly_of(made.prologue, std::as_bytes(code), options);
    const bool can_be_written =
        winx64::write(made.prologue, {.version = what_.version}, std::as_bytes(code)).has_value();
    ASSERT_EQ(source.has_value(), can_be_written) << source.error().text();
    if (!source) return;
    const bool by_directives = winx64::directives_of(made.prologue, options, std::as_bytes(code)).has_value();
    // llvm-ml lacks IMAGEREL, by which data refers to functions: that text is only looked at, in test_winx64.
    if (what_.assembler == Assembler::kMasm && !by_directives) return;
    with_directives_ += by_directives ? 1 : 0;
    if (source->ends_with("END\n")) source->resize(source->size() - 4);
    text_ += *source;
    functions_.push_back(made);
  }

  static std::optional<winx64::RuntimeFunction> first_entry(const winx64::Functions& table, const MadeFunction& made,
                                                            std::uint32_t at) {
    auto found = table.find(at);
    if (!found && !made.prologue.parts.empty()) found = table.find(at + made.prologue.parts[0].begin);  // of a leaf
    return found && found->begin >= at && found->begin < at + made.prologue.code_size ? found : std::nullopt;
  }

  static void expect_bytes(const image::PeImage& image, std::uint32_t rva, const std::vector<std::byte>& bytes,
                           std::uint32_t function) {
    const auto stored = image.from_rva(rva);
    ASSERT_TRUE(stored);
    ASSERT_GE(stored->size(), bytes.size());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), stored->data())) << "function at RVA " << function;
  }

  const Case& what_;
  std::mt19937_64 random_;
  std::vector<MadeFunction> functions_;
  std::string text_;
  std::size_t with_directives_ = 0;
};

TEST(WinX64WriteAsm, AssembledIsWhatIsWritten) {
  for (const char* tool : {kLinker, kGas, kReadobj, "llvm-mc-22", "llvm-ml-22"}) {
    if (!peer::have(tool)) GTEST_SKIP() << tool << " is not installed";
  }
  for (const Case& what : kCases) {
    SCOPED_TRACE(what.name);
    const Program program(what, 400);
    const Workshop workshop;
    workshop.write("code.s", program.text());
    workshop.write("handler.s", ".globl handler\nhandler: ret\n");
    ASSERT_EQ(workshop.run(what.command), "");
    ASSERT_EQ(workshop.run(std::string(kGas) + " -o handler.o handler.s"), "");
    ASSERT_EQ(workshop.run(std::string(kLinker) + " -e handler -o code.exe code.o handler.o"), "");
    ASSERT_EQ(workshop.run(std::string(kReadobj) + " --unwind code.exe > unwind.txt"), "");
    const auto file = MappedFile::open(workshop.path("code.exe"));
    ASSERT_TRUE(file);
    const auto image = image::PeImage::parse(file->bytes());
    ASSERT_TRUE(image);
    program.expect_in(*image);
    const winx64::Functions table(*image);
    const test::CommandResult read = test::run("grep -c 'RuntimeFunction {' " + workshop.path("unwind.txt"));
    EXPECT_EQ(std::atoi(read.output.c_str()), static_cast<int>(table.size()));
    std::printf("%-16s 400 functions, %zu by directives, %zu entries\n", what.name, program.with_directives(),
                table.size());
    EXPECT_GT(program.with_directives(), what.version == 2 && what.assembler != Assembler::kClang ? 0U : 100U);
  }
}

}  // namespace
}  // namespace windlass
