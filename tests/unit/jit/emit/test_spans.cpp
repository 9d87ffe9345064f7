// Which stretches of code are described, and as what.
#include <gtest/gtest.h>

#include "windlass/jit/emit.h"

namespace windlass::emit {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr unsigned char kNop = 0x90;
const Bytes kFrame = {0x55, 0x48, 0x89, 0xe5};

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Place {
  std::size_t function;
  std::int64_t offset;
  std::uint32_t size, prologue;  // `prologue`: where its last op ends
  bool operator==(const Place&) const = default;
};
void PrintTo(const Place& place, std::ostream* out) {
  *out << "{" << place.function << ", " << place.offset << ", " << place.size << ", " << place.prologue << "}";
}

// Functions at addresses.
std::vector<Place> places(const std::vector<std::pair<std::uint64_t, Bytes>>& code, Options options) {
  if (options.mode == Mode::kExact) options.mode = Mode::kFrames;
  std::vector<Function> functions;
  for (const auto& [address, bytes] : code)
    functions.push_back({.symbol = "f", .address = address, .code = std::as_bytes(std::span(bytes))});
  const auto spans = spans_of(functions, options);
  EXPECT_TRUE(spans) << spans.error().text();
  std::vector<Place> result;
  for (const Span& span : *spans)
    result.push_back({span.function, span.offset, span.prologue.code_size, span.prologue.ops.back().end});
  return result;
}

using Places = std::vector<Place>;

TEST(EmitSpans, OneForEachFrameAndOneForWhatIsBefore) {
  const Bytes code = Bytes{0xff, 0xd0} + kFrame + Bytes{0xff, 0xd0, 0xc3} + kFrame + Bytes{0xc3};
  // The first: 2 bytes before its frame, which stands without a prologue.
  EXPECT_EQ(places({{0x1000, code}}, {}), (Places{{0, 0, 2, 0}, {0, 2, 7, 4}, {0, 9, 5, 4}}));
  EXPECT_EQ(places({{0x1000, kFrame}, {0x1040, code}}, {})[1], (Place{1, 0, 2, 0}));
}

TEST(EmitSpans, AsV8) {
  const Bytes code = Bytes{0xff, 0xd0} + kFrame, leaf = {0x31, 0xc0, 0xc3};
  EXPECT_EQ(places({{0x1000, code}}, {.as_v8 = true}), (Places{{0, -4, 6, 4}, {0, 2, 4, 4}}));
  EXPECT_EQ(places({{0x1000, kFrame}, {0x1007, code}}, {.as_v8 = true})[1], (Place{1, -3, 5, 4}));
  EXPECT_EQ(places({{0x1000, kFrame}, {0x1006, code}}, {.as_v8 = true})[1], (Place{1, -2, 4, 4}));
  EXPECT_EQ(places({{0x1000, leaf}}, {.as_v8 = true}), (Places{{0, -4, 7, 4}}));
}

// The description covers push and mov, and counts them among the bytes that it covers.
TEST(EmitSpans, AsV8AShortFunctionNeedsPadding) {
  const Bytes nop = {0x90, 0xc3};
  const std::vector<Function> near{{.symbol = "f", .address = 0x1000, .code = std::as_bytes(std::span(kFrame))},
                                   {.symbol = "g", .address = 0x1005, .code = std::as_bytes(std::span(nop))}};
  const auto spans = spans_of(near, {.mode = Mode::kFrames, .as_v8 = true});
  ASSERT_FALSE(spans);
  EXPECT_EQ(spans.error().text(), "0x1005: so short a function needs padding in front of it, as many bytes (0x1)");
}

TEST(EmitSpans, BothEncodingsOfTheFrameAndNoOther) {
  EXPECT_EQ(places({{0, {0x55, 0x48, 0x8b, 0xec, 0xc3}}}, {}), (Places{{0, 0, 5, 4}}));
  EXPECT_EQ(places({{0, {0x55, 0x48, 0x89, 0xe3, 0xc3}}}, {}), (Places{{0, 0, 5, 0}})) << "to rbx: pushes, no frame";
  EXPECT_EQ(places({{0, {0x90, 0x55, 0x48, 0x89}}}, {}), (Places{{0, 0, 4, 0}})) << "cut off";
}

TEST(EmitSpans, LeavesHaveNone) {
  const Bytes leaf = {0x31, 0xc0, 0xc3}, jump = {0xe9, 0, 0, 0, 0}, calls = {0xe8, 0, 0, 0, 0, 0xc3},
              moves = {0x58, 0xc3};
  EXPECT_TRUE(places({{0, leaf}, {16, jump}}, {}).empty());
  EXPECT_EQ(places({{0, calls}, {16, moves}}, {}).size(), 2u);
}

TEST(EmitSpans, WholeAndFunctions) {
  const Bytes bare = {kNop, 0xc3};
  EXPECT_EQ(places({{0x40, kFrame}, {0x80, bare}}, {.mode = Mode::kWhole}), (Places{{0, 0, 0x42, 0}}));
  EXPECT_EQ(places({{0x40, kFrame}, {0x80, bare}}, {.mode = Mode::kFunctions}), (Places{{0, 0, 4, 4}, {1, 0, 2, 0}}));
  EXPECT_EQ(places({{0x40, Bytes{kNop} + kFrame}}, {.mode = Mode::kFunctions}), (Places{{0, 0, 5, 0}}))
      << "a frame later on is as good as none";
}

TEST(EmitSpans, AArch64) {
  const auto words = [](std::initializer_list<std::uint32_t> list) {
    Bytes bytes;
    for (const std::uint32_t word : list)
      for (unsigned i = 0; i < 4; ++i) bytes.push_back(static_cast<unsigned char>(word >> 8 * i));
    return bytes;
  };
  constexpr std::uint32_t kMov = 0xd503201f, kStp = 0xa9be7bfd, kAdd = 0x910043fd, kRet = 0xd65f03c0;
  std::vector<Function> functions(1);
  const Bytes code = words({kMov, kStp, kAdd, kRet});
  functions[0].code = std::as_bytes(std::span(code));
  const auto spans = spans_of(functions, {.architecture = Architecture::kAArch64, .mode = Mode::kFrames});
  ASSERT_TRUE(spans);
  ASSERT_EQ(spans->size(), 1u) << "before the frame the return address is in x30";
  EXPECT_EQ((*spans)[0].offset, 4);
  const auto rows = rows_of((*spans)[0].prologue);  // stp x29, x30, [sp, #-32]!; add x29, sp, #16
  ASSERT_TRUE(rows);
  EXPECT_TRUE(rows->back().cfa.is_at(29));
  EXPECT_EQ(rows->back().cfa.offset(), 16);
  EXPECT_EQ(rows->back().return_address, RegisterRule::at_cfa(-24));
}

TEST(EmitSpans, AArch64FramesThatAreNone) {
  // stp x29, x30, [sp, #8]!, which takes room back; add x29, sp, #16; ret
  const std::uint32_t words[] = {0xa980fbfd, 0x910043fd, 0xd65f03c0};
  const Function function{.symbol = "f", .code = std::as_bytes(std::span(words))};
  const auto spans = spans_of(std::span(&function, 1), {.architecture = Architecture::kAArch64, .mode = Mode::kFrames});
  ASSERT_TRUE(spans);
  EXPECT_TRUE(spans->empty());
}

// jmp 1f; what nobody reaches; 1: ret
TEST(EmitSpans, RowsWithAGapAreTwoSpans) {
  const Bytes code = {0xeb, 0x03, 0x48, 0xff, 0xc0, 0xc3};
  const Function function{.symbol = "f", .address = 0x1000, .code = std::as_bytes(std::span(code))};
  const auto spans = spans_of(std::span(&function, 1), {.mode = Mode::kExact});
  ASSERT_TRUE(spans);
  std::vector<std::pair<std::int64_t, std::uint32_t>> of_rows;
  for (const Span& span : *spans)
    if (span.only == Span::kElf) of_rows.emplace_back(span.offset, span.prologue.code_size);
  EXPECT_EQ(of_rows, (std::vector<std::pair<std::int64_t, std::uint32_t>>{{0, 2}, {5, 1}}));
}

TEST(EmitSpans, WhatCannotBeIsAnError) {
  const auto error = [](std::vector<std::pair<std::uint64_t, std::size_t>> sizes, Architecture architecture,
                        Mode mode = Mode::kFrames) {
    static const std::vector<std::byte> nothing(64);
    std::vector<Function> functions;
    for (const auto& [address, size] : sizes)
      functions.push_back({.symbol = "f", .address = address, .code = std::span(nothing).first(size)});
    const auto spans = spans_of(functions, {.architecture = architecture, .mode = mode});
    return spans ? Error{} : spans.error();
  };
  constexpr auto kX64 = Architecture::kX86_64;
  EXPECT_EQ(error({{0x10, 8}, {0x17, 8}}, kX64).code, ErrorCode::kMalformed);
  EXPECT_EQ(error({{0x10, 8}, {0x17, 8}}, kX64).where, 0x17u);
  EXPECT_EQ(error({{0x10, 8}, {8, 8}}, kX64).code, ErrorCode::kMalformed) << "out of order";
  EXPECT_EQ(error({{0x10, 0}}, kX64).code, ErrorCode::kMalformed);
  EXPECT_EQ(error({{0x10, 8}, {0x80000010, 8}}, kX64, Mode::kWhole).code, ErrorCode::kLimit);
  EXPECT_EQ(error({{0x10, 8}, {0x80000010, 8}}, kX64).what, Error{}.what) << "far apart, but each by itself";
  EXPECT_EQ(error({{0x10, 8}}, Architecture::kI386).code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass::emit
