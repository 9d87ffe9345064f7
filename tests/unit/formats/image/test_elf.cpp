#include "formats/image/elf.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "formats/dwarf/lower.h"
#include "formats/image/decompress.h"
#include "formats/image/unwind_sections.h"

namespace windlass {
namespace {

using image::ElfImage;

std::string fixture(const std::string& name) { return std::string(WINDLASS_FIXTURES) + "/" + name; }
bool made(const std::string& name) { return ::access(fixture(name).c_str(), R_OK) == 0; }

std::string first_line_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::array<char, 256> line{};
  const char* got = std::fgets(line.data(), line.size(), pipe);
  ::pclose(pipe);
  std::string text = got != nullptr ? got : "";
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

struct Row {
  std::uint64_t begin;
  std::uint64_t end;
  std::int64_t cfa_offset;
  std::size_t registers;
  bool operator==(const Row&) const = default;
};

struct Listing {
  std::vector<std::string> sections;
  std::vector<Row> rows;
  std::vector<Error> errors;
};

Listing list(ByteView bytes) {
  Listing out;
  const auto report = [&](const Error& error) { out.errors.push_back(error); };
  const auto parsed = ElfImage::parse(bytes);
  if (!parsed) {
    report(parsed.error());
    return out;
  }
  const auto found = image::find_unwind_sections(*parsed, report);
  for (const auto& section : found.sections) {
    out.sections.emplace_back(section.name);
    dwarf::CfiReader reader(section, report);
    dwarf::RowEvaluator evaluator(section);
    for (dwarf::Fde fde; reader.next_fde(fde);) {
      const auto done = evaluator.for_each_row(fde, [&](const FrameRow& row) {
        const std::int64_t offset = row.cfa.is(CfaRule::kRegister) ? row.cfa.offset() : -1;
        out.rows.push_back({row.begin, row.end, offset, row.registers.size()});
      });
      if (!done) report(done.error());
    }
  }
  return out;
}

Listing list_file(const std::string& name) {
  const auto file = MappedFile::open(fixture(name));
  EXPECT_TRUE(file) << name << " was not made";
  return file ? list(file->bytes()) : Listing{};
}

std::vector<std::byte> contents(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return {};
  return {file->bytes().data(), file->bytes().data() + file->bytes().size()};
}

ByteView view(const std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

TEST(ElfImage, ItselfAsOtherToolsSeeIt) {
  const auto file = MappedFile::open("/proc/self/exe");
  ASSERT_TRUE(file);
  const auto parsed = ElfImage::parse(file->bytes());
  ASSERT_TRUE(parsed) << parsed.error().text();
  EXPECT_TRUE(parsed->problems().empty());
  EXPECT_NE(parsed->section(".text"), nullptr);
  EXPECT_EQ(parsed->section(".no such"), nullptr);
  EXPECT_FALSE(parsed->executable_segments().empty());
  const auto text = parsed->section(".text");
  EXPECT_EQ(parsed->at_address(text->address, 16)->data(), parsed->stored_bytes(*text)->data());
  EXPECT_FALSE(parsed->at_address(~0ull, 1));
  EXPECT_FALSE(parsed->stored_bytes(*parsed->section(".bss")));
}

TEST(ElfImage, BuildId) {
  const std::string expected =
      first_line_of("readelf -n " + fixture("eh.so") + " 2>/dev/null | sed -n 's/.*Build ID: //p'");
  if (expected.empty()) GTEST_SKIP() << "SKIPPED: no readelf";
  for (const char* name : {"eh.so", "no-sections.so"}) {  // by section or by segment
    if (!made(name)) GTEST_SKIP() << "SKIPPED: no llvm-strip";
    const auto file = MappedFile::open(fixture(name));
    EXPECT_EQ(ElfImage::parse(file->bytes())->build_id(), expected) << name;
  }
}

TEST(ElfImage, EverySectionKindGivesTheSameRows) {
  const auto plain = list_file("debug.so");
  EXPECT_TRUE(plain.errors.empty());
  EXPECT_EQ(plain.sections, std::vector<std::string>{".debug_frame"});
  EXPECT_GT(plain.rows.size(), 500u);
  for (const char* name : {"debug-zlib.so", "debug-zstd.so", "debug-zlib-gnu.so", "mini.so"}) {
    if (!made(name)) GTEST_SKIP() << name << " could not be made on this machine";
    const auto other = list_file(name);
    EXPECT_TRUE(other.errors.empty()) << name;
    EXPECT_EQ(other.rows, plain.rows) << name;
  }
  EXPECT_EQ(list_file("mini.so").sections, std::vector<std::string>{".gnu_debugdata(.debug_frame)"});
}

TEST(ElfImage, WorksWithoutSectionHeaders) {
  if (!made("no-sections.so")) GTEST_SKIP() << "SKIPPED: no llvm-strip";
  const auto file = MappedFile::open(fixture("no-sections.so"));
  ASSERT_TRUE(file);
  EXPECT_TRUE(ElfImage::parse(file->bytes())->sections().empty());
  const auto with = list_file("eh.so");
  const auto without = list_file("no-sections.so");
  EXPECT_TRUE(without.errors.empty());
  EXPECT_EQ(without.rows, with.rows);
}

TEST(ElfImage, AArch64) {
  if (!made("arm64.so")) GTEST_SKIP() << "SKIPPED: no clang and lld for AArch64";
  const auto file = MappedFile::open(fixture("arm64.so"));
  const auto parsed = ElfImage::parse(file->bytes());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->machine(), image::Machine::kAArch64);
  const auto listing = list_file("arm64.so");
  EXPECT_TRUE(listing.errors.empty());
  EXPECT_GT(listing.rows.size(), 400u);
}

// What a mapper of /proc/PID/maps does, compared with where this program really is.
TEST(ElfImage, AddressOfFileOffsetGivesTheBias) {
  const auto file = MappedFile::open("/proc/self/exe");
  const auto parsed = ElfImage::parse(file->bytes());
  ASSERT_TRUE(parsed);
  std::ifstream maps("/proc/self/maps");
  const auto here = reinterpret_cast<std::uint64_t>(&first_line_of);
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t offset = 0;
    char flags[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %lx", &begin, &end, flags, &offset) != 4) continue;
    if (here < begin || here >= end) continue;
    found = true;
    const auto address = parsed->address_of_file_offset(offset);
    ASSERT_TRUE(address);
    const std::uint64_t bias = begin - *address;
    // The bytes at this function, seen through the file, are the bytes in memory.
    const auto bytes = parsed->at_address(here - bias, 32);
    ASSERT_TRUE(bytes);
    EXPECT_EQ(std::memcmp(bytes->data(), reinterpret_cast<const void*>(here), 32), 0);
  }
  EXPECT_TRUE(found);
  EXPECT_FALSE(parsed->address_of_file_offset(~0ull));
}

TEST(MappedFile, ReadsAndRefuses) {
  const auto mapped = MappedFile::open(fixture("eh.so"));
  const auto copied = MappedFile::read(fixture("eh.so"));
  ASSERT_TRUE(mapped);
  ASSERT_TRUE(copied);
  ASSERT_EQ(mapped->bytes().size(), copied->bytes().size());
  EXPECT_EQ(std::memcmp(mapped->bytes().data(), copied->bytes().data(), mapped->bytes().size()), 0);
  EXPECT_EQ(MappedFile::open("/no/such/file").error().code, ErrorCode::kSystem);
  EXPECT_EQ(MappedFile::open("/proc").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(MappedFile::open("/dev/null").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(MappedFile::read(fixture("eh.so"), 100).error().code, ErrorCode::kLimit);
  EXPECT_FALSE(ElfImage::parse(ByteView()));
}

// The same source as eh.so, by another compiler for another machine.
TEST(ElfImage, I386) {
  if (!made("i386.so")) GTEST_SKIP() << "SKIPPED: no Clang or no LLD on this machine";
  const auto file = MappedFile::open(fixture("i386.so"));
  ASSERT_TRUE(file);
  const auto parsed = ElfImage::parse(file->bytes());
  ASSERT_TRUE(parsed) << parsed.error().text();
  EXPECT_TRUE(parsed->problems().empty());
  EXPECT_EQ(parsed->machine(), image::Machine::kI386);
  EXPECT_EQ(parsed->elf_class(), image::ElfClass::k32);
  EXPECT_EQ(parsed->type(), ET_DYN);
  EXPECT_EQ(parsed->build_id().size(), 40u);
  EXPECT_FALSE(parsed->executable_segments().empty());
  const Listing eh = list_file("i386.so"), debug = list_file("i386-debug.so");
  EXPECT_TRUE(eh.errors.empty());
  EXPECT_EQ(eh.sections, std::vector<std::string>{".eh_frame"});
  EXPECT_EQ(debug.sections, std::vector<std::string>{".debug_frame"});
  EXPECT_GT(eh.rows.size(), 15u);
  EXPECT_EQ(eh.rows.size(), debug.rows.size());

  // Cut anywhere, it is read as far as it goes.
  std::vector<std::byte> bytes = contents(fixture("i386.so"));
  while (!bytes.empty()) {
    bytes.resize(bytes.size() - std::min<std::size_t>(bytes.size(), 7));
    (void)list(view(bytes));
  }
}

// ---- hostile
// ------------------------------------------------------------------------------------------------------------

class HostileElf : public ::testing::Test {
 protected:
  HostileElf() : bytes_(contents(fixture("eh.so"))) {}

  Elf64_Ehdr& header() { return *reinterpret_cast<Elf64_Ehdr*>(bytes_.data()); }
  Elf64_Phdr& segment(std::uint32_t type) {
    auto* first = reinterpret_cast<Elf64_Phdr*>(bytes_.data() + header().e_phoff);
    return *std::find_if(first, first + header().e_phnum, [&](const Elf64_Phdr& p) { return p.p_type == type; });
  }
  Elf64_Shdr* sections() { return reinterpret_cast<Elf64_Shdr*>(bytes_.data() + header().e_shoff); }
  Expected<ElfImage> parse() { return ElfImage::parse(view(bytes_)); }

  std::vector<std::byte> bytes_;
};

TEST_F(HostileElf, NotElf) {
  header().e_ident[0] = 'X';
  EXPECT_EQ(parse().error().code, ErrorCode::kMalformed);
}
// Of two classes and neither: x32, and what is no class at all.
TEST_F(HostileElf, ThirtyTwoBits) {
  header().e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(parse().error().code, ErrorCode::kUnsupported);
}
TEST_F(HostileElf, I386InTheWrongClass) {
  header().e_machine = EM_386;
  EXPECT_EQ(parse().error().code, ErrorCode::kUnsupported);
}
TEST_F(HostileElf, NoClass) {
  header().e_ident[EI_CLASS] = 7;
  EXPECT_EQ(parse().error().code, ErrorCode::kUnsupported);
}
TEST_F(HostileElf, BigEndian) {
  header().e_ident[EI_DATA] = ELFDATA2MSB;
  EXPECT_EQ(parse().error().code, ErrorCode::kUnsupported);
}
TEST_F(HostileElf, OtherMachine) {
  header().e_machine = EM_RISCV;
  EXPECT_EQ(parse().error().code, ErrorCode::kUnsupported);
}
// Damaged program headers cost the segments, not what the section headers lead to.
TEST_F(HostileElf, ProgramHeadersOutside) {
  const auto good = list(view(bytes_)).rows;
  const std::vector<std::uint64_t> offsets{~0ull - 16, ~0ull, bytes_.size(), bytes_.size() - 60};
  for (const std::uint64_t offset : offsets) {
    header().e_phoff = offset;
    const auto parsed = parse();
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->problems().size(), 1u);
    EXPECT_EQ(list(view(bytes_)).rows, good);
  }
}
TEST_F(HostileElf, WrongEntrySizes) {
  const auto good = list(view(bytes_)).rows;
  header().e_phentsize = 1;
  EXPECT_EQ(parse()->problems().size(), 1u);
  EXPECT_EQ(list(view(bytes_)).rows, good);
  header().e_shentsize = 1;
  EXPECT_EQ(parse()->problems().size(), 2u);
  EXPECT_TRUE(list(view(bytes_)).rows.empty());
}

// Damaged section headers cost the sections, not the unwind information: the program headers still lead to it.
TEST_F(HostileElf, SectionHeadersOutside) {
  const auto good = list(view(bytes_)).rows;
  header().e_shoff = bytes_.size() - 10;
  const auto parsed = parse();
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->problems().size(), 1u);
  EXPECT_EQ(list(view(bytes_)).rows, good);
}
TEST_F(HostileElf, HugeExtendedSectionCount) {
  header().e_shnum = 0;
  sections()[0].sh_size = ~0ull / 64;
  const auto parsed = parse();
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->problems().size(), 1u);
  EXPECT_TRUE(parsed->sections().empty());
}
TEST_F(HostileElf, ExtendedSectionCountIsRead) {
  const std::size_t count = header().e_shnum;
  sections()[0].sh_size = count;
  sections()[0].sh_link = header().e_shstrndx;
  header().e_shnum = 0;
  header().e_shstrndx = SHN_XINDEX;
  const auto parsed = parse();
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->sections().size(), count);
  EXPECT_NE(parsed->section(".eh_frame"), nullptr);
}
TEST_F(HostileElf, SectionPastTheEndFallsBackToTheSegment) {
  const auto good = list(view(bytes_)).rows;
  for (int i = 0; i < header().e_shnum; ++i)
    if (sections()[i].sh_type == SHT_PROGBITS) sections()[i].sh_offset = ~0ull - 100;
  EXPECT_EQ(list(view(bytes_)).rows, good);
}
// A separate debug file keeps the headers and leaves the bytes to the stripped one: they are not looked for elsewhere.
TEST_F(HostileElf, ASectionWithoutBytesIsElsewhere) {
  const auto named = [&](std::string_view name) {
    const char* names = reinterpret_cast<const char*>(bytes_.data()) + sections()[header().e_shstrndx].sh_offset;
    return std::find_if(sections(), sections() + header().e_shnum,
                        [&](const Elf64_Shdr& section) { return name == names + section.sh_name; });
  };
  ASSERT_TRUE(image::find_eh_frame(*parse()));
  named(".eh_frame")->sh_type = SHT_NOBITS;
  EXPECT_EQ(image::find_eh_frame(*parse()).error().code, ErrorCode::kNotFound);
}
// What is executable is code, and nothing else.
TEST_F(HostileElf, OnlyExecutableSegmentsAreCode) {
  const auto executable = parse()->executable_segments();
  ASSERT_EQ(executable.size(), 1u);
  auto* first = reinterpret_cast<Elf64_Phdr*>(bytes_.data() + header().e_phoff);
  for (auto* p = first; p < first + header().e_phnum; ++p) {
    if (p->p_type != PT_LOAD) continue;
    EXPECT_EQ((p->p_flags & PF_X) != 0, p->p_vaddr == executable[0].vaddr);
  }
}
TEST_F(HostileElf, NamesOutside) {
  sections()[header().e_shstrndx].sh_offset = ~0ull - 5;
  const auto parsed = parse();
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(parsed->problems().empty());
  EXPECT_FALSE(list(view(bytes_)).rows.empty());
}
TEST_F(HostileElf, WildEhFrameHdr) {
  header().e_shoff = 0;
  segment(PT_GNU_EH_FRAME).p_vaddr = 0xdead0000dead;
  const auto listing = list(view(bytes_));
  EXPECT_EQ(listing.errors.size(), 1u);
  EXPECT_TRUE(listing.rows.empty());
}

