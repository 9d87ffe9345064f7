// The object file that debuggers get, read by our own readers; by gdb: test_jit_debuggers.
#include <elf.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/image/elf.h"
#include "jit/registries/debug_lines.h"
#include "jit/registries/gdb_object.h"
#include "lookup/sources/unwind_source.h"
#include "windlass/backtrace.h"

namespace windlass::registries {
namespace {

TEST(RegisteredObject, SectionsSymbolsAndFrames) {
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 32};
  prologue.ops = {{4, prologue::Allocate{48}}};
  const std::vector<GeneratedLine> lines = {{.offset = 0, .file = "a.c", .line = 3}};
  const std::vector<GeneratedFunction> given = {
      {.address = 0x7000'0000, .size = 32, .name = "first", .prologue = &prologue, .lines = lines},
      {.address = 0x7000'0040, .size = 32, .name = "second", .prologue = &prologue},
      {.address = 0x7800'0000, .size = 32, .name = "third", .prologue = &prologue},
  };
  const auto batch = check_batch(given);
  ASSERT_TRUE(batch);
  const auto runs = runs_of(*batch);
  ASSERT_EQ(runs.size(), 2u);
  const auto bytes = make_object(*batch, runs);
  ASSERT_TRUE(bytes) << bytes.error().text();
  const ByteView view(bytes->data(), bytes->size());
  const auto image = image::ElfImage::parse(view);
  ASSERT_TRUE(image) << image.error().text();
  EXPECT_TRUE(image->problems().empty());
  std::vector<std::string> names;
  for (const image::Section& section : image->sections())
    if (section.type == SHT_NOBITS)
      names.push_back(fmt::format("{} {:#x} {}", section.name, section.address, section.size));
  EXPECT_EQ(names, (std::vector<std::string>{".text 0x70000000 96", ".text 0x78000000 32"}));
  for (const char* name : {".debug_info", ".debug_line", ".debug_abbrev", ".symtab"})
    EXPECT_NE(image->section(name), nullptr) << name;

  std::vector<std::string> symbols;
  const image::Section *table = image->section(".symtab"), *strings = image->section(".strtab");
  ASSERT_TRUE(table != nullptr && strings != nullptr);
  for (std::size_t at = sizeof(Elf64_Sym); at < table->size; at += sizeof(Elf64_Sym)) {
    const Elf64_Sym symbol = *view.at<Elf64_Sym>(table->offset + at);
    symbols.push_back(fmt::format("{} {}+{:#x} {}", *view.string_at(strings->offset + symbol.st_name), symbol.st_shndx,
                                  symbol.st_value, symbol.st_size));
  }
  EXPECT_EQ(symbols, (std::vector<std::string>{"first 1+0x0 32", "second 1+0x40 32", "third 2+0x0 32"}));

  const auto source = sources::open_source(view, image::PeLayout::kFile);
  ASSERT_TRUE(source);
  FrameRow row;
  for (const GeneratedFunction& function : given) {
    ASSERT_TRUE((*source)->row_at(function.address + 16, row));
    EXPECT_EQ(row.cfa.offset(), kOwnArchitecture == Architecture::kX86_64 ? 56 : 48);
    EXPECT_EQ((*source)->function_at(function.address)->end, function.address + 32);
  }
  EXPECT_FALSE((*source)->row_at(0x7000'0030, row));
}

// As an object file has to be (gABI, "Object Files"): the header, what each section is, and where its bytes may lie.
TEST(RegisteredObject, EachFieldIsWhatElfAsksFor) {
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 32};
  const std::vector<GeneratedLine> lines = {{.offset = 0, .file = "a.c", .line = 3}};
  const std::vector<GeneratedFunction> given = {
      {.address = 0x7000'0000, .size = 32, .name = "first", .prologue = &prologue, .lines = lines},
      {.address = 0x7000'0040, .size = 32, .prologue = &prologue},
      {.address = 0x7800'0004, .size = 32, .name = "third", .prologue = &prologue},
  };
  const auto batch = check_batch(given);
  ASSERT_TRUE(batch);
  const auto bytes = make_object(*batch, runs_of(*batch));
  ASSERT_TRUE(bytes) << bytes.error().text();
  const ByteView view(bytes->data(), bytes->size());
  const Elf64_Ehdr header = *view.at<Elf64_Ehdr>(0);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(header.e_ident), SELFMAG), ELFMAG);
  EXPECT_EQ(header.e_ident[EI_CLASS], ELFCLASS64);
  EXPECT_EQ(header.e_ident[EI_DATA], ELFDATA2LSB);
  EXPECT_EQ(header.e_ident[EI_VERSION], EV_CURRENT);
  EXPECT_EQ(header.e_type, ET_REL);
  EXPECT_EQ(header.e_machine, kOwnArchitecture == Architecture::kX86_64 ? EM_X86_64 : EM_AARCH64);
  EXPECT_EQ(header.e_version, static_cast<Elf64_Word>(EV_CURRENT));
  EXPECT_EQ(header.e_ehsize, sizeof header);
  EXPECT_EQ(header.e_shentsize, sizeof(Elf64_Shdr));
  EXPECT_EQ(header.e_shoff % alignof(Elf64_Shdr), 0U);
  EXPECT_EQ(header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr), bytes->size());
  const auto section = [&](unsigned number) {
    return *view.at<Elf64_Shdr>(header.e_shoff + number * sizeof(Elf64_Shdr));
  };
  const std::uint64_t names = section(header.e_shstrndx).sh_offset;
  std::vector<std::string> sections;
  std::uint64_t end = sizeof header;
  for (unsigned i = 1; i < header.e_shnum; ++i) {
    const Elf64_Shdr at = section(i);
    sections.push_back(fmt::format("{} {} {} {:#x} link {} info {} align {} of {}", *view.string_at(names + at.sh_name),
                                   at.sh_type, at.sh_flags, at.sh_addr, at.sh_link, at.sh_info, at.sh_addralign,
                                   at.sh_entsize));
    EXPECT_EQ(at.sh_addr % at.sh_addralign, 0U) << i;
    EXPECT_EQ(at.sh_offset % 8, 0U) << i << ": as the largest of their elements asks for";
    EXPECT_LT(at.sh_offset - end, 8U) << i << ": they follow each other";
    if (at.sh_type != SHT_NOBITS) end = at.sh_offset + at.sh_size;
  }
  EXPECT_LT(header.e_shoff - end, 8U);
  EXPECT_EQ(sections,
            (std::vector<std::string>{
                ".text 8 6 0x70000000 link 0 info 0 align 1 of 0", ".text 8 6 0x78000004 link 0 info 0 align 1 of 0",
                ".eh_frame 1 2 0x0 link 0 info 0 align 8 of 0", ".strtab 3 0 0x0 link 0 info 0 align 1 of 0",
                ".symtab 2 0 0x0 link 4 info 1 align 8 of 24", ".debug_abbrev 1 0 0x0 link 0 info 0 align 1 of 0",
                ".debug_info 1 0 0x0 link 0 info 0 align 1 of 0", ".debug_line 1 0 0x0 link 0 info 0 align 1 of 0",
                ".shstrtab 3 0 0x0 link 0 info 0 align 1 of 0"}));
  const Elf64_Shdr none = section(0);
  EXPECT_EQ(none.sh_type, static_cast<Elf64_Word>(SHT_NULL));
  EXPECT_EQ(none.sh_offset | none.sh_size | none.sh_name, 0U);

  const Elf64_Shdr table = section(5);
  ASSERT_EQ(table.sh_size, 3 * sizeof(Elf64_Sym)) << "none, and the two that have names";
  const Elf64_Sym third = *view.at<Elf64_Sym>(table.sh_offset + 2 * sizeof(Elf64_Sym));
  EXPECT_EQ(third.st_info, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC));
  EXPECT_EQ(third.st_other, STV_DEFAULT);
  EXPECT_EQ(third.st_shndx, 2);
  EXPECT_EQ(third.st_size, 32U);
  EXPECT_EQ(view.at<Elf64_Sym>(table.sh_offset)->st_name, 0U);
}

// Section numbers from 0xff00 on have other meanings.
TEST(RegisteredObject, ThereIsABoundForSections) {
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 4};
  std::vector<GeneratedFunction> given;
  const auto made = [&](std::size_t runs) {
    while (given.size() < runs)
      given.push_back({.address = 0x7000'0000 + given.size() * 0x100000, .size = 4, .prologue = &prologue});
    const auto batch = check_batch(given);
    EXPECT_TRUE(batch);
    const auto all = runs_of(*batch);
    EXPECT_EQ(all.size(), runs);
    const auto bytes = make_object(*batch, all);
    return bytes ? std::string("fine") : bytes.error().text();
  };
  EXPECT_EQ(made(65'000), "fine");
  EXPECT_EQ(made(65'001), "0x70000000: more pieces of code than sections of an object file (0xfde9)");
}

// The line program, run: DWARF 4, section 6.2.5, as far as it is used.
std::vector<std::string> lines_of(ByteView section) {
  enum : unsigned { kExtended, kCopy, kAdvancePc, kAdvanceLine, kSetFile };
  enum : unsigned { kEndSequence = 1, kSetAddress = 2 };
  std::vector<std::string> rows;
  const auto header = *section.at<std::uint32_t>(6);
  ByteCursor program(section, 10 + header);
  std::uint64_t address = 0, file = 1;
  std::int64_t line = 1;
  while (!program.at_end()) {
    const auto opcode = *program.read<std::uint8_t>();
    if (opcode == kExtended) {
      const std::uint64_t size = *program.uleb();
      const auto extended = *program.read<std::uint8_t>();
      if (extended == kSetAddress) address = *program.read<std::uint64_t>();
      if (extended == kEndSequence) rows.push_back(fmt::format("{:#x} end", address));
      EXPECT_EQ(size, extended == kSetAddress ? 9u : 1u);
    } else if (opcode == kAdvancePc) {
      address += *program.uleb();
    } else if (opcode == kSetFile) {
      file = *program.uleb();
    } else if (opcode == kAdvanceLine) {
      line += *program.sleb();
    } else {
      EXPECT_EQ(opcode, kCopy);
      rows.push_back(fmt::format("{:#x} {}:{}", address, file, line));
    }
  }
  return rows;
}

TEST(RegisteredObject, LinesToTheEndOfTheFunction) {
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 32};
  const std::vector<GeneratedLine> lines = {{.offset = 0, .file = "a.c", .line = 30},
                                            {.offset = 8, .file = "b.c", .line = 3},
                                            {.offset = 12, .file = "a.c", .line = 31}};
  const std::vector<GeneratedFunction> given = {
      {.address = 0x7000'0000, .size = 32, .name = "f", .prologue = &prologue, .lines = lines}};
  const auto batch = check_batch(given);
  ASSERT_TRUE(batch);
  const DebugLines made = debug_lines_of(*batch);
  EXPECT_EQ(lines_of(ByteView(made.lines.data(), made.lines.size())),
            (std::vector<std::string>{"0x70000000 1:30", "0x70000008 2:3", "0x7000000c 1:31", "0x70000020 end"}));
}

// The unit and its function: DWARF 4, sections 7.5.1.1 and 3.1.
TEST(RegisteredObject, TheUnitOfAFunctionWithLines) {
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 32};
  const std::vector<GeneratedLine> lines = {{.offset = 0, .file = "a.c", .line = 30}};
  const std::vector<GeneratedFunction> given = {
      {.address = 0x7000'0000, .size = 32, .name = "f", .prologue = &prologue, .lines = lines}};
  const auto batch = check_batch(given);
  ASSERT_TRUE(batch);
  const DebugLines made = debug_lines_of(*batch);
  ByteCursor info(ByteView(made.info.data(), made.info.size()));
  EXPECT_EQ(*info.read<std::uint32_t>(), made.info.size() - 4);
  EXPECT_EQ(*info.read<std::uint16_t>(), 4U) << "version";
  EXPECT_EQ(*info.read<std::uint32_t>(), 0U) << "abbreviations";
  EXPECT_EQ(*info.read<std::uint8_t>(), sizeof(std::uint64_t)) << "size of an address";
  EXPECT_EQ(*info.uleb(), 1U);
  EXPECT_EQ(*info.string(), "a.c");
  EXPECT_EQ(*info.read<std::uint32_t>(), 0U) << "its lines";
  EXPECT_EQ(*info.read<std::uint64_t>(), 0x7000'0000U);
  EXPECT_EQ(*info.read<std::uint32_t>(), 32U);
  EXPECT_EQ(*info.uleb(), 2U);
  EXPECT_EQ(*info.string(), "f");
  EXPECT_EQ(*info.read<std::uint64_t>(), 0x7000'0000U);
  EXPECT_EQ(*info.read<std::uint32_t>(), 32U);
  EXPECT_EQ(*info.read<std::uint8_t>(), 0U) << "no more children";
  EXPECT_TRUE(info.at_end());
}

TEST(RegisteredObject, NoLinesNoDebugInformation) {
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 32};
  const std::vector<GeneratedFunction> given = {{.address = 0x7000'0000, .size = 32, .prologue = &prologue}};
  const auto batch = check_batch(given);
  const auto bytes = make_object(*batch, runs_of(*batch));
  const auto image = image::ElfImage::parse(ByteView(bytes->data(), bytes->size()));
  ASSERT_TRUE(image);
  EXPECT_EQ(image->section(".debug_info"), nullptr);
}

}  // namespace
}  // namespace windlass::registries
