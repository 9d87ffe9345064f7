// ELF images as they stand in memory: the C library's of this process against its file, and ones made up by hand.
#include "walk/target/memory_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "formats/image/function_symbols.h"
#include "formats/image/unwind_sections.h"
#include "os/process_memory.h"
#include "support/byte_sink.h"
#include "support/made_up_memory.h"
#include "support/process_reading.h"

namespace windlass::walk {
namespace {

ByteView view(const std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

struct Library {
  std::string path;
  std::uint64_t base = 0;
};

Library c_library() {
  Dl_info info{};
  link_map* map = nullptr;
  ::dladdr1(reinterpret_cast<void*>(&::qsort), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP);
  return {info.dli_fname, reinterpret_cast<std::uint64_t>(info.dli_fbase)};
}

class ImageOfTheCLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << "SKIPPED: " << reason;
    const Library library = c_library();
    base_ = library.base;
    auto file = MappedFile::open(library.path);
    ASSERT_TRUE(file) << library.path;
    mapped_ = std::move(*file);
    auto bytes = read_memory_image(os::MemoryFile(::getpid()), base_);
    ASSERT_TRUE(bytes) << bytes.error().text();
    bytes_ = std::move(*bytes);
    file_.emplace(*image::ElfImage::parse(mapped_.bytes()));
    const auto memory = image::ElfImage::parse(view(bytes_));
    ASSERT_TRUE(memory) << memory.error().text();
    memory_.emplace(*memory);
  }

  std::uint64_t base_ = 0;
  MappedFile mapped_;
  std::vector<std::byte> bytes_;
  std::optional<image::ElfImage> file_, memory_;
};

TEST_F(ImageOfTheCLibrary, HasTheFilesSymbols) {
  const image::Section *in_file = file_->section(".dynsym"), *in_memory = memory_->section(".dynsym");
  ASSERT_NE(in_file, nullptr);
  ASSERT_NE(in_memory, nullptr);
  EXPECT_EQ(in_memory->address, in_file->address);
  EXPECT_EQ(in_memory->size, in_file->size);
  ASSERT_LT(in_memory->link, memory_->sections().size());
  EXPECT_EQ(memory_->sections()[in_memory->link].size, file_->section(".dynstr")->size);
  const std::uint64_t qsort = reinterpret_cast<std::uint64_t>(&::qsort) - base_;
  EXPECT_EQ(image::FunctionSymbols(*memory_).start_of(qsort + 1), qsort);
}

TEST_F(ImageOfTheCLibrary, HasTheFilesUnwindInformationAndCode) {
  EXPECT_EQ(memory_->build_id(), file_->build_id());
  const auto is_note = [](const image::Section& section) { return section.type == SHT_NOTE; };
  EXPECT_TRUE(std::ranges::any_of(memory_->sections(), is_note)) << "libdw looks nowhere else for the build id";
  const auto in_file = image::find_eh_frame(*file_), in_memory = image::find_eh_frame(*memory_);
  ASSERT_TRUE(in_file);
  ASSERT_TRUE(in_memory) << in_memory.error().text();
  EXPECT_EQ(in_memory->address, in_file->address);
  EXPECT_EQ(std::memcmp(in_memory->bytes.data(), in_file->bytes.data(), in_file->bytes.size()), 0);
  for (const auto& code : file_->executable_segments()) {
    const auto a = file_->at_address(code.vaddr, code.filesz), b = memory_->at_address(code.vaddr, code.filesz);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(std::memcmp(a->data(), b->data(), code.filesz), 0);
  }
}

// ---- made up --------------------------------------------------------------------------------------------------------

enum class Hash : std::uint8_t { kOld, kGnu };

// Linked to 0: its headers, its dynamic section, three symbols, their names and their hash table.
struct MadeUp {
  static constexpr std::uint64_t kBase = 0x7000'0000'0000;
  static constexpr std::size_t kDynamic = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr);

