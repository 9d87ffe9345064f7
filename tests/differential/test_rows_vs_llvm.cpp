// Every row of real binaries, expressions included, compared with `llvm-dwarfdump --eh-frame`.
//
// Where llvm-dwarfdump deviates, and what is compared instead:
//  - LLVM 14 leaves the CFA as it is on DW_CFA_restore_state (20 of the first 60 FDEs of bash); 19 does not. Only 17
//    and newer are asked.
//  - DW_CFA_GNU_negative_offset_extended makes it refuse the whole file: directives.so is compared with readelf only.
//  - it stops the rows of an FDE whose program it rejects; none of these binaries has such a program.
//  - a row of zero length, or at or past the FDE's end, is printed: it holds nowhere and is left out.
//  - neighbouring advances without an instruction between them are not merged, nor are they here.
#include <gtest/gtest.h>

#include <charconv>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "differential/peer.h"
#include "differential/row_text.h"
#include "formats/dwarf/lower.h"

namespace windlass {
namespace {

struct PeerRow {
  std::uint64_t begin;
  std::string text;
};

struct PeerFde {
  std::uint64_t offset = 0;
  std::vector<PeerRow> rows;
};

class DwarfdumpOutput {
 public:
  DwarfdumpOutput(const std::string& program, const std::string& path)
      : lines_("LC_ALL=C " + program + " --eh-frame '" + path + "' 2>/dev/null") {
    do advance();
    while (line_ && *line_ != ".eh_frame contents:");
  }

  bool next(PeerFde& fde) {
    while (line_ && line_->find(" FDE cie=") == std::string_view::npos) advance();
    if (!line_) return false;
    fde = PeerFde{number(*line_), {}};
    advance();
    for (; line_ && line_->find(" FDE cie=") == std::string_view::npos && !line_->ends_with(" CIE"); advance()) {
      if (!line_->starts_with("  0x")) continue;
      const std::string_view text = line_->substr(2);
      fde.rows.push_back({number(text.substr(2)), std::string(text)});
    }
    return true;
  }

 private:
  static std::uint64_t number(std::string_view text) {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value, 16);
    return value;
  }
  void advance() { line_ = lines_.next(); }

  peer::Lines lines_;
  std::optional<std::string_view> line_;
};

struct Counts {
  std::uint64_t rows = 0;
  std::uint64_t mismatches = 0;
};

void compare_fde(dwarf::RowEvaluator& evaluator, const dwarf::Fde& fde, const PeerFde& theirs,
                 Architecture architecture, Counts& counts) {
  std::vector<std::string> expected;
  std::uint64_t last = ~std::uint64_t{0};
  for (const PeerRow& row : theirs.rows) {
    if (!expected.empty() && row.begin == last) expected.pop_back();
    last = row.begin;
    if (row.begin < fde.end) expected.push_back(row.text);
  }
  std::vector<std::string> ours;
  const auto done = evaluator.for_each_row(fde, [&](const FrameRow& row) {
    ours.push_back(peer::llvm_row(row, static_cast<RegisterNumber>(fde.cie->return_address_register), architecture));
  });
  counts.rows += ours.size();
  if (!done || ours != expected) {
    if (++counts.mismatches <= 20)
      ADD_FAILURE() << fmt::format("FDE {:#x}\nours:\n{}\ntheirs:\n{}", fde.offset, fmt::join(ours, "\n"),
                                   fmt::join(expected, "\n"));
  }
}

Counts compare_file(const std::string& program, const std::string& path) {
  Counts counts;
  const auto file = MappedFile::open(path);
  const auto parsed = file ? image::ElfImage::parse(file->bytes()) : Expected<image::ElfImage>(Failure(file.error()));
  const auto section = parsed ? image::find_eh_frame(*parsed) : Failure(parsed.error());
  if (!section) {
    ADD_FAILURE() << path << ": " << section.error().text();
    return counts;
  }
  const auto report = [&](const Error& error) { ADD_FAILURE() << path << ": " << error.text(); };
  dwarf::CfiReader reader(*section, report);
  dwarf::RowEvaluator evaluator(*section);
  DwarfdumpOutput output(program, path);
  PeerFde theirs;
  for (dwarf::Fde fde; counts.mismatches < 20 && reader.next_fde(fde);) {
    if (!output.next(theirs) || theirs.offset != fde.offset) {
      ADD_FAILURE() << fmt::format("{}: no FDE at {:#x} in llvm-dwarfdump's output", path, fde.offset);
      return counts;
    }
    compare_fde(evaluator, fde, theirs, section->architecture, counts);
  }
  if (counts.mismatches < 20 && output.next(theirs))
    ADD_FAILURE() << fmt::format("{}: llvm-dwarfdump has an FDE at {:#x} more", path, theirs.offset);
  return counts;
}

std::string newest_dwarfdump() {
  for (int version = 22; version >= 17; --version) {
    const std::string program = fmt::format("llvm-dwarfdump-{}", version);
    if (peer::have(program)) return program;
  }
  return {};
}

TEST(RowsAgainstLlvmDwarfdump, RealBinaries) {
  const std::string program = newest_dwarfdump();
  if (program.empty()) GTEST_SKIP() << "SKIPPED: no llvm-dwarfdump of version 17 or later on this machine";
  std::uint64_t rows = 0;
  std::string missing;
  for (const peer::Subject& subject : peer::subjects()) {
    if (subject.path.empty()) {
      missing += subject.name + " ";
      continue;
    }
    const Counts counts = compare_file(program, subject.path);
    fmt::print("{:>12}: {:>8} rows equal to llvm-dwarfdump's, {} FDEs differ\n", subject.name, counts.rows,
               counts.mismatches);
    rows += counts.rows;
  }
  fmt::print("{} rows compared with {} --eh-frame\n", rows, program);
  if (!missing.empty()) GTEST_SKIP() << "not all are on this machine: there is no " << missing;
}

TEST(RowsAgainstLlvmDwarfdump, Fixtures) {
  const std::string program = newest_dwarfdump();
  if (program.empty()) GTEST_SKIP() << "SKIPPED: no llvm-dwarfdump of version 17 or later on this machine";
  std::string missing;
  for (const char* name : {"eh.so", "arm64.so"}) {  // AArch64: signed return addresses too
    const std::string path = std::string(WINDLASS_FIXTURES) + "/" + name;
    if (::access(path.c_str(), R_OK) != 0) {
      missing += std::string(name) + " ";
      continue;
    }
    const Counts counts = compare_file(program, path);
    EXPECT_GT(counts.rows, 400u) << name;
    fmt::print("{:>12}: {:>8} rows equal to llvm-dwarfdump's, {} FDEs differ\n", name, counts.rows, counts.mismatches);
  }
  if (!missing.empty()) GTEST_SKIP() << "not all could be made on this machine: there is no " << missing;
}

}  // namespace
}  // namespace windlass
