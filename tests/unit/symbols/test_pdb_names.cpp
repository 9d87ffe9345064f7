// Names of Windows images from PDB files, and where these are found. The reader has tests of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "formats/image/pe.h"
#include "support/minidump_writer.h"
#include "symbols/demangle_msvc.h"
#include "symbols/pdb_find.h"
#include "windlass/c/symbols.h"
#include "windlass/symbols.h"
#include "windlass/target.h"

namespace windlass {
namespace {

namespace fs = std::filesystem;

// A folder with the program; its PDB file is where a test puts it.
class PdbNamesTest : public ::testing::Test {
 protected:
  PdbNamesTest() {
    ::unsetenv("_NT_SYMBOL_PATH");
    fs::create_directories(folder_ / "image");
    fs::copy_file(WINDLASS_PDB_FOLDER "/program-x86_64.exe", program_);
    // The linker's absolute path of the PDB file is written over, so that it is not found there.
    std::fstream file(program_, std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const std::size_t at = bytes.find(WINDLASS_PDB_FOLDER "/program-x86_64.pdb");
    EXPECT_NE(at, std::string::npos);
    bytes[at + 1] = '?';
    file.seekp(0);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    const auto image_file = MappedFile::open(program_);
    const auto image = image::PeImage::parse(image_file->bytes());
    identity_ = image->build_id();
    entry_ = image->entry();
  }
  ~PdbNamesTest() override {
    ::unsetenv("_NT_SYMBOL_PATH");
    fs::remove_all(folder_);
  }

  void put_pdb(const fs::path& to, const char* which = "program-x86_64.pdb") const {
    fs::create_directories(to.parent_path());
    fs::copy_file(fs::path(WINDLASS_PDB_FOLDER) / which, to, fs::copy_options::overwrite_existing);
  }
  [[nodiscard]] std::string name_of_entry(const SymbolizerOptions& options = {}) {
    const auto symbols = Symbolizer::of_file(program_, options);
    if (!symbols) return symbols.error().text();
    const NamedAddress named = symbols->name(CodeAddress::instruction(entry_));
    notes_ = symbols->notes();
    return named.frames.empty() ? std::string() : std::string(named.frames.back().function);
  }

  fs::path folder_ = fs::path(::testing::TempDir()) / fmt::format("windlass-pdb-{}", ::getpid());
  fs::path program_ = folder_ / "image/program-x86_64.exe";
  std::string identity_;
  std::uint32_t entry_ = 0;
  std::vector<std::string> notes_;
};

TEST_F(PdbNamesTest, NoneWithoutThePdbFile) {
  EXPECT_EQ(name_of_entry(), "");
  EXPECT_TRUE(notes_.empty());
}

TEST_F(PdbNamesTest, BesideTheImage) {
  put_pdb(folder_ / "image/program-x86_64.pdb");
  const auto symbols = Symbolizer::of_file(program_);
  ASSERT_TRUE(symbols);
  const NamedAddress named = symbols->name(CodeAddress::instruction(entry_));
  ASSERT_FALSE(named.frames.empty());
  const SourceFrame& frame = named.frames.back();
  EXPECT_EQ(frame.function, "start");
  EXPECT_EQ(frame.linkage_name, "start");
  EXPECT_FALSE(frame.inlined);
  EXPECT_EQ(fs::path(frame.file).filename(), "program.cpp");
  EXPECT_NE(frame.line, 0U);
  EXPECT_EQ(named.function_begin, entry_);
}

TEST_F(PdbNamesTest, NamedAfterTheImage) {
  fs::rename(program_, folder_ / "image/renamed.exe");
  program_ = folder_ / "image/renamed.exe";
  put_pdb(folder_ / "image/renamed.pdb");
  EXPECT_EQ(name_of_entry(), "start");
}

TEST_F(PdbNamesTest, Given) {
  put_pdb(folder_ / "elsewhere/any name");
  EXPECT_EQ(name_of_entry({.debug_directory = {}, .pdb_files = {folder_ / "elsewhere/any name"}}), "start");
}

TEST_F(PdbNamesTest, SymbolStore) {
  put_pdb(folder_ / "store/program-x86_64.pdb" / identity_ / "program-x86_64.pdb");
  const std::string store = folder_ / "store";
  EXPECT_EQ(name_of_entry({.debug_directory = {}, .symbol_path = store}), "start");
  EXPECT_EQ(name_of_entry({.debug_directory = {},
                           .symbol_path = "C:\\none;SRV*" + store + "*https://msdl.microsoft.com/download/symbols"}),
            "start");
  EXPECT_TRUE(notes_.empty());
  ::setenv("_NT_SYMBOL_PATH", ("cache*" + store).c_str(), 1);
  EXPECT_EQ(name_of_entry(), "start");
  EXPECT_EQ(name_of_entry({.debug_directory = {}, .symbol_path = "/nowhere"}), "");
}

TEST_F(PdbNamesTest, FolderWithoutAStore) {
  put_pdb(folder_ / "flat/program-x86_64.pdb");
  EXPECT_EQ(name_of_entry({.debug_directory = {}, .symbol_path = folder_ / "flat"}), "start");
}

TEST_F(PdbNamesTest, ServersAreNotAsked) {
  EXPECT_EQ(name_of_entry({.debug_directory = {}, .symbol_path = "srv*/nowhere*https://example.org"}), "");
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_TRUE(notes_[0].starts_with("symbol server https://example.org is not asked")) << notes_[0];
}

TEST_F(PdbNamesTest, OfAnotherBuildIsRefused) {
  put_pdb(folder_ / "image/program-x86_64.pdb", "program-aarch64.pdb");
  const auto file = MappedFile::open(WINDLASS_PDB_FOLDER "/program-aarch64.pdb");
  const std::string other = pdb::PdbFile::identity_of(file->bytes()).value();
  EXPECT_EQ(name_of_entry(), "");
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_EQ(notes_[0],
            fmt::format("{}: is not the PDB file of {}: it has the identity {}, the image has {}",
                        (folder_ / "image/program-x86_64.pdb").string(), program_.string(), other, identity_));
  // Given, under another name, it is of another of the program's images.
  EXPECT_EQ(name_of_entry(
                {.debug_directory = {},
                 .pdb_files = {WINDLASS_PDB_FOLDER "/program-aarch64.pdb", WINDLASS_PDB_FOLDER "/program-x86_64.pdb"}}),
            "start");
  EXPECT_TRUE(notes_.empty());
}

TEST_F(PdbNamesTest, WhatIsNoPdbFileIsSaid) {
  const std::string given = folder_ / "given";
  std::ofstream(given) << "BSJB portable";
  EXPECT_EQ(name_of_entry({.debug_directory = {}, .pdb_files = {given}}), "");
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_NE(notes_[0].find("portable PDB of .NET"), std::string::npos) << notes_[0];
  EXPECT_EQ(name_of_entry({.debug_directory = {}, .pdb_files = {given + "?"}}), "");
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_EQ(notes_[0], given + "?: No such file or directory");
}

// Code of an object file without debug information has public symbols, which have no lines.
TEST_F(PdbNamesTest, PublicSymbols) {
  put_pdb(folder_ / "image/program-x86_64.pdb");
  const auto symbols = Symbolizer::of_file(program_);
  ASSERT_TRUE(symbols);
  bool found = false;
  for (std::uint64_t rva = 0x1000; rva < 0x1200 && !found; ++rva) {
    const NamedAddress named = symbols->name(CodeAddress::instruction(rva));
    if (named.frames.empty() || named.frames[0].function != "shapes::bare") continue;
    EXPECT_EQ(named.frames[0].linkage_name, "?bare@shapes@@YAHH@Z");
    EXPECT_TRUE(named.frames[0].file.empty());
    found = true;
  }
  EXPECT_TRUE(found);
}

// The image of a dump is found by --sysroot. Its PDB file is beside that, or in the symbol path.
TEST_F(PdbNamesTest, MinidumpOfWindows) {
  const auto image_file = MappedFile::open(program_);
  const auto image = image::PeImage::parse(image_file->bytes());
  test::MinidumpWriter writer(Architecture::kX86_64);
  writer.windows = true;
  Registers registers(Architecture::kX86_64);
  registers.set_pc(CodeAddress::instruction(image->image_base() + entry_));
  writer.threads.push_back({1, registers, "main"});
  writer.modules.push_back({.begin = image->image_base(),
                            .size = image->image_size(),
                            .path = "C:\\app\\program-x86_64.exe",
                            .timestamp = image->timestamp()});
  const std::vector<std::byte> bytes = writer.write();
  const std::string dump = folder_ / "app.dmp";
  std::ofstream(dump, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const auto target = open_minidump(dump, {.files = {.sysroot = folder_ / "image", .executable = {}}});
  ASSERT_TRUE(target) << target.error().text();
  put_pdb(folder_ / "store/program-x86_64.pdb" / identity_ / "program-x86_64.pdb");
  const CodeAddress pc = CodeAddress::instruction(image->image_base() + entry_);
  EXPECT_TRUE(Symbolizer::of_target(*target).name(pc).frames.empty());
  const auto by_store = Symbolizer::of_target(*target, {.debug_directory = {}, .symbol_path = folder_ / "store"});
  ASSERT_FALSE(by_store.name(pc).frames.empty());
  EXPECT_EQ(by_store.name(pc).frames.back().function, "start");
  put_pdb(folder_ / "image/program-x86_64.pdb");
  const auto beside = Symbolizer::of_target(*target);
  ASSERT_FALSE(beside.name(pc).frames.empty());
  EXPECT_EQ(beside.name(pc).frames.back().function, "start");
}

TEST_F(PdbNamesTest, InterfaceOfC) {
  put_pdb(folder_ / "elsewhere/program.pdb");
  const std::string given = folder_ / "elsewhere/program.pdb";
  const char* const files[] = {given.c_str(), nullptr};
  windlass_symbols_options options{};
  options.size = sizeof(options);
  options.pdb_files = files;
  windlass_symbols* symbols = nullptr;
  ASSERT_EQ(windlass_symbols_open_file(program_.c_str(), &options, &symbols, nullptr), WINDLASS_OK);
  std::string name;
  const std::uint64_t address = entry_;
  const auto keep = [](const windlass_named_address* named, std::size_t, void* to) -> int {
    if (named->frame_count != 0) *static_cast<std::string*>(to) = named->frames[named->frame_count - 1]->function;
    return 0;
  };
  EXPECT_EQ(windlass_symbols_name(symbols, &address, 1, 0, keep, &name, nullptr), WINDLASS_OK);
  EXPECT_EQ(name, "start");
  windlass_symbols_close(symbols);
}

TEST(SymbolPath, Elements) {
  const auto path = symbols::parse_symbol_path("/a;srv*/b*https://x/y;;symsrv*symsrv.dll*/c;cache*/d*http://z");
  EXPECT_EQ(path.folders, (std::vector<std::string>{"/a", "/b", "/c", "/d"}));
  EXPECT_EQ(path.servers, (std::vector<std::string>{"https://x/y", "http://z"}));
  EXPECT_TRUE(symbols::parse_symbol_path("").folders.empty());
}

TEST(Undecorate, SimpleNamesOnly) {
  using symbols::undecorate;
  EXPECT_EQ(undecorate("?f@@YAHH@Z"), "f");
  EXPECT_EQ(undecorate("?f@inner@outer@@SAXPEAX@Z"), "outer::inner::f");
  EXPECT_EQ(undecorate("??0Box@ns@@QEAA@XZ"), "ns::Box::Box");
  EXPECT_EQ(undecorate("??1Box@ns@@QEAA@XZ"), "ns::Box::~Box");
  for (const char* kept : {"memcpy", "?", "??", "?@@", "?f", "?f@0@YAXXZ", "??$max@H@@YAHHH@Z", "??2@YAPEAX_K@Z",
                           "?f@?A0x1234@@YAXXZ", "??0@", "?f@ns"})
    EXPECT_EQ(undecorate(kept), kept);
}

}  // namespace
}  // namespace windlass
