// A relocatable object that a process has registered with GDB, made up by hand. It is as a compiler leaves it: its
// sections are loaded, and its unwind information and symbols are not linked.
//
// gABI 4.1 (Symbol Table, Relocation); x86-64 psABI 4.4.1; AAELF64 5.7; Linux Standard Base, .eh_frame.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtimes/gdb/object.h"
#include "support/made_up_memory.h"
#include "windlass/backtrace.h"

namespace windlass::runtimes::gdb {
namespace {

constexpr bool kX86 = kOwnArchitecture == Architecture::kX86_64;
constexpr std::uint64_t kAt = 0x100000, kText = 0x7000'0000, kFrames = 0x6000'0000;
constexpr Elf64_Half kTextSection = 1, kFramesSection = 2, kSymbolsSection = 4;

// How an FDE's address is written, and the relocation of that.
struct Form {
  std::uint8_t encoding;
  unsigned size;
  std::uint32_t type;
};
constexpr Form kAbsolute{0x00, 8, kX86 ? R_X86_64_64 : R_AARCH64_ABS64};
constexpr Form kForms[] = {kAbsolute,
                           {0x03, 4, kX86 ? R_X86_64_32 : R_AARCH64_ABS32},
                           {0x1c, 8, kX86 ? R_X86_64_PC64 : R_AARCH64_PREL64},
                           {0x1b, 4, kX86 ? R_X86_64_PC32 : R_AARCH64_PREL32}};

struct Symbol {
  std::string name;
  std::uint64_t value, size;
  Elf64_Half section = kTextSection;
  unsigned char type = STT_FUNC;
};

// Of [0x10, 0x30) of the text there is a frame of 56 bytes from the fourth byte on.
struct MadeUp {
  Form form = kAbsolute;
  std::vector<Symbol> symbols = {{"f", 0x10, 0x20}};
  std::int64_t addend = 0;   // to the first symbol
  std::uint64_t beyond = 0;  // added to where the relocation applies
  Elf64_Half type = ET_REL;
  std::uint64_t text_flags = SHF_ALLOC | SHF_EXECINSTR;
  std::uint64_t text = kText, text_size = 0x40;

