// Prologues as an author of generated code would describe them from the header alone. Each is written, and the rows
// of the written codes are those of the description, or refused by an error that names the rule.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/winarm64/frame_codes.h"
#include "formats/winarm64/lower.h"
#include "image.h"
#include "support/described_states.h"

namespace windlass::winarm64 {
namespace {

using namespace prologue;

struct Described {
  const char* name;
  Prologue prologue;
  const char* rule = "";   // empty: it is written; else the rule that its error names
  bool is_packed = false;  // 8 bytes in all
};

Prologue of(std::vector<prologue::Op> ops, std::vector<prologue::Epilogue> epilogues = {}) {
  return {.architecture = Architecture::kAArch64,
          .code_size = 160,
          .ops = std::move(ops),
          .epilogues = std::move(epilogues)};
}
// With the epilogue of compilers at the end.
Prologue whole(std::vector<prologue::Op> ops) {
  Prologue f = of(std::move(ops));
  const auto size = static_cast<std::uint32_t>(f.ops.size() + 1) * 4;
  f.epilogues = {mirrored(f, f.code_size - size)};
  return f;
}
// stp x29, x30, [sp, #-size]!
prologue::Op frame_record(std::uint32_t end, std::uint32_t size) { return {end, Save{29, 0, size, 30}}; }

std::vector<Described> prologues() {
  const Save record{29, 0, 16, 30};
  const std::vector<prologue::Op> framed{{4, record}, {8, SetFramePointer{29}}};
  Prologue part = whole({frame_record(4, 48), {8, SetFramePointer{29}}});
  part.parts = {{40, 80, {{44, Save{19, 16, 0, 20}}}, {{72, 80, {{76, Save{19, 16, 0, 20}}}}}}};
  Prologue handler = whole(framed);
  handler.handler = Handler{.rva = 0x3000};
  return {
      {"leaf", of({})},
      {"stp x29, x30; mov x29, sp", whole(framed), "", true},
      {"and 1 KiB of locals", whole({{4, record}, {8, SetFramePointer{29}}, {12, Allocate{1024}}})},
      {"x19 and x20", whole({{4, Save{19, 0, 32, 20}}, {8, Save{29, 16, 0, 30}}})},
      {"x19 to x24", whole({{4, Save{19, 0, 48, 20}}, {8, Save{21, 16, 0, 22}}, {12, Save{23, 32, 0, 24}}})},
      {"x19 alone", whole({{4, push(19, 16)}})},
      {"lr alone", whole({{4, push(30, 16)}})},
      {"x19 and lr", whole({{4, Allocate{32}}, {8, Save{19, 16, 0, 30}}})},
      {"d8 and d9", whole({{4, Save{72, 0, 16, 73}}, {8, record}})},
      {"d8 alone", whole({{4, Allocate{16}}, {8, Save{72, 8}}})},
      {"a signed return address", whole({{4, SignReturnAddress{}}, {8, record}, {12, SetFramePointer{29}}})},
      {"64 KiB by two instructions", whole({{4, record}, {8, Allocate{0x10000}}, {12, Allocate{16}}})},
      {"1 MiB of locals", whole({{4, record}, {12, Allocate{0x100000}}})},
      {"x29 in the middle", whole({{4, Allocate{96}}, {8, Save{29, 48, 0, 30}}, {12, SetFramePointer{29, 48}}})},
      {"homed parameters", whole({{4, Allocate{80}}, {8, Save{30, 0}}, {24, Allocate{16}}})},
      {"a part that saves x19", part},
      {"a handler", handler},
      {"mov sp, x29 is not there", of(framed, {{152, 160, {{156, SetFramePointer{29}}, {156, record}}}}), "", true},
      {"one add frees both",
       of({{4, Allocate{32}}, {8, Allocate{16}}}, {{152, 160, {{156, Allocate{16}}, {156, Allocate{32}}}}})},
      {"one ldp loads and frees", of({{4, Allocate{32}}, {8, Save{19, 0, 0, 20}}},
                                     {{152, 160, {{156, Save{19, 0, 0, 20}}, {156, Allocate{32}}}}})},

      {"x19 is the frame pointer", of({{4, push(19, 16)}, {8, SetFramePointer{19}}}),
       "only x29 can be a frame pointer"},
      {"x19 and x21", of({{4, Save{19, 0, 16, 21}}}), "registers are no pair"},
      {"x19 and d8", of({{4, Save{19, 0, 16, 72}}}), "registers are no pair"},
      {"sub sp, sp, #24", of({{4, Allocate{24}}}), "no multiple of 16"},
      {"stp far from sp", of({{4, Allocate{1024}}, {8, Save{19, 520, 0, 20}}}), "that far from sp"},
      {"an odd instruction", of({{6, Allocate{16}}}), "does not end at a multiple of 4"},
      {"sub and stp as one", of({{4, Allocate{16}}, {4, Save{29, 0, 0, 30}}}),
       "each op has one instruction of 4 bytes: a Save can allocate, too"},
      {"stp behind a move", of({{4, Save{19, 16, 32, 20}}}), "no one instruction moves sp and saves above"},
      {"x19 twice", of({{4, push(19, 16)}, {8, push(19, 16)}}), "saved twice"},
      {"a free before the load of one ldp",
       of({{4, Save{19, 0, 16, 20}}}, {{152, 160, {{156, Allocate{16}}, {156, Save{19, 0, 0, 20}}}}}),
       "a Save counts from sp as it is when the instruction runs"},
      {"two loads of one instruction",
       of({{4, Save{19, 0, 32, 20}}, {8, Save{21, 16, 0, 22}}, {12, Allocate{16}}},
          {{148, 160, {{152, Allocate{16}}, {156, Save{21, 16, 0, 22}}, {156, Save{19, 0, 32, 20}}}}}),
       "one instruction takes back allocations, or a Save and then allocations"},
      {"a load behind the free",
       of({{4, Allocate{32}}, {8, Save{19, 16}}, {12, Allocate{16}}},
          {{144, 160, {{148, Allocate{16}}, {152, Allocate{32}}, {156, Save{19, 16}}}}}),
       "a Save counts from sp as it is when the instruction runs"},
      {"the order of the prologue",
       of({{4, Save{19, 0, 16, 20}}, {8, record}}, {{148, 160, {{152, Save{19, 0, 16, 20}}, {156, record}}}}),
       "a Save counts from sp as it is when the instruction runs"},
      {"no authentication", of({{4, SignReturnAddress{}}, {8, record}}, {{152, 160, {{156, record}}}}),
       "does not take back all that was done"},
      {"the return frees", of({{4, Allocate{16}}}, {{100, 104, {{104, Allocate{16}}}}}),
       "last instruction of an epilogue must be one that takes nothing back"},
  };
}

// The SVE registers that Windows' functions preserve, above the frame record: as clang lays frames out.
Prologue scalable() {
  constexpr RegisterNumber kP4 = 52, kP15 = 63, kZ8 = 104, kZ23 = 119;
  Prologue f = whole({{4, Allocate{16}},
                      {8, AllocateVectors{18}},
                      {12, SaveVector{kP4}},
                      {16, SaveVector{kP15, 11}},
                      {20, SaveVector{kZ8, 2}},
                      {24, SaveVector{kZ23, 17}}});
  return f;
}

// The codes are those that clang 22 makes of .seh_allocz, .seh_save_preg and .seh_save_zreg.
TEST(WinArm64Prologues, SveRegisters) {
  const auto written = write(scalable(), {.function = kCode, .info = kXdata});
  ASSERT_TRUE(written) << written.error().text();
  std::vector<unsigned> bytes;
  for (const std::byte byte : written->bytes) bytes.push_back(std::to_integer<unsigned>(byte));
  const std::vector<unsigned> codes{0xe7, 0x0f, 0xd1, 0xe7, 0x00, 0xc2, 0xe7, 0x1f,
                                    0xcb, 0xe7, 0x14, 0xc0, 0xdf, 0x12, 0x01, 0xe4};
  ASSERT_EQ(bytes.size(), 4 + codes.size());
  EXPECT_EQ(std::vector<unsigned>(bytes.begin() + 4, bytes.end()), codes);
  // And back.
  const std::vector<std::uint8_t> info(bytes.begin(), bytes.end());
  const auto record = parse_record(ByteView(std::span<const std::uint8_t>(info)), kXdata);
  ASSERT_TRUE(record);
  const auto again = prologue_of(*record);
  ASSERT_TRUE(again) << again.error().text();
  const auto same = write(*again, {.function = kCode, .info = kXdata});
  ASSERT_TRUE(same) << same.error().text();
  EXPECT_EQ(same->bytes, written->bytes);
}

// The length of a vector is no constant, so no row has what lies behind vectors. Both ways to rows say so.
TEST(WinArm64Prologues, NoRowBehindSveVectors) {
  constexpr const char* kReason = "no row: sp and pc lie behind SVE vectors, whose length is not known";
  const auto rows = rows_of(scalable());
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().what, std::string(kReason));
  EXPECT_EQ(rows.error().where, 8U);
  // Before the vectors, and where x29 leads past them, rows are as of other frames. d8 is lost: z8 lies behind bytes
  // and vectors.
  Prologue f =
      of({{4, Save{29, 0, 16, 30}}, {8, SetFramePointer{29}}, {12, AllocateVectors{1}}, {16, SaveVector{104}}});
  const auto found = rows_of(f);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->back().cfa, CfaRule::at(29, 16));
  ASSERT_NE(found->back().registers.find(72), nullptr);
  EXPECT_TRUE(found->back().registers.find(72)->is(RegisterRule::kUndefined));
  const auto written = write(f, {.function = kCode, .info = kXdata});
  ASSERT_TRUE(written) << written.error().text();
  std::vector<std::uint8_t> info;
  for (const std::byte byte : written->bytes) info.push_back(std::to_integer<std::uint8_t>(byte));
  const TestImage image(info, written->entries);
  const Functions functions = image.functions();
  FrameRow row;
  ASSERT_TRUE(RowEvaluator(functions).row_at(written->entries[0], kCode + 100, row));
  EXPECT_EQ(row.cfa, found->back().cfa);
  EXPECT_EQ(row.return_address, found->back().return_address);
}

