// Every row of real binaries compared with `readelf -wF`.
//
// Where readelf (binutils 2.40) says less or something else than the rows, and what is compared instead:
//  - a register that the FDE mentions anywhere has a column in all its rows; "u" there means "undefined" or "nothing
//    said yet". Both compare equal to "u".
//  - an FDE whose instructions are all DW_CFA_nop is printed without rows: its one row must be its CIE's row.
//  - every advance prints a row, also one of zero length or at or past the FDE's end: such rows hold nowhere.
//  - expressions are only "exp"/"vexp": their text is compared with llvm-dwarfdump's in the other test.
//  - after a 64-bit length in .eh_frame it reads an 8-byte CIE id; the LSB says 4, and LLVM and gimli read 4. None of
//  these
//    files has one; test_dwarf does.
//  - FDEs of an empty range get a row; it holds nowhere.
#include <gtest/gtest.h>

#include <charconv>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "differential/peer.h"
#include "differential/row_text.h"
#include "formats/dwarf/lower.h"

namespace windlass {
namespace {

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t start = line.find_first_not_of(' ', at);
    if (start == std::string_view::npos) break;
    const std::size_t end = std::min(line.find(' ', start), line.size());
    words.push_back(line.substr(start, end - start));
    at = end;
  }
  return words;
}

