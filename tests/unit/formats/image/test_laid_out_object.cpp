// LaidOutObject: what the relocations of an object make of its code, field by field.
#include "formats/image/laid_out_object.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace windlass::image {
namespace {

struct Fixup {
  std::uint32_t type;
  std::uint64_t at;
  std::uint32_t symbol;  // 1: `.text` + 8, 2: `.rodata` + 0x123, 3: of another file
  std::int64_t addend;
};

constexpr std::uint64_t kText = 64;  // bytes of it; and where it is in the file

// The file: its header, .text, .rodata (512 bytes), symbols, relocations, section headers.
std::vector<std::byte> object_with(std::uint16_t machine, const std::vector<Fixup>& fixups,
                                   std::vector<std::uint32_t> words = {}) {
  words.resize(kText / 4);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = machine;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 5;
  std::vector<std::byte> file(sizeof header);
  const auto append = [&file](const void* data, std::size_t size) {
    const auto* const bytes = static_cast<const std::byte*>(data);
    file.insert(file.end(), bytes, bytes + size);
  };
  append(words.data(), kText);
  file.resize(file.size() + 512);
  const Elf64_Sym symbols[] = {{}, {0, 0, 0, 1, 8, 0}, {0, 0, 0, 2, 0x123, 0}, {0, 0, 0, SHN_UNDEF, 0, 0}};
  const std::uint64_t symbols_at = file.size();
  append(symbols, sizeof symbols);
  const std::uint64_t fixups_at = file.size();
  for (const Fixup& fixup : fixups) {
    const Elf64_Rela entry{fixup.at, ELF64_R_INFO(std::uint64_t{fixup.symbol}, fixup.type), fixup.addend};
    append(&entry, sizeof entry);
  }
  header.e_shoff = file.size();
  const Elf64_Shdr sections[] = {
      {},
      {0, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, sizeof header, kText, 0, 0, 16, 0},
      {0, SHT_PROGBITS, SHF_ALLOC, 0, sizeof header + kText, 512, 0, 0, 16, 0},
      {0, SHT_SYMTAB, 0, 0, symbols_at, sizeof symbols, 0, 0, 8, sizeof(Elf64_Sym)},
      {0, SHT_RELA, 0, 0, fixups_at, fixups.size() * sizeof(Elf64_Rela), 3, 1, 8, sizeof(Elf64_Rela)}};
  append(sections, sizeof sections);
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

struct Laid {
  std::vector<std::byte> file;
  ElfImage image;
  LaidOutObject object;
  explicit Laid(std::vector<std::byte> bytes)
      : file(std::move(bytes)),
        image(*ElfImage::parse(ByteView(file.data(), file.size()))),
        object(*LaidOutObject::make(image)) {}
  [[nodiscard]] std::uint64_t text() const { return object.address_of(1); }
  [[nodiscard]] std::uint64_t rodata() const { return object.address_of(2); }
  template <typename Word>
  [[nodiscard]] Word at(std::uint64_t offset) const {
    Word word{};
    EXPECT_TRUE(object.read(text() + offset, &word, sizeof word));
    return word;
  }
};

TEST(LaidOutObject, X86_64) {
  const Laid laid(object_with(EM_X86_64, {{R_X86_64_PLT32, 1, 1, -4},
                                          {R_X86_64_PC32, 8, 2, -4},
                                          {R_X86_64_64, 16, 2, 5},
                                          {R_X86_64_32S, 24, 1, 0},
                                          {R_X86_64_PLT32, 32, 3, -4},
                                          {R_X86_64_REX_GOTPCRELX, 36, 3, -4},
                                          {R_X86_64_TPOFF32, 40, 3, 77}}));
  EXPECT_EQ(laid.at<std::int32_t>(1), 8 - 4 - 1);
  EXPECT_EQ(laid.text() + 8 + 4 + static_cast<std::uint64_t>(laid.at<std::int32_t>(8)), laid.rodata() + 0x123);
  EXPECT_EQ(laid.at<std::uint64_t>(16), laid.rodata() + 0x123 + 5);
  EXPECT_EQ(laid.at<std::uint32_t>(24), laid.text() + 8);
  EXPECT_EQ(laid.at<std::uint32_t>(40), 0U);
  // What is elsewhere is nowhere, and a slot is not its symbol.
  const std::uint64_t other = laid.text() + 36 + static_cast<std::uint64_t>(laid.at<std::int32_t>(32));
  const std::uint64_t slot = laid.text() + 40 + static_cast<std::uint64_t>(laid.at<std::int32_t>(36));
  EXPECT_NE(other, slot);
  for (const std::uint64_t address : {other, slot}) {
    char byte;
    EXPECT_FALSE(laid.object.read(address, &byte, 1)) << address;
  }
  EXPECT_GT(laid.rodata(), laid.text() + kText) << "no neighbours";
}

TEST(LaidOutObject, AArch64) {
  const Laid laid(object_with(EM_AARCH64,
                              {{R_AARCH64_CALL26, 0, 1, 0},
                               {R_AARCH64_CONDBR19, 16, 1, 0},
                               {R_AARCH64_TSTBR14, 20, 1, 0},
                               {R_AARCH64_ADR_PREL_PG_HI21, 24, 2, 0},
                               {R_AARCH64_ADD_ABS_LO12_NC, 28, 2, 0},
                               {R_AARCH64_LDST32_ABS_LO12_NC, 32, 2, 1},
                               {R_AARCH64_PREL32, 36, 2, 0}},
                              {0x94000000, 0, 0, 0, 0x54000000, 0x36000000, 0x90000000, 0x91000000, 0xb9400000}));
  EXPECT_EQ(laid.at<std::uint32_t>(0), 0x94000000 | 2U);
  EXPECT_EQ(laid.at<std::uint32_t>(16), 0x54000000 | (0x7fffeU << 5)) << "two back";
  EXPECT_EQ(laid.at<std::uint32_t>(20), 0x36000000 | (0x3ffdU << 5));
  const auto pages = static_cast<std::uint32_t>(laid.rodata() / 4096 - laid.text() / 4096);
  EXPECT_EQ(laid.at<std::uint32_t>(24), 0x90000000 | (pages & 3) << 29 | (pages >> 2) << 5);
  EXPECT_EQ(laid.at<std::uint32_t>(28), 0x91000000 | 0x123U << 10);
  EXPECT_EQ(laid.at<std::uint32_t>(32), 0xb9400000 | (0x124U >> 2) << 10);
  EXPECT_EQ(laid.text() + 36 + laid.at<std::uint32_t>(36), laid.rodata() + 0x123);
}

TEST(LaidOutObject, WhatCannotBeAppliedIsAnErrorOfItsCode) {
  const Laid laid(object_with(EM_AARCH64, {{0x777, 8, 1, 0},
                                           {R_AARCH64_TSTBR14, 16, 3, 1 << 20},
                                           {R_AARCH64_CALL26, 24, 99, 0},
                                           {R_AARCH64_PREL64, kText - 4, 1, 0}}));
  EXPECT_TRUE(laid.object.code(1, 0, 8));
  EXPECT_TRUE(laid.object.code(1, 12, 4));
  for (const std::uint64_t at : {8U, 16U, 24U, static_cast<unsigned>(kText) - 4}) {
    const auto code = laid.object.code(1, at - 4, 8);
    ASSERT_FALSE(code) << at;
    EXPECT_EQ(code.error().where, sizeof(Elf64_Ehdr) + at);
    std::uint64_t word = 0;
    EXPECT_FALSE(laid.object.read(laid.text() + at - 4, &word, sizeof word));
  }
  EXPECT_FALSE(laid.object.code(1, kText, 1));
}

TEST(LaidOutObject, EveryDamagedByteIsSurvived) {
  const auto good = object_with(EM_X86_64, {{R_X86_64_PLT32, 1, 1, -4}, {R_X86_64_PC32, 8, 2, -4}});
  for (std::size_t at = sizeof(Elf64_Ehdr); at < good.size(); ++at)
    for (const unsigned char value : {0x00, 0x7f, 0xff}) {
      auto bad = good;
      bad[at] = std::byte{value};
      const auto image = ElfImage::parse(ByteView(bad.data(), bad.size()));
      if (!image) continue;
      const auto object = LaidOutObject::make(*image);
      if (object) (void)object->code(1, 0, kText);
    }
}

}  // namespace
}  // namespace windlass::image
