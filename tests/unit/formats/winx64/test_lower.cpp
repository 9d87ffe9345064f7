#include "formats/winx64/lower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "formats/winx64/known_lowering.h"
#include "formats/winx64/registers.h"
#include "support/pe_image_builder.h"
#include "support/same_rows.h"

namespace windlass {
namespace {

using test::Bytes;
using test::PeImageBuilder;
using test::UnwindInfoBytes;

constexpr auto slot = &UnwindInfoBytes::slot;
constexpr RegisterNumber kRbx = 3, kRsi = 4, kRbp = 6, kRsp = 7;

struct Lowered {
  std::vector<FrameRow> rows;
  std::vector<Error> problems;
  [[nodiscard]] const FrameRow& at(std::uint32_t rva) const {
    for (const FrameRow& row : rows) {
      if (rva >= row.begin && rva < row.end) return row;
    }
    static const FrameRow none;
    return none;
  }
};

// Behind information that is kept, so that none ends with the image.
Bytes padding() {
  Bytes zeros;
  for (int i = 0; i < 64; ++i) zeros.u8(0);
  return zeros;
}

Lowered lower(PeImageBuilder& builder) {
  builder.data(padding());
  const auto file = builder.build();
  const auto image = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(file)));
  const winx64::Functions functions(*image);
  Lowered result;
  std::vector<std::size_t> rows_before;  // each problem
  for (std::size_t i = 0; i < functions.size(); ++i) {
    winx64::lower(
        functions, functions.stored(i), [&](const FrameRow& row) { result.rows.push_back(row); },
        [&](const Error& error) {
          result.problems.push_back(error);
          rows_before.push_back(result.rows.size());
        });
  }
  // With rows kept from function to function: at first they are learned, then recalled.
  winx64::RowEvaluator evaluator(functions);
  for (int round = 0; round < 2; ++round) {
    Lowered again;
    test::RowNumbers numbers;
    for (std::size_t i = 0; i < functions.size(); ++i) {
      const auto keep = [&](const FrameRow& row) {
        EXPECT_TRUE(numbers.fits(row, evaluator.number()));
        again.rows.push_back(row);
      };
      evaluator.for_each_row(functions.stored(i), keep, [&](const Error& error) { again.problems.push_back(error); });
    }
    EXPECT_TRUE(test::are_same(again.rows, result.rows)) << round;
    EXPECT_EQ(again.problems.size(), result.problems.size()) << round;
    std::vector<FrameRow> together;
    std::vector<std::size_t> before;
    const auto keep_all = [&](std::span<const NumberedRow> rows) {
      for (const NumberedRow& each : rows) together.push_back(evaluator.rows().row_of(each));
    };
    for (std::size_t i = 0; i < functions.size(); ++i)
      evaluator.for_each_row(
          functions.stored(i), keep_all, [&](const FrameRow& row) { together.push_back(row); },
          [&](const Error&) { before.push_back(together.size()); });
    EXPECT_TRUE(test::are_same(together, result.rows)) << round;
    EXPECT_EQ(before, rows_before) << round;
  }
  return result;
}

void expect_cfa(const FrameRow& row, RegisterNumber reg, std::int32_t offset) {
  EXPECT_TRUE(row.cfa.is_at(reg));
  EXPECT_EQ(row.cfa.offset(), offset);
}
void expect_rule(const FrameRow& row, RegisterNumber reg, const RegisterRule& rule) {
  const RegisterRule* found = row.registers.find(reg);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(*found == rule);
}

TEST(WinX64Lower, PrologueBodyAndEpilogue) {
  PeImageBuilder builder;
  // push rbx; sub rsp, 0x40; mov eax, 0xc3; add rsp, 0x40; pop rbx; ret; int3
  const auto code =
      builder.text({0x53, 0x48, 0x83, 0xec, 0x40, 0xb8, 0xc3, 0, 0, 0, 0x48, 0x83, 0xc4, 0x40, 0x5b, 0xc3, 0xcc});
  UnwindInfoBytes info;
  info.prolog_size = 5;
  info.slots = {slot(5, 2, 7), slot(1, 0, 3)};
  builder.entry(code, builder.next_text(), builder.data(info.bytes()));
  const Lowered lowered = lower(builder);
  EXPECT_TRUE(lowered.problems.empty());
  ASSERT_EQ(lowered.rows.size(), 6U);
  expect_cfa(lowered.at(code), kRsp, 8);
  expect_rule(lowered.at(code), kRsi, RegisterRule::same_value());
  EXPECT_EQ(lowered.at(code).registers.find(kRbx), nullptr);
  expect_cfa(lowered.at(code + 1), kRsp, 16);
  expect_rule(lowered.at(code + 1), kRbx, RegisterRule::at_cfa(-16));
  expect_cfa(lowered.at(code + 5), kRsp, 80);
  EXPECT_EQ(lowered.at(code + 5).end, code + 14U);  // the release says what the body says; the 0xc3 is a number
  expect_cfa(lowered.at(code + 14), kRsp, 16);      // whose 0x40 is no REX prefix of the pop
  expect_rule(lowered.at(code + 14), kRbx, RegisterRule::at_cfa(-16));
  expect_cfa(lowered.at(code + 15), kRsp, 8);
  expect_cfa(lowered.at(code + 16), kRsp, 80);
}