TEST(WinArm64Prologues, SveRules) {
  constexpr RegisterNumber kZ8 = 104, kZ9 = 105, kZ24 = 120;
  const prologue::Op two{4, AllocateVectors{2}};
  const std::vector<Described> refused = {
      {"", of({{4, SaveVector{kZ8}}}), "outside of the vectors at sp"},
      {"", of({two, {8, SaveVector{kZ8, 2}}}), "outside of the vectors at sp"},
      {"", of({two, {8, Allocate{16}}, {12, SaveVector{kZ8}}}), "outside of the vectors at sp"},
      {"", of({two, {8, SaveVector{kZ8}}, {12, SaveVector{kZ9}}}), "saved where another one is"},
      {"", of({two, {8, SaveVector{kZ8}}, {12, SaveVector{kZ8, 1}}}), "saved twice"},
      {"", of({two, {8, Save{19, 0, 0, 20}}}), "across SVE vectors"},
      {"", of({two, {8, Save{kZ8}}}), "SVE registers are saved by SaveVector"},
      {"", of({two, {8, SaveVector{19}}}), "saves z and p registers of SVE"},
      {"", of({two, {8, SaveVector{kZ24}}}), "SVE register or offset is out of reach of its code"},
      {"", of({{4, AllocateVectors{0}}}), "allocation of no SVE vectors"},
      {"", of({{4, AllocateVectors{256}}}), "size is larger than its code can hold"},
      {"", of({two, {8, Allocate{16}}}, {{148, 160, {{152, AllocateVectors{2}}, {156, Allocate{16}}}}}),
       "frees SVE vectors that are not at sp"},
      {"", of({two, {8, SaveVector{kZ8}}}, {{148, 160, {{152, SaveVector{kZ8, 1}}, {156, AllocateVectors{2}}}}}),
       "SaveVector counts from sp as it is when the instruction runs"},
  };
  for (const Described& one : refused) {
    const auto written = write(one.prologue);
    ASSERT_FALSE(written) << one.rule;
    EXPECT_NE(written.error().text().find(one.rule), std::string::npos) << written.error().text();
  }
  Prologue x64{.code_size = 40, .ops = {two}};
  EXPECT_EQ(prologue::check(x64).error().text(), "0x4: SVE vectors are those of AArch64");
}