  [[nodiscard]] std::vector<std::uint8_t> frames(std::uint64_t& address_at) const {
    std::vector<std::uint8_t> bytes;
    const auto record = [&](std::initializer_list<std::vector<std::uint8_t>> parts) {
      const std::size_t begin = bytes.size();
      bytes.resize(begin + 4);
      for (const auto& part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
      while (bytes.size() % 8 != 0) bytes.push_back(0);
      const auto size = static_cast<std::uint32_t>(bytes.size() - begin - 4);
      std::memcpy(bytes.data() + begin, &size, sizeof size);
    };
    constexpr std::uint8_t kSp = kX86 ? 7 : 31, kReturn = kX86 ? 16 : 30, kEntry = kX86 ? 8 : 0;
    record({{0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, kReturn, 1, form.encoding, 0x0c, kSp, kEntry},
            kX86 ? std::vector<std::uint8_t>{0x90, 1} : std::vector<std::uint8_t>()});
    const std::uint64_t fde = bytes.size();
    address_at = fde + 8;
    std::vector<std::uint8_t> range(form.size);
    range[0] = 0x20;
    record({{static_cast<std::uint8_t>(fde + 4), 0, 0, 0},
            std::vector<std::uint8_t>(form.size),
            range,
            {0, 0x44, 0x0e, 56}});
    bytes.resize(bytes.size() + 4);
    return bytes;
  }

  [[nodiscard]] std::vector<std::uint8_t> object() const {
    std::uint64_t address_at = 0;
    const std::vector<std::uint8_t> frame_bytes = frames(address_at);
    const Elf64_Rela relocation{address_at + beyond, ELF64_R_INFO(std::uint64_t{1}, form.type), addend};
    std::string names(1, '\0');
    std::vector<Elf64_Sym> table(1);
    for (const Symbol& symbol : symbols) {
      table.push_back({static_cast<Elf64_Word>(names.size()), ELF64_ST_INFO(STB_GLOBAL, symbol.type), STV_DEFAULT,
                       symbol.section, symbol.value, symbol.size});
      names += symbol.name + '\0';
    }
    const std::string section_names("\0.text\0.eh_frame\0.rela.eh_frame\0.symtab\0.strtab\0", 48);
    std::vector<std::uint8_t> file(sizeof(Elf64_Ehdr));
    std::vector<Elf64_Shdr> sections(1);
    const auto add = [&](const char* name, Elf64_Word kind, std::uint64_t flags, std::uint64_t address,
                         const void* from, std::size_t size, Elf64_Word link = 0, Elf64_Word info = 0) {
      file.resize((file.size() + 7) / 8 * 8);
      sections.push_back({static_cast<Elf64_Word>(section_names.find(name)), kind, flags, address, file.size(), size,
                          link, info, 8,
                          kind == SHT_SYMTAB ? sizeof(Elf64_Sym)
                          : kind == SHT_RELA ? sizeof relocation
                                             : 0});
      if (from == nullptr) return;
      const auto* bytes = static_cast<const std::uint8_t*>(from);
      file.insert(file.end(), bytes, bytes + size);
    };
    add(".text", SHT_NOBITS, text_flags, text, nullptr, text_size);
    add(".eh_frame", SHT_PROGBITS, SHF_ALLOC, kFrames, frame_bytes.data(), frame_bytes.size());
    add(".rela.eh_frame", SHT_RELA, 0, 0, &relocation, sizeof relocation, kSymbolsSection, kFramesSection);
    add(".symtab", SHT_SYMTAB, 0, 0, table.data(), table.size() * sizeof(Elf64_Sym), 5, 1);
    add(".strtab", SHT_STRTAB, 0, 0, names.data(), names.size());
    add(".strtab", SHT_STRTAB, 0, 0, section_names.data(), section_names.size());
    file.resize((file.size() + 7) / 8 * 8);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = type, header.e_machine = kX86 ? EM_X86_64 : EM_AARCH64, header.e_version = EV_CURRENT;
    header.e_shoff = file.size(), header.e_ehsize = sizeof header, header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<Elf64_Half>(sections.size()), header.e_shstrndx = header.e_shnum - 1;
    std::memcpy(file.data(), &header, sizeof header);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(sections.data());
    file.insert(file.end(), bytes, bytes + sections.size() * sizeof(Elf64_Shdr));
    return file;
  }

  [[nodiscard]] std::shared_ptr<const Object> read() const {
    const std::vector<std::uint8_t> file = object();
    test::MadeUpMemory memory(kAt, file.size());
    memory.bytes = file;
    auto found = Object::read(memory, kAt, file.size());
    EXPECT_TRUE(found) << found.error().text();
    return found ? *found : nullptr;
  }
};

// The CFA's offset at so many bytes into the text; -1: no row.
std::int32_t cfa_at(const Object& object, std::uint64_t offset) {
  FrameRow row;
  return object.source().row_at(kText + offset, row) ? row.cfa.offset() : -1;
}
// "f 10-20"; empty: no function.
std::string function_at(const Object& object, std::uint64_t offset) {
  const auto found = object.function_at(kText + offset);
  if (!found) return {};
  char text[64];
  std::snprintf(text, sizeof text, "%s %x-%x", std::string(found->name).c_str(),
                static_cast<unsigned>(found->begin - kText), static_cast<unsigned>(found->end - kText));
  return text;
}

TEST(GdbObject, RelocationsOfEachKindLeadToTheCode) {
  for (const Form& form : kForms) {
    const auto object = MadeUp{.form = form}.read();
    EXPECT_EQ(cfa_at(*object, 0x0f), -1) << form.type;
    EXPECT_EQ(cfa_at(*object, 0x10), kX86 ? 8 : 0) << form.type;
    EXPECT_EQ(cfa_at(*object, 0x14), 56) << form.type;
    EXPECT_EQ(cfa_at(*object, 0x2f), 56) << form.type;
    EXPECT_EQ(cfa_at(*object, 0x30), -1) << form.type;
    EXPECT_EQ(function_at(*object, 0x18), "f 10-30") << form.type;
  }
}

TEST(GdbObject, RelocationsCountFromTheSectionsSymbol) {
  const auto object =
      MadeUp{.symbols = {{"", 0, 0, kTextSection, STT_SECTION}, {"f", 0x10, 0x20}}, .addend = 0x10}.read();
  EXPECT_EQ(cfa_at(*object, 0x14), 56);
  EXPECT_EQ(function_at(*object, 0x14), "f 10-30");
}

TEST(GdbObject, SymbolsThatAreInNoSectionStayWhereTheyAre) {
  const auto object = MadeUp{.symbols = {{"f", kText + 0x10, 0x20, SHN_ABS}, {"puts", 0x20, 0x10, SHN_UNDEF}}}.read();
  EXPECT_EQ(cfa_at(*object, 0x14), 56);
  EXPECT_EQ(function_at(*object, 0x24), "f 10-30");
}

TEST(GdbObject, WhatIsLinkedIsLeftAsItIs) {
  const auto object = MadeUp{.symbols = {{"f", kText + 0x10, 0x20}}, .type = ET_EXEC}.read();
  EXPECT_EQ(function_at(*object, 0x14), "f 10-30");
  EXPECT_EQ(cfa_at(*object, 0x14), -1) << "its relocations are applied already";
}

TEST(GdbObject, ARelocationOutsideOfItsSectionChangesNothing) {
  std::uint64_t address_at = 0;
  const std::uint64_t end = MadeUp{}.frames(address_at).size();
  for (std::uint64_t beyond = (end - address_at + 7) / 8 * 8; beyond < 0x1000; beyond += 8) {
    const auto object = MadeUp{.addend = 8, .beyond = beyond}.read();
    EXPECT_EQ(cfa_at(*object, 0x14), -1);
    EXPECT_EQ(function_at(*object, 0x14), "f 10-30") << "its symbol is there";
  }
}

// One name and one record of unwind information each.
TEST(GdbObject, FunctionsAreOfOneNameAndOneFrame) {
  const auto object = MadeUp{
      .symbols = {{"f", 0x10, 0x10},
                  {"later", 0x28, 0x10},
                  {"data", 0x20, 8, kTextSection, STT_OBJECT},
                  {"empty", 0x22,
                   0}}}.read();
  EXPECT_EQ(function_at(*object, 0x0f), "");
  EXPECT_EQ(function_at(*object, 0x10), "f 10-20");
  EXPECT_EQ(function_at(*object, 0x1f), "f 10-20");
  EXPECT_EQ(function_at(*object, 0x20), " 20-28") << "it has a frame and no name";
  EXPECT_EQ(function_at(*object, 0x27), " 20-28");
  EXPECT_EQ(function_at(*object, 0x28), "later 28-30");
  EXPECT_EQ(function_at(*object, 0x34).substr(0, 5), "later") << "it has a name and no frame";
  EXPECT_EQ(function_at(*object, 0x38), "");
  EXPECT_EQ(function_at(*object, 0x40), "") << "behind the section";
}

TEST(GdbObject, SymbolsEndBelowTheLastAddress) {
  constexpr std::uint64_t kMost = ~(kText + 0x10);
  EXPECT_EQ(function_at(*MadeUp{.symbols = {{"f", 0x10, kMost}}}.read(), 0x14), "f 10-30");
  EXPECT_EQ(function_at(*MadeUp{.symbols = {{"f", 0x10, kMost + 1}}}.read(), 0x14), " 10-30");
  EXPECT_EQ(function_at(*MadeUp{.symbols = {{"f", 0x10, kMost + 1}, {"around", 0x0, 0x40}}}.read(), 0x14),
            "around 10-30")
      << "one that is none hides no other";
}

TEST(GdbObject, SixteenMebibytesAreRead) {
  const test::MadeUpMemory memory(kAt, 16);
  EXPECT_EQ(Object::read(memory, kAt, Object::kMaxBytes).error().code, ErrorCode::kUnreadable);
  EXPECT_EQ(Object::read(memory, kAt, Object::kMaxBytes + 1).error().code, ErrorCode::kLimit);
}

TEST(GdbObject, BytesCountTheFileAndItsFunctions) {
  const std::size_t one = MadeUp{}.read()->bytes(), file = MadeUp{}.object().size();
  EXPECT_EQ(one, file + sizeof(Object::Function));
}

TEST(GdbObject, SectionsWithoutCodeHaveNone) {
  EXPECT_EQ(MadeUp{}.read()->code().size(), 1U);
  EXPECT_EQ(MadeUp{}.read()->code()[0].begin, kText);
  EXPECT_EQ(MadeUp{}.read()->code()[0].end, kText + 0x40);
  for (const MadeUp& none : {MadeUp{.text = 0}, {.text_size = 0}, {.text = ~std::uint64_t{0x3f}}})
    EXPECT_TRUE(none.read()->code().empty()) << "nowhere, of no size, or beyond the last address";
  EXPECT_EQ((MadeUp{.text = ~std::uint64_t{0x40}}.read()->code().size()), 1U);
  const auto object = MadeUp{.text_flags = SHF_ALLOC}.read();
  EXPECT_TRUE(object->code().empty());
  EXPECT_EQ(function_at(*object, 0x14), "");
}

}  // namespace
}  // namespace windlass::runtimes::gdb
