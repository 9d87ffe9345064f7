// encode(decode(x)) == x for every UNWIND_INFO of the corpora that is in the shortest form; those that are not are
// counted by what is longer or odd about them.
#include <algorithm>
#include <map>
#include <unordered_set>

#include <gtest/gtest.h>

#include "formats/winx64/encode.h"
#include "formats/winx64/exec.h"
#include "support/pe_corpora.h"

namespace windlass {
namespace {

using winx64::UnwindCode;
using winx64::UnwindInfo;

struct Tally {
  std::size_t infos = 0, equal = 0, unexplained = 0, second = 0, third = 0;
  std::map<std::string, std::size_t> odd;
};

ByteView stored(const image::PeImage& image, const UnwindInfo& info) {
  const std::uint64_t tail = info.chained ? 12 : info.has(winx64::kEhandler) || info.has(winx64::kUhandler) ? 4 : 0;
  const auto bytes = image.from_rva(info.rva);
  return *bytes->sub(0, 4 + (info.slot_count + 1ULL) / 2 * 4 + tail);
}

// Why are the bytes stored not those that are written? Empty: for no known reason.
std::string oddity(const UnwindInfo& info, ByteView bytes, const std::vector<std::byte>& written) {
  std::string why;
  unsigned at = 0;
  (void)winx64::each_code(info, [&](const UnwindCode& code) {
    if (code.operation != winx64::Operation::kEpilog && code.slots != winx64::slots_of(code))
      why = "longer than it need be";
    if (code.operation == winx64::Operation::kSetFpreg && code.info != 0) why = "SET_FPREG with an operation info";
    at += code.slots;
  });
  // Padding is in no one's hands: take it as it is.
  std::vector<std::byte> padded = written;
  if (why.empty() && info.slot_count % 2 != 0 && padded.size() == bytes.size()) {
    const std::size_t pad = 4 + 2UL * info.slot_count;
    std::copy_n(bytes.data() + pad, 2, padded.data() + pad);
    if (std::equal(padded.begin(), padded.end(), bytes.data())) why = "padding that is not 0";
  }
  return why;
}

void hold(const image::PeImage& image, std::uint32_t rva, std::unordered_set<std::uint32_t>& seen, Tally& tally) {
  if (!seen.insert(rva).second) return;
  const auto info = winx64::read_unwind_info(image, rva);
  if (!info) return;
  if (info->version > 2) {
    ++tally.third;
    return;
  }
  ++tally.infos;
  tally.second += info->version == 2 ? 1 : 0;
  if (info->chained) hold(image, info->chained->info, seen, tally);
  const auto content = winx64::decode(*info);
  const auto written = content ? winx64::encode(*content) : Failure(content.error());
  if (!written) {
    ++tally.odd[std::string("refused: ") + written.error().what];
    return;
  }
  const ByteView bytes = stored(image, *info);
  if (written->size() == bytes.size() && std::equal(written->begin(), written->end(), bytes.data())) {
    ++tally.equal;
    return;
  }
  const std::string why = oddity(*info, bytes, *written);
  ++tally.odd[why.empty() ? "unexplained" : why];
  if (why.empty() && ++tally.unexplained <= 3) ADD_FAILURE() << "information at RVA 0x" << std::hex << rva;
  // What is written says the same.
  const auto again = winx64::parse_unwind_info(ByteView(written->data(), written->size()), rva);
  ASSERT_TRUE(again);
  const auto same = winx64::decode(*again);
  ASSERT_TRUE(same);
  ASSERT_EQ(same->codes.size(), content->codes.size());
  for (std::size_t i = 0; i < same->codes.size(); ++i) {
    EXPECT_EQ(same->codes[i].offset, content->codes[i].offset);
    EXPECT_EQ(same->codes[i].value, content->codes[i].value);
  }
}

TEST(WinX64Write, EncodesWhatWasDecoded) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  for (const test::PeCorpus& corpus : corpora) {
    Tally tally;
    for (const std::string& path : corpus.files) {
      const auto file = MappedFile::open(path);
      ASSERT_TRUE(file);
      const auto image = image::PeImage::parse(file->bytes());
      ASSERT_TRUE(image);
      const winx64::Functions functions(*image);
      std::unordered_set<std::uint32_t> seen;
      for (std::size_t i = 0; i < functions.size(); ++i) {
        const auto function = winx64::direct(functions, functions.stored(i));
        if (function) hold(*image, function->info, seen, tally);
      }
    }
    std::printf("%-8s %zu informations (%zu of version 2), %zu equal\n", corpus.name.c_str(), tally.infos, tally.second,
                tally.equal);
    for (const auto& [why, count] : tally.odd) std::printf("  %6zu %s\n", count, why.c_str());
    EXPECT_EQ(tally.unexplained, 0U);
    EXPECT_GT(tally.equal, tally.infos / 2);
  }
}

}  // namespace
}  // namespace windlass