// The rows of the written codes, by instruction.
std::vector<FrameRow> rows_of_written(const Written& written) {
  std::vector<std::uint8_t> info;
  for (const std::byte byte : written.bytes) info.push_back(std::to_integer<std::uint8_t>(byte));
  info.resize(info.size() + 16);
  const TestImage image(info, written.entries);
  const Functions functions = image.functions();
  RowEvaluator evaluator(functions);
  std::vector<FrameRow> rows;
  for (const RuntimeFunction& entry : written.entries) {
    const auto done = evaluator.for_each_row(
        entry, [&](const FrameRow& row) { rows.push_back(row); },
        [](const Error& error) { ADD_FAILURE() << error.text(); });
    EXPECT_TRUE(done);
  }
  return rows;
}

void expect_described(const Prologue& f, const Written& written) {
  const auto described = rows_of(f);
  ASSERT_TRUE(described);
  const auto rows = rows_of_written(written);
  for (const FrameRow& row : *described) {
    for (std::uint64_t at = row.begin; at < row.end; at += 4) {
      const FrameState state = test::described_state(f, static_cast<std::uint32_t>(at));
      const auto expected = test::places(row, state, f.architecture);
      const auto found = std::find_if(rows.begin(), rows.end(), [&](const FrameRow& candidate) {
        return candidate.begin <= kCode + at && kCode + at < candidate.end;
      });
      if (found == rows.end() && state.is_entry()) continue;  // as a leaf
      ASSERT_NE(found, rows.end()) << at;
      EXPECT_EQ(test::places(*found, state, f.architecture), expected) << at;
    }
  }
}

TEST(WinArm64Prologues, WrittenOrRefusedByARule) {
  for (const Described& one : prologues()) {
    SCOPED_TRACE(one.name);
    const auto written = write(one.prologue, {.function = kCode, .info = kXdata});
    if (*one.rule != 0) {
      ASSERT_FALSE(written);
      EXPECT_NE(written.error().text().find(one.rule), std::string::npos) << written.error().text();
      continue;
    }
    ASSERT_TRUE(written) << written.error().text();
    EXPECT_EQ(written->entries.empty(), one.prologue.ops.empty());
    if (one.is_packed) {
      EXPECT_TRUE(written->bytes.empty());
    }
    if (!written->entries.empty()) expect_described(one.prologue, *written);
  }
  EXPECT_EQ(prologues().size(), 35U);
}

}  // namespace
}  // namespace windlass::winarm64
