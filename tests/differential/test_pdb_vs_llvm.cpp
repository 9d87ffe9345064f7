// Names from PDB files compared with LLVM's tools, address by address.
//
// - Programs of LLVM's linker: functions, inlined calls, files and lines against the DWARF of the same code, as
//   llvm-symbolizer reads it. Where the peer has line 0, CodeView goes on with the line before: those are left out.
// - Programs of Microsoft's linker, from npm packages: procedures, ranges of inlined calls and lines against the dump
// of
//   llvm-pdbutil. llvm-symbolizer itself crashes on these files (19.1.7).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "differential/peer.h"
#include "formats/image/pe.h"
#include "formats/pdb/pdb.h"
#include "formats/wlsym/wlsym.h"
#include "support/pe_corpora.h"
#include "symbols/write_symbols.h"

namespace windlass {
namespace {

using pdb::PdbFile;

std::string bytes_of_code(const std::string& path) {
  const auto file = MappedFile::open(path);
  const auto image = image::PeImage::parse(file->bytes());
  std::string code;
  for (const image::PeSection& section : image->sections()) {
    if (!section.executable()) continue;
    const auto bytes = image->at_rva(section.rva, section.virtual_size).value();
    code.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return code;
}

struct PeerFrame {
  std::string function, file;
  std::uint32_t line;
};

std::vector<std::vector<PeerFrame>> by_dwarf(const std::string& path, std::uint32_t begin, std::uint32_t end) {
  const std::string input = ::testing::TempDir() + "windlass-pdb-addresses";
  std::ofstream file(input);
  for (std::uint32_t rva = begin; rva < end; ++rva) file << fmt::format("{:#x}\n", rva);
  file.close();
  std::vector<std::vector<PeerFrame>> stacks;
  peer::Lines lines(fmt::format(
      "llvm-symbolizer-19 --obj='{}' --relative-address --functions=short --output-style=GNU -a <{}", path, input));
  std::string function;
  bool is_name = true;
  while (const auto line = lines.next()) {
    if (line->starts_with("0x")) {
      stacks.emplace_back();
    } else if (is_name) {
      function = *line;
      is_name = false;
    } else {
      const std::string at(*line);
      const auto colon = at.rfind(':');
      stacks.back().push_back({function, at.substr(0, colon),
                               static_cast<std::uint32_t>(std::strtoul(at.c_str() + colon + 1, nullptr, 10))});
      is_name = true;
    }
  }
  return stacks;
}

bool same(const pdb::NamedCode& mine, const PeerFrame& peer) {
  const bool name = mine.function == peer.function || mine.function.ends_with("::" + peer.function);
  // CodeView gives the function's first line no code, where DWARF gives it instructions before the prologue's end.
  return name && (mine.line == peer.line || mine.function_line == peer.line) && mine.file == peer.file;
}

// The symbol file that is written of a PDB file has the same names.
void expect_same(wlsym::SymbolFile& symbols, std::uint32_t rva, const pdb::NamedProcedure& pdb) {
  const auto place = symbols.at(rva);
  ASSERT_TRUE(place) << place.error().text();
  ASSERT_EQ(place->frames.size(), pdb.frames.size()) << fmt::format("{:#x}", rva);
  EXPECT_EQ(place->begin, pdb.begin);
  for (std::size_t i = 0; i < pdb.frames.size(); ++i) {
    const auto function = symbols.function(place->frames[i].function);
    ASSERT_TRUE(function) << function.error().text();
    EXPECT_EQ(function->name, pdb.frames[i].function);
    EXPECT_EQ(function->file, pdb.frames[i].file.empty() ? pdb.frames[i].function_file : pdb.frames[i].file);
    EXPECT_EQ(place->frames[i].line, pdb.frames[i].line) << fmt::format("{:#x}", rva);
  }
}

class PdbVsDwarf : public ::testing::TestWithParam<const char*> {};

TEST_P(PdbVsDwarf, EveryAddress) {
  if (!peer::have("llvm-symbolizer-19")) GTEST_SKIP() << "llvm-symbolizer-19 is not installed";
  const std::string folder = WINDLASS_PDB_FOLDER "/", machine = GetParam();
  const std::string program = folder + "program-" + machine + ".exe", dwarf = folder + "dwarf-" + machine + ".exe";
  ASSERT_EQ(bytes_of_code(program), bytes_of_code(dwarf)) << "the two programs have different code";
  const auto file = MappedFile::open(folder + "program-" + machine + ".pdb");
  auto pdb = PdbFile::parse(file->bytes());
  ASSERT_TRUE(pdb) << pdb.error().text();
  const auto begin = std::uint32_t{0x1000};
  const auto stacks = by_dwarf(dwarf, begin, begin + static_cast<std::uint32_t>(bytes_of_code(dwarf).size()));
  const auto written = symbols::write_symbols(folder + "program-" + machine + ".pdb");
  ASSERT_TRUE(written) << written.error().text();
  auto symbols = wlsym::SymbolFile::parse(
      ByteView(reinterpret_cast<const std::byte*>(written->file.data()), written->file.size()));
  ASSERT_TRUE(symbols) << symbols.error().text();
  EXPECT_EQ(symbols->build_id(), *PdbFile::identity_of(file->bytes()));
  std::size_t compared = 0, inlined = 0;
  for (std::uint32_t i = 0; i < stacks.size(); ++i) {
    const auto& peers = stacks[i];
    // "??" is padding behind a function.
    const auto is_unknown = [](const PeerFrame& frame) { return frame.line == 0 || frame.function == "??"; };
    if (peers.empty() || std::ranges::any_of(peers, is_unknown)) continue;
    const auto mine = pdb->procedure_at(begin + i, true);
    ASSERT_TRUE(mine) << fmt::format("{:#x}", begin + i);
    ASSERT_EQ(mine->frames.size(), peers.size()) << fmt::format("{:#x}", begin + i);
    for (std::size_t frame = 0; frame < peers.size(); ++frame)
      EXPECT_TRUE(same(mine->frames[frame], peers[frame])) << fmt::format(
          "{:#x}: {} {}:{}, DWARF has {} {}:{}", begin + i, mine->frames[frame].function, mine->frames[frame].file,
          mine->frames[frame].line, peers[frame].function, peers[frame].file, peers[frame].line);
    expect_same(*symbols, begin + i, *mine);
    ++compared;
    inlined += peers.size() > 1;
  }
  std::printf("%s: %zu addresses, %zu with inlined calls\n", machine.c_str(), compared, inlined);
  EXPECT_GT(compared, 100U);
  EXPECT_GT(inlined, 20U);
}

INSTANTIATE_TEST_SUITE_P(Machines, PdbVsDwarf, ::testing::Values("x86_64", "aarch64"));

// What llvm-pdbutil dumps.
struct DumpedSite {
  std::string name;  // cut by "..." if it is long; empty: of another module, which the dump does not name
  struct Range {
    std::uint32_t begin, end;
  };
  std::vector<Range> ranges;
  [[nodiscard]] bool contains(std::uint32_t offset) const {
    return std::ranges::any_of(ranges, [&](const Range& range) { return range.begin <= offset && offset < range.end; });
  }
};
struct DumpedProcedure {
  std::string name;
  std::uint32_t begin = 0, size = 0;  // begin is 0 for code that the linker left out
  std::vector<DumpedSite> sites;
};

class Dump {
 public:
  explicit Dump(const std::string& path) {
    read_sections(path);
    read_symbols(path);
    read_lines(path);
  }
  std::vector<DumpedProcedure> procedures;
  std::map<std::uint32_t, std::set<std::uint32_t>> lines;  // of each address at which one begins
  // Has the linker merged functions there? Then any of their lines is right.
  [[nodiscard]] bool is_merged(std::uint32_t rva) const {
    return std::ranges::any_of(runs_, [&](const auto& run) {
      const auto& [begin, known] = run;
      return known.second > 1 && begin <= rva && rva < known.first;
    });
  }

 private:
  void read_sections(const std::string& path) {
    peer::Lines dump("llvm-pdbutil-19 dump -section-headers '" + path + "'");
    while (const auto line = dump.next()) {
      if (line->find("Original") != std::string_view::npos) break;
      if (line->ends_with(" virtual address"))
        sections_.push_back(static_cast<std::uint32_t>(std::strtoul(line->data(), nullptr, 16)));
    }
  }
  // "0001:2400", in decimal or hexadecimal digits; 0: of no section.
  [[nodiscard]] std::uint32_t rva_of(const std::string& place, int base) const {
    const std::size_t section = std::strtoul(place.c_str(), nullptr, 10);
    const auto offset = std::strtoul(place.c_str() + place.find(':') + 1, nullptr, base);
    return section == 0 || section > sections_.size() ? 0 : sections_[section - 1] + static_cast<std::uint32_t>(offset);
  }

  void read_symbols(const std::string& path) {
    static const std::regex kRecord(R"(^\s*\d+ \| (S_\w+) \[size = \d+\](?: `(.*)`)?$)");
    static const std::regex kPlace(R"(addr = (\d+:\d+), code size = (\d+))");
    static const std::regex kInlinee(R"(inlinee = 0x[0-9A-F]+ \((.*)\), parent)");
    peer::Lines dump("llvm-pdbutil-19 dump -symbols '" + path + "'");
    bool in_site = false;
    while (const auto view = dump.next()) {
      const std::string line(*view);
      std::smatch match;
      if (line.find(" | S_") != std::string::npos && std::regex_match(line, match, kRecord)) {
        in_site = match[1] == "S_INLINESITE" || match[1] == "S_INLINESITE2";
        if (match[1] == "S_GPROC32" || match[1] == "S_LPROC32") procedures.push_back({.name = match[2], .sites = {}});
        if (in_site) procedures.back().sites.emplace_back();
      } else if (line.find("code size = ") != std::string::npos && std::regex_search(line, match, kPlace)) {
        procedures.back().begin = rva_of(match[1], 10);
        procedures.back().size = static_cast<std::uint32_t>(std::stoul(match[2]));
      } else if (in_site) {
        DumpedSite& site = procedures.back().sites.back();
        if (std::regex_search(line, match, kInlinee)) site.name = match[1];
        add_range(line, site);
      }
    }
  }

  // "0C0A24    code 0x44 (+0x24) code end 0x4E (+0xA)"
  static void add_range(const std::string& line, DumpedSite& site) {
    static const std::regex kCode(R"(code (end )?0x([0-9A-F]+))");
    for (std::sregex_iterator at(line.begin(), line.end(), kCode), end; at != end; ++at) {
      const auto offset = static_cast<std::uint32_t>(std::stoul((*at)[2], nullptr, 16));
      if (!site.ranges.empty() && site.ranges.back().end == ~0U) site.ranges.back().end = offset;
      if (!(*at)[1].matched) site.ranges.push_back({offset, ~0U});
    }
  }

  // "  0001:0000AB00-0000AB3C, line/addr entries = 8", then "    33 0000AB00     36 0000AB09 "
  void read_lines(const std::string& path) {
    static const std::regex kRun(R"(^\s*(\d+:)([0-9A-F]+)-([0-9A-F]+), line/)");
    static const std::regex kLine(R"((\d+)(?:-\d+)?[ !]+([0-9A-F]{8})\b)");
    peer::Lines dump("llvm-pdbutil-19 dump -l '" + path + "'");
    std::string section;
    while (const auto view = dump.next()) {
      const std::string line(*view);
      std::smatch match;
      if (std::regex_search(line, match, kRun)) {
        section = match[1];
        auto& known = runs_[rva_of(section + match[2].str(), 16)];
        known = {rva_of(section + match[3].str(), 16), known.second + 1};
      } else if (line.starts_with("  ") && !section.empty()) {
        for (std::sregex_iterator at(line.begin(), line.end(), kLine), end; at != end; ++at)
          lines[rva_of(section + (*at)[2].str(), 16)].insert(static_cast<std::uint32_t>(std::stoul((*at)[1])));
      } else {
        section.clear();
      }
    }
  }

  std::vector<std::uint32_t> sections_;
  std::map<std::uint32_t, std::pair<std::uint32_t, int>> runs_;  // by begin: the end, how many
};

bool same_inlined(const std::string& mine, std::string peer) {
  if (peer.ends_with("...")) return mine.find(peer.substr(0, peer.size() - 3)) != std::string::npos;
  return peer.empty() ? !mine.empty() : mine == peer || mine.ends_with("::" + peer);
}

// Does the procedure name the address as the frames do?
bool same(const std::vector<pdb::NamedCode>& frames, const DumpedProcedure& procedure, std::uint32_t offset) {
  std::vector<const DumpedSite*> sites;
  for (const DumpedSite& site : procedure.sites)
    if (site.contains(offset)) sites.insert(sites.begin(), &site);
  if (frames.size() != sites.size() + 1 || frames.back().function != procedure.name) return false;
  for (std::size_t i = 0; i < sites.size(); ++i)
    if (!same_inlined(frames[i].function, sites[i]->name)) return false;
  return true;
}

// Every third byte of each procedure. Identical functions that the linker has merged have several names.
void compare_procedures(PdbFile& pdb, const Dump& dump, const std::string& name) {
  std::map<std::uint32_t, std::vector<const DumpedProcedure*>> by_begin;
  for (const DumpedProcedure& procedure : dump.procedures)
    if (procedure.begin != 0) by_begin[procedure.begin].push_back(&procedure);
  std::size_t compared = 0, inlined = 0, different = 0;
  for (const auto& [begin, merged] : by_begin)
    for (std::uint32_t offset = 0; offset < merged.front()->size; offset += 3) {
      const auto mine = pdb.procedure_at(begin + offset, true);
      const bool is_same =
          mine && mine->begin == begin && std::ranges::any_of(merged, [&](const DumpedProcedure* procedure) {
            return same(mine->frames, *procedure, offset);
          });
      ++compared;
      inlined += mine && mine->frames.size() > 1;
      if (!is_same && ++different <= 4)
        ADD_FAILURE() << fmt::format("{}: {:#x} in {}", name, begin + offset, merged.front()->name);
    }
  std::printf("%s: %zu procedures, %zu addresses, %zu with inlined calls, %zu different\n", name.c_str(),
              by_begin.size(), compared, inlined, different);
  EXPECT_EQ(different, 0U);
  EXPECT_GT(inlined, 1000U);
}

// Each address at which a line begins. Several lines there: one of these.
void compare_lines(PdbFile& pdb, const Dump& dump, const std::string& name) {
  std::size_t compared = 0, different = 0;
  for (const auto& [rva, lines] : dump.lines) {
    const auto mine = rva != 0 ? pdb.procedure_at(rva, true) : std::nullopt;
    if (!mine || dump.is_merged(rva)) continue;
    const std::uint32_t line = mine->frames.back().line;
    const bool hidden = lines.contains(pdb::kNeverStep) || lines.contains(pdb::kAlwaysStep);
    ++compared;
    if (!lines.contains(line) && !(line == 0 && hidden) && ++different <= 4)
      ADD_FAILURE() << fmt::format("{}: {:#x} has line {}, not {}", name, rva, line, *lines.begin());
  }
  std::printf("%s: %zu lines, %zu different\n", name.c_str(), compared, different);
  EXPECT_EQ(different, 0U);
  EXPECT_GT(compared, 1000U);
}

TEST(PdbVsLlvm, ProgramsOfMicrosoftsLinker) {
  if (!peer::have("llvm-pdbutil-19")) GTEST_SKIP() << "llvm-pdbutil-19 is not installed";
  const std::string folder = WINDLASS_PE_CORPORA "/node-pty/prebuilds";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".pdb") continue;
    const std::string name = entry.path().parent_path().filename() / entry.path().filename();
    const auto file = MappedFile::open(entry.path());
    auto pdb = PdbFile::parse(file->bytes());
    ASSERT_TRUE(pdb) << name << ": " << pdb.error().text();
    const Dump dump(entry.path());
    compare_procedures(*pdb, dump, name);
    compare_lines(*pdb, dump, name);
    ++files;
  }
  EXPECT_EQ(files, 10U);
}

}  // namespace
}  // namespace windlass