TEST_F(HostileElf, EveryTruncationIsSurvived) {
  for (std::size_t size = 0; size < bytes_.size(); size += size < 4096 ? 1 : 97) {
    const std::vector<std::byte> cut(bytes_.begin(), bytes_.begin() + static_cast<long>(size));
    (void)list(view(cut));
  }
}

// Every byte of the headers replaced by a few values, everything read each time.
TEST_F(HostileElf, EveryHeaderByteSpoiled) {
  const std::size_t headers = header().e_phoff + header().e_phnum * sizeof(Elf64_Phdr);
  for (std::size_t at = 0; at < headers; ++at) {
    const std::byte kept = bytes_[at];
    for (const unsigned value : {0u, 1u, 0x7fu, 0x80u, 0xffu}) {
      bytes_[at] = static_cast<std::byte>(value);
      (void)parse();
    }
    bytes_[at] = kept;
  }
}

TEST(HostileCompression, LyingHeadersAndDamage) {
  for (const char* name : {"debug-zlib.so", "debug-zstd.so", "debug-zlib-gnu.so", "mini.so"}) {
    if (!made(name)) continue;
    auto bytes = contents(fixture(name));
    const auto parsed = ElfImage::parse(view(bytes));
    ASSERT_TRUE(parsed);
    const image::Section* section = parsed->section(".debug_frame");
    if (section == nullptr) section = parsed->section(".zdebug_frame");
    if (section == nullptr) section = parsed->section(".gnu_debugdata");
    ASSERT_NE(section, nullptr) << name;
    const auto stored = *parsed->stored_bytes(*section);
    const auto at = static_cast<std::size_t>(stored.origin());
    // Promises more than there is, more than is allowed, or is damaged in the middle.
    for (const std::uint64_t size : {std::uint64_t{1} << 20, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
      auto spoiled = bytes;
      std::uint64_t stored_size = size;
      if (std::string(name) == "debug-zlib-gnu.so") stored_size = __builtin_bswap64(size);
      const std::size_t field = std::string(name) == "debug-zlib-gnu.so" ? 4 : 8;
      std::memcpy(spoiled.data() + at + field, &stored_size, 8);
      const auto listing = list(view(spoiled));
      EXPECT_EQ(listing.errors.size(), 1u) << name;
    }
    auto spoiled = bytes;
    for (std::size_t i = stored.size() / 2; i < stored.size() / 2 + 16; ++i) spoiled[at + i] ^= std::byte{0x55};
    EXPECT_FALSE(list(view(spoiled)).errors.empty()) << name;
  }
}

TEST(Decompress, Limits) {
  if (!made("mini.so")) GTEST_SKIP() << "SKIPPED: no xz";
  const auto file = MappedFile::open(fixture("mini.so"));
  const auto parsed = ElfImage::parse(file->bytes());
  const auto stored = *parsed->stored_bytes(*parsed->section(".gnu_debugdata"));
  EXPECT_TRUE(image::inflate_xz(stored, 1u << 20));
  EXPECT_EQ(image::inflate_xz(stored, 100).error().code, ErrorCode::kLimit);
  EXPECT_FALSE(image::inflate_xz(*stored.sub(0, 40), 1u << 20));
  EXPECT_FALSE(image::inflate_zlib(stored, 100, 1u << 20));
  EXPECT_FALSE(image::inflate_zstd(stored, 100, 1u << 20));
  EXPECT_FALSE(image::inflate_zstd(ByteView(), 100, 1u << 20));
  EXPECT_FALSE(image::inflate_zlib(ByteView(), 100, 1u << 20));
  EXPECT_FALSE(image::inflate_xz(ByteView(), 1u << 20));
}

}  // namespace
}  // namespace windlass
