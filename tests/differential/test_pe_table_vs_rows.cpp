// Every row of real PE images, found again in the compiled table at every address, and leaf rows where there are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/winarm64/lower.h"
#include "formats/winx64/lower.h"
#include "lookup/table/builder.h"
#include "lookup/table/compile.h"
#include "lookup/table/compile_pe.h"
#include "lookup/table/project.h"
#include "support/pe_corpora.h"

namespace windlass::table {
namespace {

struct Tally {
  std::uint64_t functions = 0, rows = 0, table_rows = 0, addresses = 0, wrong = 0, bytes = 0, leaf_bytes = 0,
                pushed_bytes = 0;
  std::uint64_t without_row = 0, hidden = 0;
};

class File {
 public:
  File(const std::string& name, const image::PeImage& image, const UnwindTable& table, Tally& tally)
      : name_(name), image_(image), source_(sources::make_source(image)), table_(table), tally_(tally) {}

  void hold() {
    const bool arm64 = image_.machine() == image::PeMachine::kArm64;
    arm64 ? hold_arm64() : hold_x64();
    cover_go();
    hold_gaps(arm64);
    tally_.bytes += table_.bytes();
    tally_.table_rows += table_.stats().rows;
  }

 private:
  // One entry's rows at every address (ARM64: instruction), and what they leave out.
  void entry(std::uint64_t begin, std::uint64_t end, const std::vector<FrameRow>& rows, Architecture architecture) {
    const unsigned step = architecture == Architecture::kX86_64 ? 1 : 4;
    std::uint64_t at = begin;
    for (const FrameRow& row : rows) {
      for (; at < row.begin; at += step) missing(at);
      const TraceRule want = project(row, architecture, table_.x_reg());
      for (; at < row.end; at += step) {
        ++tally_.addresses;
        const TraceRule& got = table_.find(at);
        if (std::memcmp(&got, &want, sizeof want) == 0) continue;
        if (++tally_.wrong <= 5)
          ADD_FAILURE() << name_ << ": " << std::hex << at << ": cfa kind " << int{got.cfa_kind} << "/"
                        << int{want.cfa_kind} << " reg " << int{got.cfa_reg} << "/" << int{want.cfa_reg} << " offset "
                        << got.cfa_offset << "/" << want.cfa_offset;
      }
    }
    for (; at < end; at += step) missing(at);
    tally_.rows += rows.size();
    ++tally_.functions;
  }
  // Never the leaf rule: user space.
  void missing(std::uint64_t at) {
    ++tally_.without_row;
    const TraceRule& got = table_.find(at);
    if (got.cfa_kind != WL_CFA_UNSUPPORTED && ++tally_.wrong <= 5)
      ADD_FAILURE() << name_ << ": " << std::hex << at << " has no row and cfa kind " << int{got.cfa_kind};
  }

  struct Entry {
    std::uint64_t begin, end;
    std::size_t stored;
  };
  // Entries that share addresses with no other.
  template <typename Callback>
  void each_alone(std::vector<Entry> entries, Callback&& callback) {
    std::ranges::sort(entries, {}, &Entry::begin);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Entry& e = entries[i];
      if ((i != 0 && covered_.back().end > e.begin) || (i + 1 < entries.size() && entries[i + 1].begin < e.end))
        ++tally_.hidden;
      else
        callback(e);
      if (covered_.empty() || covered_.back().end < e.begin)
        covered_.push_back({e.begin, e.end});
      else
        covered_.back().end = std::max(covered_.back().end, e.end);
    }
  }

  void hold_x64() {
    const winx64::Functions functions(image_);
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < functions.size(); ++i)
      if (const auto f = functions.stored(i); f.begin < f.end && in_code(f.begin, f.end))
        entries.push_back({f.begin, f.end, i});
    std::vector<FrameRow> rows;
    each_alone(std::move(entries), [&](const Entry& e) {
      rows.clear();
      const auto keep = [&](const FrameRow& row) { rows.push_back(row); };
      if (const auto known = go_function_at(e.begin); known)
        source_->for_each_row(*known, keep, [](const Error&) {});
      else
        winx64::lower(functions, functions.stored(e.stored), keep, [](const Error&) {});
      entry(e.begin, e.end, rows, Architecture::kX86_64);
    });
  }

