// Prologues as an author of generated code would describe them from the header alone. Each is written, and the rows
// of the written codes are those of the description, or refused by an error that names the rule.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/winx64/lower.h"
#include "formats/winx64/read.h"
#include "support/described_states.h"
#include "support/pe_builder.h"
#include "windlass/format/winx64.h"

namespace windlass::winx64 {
namespace {

using namespace prologue;

constexpr std::uint32_t kCode = 0x1000, kInfo = 0x2000;
constexpr RegisterNumber kRaxD = 0, kRcxD = 2, kRbxD = 3, kRsiD = 4, kRdiD = 5, kRbpD = 6, kR12D = 12, kR13D = 13,
                         kR14D = 14, kR15D = 15, kXmm6D = 23, kXmm7D = 24;

struct Case {
  const char* name;
  Prologue described;
  const char* rule = "";  // empty: it is written; else the rule that its error names
};

Prologue with(std::vector<prologue::Op> ops, std::vector<prologue::Epilogue> epilogues = {}) {
  return {.code_size = 120, .ops = std::move(ops), .epilogues = std::move(epilogues)};
}
Prologue ended(Prologue f) {
  f.epilogues = {mirrored(f, 90)};
  return f;
}
Prologue handled(Prologue f, bool on_exception, bool on_unwind) {
  f.handler = Handler{.rva = 0x3000, .on_exception = on_exception, .on_unwind = on_unwind};
  return f;
}
Prologue parted(Prologue f, prologue::Part part) {
  f.parts = {std::move(part)};
  return f;
}
Prologue long_prologue(Prologue f, std::uint32_t size) {
  f.code_size = size + 100;
  f.size = size;
  return f;
}

std::vector<Case> cases() {
  const prologue::Op push_rbp{1, push(kRbpD)}, push_rbx{1, push(kRbxD)};
  const Prologue framed = with({push_rbp, {4, SetFramePointer{kRbpD}}, {8, Allocate{64}}});
  return {
      {"leaf", with({})},
      {"sub rsp, 40", ended(with({{4, Allocate{40}}}))},
      {"push rbx; sub rsp, 32", ended(with({push_rbx, {5, Allocate{32}}}))},
      {"push rbp; mov rbp, rsp", ended(with({push_rbp, {4, SetFramePointer{kRbpD}}}))},
      {"push rbp; mov rbp, rsp; sub rsp, 64", framed},
      {"lea rbp, [rsp + 32]", ended(with({push_rbp, {5, Allocate{48}}, {10, SetFramePointer{kRbpD, 32}}}))},
      {"all that calls preserve", ended(with({{1, push(kRbxD)},
                                              {2, push(kRbpD)},
                                              {3, push(kRsiD)},
                                              {4, push(kRdiD)},
                                              {6, push(kR12D)},
                                              {8, push(kR13D)},
                                              {10, push(kR14D)},
                                              {12, push(kR15D)},
                                              {16, Allocate{40}}}))},
      {"a stack probe", ended(with({{13, Allocate{0x8010}}}))},
      {"1 MiB of locals", ended(with({push_rbx, {8, Allocate{0x100000}}}))},
      {"128 bytes", ended(with({{7, Allocate{128}}}))},
      {"136 bytes", ended(with({{7, Allocate{136}}}))},
      {"two xmm registers", ended(with({{7, Allocate{72}}, {12, Save{kXmm6D, 32}}, {17, Save{kXmm7D, 48}}}))},
      {"r13 is the frame pointer", ended(with({{2, push(kR13D)}, {5, SetFramePointer{kR13D}}}))},
      {"push rcx for its space", with({push_rbx, {2, Allocate{8}}, {6, Allocate{32}}},
                                      {{80, 86, {{84, Allocate{32}}, {84, Allocate{8}}, {85, push(kRbxD)}}}})},
      {"an interrupt", with({{0, MachineFrame{true}}, {1, push(kRbxD)}, {5, Allocate{32}}})},
      {"a part that saves rsi", parted(ended(with({push_rbx, {5, Allocate{48}}})), {20, 60, {{25, Save{kRsiD, 40}}}})},
      {"a handler", handled(ended(with({push_rbx, {5, Allocate{32}}})), true, false)},
      {"two exits", with({push_rbx, {5, Allocate{32}}}, {mirrored(with({push_rbx, {5, Allocate{32}}}), 30),
                                                         mirrored(with({push_rbx, {5, Allocate{32}}}), 90)})},
      {"leave; ret", with(framed.ops, {{90, 92, {{91, SetFramePointer{kRbpD}}, {91, push(kRbpD)}}}})},

      {"push behind sub rsp", with({{4, Allocate{32}}, {5, push(kRbxD)}}), "a push comes before every allocation"},
      {"rax is the frame pointer", with({{1, push(kRaxD)}, {4, SetFramePointer{kRaxD}}}),
       "rax cannot be the frame pointer"},
      {"mov rbp, rsp without push rbp", with({{3, SetFramePointer{kRbpD}}}), "before its old value was saved"},
      {"lea rbp, [rsp + 8]", with({push_rbp, {6, SetFramePointer{kRbpD, 8}}}), "multiple of 16, at most 240"},
      {"lea rbp, [rsp + 256]", with({push_rbp, {8, Allocate{512}}, {16, SetFramePointer{kRbpD, 256}}}),
       "multiple of 16, at most 240"},
      {"push rcx as a save", with({{1, push(kRcxD)}}), "is an allocation of 8"},
      {"sub rsp, 12", with({{4, Allocate{12}}}), "multiple of 8"},
      {"xmm6 at 40", with({{7, Allocate{72}}, {12, Save{kXmm6D, 40}}}), "multiple of 16"},
      {"300 bytes of prologue", long_prologue(with({push_rbx, {290, Allocate{32}}}), 300), "at most 255 bytes"},
      {"an interrupt behind a push", with({push_rbx, {1, MachineFrame{}}}), "comes before everything else"},
      {"a handler for nothing", handled(ended(with({push_rbx})), false, false), "called in neither pass"},
      {"home area before the push", with({{5, Save{kRsiD, 16}}, {6, push(kRbxD)}, {10, Allocate{32}}}),
       "while rsp still moves"},
      {"an epilogue that forgets rbx", with({push_rbx, {5, Allocate{32}}}, {{90, 95, {{94, Allocate{32}}}}}),
       "does not take back all that was done"},
      {"pops in the order of the pushes",
       with({push_rbx, {2, push(kRsiD)}}, {{90, 93, {{91, push(kRbxD)}, {92, push(kRsiD)}}}}),
       "a Save counts from sp as it is when the instruction runs"},
      {"a load behind add rsp",
       with({push_rbx, {5, Allocate{48}}, {10, Save{kRsiD, 40}}},
            {{85, 96, {{89, Allocate{48}}, {94, Save{kRsiD, 40}}, {95, push(kRbxD)}}}}),
       "a Save counts from sp as it is when the instruction runs"},
      {"leave that pops first", with(framed.ops, {{90, 92, {{91, push(kRbpD)}, {91, SetFramePointer{kRbpD}}}}}),
       "a Save counts from sp as it is when the instruction runs"},
  };
}

std::vector<FrameRow> rows_of_codes(const Written& written) {
  test::PeBuilder builder(image::PeMachine::kAmd64);
  builder.add(".text", std::vector<std::uint8_t>(0x1000 - 1, 0x90), true);
  std::vector<std::uint8_t> info;
  for (const std::byte byte : written.bytes) info.push_back(std::to_integer<std::uint8_t>(byte));
  info.resize(info.size() + 16);
  builder.add(".xdata", info);
  test::ByteWriter table;
  for (const RuntimeFunction& entry : written.entries)
    table.u32(entry.begin), table.u32(entry.end), table.u32(entry.info);
  builder.add_function_table(table.data());
  const auto bytes = builder.build();
  const auto image = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(bytes)));
  EXPECT_TRUE(image);
  std::vector<FrameRow> rows;
  const Functions functions(*image);
  for (const RuntimeFunction& entry : written.entries)
    lower(
        functions, entry, [&](const FrameRow& row) { rows.push_back(row); },
        [&](const Error& error) { ADD_FAILURE() << error.text(); });
  return rows;
}

