// Writing: codes, records and entries byte by byte, and every limit by its error. That what is written unwinds rightly
// is tested by running it (test_winarm64_write).
#include <algorithm>

#include <gtest/gtest.h>

#include "formats/winarm64/encode_codes.h"
#include "formats/winarm64/frame_codes.h"

namespace windlass::winarm64 {
namespace {

using namespace prologue;

ByteView view_of(const CodeBytes& bytes) { return ByteView(std::span<const std::uint8_t>(bytes)); }

Prologue function(std::vector<prologue::Op> ops, std::uint32_t size = 400) {
  return {.architecture = Architecture::kAArch64, .code_size = size, .ops = std::move(ops)};
}
prologue::Op chain(std::uint32_t end, std::uint32_t size) { return {end, Save{29, 0, size, 30}}; }

// ---- codes --------------------------------------------------------------------------------------------------------

// Each code of one to three bytes, as far as it is defined and its registers exist, is given back.
TEST(WinArm64EncodeCodes, EveryCode) {
  std::size_t given_back = 0;
  for (unsigned first = 0; first < 256; ++first) {
    for (unsigned second = 0; second < 256; ++second) {
      for (const unsigned third : {0U, 1U, 0x3fU, 0x40U, 0x7eU, 0x80U, 0xbfU, 0xc0U, 0xffU}) {
        const CodeBytes bytes{static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(second),
                              static_cast<std::uint8_t>(third), 0x5a, 0};
        const auto code = code_at(view_of(bytes), 0);
        ASSERT_TRUE(code);
        CodeBytes again;
        const auto done = append_code(again, *code, 7);
        const bool reserved = code->operation == Operation::kReserved || code->operation == Operation::kReservedNop;
        const unsigned limit = code->file == RegisterFile::kX ? 30 : 31;
        const bool exists = !code->saves() || std::max(code->reg, code->second) <= limit;
        if (reserved) {
          ASSERT_FALSE(done);
          EXPECT_EQ(done.error().code, ErrorCode::kUnsupported);
          EXPECT_EQ(done.error().where, 7U);
        } else if (exists && done) {
          EXPECT_EQ(again, CodeBytes(bytes.begin(), bytes.begin() + code->size)) << first << " " << second;
          ++given_back;
        } else {
          // save_lrpair of lr itself, or of x29: registers that no such pair has.
          EXPECT_FALSE(exists && code->operation != Operation::kSaveLrpair) << first << " " << second << " " << third;
        }
        if (code->size < 3) break;
      }
      if (code_size(static_cast<std::uint8_t>(first)) == 1) break;
    }
  }
  EXPECT_GT(given_back, 5000U);
}

// What is smallest() of a code means the same, in no more bytes.
TEST(WinArm64EncodeCodes, SmallestMeansTheSame) {
  for (unsigned first = 0; first < 256; ++first) {
    for (unsigned second = 0; second < 256; ++second) {
      const CodeBytes bytes{static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(second), 0x42, 0x10};
      const auto code = code_at(view_of(bytes), 0);
      if (!code || code->operation == Operation::kReserved || code->operation == Operation::kReservedNop) continue;
      const auto smaller = smallest(*code, 0);
      if (!smaller) continue;
      CodeBytes again;
      ASSERT_TRUE(append_code(again, *smaller, 0));
      const auto read = code_at(view_of(again), 0);
      ASSERT_TRUE(read);
      EXPECT_LE(read->size, code->size);
      EXPECT_EQ(read->size, again.size());
      EXPECT_EQ(read->file, code->file);
      EXPECT_EQ(read->reg, code->reg);
      EXPECT_EQ(read->second, code->second);
      EXPECT_EQ(read->pair, code->pair);
      EXPECT_EQ(read->writeback, code->writeback);
      EXPECT_EQ(read->value, code->value) << first << " " << second;
    }
  }
}

// ---- records ------------------------------------------------------------------------------------------------------

std::vector<std::uint8_t> bytes_of(const std::vector<std::byte>& bytes) {
  std::vector<std::uint8_t> plain;
  for (const std::byte byte : bytes) plain.push_back(static_cast<std::uint8_t>(byte));
  return plain;
}

// stp x29,x30,[sp,#-32]!; mov x29,sp; stp x19,x20,[sp,#16], with `epilogues`.
Prologue framed(std::uint32_t size, const std::vector<std::uint32_t>& epilogues) {
  Prologue f = function({chain(4, 32), {8, SetFramePointer{29}}, {12, Save{19, 16, 0, 20}}}, size);
  for (const std::uint32_t at : epilogues) f.epilogues.push_back(mirrored(f, at));
  return f;
}

std::vector<std::uint8_t> written_bytes(const Prologue& f) {
  const auto written = write(f, {.function = 0x1000, .info = 0x2000});
  EXPECT_TRUE(written) << written.error().text();
  if (!written) return {};
  EXPECT_EQ(written->entries, std::vector<RuntimeFunction>({{0x1000, 0x2000}}));
  return bytes_of(written->bytes);
}

TEST(WinArm64Write, Records) {
  // An epilogue at the end is the prologue's codes: E, index 0. save_regp x19,16; set_fp; save_fplr_x 32; end.
  EXPECT_EQ(written_bytes(framed(44, {28})),
            std::vector<std::uint8_t>({11, 0, 0x20, 0x10, 0xc8, 0x02, 0xe1, 0x83, 0xe4, 0xe3, 0xe3, 0xe3}));
  // Not at the end: a scope, start 7, index 0.
  EXPECT_EQ(written_bytes(framed(48, {28})),
            std::vector<std::uint8_t>({12, 0, 0x40, 0x10, 7, 0, 0, 0, 0xc8, 0x02, 0xe1, 0x83, 0xe4, 0xe3, 0xe3, 0xe3}));
  // Without any.
  EXPECT_EQ(written_bytes(framed(48, {})),
            std::vector<std::uint8_t>({12, 0, 0x00, 0x10, 0xc8, 0x02, 0xe1, 0x83, 0xe4, 0xe3, 0xe3, 0xe3}));
  // 32 epilogues: the extension word.
  std::vector<std::uint32_t> starts;
  for (std::uint32_t i = 0; i < 32; ++i) starts.push_back(12 + i * 16);
  const auto many = written_bytes(framed(12 + 32 * 16, starts));
  EXPECT_EQ(many.size(), 4 + 4 + 32 * 4 + 8U);
  EXPECT_EQ(std::vector<std::uint8_t>(many.begin(), many.begin() + 8),
            std::vector<std::uint8_t>({131, 0, 0, 0, 32, 0, 2, 0}));
}

// An epilogue that is another way back starts behind its first instruction, where the prologue's codes hold again:
// add sp,#48 for two allocations.
TEST(WinArm64Write, EpilogueWithoutItsFirstInstruction) {
  Prologue f = function({{4, Save{19, 0, 16}}, {8, Allocate{16}}, {12, Allocate{32}}}, 40);
  f.epilogues = {{20, 32, {{24, Allocate{32}}, {24, Allocate{16}}, {28, Save{19, 0, 16}}}}};
  EXPECT_EQ(written_bytes(f), std::vector<std::uint8_t>(
                                  {10, 0, 0x40, 0x10, 6, 0, 0x80, 0, 0x02, 0x01, 0xd4, 0x01, 0xe4, 0xe3, 0xe3, 0xe3}));
}

TEST(WinArm64Write, SaveNext) {
  Prologue f = function(
      {{4, Save{19, 0, 64, 20}}, {8, Save{21, 16, 0, 22}}, {12, Save{23, 32, 0, 24}}, {16, Save{72, 48, 0, 73}}}, 40);
  EXPECT_EQ(written_bytes(f),
            std::vector<std::uint8_t>({10, 0, 0, 0x10, 0xd8, 0x06, 0xe6, 0xe6, 0x28, 0xe4, 0xe3, 0xe3}));
  // Vector registers are not counted up.
  f = function({{4, Save{72, 0, 64, 73}}, {8, Save{74, 16, 0, 75}}}, 40);
  EXPECT_EQ(written_bytes(f),
            std::vector<std::uint8_t>({10, 0, 0, 0x10, 0xd8, 0x82, 0xda, 0x07, 0xe4, 0xe3, 0xe3, 0xe3}));
}

TEST(WinArm64Write, Handler) {
  Prologue f = framed(44, {28});
  f.handler = prologue::Handler{.rva = 0x11223344, .data = {std::byte{1}, std::byte{2}, std::byte{3}}};
  const auto written = write(f, {});
  ASSERT_TRUE(written);
  EXPECT_EQ(bytes_of(written->bytes),
            std::vector<std::uint8_t>({11,   0,    0x30, 0x10, 0xc8, 0x02, 0xe1, 0x83, 0xe4, 0xe3,
                                       0xe3, 0xe3, 0x44, 0x33, 0x22, 0x11, 1,    2,    3,    0}));
  ASSERT_EQ(written->relocations.size(), 1U);
  EXPECT_EQ(written->relocations[0].at, 12U);
}

TEST(WinArm64Write, PackedAndLeaves) {
  // The example of include/windlass/format/winarm64.h.
  Prologue f = function({chain(4, 16), {8, SetFramePointer{29}}}, 40);
  f.epilogues = {mirrored(f, 28)};
  const auto written = write(f, {.function = 0x1000});
  ASSERT_TRUE(written);
  EXPECT_EQ(written->entries, std::vector<RuntimeFunction>({{0x1000, 0x00e00029}}));
  EXPECT_TRUE(written->bytes.empty());
  // A leaf.
  EXPECT_TRUE(write(function({}), {})->entries.empty());
  const auto leaf = write(function({}), {.leaf_entries = true});
  EXPECT_EQ(leaf->entries, std::vector<RuntimeFunction>({{0, 1 | 100 << 2}}));
}

// ldp x29, x30, [sp], #16 takes back the save and, listed or not, the frame pointer: there is no mov sp, x29.
TEST(WinArm64Write, AFramePointerThatIsLoadedKeepsThePackedForm) {
  const prologue::Save pair{29, 0, 16, 30};
  Prologue f{.architecture = Architecture::kAArch64, .code_size = 40};
  f.ops = {{4, pair}, {8, prologue::SetFramePointer{29}}};
  f.epilogues = {{32, 40, {{36, prologue::SetFramePointer{29}}, {36, pair}}}};
  auto written = write(f, {.function = 0x1000});
  ASSERT_TRUE(written) << written.error().text();
  EXPECT_TRUE(written->bytes.empty());
  EXPECT_EQ(written->entries[0].kind(), EntryKind::kPacked);
  // Below the frame pointer there is more, which that instruction cannot take back.
  f.ops.push_back({12, prologue::Allocate{32}});
  written = write(f, {.function = 0x1000});
  ASSERT_TRUE(written) << written.error().text();
  EXPECT_FALSE(written->bytes.empty());
}

TEST(WinArm64Write, OneWriterForManyFunctions) {
  Prologue f = function({chain(4, 16), {8, SetFramePointer{29}}, {12, Allocate{32}}}, 40);
  winarm64::Writer writer({.info = 0x100000});
  for (std::uint32_t i = 0; i < 1000; ++i) ASSERT_TRUE(writer.add(f, 0x1000 + i * 40));
  const auto alone = write(f, {.function = 0x1000, .info = 0x100000});
  ASSERT_TRUE(alone);
  ASSERT_FALSE(alone->bytes.empty());
  EXPECT_EQ(writer.written().bytes, alone->bytes);
  ASSERT_EQ(writer.written().entries.size(), 1000U);
  EXPECT_EQ(writer.written().entries[999], (RuntimeFunction{0x1000 + 999 * 40, 0x100000}));
  f.code_size = 42;
  EXPECT_FALSE(writer.add(f, 0x80000));
  EXPECT_EQ(writer.written().entries.size(), 1000U);
  f.code_size = 44;
  ASSERT_TRUE(writer.add(f, 0x80000));
  EXPECT_EQ(writer.written().entries.back().data, 0x100000 + alone->bytes.size());
}

// A part that saves more: three entries. The last one has only the actions of before.
TEST(WinArm64Write, Parts) {
  Prologue f = function({chain(4, 32), {8, SetFramePointer{29}}}, 80);
  prologue::Part part{20, 40, {{24, Save{19, 16, 0, 20}}}, {}};
  part.epilogues = {{32, 36, {{36, Save{19, 16, 0, 20}}}}};
  part.end = 36;
  f.parts = {part};
  f.epilogues = {mirrored(f, 68)};
  const auto written = write(f, {.info = 0x100});
  ASSERT_TRUE(written) << written.error().text();
  ASSERT_EQ(written->entries.size(), 3U);
  EXPECT_EQ(written->entries[0].begin, 0U);
  EXPECT_EQ(written->entries[1].begin, 20U);
  EXPECT_EQ(written->entries[2].begin, 40U);  // the instruction behind the part is lent to it as its epilogue's jump
  const auto bytes = bytes_of(written->bytes);
  // set_fp; save_fplr_x; end. save_regp; end_c; the same. end_c; the same, its epilogue without end_c.
  EXPECT_EQ(bytes, std::vector<std::uint8_t>({5,  0, 0,    0x08, 0xe1, 0x83, 0xe4, 0xe3,                          //
                                              5,  0, 0x20, 0x10, 0xc8, 0x02, 0xe5, 0xe1, 0x83, 0xe4, 0xe3, 0xe3,  //
                                              10, 0, 0x60, 0x08, 0xe5, 0xe1, 0x83, 0xe4}));
  const auto whole = write(f, {.fragments = Fragments::kNever});
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code, ErrorCode::kLimit);
}

// Two kilobytes without an op cost a nop each 4 bytes, unless the prologue is cut there. The gap behind is small.
TEST(WinArm64Write, APrologueIsCutWhereItIsIdle) {
  const Prologue f =
      function({{4, Allocate{16}}, {2004, Allocate{32}}, {2012, Allocate{48}}, {2016, Allocate{64}}}, 4000);
  const auto whole = write(f, {.fragments = Fragments::kNever});
  const auto cut = write(f, {.fragments = Fragments::kWhenSmaller});
  ASSERT_TRUE(whole && cut);
  EXPECT_EQ(whole->entries.size(), 1U);
  EXPECT_GT(whole->bytes.size(), 500U);
  ASSERT_GE(cut->entries.size(), 2U);
  EXPECT_EQ(cut->entries[1].begin, 2000U);
  EXPECT_LT(cut->bytes.size(), 50U);
}

// ---- limits -------------------------------------------------------------------------------------------------------

struct Limit {
  const char* sentence;  // part of it
  ErrorCode code;
  std::uint64_t where;
  Prologue prologue;
  WriteOptions options = {};
};

Prologue with_epilogue(Prologue f, Epilogue epilogue) {
  f.epilogues.push_back(std::move(epilogue));
  return f;
}

TEST(WinArm64Write, Limits) {
  const Prologue small = function({{4, Allocate{16}}, {8, Allocate{32}}});
  Prologue x64 = small;
  x64.architecture = Architecture::kX86_64;
  const std::vector<Limit> limits = {
      {"not of AArch64", ErrorCode::kUnsupported, 0, x64},
      {"size of the code", ErrorCode::kMalformed, 402, function({{4, Allocate{16}}}, 402)},
      {"begin at multiples of 4", ErrorCode::kMalformed, 0, small, {.function = 2}},
      {"begin at multiples of 4", ErrorCode::kMalformed, 0, small, {.info = 6}},
      {"past the last RVA", ErrorCode::kOutOfRange, 400, small, {.function = 0xffff'fff0}},
      {"past the last RVA", ErrorCode::kOutOfRange, 0, small, {.info = 0xffff'fffc}},
      {"does not end at a multiple of 4", ErrorCode::kMalformed, 6, function({{6, Allocate{16}}})},
      {"one instruction of 4 bytes", ErrorCode::kMalformed, 4, function({{4, Allocate{16}}, {4, Allocate{16}}})},
      {"one instruction of 4 bytes", ErrorCode::kMalformed, 0, function({{0, Allocate{16}}})},
      {"no multiple of 16", ErrorCode::kMalformed, 4, function({{4, Allocate{24}}})},
      {"256 MiB", ErrorCode::kOutOfRange, 4, function({{4, Allocate{1U << 28}}})},
      {"256 MiB", ErrorCode::kOutOfRange, 4, function({{4, Allocate{std::uint64_t{1} << 33}}})},
      {"no pair", ErrorCode::kMalformed, 4, function({{4, Save{19, 0, 32, 22}}})},
      {"no pair", ErrorCode::kMalformed, 4, function({{4, Save{20, 0, 32, 19}}})},
      {"no pair: of different kinds", ErrorCode::kMalformed, 4, function({{4, Save{28, 0, 32, 72}}})},
      {"saves lr with another", ErrorCode::kUnsupported, 4, function({{4, Save{19, 0, 32, 30}}})},
      {"moves sp and saves above", ErrorCode::kUnsupported, 4, function({{4, Save{19, 16, 32, 20}}})},
      {"no unwind code saves this", ErrorCode::kUnsupported, 4, function({{4, Save{31, 0, 16}}})},
      {"no unwind code saves this", ErrorCode::kUnsupported, 4, function({{4, Save{40, 0, 16}}})},
      {"that far from sp", ErrorCode::kOutOfRange, 8, function({{4, Allocate{1024}}, {8, Save{19, 512, 0, 20}}})},
      {"out of reach of every", ErrorCode::kOutOfRange, 8, function({{4, Allocate{1024}}, {8, Save{19, 520}}})},
      {"that far from sp", ErrorCode::kOutOfRange, 4, function({{4, Save{19, 0, 528, 20}}})},
      {"that far from sp", ErrorCode::kOutOfRange, 4, function({{4, Save{19, 0, 272}}})},
      {"not aligned", ErrorCode::kMalformed, 8, function({{4, Allocate{64}}, {8, Save{19, 12, 0, 20}}})},
      {"not aligned", ErrorCode::kMalformed, 8, function({{4, Allocate{64}}, {8, Save{0, 8, 0, 1}}})},
      {"only x29", ErrorCode::kUnsupported, 8, function({{4, Allocate{64}}, {8, SetFramePointer{19}}})},
      {"no multiple of what its code counts", ErrorCode::kMalformed, 8,
       function({{4, Allocate{64}}, {8, SetFramePointer{29, 12}}})},
      {"larger than its code", ErrorCode::kOutOfRange, 8,
       function({{4, Allocate{4096}}, {8, SetFramePointer{29, 2048}}})},
      {"frame pointer is set twice", ErrorCode::kMalformed, 12,
       function({{4, Allocate{64}}, {8, SetFramePointer{29}}, {12, SetFramePointer{29}}})},
      {"takes nothing back", ErrorCode::kUnsupported, 108,
       with_epilogue(small, {100, 108, {{104, Allocate{32}}, {108, Allocate{16}}}})},
      {"does not end at a multiple of 4", ErrorCode::kMalformed, 102,
       with_epilogue(small, {98, 110, {{102, Allocate{32}}, {106, Allocate{16}}}})},
      {"epilogue does not end at a multiple", ErrorCode::kMalformed, 110,
       with_epilogue(small, {100, 110, {{104, Allocate{32}}, {108, Allocate{16}}}})},
      {"one instruction takes back allocations", ErrorCode::kUnsupported, 108,
       with_epilogue(function({{4, Save{19, 0, 16}}, {8, Save{20, 0, 16}}, {12, Allocate{16}}}),
                     {100, 116, {{104, Allocate{16}}, {108, Save{20, 0, 16}}, {108, Save{19, 0, 16}}}})},
      {"1 MiB - 4", ErrorCode::kLimit, 0, function({{4, Allocate{16}}}, 1U << 20), {.fragments = Fragments::kNever}},
  };
  for (const Limit& limit : limits) {
    const auto written = write(limit.prologue, limit.options);
    ASSERT_FALSE(written) << limit.sentence;
    EXPECT_NE(std::string(written.error().what).find(limit.sentence), std::string::npos)
        << limit.sentence << ": " << written.error().text();
    EXPECT_EQ(written.error().code, limit.code) << limit.sentence;
    EXPECT_EQ(written.error().where, limit.where) << limit.sentence;
  }
}

// What is at the limits can be written.
TEST(WinArm64Write, AtTheLimits) {
  for (const Prologue& f : {
           function({{4, Allocate{(1U << 28) - 16}}}),
           function({{4, Allocate{1024}}, {8, Save{19, 504, 0, 20}}, {12, Save{21, 504 - 16}}}),
           function({{4, Save{19, 0, 512, 20}}}),
           function({{4, Save{19, 0, 256}}}),
           function({{4, Allocate{1024}}, {8, Save{0, 496, 0, 1}}, {12, Save{5, 488}}}),
           function({{4, Allocate{4096}}, {8, SetFramePointer{29, 2040}}}),
           function({{4, Allocate{64}}, {8, Save{27, 16, 0, 30}}}),
           function({{4, Allocate{16}}}, (1U << 20) - 4),
       }) {
    const auto written = write(f, {.fragments = Fragments::kNever});
    ASSERT_TRUE(written) << written.error().text();
    EXPECT_EQ(written->entries.size(), 1U);
    const auto record = parse_record(ByteView(written->bytes.data(), written->bytes.size()), 0);
    ASSERT_TRUE(record);
    const auto again = prologue_of(*record);
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(again->ops.size(), f.ops.size());
    check_record(*record, [](const Error& error) { ADD_FAILURE() << error.text(); });
  }
}

// 65,535 epilogues are counted in 16 bits; more need another fragment.
TEST(WinArm64Write, EpiloguesByTheTenThousand) {
  Prologue f = function({{4, Allocate{16}}}, 4);
  for (std::uint32_t i = 0; i < 70000; ++i) {
    f.epilogues.push_back(mirrored(f, f.code_size));
    f.code_size = f.epilogues.back().end;
  }
  const auto forbidden = write(f, {.fragments = Fragments::kNever});
  ASSERT_FALSE(forbidden);
  EXPECT_EQ(forbidden.error().code, ErrorCode::kLimit);
  const auto written = write(f, {});
  ASSERT_TRUE(written);
  EXPECT_EQ(written->entries.size(), 2U);
}

TEST(WinArm64EncodeRecord, Limits) {
  const auto nops = [](std::size_t count) {
    RecordContents contents{.length = 40000};
    UnwindCode nop;
    nop.operation = Operation::kNop;
    contents.prologue.assign(count, nop);
    return contents;
  };
  EXPECT_EQ(encode(nops(1019))->size(), 8 + 1020U);
  EXPECT_EQ(encode(nops(1020)).error().code, ErrorCode::kLimit);
  RecordContents contents = nops(1);
  contents.length = 42;
  EXPECT_EQ(encode(contents).error().code, ErrorCode::kMalformed);
  contents.length = 1U << 20;
  EXPECT_EQ(encode(contents).error().code, ErrorCode::kLimit);
  contents.length = 40;
  contents.epilogues = {{20, {}}, {16, {}}};
  EXPECT_EQ(encode(contents).error().code, ErrorCode::kMalformed);
  contents.epilogues = {{18, {}}};
  EXPECT_EQ(encode(contents).error().code, ErrorCode::kMalformed);
  contents.epilogues = {{40, {}}};
  EXPECT_EQ(encode(contents).error().code, ErrorCode::kOutOfRange);
}

// stp x29, x30, [sp, #-16]!; mov x29, sp; ...; mov sp, x29; ldp x29, x30, [sp], #16; ret, as compilers' records have
// it.
TEST(WinArm64EncodePacked, EpilogueThatBeginsWithTheFramePointer) {
  const auto code = [](std::uint8_t byte) { return *code_at(ByteView(std::span(&byte, 1)), 0); };
  const UnwindCode set_fp = code(0xe1), chain = code(0x81), alloc = code(0x01);
  RecordContents contents{.length = 40, .prologue = {set_fp, chain}};
  contents.epilogues = {{32, {chain}}};
  EXPECT_EQ(packed_form(contents), 0x00e00029U);
  contents.epilogues = {{28, {set_fp, chain}}};
  EXPECT_EQ(packed_form(contents), 0x00e00029U);
  contents.epilogues = {{24, {set_fp, chain}}};  // it does not end the function
  EXPECT_EQ(packed_form(contents), std::nullopt);
  contents.epilogues = {{24, {set_fp, set_fp, chain}}};
  EXPECT_EQ(packed_form(contents), std::nullopt);
  contents.prologue = {alloc};  // x29 is not the frame's: in front of `mov sp, x29` the body would go by sp
  contents.epilogues = {{32, {alloc}}};
  EXPECT_EQ(packed_form(contents), 1U | 40 / 4 << 2 | 1U << 23);
  contents.epilogues = {{28, {set_fp, alloc}}};
  EXPECT_EQ(packed_form(contents), std::nullopt);
}

TEST(WinArm64EncodePacked, Limits) {
  const PackedFields good{8188, 7, 10, true, 3, 8176};
  const auto word = encode_packed(good, false);
  ASSERT_TRUE(word);
  const PackedFields again = packed_fields({0, *word});
  EXPECT_EQ(again.length, 8188U);
  EXPECT_EQ(again.reg_f, 7);
  EXPECT_EQ(again.reg_i, 10);
  EXPECT_TRUE(again.h);
  EXPECT_EQ(again.cr, 3);
  EXPECT_EQ(again.frame_size, 8176U);
  const auto error = [&](auto change) {
    PackedFields fields = good;
    change(fields);
    const auto bad = encode_packed(fields, false);
    return bad ? ErrorCode::kSystem : bad.error().code;
  };
  EXPECT_EQ(error([](PackedFields& f) { f.length = 8192; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(error([](PackedFields& f) { f.length = 6; }), ErrorCode::kMalformed);
  EXPECT_EQ(error([](PackedFields& f) { f.reg_f = 8; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(error([](PackedFields& f) { f.reg_i = 11; }), ErrorCode::kMalformed);
  EXPECT_EQ(error([](PackedFields& f) { f.cr = 4; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(error([](PackedFields& f) { f.frame_size = 8192; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(error([](PackedFields& f) { f.frame_size = 8; }), ErrorCode::kMalformed);
  EXPECT_EQ(error([](PackedFields& f) { f.frame_size = 16; }), ErrorCode::kMalformed);
}

// As the checked JIT's DumpUnwindInfo() prints it.
TEST(WinArm64JitUnwindDump, IsTheClrs) {
  const std::uint8_t bytes[] = {0x14, 0x00, 0x40, 0x18,                                // 20 words, 1 scope, 3 of codes
                                0x10, 0x00, 0x80, 0x01,                                // at word 16, from code 6
                                0xe1, 0xc8, 0x04, 0xd2, 0xc6, 0x83, 0xda, 0x03, 0xc8,  // its saves, and an epilogue
                                0x02, 0x85, 0xe4};
  EXPECT_EQ(
      jit_unwind_dump(std::as_bytes(std::span(bytes)), 0x20, 0x70).value(),
      "Unwind Info:\n"
      "  >> Start offset   : 0x000020 (not in unwind data)\n"
      "  >>   End offset   : 0x000070 (not in unwind data)\n"
      "  Code Words        : 3\n"
      "  Epilog Count      : 1\n"
      "  E bit             : 0\n"
      "  X bit             : 0\n"
      "  Vers              : 0\n"
      "  Function Length   : 20 (0x00014) Actual length = 80 (0x000050)\n"
      "  ---- Epilog scopes ----\n"
      "  ---- Scope 0\n"
      "  Epilog Start Offset        : 16 (0x00010) Actual offset = 64 (0x000040) Offset from main function begin = "
      "96 (0x000060)\n"
      "  Epilog Start Index         : 6 (0x06)\n"
      "  ---- Unwind codes ----\n"
      "    E1          set_fp; mov fp, sp\n"
      "    C8 04       save_regp X#0 Z#4 (0x04); stp x19, x20, [sp, #32]\n"
      "    D2 C6       save_reg X#11 Z#6 (0x06); str lr, [sp, #48]\n"
      "    83          save_fplr_x #3 (0x03); stp fp, lr, [sp, #-32]!\n"
      "    ---- Epilog start at index 6 ----\n"
      "    DA 03       save_fregp_x X#0 Z#3 (0x03); stp d8, d9, [sp, #-32]!\n"
      "    C8 02       save_regp X#0 Z#2 (0x02); stp x19, x20, [sp, #16]\n"
      "    85          save_fplr_x #5 (0x05); stp fp, lr, [sp, #-48]!\n"
      "    E4          end\n\n");
}

TEST(WinArm64JitUnwindDump, OtherCodesAndForms) {
  const std::uint8_t one[] = {0x08, 0x00, 0x60, 0x10,  // E, from code 1
                              0x02, 0xc0, 0x40, 0xe0, 0x00, 0x10, 0x00, 0xe4};
  const std::string text = jit_unwind_dump(std::as_bytes(std::span(one)), 0, 32).value();
  EXPECT_NE(text.find("  --- One epilog, unwind codes at 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("    02          alloc_s #2 (0x02); sub sp, sp, #32 (0x020)\n"
                      "    ---- Epilog start at index 1 ----\n"
                      "    C0 40       alloc_m #64 (0x040); sub sp, sp, #1024 (0x0400)\n"
                      "    E0 00 10 00 alloc_l 4096 (0x001000); sub sp, sp, #65536 (010000)\n"),
            std::string::npos)
      << text;
  const std::uint8_t extended[] = {0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x24, 0xe2, 0x02, 0xe4};
  const std::string large = jit_unwind_dump(std::as_bytes(std::span(extended)), 0, 32).value();
  EXPECT_NE(large.find("  ---- Extension word ----\n  Extended Code Words        : 1\n"
                       "  Extended Epilog Count      : 0\n  ---- Epilog scopes ----\n  No epilogs\n"),
            std::string::npos)
      << large;
  EXPECT_NE(large.find("    24          save_r19r20_x #4 (0x04); stp x19, x20, [sp, #-32]!\n"
                       "    E2 02       add_fp 2 (0x02); add fp, sp, #16\n"),
            std::string::npos)
      << large;
  const std::uint8_t trap[] = {0x08, 0x00, 0x20, 0x08, 0xe8, 0xe4, 0xe4, 0xe4};
  EXPECT_EQ(jit_unwind_dump(std::as_bytes(std::span(trap)), 0, 32).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(jit_unwind_dump(std::as_bytes(std::span(trap).first(6)), 0, 32).error().code, ErrorCode::kTruncated);
  EXPECT_EQ(jit_unwind_dump({}, 0, 1).error().code, ErrorCode::kTruncated);
}

}  // namespace
}  // namespace windlass::winarm64
