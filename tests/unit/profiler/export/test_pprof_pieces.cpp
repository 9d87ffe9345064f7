// A gzip file that is unpacked beside its reader, and a pprof message that comes in pieces.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <protozero/exception.hpp>
#include <protozero/pbf_writer.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/export/gzip_ahead.h"
#include "profiler/export/pprof.h"
#include "profiler/export/pprof_fields.h"
#include "profiler/export/pprof_split.h"
#include "profiler/export/report.h"
#include "profiler/export/values.h"

namespace windlass::exporter {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;

ByteView bytes_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

std::string packed(std::string_view content) {
  std::string bytes;
  TextWriter out(&bytes);
  GzipWriter gzip(out);
  gzip.write(content);
  EXPECT_TRUE(gzip.finish().has_value());
  return bytes;
}

// Several blocks of bytes that differ.
std::string large_content() {
  std::string content;
  while (content.size() < 9 * GzipAhead::kBlock + 17) content += std::to_string(content.size() * 7919) + "\n";
  return content;
}

struct Unpacked {
  std::string content;
  ErrorCode code{};
  bool failed = false;
};
Unpacked unpacked(std::string_view file, std::uint64_t most, std::size_t worth_a_thread) {
  GzipAhead pieces(bytes_of(file), most, worth_a_thread);
  Unpacked all;
  for (;;) {
    const auto piece = pieces.next();
    if (!piece) {
      all.failed = true;
      all.code = piece.error().code;
      EXPECT_FALSE(pieces.next().has_value()) << "an error stays";
      return all;
    }
    EXPECT_LE(piece->size(), GzipAhead::kBlock);
    if (piece->empty()) return all;
    all.content.append(reinterpret_cast<const char*>(piece->data()), piece->size());
  }
}

class Ahead : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Threads, Ahead, testing::Values(std::size_t{0}, ~std::size_t{0}));

TEST_P(Ahead, GivesAllMembersInOrder) {
  const std::string content = large_content();
  EXPECT_EQ(unpacked(packed(content), kPlenty, GetParam()).content, content);
  const std::size_t cut = 3 * GzipAhead::kBlock;
  const std::string two = packed(content.substr(0, cut)) + packed("") + packed(content.substr(cut));
  const Unpacked all = unpacked(two, kPlenty, GetParam());
  EXPECT_FALSE(all.failed);
  EXPECT_TRUE(all.content == content);
  EXPECT_TRUE(unpacked(two + "no gzip", kPlenty, GetParam()).content == content) << "trailing bytes are ignored";
}

TEST_P(Ahead, GivesWhatIsBeforeTheEndOfACutFile) {
  const std::string content = large_content(), file = packed(content);
  for (const std::size_t size : {std::size_t{3}, std::size_t{20}, file.size() / 2, file.size() - 8, file.size() - 1}) {
    const Unpacked all = unpacked(std::string_view(file).substr(0, size), kPlenty, GetParam());
    EXPECT_TRUE(all.failed) << size;
    EXPECT_EQ(all.code, ErrorCode::kTruncated) << size;
    EXPECT_TRUE(content.starts_with(all.content)) << size;
  }
}

TEST_P(Ahead, ChecksTheSum) {
  const std::string content = large_content();
  std::string file = packed(content);
  file[file.size() - 8] = static_cast<char>(file[file.size() - 8] ^ 1);
  const Unpacked all = unpacked(file, kPlenty, GetParam());
  EXPECT_TRUE(all.failed);
  EXPECT_EQ(all.code, ErrorCode::kMalformed);
}

TEST_P(Ahead, StopsAtTheLimit) {
  const std::string file = packed(std::string(std::size_t{64} << 20, '\0'));
  ASSERT_LT(file.size(), std::size_t{1} << 20);
  const Unpacked all = unpacked(file, 1 << 20, GetParam());
  EXPECT_TRUE(all.failed);
  EXPECT_EQ(all.code, ErrorCode::kLimit);
  EXPECT_LE(all.content.size(), std::size_t{1} << 20);
  EXPECT_FALSE(unpacked(file, std::uint64_t{64} << 20, GetParam()).failed);
}