// In front of the first epilogue, which needs code that the image has not.
void expect_described(const Prologue& f, const Written& written) {
  const auto described = rows_of(f);
  ASSERT_TRUE(described);
  const auto rows = rows_of_codes(written);
  const std::uint64_t end = f.epilogues.empty() ? f.code_size : f.epilogues[0].begin;
  for (const FrameRow& row : *described) {
    for (std::uint64_t at = row.begin; at < std::min<std::uint64_t>(row.end, end); ++at) {
      const FrameState state = test::described_state(f, static_cast<std::uint32_t>(at));
      const auto expected = test::places(row, state, f.architecture);
      const auto found = std::find_if(rows.begin(), rows.end(), [&](const FrameRow& candidate) {
        return candidate.begin <= kCode + at && kCode + at < candidate.end;
      });
      ASSERT_NE(found, rows.end()) << at;
      EXPECT_EQ(test::places(*found, state, f.architecture), expected) << at;
    }
  }
}

TEST(WinX64Prologues, WrittenOrRefusedByARule) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    for (const std::uint8_t version : {1, 2, 3}) {
      if (*one.rule != 0 && version == 3) continue;  // it has few rules
      const auto written = write(one.described, {.version = version, .function = kCode, .info = kInfo});
      if (*one.rule != 0) {
        ASSERT_FALSE(written);
        EXPECT_NE(written.error().text().find(one.rule), std::string::npos) << written.error().text();
        continue;
      }
      ASSERT_TRUE(written) << written.error().text();
      EXPECT_EQ(written->entries.empty(), one.described.ops.empty());
      if (!written->entries.empty()) expect_described(one.described, *written);
    }
  }
  EXPECT_EQ(cases().size(), 35U);
}

