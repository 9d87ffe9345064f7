// Directives given to the assemblers of binutils and LLVM. Their output is byte for byte that of Writer, except for the
// padding at the end of a record.
#include <algorithm>
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "differential/peer.h"
#include "formats/dwarf/cfi.h"
#include "support/arm64_prologues.h"
#include "support/random_arm64_prologue.h"
#include "support/run_command.h"
#include "support/x64_functions.h"
#include "windlass/format/dwarf.h"

namespace windlass {
namespace {

using namespace prologue;

struct Assembler {
  const char* name;
  const char* command;  // {0}: the source, {1}: the object file
  Architecture architecture;
  dwarf::Factors factors;
};
constexpr Assembler kAssemblers[] = {
    {"as", "as --64 {0} -o {1}", Architecture::kX86_64, dwarf::Factors::kBinutils},
    {"llvm-mc-22", "llvm-mc-22 -triple=x86_64-linux-gnu -filetype=obj {0} -o {1}", Architecture::kX86_64,
     dwarf::Factors::kLlvm},
    {"aarch64-linux-gnu-as", "aarch64-linux-gnu-as {0} -o {1}", Architecture::kAArch64, dwarf::Factors::kBinutils},
    {"llvm-mc-22", "llvm-mc-22 -triple=aarch64-linux-gnu -filetype=obj {0} -o {1}", Architecture::kAArch64,
     dwarf::Factors::kLlvm},
};

struct Made {
  Prologue prologue;
  std::vector<std::byte> code;
};

Made make(Architecture architecture, std::uint64_t seed) {
  if (architecture == Architecture::kAArch64) {
    Made made{test::RandomArm64Prologue(seed).make(), {}};
    const test::Arm64PrologueCode code(made.prologue);
    made.code.resize(code.words().size() * 4);
    std::memcpy(made.code.data(), code.words().data(), made.code.size());
    return made;
  }
  std::mt19937_64 random(seed);
  test::X64FunctionMaker maker([&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); });
  const test::MadeFunction function = maker.make();
  Made made{function.prologue, {}};
  for (const auto byte : function.code.bytes()) made.code.push_back(static_cast<std::byte>(byte));
  return made;
}

std::string hex(ByteView bytes, bool trimmed) {
  std::size_t size = bytes.size();
  while (trimmed && size != 0 && bytes.data()[size - 1] == std::byte{0}) --size;
  std::string out;
  for (std::size_t i = 0; i < size; ++i) out += fmt::format("{:02x} ", std::to_integer<int>(bytes.data()[i]));
  return out;
}

// Of each function in order: its CIE and its instructions.
std::vector<std::string> records_of(const dwarf::CfiSection& section) {
  std::vector<std::string> out;
  const auto report = [](const Error& error) { ADD_FAILURE() << error.text(); };
  dwarf::CfiReader reader(section, report);
  for (dwarf::Fde fde; reader.next_fde(fde);) {
    const dwarf::Cie& cie = *fde.cie;
    out.push_back(fmt::format("{} {} {} {}{}{}: {}| {} bytes of code: {}", cie.code_alignment, cie.data_alignment,
                              cie.return_address_register, cie.signal_frame ? "signal " : "",
                              cie.personality ? "handled " : "",
                              cie.lsda_encoding != dwarf::DW_EH_PE_omit ? "data " : "", hex(cie.instructions, true),
                              fde.end - fde.begin, hex(fde.instructions, true)));
  }
  return out;
}

class DwarfAssembly : public testing::TestWithParam<Assembler> {
 protected:
  void SetUp() override {
    if (!peer::have(GetParam().name)) GTEST_SKIP() << "SKIPPED: there is no " << GetParam().name;
    directory_ = peer::first_line("mktemp -d");
  }
  void TearDown() override {
    if (!directory_.empty()) test::run("rm -r '" + directory_ + "'");
  }
  // The records of the object file that the text becomes.
  std::vector<std::string> assemble(const std::string& text) {
    const std::string source = directory_ + "/functions.s", object = directory_ + "/functions.o";
    std::ofstream(source) << text;
    const auto done = test::run(fmt::format(fmt::runtime(GetParam().command), source, object) + " 2>&1");
    EXPECT_EQ(done.status, 0) << done.output.substr(0, 2000);
    const auto file = MappedFile::open(object);
    const auto image = file ? image::ElfImage::parse(file->bytes()) : Failure(file.error());
    if (!image) {
      ADD_FAILURE() << image.error().text();
      return {};
    }
    const auto report = [](const Error& error) {  // what an object file's records refer to is for the linker to say
      EXPECT_NE(std::string_view(error.what).find("relocatable"), std::string_view::npos) << error.text();
    };
    for (const dwarf::CfiSection& section : image::find_unwind_sections(*image, report).sections)
      if (section.name == ".eh_frame") return records_of(section);
    ADD_FAILURE() << "no .eh_frame";
    return {};
  }
  std::string directory_;
};

TEST_P(DwarfAssembly, DirectivesAreWhatIsWritten) {
  constexpr unsigned kFunctions = 1500;
  const Architecture architecture = GetParam().architecture;
  // Far enough apart for functions of any size, near enough for four bytes.
  constexpr std::uint64_t kCode = 0x10000000, kStride = 0x10000, kHandler = 0x8000000;
  dwarf::Writer writer({.architecture = architecture, .address = 0x4000000, .factors = GetParam().factors});
  std::string text;
  unsigned handled = 0;
  for (unsigned i = 0; i < kFunctions; ++i) {
    Made made = make(architecture, i);
    dwarf::AssemblyOptions options{.name = fmt::format("f{}", i)};
    made.prologue.handler.reset();
    if (i % 7 == 0) {
      made.prologue.handler = Handler{.data = {std::byte{1}, std::byte{2}}};
      options.personality = "the_handler";
      ++handled;
    }
    const auto source = dwarf::assembly_of(made.prologue, made.code, options);
    ASSERT_TRUE(source) << i << ": " << source.error().text();
    text += *source;
    const std::uint64_t handler = made.prologue.handler ? kHandler : 0;
    const auto done =
        writer.add(made.prologue, {.address = kCode + kStride * i, .personality = handler, .language_data = handler});
    ASSERT_TRUE(done) << i << ": " << done.error().text();
  }
  const dwarf::Written written = std::move(writer).take();
  dwarf::CfiSection section;
  section.bytes = ByteView(written.bytes.data(), written.bytes.size());
  section.address = written.address;
  section.architecture = architecture;
  section.stop_at_terminator = true;
  std::vector<std::string> ours = records_of(section), theirs = assemble(text);
  ASSERT_EQ(ours.size(), kFunctions);
  ASSERT_EQ(theirs.size(), kFunctions);
  // LLVM puts the functions of one CIE together.
  std::ranges::sort(ours);
  std::ranges::sort(theirs);
  std::size_t different = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == theirs[i]) continue;
    if (++different <= 3) ADD_FAILURE() << i << "\n  ours:   " << ours[i] << "\n  theirs: " << theirs[i];
  }
  EXPECT_EQ(different, 0u);
  fmt::print("{} functions ({} with a handler), {} bytes of records: {} differ\n", kFunctions, handled,
             written.bytes.size(), different);
}

std::string name_of(const testing::TestParamInfo<Assembler>& info) {
  return fmt::format("{}{}", info.index % 2 == 0 ? "Binutils" : "Llvm",
                     info.param.architecture == Architecture::kAArch64 ? "AArch64" : "X86_64");
}
INSTANTIATE_TEST_SUITE_P(Assemblers, DwarfAssembly, testing::ValuesIn(kAssemblers), name_of);

}  // namespace
}  // namespace windlass