std::uint64_t hex(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

struct PeerRow {
  std::uint64_t begin;
  std::vector<std::string> cells;  // CFA, then one a column
};

struct PeerEntry {
  bool is_cie = false;
  std::uint64_t offset = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<std::string> columns;
  std::vector<PeerRow> rows;
};

// Reads one section after another of readelf's output.
class ReadelfOutput {
 public:
  explicit ReadelfOutput(const std::string& path) : lines_("LC_ALL=C readelf -wNF '" + path + "' 2>/dev/null") {
    advance();
  }

  // Moves to the section of that name; false if there is none left.
  bool enter(std::string_view section) {
    const std::string heading = fmt::format("Contents of the {} section", section);
    while (line_ && !line_->starts_with(heading)) advance();
    if (!line_) return false;
    advance();
    return true;
  }

  bool next(PeerEntry& entry) {
    while (line_ && !line_->starts_with("Contents of the ")) {
      const auto words = split(*line_);
      const bool is_fde = words.size() >= 5 && words[3] == "FDE";
      const bool is_cie = words.size() >= 5 && words[3] == "CIE";
      if (!is_fde && !is_cie) {
        advance();
        continue;
      }
      entry = PeerEntry{};
      entry.is_cie = is_cie;
      entry.offset = hex(words[0]);
      if (is_fde) {
        const std::string_view range = words[5].substr(3);  // pc=...
        entry.begin = hex(range.substr(0, range.find("..")));
        entry.end = hex(range.substr(range.find("..") + 2));
      }
      advance();
      read_rows(entry);
      return true;
    }
    return false;
  }

 private:
  void read_rows(PeerEntry& entry) {
    for (; line_ && !line_->empty(); advance()) {
      const auto words = split(*line_);
      if (words.empty()) return;
      if (words[0] == "LOC") {
        entry.columns.assign(words.begin() + 2, words.end());
      } else if ((words[0].size() == 16 || words[0].size() == 8) && words.size() >= 2) {  // an ELF64's or ELF32's
        PeerRow row{hex(words[0]), {}};
        for (std::size_t i = 1; i < words.size(); ++i) {
          if (words[i][0] == '(')
            row.cells.back() += words[i];  // "r5 (rdi)"
          else
            row.cells.emplace_back(words[i]);
        }
        entry.rows.push_back(std::move(row));
      } else {
        return;
      }
    }
  }
  void advance() { line_ = lines_.next(); }

  peer::Lines lines_;
  std::optional<std::string_view> line_;
};

class Comparison {
 public:
  explicit Comparison(std::string name) : name_(std::move(name)) {}

  void section(const dwarf::CfiSection& section, ReadelfOutput& output) {
    architecture_ = section.architecture;
    const auto report = [&](const Error& error) { mismatch(error.text()); };
    dwarf::CfiReader reader(section, report);
    dwarf::RowEvaluator evaluator(section);
    dwarf::CfiReader::Entry ours;
    PeerEntry theirs;
    while (mismatches_ < 20 && reader.next(ours)) {
      if (!output.next(theirs)) return mismatch("readelf has fewer entries");
      const std::uint64_t offset = ours.cie != nullptr ? ours.cie->offset : ours.fde.offset;
      if (offset != theirs.offset || (ours.cie != nullptr) != theirs.is_cie)
        return mismatch(fmt::format("entry at {:#x}, readelf has one at {:#x}", offset, theirs.offset));
      if (theirs.is_cie)
        cies_[theirs.offset] = theirs;
      else
        compare(evaluator, ours.fde, theirs);
    }
    if (mismatches_ < 20 && output.next(theirs)) mismatch("readelf has more entries");
  }

  [[nodiscard]] std::uint64_t rows() const { return rows_; }
  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_; }

 private:
  void mismatch(const std::string& what) {
    if (++mismatches_ <= 20) ADD_FAILURE() << name_ << ": " << what;
  }

  void compare(dwarf::RowEvaluator& evaluator, const dwarf::Fde& fde, PeerEntry& theirs) {
    if (fde.begin != theirs.begin || fde.end != theirs.end)
      return mismatch(fmt::format("FDE {:#x}: range {:#x}..{:#x}, readelf has {:#x}..{:#x}", fde.offset, fde.begin,
                                  fde.end, theirs.begin, theirs.end));
    if (theirs.rows.empty() && fde.begin != fde.end) {  // all nops
      theirs.columns = cies_[fde.cie->offset].columns;
      theirs.rows = cies_[fde.cie->offset].rows;
      if (!theirs.rows.empty()) theirs.rows[0].begin = fde.begin;
    }
    drop_empty_rows(theirs);
    std::size_t index = 0;
    const auto done = evaluator.for_each_row(fde, [&](const FrameRow& row) {
      if (index < theirs.rows.size()) compare(row, theirs, theirs.rows[index]);
      ++index;
      ++rows_;
    });
    if (!done) mismatch(done.error().text());
    if (index != theirs.rows.size())
      mismatch(fmt::format("FDE {:#x}: {} rows, readelf has {}", fde.offset, index, theirs.rows.size()));
  }

  static void drop_empty_rows(PeerEntry& entry) {
    std::vector<PeerRow> kept;
    for (PeerRow& row : entry.rows) {
      if (!kept.empty() && kept.back().begin == row.begin) kept.pop_back();
      if (row.begin < entry.end) kept.push_back(std::move(row));
    }
    entry.rows = std::move(kept);
  }

  void compare(const FrameRow& row, const PeerEntry& entry, const PeerRow& theirs) {
    bool same = row.begin == theirs.begin && !theirs.cells.empty() &&
                theirs.cells[0] == peer::readelf_cfa(row.cfa, architecture_) &&
                theirs.cells.size() == entry.columns.size() + 1;
    std::size_t found = 0;
    for (std::size_t i = 0; same && i < entry.columns.size(); ++i) {
      const std::string& column = entry.columns[i];
      const RegisterRule* rule = &row.return_address;
      if (column == "ra") {
        // A leaf's return address is still in the link register: nothing was said, which is "u" here.
        if (architecture_ == Architecture::kAArch64 && *rule == RegisterRule::in_register(aarch64::kX30))
          rule = nullptr;
      } else {
        rule = row.registers.find(number(column));
        found += rule != nullptr ? 1 : 0;
      }
      same = peer::readelf_rule(rule, architecture_) == theirs.cells[i + 1];
    }
    if (!same || found != row.registers.size())
      mismatch(fmt::format("row at {:#x} differs from readelf's at {:#x}: {}", row.begin, theirs.begin,
                           fmt::join(theirs.cells, " ")));
  }

  RegisterNumber number(const std::string& column) {
    if (const auto known = register_number(architecture_, column)) return *known;
    return static_cast<RegisterNumber>(std::atoi(column.c_str() + 1));  // "r16"
  }

  std::string name_;
  Architecture architecture_ = Architecture::kX86_64;
  std::map<std::uint64_t, PeerEntry> cies_;
  std::uint64_t rows_ = 0;
  std::uint64_t mismatches_ = 0;
};