TEST(WinX64Lower, NopBehindACallIsOfNoEpilogue) {
  PeImageBuilder builder;
  UnwindInfoBytes info;
  info.slots = {slot(0, 2, 4)};
  const auto code = builder.text({0x90, 0x90, 0xe8, 0, 0, 0, 0, 0x90, 0xc3});
  builder.entry(code, builder.next_text(), builder.data(info.bytes()));
  const auto file = builder.build();
  const auto image = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(file)));
  const winx64::Functions functions(*image);
  const Lowered lowered = lower(builder);
  for (std::uint32_t rva = code; rva < code + 9; ++rva) {
    const int cfa = rva == code + 8 ? 8 : 48;
    expect_cfa(lowered.at(rva), kRsp, cfa);
    FrameRow row;
    ASSERT_TRUE(winx64::row_at(functions, functions.stored(0), rva, row));
    expect_cfa(row, kRsp, cfa);
  }
}

TEST(WinX64Lower, NoJumpLeavesTheImage) {
  PeImageBuilder builder;
  UnwindInfoBytes info;
  info.prolog_size = 4;
  info.slots = {slot(4, 2, 4)};
  // sub rsp, 0x28; jmp to what follows the function; the same by a displacement of 2 GiB; int3
  const auto code = builder.text(
      {0x48, 0x83, 0xec, 0x28, 0xe9, 6, 0, 0, 0, 0xe9, 0xff, 0xff, 0xff, 0x7f, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc});
  builder.entry(code, code + 15, builder.data(info.bytes()));
  const Lowered lowered = lower(builder);
  expect_cfa(lowered.at(code + 4), kRsp, 8);
  expect_cfa(lowered.at(code + 9), kRsp, 48);
}

TEST(WinX64Lower, FrameRegisterAndXmm) {
  PeImageBuilder builder;
  const auto code = builder.text({0x90, 0x90, 0x90, 0x90});
  UnwindInfoBytes info;
  info.prolog_size = 3;
  info.frame_register = 5;
  info.frame_offset = 2;
  info.slots = {slot(3, 8, 6), 1, slot(2, 3, 0), slot(2, 2, 7), slot(1, 0, 5)};
  builder.entry(code, code + 4, builder.data(info.bytes()));
  const Lowered lowered = lower(builder);
  // rsp = rbp - 32, 64 bytes, rbp, return address
  expect_cfa(lowered.at(code + 3), kRbp, -32 + 64 + 16);
  expect_rule(lowered.at(code + 3), 23, RegisterRule::at_cfa(-64));
  EXPECT_EQ(lowered.at(code + 2).registers.find(23), nullptr);
}

// [error code] rip cs rflags rsp ss, then rbx and 32 bytes.
TEST(WinX64Lower, MachineFrames) {
  PeImageBuilder builder;
  const auto code = builder.text({0x53, 0x48, 0x83, 0xec, 0x20, 0x90, 0x90});
  UnwindInfoBytes info;
  info.prolog_size = 5;
  info.slots = {slot(5, 2, 3), slot(1, 0, 3), slot(0, 10, 1)};
  builder.entry(code, builder.next_text(), builder.data(info.bytes()));
  const Lowered lowered = lower(builder);
  EXPECT_TRUE(lowered.problems.empty());
  ASSERT_EQ(lowered.rows.size(), 3U);
  EXPECT_TRUE(lowered.at(code).cfa == CfaRule::loaded(kRsp, 8 + 24, 0));
  EXPECT_TRUE(lowered.at(code).return_address == RegisterRule::at_register(kRsp, 8));
  EXPECT_TRUE(lowered.at(code).signal_frame);
  EXPECT_EQ(lowered.at(code).registers.find(kRbx), nullptr);
  const FrameRow& body = lowered.at(code + 5);
  EXPECT_TRUE(body.cfa == CfaRule::loaded(kRsp, 40 + 8 + 24, 0));
  EXPECT_TRUE(body.return_address == RegisterRule::at_register(kRsp, 40 + 8));
  expect_rule(body, kRbx, RegisterRule::at_register(kRsp, 32));
  EXPECT_TRUE(body.signal_frame);
}

