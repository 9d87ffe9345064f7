// What compilers wrote, decoded and written again: the same bytes where theirs are the smallest, never more, and the
// same frame at every instruction.
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/winarm64/frame_codes.h"
#include "formats/winarm64/lower.h"
#include "support/pe_corpora.h"

namespace windlass {
namespace {

using winarm64::RuntimeFunction;
using winarm64::UnwindRecord;

struct Counts {
  std::size_t entries = 0, records = 0, same = 0, rewritten = 0;
  std::size_t theirs = 0, ours = 0;          // bytes of entries and records, equal records once
  std::size_t our_each = 0, their_each = 0;  // with a record for each entry
  std::size_t packed_theirs = 0, packed_ours = 0, words = 0;
  std::map<std::string, std::size_t> causes;  // why a record is not what encode() makes of it, or was left
  std::string first_wrong;
  std::size_t wrong = 0;

  void bad(const RuntimeFunction& function, const std::string& what) {
    if (wrong++ == 0) first_wrong = fmt::format("{:#x}: {}", function.begin, what);
  }
};

std::size_t size_of(const UnwindRecord& record) {
  const std::uint64_t codes_end = record.codes.origin() + record.codes.size();
  return static_cast<std::size_t>(codes_end - record.rva) + (record.has_handler ? 4 : 0);
}

// ---- records ------------------------------------------------------------------------------------------------------

// Why encode() does not give back the bytes that it was decoded from.
std::string difference(const image::PeImage& image, const UnwindRecord& record, const std::vector<std::byte>& ours) {
  const std::size_t size = size_of(record);
  if (ours.size() > size) return "LARGER";
  const auto again = winarm64::parse_record(ByteView(ours.data(), ours.size()), record.rva);
  if (!again) return "UNREADABLE";
  if (ours.size() == size) {
    const auto theirs = image.from_rva(record.rva);
    const bool layout =
        std::memcmp(theirs->data(), ours.data(), size - (record.has_handler ? 4 : 0) - record.codes.size()) == 0;
    return layout ? "the bytes behind the last end are others" : "codes of epilogues stand in another order";
  }
  if (again->single_epilogue && !record.single_epilogue) return "smaller: an epilogue at the end without E";
  if (again->codes.size() < record.codes.size()) return "smaller: codes of epilogues that are there already";
  return "smaller: an extension word that is not needed";
}

void round_trip(const image::PeImage& image, RuntimeFunction function, const UnwindRecord& record, Counts& counts) {
  if (function.packed()) {
    const auto word = winarm64::encode_packed(winarm64::packed_fields(function),
                                              function.kind() == winarm64::EntryKind::kPackedFragment);
    if (!word || *word != function.data) counts.bad(function, "packed word is not given back");
    return;
  }
  ++counts.records;
  const auto contents = winarm64::decode(record);
  if (!contents) {
    ++counts.causes[std::string("cannot be decoded: ") + contents.error().what];
    return;
  }
  const auto bytes = winarm64::encode(*contents);
  if (!bytes) {
    ++counts.causes[std::string("cannot be encoded: ") + bytes.error().what];
    return;
  }
  const auto theirs = image.from_rva(record.rva);
  if (bytes->size() == size_of(record) && std::memcmp(theirs->data(), bytes->data(), bytes->size()) == 0) {
    ++counts.same;
    return;
  }
  const std::string why = difference(image, record, *bytes);
  if (why == "LARGER" || why == "UNREADABLE") counts.bad(function, why);
  ++counts.causes[why];
}

// ---- functions ----------------------------------------------------------------------------------------------------

bool same_frame(const UnwindRecord& theirs, std::uint32_t their_index, const UnwindRecord& ours, std::uint32_t index) {
  winarm64::SymbolicFrame a, b;
  const auto first = execute_symbolically(theirs.codes, their_index, a);
  const auto second = execute_symbolically(ours.codes, index, b);
  return first.has_value() == second.has_value() && (!first || a == b);
}

// Do both records give the same frame at an instruction? At the first instruction of an epilogue the codes of the body
// hold as well. At the last one of the body those of the epilogue hold as well, if that is begun an instruction
// earlier.
bool same_frame(const UnwindRecord& theirs, const UnwindRecord& ours, std::uint32_t offset) {
  const auto their = position_at(theirs, offset), our = position_at(ours, offset);
  if (same_frame(theirs, their.index, ours, our.index)) return true;
  if (their.place != winarm64::Place::kEpilogue || our.place != winarm64::Place::kBody) return false;
  const bool first = offset == 0 || position_at(theirs, offset - 4).place != winarm64::Place::kEpilogue ||
                     position_at(ours, offset + 4).place == winarm64::Place::kEpilogue;
  return first && same_frame(theirs, 0, ours, our.index);
}

class Rewriter {
 public:
  explicit Rewriter(Counts& counts) : counts_(counts) {}

