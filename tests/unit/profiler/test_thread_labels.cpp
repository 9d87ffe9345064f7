// Labels of threads, from the bytes that the kernel side sends to the sets of samples.
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "os/process_memory.h"
#include "profiler/processes/thread_context.h"
#include "profiler/samples/thread_labels.h"
#include "support/made_up_memory.h"

extern "C" __thread void* otel_thread_ctx_v1;

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

// A process context as OTEP 4719 has it in memory. So many reads of its head find another time of publishing each.
class SharedContext final : public test::MadeUpMemory {
 public:
  static constexpr std::uint64_t kAt = 0x10000, kVersion = kAt + 8, kSize = kAt + 12, kPublished = kAt + 16,
                                 kPayload = kAt + 24;
  SharedContext() : MadeUpMemory(kAt, 0x1000) {
    const std::string payload = std::string(kSchema) + std::string(kMap);
    put_bytes(kAt, "OTEL_CTX");
    put(kVersion, std::uint32_t{2});
    put(kSize, static_cast<std::uint32_t>(payload.size()));
    put(kPublished, std::uint64_t{1000});
    put(kPayload, kAt + 0x100);
    put_bytes(kAt + 0x100, payload);
  }
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (!MadeUpMemory::read(address, to, size)) return false;
    if (address == kAt && changes > 0) {
      const std::uint64_t published = 1000U + --changes + 1;
      std::memcpy(static_cast<char*>(to) + (kPublished - kAt), &published, sizeof published);
    }
    return true;
  }
  mutable unsigned changes = 0;
};

os::ProcMap mapping_of(std::uint64_t begin, std::string path) {
  os::ProcMap map;
  map.begin = begin, map.end = begin + 0x1000, map.path = std::move(path);
  return map;
}

TEST(ThreadLabels, TheProcessContextIsInAMappingOfItsName) {
  const SharedContext memory;
  for (const char* name : {"[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX (deleted)"}) {
    const std::vector maps{mapping_of(0x5000, "/usr/bin/program"), mapping_of(0x6000, "[anon:OTEL_CTX]"),
                           mapping_of(SharedContext::kAt, name)};
    const auto keys = read_label_keys(memory, maps);
    ASSERT_TRUE(keys.has_value()) << name << ": " << keys.error().text();
    EXPECT_EQ(*keys, kKeys);
    EXPECT_EQ(read_label_keys(memory, std::span(maps).first(2)).error().code, ErrorCode::kNotFound);
  }
  const std::vector other{mapping_of(SharedContext::kAt, "[anon:OTHER_CTX]")};
  EXPECT_EQ(read_label_keys(memory, other).error().code, ErrorCode::kNotFound);
}

TEST(ThreadLabels, AProcessContextThatIsNoneOrBeingWritten) {
  const std::vector maps{mapping_of(SharedContext::kAt, "[anon:OTEL_CTX]")};
  const auto after = [&](auto change) {
    SharedContext memory;
    change(memory);
    const auto keys = read_label_keys(memory, maps);
    return keys ? ErrorCode{} : keys.error().code;
  };
  using Context = SharedContext;
  EXPECT_EQ(after([](Context& it) { it.put_bytes(Context::kAt, "X"); }), ErrorCode::kNotFound);
  EXPECT_EQ(after([](Context& it) { it.put_bytes(Context::kAt + 7, "x"); }), ErrorCode::kNotFound);
  for (const std::uint32_t version : {1U, 3U})
    EXPECT_EQ(after([&](Context& it) { it.put(Context::kVersion, version); }), ErrorCode::kNotFound) << version;
  EXPECT_EQ(after([](Context& it) { it.put(Context::kPublished, std::uint64_t{0}); }), ErrorCode::kMalformed);
  EXPECT_EQ(after([](Context& it) { it.put(Context::kSize, std::uint32_t{kMostContext + 1}); }), ErrorCode::kMalformed);
  EXPECT_EQ(after([](Context& it) { it.put(Context::kSize, std::uint32_t{kMostContext}); }), ErrorCode::kUnreadable);
  EXPECT_EQ(after([](Context& it) { it.put(Context::kPayload, Context::kAt - 0x100); }), ErrorCode::kUnreadable);
  EXPECT_EQ(after([](Context& it) { it.put(Context::kSize, std::uint32_t{0}); }), ErrorCode::kNotFound);
  // It is read up to four times, until the time stays the same.
  for (const unsigned changes : {2U, 4U, 6U}) {
    SharedContext memory;
    memory.changes = changes;
    EXPECT_TRUE(read_label_keys(memory, maps)) << changes;
  }
  EXPECT_EQ(after([](Context& it) { it.changes = 8; }), ErrorCode::kMalformed);
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

// This program has the variable. Its linker says where the thread's storage of each module is.
TEST(ThreadContext, IsWhereTheLinkerHasPutIt) {
  struct Own {
    std::uint64_t base = 0, storage = 0;
  } own;
  const auto first = [](dl_phdr_info* image, std::size_t, void* to) {
    for (int i = 0; i < image->dlpi_phnum; ++i)
      if (image->dlpi_phdr[i].p_type == PT_PHDR)
        *static_cast<Own*>(to) = {reinterpret_cast<std::uint64_t>(image->dlpi_phdr) - image->dlpi_phdr[i].p_offset,
                                  reinterpret_cast<std::uint64_t>(image->dlpi_tls_data)};
    return 1;  // the program is the first image
  };
  ::dl_iterate_phdr(first, &own);
  ASSERT_NE(own.base, 0u);
  const os::MemoryFile memory(::getpid());
  const auto source = find_thread_context(memory, own.base, false);
  ASSERT_TRUE(source.has_value()) << source.error().text();
  const auto pointer = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
  auto offset = static_cast<std::uint64_t>(source->variable.offset);
  ASSERT_TRUE(source->kind == WL_LABELS_OFFSET || source->kind == WL_LABELS_OFFSET_AT) << source->kind;
  if (source->kind == WL_LABELS_OFFSET_AT) {
    ASSERT_TRUE(memory.read(source->variable.place, &offset, sizeof offset));
  }
  EXPECT_EQ(pointer + offset, reinterpret_cast<std::uint64_t>(&otel_thread_ctx_v1));
  // glibc's vector has the program's storage as its entry number 1.
  std::uint64_t vector = 0, storage = 0;
  ASSERT_TRUE(memory.read(pointer + static_cast<std::uint64_t>(std::int64_t{source->dtv}), &vector, sizeof vector));
  ASSERT_TRUE(memory.read(vector + source->dtv_entry, &storage, sizeof storage));
  EXPECT_EQ(storage, own.storage);
  // musl's is one of pointers.
  const auto of_musl = find_thread_context(memory, own.base, true);
  ASSERT_TRUE(of_musl.has_value());
  EXPECT_EQ(of_musl->dtv_entry, sizeof(void*));
  EXPECT_FALSE(find_thread_context(memory, own.base + 4096, false));
}

}  // namespace
}  // namespace windlass::profiler