// Nothing ties rsp to the frame register: each save is told from the one it was made by.
TEST(WinX64Lower, SavesBehindTheFrameRegister) {
  PeImageBuilder builder;
  const auto code = builder.text({0x90, 0x90});
  UnwindInfoBytes info;
  info.frame_register = 5;
  info.slots = {slot(0, 0, 3), slot(0, 3, 0), slot(0, 0, 12)};
  builder.entry(code, code + 1, builder.data(info.bytes()));
  const Lowered lowered = lower(builder);
  EXPECT_TRUE(lowered.problems.empty());
  ASSERT_EQ(lowered.rows.size(), 1U);
  expect_cfa(lowered.rows[0], kRbp, 16);
  expect_rule(lowered.rows[0], kRbx, RegisterRule::at_register(kRsp, 0));
  expect_rule(lowered.rows[0], 12, RegisterRule::at_cfa(-16));
}

// Whether a function is the first or a later one with its information, and whether or not it ends in its prologue.
TEST(WinX64Lower, FunctionsWithTheSameInformation) {
  PeImageBuilder builder;
  UnwindInfoBytes pushes;  // push rbp; push rbx; sub rsp, 0x40
  pushes.prolog_size = 6;
  pushes.slots = {slot(6, 2, 7), slot(2, 0, 3), slot(1, 0, 5)};
  UnwindInfoBytes saves = pushes;  // mov [rsp + 0x50], rsi behind
  saves.prolog_size = 11;
  saves.slots.insert(saves.slots.begin(), {slot(11, 4, 6), 10});
  UnwindInfoBytes handled = pushes;
  handled.flags = winx64::kEhandler;
  UnwindInfoBytes framed = pushes;  // lea rbp, [rsp + 0x20]
  framed.prolog_size = 11;
  framed.frame_register = 5;
  framed.frame_offset = 2;
  framed.slots.insert(framed.slots.begin(), slot(11, 3, 0));
  const UnwindInfoBytes nothing;
  for (const std::uint32_t size : {18, 4, 18}) {
    for (const auto& info : {pushes, saves, handled, framed, nothing}) {
      const auto code = builder.text(
          {0x55, 0x53, 0x48, 0x83, 0xec, 0x40, 0x48, 0x89, 0x74, 0x24, 0x50, 0x48, 0x83, 0xc4, 0x40, 0x5b, 0x5d, 0xc3});
      Bytes bytes = info.bytes();
      if (info.flags != 0) bytes.u32(code);
      builder.entry(code, code + size, builder.data(bytes));
    }
  }
  const Lowered lowered = lower(builder);
  EXPECT_TRUE(lowered.problems.empty());
  EXPECT_GT(lowered.rows.size(), 60U);
}

// An image may have more kinds of rows than are kept.
TEST(WinX64Lower, MoreRowsThanAreKept) {
  PeImageBuilder builder;
  std::array<int, 8> pops = {0x58, 0x59, 0x5a, 0x5b, 0x5d, 0x5e, 0x5f, 0x90};
  std::minstd_rand random(1);
  const auto code = builder.next_text();
  constexpr int kEpilogues = 1500;
  for (int i = 0; i < kEpilogues; ++i) {
    std::shuffle(pops.begin(), pops.end() - 1, random);
    builder.text({0x48, 0x83, 0xc4, 0x20, pops[0], pops[1], pops[2], pops[3], pops[4], pops[5], pops[6], 0xc3});
  }
  UnwindInfoBytes info;
  info.slots = {slot(0, 2, 3)};
  const auto at = builder.data(info.bytes());
  builder.data(padding());
  builder.entry(code, builder.next_text(), at);
  const auto last = builder.text({0x90, 0xc3});
  builder.entry(last, builder.next_text(), at);
  const auto file = builder.build();
  const auto image = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(file)));
  const winx64::Functions functions(*image);
  winx64::RowEvaluator evaluator(functions);
  test::RowNumbers numbers;
  std::size_t unnumbered = 0;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    std::vector<FrameRow> alone;
    const auto fail = [](const Error& error) { FAIL() << error.text(); };
    winx64::lower(
        functions, functions.stored(i), [&](const FrameRow& row) { alone.push_back(row); }, fail);
    std::uint64_t next = alone.front().begin;
    const auto compare = [&](const FrameRow& row) {
      EXPECT_EQ(row.begin, next);
      next = row.end;
      EXPECT_TRUE(numbers.fits(row, evaluator.number()));
      unnumbered += evaluator.number() == 0 ? 1U : 0U;
      const auto there = std::ranges::find_if(alone, [&](const FrameRow& it) { return row.begin < it.end; });
      ASSERT_NE(there, alone.end());
      EXPECT_TRUE(row.cfa == there->cfa && test::say_the_same(row, *there)) << row.begin;
    };
    evaluator.for_each_row(functions.stored(i), compare, fail);
    EXPECT_EQ(next, alone.back().end);
  }
  EXPECT_GT(unnumbered, 100U);
  EXPECT_GT(numbers.size(), 2000U);
}

