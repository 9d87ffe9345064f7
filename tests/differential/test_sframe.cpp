// SFrame against other writers and readers, and against the call frame information of real libraries.
// LLVM 22 writes and reads version 2; GNU binutils from 2.46 on, where they are installed, version 3.
#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "differential/peer.h"
#include "formats/dwarf/lower.h"
#include "formats/sframe/read.h"
#include "lookup/sources/unwind_source.h"
#include "lookup/table/compile.h"
#include "support/arm64_prologues.h"
#include "support/random_arm64_prologue.h"
#include "support/run_command.h"
#include "support/sframe_bytes.h"
#include "support/x64_functions.h"
#include "windlass/format/dwarf.h"
#include "windlass/format/sframe.h"
#include "windlass/unwind_info.h"

namespace windlass {
namespace {

using sframe::Section;
using sframe::Version;
using sframe::Writer;

// Does a tool of binutils know version 3?
bool knows_version3(const std::string& tool) {
  const std::string line = peer::first_line(tool + " --version 2>/dev/null");
  const auto number = line.find(") 2.");
  if (number == std::string::npos) return false;
  unsigned minor = 0;
  std::from_chars(line.data() + number + 4, line.data() + line.size(), minor);
  return minor >= 46;
}
constexpr const char* kNoVersion3 = "SKIPPED: there is no binutils that knows version 3 of SFrame";

class Folder {
 public:
  Folder() : path_(peer::first_line("mktemp -d")) {}
  ~Folder() { test::run("rm -r '" + path_ + "'"); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// ---- the same functions, by an assembler --------------------------------------------------------------------------

struct Assembler {
  const char* name;
  const char* command;  // {0}: the source, {1}: the object file
  Architecture architecture;
  Version version;
};
constexpr Assembler kAssemblers[] = {
    {"llvm-mc-22", "llvm-mc-22 -triple=x86_64-linux-gnu -filetype=obj {0} -o {1}", Architecture::kX86_64, Version::k2},
    {"as", "as --64 {0} -o {1}", Architecture::kX86_64, Version::k3},
    {"aarch64-linux-gnu-as", "aarch64-linux-gnu-as {0} -o {1}", Architecture::kAArch64, Version::k3},
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

std::vector<std::byte> section_of(const std::string& object) {
  const auto file = MappedFile::open(object);
  const auto image = file ? image::ElfImage::parse(file->bytes()) : Failure(file.error());
  const image::Section* section = image ? image->section(".sframe") : nullptr;
  if (section == nullptr) return {};
  const auto bytes = image->stored_bytes(*section);
  return bytes ? std::vector<std::byte>(bytes->data(), bytes->data() + bytes->size()) : std::vector<std::byte>();
}

// The rows of the one function, by their offset in it; those that say the same are one.
std::vector<std::string> says(const Section& section) {
  std::vector<std::string> out;
  std::string last;
  const auto function = section.function(0);
  EXPECT_TRUE(function);
  if (!function) return out;
  const auto add = [&](const FrameRow& row) {
    const std::string text = test::sframe_text(section.architecture(), row);
    if (text != last) out.push_back(fmt::format("{:x} {}", row.begin - function->begin, text));
    last = text;
  };
  const auto done = section.for_each_row(*function, add);
  EXPECT_TRUE(done) << done.error().text();
  out.push_back(fmt::format("{} bytes", function->end - function->begin));
  return out;
}

// Without what a linker fills in: whether functions are sorted, and where they are.
std::vector<std::byte> unlinked(std::vector<std::byte> bytes, Version version) {
  const auto section = Section::parse(ByteView(bytes.data(), bytes.size()), 0);
  EXPECT_TRUE(section) << section.error().text();
  if (!section) return {};
  bytes[3] &= std::byte{0xfe};
  for (std::uint32_t i = 0; i < section->size(); ++i) {
    const auto function = section->function(i);
    EXPECT_TRUE(function);
    if (function)
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(function->record), version == Version::k3 ? 8 : 4,
                  std::byte{0});
  }
  return bytes;
}

// Does it remember a state while another one is remembered? Binutils 2.47 then forgets the outer one, in SFrame alone.
bool nests_states(std::string_view source) {
  constexpr std::string_view kRemember = ".cfi_remember_state", kRestore = ".cfi_restore_state";
  int depth = 0;
  for (std::size_t at = source.find(".cfi_re"); at != source.npos; at = source.find(".cfi_re", at + 1)) {
    if (source.substr(at).starts_with(kRemember) && ++depth > 1) return true;
    if (source.substr(at).starts_with(kRestore)) --depth;
  }
  return false;
}

class SFrameAssembly : public testing::TestWithParam<Assembler> {
 protected:
  void SetUp() override {
    if (!peer::have(GetParam().name)) GTEST_SKIP() << "SKIPPED: there is no " << GetParam().name;
    if (GetParam().version == Version::k3 && !knows_version3(GetParam().name)) GTEST_SKIP() << kNoVersion3;
  }
  // The section that an assembler makes of a function; empty if none.
  std::vector<std::byte> assemble(const std::string& source) {
    std::ofstream(folder_ / "f.s") << ".cfi_sections .sframe\n" << source;
    const auto done =
        test::run(fmt::format(fmt::runtime(GetParam().command), folder_ / "f.s", folder_ / "f.o") + " 2>&1");
    EXPECT_EQ(done.status, 0) << done.output.substr(0, 2000);
    return section_of(folder_ / "f.o");
  }
  Folder folder_;
};

TEST_P(SFrameAssembly, DirectivesBecomeWhatIsWritten) {
  constexpr unsigned kFunctions = 150;
  unsigned compared = 0, flexible = 0, left_out = 0;
  for (unsigned i = 0; i < kFunctions && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    Made made = make(GetParam().architecture, i);
    made.prologue.handler.reset();
    Writer writer({.architecture = GetParam().architecture, .version = GetParam().version, .address = 0x1000000});
    if (!writer.add(made.prologue, 0x1000)) continue;
    const auto written = std::move(writer).take();
    ASSERT_TRUE(written);
    const auto source = dwarf::assembly_of(made.prologue, made.code, {.name = "f"});
    ASSERT_TRUE(source) << source.error().text();
    if (GetParam().version == Version::k3 && nests_states(*source)) continue;
    const auto bytes = assemble(*source);
    const auto section = Section::parse(ByteView(bytes.data(), bytes.size()), 0);
    if (!section || section->size() == 0) {
      ++left_out;
      continue;
    }
    if (GetParam().version == Version::k2) {
      EXPECT_EQ(unlinked(bytes, Version::k2), unlinked(*written, Version::k2));
    } else {
      // Binutils repeats rows that say the same, and has starts of two bytes where one would do.
      EXPECT_EQ(says(*section), says(*Section::parse(ByteView(written->data(), written->size()), 0x1000000)));
    }
    ++compared;
    flexible += section->function(0)->flexible ? 1 : 0;
  }
  RecordProperty("compared", static_cast<int>(compared));
  RecordProperty("flexible", static_cast<int>(flexible));
  RecordProperty("left_out", static_cast<int>(left_out));
  EXPECT_GT(compared, kFunctions / 4);
}

INSTANTIATE_TEST_SUITE_P(Assemblers, SFrameAssembly, testing::ValuesIn(kAssemblers), [](const auto& tested) {
  return fmt::format("{}Version{}", tested.param.architecture == Architecture::kX86_64 ? "X64" : "A64",
                     int{static_cast<std::uint8_t>(tested.param.version)});
});

// ---- real libraries -----------------------------------------------------------------------------------------------

struct Converted {
  std::vector<std::byte> bytes;
  std::vector<std::string> rows;  // of what was written: "address text"
  std::size_t functions = 0;
  std::map<std::string, std::size_t> refused;
};

constexpr std::uint64_t kSection = 0x40000000;

// The functions of a file's .eh_frame, as SFrame.
Converted convert(const std::string& path, Version version) {
  Converted out;
  const auto file = MappedFile::open(path);
  const auto image = file ? image::ElfImage::parse(file->bytes()) : Failure(file.error());
  const auto section = image ? image::find_eh_frame(*image) : Failure(image.error());
  if (!section) return out;
  Writer writer({.architecture = section->architecture, .version = version, .address = kSection});
  const auto ignore = [](const Error&) {};
  dwarf::CfiReader reader(*section, ignore);
  dwarf::RowEvaluator evaluator(*section);
  std::map<std::uint64_t, std::vector<std::string>> says;
  for (dwarf::Fde fde; reader.next_fde(fde);) {
    std::vector<FrameRow> rows;
    const auto done = evaluator.for_each_row(fde, [&](const FrameRow& row) { rows.push_back(row); });
    if (!done || rows.empty() || says.contains(fde.begin)) continue;
    ++out.functions;
    if (const auto added = writer.add(rows, fde.begin); !added) {
      ++out.refused[added.error().what];
      continue;
    }
    std::string last;
    for (const FrameRow& row : rows) {
      // FDEs mark signal frames, not rows, and peers do not print the mark.
      FrameRow plain = row;
      plain.signal_frame = false;
      const std::string text = test::sframe_text(section->architecture, plain);
      if (text != last) says[fde.begin].push_back(fmt::format("{:x} {}", row.begin, text));
      last = text;
    }
  }
  for (const auto& [begin, texts] : says) out.rows.insert(out.rows.end(), texts.begin(), texts.end());
  auto bytes = std::move(writer).take();
  EXPECT_TRUE(bytes) << bytes.error().text();
  if (bytes) out.bytes = std::move(*bytes);
  return out;
}

std::vector<std::string> rows_read(const Section& section) {
  std::vector<std::string> rows;
  const auto never = [](const Error& error) { ADD_FAILURE() << error.text(); };
  const auto each = [&](const sframe::Function& function) {
    const auto add = [&](const FrameRow& row) {
      FrameRow plain = row;
      plain.signal_frame = false;
      rows.push_back(fmt::format("{:x} {}", row.begin, test::sframe_text(section.architecture(), plain)));
    };
    EXPECT_TRUE(section.for_each_row(function, add));
    return true;
  };
  section.for_each_function(each, never);
  return rows;
}

void expect_equal(const std::vector<std::string>& actual, const std::vector<std::string>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_EQ(actual[i], expected[i]) << "row " << i;
}

TEST(SFrameVsCfi, RealLibraries) {
  unsigned compared = 0;
  for (const peer::Subject& subject : peer::subjects()) {
    if (subject.path.empty()) continue;
    SCOPED_TRACE(subject.name);
    const Converted converted = convert(subject.path, Version::k3);
    if (converted.functions == 0) continue;
    const auto section = Section::parse(ByteView(converted.bytes.data(), converted.bytes.size()), kSection);
    ASSERT_TRUE(section) << section.error().text();
    expect_equal(rows_read(*section), converted.rows);
    std::size_t refused = 0;
    for (const auto& [why, count] : converted.refused) {
      refused += count;
      std::printf("%s: %zu of %zu functions: %s\n", subject.name.c_str(), count, converted.functions, why.c_str());
    }
    EXPECT_LE(refused, converted.functions / 50 + 2) << "of " << converted.functions;
    ++compared;
  }
  EXPECT_GE(compared, 2u);
}

// ---- other readers ------------------------------------------------------------------------------------------------

// A shared object with the section where it was written for; it is all that is in it. It gets its name in the end, as
// linkers make another one of an .sframe.
std::string linked(const Folder& folder, const Converted& converted) {
  std::ofstream(folder / "bytes", std::ios::binary)
      .write(reinterpret_cast<const char*>(converted.bytes.data()),
             static_cast<std::streamsize>(converted.bytes.size()));
  std::ofstream(folder / "s.s") << ".section frames,\"a\",@progbits\n.incbin \"" << folder / "bytes"
                                << "\"\n";
  const auto done =
      test::run(fmt::format("(as --64 {0} -o {1} && ld -shared --section-start=frames={2:#x} {1} -o {3} && "
                            "objcopy --rename-section frames=.sframe {3}) 2>&1",
                            folder / "s.s", folder / "s.o", kSection, folder / "s.so"));
  EXPECT_EQ(done.status, 0) << done.output.substr(0, 2000);
  return folder / "s.so";
}

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// What llvm-readobj prints of rows of x86-64.
std::vector<std::string> rows_of_readobj(const std::string& file) {
  std::vector<std::string> rows;
  peer::Lines lines("llvm-readobj-22 --sframe '" + file + "' 2>&1");
  std::string start, base, cfa, fp;
  bool in_row = false;
  while (const auto line = lines.next()) {
    const std::string_view text = trimmed(*line);
    const auto value = [&](std::string_view key, std::string& to) {
      if (!text.starts_with(key)) return;
      to = text.substr(key.size());
    };
    if (text == "Frame Row Entry {") in_row = true, start = base = cfa = fp = "";
    if (!in_row) continue;
    value("Start Address: 0x", start), value("Base Register: ", base), value("CFA Offset: ", cfa);
    value("FP Offset: ", fp);
    if (text != "}") continue;
    in_row = false;
    std::ranges::transform(start, start.begin(),
                           [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
    if (cfa.empty())
      rows.push_back(start + " RA undefined");
    else
      rows.push_back(fmt::format("{} {}{:+} {} f", start, base.starts_with("SP") ? "sp" : "fp", std::stol(cfa),
                                 fp.empty() ? "u" : fmt::format("c{:+}", std::stol(fp))));
  }
  return rows;
}

TEST(SFrameVsLlvm, ReadsWhatIsWritten) {
  if (!peer::have("llvm-readobj-22")) GTEST_SKIP() << "SKIPPED: there is no llvm-readobj-22";
  for (const peer::Subject& subject : peer::subjects()) {
    if (subject.path.empty() || (subject.name != "libc" && subject.name != "libstdc++")) continue;
    SCOPED_TRACE(subject.name);
    const Folder folder;
    const Converted converted = convert(subject.path, Version::k2);
    ASSERT_GT(converted.rows.size(), 10000u);
    expect_equal(rows_of_readobj(linked(folder, converted)), converted.rows);
  }
}

// What readelf prints of rows of x86-64, as test::sframe_text has them.
std::vector<std::string> rows_of_readelf(const std::string& file) {
  std::vector<std::string> rows;
  peer::Lines lines("readelf --sframe=.sframe '" + file + "' 2>&1");
  bool in_function = false;
  while (const auto line = lines.next()) {
    const std::string_view text = trimmed(*line);
    if (text.starts_with("STARTPC")) {
      in_function = true;
      continue;
    }
    if (text.empty()) in_function = false;
    if (!in_function) continue;
    std::vector<std::string> words;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      if (end > at) words.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
    words[0].erase(0, std::min(words[0].find_first_not_of('0'), words[0].size() - 1));
    // "U" is what rows of the flexible type have for the return address where it is fixed.
    if (words.size() == 4 && words[3] == "U") words[3] = "f";
    std::string joined;
    for (const std::string& word : words) joined += (joined.empty() ? "" : " ") + word;
    rows.push_back(joined);
  }
  return rows;
}

TEST(SFrameVsReadelf, ReadsWhatIsWritten) {
  if (!knows_version3("readelf")) GTEST_SKIP() << kNoVersion3;
  for (const Version version : {Version::k2, Version::k3}) {
    for (const peer::Subject& subject : peer::subjects()) {
      if (subject.path.empty() || (subject.name != "libc" && subject.name != "libstdc++")) continue;
      SCOPED_TRACE(subject.name);
      const Folder folder;
      const Converted converted = convert(subject.path, version);
      ASSERT_GT(converted.rows.size(), 10000u);
      expect_equal(rows_of_readelf(linked(folder, converted)), converted.rows);
    }
  }
}

// ---- files --------------------------------------------------------------------------------------------------------

constexpr std::uint64_t kText = 0x10000;

// Two functions, at kText and 64 bytes behind it, with .sframe of both. Its record of the second is wrong. With
// `with_cfi`, the second has .eh_frame, too.
std::string program(const Folder& folder, bool with_cfi) {
  Writer writer({.address = kSection});
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 7};
  f.ops = {{1, prologue::push(6)}, {4, prologue::SetFramePointer{6}}};
  f.epilogues = {{5, 7, {{6, f.ops[1].action}, {6, f.ops[0].action}}}};
  EXPECT_TRUE(writer.add(f, kText));
  Prologue wrong{.architecture = Architecture::kX86_64, .code_size = 3};
  wrong.ops = {{1, prologue::Allocate{4096}}};
  EXPECT_TRUE(writer.add(wrong, kText + 64));
  const auto bytes = std::move(writer).take();
  EXPECT_TRUE(bytes);
  std::ofstream(folder / "bytes", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
  std::ofstream(folder / "s.s") << ".text\nf: push %rbp\nmov %rsp, %rbp\nnop\npop %rbp\nret\n.balign 64\ng:\n"
                                << (with_cfi ? ".cfi_startproc\npush %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3, -16\n"
                                               "pop %rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n"
                                             : "push %rbx\npop %rbx\nret\n")
                                << ".section frames,\"a\",@progbits\n.incbin \"" << folder / "bytes"
                                << "\"\n";
  const auto done = test::run(
      fmt::format("(as --64 {0} -o {1} && ld -shared -Ttext={4:#x} --section-start=frames={2:#x} {1} -o {3} && "
                  "objcopy --rename-section frames=.sframe {3}) 2>&1",
                  folder / "s.s", folder / "s.o", kSection, folder / "s.so", kText));
  EXPECT_EQ(done.status, 0) << done.output.substr(0, 2000);
  return folder / "s.so";
}

std::string says_at(const UnwindReader& reader, std::uint64_t address) {
  const auto row = reader.row_at(address);
  return row ? test::sframe_text(Architecture::kX86_64, *row) : std::string(row.error().what);
}

TEST(SFrameFile, WithNothingElse) {
  const Folder folder;
  const auto reader = open_unwind_info(program(folder, false));
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ((*reader)->format(), UnwindFormat::kSFrame);
  EXPECT_EQ((*reader)->architecture(), Architecture::kX86_64);
  const auto functions = (*reader)->functions();
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].begin, kText);
  EXPECT_EQ(functions[0].end, kText + 7);
  EXPECT_EQ((*reader)->rows(functions[0]).size(), 4u);
  EXPECT_EQ(says_at(**reader, kText), "sp+8 u f");
  EXPECT_EQ(says_at(**reader, kText + 1), "sp+16 c-16 f");
  EXPECT_EQ(says_at(**reader, kText + 4), "fp+16 c-16 f");
  EXPECT_EQ(says_at(**reader, kText + 6), "sp+8 u f");
  EXPECT_EQ(says_at(**reader, kText + 64 + 1), "sp+4104 u f");
  EXPECT_EQ((*reader)->row_at(kText + 7).error().code, ErrorCode::kNotFound);
}

// Call frame information knows every register, so it goes first.
TEST(SFrameFile, BesideCallFrameInformation) {
  const Folder folder;
  const auto reader = open_unwind_info(program(folder, true));
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ((*reader)->format(), UnwindFormat::kDwarf);
  const auto functions = (*reader)->functions();
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].begin, kText);
  EXPECT_EQ(functions[0].record.section, 0xffffffffu);
  EXPECT_EQ(functions[1].begin, kText + 64);
  EXPECT_EQ(functions[1].record.section, 0u);
  EXPECT_EQ(says_at(**reader, kText + 4), "fp+16 c-16 f");
  EXPECT_EQ(says_at(**reader, kText + 64 + 1), "sp+16 u f");
}

TEST(SFrameFile, InATable) {
  for (const bool with_cfi : {false, true}) {
    SCOPED_TRACE(with_cfi);
    const Folder folder;
    const auto file = MappedFile::open(program(folder, with_cfi));
    ASSERT_TRUE(file);
    const auto source = sources::open_elf_source(file->bytes());
    ASSERT_TRUE(source);
    const auto never = [](const Error& error) { ADD_FAILURE() << error.text(); };
    const auto table = table::compile(**source, never);
    ASSERT_TRUE(table) << table.error().text();
    const auto expect_rule = [&](std::uint64_t address, unsigned reg, int offset) {
      const table::TraceRule& rule = table->find(address);
      EXPECT_EQ(rule.cfa_kind, WL_CFA_REG);
      EXPECT_EQ(rule.cfa_reg, reg);
      EXPECT_EQ(rule.cfa_offset, offset);
    };
    expect_rule(kText, 7, 8);
    expect_rule(kText + 4, 6, 16);
    expect_rule(kText + 6, 7, 8);
    expect_rule(kText + 64 + 1, 7, with_cfi ? 16 : 4104);
  }
}

}  // namespace
}  // namespace windlass