TEST(GzipAhead, MayBeLeftBeforeTheEnd) {
  const std::string file = packed(large_content());
  for (int pieces = 0; pieces < 4; ++pieces) {
    GzipAhead ahead(bytes_of(file), kPlenty, 0);
    for (int i = 0; i < pieces; ++i) EXPECT_TRUE(ahead.next().has_value());
  }
}

// Samples before their locations and strings, as Go and Windlass write them; locations by lists and one by one.
std::string message() {
  std::string bytes;
  protozero::pbf_writer to(bytes);
  for (const auto& [type, unit] : {std::pair{1, 2}}) {
    protozero::pbf_writer one(to, pprof::kSampleType);
    one.add_int64(pprof::kType, type);
    one.add_int64(pprof::kUnit, unit);
  }
  const std::vector<std::vector<std::uint64_t>> stacks = {{1, 2, 3}, {4, 2, 3}, {}, {3}, {1, 2, 3}, {~0ull, 3}};
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    protozero::pbf_writer sample(to, pprof::kSample);
    if (i == 1)
      for (const std::uint64_t id : stacks[i]) sample.add_uint64(pprof::kSampleLocationId, id);
    else
      sample.add_packed_uint64(pprof::kSampleLocationId, stacks[i].begin(), stacks[i].end());
    const std::vector<std::int64_t> values = {static_cast<std::int64_t>(i + 1)};
    sample.add_packed_int64(pprof::kSampleValue, values.begin(), values.end());
    protozero::pbf_writer label(sample, pprof::kSampleLabel);
    label.add_int64(pprof::kLabelKey, 3);
    label.add_int64(pprof::kLabelNum, 1000 + static_cast<std::int64_t>(i));
  }
  for (const std::uint64_t id : std::vector<std::uint64_t>{1, 2, 3, 4, ~std::uint64_t{0}}) {
    protozero::pbf_writer location(to, pprof::kLocation);
    location.add_uint64(pprof::kLocationId, id);
    location.add_uint64(pprof::kAddress, 0x1000 + (id & 0xff));
  }
  for (const char* text : {"", "samples", "count", "tid"}) to.add_string(pprof::kStringTable, text);
  return bytes;
}

std::string text_of(const profile::Profile& profile) {
  std::string text;
  for (const profile::Sample& sample : profile.samples) {
    text += std::to_string(sample.tid) + ":" + std::to_string(sample.count);
    for (const std::uint32_t location : sample.locations)
      text += " " + std::to_string(profile.locations[location].address);
    text += "\n";
  }
  return text;
}

TEST(PprofPieces, MayEndAnywhere) {
  const std::string whole = message();
  const auto expected = read_pprof(bytes_of(whole));
  ASSERT_TRUE(expected.has_value()) << expected.error().text();
  EXPECT_EQ(text_of(*expected),
            "1000:1 4097 4098 4099\n1001:2 4100 4098 4099\n1002:3\n1003:4 4099\n1004:5 4097 4098 4099\n"
            "1005:6 4351 4099\n");
  const auto split = [&](std::size_t size, bool by_thread) {  // others, and the samples' fields
    PprofStacks stacks;
    PprofSplit pieces(stacks, kPlenty, by_thread);
    for (std::size_t at = 0; at < whole.size(); at += size)
      pieces.add(bytes_of(std::string_view(whole).substr(at, size)));
    pieces.check_end();
    pieces.finish();
    std::string text(reinterpret_cast<const char*>(pieces.others().data()), pieces.others().size());
    pieces.take_samples(
        [&](std::uint64_t at, const SampleStack& stack, std::uint32_t labels, protozero::data_view fields) {
          text += fmt::format("{} {} {} {} {}", at, stack.node, stack.size, labels,
                              std::string_view(fields.data(), fields.size()));
          return true;
        });
    pieces.labels().for_each([&](std::uint64_t at, protozero::data_view list) {
      text += fmt::format("{} {}", at, std::string_view(list.data(), list.size()));
      return true;
    });
    return text;
  };
  const std::string all = split(whole.size(), false);
  for (std::size_t size = 1; size < whole.size(); ++size) ASSERT_EQ(split(size, size % 2 == 0), all) << size;
}