TEST(WinX64Lower, SaysWhatItCannotSay) {
  PeImageBuilder builder;
  const auto code = builder.text({0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90});
  UnwindInfoBytes restored;  // the frame register, before it is used
  restored.prolog_size = 0;
  restored.frame_register = 5;
  restored.slots = {slot(0, 0, 5), slot(0, 3, 0)};
  builder.entry(code, code + 1, builder.data(restored.bytes()));
  UnwindInfoBytes machine;  // below another frame
  machine.slots = {slot(0, 10, 0), slot(0, 0, 3)};
  builder.entry(code + 1, code + 2, builder.data(machine.bytes()));
  UnwindInfoBytes loop;
  loop.flags = winx64::kChaininfo;
  const auto at = builder.next_data();
  builder.data(loop.bytes().u32(code + 3).u32(code + 4).u32(at));
  builder.entry(code + 3, code + 4, at);
  builder.entry(code + 4, code + 4, at);
  UnwindInfoBytes large;  // 2 GiB
  large.slots = {slot(0, 1, 1), 0, 0x8000};
  builder.entry(code + 5, code + 6, builder.data(large.bytes()));
  const Lowered lowered = lower(builder);
  EXPECT_TRUE(lowered.rows.empty());
  ASSERT_EQ(lowered.problems.size(), 5U);
  EXPECT_EQ(lowered.problems[0].where, code);
  EXPECT_EQ(lowered.problems[1].where, code + 1);
  EXPECT_EQ(lowered.problems[2].code, ErrorCode::kLimit);
  EXPECT_EQ(lowered.problems[3].code, ErrorCode::kMalformed);
  EXPECT_EQ(lowered.problems[4].code, ErrorCode::kLimit);
  EXPECT_EQ(lowered.problems[4].where, code + 5);
}

// What rows depend on: version, prologue, frame register and codes.
TEST(WinX64Lower, TheKeyOfUnwindInformation) {
  using Key = winx64::KnownPrologue::Key;
  // Flags; codes; what stands behind them: an end of codes, or the last one; bytes of information.
  const auto key_of = [](unsigned flags, unsigned codes, unsigned last, unsigned behind, std::size_t size = 100,
                         unsigned version = 1) -> std::optional<Key> {
    std::vector<std::byte> bytes(size, std::byte(behind));
    const std::size_t end = 4 + std::size_t{codes} * 2;
    bytes[0] = std::byte(version | flags << 3), bytes[1] = std::byte{40}, bytes[2] = std::byte(codes),
    bytes[3] = std::byte{0x25};
    for (std::size_t at = 4; at < end; ++at) bytes[at] = std::byte(at);
    if (codes != 0) bytes[end - 1] = std::byte(last);
    Key key;
    return key.assign(ByteView(bytes.data(), bytes.size())) ? std::optional(key) : std::nullopt;
  };
  for (const unsigned codes : {0U, 1U, 2U, 3U, 5U, 6U, 7U, 25U, 26U}) {  // 26: 56 bytes, the most
    const auto key = key_of(0, codes, 7, 0);
    ASSERT_TRUE(key) << codes;
    EXPECT_EQ(key->frame_register(), 5U);
    EXPECT_EQ(key_of(winx64::kEhandler | winx64::kUhandler, codes, 7, 0), key) << codes;
    EXPECT_EQ(key_of(0, codes, 7, 0xff), key) << codes;
    EXPECT_EQ(key_of(0, codes, 8, 0) == key, codes == 0) << codes;
    EXPECT_NE(key_of(0, codes + 1, 7, 0), key) << codes;
  }
  EXPECT_FALSE(key_of(0, 27, 7, 0));
  EXPECT_FALSE(key_of(winx64::kChaininfo, 3, 7, 0));
  EXPECT_FALSE(key_of(0, 3, 7, 0, 100, 2));
  // Not cut off: the most bytes that are looked at, and an entry of the table behind them.
  EXPECT_TRUE(key_of(0, 3, 7, 0, 56 + 12));
  EXPECT_FALSE(key_of(0, 3, 7, 0, 56 + 11));
}

}  // namespace
}  // namespace windlass
