// Labels of threads, from the bytes that the kernel side sends to the sets of samples.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/processes/thread_context.h"
#include "profiler/samples/thread_labels.h"

namespace windlass::profiler {
namespace {

constexpr std::size_t kHead = offsetof(wl_thread_context, attributes);

std::vector<std::byte> context(std::string_view attributes, std::uint8_t trace = 0) {
  wl_thread_context head{};
  head.valid = 1;
  head.trace_id[15] = trace;
  head.size = static_cast<__u16>(attributes.size());
  std::vector<std::byte> bytes(kHead + attributes.size());
  std::memcpy(bytes.data(), &head, kHead);
  std::memcpy(bytes.data() + kHead, attributes.data(), attributes.size());
  return bytes;
}

std::string text(const std::vector<Label>& labels) {
  std::string all;
  for (const Label& label : labels) all += label.key + "=" + label.value + " ";
  return all;
}

const std::vector<std::string> kKeys{"route", "user"};
using std::string_view_literals::operator""sv;

TEST(ThreadLabels, OfARecord) {
  EXPECT_EQ(text(decode_context(context("\1\3ann\0\2/a"sv), kKeys).labels), "route=/a user=ann ");
  EXPECT_EQ(text(decode_context(context("\0\2/a\0\2/b"sv), kKeys).labels), "route=/b ");  // the last one counts
  EXPECT_EQ(text(decode_context(context("\0\2/a\0\0"sv), kKeys).labels), "");
  EXPECT_EQ(text(decode_context(context("\0\2/a\1\5ann"sv), kKeys).labels), "route=/a ");  // cut off
  EXPECT_EQ(text(decode_context(context("", 0x1f), kKeys).labels), "trace_id=0000000000000000000000000000001f ");
  EXPECT_EQ(text(decode_context({}, kKeys).labels), "");
  EXPECT_FALSE(decode_context(context("\0\2/a"sv), kKeys).unknown);
  const DecodedLabels unknown = decode_context(context("\2\1x\0\2/a"sv), kKeys);
  EXPECT_TRUE(unknown.unknown);
  EXPECT_EQ(text(unknown.labels), "route=/a ");
}

TEST(ThreadLabels, OfAGoroutine) {
  wl_go_label labels[3] = {};
  labels[0] = {.key_size = 1, .value_size = 2, .key = {'b'}, .value = {'x', 'y'}};
  labels[1] = {.key_size = 1, .value_size = 1, .key = {'a'}, .value = {'z'}};
  labels[2] = {.key_size = WL_GO_KEY + 1, .value_size = 1, .key = {}, .value = {}};
  EXPECT_EQ(text(decode_goroutine(std::as_bytes(std::span(labels)))), "a=z b=xy ");
  EXPECT_EQ(text(decode_goroutine(std::as_bytes(std::span(labels)).first(300))), "b=xy ");
}

ByteView bytes_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

constexpr std::string_view kSchema = "\x12\x2e\x0a\x1athreadlocal.schema_version\x12\x10\x0a\x0etlsdesc_v1_dev"sv;
constexpr std::string_view kMap =
    "\x12\x34\x0a\x1dthreadlocal.attribute_key_map\x12\x13\x2a\x11\x0a\x07\x0a\x05route\x0a\x06\x0a\x04user"sv;

TEST(ThreadLabels, NamesOfKeysAreInTheProcessContext) {
  const std::string both = std::string(kSchema) + std::string(kMap), resource = std::string("\x0a\x02\x0a\x00", 4);
  for (const std::string& payload : {both, std::string(kMap) + std::string(kSchema), resource + both}) {
    const auto keys = parse_label_keys(bytes_of(payload));
    ASSERT_TRUE(keys.has_value()) << keys.error().text();
    EXPECT_EQ(*keys, kKeys);
  }
  EXPECT_EQ(parse_label_keys(bytes_of(kMap)).error().code, ErrorCode::kNotFound);  // of an unknown schema
  EXPECT_EQ(parse_label_keys(bytes_of("")).error().code, ErrorCode::kNotFound);
  std::string other = both;
  other[other.find("desc")] = 'x';
  EXPECT_EQ(parse_label_keys(bytes_of(other)).error().code, ErrorCode::kNotFound);
  for (std::size_t size = kSchema.size() + 1; size < both.size(); ++size)
    EXPECT_FALSE(parse_label_keys(bytes_of(std::string_view(both).substr(0, size))).has_value()) << size;
}

struct Sent {
  wl_label_event event{};
  std::byte text[256] = {};
};
Sent sent(std::uint64_t number, std::string_view attributes) {
  Sent made;
  const std::vector<std::byte> bytes = context(attributes);
  made.event.head.type = WL_EVENT_LABELS;
  made.event.head.tgid = 7;
  made.event.head.labels = number;
  made.event.kind = WL_LABELS_OFFSET;
  made.event.size = static_cast<__u32>(bytes.size());
  std::memcpy(made.text, bytes.data(), bytes.size());
  return made;
}

TEST(ProcessLabelSets, TooManyAreSaid) {
  ProcessLabelSets sets;
  std::uint32_t last = 0;
  for (std::size_t i = 1; i < ProcessLabelSets::kMostSets; ++i) last = sets.with(0, {{"request", std::to_string(i)}});
  EXPECT_EQ(last, ProcessLabelSets::kMostSets - 1);
  EXPECT_FALSE(sets.has_overflowed());
  EXPECT_EQ(sets.with(last, {{"user", "ann"}}), last);
  EXPECT_TRUE(sets.has_overflowed());
}

TEST(ThreadLabels, JoinThoseOfTheProcess) {
  int reads = 0;
  std::vector<std::string> names{"route"};
  ThreadLabels labels([&](std::uint32_t) {
    ++reads;
    return std::optional(names);
  });
  ProcessLabelSets sets([](std::uint32_t) {
    return std::optional(ProcessLabelSets::Set{{"pod", "p"}, {"user", "root"}});
  });
  const std::uint32_t process = sets.of(7);
  EXPECT_EQ(labels.of(process, 5, sets), process);  // not known
  EXPECT_EQ(labels.unknown(), 1u);
  EXPECT_TRUE(labels.take(sent(5, "\0\2/a"sv).event.head, sizeof(Sent), 1));
  const std::uint32_t both = labels.of(process, 5, sets);
  EXPECT_EQ(text(sets.sets()[both]), "pod=p route=/a user=root ");
  EXPECT_EQ(labels.of(process, 5, sets), both);
  EXPECT_EQ(labels.of(process, 0, sets), process);
  EXPECT_EQ(labels.unknown(), 1u);
  EXPECT_TRUE(labels.take(sent(6, "\0\2/a"sv).event.head, sizeof(Sent), 2));
  EXPECT_EQ(labels.of(process, 6, sets), both);  // equal sets are one
  EXPECT_EQ(reads, 1);

  // A key that the process has added since. Its own labels stay as they are.
  names.emplace_back("user");
  EXPECT_TRUE(labels.take(sent(8, "\0\2/a\1\3ann"sv).event.head, sizeof(Sent), 3));
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(labels.of(process, 8, sets), both);
  EXPECT_EQ(text(sets.sets()[labels.of(0, 8, sets)]), "route=/a user=ann ");

  // One without a name is asked for once in a while.
  for (const std::uint64_t now : {4, 5}) EXPECT_TRUE(labels.take(sent(9, "\7\1x"sv).event.head, sizeof(Sent), now));
  EXPECT_EQ(reads, 3);
  EXPECT_TRUE(labels.take(sent(9, "\7\1x"sv).event.head, sizeof(Sent), 4 + ThreadLabels::kReadInterval));
  EXPECT_EQ(reads, 4);

  labels.keep_only([](std::uint32_t) { return false; });
  EXPECT_EQ(labels.of(process, 5, sets), process);
}

// A library publishes the names behind its first label.
TEST(ThreadLabels, WithoutANameWaitForIt) {
  std::optional<std::vector<std::string>> names;
  ThreadLabels labels([&](std::uint32_t) { return names; });
  ProcessLabelSets sets;
  EXPECT_TRUE(labels.take(sent(5, "\0\2/a"sv).event.head, sizeof(Sent), 1));
  EXPECT_EQ(labels.of(0, 5, sets, 2), 0u);
  names = {{"route"}};
  EXPECT_EQ(labels.of(0, 5, sets, 3), 0u) << "it is not looked for again so soon";
  EXPECT_EQ(text(sets.sets()[labels.of(0, 5, sets, 2 + ThreadLabels::kReadInterval)]), "route=/a ");
}

TEST(ThreadLabels, ThatAreCutOffAreMalformed) {
  ThreadLabels labels;
  const Sent whole = sent(5, "\0\2/a"sv);
  EXPECT_FALSE(labels.take(whole.event.head, sizeof whole.event - 1));
  EXPECT_FALSE(labels.take(whole.event.head, sizeof whole.event + whole.event.size - 1));
  EXPECT_TRUE(labels.take(whole.event.head, sizeof whole.event + whole.event.size));
}

}  // namespace
}  // namespace windlass::profiler