TEST(PprofPieces, MembersOfAGzipFileMayEndAnywhere) {
  const std::string whole = message();
  const std::string expected = text_of(*read_pprof(bytes_of(whole)));
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    const auto profile = read_pprof(bytes_of(packed(whole.substr(0, cut)) + packed(whole.substr(cut))));
    ASSERT_TRUE(profile.has_value()) << cut << ": " << profile.error().text();
    ASSERT_EQ(text_of(*profile), expected) << cut;
  }
}

TEST(PprofPieces, WhatIsUnpackedIsGivenBack) {
  const std::string file = packed(message());
  std::vector<std::byte> owned(bytes_of(file).data(), bytes_of(file).data() + file.size());
  const auto profile = read_pprof(ByteView(owned.data(), owned.size()), {}, &owned);
  ASSERT_TRUE(profile.has_value()) << profile.error().text();
  EXPECT_EQ(text_of(*profile), text_of(*read_pprof(bytes_of(file))));
  EXPECT_EQ(owned.capacity(), 0u);
}

TEST(PprofPieces, AMessageThatEndsInAFieldIsAnErrorThatSaysWhere) {
  const std::string whole = message();
  std::size_t fields = 0;  // prefixes that end between two fields
  for (std::size_t size = 1; size < whole.size(); ++size) {
    PprofStacks stacks;
    PprofSplit pieces(stacks, kPlenty);
    pieces.add(bytes_of(std::string_view(whole).substr(0, size)));
    try {
      pieces.check_end();
      pieces.finish();
      ++fields;
      EXPECT_EQ(pieces.at(), size);
    } catch (const protozero::exception&) {
      EXPECT_LT(pieces.at(), size);
      const auto cut = read_pprof(bytes_of(std::string_view(whole).substr(0, size)));
      ASSERT_FALSE(cut.has_value());
      EXPECT_EQ(cut.error().where, pieces.at());
    }
  }
  EXPECT_EQ(fields, 1 + 6 + 5 + 4 - 1u);
}

// A profile of one value and of one location, whose number is 1.
struct SmallProfile {
  std::string bytes;
  std::size_t last_sample = 0;  // where it begins

  SmallProfile() {
    protozero::pbf_writer to(bytes), type(to, pprof::kSampleType);
    type.add_int64(pprof::kType, 1);
    type.add_int64(pprof::kUnit, 2);
  }
  void add_sample(const std::vector<std::uint64_t>& locations) {
    last_sample = bytes.size();
    protozero::pbf_writer to(bytes), sample(to, pprof::kSample);
    sample.add_packed_uint64(pprof::kSampleLocationId, locations.begin(), locations.end());
  }
  void end() {
    protozero::pbf_writer to(bytes);
    {
      protozero::pbf_writer location(to, pprof::kLocation);
      location.add_uint64(pprof::kLocationId, 1);
    }
    for (const char* text : {"", "samples", "count"}) to.add_string(pprof::kStringTable, text);
  }
};

