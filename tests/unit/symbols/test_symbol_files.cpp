// Symbol files: what is written is read again, and files that are cut, changed or of others are refused.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "formats/wlsym/wlsym.h"
#include "symbols/symbol_files.h"
#include "symbols/symbol_writer.h"
#include "symbols/write_symbols.h"

namespace windlass::symbols {
namespace {

namespace fs = std::filesystem;

ByteView view_of(const std::string& text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

struct Given {
  std::string name, file;
  std::uint32_t begin_line, line;
  bool operator==(const Given&) const = default;
};
struct GivenPlace {
  std::uint64_t begin;
  std::vector<Given> frames;
  bool operator==(const GivenPlace&) const = default;
};

std::string write(const std::map<std::uint64_t, GivenPlace>& code, std::string build_id = "abcd1234") {
  SymbolFileWriter writer;
  for (const auto& [address, place] : code) {
    std::vector<wlsym::Frame> frames;
    for (const Given& one : place.frames)
      frames.push_back({writer.function(one.name, one.file, one.begin_line), one.line});
    writer.add(address, place.begin, frames);
  }
  const auto file = writer.finish({.build_id = std::move(build_id),
                                   .name = "program",
                                   .detail = wlsym::Detail::kLines,
                                   .segments = {{0x1000, 0x401000, 0x100}}});
  EXPECT_TRUE(file.has_value()) << file.error().text();
  return file.value_or(std::string());
}

GivenPlace read_at(wlsym::SymbolFile& file, std::uint64_t address) {
  const auto place = file.at(address);
  EXPECT_TRUE(place.has_value()) << place.error().text();
  GivenPlace made{place->begin, {}};
  for (const wlsym::Frame& frame : place->frames) {
    const auto function = file.function(frame.function);
    EXPECT_TRUE(function.has_value()) << function.error().text();
    made.frames.push_back({function->name, function->file, function->line, frame.line});
  }
  return made;
}

// Functions with inlined calls, at random; some code has no names.
std::map<std::uint64_t, GivenPlace> random_code(std::uint32_t seed, std::size_t places) {
  std::minstd_rand random(seed);
  const auto below = [&](std::uint32_t most) { return static_cast<std::uint32_t>(random() % most); };
  std::map<std::uint64_t, GivenPlace> code;
  std::uint64_t address = 0x1000;
  while (code.size() < places) {
    const std::uint64_t begin = address;
    const std::size_t parts = 1 + below(20);
    for (std::size_t i = 0; i < parts; ++i) {
      GivenPlace place{begin, {}};
      const std::size_t depth = below(10) == 0 ? 0 : 1 + below(5);
      for (std::size_t d = 0; d < depth; ++d) {
        const std::uint32_t number = below(5000);
        place.frames.push_back({"_Z" + std::to_string(number), below(8) == 0 ? "" : "/f" + std::to_string(number / 50),
                                below(4) == 0 ? 0 : number, below(6) == 0 ? 0 : number + below(30)});
      }
      if (place.frames.empty()) place.begin = 0;
      code[address] = place;
      address += 1 + below(90);
    }
    address += below(3) == 0 ? std::uint64_t{below(1u << 30)} << below(4) : 0;
  }
  code[address] = {0, {}};
  return code;
}

TEST(SymbolFile, HasTheNamesThatWereWritten) {
  const auto code = random_code(1, 60'000);
  const std::string bytes = write(code);
  auto file = wlsym::SymbolFile::parse(view_of(bytes));
  ASSERT_TRUE(file.has_value()) << file.error().text();
  EXPECT_EQ(file->build_id(), "abcd1234");
  EXPECT_EQ(file->name(), "program");
  EXPECT_TRUE(file->check().has_value());
  std::minstd_rand random(2);
  for (int i = 0; i < 20'000; ++i) {
    auto at = code.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random() % 2000));
    ASSERT_EQ(read_at(*file, at->first), at->second) << at->first;
  }
  for (auto at = code.begin(); std::next(at) != code.end(); ++at) {
    const std::uint64_t last = std::next(at)->first - 1;  // the names go on to the next place
    ASSERT_EQ(read_at(*file, last), at->second) << last;
  }
  EXPECT_TRUE(file->at(0)->frames.empty());
  EXPECT_TRUE(file->at(~std::uint64_t{0})->frames.empty());
  EXPECT_TRUE(file->at(code.begin()->first - 1)->frames.empty());
}

TEST(SymbolFile, EqualNeighboursAreOneRange) {
  const GivenPlace same{0x1000, {{"f", "/f.c", 3, 4}}};
  std::map<std::uint64_t, GivenPlace> code;
  for (std::uint64_t i = 0; i < 10'000; ++i) code[0x1000 + i] = same;
  EXPECT_EQ(write(code), write({{0x1000, same}}));
}

TEST(SymbolFile, OffsetsOfTheFileBecomeAddresses) {
  const std::string bytes = write({{0x401000, {0x401000, {{"f", "", 0, 0}}}}});
  const auto file = wlsym::SymbolFile::parse(view_of(bytes));
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->address_of(0x1080), 0x401080u);
  EXPECT_FALSE(file->address_of(0x1100).has_value());
  EXPECT_FALSE(file->address_of(0xfff).has_value());
}

// Long chains are cut at the innermost end, and long or odd names are kept as they are.
TEST(SymbolFile, ExtremesOfNames) {
  GivenPlace deep{0x1000, {}};
  for (std::uint32_t i = 0; i < 2 * wlsym::kMostFrames; ++i)
    deep.frames.push_back({"f" + std::to_string(i), "", 0, i + 1});
  const GivenPlace odd{0x2000, {{std::string(50'000, 'n'), "\x1b[31m\xff\n", ~0u, 1}}};
  const std::string bytes = write({{0x1000, deep}, {0x2000, odd}, {0x2010, {0, {}}}});
  auto file = wlsym::SymbolFile::parse(view_of(bytes));
  ASSERT_TRUE(file.has_value());
  const GivenPlace read = read_at(*file, 0x1000);
  ASSERT_EQ(read.frames.size(), wlsym::kMostFrames);
  EXPECT_EQ(read.frames.back(), deep.frames.back());
  EXPECT_EQ(read_at(*file, 0x2000), odd);
}

TEST(SymbolFile, EveryCutIsAnError) {
  const std::string bytes = write(random_code(3, 300));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const auto file = wlsym::SymbolFile::parse(view_of(cut));
    ASSERT_FALSE(file.has_value()) << size;
    ASSERT_EQ(file.error().code, size < 8 ? ErrorCode::kMalformed : ErrorCode::kTruncated) << size;
  }
  EXPECT_EQ(wlsym::SymbolFile::parse(view_of(bytes + "x")).error().code, ErrorCode::kMalformed);
}

// As from one who knows the format: the checksums are right again.
void set_checksum(std::string& bytes) {
  wlsym::Header header{};
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::size_t lists = header.segments * std::size_t{24} + header.range_blocks * std::size_t{24} +
                            (header.function_blocks + header.path_blocks) * std::size_t{16};
  const std::size_t end = std::min(bytes.size(), sizeof(header) + header.build_id_size + header.name_size + lists);
  constexpr std::size_t kBehind = offsetof(wlsym::Header, file_size);
  const auto crc =
      static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()) + kBehind, end - kBehind));
  std::memcpy(bytes.data() + offsetof(wlsym::Header, checksum), &crc, sizeof(crc));
}

TEST(SymbolFile, AChangedByteIsAnErrorOrAnAnswer) {
  const auto code = random_code(4, 120);
  const std::string bytes = write(code);
  std::size_t refused = 0, found = 0;
  for (std::size_t at = 8; at < bytes.size(); at += at < 400 ? 1 : 7)
    for (const int bit : {0, 7}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      const bool plain = !wlsym::SymbolFile::parse(view_of(changed)).has_value();
      set_checksum(changed);
      auto file = wlsym::SymbolFile::parse(view_of(changed));
      refused += plain ? 1 : 0;
      if (!file) continue;
      found += file->check().has_value() ? 0 : 1;
      for (const auto& [address, place] : code)
        if (const auto read = file->at(address))
          for (const wlsym::Frame& frame : read->frames) (void)file->function(frame.function);
    }
  EXPECT_GT(refused, 250u);  // of the header and the lists
  EXPECT_GT(found, 100u);    // zstd's checksums of the blocks
}

// Of a program whose function outer() has inlined calls of inner(), by windlass 0.2.0. The names are those of
// addr2line.
constexpr std::string_view kVersion1 =
    "89574c53594d0d0a01000200b02e8473fa00000000000000080000000500000001000000010000000100000001000000030000000100"
    "00003631363236333634742e656c66001000000000000000104000000000002400000000000000001040000000000000000000950000"
    "00250000001f00000000000000ba000000290000001c00000000000000e3000000170000000a00000028b52ffd241fc50000f2010508"
    "9075039fd31cf92993e28dd608f086de79ffba003dabe11028b52ffd241ce10000136f7574657200696e6e6572005f73746172740003"
    "0200000305010af4a8afed28b52ffd240a510000092f7372632f742e6300d5068fa2";
constexpr std::string_view kVersion2 =
    "89574c53594d0d0a0200020095994050fc00000000000000080000000500000001000000010000000100000001000000030000000100"
    "00003631363236333634742e656c66001000000000000000104000000000002400000000000000001040000000000000000000950000"
    "00270000001f00000000000000bc000000290000001c00000000000000e5000000170000000a00000028b52ffd241fd50000f2810509"
    "90e9018fb756acbba5b7eb1a0744d14136d7fc090c005cb1f81328b52ffd241ce10000136f7574657200696e6e6572005f7374617274"
    "00030200000305010af4a8afed28b52ffd240a510000092f7372632f742e6300d5068fa2";

void expect_file_of_outer(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  auto file = wlsym::SymbolFile::parse(view_of(bytes));
  ASSERT_TRUE(file.has_value()) << file.error().text();
  EXPECT_TRUE(file->check().has_value());
  EXPECT_EQ(file->name(), "t.elf");
  const std::string path = "/src/t.c";
  EXPECT_EQ(read_at(*file, 0x401000), (GivenPlace{0x401000, {{"inner", path, 1, 2}, {"outer", path, 5, 6}}}));
  EXPECT_EQ(read_at(*file, 0x401004), (GivenPlace{0x401000, {{"outer", path, 5, 7}}}));
  EXPECT_EQ(read_at(*file, 0x40100b), (GivenPlace{0x401000, {{"outer", path, 5, 9}}}));
  EXPECT_EQ(read_at(*file, 0x401022), (GivenPlace{0x40100c, {{"_start", path, 10, 10}}}));
}

TEST(SymbolFile, FilesOfVersions1And2AreRead) {
  expect_file_of_outer(kVersion1);
  expect_file_of_outer(kVersion2);
}

// Names of 12 MB need two blocks, the second of which begins with a number other than 0.
TEST(SymbolFile, NamesOfSeveralBlocks) {
  std::map<std::uint64_t, GivenPlace> code;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::string text(60'000, static_cast<char>('a' + i % 26));
    code[0x1000 + i * 16] = {0x1000 + i * 16,
                             {{text + std::to_string(i), "/" + text + std::to_string(i), i + 1, i + 2}}};
  }
  const std::string bytes = write(code);
  auto file = wlsym::SymbolFile::parse(view_of(bytes));
  ASSERT_TRUE(file.has_value()) << file.error().text();
  for (const auto& [at, place] : code) ASSERT_TRUE(read_at(*file, at) == place) << at;
}

// An inlined call at many places, deep, with lines that go up and down: what guesses and calls out are for.
TEST(SymbolFile, DeepCallsAndLinesThatRepeatAreKept) {
  std::map<std::uint64_t, GivenPlace> code;
  std::uint64_t address = 0x1000;
  for (std::uint32_t f = 0; f < 40; ++f) {
    const std::uint64_t begin = address;
    for (std::uint32_t depth : {1u, 60u, 2u, 45u, 60u, 1u, 35u})
      for (const std::uint32_t line : {12u, 11u, 12u, 0xffffffffu, 0u}) {
        GivenPlace place{begin, {}};
        for (std::uint32_t d = depth; d-- > 0;)
          place.frames.push_back(
              {"f" + std::to_string(d == 0 ? 1000 + f : d), "/a.c", 10 + d, d + 1 == depth ? line : 20 + d});
        code[address] = place;
        address += 3;
      }
  }
  const std::string bytes = write(code);
  auto file = wlsym::SymbolFile::parse(view_of(bytes));
  ASSERT_TRUE(file.has_value()) << file.error().text();
  for (const auto& [at, place] : code) ASSERT_EQ(read_at(*file, at), place) << at;
}

TEST(SymbolFile, ANewerVersionAndThenMoreDetailTakeTheOthersPlace) {
  using wlsym::Detail;
  EXPECT_LT(wlsym::rank_of(1, Detail::kFunctions), wlsym::rank_of(1, Detail::kLines));
  EXPECT_LT(wlsym::rank_of(1, Detail::kLines), wlsym::rank_of(2, Detail::kFunctions));
  EXPECT_LT(wlsym::rank_of(2, Detail::kFunctions), wlsym::rank_of(2, Detail::kLines));
}

TEST(SymbolFile, OtherVersionsAndOtherFilesAreRefused) {
  std::string bytes = write({{0x1000, {0x1000, {{"f", "", 0, 0}}}}});
  bytes[8] = 4;
  EXPECT_EQ(wlsym::SymbolFile::parse(view_of(bytes)).error().code, ErrorCode::kUnsupported);
  EXPECT_NE(wlsym::SymbolFile::parse(view_of("\x7f"
                                             "ELF and more of that"))
                .error()
                .text()
                .find("not a symbol file"),
            std::string::npos);
}

TEST(SymbolFilePath, IsOfABuildIdAlone) {
  EXPECT_EQ(symbol_file_path("/s", "abcdef"), "/s/.build-id/ab/cdef.wlsym");
  for (const char* hostile : {"", "ab", "../../etc/passwd", "ab/../cd", "ab cd", "ab\n"})
    EXPECT_FALSE(symbol_file_path("/s", hostile).has_value()) << hostile;
}

class LateNames : public ::testing::Test {
 protected:
  ~LateNames() override { fs::remove_all(folder_); }
  void put(const std::string& build_id, const std::string& bytes) {
    const fs::path path = *symbol_file_path(folder_, build_id);
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  SymbolizeStats name(profile::Profile& profile) {
    SymbolFiles files;
    files.add_folder(folder_);
    SymbolizeOptions how;
    how.symbol_files = &files;
    how.late = true;
    return symbolize(profile, how);
  }
  static std::string text(const profile::Profile& profile, std::size_t location) {
    std::string made;
    for (const profile::Line& line : profile.locations[location].lines)
      made += profile.functions[line.function].name + ":" + std::to_string(line.line) + " ";
    return made;
  }

  std::string folder_ = fs::path(::testing::TempDir()) / ("windlass-late-" + std::to_string(getpid()));
};

const std::map<std::uint64_t, GivenPlace> kCode{
    {0x401000, {0x401000, {{"inner", "/i.h", 1, 2}, {"outer", "/o.c", 5, 7}}}},
    {0x401010, {0x401000, {{"outer", "/o.c", 5, 9}}}},
    {0x401020, {0, {}}}};

TEST_F(LateNames, NameWhatHasNoSourceLine) {
  put("abcd1234", write(kCode));
  profile::Profile profile;
  profile.modules = {{.path = "/gone", .build_id = "abcd1234"}, {.path = "/other", .build_id = "ffff"}};
  profile.functions = {{.name = "exported", .system_name = "exported"}, {.name = "script", .system_name = "script"}};
  profile.locations = {{.module = 0, .address = 0x401004},                     // no name
                       {.module = 0, .address = 0x401014, .lines = {{0, 0}}},  // of .dynsym
                       {.module = 0, .address = 0x401018, .lines = {{0, 3}}},  // has a line
                       {.module = 0, .address = 0x401004, .lines = {{1, 4}}, .interpreted = true},
                       {.module = 0, .address = 0x401024},   // no code
                       {.module = 1, .address = 0x401004}};  // no file
  const auto stats = name(profile);
  EXPECT_EQ(text(profile, 0), "inner:2 outer:7 ");
  EXPECT_EQ(profile.locations[0].function_begin, 0x401000u);
  EXPECT_EQ(text(profile, 1), "outer:9 ");
  EXPECT_EQ(text(profile, 2), "exported:3 ");
  EXPECT_EQ(text(profile, 3), "inner:2 script:4 outer:7 ");
  EXPECT_EQ(text(profile, 4), "");
  EXPECT_EQ(text(profile, 5), "");
  EXPECT_TRUE(stats.notes.empty());
  const auto before = profile.locations;
  name(profile);  // a second time changes nothing
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(before[i].lines.size(), profile.locations[i].lines.size()) << i;
}

// Profiles of other tools have addresses of a process.
TEST_F(LateNames, AddressesOfAProcessAreThoseOfItsMapping) {
  put("abcd1234", write(kCode));
  profile::Profile profile;
  profile.modules = {
      {.path = "/gone", .build_id = "abcd1234", .begin = 0x7f0000001000, .end = 0x7f0000001100, .file_offset = 0x1000}};
  profile.locations = {{.module = 0, .address = 0x7f0000001014}};
  name(profile);
  EXPECT_EQ(text(profile, 0), "outer:9 ");
  EXPECT_EQ(profile.locations[0].function_begin, 0x7f0000001000u);
}

TEST_F(LateNames, AWrongOrDamagedFileIsSaid) {
  put("abcd1234", write(kCode, "ffff0000"));
  put("aaaa1111", write(kCode, "aaaa1111").substr(0, 70));
  profile::Profile profile;
  profile.modules = {{.path = "/gone", .build_id = "abcd1234"}, {.path = "/cut", .build_id = "aaaa1111"}};
  profile.locations = {{.module = 0, .address = 0x401004}, {.module = 1, .address = 0x401004}};
  const auto stats = name(profile);
  EXPECT_EQ(text(profile, 0), "");
  EXPECT_EQ(text(profile, 1), "");
  ASSERT_EQ(stats.notes.size(), 2u);
  std::string said;
  for (const std::string& note : stats.notes) said += note + "\n";
  EXPECT_NE(said.find("abcd1234: 0x0: the symbol file is of another program"), std::string::npos) << said;
  EXPECT_NE(said.find("aaaa1111: 0x46: the symbol file is cut short"), std::string::npos) << said;
}

// A place that comes first and has a damaged file does not hide another.
TEST_F(LateNames, ALaterPlaceIsAskedForADamagedFile) {
  put("abcd1234", "nothing");
  SymbolFiles files;
  files.add_folder(folder_);
  files.add("second", [](const std::string&) -> Expected<std::optional<SymbolBytes>> {
    return SymbolBytes{.mapped = {}, .copied = write(kCode)};
  });
  profile::Profile profile;
  profile.modules = {{.path = "/gone", .build_id = "abcd1234"}};
  profile.locations = {{.module = 0, .address = 0x401014}};
  SymbolizeOptions how;
  how.symbol_files = &files;
  how.late = true;
  const auto stats = symbolize(profile, how);
  EXPECT_EQ(text(profile, 0), "outer:9 ");
  EXPECT_EQ(stats.notes.size(), 1u);
}

// The symbol file of `written_from` has the names of symbolize(), at each byte of the code. `padding`: bytes between
// functions may have a name, too.
void expect_names_of(const std::string& path, std::size_t least, const std::string& written_from, bool padding) {
  const auto written = write_symbols(written_from);
  ASSERT_TRUE(written.has_value()) << written.error().text();
  auto file = wlsym::SymbolFile::parse(view_of(written->file));
  ASSERT_TRUE(file.has_value()) << file.error().text();
  profile::Profile live;
  live.modules = {{.path = path, .open_path = path, .build_id = written->build_id}};
  std::vector<std::uint64_t> addresses;
  for (std::uint64_t address = 0x400; address < 0x4000; ++address)
    live.locations.push_back({.module = 0, .address = address});
  symbolize(live);
  profile::Profile late = live;
  for (profile::Location& location : late.locations) location = {.module = 0, .address = location.address};
  late.functions.clear();
  SymbolFiles files;
  files.add("test", [&](const std::string&) -> Expected<std::optional<SymbolBytes>> {
    return SymbolBytes{.mapped = {}, .copied = written->file};
  });
  SymbolizeOptions how;
  how.symbol_files = &files;
  how.late = true;
  symbolize(late, how);
  std::size_t named = 0;
  for (std::size_t i = 0; i < live.locations.size(); ++i) {
    const auto &a = live.locations[i].lines, &b = late.locations[i].lines;
    if (padding && a.empty()) continue;
    ASSERT_EQ(a.size(), b.size()) << std::hex << live.locations[i].address;
    if (!a.empty()) {
      EXPECT_EQ(live.locations[i].function_begin, late.locations[i].function_begin);
    }
    for (std::size_t f = 0; f < a.size(); ++f) {
      const auto &mine = live.functions[a[f].function], &theirs = late.functions[b[f].function];
      ASSERT_EQ(a[f].line, b[f].line) << std::hex << live.locations[i].address;
      ASSERT_EQ(mine.name, theirs.name);
      ASSERT_EQ(mine.system_name, theirs.system_name);
      ASSERT_EQ(mine.file, theirs.file);
      ASSERT_EQ(mine.start_line, theirs.start_line);
    }
    named += a.empty() ? 0 : 1;
  }
  EXPECT_GT(named, least);
}
void expect_names_of(const std::string& path, std::size_t least) { expect_names_of(path, least, path, false); }

TEST(WriteSymbols, HasTheNamesOfEachByte) {
  expect_names_of(WINDLASS_INLINED, 300);
  expect_names_of(WINDLASS_INLINED_DWARF4, 300);
  expect_names_of(WINDLASS_INLINED_SPLIT, 300);
}

#ifdef WINDLASS_PDB_FOLDER
TEST(WriteSymbols, HasTheNamesOfWindowsImages) {
  for (const char* machine : {"x86_64", "aarch64"})
    expect_names_of(std::string(WINDLASS_PDB_FOLDER) + "/program-" + machine + ".exe", 100);
}

// The program has functions of an object file without debug information: public symbols alone name these.
TEST(WriteSymbols, APdbFileAloneHasTheNamesOfItsImage) {
  for (const char* machine : {"x86_64", "aarch64"}) {
    const std::string program = std::string(WINDLASS_PDB_FOLDER) + "/program-" + machine;
    expect_names_of(program + ".exe", 100, program + ".pdb", true);
  }
}
#endif

TEST(WriteSymbols, OtherFilesAreRefused) {
  EXPECT_EQ(write_symbols("/nonexistent").error().code, ErrorCode::kSystem);
  const std::string path = ::testing::TempDir() + "windlass-no-elf";
  std::ofstream(path) << "text";
  EXPECT_EQ(write_symbols(path).error().code, ErrorCode::kUnsupported);
  fs::remove(path);
}

}  // namespace
}  // namespace windlass::symbols
