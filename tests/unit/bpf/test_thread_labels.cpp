// Labels that programs set for their threads (bpf/windlass_labels.h), as user code.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "fake_target.h"

#include "windlass_labels.h"

namespace windlass::testing {
namespace {

constexpr std::uint64_t kThread = 0x7f12'3456'0740, kRecord = 0x5555'0000'1002, kSlot = 0x5555'0000'4000,
                        kVector = 0x7f12'0000'0000, kStorage = 0x7f12'1111'0000, kGo = 0xc000'0000'0000;

class Labels : public ::testing::Test {
 protected:
  Labels() {
    target.scratch->unwind.env = target.env;
    target.scratch->unwind.thread_pointer = kThread;
    labels.source.dtv = 8;
    labels.source.dtv_entry = 16;
    write_record("\1\3abc\2\0", 1);
  }
  template <std::size_t N>
  void write_record(const char (&attributes)[N], std::uint8_t valid) {
    write_record(std::string(attributes, N - 1), valid);
  }
  void write_record(const std::string& attributes, std::uint8_t valid) {
    std::vector<std::uint8_t> bytes(28);
    bytes[0] = 0xab;
    bytes[16] = 0xcd;
    bytes[24] = valid;
    bytes[25] = 1;
    bytes[26] = static_cast<std::uint8_t>(attributes.size());
    bytes[27] = static_cast<std::uint8_t>(attributes.size() >> 8);
    bytes.insert(bytes.end(), attributes.begin(), attributes.end());
    target.memory[kRecord] = bytes;
  }
  int read(wl_label_kind kind, std::uint64_t place, std::int64_t offset) {
    labels.source.kind = kind;
    labels.source.variable = {place, offset};
    return wl_read_labels(target.scratch.get());
  }
  int read_go(wl_label_kind kind) {
    labels.source.kind = kind;
    labels.source.go = {-8, 0x30, 0xc0, 0x160, 0};
    target.write(kThread - 8, {kGo});
    target.write(kGo + 0x30, {kGo + 0x1000});
    target.write(kGo + 0x10c0, {kGo + 0x2000});
    target.write(kGo + 0x2160, {kGo + 0x3000});
    return wl_read_labels(target.scratch.get());
  }
  std::string attributes() const {
    return {reinterpret_cast<const char*>(labels.text.context.attributes), labels.text.context.size};
  }
  static std::string text(const std::uint8_t* bytes, std::uint32_t size) {
    return {reinterpret_cast<const char*>(bytes), size};
  }