// sub rsp, 40; call f; add rsp, 40; ret.
TEST(WinX64Prologues, HandlersThatAreNotAsked) {
  const auto offsets = [](std::vector<std::uint8_t> between, bool handled, std::vector<std::uint8_t> exit = {0xc3}) {
    std::vector<std::uint8_t> code{0x48, 0x83, 0xec, 40, 0xe8, 1, 2, 3, 4};
    code.insert(code.end(), between.begin(), between.end());
    const auto at = static_cast<std::uint32_t>(code.size());
    code.insert(code.end(), {0x48, 0x83, 0xc4, 40});
    code.insert(code.end(), exit.begin(), exit.end());
    Prologue f{.code_size = static_cast<std::uint32_t>(code.size()), .ops = {{4, Allocate{40}}}};
    f.epilogues = {{at, f.code_size, {{at + 4, Allocate{40}}}}};
    if (handled) f.handler = Handler{};
    return handlers_not_asked(f, std::as_bytes(std::span(code)));
  };
  EXPECT_EQ(offsets({}, true), std::vector<std::uint32_t>{9});
  EXPECT_TRUE(offsets({0x90}, true).empty());                                          // call; nop
  EXPECT_TRUE(offsets({}, false).empty());                                             // nobody would be asked
  EXPECT_TRUE(offsets({0x33, 0xc0}, true).empty());                                    // call; xor eax, eax
  EXPECT_EQ(offsets({}, true, {0xe9, 0, 0, 0, 0x10}), std::vector<std::uint32_t>{9});  // a tail call
  EXPECT_TRUE(offsets({}, true, {0xeb, 0xf4}).empty());                                // back into the function
  EXPECT_EQ(offsets({0xff, 0xd0}, true), std::vector<std::uint32_t>{11});              // call rax
}

}  // namespace
}  // namespace windlass::winx64