TEST(PprofPieces, ALocationThatIsMissingIsNamed) {
  SmallProfile small;
  small.add_sample({1});
  small.add_sample({1, 77, 1});
  small.end();
  const auto profile = read_pprof(bytes_of(packed(small.bytes)));
  ASSERT_FALSE(profile.has_value());
  EXPECT_EQ(profile.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(profile.error().where, small.last_sample);
  EXPECT_EQ(profile.error().detail, 77u);
}

// Many batches, of stacks that are new, equal or alike, with labels of all kinds, between fields of every other kind.
std::string mixed_profile() {
  SmallProfile small;
  std::uint32_t state = 1;
  const auto random = [&state](std::uint32_t below) { return (state = state * 1664525 + 1013904223) / 65536 % below; };
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    protozero::pbf_writer to(small.bytes), sample(to, pprof::kSample);
    const auto add_label = [&](std::int64_t key, std::int64_t number) {
      protozero::pbf_writer label(sample, pprof::kSampleLabel);
      label.add_int64(pprof::kLabelKey, key);
      label.add_int64(i % 3 == 0 ? pprof::kLabelStr : pprof::kLabelNum, number);
    };
    if (i % 5 == 0) add_label(3, random(2) + 3);
    std::vector<std::uint64_t> stack;
    for (std::uint32_t depth = random(60); depth != 0; --depth) stack.push_back(1 + random(depth < 40 ? 2 : 200));
    sample.add_packed_uint64(pprof::kSampleLocationId, stack.begin(), stack.end());
    const std::vector<std::int64_t> values = {random(3) - 1, random(1000)};
    sample.add_packed_int64(pprof::kSampleValue, values.begin(), values.end());
    if (i % 7 != 0) add_label(4, random(4) + 3);
  }
  protozero::pbf_writer to(small.bytes);
  for (std::uint64_t id = 1; id <= 200; ++id) {
    protozero::pbf_writer location(to, pprof::kLocation);
    location.add_uint64(pprof::kLocationId, id);
    location.add_uint64(pprof::kAddress, 0x1000 + id);
  }
  for (const char* text : {"", "samples", "count", "tid", "comm", "a", "b"}) to.add_string(pprof::kStringTable, text);
  return small.bytes;
}

// Of a profile in JSON, or its error.
std::string json_of(std::string_view bytes, PprofLimits limits, bool by_threads) {
  limits.worth_threads = by_threads ? 0 : ~std::size_t{0};
  const auto profile = read_pprof(bytes_of(bytes), limits);
  if (!profile) return fmt::format("{:#x}: {}", profile.error().where, profile.error().text());
  std::string json;
  TextWriter out(&json);
  EXPECT_TRUE(write_json(*profile, out, shown_by_default(*profile)).has_value());
  return json;
}

TEST(PprofPieces, ThreadsChangeNothing) {
  const std::string whole = mixed_profile();
  const std::string json = json_of(whole, {}, false);
  EXPECT_GT(std::ranges::count(json, '\n'), 10'000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(json_of(whole, {}, true) == json);
  EXPECT_TRUE(json_of(packed(whole), {}, true) == json);
}

TEST(PprofPieces, ThreadsChangeNoError) {
  const std::string whole = mixed_profile();
  std::set<std::string> errors;
  const auto check = [&](const std::string& bytes, const PprofLimits& limits) {
    const std::string error = json_of(bytes, limits, false);
    ASSERT_TRUE(error.starts_with("0x")) << error.substr(0, 80);
    errors.insert(error);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(json_of(bytes, limits, true), error);
  };
  for (std::uint64_t items = 100; items < 400'000; items *= 3) check(whole, {.max_items = items});
  check(whole, {.max_frames = 10'000});
  for (std::size_t part = 1; part < 8; ++part) {
    check(whole.substr(0, whole.size() * part / 8), {});
    std::string damaged = whole;
    std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(whole.size() * part / 8), 40, '\xff');
    check(damaged, {});
  }
  EXPECT_GE(errors.size(), 15u);
}

// A long list of samples that are not different takes the memory of one stack.
TEST(PprofPieces, EqualStacksCountOnceAgainstTheLimit) {
  SmallProfile small;
  for (int i = 0; i < 100; ++i) small.add_sample(std::vector<std::uint64_t>(1000, 1));
  small.end();
  EXPECT_TRUE(read_pprof(bytes_of(small.bytes), {.max_items = 20'000}).has_value());
  const auto few = read_pprof(bytes_of(small.bytes), {.max_items = 5'000});
  ASSERT_FALSE(few.has_value());
  EXPECT_EQ(few.error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace windlass::exporter