std::uint64_t compare_file(const std::string& name, const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) {
    ADD_FAILURE() << path << ": " << file.error().text();
    return 0;
  }
  const auto parsed = image::ElfImage::parse(file->bytes());
  if (!parsed) {
    ADD_FAILURE() << path << ": " << parsed.error().text();
    return 0;
  }
  const auto report = [&](const Error& error) { ADD_FAILURE() << path << ": " << error.text(); };
  const auto found = image::find_unwind_sections(*parsed, report);
  ReadelfOutput output(path);
  Comparison comparison(name);
  for (const dwarf::CfiSection& section : found.sections) {
    if (section.name.starts_with(".gnu_debugdata")) continue;  // readelf does not look inside
    EXPECT_TRUE(output.enter(section.name)) << name << " " << section.name;
    comparison.section(section, output);
  }
  fmt::print("{:>12}: {:>8} rows equal to readelf's, {} differ\n", name, comparison.rows(), comparison.mismatches());
  return comparison.rows();
}

TEST(RowsAgainstReadelf, RealBinaries) {
  if (!peer::have("readelf")) GTEST_SKIP() << "SKIPPED: no readelf on this machine";
  std::uint64_t rows = 0;
  std::string missing;
  for (const peer::Subject& subject : peer::subjects()) {
    if (subject.path.empty()) {
      missing += subject.name + " ";
      continue;
    }
    rows += compare_file(subject.name, subject.path);
  }
  for (const peer::Subject& subject : peer::i386_subjects()) {
    if (subject.path.empty())
      missing += subject.name + " ";
    else
      EXPECT_GT(compare_file(subject.name, subject.path), 5'000u) << subject.name;
  }
  fmt::print("{} rows compared with readelf -wF\n", rows);
  if (!missing.empty()) GTEST_SKIP() << "not all are on this machine: there is no " << missing;
  EXPECT_GE(rows, 500'000u);
}

// .debug_frame plain and compressed, every directive the assembler knows, AArch64, i386.
TEST(RowsAgainstReadelf, Fixtures) {
  if (!peer::have("readelf")) GTEST_SKIP() << "SKIPPED: no readelf on this machine";
  std::string missing;
  for (const char* name : {"eh.so", "debug.so", "debug-zlib.so", "debug-zstd.so", "directives.so", "arm64.so",
                           "i386.so", "i386-debug.so"}) {
    const std::string path = std::string(WINDLASS_FIXTURES) + "/" + name;
    if (::access(path.c_str(), R_OK) != 0) {
      missing += std::string(name) + " ";
      continue;
    }
    EXPECT_GT(compare_file(name, path), 15u) << name;
  }
  if (!missing.empty()) GTEST_SKIP() << "not all could be made on this machine: there is no " << missing;
}

// Any other files: WINDLASS_COMPARE="path path ...", for example every library of a machine.
TEST(RowsAgainstReadelf, FilesNamedInTheEnvironment) {
  const char* files = std::getenv("WINDLASS_COMPARE");
  if (files == nullptr) GTEST_SKIP() << "WINDLASS_COMPARE names no files";
  std::uint64_t rows = 0;
  for (const std::string_view path : split(files)) rows += compare_file(std::string(path), std::string(path));
  fmt::print("{} rows compared with readelf -wF\n", rows);
}

}  // namespace
}  // namespace windlass