  explicit MadeUp(Hash hash, std::uint64_t added) {
    test::ByteSink out;
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 2;
    header.e_shoff = 0x123456;  // of the file: not in memory
    header.e_shnum = 30;
    out.put(header);
    constexpr std::uint64_t kSymbols = kDynamic + 5 * sizeof(Elf64_Dyn), kNames = kSymbols + 3 * sizeof(Elf64_Sym);
    constexpr std::uint64_t kHash = kNames + 16;
    out.put(Elf64_Phdr{PT_LOAD, PF_R | PF_X, 0, 0, 0, kSize, kSize, 4096});
    out.put(Elf64_Phdr{PT_DYNAMIC, PF_R, kDynamic, kDynamic, 0, 5 * sizeof(Elf64_Dyn), 5 * sizeof(Elf64_Dyn), 8});
    out.put(Elf64_Dyn{DT_SYMTAB, {kSymbols + added}});
    out.put(Elf64_Dyn{DT_STRTAB, {kNames + added}});
    out.put(Elf64_Dyn{DT_STRSZ, {16}});
    out.put(Elf64_Dyn{hash == Hash::kOld ? DT_HASH : DT_GNU_HASH, {kHash + added}});
    out.put(Elf64_Dyn{DT_NULL, {0}});
    out.put(Elf64_Sym{});
    out.put(Elf64_Sym{1, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 12, 0x800, 0x10});
    out.put(Elf64_Sym{7, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 12, 0x900, 0x20});
    out.append(std::string_view("\0first\0second\0\0", 16));
    if (hash == Hash::kOld) {
      for (const std::uint32_t word : {1U, 3U, 1U, 0U, 2U, 0U}) out.put(word);
    } else {
      // One bucket, the first symbol is number 1, one word of bloom.
      for (const std::uint32_t word : {1U, 1U, 1U, 0U, ~0U, ~0U, 1U, 0x10U, 0x21U}) out.put(word);
    }
    out.zeros(kSize - out.bytes().size());
    bytes = out.bytes();
  }

  [[nodiscard]] Expected<std::vector<std::byte>> read() const {
    test::MadeUpMemory memory(kBase, bytes.size());
    std::memcpy(memory.bytes.data(), bytes.data(), bytes.size());
    return read_memory_image(memory, kBase);
  }

  static constexpr std::size_t kSize = 4096;
  std::vector<std::byte> bytes;
};

TEST(MadeUpImageInMemory, SymbolsByEitherHashWhateverTheLinkerHasAdded) {
  for (const Hash hash : {Hash::kOld, Hash::kGnu}) {
    for (const std::uint64_t added : {std::uint64_t{0}, MadeUp::kBase}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(hash) << ' ' << added);
      const auto bytes = MadeUp(hash, added).read();
      ASSERT_TRUE(bytes) << bytes.error().text();
      const auto image = image::ElfImage::parse(view(*bytes));
      ASSERT_TRUE(image);
      EXPECT_TRUE(image->problems().empty());
      const image::Section* symbols = image->section(".dynsym");
      ASSERT_NE(symbols, nullptr);
      EXPECT_EQ(symbols->size, 3 * sizeof(Elf64_Sym));
      const image::FunctionSymbols functions(*image);
      EXPECT_EQ(functions.start_of(0x80f), 0x800U);
      EXPECT_EQ(functions.start_of(0x91f), 0x900U);
      EXPECT_EQ(functions.start_of(0x920), 0U);
    }
  }
}

// Every byte of headers and tables spoiled: what comes out is an image or an error, never more than was there.
TEST(MadeUpImageInMemory, HostileTables) {
  for (const Hash hash : {Hash::kOld, Hash::kGnu}) {
    const MadeUp whole(hash, 0);
    std::size_t with_symbols = 0;
    for (std::size_t i = 0; i < 600; ++i) {
      for (const unsigned value : {0x00U, 0x7fU, 0xffU}) {
        MadeUp spoiled = whole;
        spoiled.bytes[i] = static_cast<std::byte>(value);
        const auto bytes = spoiled.read();
        if (!bytes) continue;
        const auto image = image::ElfImage::parse(view(*bytes));
        ASSERT_TRUE(image);
        const image::Section* symbols = image->section(".dynsym");
        if (symbols == nullptr) continue;
        ++with_symbols;
        EXPECT_TRUE(image->stored_bytes(*symbols)) << i;
        EXPECT_LE(symbols->size, MadeUp::kSize) << i;
        (void)image::FunctionSymbols(*image);
      }
    }
    EXPECT_GT(with_symbols, 100U);
  }
}

}  // namespace
}  // namespace windlass::walk
