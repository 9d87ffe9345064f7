// The reader of PDB files, on those of LLVM's linker. tests/differential/test_pdb_vs_llvm.cpp has every address.
#include "formats/pdb/pdb.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/pe.h"
#include "formats/pdb/annotations.h"
#include "formats/pdb/lines.h"
#include "made_up_pdb.h"

namespace windlass {
namespace {

using pdb::PdbFile;

std::vector<std::byte> bytes_of(const std::string& name) {
  const auto file = MappedFile::open(std::string(WINDLASS_PDB_FOLDER "/") + name);
  EXPECT_TRUE(file) << name;
  return file ? std::vector<std::byte>(file->bytes().data(), file->bytes().data() + file->bytes().size())
              : std::vector<std::byte>();
}

ByteView view(const std::vector<std::byte>& bytes) { return ByteView(bytes.data(), bytes.size()); }

struct Program {
  explicit Program(const std::string& machine)
      : exe(bytes_of("program-" + machine + ".exe")), pdb_bytes(bytes_of("program-" + machine + ".pdb")) {}
  std::vector<std::byte> exe, pdb_bytes;
  image::PeImage image = *image::PeImage::parse(view(exe));
  PdbFile pdb = *PdbFile::parse(view(pdb_bytes));
};

class PdbOfMachine : public ::testing::TestWithParam<const char*> {};

// "innermost < ... < procedure" of each byte of code.
std::set<std::string> chains_of(Program& program) {
  std::set<std::string> chains;
  for (const image::PeSection& section : program.image.sections())
    for (std::uint32_t rva = section.rva; section.executable() && rva < section.rva + section.virtual_size; ++rva) {
      const auto procedure = program.pdb.procedure_at(rva, true);
      if (!procedure) continue;
      EXPECT_LE(procedure->begin, rva);
      std::string chain;
      for (const pdb::NamedCode& frame : procedure->frames) chain += (chain.empty() ? "" : " < ") + frame.function;
      chains.insert(chain);
    }
  return chains;
}

TEST_P(PdbOfMachine, ProceduresAndInlinedCalls) {
  Program program(GetParam());
  const auto chains = chains_of(program);
  for (const char* chain : {"start", "plain", "hidden", "shapes::largest<int>", "shapes::Square::~Square",
                            "shapes::Square::border", "shapes::twice < shapes::Square::area < hidden",
                            "shapes::twice < shapes::from_part < plain", "shapes::twice < plain"})
    EXPECT_TRUE(chains.contains(chain)) << chain;
}

TEST_P(PdbOfMachine, IdentityIsTheImages) {
  Program program(GetParam());
  EXPECT_FALSE(program.image.build_id().empty());
  EXPECT_EQ(PdbFile::identity_of(view(program.pdb_bytes)).value(), program.image.build_id());
}

TEST_P(PdbOfMachine, LinesOnlyIfAsked) {
  Program program(GetParam());
  const auto entry = program.pdb.procedure_at(program.image.entry(), true);
  ASSERT_TRUE(entry);
  EXPECT_TRUE(entry->frames.back().file.ends_with("program.cpp")) << entry->frames.back().file;
  EXPECT_EQ(entry->frames.back().function, "start");
  EXPECT_NE(entry->frames.back().function_line, 0U);
  const auto plain = program.pdb.procedure_at(program.image.entry(), false);
  ASSERT_TRUE(plain);
  ASSERT_EQ(plain->frames.size(), 1U);
  EXPECT_EQ(plain->frames[0].function, "start");
  EXPECT_TRUE(plain->frames[0].file.empty());
}

TEST_P(PdbOfMachine, PublicSymbolsOfCodeWithoutDebugInformation) {
  Program program(GetParam());
  std::set<std::string> names;
  for (const image::PeSection& section : program.image.sections())
    for (std::uint32_t rva = section.rva; section.executable() && rva < section.rva + section.virtual_size; ++rva) {
      if (program.pdb.procedure_at(rva, false)) continue;
      const auto symbol = program.pdb.public_before(rva, false);
      if (!symbol) continue;
      EXPECT_LE(symbol->rva, rva);
      names.insert(symbol->name);
    }
  EXPECT_TRUE(names.contains("bare_too"));
  EXPECT_TRUE(names.contains("?bare@shapes@@YAHH@Z"));
  EXPECT_FALSE(program.pdb.public_before(0x10, false));  // a header, which is in no section
}

INSTANTIATE_TEST_SUITE_P(Pdb, PdbOfMachine, ::testing::Values("x86_64", "aarch64"));

// Writes `to` over the only place, or the last of several, with the bytes `from`.
void replace(std::vector<std::byte>& bytes, std::string_view from, std::string_view to) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t at = text.rfind(from);
  ASSERT_NE(at, std::string_view::npos);
  std::memcpy(bytes.data() + at, to.data(), to.size());
}

// Names a stream as that of changed addresses. LLVM's linker writes the DBI stream in one piece.
void set_omap(std::vector<std::byte>& bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t dbi = text.find(std::string_view("\xff\xff\xff\xff\x77\x09\x31\x01", 8));  // version 19990903
  ASSERT_NE(dbi, std::string_view::npos);
  const auto header = view(bytes).at<pdb::DbiHeader>(dbi).value();
  const std::size_t streams = dbi + sizeof(header) + header.modules_size + header.contributions_size +
                              header.section_map_size + header.files_size + header.type_servers_size +
                              header.edit_names_size;
  const std::uint16_t stream = pdb::kInfoStream;
  std::memcpy(bytes.data() + streams + 2 * pdb::kOmapFromSource, &stream, sizeof(stream));
}

TEST(Pdb, WhatIsRefused) {
  const auto whole = bytes_of("program-x86_64.pdb");
  const auto refusal = [](const std::vector<std::byte>& bytes) {
    const auto pdb = PdbFile::parse(view(bytes));
    return pdb ? std::string("read") : pdb.error().text();
  };
  EXPECT_EQ(refusal(whole), "read");
  auto bytes = whole;
  const std::string vc140("\xdc\x51\x33\x01", 4);  // 20140508, the only feature of LLVM's linker
  replace(bytes, vc140, "MINI");
  EXPECT_NE(refusal(bytes).find("FASTLINK"), std::string::npos) << refusal(bytes);
  bytes = whole;
  set_omap(bytes);
  EXPECT_NE(refusal(bytes).find("OMAP"), std::string::npos) << refusal(bytes);
  for (const auto& [magic, word] :
       std::vector<std::pair<std::string, std::string>>{{"Microsoft C/C++ program database 2.00\r\n", "before 1998"},
                                                        {"Microsoft MSFZ Container\r\n", "compressed"},
                                                        {"BSJB", "portable"},
                                                        {"\x7f"
                                                         "ELF",
                                                         "not a PDB"}}) {
    bytes = whole;
    std::memcpy(bytes.data(), magic.data(), magic.size());
    EXPECT_NE(refusal(bytes).find(word), std::string::npos) << refusal(bytes);
  }
  bytes = whole;
  bytes[32] = std::byte{1};  // the size of a block
  EXPECT_NE(refusal(bytes).find("impossible size"), std::string::npos) << refusal(bytes);
}

void ask_everything(ByteView bytes) {
  auto pdb = PdbFile::parse(bytes);
  if (!pdb) return;
  for (std::uint32_t rva = 0x1000; rva < 0x1200; rva += 7) {
    (void)pdb->procedure_at(rva, true);
    (void)pdb->public_before(rva, false);
  }
}

TEST(Pdb, EveryCutFile) {
  const auto whole = bytes_of("program-x86_64.pdb");
  for (std::size_t size = 0; size < whole.size(); size += 509) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    ask_everything(view(cut));
  }
}

