// A batch reaches a server that takes only small requests.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "fake_server.h"
#include "profiler/transport/otlp_batch.h"
#include "profiler/transport/otlp_request.h"

namespace windlass::transport {
namespace {

using Kind = spool::Answer::Kind;
using Answers = std::vector<std::string>;

std::string answer(int status) {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status);
}

// Samples of the functions "aaa...", "bbb..." and so on: how often 1, 2, 4, 8.
profile::Profile letters(std::size_t samples, std::size_t name_bytes) {
  profile::Profile made;
  for (std::uint32_t i = 0; i < samples; ++i) {
    made.functions.push_back({.name = std::string(name_bytes, static_cast<char>('a' + i))});
    made.locations.push_back({.address = i + 1, .lines = {{.function = i, .line = 1}}});
    made.samples.push_back({.locations = {i}, .count = std::uint64_t{1} << i, .value = 1});
  }
  return made;
}

// The functions of each request, for example "ab".
std::vector<std::string> letters_of(FakeServer& server) {
  std::vector<std::string> all;
  for (const std::string& request : server.requests()) {
    all.emplace_back();
    for (char letter = 'a'; letter < 'i'; ++letter)
      if (request.find(std::string(100, letter)) != std::string::npos) all.back() += letter;
  }
  return all;
}

struct Sending {
  explicit Sending(const Answers& answers, std::size_t most_bytes = kMostOtlpBytes)
      : server(answers),
        sender({.place = *otlp_place(server.url("/v1"))}, [](const std::string&) {}),
        batches(sender, OtlpCompression::kNone, most_bytes) {}
  FakeServer server;
  OtlpSender sender;
  OtlpBatches batches;
};

TEST(OtlpBatches, ATooLargeRequestIsSentInHalves) {
  Sending sending({answer(413), answer(200), answer(200)});
  const auto got = sending.batches.send(7, letters(4, 5000), {});
  EXPECT_EQ(got.kind, Kind::kTaken) << got.why;
  EXPECT_EQ(got.dropped, 0u);
  EXPECT_EQ(got.why, "");
  EXPECT_EQ(letters_of(sending.server), (Answers{"abcd", "ab", "cd"}));
}

TEST(OtlpBatches, ASampleThatIsTooLargeIsDropped) {
  Sending sending({answer(413), answer(200), answer(413), answer(413), answer(200)});
  const auto got = sending.batches.send(7, letters(4, 5000), {});
  EXPECT_EQ(got.kind, Kind::kTaken) << got.why;
  EXPECT_EQ(got.dropped, 4u);
  EXPECT_NE(got.why.find("413"), std::string::npos) << got.why;
  EXPECT_EQ(letters_of(sending.server), (Answers{"abcd", "ab", "cd", "c", "d"}));
}

// The server has the first half, which is not sent again.
TEST(OtlpBatches, GoesOnBehindWhatTheServerHas) {
  Sending sending({answer(413), answer(200), answer(503), answer(200), answer(200)});
  const profile::Profile profile = letters(4, 5000);
  EXPECT_EQ(sending.batches.send(7, profile, {}).kind, Kind::kLater);
  EXPECT_EQ(sending.batches.send(7, profile, {}).kind, Kind::kTaken);
  EXPECT_EQ(letters_of(sending.server), (Answers{"abcd", "ab", "cd", "cd"}));
  EXPECT_EQ(sending.batches.send(8, letters(1, 5000), {}).kind, Kind::kTaken);
  EXPECT_EQ(letters_of(sending.server).back(), "a");
}

// A quota is no reason to send each sample by itself.
TEST(OtlpBatches, ASmallRequestIsNotTooLarge) {
  Sending sending({answer(413)});
  const auto got = sending.batches.send(7, letters(4, 200), {});
  EXPECT_EQ(got.dropped, 15u);
  EXPECT_EQ(sending.server.requests().size(), 1u);
}

TEST(OtlpBatches, NoRequestIsLargerThanAsked) {
  Sending sending({answer(200), answer(200), answer(200), answer(200)}, 10'000);
  EXPECT_EQ(sending.batches.send(7, letters(4, 5000), {}).kind, Kind::kTaken);
  EXPECT_EQ(letters_of(sending.server), (Answers{"a", "b", "c", "d"}));
}

TEST(OtlpBatches, ARefusalIsOfAllThatIsLeft) {
  Sending sending({answer(413), answer(200), answer(400)});
  const auto got = sending.batches.send(7, letters(4, 5000), {});
  EXPECT_EQ(got.kind, Kind::kTaken);
  EXPECT_EQ(got.dropped, 12u);
  EXPECT_NE(got.why.find("400"), std::string::npos) << got.why;
}

// page-faults@4: a sample counts for four.
TEST(OtlpBatches, WhatIsDroppedIsCountedInSamples) {
  Sending sending({answer(413), answer(200), answer(400)});
  EXPECT_EQ(sending.batches.send(7, letters(4, 5000), {.resource = {}, .id = {}, .scales = {4}}).dropped, 3u);
}

// A request without samples still says what would be counted, and which machine it is of.
TEST(OtlpRequest, OnlyTheFirstEventNeedsNoSamples) {
  profile::Profile made = letters(2, 10);
  made.events.push_back({.name = "page-faults", .unit = "count", .counted = "page-faults"});
  const auto has = [&](const char* text) { return otlp_request(made, {}).find(text) != std::string::npos; };
  EXPECT_FALSE(has("page-faults"));
  made.samples[1].event = 1;
  EXPECT_TRUE(has("page-faults"));
  made.samples.clear();
  EXPECT_TRUE(has("nanoseconds"));
  EXPECT_FALSE(has("page-faults"));
}

TEST(OtlpBatches, AnErrorNamesHostAndPort) {
  const std::string gone = FakeServer({}).url("/v1");
  OtlpSender sender({.place = *otlp_place(gone)}, [](const std::string&) {});
  const auto got = OtlpBatches(sender, OtlpCompression::kNone).send(1, letters(1, 10), {});
  EXPECT_EQ(got.kind, Kind::kLater);
  EXPECT_TRUE(got.why.starts_with(host_and_port(gone) + ": no connection. Way out: ")) << got.why;
}

}  // namespace
}  // namespace windlass::transport