  FakeTarget target;
  wl_labels& labels = target.scratch->labels;
};

TEST_F(Labels, AreFoundByEachAccessModel) {
  target.write(kThread - 0x40, {kRecord});
  EXPECT_EQ(read(WL_LABELS_OFFSET, 0, -0x40), 0);
  EXPECT_EQ(attributes(), std::string("\1\3abc\2\0", 7));
  EXPECT_EQ(labels.size, 40u);
  target.write(kSlot, {static_cast<std::uint64_t>(-0x40)});
  EXPECT_EQ(read(WL_LABELS_OFFSET_AT, kSlot, 0), 0);
  target.write(kSlot, {0xdead, static_cast<std::uint64_t>(-0x40)});
  EXPECT_EQ(read(WL_LABELS_DESCRIPTOR, kSlot, 0), 0);

  target.write(kThread + 8, {kVector});
  target.write(kVector + 3 * 16, {kStorage});
  target.write(kStorage + 0x18, {kRecord});
  target.write(kSlot, {3, 0x18});
  EXPECT_EQ(read(WL_LABELS_INDEX, kSlot, 0), 0);
  target.write(kSlot + 0x100, {0xdead, kSlot});
  EXPECT_EQ(read(WL_LABELS_DESCRIPTOR, kSlot + 0x100, 0), 0);
  labels.source.dtv_entry = 8;
  target.write(kVector + 3 * 8, {kStorage + 0x1000});
  EXPECT_NE(read(WL_LABELS_INDEX, kSlot, 0), 0);
}

TEST_F(Labels, AreNotThereBeforeTheLinkerOrTheThreadHasMadeThem) {
  target.write(kThread - 0x40, {0});
  EXPECT_NE(read(WL_LABELS_OFFSET, 0, -0x40), 0);
  target.write(kSlot, {0, 0});
  EXPECT_NE(read(WL_LABELS_OFFSET_AT, kSlot, 0), 0);
  EXPECT_NE(read(WL_LABELS_DESCRIPTOR, kSlot, 0), 0);
  EXPECT_NE(read(WL_LABELS_INDEX, kSlot, 0), 0);
  target.write(kSlot, {3, 0x18});
  target.write(kThread + 8, {kVector});
  target.write(kVector + 3 * 16, {~0ULL});
  target.write(~0ULL + 0x18, {kRecord});  // where an unallocated entry would lead
  EXPECT_NE(read(WL_LABELS_INDEX, kSlot, 0), 0);
  target.write(kSlot, {1ULL << 40, 0x18});
  EXPECT_NE(read(WL_LABELS_INDEX, kSlot, 0), 0);
  target.scratch->unwind.thread_pointer = 0;
  EXPECT_NE(read(WL_LABELS_OFFSET, 0, kThread - 0x40), 0);
}

TEST_F(Labels, OfARecordThatIsWrittenOrUnreadableAreNone) {
  target.write(kThread, {kRecord});
  write_record("\1\3abc", 0);
  EXPECT_NE(read(WL_LABELS_OFFSET, 0, 0), 0);
  write_record("\1\3abc", 2);
  EXPECT_NE(read(WL_LABELS_OFFSET, 0, 0), 0);
  write_record("\1\3abc", 1);
  target.memory[kRecord].resize(30);
  EXPECT_NE(read(WL_LABELS_OFFSET, 0, 0), 0);
  target.memory[kRecord].resize(20);
  EXPECT_NE(read(WL_LABELS_OFFSET, 0, 0), 0);
}

TEST_F(Labels, AreBounded) {
  target.write(kThread, {kRecord});
  write_record(std::string(2000, 'x'), 1);
  ASSERT_EQ(read(WL_LABELS_OFFSET, 0, 0), 0);
  EXPECT_EQ(attributes(), std::string(WL_MAX_ATTRIBUTES, 'x'));
  EXPECT_LE(labels.size, sizeof labels.text);
  write_record("", 1);
  ASSERT_EQ(read(WL_LABELS_OFFSET, 0, 0), 0);
  EXPECT_EQ(labels.size, 32u);
}

// Equal attributes have an equal hash, whatever was read before, and others another one. Ids count if they are wanted.
TEST_F(Labels, HaveAHash) {
  target.write(kThread, {kRecord});
  ASSERT_EQ(read(WL_LABELS_OFFSET, 0, 0), 0);
  const std::uint64_t first = labels.hash;
  write_record(std::string(100, 'y'), 1);
  ASSERT_EQ(read(WL_LABELS_OFFSET, 0, 0), 0);
  EXPECT_NE(labels.hash, first);
  write_record("\1\3abc\2\0", 1);
  target.memory[kRecord][1] = 0x77;  // another trace
  ASSERT_EQ(read(WL_LABELS_OFFSET, 0, 0), 0);
  EXPECT_EQ(labels.hash, first);
  EXPECT_EQ(labels.text.context.trace_id[0], 0);
  labels.source.with_ids = 1;
  ASSERT_EQ(read(WL_LABELS_OFFSET, 0, 0), 0);
  EXPECT_NE(labels.hash, first);
  EXPECT_EQ(labels.text.context.trace_id[0], 0xab);
  EXPECT_EQ(labels.text.context.span_id[0], 0xcd);
}

TEST_F(Labels, OfAGoroutineAreInAMap) {
  target.memory[kGo + 0x8000] = {'r', 'o', 'u', 't', 'e', '/', 'a'};
  std::vector<std::uint64_t> bucket(33);
  bucket[0] = 0x0000'0100'2000'0500;  // tops: 0x05 and 0x20 are taken, 1 is empty
  bucket[1 + 2] = kGo + 0x8000, bucket[2 + 2] = 5, bucket[17 + 2] = kGo + 0x8005, bucket[18 + 2] = 2;
  bucket[1 + 6] = kGo + 0x8000, bucket[2 + 6] = 1, bucket[17 + 6] = kGo + 0x8000, bucket[18 + 6] = 0;
  target.write(kGo + 0x3000, {kGo + 0x4000});
  target.write(kGo + 0x4000, {2, 0, kGo + 0x5000});
  target.write(kGo + 0x5000, bucket);
  ASSERT_EQ(read_go(WL_LABELS_GO_MAP), 0);
  ASSERT_EQ(labels.count, 2u);
  EXPECT_EQ(labels.size, 2 * sizeof(wl_go_label));
  EXPECT_EQ(text(labels.text.go[0].key, labels.text.go[0].key_size), "route");
  EXPECT_EQ(text(labels.text.go[0].value, labels.text.go[0].value_size), "/a");
  EXPECT_EQ(text(labels.text.go[1].key, labels.text.go[1].key_size), "r");
  EXPECT_EQ(labels.text.go[1].value_size, 0u);
  target.write(kGo + 0x4000, {9, 1 << 8, kGo + 0x5000});  // two buckets
  EXPECT_NE(read_go(WL_LABELS_GO_MAP), 0);
}

TEST_F(Labels, OfAGoroutineAreInASlice) {
  target.memory[kGo + 0x8000] = std::vector<std::uint8_t>(300, 'k');
  std::vector<std::uint64_t> list;
  for (unsigned i = 0; i < 9; ++i) list.insert(list.end(), {kGo + 0x8000, i + 1, kGo + 0x8000, 300});
  target.write(kGo + 0x3000, {kGo + 0x4000, 9});
  target.write(kGo + 0x4000, list);
  ASSERT_EQ(read_go(WL_LABELS_GO_SLICE), 0);
  EXPECT_EQ(labels.count, WL_GO_LABELS);
  EXPECT_EQ(labels.text.go[7].key_size, 8u);
  EXPECT_EQ(labels.text.go[7].value_size, WL_GO_VALUE);
  target.write(kGo + 0x3000, {kGo + 0x4000, 0});
  EXPECT_NE(read_go(WL_LABELS_GO_SLICE), 0);
  target.write(kGo + 0x3000, {kGo + 0x9000, 1});
  EXPECT_NE(read_go(WL_LABELS_GO_SLICE), 0);
}

}  // namespace
}  // namespace windlass::testing