TEST(Pdb, DamagedFiles) {
  const auto whole = bytes_of("program-x86_64.pdb");
  std::mt19937 random(1);
  for (int turn = 0; turn < 400; ++turn) {
    auto bytes = whole;
    for (int i = 0; i < 20; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    ask_everything(view(bytes));
  }
}

// Annotations as MSVC and LLVM write them.
// CV_INLINEE_SOURCE_LINE_SIGNATURE_EX: behind each entry stand the further files of the function.
TEST(Pdb, InlinedFunctionsOfSeveralFiles) {
  for (const std::uint32_t signature : {0, 1, 2}) {
    test::PdbBytes list;
    test::append(list, signature);
    for (std::uint32_t i = 0; i < 3; ++i) {
      for (const std::uint32_t value : {0x1000 + i, 24 * i, 10 + i}) test::append(list, value);
      if (signature != 1) continue;
      test::append(list, i);  // so many more
      for (std::uint32_t more = 0; more < i; ++more) test::append(list, 0xaaaa'0000 + more);
    }
    if (signature == 1) {  // more files than there are bytes
      for (const std::uint32_t value : {0x2000U, 1U, 2U, ~0U, 0x2001U, 3U, 4U, 0U}) test::append(list, value);
    }
    test::PdbBytes subsections;
    test::append(subsections, pdb::kInlineeLines);
    test::append(subsections, static_cast<std::uint32_t>(list.size()));
    subsections.insert(subsections.end(), list.begin(), list.end());
    const pdb::ModuleLines lines(view(subsections));
    for (std::uint32_t i = 0; i < 3; ++i) {
      const auto line = lines.of_inlinee(0x1000 + i);
      ASSERT_EQ(line.has_value(), signature < 2) << signature << " " << i;
      if (!line) continue;
      EXPECT_EQ(line->file, 24 * i);
      EXPECT_EQ(line->line, 10 + i);
    }
    EXPECT_EQ(lines.of_inlinee(0x2000).has_value(), signature == 1);
    EXPECT_FALSE(lines.of_inlinee(0x2001)) << "behind a damaged entry";
  }
}

TEST(Pdb, AnnotationsOfInlinedCalls) {
  const auto line_at = [](std::vector<std::uint8_t> bytes, std::uint32_t offset) {
    const auto line = pdb::inlined_line(ByteView(std::span<const std::uint8_t>(bytes)), {8, 100}, offset);
    return line ? static_cast<int>(line->line) : -1;
  };
  // Line +1, code at 0x20; line +4, code at 0x44 of length 0xa: of sprintf_s in a program of MSVC's.
  const std::vector<std::uint8_t> msvc{0x06, 0x02, 0x03, 0x20, 0x06, 0x08, 0x0c, 0x0a, 0x24, 0, 0, 0};
  EXPECT_EQ(line_at(msvc, 0x1f), -1);
  EXPECT_EQ(line_at(msvc, 0x20), 101);
  EXPECT_EQ(line_at(msvc, 0x43), 101);
  EXPECT_EQ(line_at(msvc, 0x44), 105);
  EXPECT_EQ(line_at(msvc, 0x4d), 105);
  EXPECT_EQ(line_at(msvc, 0x4e), -1);
  // Code and line +1 in one byte, length 4; then 2 bytes that are not the call's; a line of -3 from there, length 5.
  const std::vector<std::uint8_t> llvm{0x0b, 0x24, 0x04, 0x04, 0x06, 0x07, 0x03, 0x02, 0x04, 0x05, 0, 0};
  EXPECT_EQ(line_at(llvm, 3), -1);
  EXPECT_EQ(line_at(llvm, 4), 101);
  EXPECT_EQ(line_at(llvm, 7), 101);
  EXPECT_EQ(line_at(llvm, 8), -1);
  EXPECT_EQ(line_at(llvm, 10), 98);
  EXPECT_EQ(line_at(llvm, 14), 98);
  EXPECT_EQ(line_at(llvm, 15), -1);
  // Numbers of two and four bytes; a line without an end is of no length.
  const std::vector<std::uint8_t> large{0x03, 0x81, 0x00, 0x04, 0xc0, 0x01, 0x00, 0x00, 0x03, 0x01};
  EXPECT_EQ(line_at(large, 0x100), 100);
  EXPECT_EQ(line_at(large, 0x100ff), 100);
  EXPECT_EQ(line_at(large, 0x10101), -1);
  EXPECT_EQ(line_at({0x0e, 0x01}, 0), -1);  // an unknown operation
  EXPECT_EQ(line_at({0x03}, 0), -1);        // no operand
}

}  // namespace
}  // namespace windlass