  void hold_arm64() {
    const winarm64::Functions functions(image_);
    winarm64::RowEvaluator evaluator(functions);
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < functions.size(); ++i) {
      winarm64::Expansion storage;
      const auto record = winarm64::read_record(image_, functions.stored(i), storage);
      const std::uint64_t begin = functions.stored(i).begin;
      if (record && record->length != 0 && in_code(begin, begin + record->length))
        entries.push_back({begin, begin + record->length, i});
    }
    std::vector<FrameRow> rows;
    each_alone(std::move(entries), [&](const Entry& e) {
      rows.clear();
      (void)evaluator.for_each_row(
          functions.stored(e.stored), [&](const FrameRow& row) { rows.push_back(row); }, [](const Error&) {});
      entry(e.begin, e.end, rows, Architecture::kAArch64);
    });
  }

  // A table of Go's goes before .pdata.
  [[nodiscard]] std::optional<sources::Function> go_function_at(std::uint64_t rva) const {
    const auto found = source_->function_at(rva);
    if (!found || found->record.section != RecordPlace::kGoFunctions) return std::nullopt;
    return *found;
  }

  void cover_go() {
    const auto is_go = [](const sources::Function& function) {
      return function.record.section == RecordPlace::kGoFunctions;
    };
    const auto cover = [&](const sources::Function& function) {
      if (is_go(function)) covered_.push_back({function.begin, function.end});
      return true;
    };
    source_->for_each_function(cover, [](const Error&) {});
    std::ranges::sort(covered_, {}, &AddressRange::begin);
    std::vector<AddressRange> apart;
    for (const AddressRange& range : covered_)
      if (apart.empty() || apart.back().end < range.begin)
        apart.push_back(range);
      else
        apart.back().end = std::max(apart.back().end, range.end);
    covered_ = std::move(apart);
  }

  [[nodiscard]] bool in_code(std::uint64_t begin, std::uint64_t end) const {
    for (const image::PeSection& section : image_.sections())
      if (section.executable() && begin >= section.rva && end <= std::uint64_t{section.rva} + section.virtual_size)
        return true;
    return false;
  }

  // Code between functions has the leaf rule at every address; padding what stands before it.
  void hold_gaps(bool arm64) {
    for (std::size_t i = 1; i < covered_.size(); ++i) {
      const std::uint64_t begin = covered_[i - 1].end, end = covered_[i].begin;
      if (begin >= end || !in_code(begin, end)) continue;
      const auto bytes = image_.at_rva(static_cast<std::uint32_t>(begin), end - begin);
      if (!bytes) continue;
      const std::size_t padding = padding_size(*bytes, arm64);
      for (std::uint64_t at = begin + padding; at < end; ++at) {
        ++tally_.leaf_bytes;
        const TraceRule& got = table_.find(at);
        const bool leaf = arm64 ? got.cfa_kind == WL_CFA_REG && got.cfa_reg == 31 && got.cfa_offset == 0 &&
                                      got.ra_kind == WL_REG_IN_REG && got.ra_offset == 30
                                : is_x64_leaf(got);
        if (!leaf && ++tally_.wrong <= 5) ADD_FAILURE() << name_ << ": " << std::hex << at << " is no leaf";
      }
    }
  }

  // Or what assembly has pushed.
  bool is_x64_leaf(const TraceRule& rule) {
    const bool known = rule.cfa_kind == WL_CFA_REG && rule.cfa_reg == 7 && rule.cfa_offset >= 8 &&
                       rule.ra_kind == WL_REG_CFA && rule.ra_offset == -8;
    if (known && rule.cfa_offset == 8 && rule.fp_kind == WL_REG_SAME) return true;
    ++tally_.pushed_bytes;
    return known || rule.cfa_kind == WL_CFA_UNSUPPORTED;
  }

  std::string name_;
  const image::PeImage& image_;
  std::unique_ptr<sources::UnwindSource> source_;
  const UnwindTable& table_;
  Tally& tally_;
  std::vector<AddressRange> covered_;
};

void hold_machine(image::PeMachine machine) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 10, machine);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  for (const test::PeCorpus& corpus : corpora) {
    Tally tally;
    std::string registers;
    for (const std::string& path : corpus.files) {
      const auto file = MappedFile::open(path);
      ASSERT_TRUE(file);
      const auto image = image::PeImage::parse(file->bytes());
      ASSERT_TRUE(image);
      const auto table = compile(*sources::make_source(*image),
                                 [&](const Error& error) { ADD_FAILURE() << path << ": " << error.text(); });
      ASSERT_TRUE(table) << table.error().text();
      if (table->x_reg() != WL_NO_XREG && registers.size() < 60)
        registers += " " + std::string(register_name(Architecture::kX86_64, table->x_reg()));
      File(path.substr(path.rfind('/') + 1), *image, *table, tally).hold();
    }
    std::printf(
        "%-14s %zu files, %lu functions (%lu overlapping), %lu rows; %lu addresses, %lu bytes without an entry (%lu "
        "not as a leaf), %lu without a row: "
        "%lu wrong; table: %lu rows, %.3f bytes a row; extra registers:%s\n",
        corpus.name.c_str(), corpus.files.size(), tally.functions, tally.hidden, tally.rows, tally.addresses,
        tally.leaf_bytes, tally.pushed_bytes, tally.without_row, tally.wrong, tally.table_rows,
        static_cast<double>(tally.bytes) / static_cast<double>(std::max<std::uint64_t>(tally.table_rows, 1)),
        registers.c_str());
    EXPECT_EQ(tally.wrong, 0u) << corpus.name;
    EXPECT_LT(tally.without_row * 1000, tally.addresses) << corpus.name;
  }
}

TEST(PeTableVsRows, X64) { hold_machine(image::PeMachine::kAmd64); }
TEST(PeTableVsRows, Arm64) { hold_machine(image::PeMachine::kArm64); }

}  // namespace
}  // namespace windlass::table