  void rewrite(RuntimeFunction function, const UnwindRecord& record) {
    const std::size_t known = function.packed() ? 0 : size_of(record);
    if (!function.packed() && theirs_.insert(record.rva).second) counts_.theirs += known;
    counts_.theirs += winarm64::kEntrySize;
    counts_.their_each += winarm64::kEntrySize + known;
    const auto fragment = winarm64::fragment_of(record);
    winarm64::Piece piece;
    const prologue::Handler handler{record.handler, true, true, {}};
    Expected<winarm64::Piece> made = fail(ErrorCode::kUnsupported, "", 0);
    if (!fragment) {
      ++counts_.causes[std::string("left as it is: ") + fragment.error().what];
    } else {
      made = piece_of(*fragment, record.has_handler ? &handler : nullptr, function.begin);
      if (!made) ++counts_.causes[std::string("left as it is: ") + made.error().what];
    }
    if (!made) {
      count(known, record.rva, {});
      return;
    }
    ++counts_.rewritten;
    counts_.packed_theirs += function.packed() ? 1 : 0;
    counts_.packed_ours += made->bytes.empty() ? 1 : 0;
    if (made->bytes.size() > known) counts_.bad(function, fmt::format("{} bytes, not {}", made->bytes.size(), known));
    count(made->bytes.size(), record.has_handler ? record.rva : 0, made->bytes);
    compare(function, record, *made);
  }

 private:
  // A handler's data is not known, so records with one are the same only if theirs are.
  void count(std::size_t size, std::uint32_t rva, const std::vector<std::byte>& bytes) {
    counts_.ours += winarm64::kEntrySize;
    counts_.our_each += winarm64::kEntrySize + size;
    if (size > 0 && ours_.insert({rva, bytes}).second) counts_.ours += size;
  }

  void compare(RuntimeFunction function, const UnwindRecord& theirs, const winarm64::Piece& piece) {
    winarm64::Expansion storage;
    UnwindRecord ours;
    if (piece.bytes.empty()) {
      const auto read = read_record(image_, piece.entry, storage);
      if (!read) return counts_.bad(function, "packed entry cannot be read");
      ours = *read;
    } else {
      const auto read = winarm64::parse_record(ByteView(piece.bytes.data(), piece.bytes.size()), 0);
      if (!read) return counts_.bad(function, "record cannot be read");
      ours = *read;
    }
    if (ours.length != theirs.length) return counts_.bad(function, "length is another");
    winarm64::check_record(ours, [&](const Error& error) {
      bool old = false;  // theirs has it too
      winarm64::check_record(theirs, [&](const Error& known) { old |= std::string(known.what) == error.what; });
      if (!old) counts_.bad(function, error.what);
    });
    for (std::uint32_t offset = 0; offset < theirs.length; offset += 4) {
      ++counts_.words;
      if (!same_frame(theirs, ours, offset)) return counts_.bad(function, fmt::format("frame at +{:#x}", offset));
    }
  }

  Counts& counts_;
  image::PeImage image_;  // packed entries need none
  std::set<std::uint32_t> theirs_;
  std::set<std::pair<std::uint32_t, std::vector<std::byte>>> ours_;
};

void print(const std::string& name, const Counts& counts) {
  std::printf(
      "%-14s %zu entries; of %zu records %zu are what encode(decode()) gives; %zu written again: %zu bytes, theirs %zu "
      "(%.2f%%; a record for each entry: %zu, theirs %zu); packed %zu, theirs %zu; %zu instructions compared; %zu "
      "wrong\n",
      name.c_str(), counts.entries, counts.records, counts.same, counts.rewritten, counts.ours, counts.theirs,
      100.0 * static_cast<double>(counts.ours) / static_cast<double>(counts.theirs), counts.our_each, counts.their_each,
      counts.packed_ours, counts.packed_theirs, counts.words, counts.wrong);
  for (const auto& [why, count] : counts.causes) std::printf("    %zu %s\n", count, why.c_str());
}

TEST(WinArm64WriteCorpora, SameFramesInNoMoreBytes) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 1, image::PeMachine::kArm64);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  for (const test::PeCorpus& corpus : corpora) {
    for (const std::string& path : corpus.files) {
      const auto file = MappedFile::open(path);
      ASSERT_TRUE(file);
      const auto image = image::PeImage::parse(file->bytes());
      ASSERT_TRUE(image) << path;
      const winarm64::Functions functions(*image);
      Counts counts;
      Rewriter rewriter(counts);
      for (std::size_t i = 0; i < functions.size(); ++i) {
        const RuntimeFunction function = functions.stored(i);
        winarm64::Expansion storage;
        ++counts.entries;
        const auto record = winarm64::read_record(*image, function, storage);
        if (!record) {
          ++counts.causes[std::string("cannot be read: ") + record.error().what];
          continue;
        }
        round_trip(*image, function, *record, counts);
        rewriter.rewrite(function, *record);
      }
      print(corpus.name, counts);
      EXPECT_EQ(counts.wrong, 0U) << path << ": " << counts.first_wrong;
      EXPECT_LE(counts.ours, counts.theirs);
      EXPECT_GE(counts.packed_ours, counts.packed_theirs);
    }
  }
}

}  // namespace
}  // namespace windlass
