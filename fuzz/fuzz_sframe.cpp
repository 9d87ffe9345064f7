// Input: an .sframe section. Its rows are read in both ways there are, and written again.
#include <cstring>
#include <vector>

#include "check.h"
#include "formats/sframe/read.h"
#include "windlass/format/sframe.h"

namespace windlass::fuzz {
namespace {

constexpr std::uint64_t kAddress = 0x10000;

bool same(const RegisterRules& a, const RegisterRules& b) {
  auto other = b.begin();
  for (const RegisterEntry entry : a) {
    if (other == b.end() || (*other).reg != entry.reg || !((*other).rule == entry.rule)) return false;
    ++other;
  }
  return other == b.end();
}
bool same(const FrameRow& a, const FrameRow& b) {
  return a.begin == b.begin && a.end == b.end && a.cfa == b.cfa && a.return_address == b.return_address &&
         a.signal_frame == b.signal_frame && a.return_signed == b.return_signed && same(a.registers, b.registers);
}

// The rows of a function, which are ascending and in it; each is found at both of its ends.
std::vector<FrameRow> rows_of(const sframe::Section& section, const sframe::Function& function) {
  constexpr std::size_t kLookedUp = 64;
  std::vector<FrameRow> rows;
  std::uint64_t expected = function.begin;
  bool adjoin = true;
  const auto add = [&](const FrameRow& row) {
    FUZZ_CHECK(row.begin >= expected && row.end > row.begin && row.end <= function.end);
    adjoin = adjoin && (rows.empty() || row.begin == expected);
    expected = row.end;
    if (rows.size() < kLookedUp) {
      for (const std::uint64_t at : {row.begin, row.end - 1}) {
        FrameRow there;
        FUZZ_CHECK(section.row_at(function, at, there) && same(there, row));
      }
    }
    rows.push_back(row);
  };
  if (!section.for_each_row(function, add) || !adjoin) rows.clear();
  return rows;
}

// What is written from rows says what they say: rows that say the same are one then.
void check_written(const sframe::Section& section, const sframe::Function& function, std::vector<FrameRow> rows,
                   sframe::Version version) {
  sframe::Writer writer({.architecture = section.architecture(), .version = version, .address = kAddress});
  if (!writer.add(rows, rows[0].begin)) return;
  const auto bytes = std::move(writer).take();
  if (!bytes) return;
  const auto again = sframe::Section::parse(ByteView(bytes->data(), bytes->size()), kAddress);
  FUZZ_CHECK(again && again->size() == 1);
  const auto written = again->function(0);
  FUZZ_CHECK(written && written->begin == rows[0].begin && written->end == rows.back().end &&
             written->signal_frame == function.signal_frame);
  std::size_t at = 0;
  const auto compare = [&](const FrameRow& row) {
    FrameRow merged = row;
    for (; at < rows.size() && rows[at].begin < row.end; ++at) {
      merged.begin = rows[at].begin, merged.end = rows[at].end;
      // Of a function without a caller only that is said.
      if (row.return_address.is(RegisterRule::kUndefined))
        FUZZ_CHECK(rows[at].return_address.is(RegisterRule::kUndefined));
      else
        FUZZ_CHECK(same(merged, rows[at]));
    }
  };
  FUZZ_CHECK(again->for_each_row(*written, compare) && at == rows.size());
}

}  // namespace
}  // namespace windlass::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const auto section = sframe::Section::parse(ByteView(reinterpret_cast<const std::byte*>(data), size), fuzz::kAddress);
  if (!section) return 0;
  std::size_t functions = 0, errors = 0;
  const auto report = [&](const Error& error) {
    ++errors;
    FUZZ_CHECK(error.what != nullptr && error.what[0] != 0);
  };
  const auto each = [&](const sframe::Function& function) {
    FUZZ_CHECK(function.end >= function.begin);
    constexpr std::uint64_t kMostRepeated = 1000;  // what bounds the time of a run
    if (function.block != 0 && (function.end - function.begin) / function.block > kMostRepeated) return true;
    const std::vector<FrameRow> rows = fuzz::rows_of(*section, function);
    if (!rows.empty()) {
      fuzz::check_written(*section, function, rows, sframe::Version::k3);
      fuzz::check_written(*section, function, rows, sframe::Version::k2);
    }
    FrameRow row;
    for (const std::uint64_t at : {function.begin, function.begin + 3, function.end - 1})
      if (const auto found = section->find(at)) {
        FUZZ_CHECK(at >= found->begin && at < found->end);
        (void)section->row_at(*found, at, row);
      }
    return ++functions < 256;
  };
  section->for_each_function(each, report);
  FUZZ_CHECK(functions + errors <= std::size_t{section->size()} + 1);
  return 0;
}
