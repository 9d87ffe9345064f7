// A large message, in any order of its fields; labels are read once.
#include <gtest/gtest.h>

#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

#include "profiler/export/gzip.h"
#include "profiler/export/page_buffer.h"
#include "profiler/export/pprof.h"
#include "profiler/export/pprof_fields.h"

namespace windlass::exporter {
namespace {

constexpr std::uint64_t kSamples = 200'000, kLocations = 1000, kThreads = 70'000;

enum class Strings { kFirst, kBetween, kLast };

void add_string(protozero::pbf_writer& to, const std::string& text) { to.add_string(pprof::kStringTable, text); }

void add_label(protozero::pbf_writer& sample, std::int64_t key, std::int64_t text, std::int64_t number) {
  protozero::pbf_writer label(sample, pprof::kSampleLabel);
  label.add_int64(pprof::kLabelKey, key);
  if (text != 0) label.add_int64(pprof::kLabelStr, text);
  if (number != 0) label.add_int64(pprof::kLabelNum, number);
}

// Each sample has a stack of its own, and its number as value. Sample i is of the thread i % kThreads, named "thread
// i % 5", and has the label "request" if i is odd.
std::string large_message(Strings where) {
  std::string bytes;
  protozero::pbf_writer to(bytes);
  const std::vector<std::string> strings = {"",     "samples",  "count",    "request",  "r",        "tid",
                                            "comm", "thread 0", "thread 1", "thread 2", "thread 3", "thread 4"};
  std::size_t next = 0;
  if (where == Strings::kFirst)
    while (next < strings.size()) add_string(to, strings[next++]);
  {
    protozero::pbf_writer type(to, pprof::kSampleType);
    type.add_int64(pprof::kType, 1);
    type.add_int64(pprof::kUnit, 2);
  }
  for (std::uint64_t i = 1; i <= kLocations; ++i) {
    protozero::pbf_writer location(to, pprof::kLocation);
    location.add_uint64(pprof::kLocationId, i);
    location.add_uint64(pprof::kAddress, 0x1000 + i);
  }
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    if (where == Strings::kBetween && i % (kSamples / 16) == 0 && next < strings.size())
      add_string(to, strings[next++]);
    protozero::pbf_writer sample(to, pprof::kSample);
    ids.assign({i % kLocations + 1, i / kLocations + 1});
    for (std::uint64_t n = 0; n < 40; ++n) ids.push_back((i + n * n) % kLocations + 1);
    sample.add_packed_uint64(pprof::kSampleLocationId, ids.begin(), ids.end());
    const std::vector<std::int64_t> values = {static_cast<std::int64_t>(i)};
    sample.add_packed_int64(pprof::kSampleValue, values.begin(), values.end());
    add_label(sample, 5, 0, static_cast<std::int64_t>(i % kThreads));
    add_label(sample, 6, static_cast<std::int64_t>(7 + i % 5), 0);
    if (i % 2 == 1) add_label(sample, 3, 4, 0);
  }
  while (next < strings.size()) add_string(to, strings[next++]);
  return bytes;
}

class LargePprof : public testing::TestWithParam<Strings> {};

TEST_P(LargePprof, IsReadWhole) {
  const std::string message = large_message(GetParam());
  ASSERT_GT(message.size(), std::size_t{10} << 20);
  const auto profile = read_pprof({reinterpret_cast<const std::byte*>(message.data()), message.size()});
  ASSERT_TRUE(profile.has_value()) << profile.error().text();
  ASSERT_EQ(profile->samples.size(), kSamples);
  ASSERT_EQ(profile->label_sets.size(), 2u);
  std::size_t wrong = 0;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const profile::Sample& sample = profile->samples[i];
    const auto& set = profile->label_sets[sample.labels];
    const bool has_label =
        set.size() == 1 && profile->strings[set[0].key] == "request" && profile->strings[set[0].value] == "r";
    wrong += sample.count != i || sample.locations.size() != 42 || sample.locations[0] != i % kLocations ||
             sample.locations[1] != i / kLocations || sample.tid != i % kThreads ||
             profile->strings[sample.comm] != "thread " + std::to_string(i % 5) || has_label != (i % 2 == 1) ||
             set.size() != i % 2;
  }
  EXPECT_EQ(wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(Orders, LargePprof, testing::Values(Strings::kFirst, Strings::kBetween, Strings::kLast));

TEST(PageBuffer, KeepsItsBytesAsItGrows) {
  PageBuffer buffer;
  EXPECT_TRUE(buffer.empty());
  ASSERT_TRUE(buffer.reserve(1));
  const std::size_t first = buffer.capacity();
  for (std::size_t i = 0; i < first; ++i) buffer.data()[i] = static_cast<std::byte>(i);
  ASSERT_TRUE(buffer.reserve(first * 100));
  buffer.set_size(first * 100);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < first * 100; ++i)
    wrong += buffer.data()[i] != (i < first ? static_cast<std::byte>(i) : std::byte{0});
  EXPECT_EQ(wrong, 0u);
  EXPECT_FALSE(buffer.reserve(~std::size_t{0}));
  EXPECT_FALSE(buffer.reserve(~std::size_t{0} / 2));
  EXPECT_EQ(buffer.data()[7], std::byte{7});
}

TEST(PageBuffer, GivesBackWholePagesOnly) {
  constexpr std::size_t kSize = 1 << 20;
  PageBuffer buffer;
  ASSERT_TRUE(buffer.reserve(kSize));
  buffer.set_size(kSize);
  std::fill(buffer.data(), buffer.data() + kSize, std::byte{1});
  buffer.give_back(100, kSize - 100);
  EXPECT_EQ(buffer.data()[99], std::byte{1});
  EXPECT_EQ(buffer.data()[100], std::byte{1});
  EXPECT_EQ(buffer.data()[kSize - 100], std::byte{1});
  EXPECT_EQ(buffer.data()[kSize / 2], std::byte{0});
  buffer.give_back(0, ~std::size_t{0});
  EXPECT_EQ(buffer.data()[0], std::byte{0});
}

// The size that a gzip file gives for its content is the writer's word.
TEST(Gunzip, BelievesNoSize) {
  std::string packed;
  TextWriter out(&packed);
  GzipWriter gzip(out);
  const std::string content(300'000, 'x');
  gzip.write(content);
  ASSERT_TRUE(gzip.finish().has_value());
  for (const char said : {'\0', '\x01', '\x7f', '\xff'}) {
    std::fill(packed.end() - 4, packed.end(), said);
    const auto back = gunzip({reinterpret_cast<const std::byte*>(packed.data()), packed.size()}, 1 << 20);
    // zlib checks the size at the end.
    ASSERT_FALSE(back.has_value());
    EXPECT_EQ(back.error().code, ErrorCode::kMalformed);
  }
}

// zlib checks checksum and size of the whole.
TEST(Gunzip, ReadsAFileOfParts) {
  std::string noise(3'000'000, '\0');
  std::uint64_t state = 1;
  for (char& c : noise) c = static_cast<char>((state = state * 6364136223846793005 + 1442695040888963407) >> 56);
  for (const auto& texts : std::vector<std::vector<std::string>>{
           {"one part"}, {""}, {"", ""}, {std::string(300'000, 'x'), noise}, {noise, "", noise, "end"}}) {
    std::vector<GzipPart> parts;
    std::string all;
    for (const std::string& text : texts) {
      parts.push_back(gzip_part(text, parts.size() + 1 == texts.size()));
      ASSERT_TRUE(parts.back().good);
      all += text;
    }
    const std::string file = gzip_of(parts);
    const auto back = gunzip({reinterpret_cast<const std::byte*>(file.data()), file.size()}, 1 << 24);
    ASSERT_TRUE(back.has_value()) << back.error().text();
    EXPECT_TRUE(std::string_view(reinterpret_cast<const char*>(back->data()), back->size()) == all);
  }
  EXPECT_EQ(gzip_of(std::vector<GzipPart>(1)), "");
}

}  // namespace
}  // namespace windlass::exporter
