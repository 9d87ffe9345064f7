// The unwind information that node.exe ships for its embedded builtins, compared with the output of `emit` for the same
// code by the same rule: every entry, and every byte of the one record that they share.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/image/function_table.h"
#include "formats/winx64/read.h"
#include "support/pe_corpora.h"
#include "support/v8_blob.h"
#include "windlass/jit/emit.h"

namespace windlass {
namespace {

using Entry = winx64::RuntimeFunction;

// Shared by all builtins: EHANDLER, push rbp; mov rbp, rsp.
constexpr unsigned char kRecord[] = {0x09, 0x04, 0x02, 0x05, 0x04, 0x03, 0x01, 0x50};

std::vector<Entry> entries_of(const image::PeImage& image) {
  const ByteView table = image.exception_directory();
  std::vector<Entry> entries;
  for (std::uint32_t at = 0; at + 12 <= table.size(); at += 12)
    entries.push_back(
        {*table.at<std::uint32_t>(at), *table.at<std::uint32_t>(at + 4), *table.at<std::uint32_t>(at + 8)});
  return entries;
}

// The longest run of entries that have one record of these bytes.
std::vector<Entry> builtin_entries(const image::PeImage& image) {
  std::vector<Entry> best, run;
  for (const Entry& entry : entries_of(image)) {
    const auto bytes = entry.indirect() ? Expected<ByteView>(ByteView()) : image.from_rva(entry.info);
    const bool fits =
        bytes && bytes->size() >= sizeof kRecord && std::memcmp(bytes->data(), kRecord, sizeof kRecord) == 0;
    if (!run.empty() && (!fits || entry.info != run.front().info)) run.clear();
    if (fits) run.push_back(entry);
    if (run.size() > best.size()) best = run;
  }
  return best;
}

// mov rbx, [r13 + n]; jmp n
constexpr std::uint32_t kAdaptor = 12;
bool is_adaptor(ByteView code) {
  const std::uint8_t* const bytes = code.u8();
  return bytes[0] == 0x49 && bytes[1] == 0x8b && bytes[2] == 0x9d && bytes[7] == 0xe9;
}

using Place = std::pair<std::uint32_t, std::uint32_t>;

// Where the entries are that are written for the functions.
std::set<Place> places_of(const std::vector<emit::Function>& functions, bool as_v8) {
  const auto spans = emit::spans_of(functions, {.mode = emit::Mode::kFrames, .as_v8 = as_v8});
  EXPECT_TRUE(spans) << spans.error().text();
  winx64::Writer writer;
  for (emit::Span span : *spans) {
    const std::uint64_t begin = functions[span.function].address + static_cast<std::uint64_t>(span.offset);
    span.prologue.handler = prologue::Handler{.rva = 0x123456, .on_unwind = false};
    EXPECT_TRUE(writer.add(span.prologue, static_cast<std::uint32_t>(begin)));
  }
  const winx64::Written& written = writer.written();
  if (as_v8) {
    EXPECT_EQ(written.bytes.size(), sizeof kRecord + 4) << "one record for all";
    EXPECT_EQ(std::memcmp(written.bytes.data(), kRecord, sizeof kRecord), 0);
  }
  std::set<Place> places;
  for (const Entry& entry : written.entries) places.insert({entry.begin, entry.end});
  return places;
}

// node.exe's builtins, as functions that count from the blob; the entries it was shipped with.
struct Builtins {
  std::vector<emit::Function> functions;
  std::vector<Entry> shipped;

  explicit Builtins(const test::OpenPe& pe) : shipped(builtin_entries(pe.image)) {
    std::vector<test::Builtin> builtins;
    for (const image::PeSection& section : pe.image.sections()) {
      const auto bytes = pe.file.bytes().sub(section.file_offset, section.file_size);
      if (bytes && builtins.empty()) builtins = test::find_builtins(*bytes);
    }
    if (shipped.empty()) return;
    // The first builtin has no frame of its own at its begin: its entry begins where a prologue would have.
    const std::uint32_t blob = shipped.front().begin + 4;
    for (const test::Builtin& builtin : builtins) {
      const auto code = pe.image.from_rva(blob + builtin.offset);
      EXPECT_TRUE(code && code->size() >= builtin.length);
      if (code && code->size() >= builtin.length)
        functions.push_back({.symbol = "blob",
                             .addend = builtin.offset,
                             .address = blob + builtin.offset,
                             .code = {code->data(), builtin.length}});
    }
  }
};

// The exact part of the output: bytes with rows, and functions that Windows' codes describe completely.
struct Exact {
  std::uint64_t bytes = 0, described = 0;
  std::size_t windows = 0;
};

Exact exact_of(std::vector<emit::Function> functions, bool keeps_frame_pointer_only) {
  Exact exact;
  for (emit::Function& function : functions) {
    function.keeps_frame_pointer_only = keeps_frame_pointer_only;
    exact.bytes += function.code.size();
  }
  const auto spans = emit::spans_of(functions, {});
  EXPECT_TRUE(spans) << spans.error().text();
  for (const emit::Span& span : *spans) {
    const bool whole = span.offset == 0 && span.prologue.code_size == functions[span.function].code.size();
    if (span.only == emit::Span::kElf) exact.described += span.rows.empty() ? 0 : span.prologue.code_size;
    // What stands for a function that is not exact is a frame that no epilogue takes back.
    const Prologue& said = span.prologue;
    const bool is_exact = said.ops.empty() || !said.epilogues.empty() || !said.parts.empty();
    if (span.only == emit::Span::kWindows && whole && is_exact) ++exact.windows;
  }
  return exact;
}

class EmitNode : public testing::TestWithParam<const char*> {};

TEST_P(EmitNode, EntriesOfBuiltinsAreTheShippedOnes) {
  const std::string file = std::string(WINDLASS_PE_CORPORA) + "/" + GetParam() + "/bin/node.exe";
  const auto pe = test::open_pe(file);
  if (!pe) GTEST_SKIP() << "SKIPPED: " << test::missing_corpora(WINDLASS_PE_CORPORA);
  const Builtins builtins(*pe);
  const auto& [functions, shipped] = builtins;
  ASSERT_GT(shipped.size(), 1000u);
  ASSERT_GT(functions.size(), 1000u);
  // V8 counts as leaves the adaptors that only jump to the code which calls functions of C++ (Generate_Adaptor). By the
  // code's effect on rsp there are more leaves.
  const auto all = places_of(functions, true), needed = places_of(functions, false);
  std::set<Place> places, adaptors;
  for (const Entry& entry : shipped) places.insert({entry.begin, entry.end});
  std::set_difference(all.begin(), all.end(), places.begin(), places.end(), std::inserter(adaptors, adaptors.end()));
  fmt::print("{}: {} builtins, {} entries shipped, {} by the rule, {} of them of adaptors, {} without leaves\n",
             GetParam(), functions.size(), shipped.size(), all.size(), adaptors.size(), needed.size());
  EXPECT_TRUE(std::includes(all.begin(), all.end(), places.begin(), places.end()));
  EXPECT_LT(needed.size(), places.size());
  for (const auto& [begin, end] : adaptors) {
    const auto code = pe->image.from_rva(end - kAdaptor);
    EXPECT_TRUE(code && is_adaptor(*code) && end - begin == kAdaptor + 4) << fmt::format("{:#x} to {:#x}", begin, end);
  }
}

// Told what registers the builtins keep, more of them are exact.
TEST_P(EmitNode, WhatIsKnownOfTheBuiltinsMakesMoreExact) {
  const auto pe = test::open_pe(std::string(WINDLASS_PE_CORPORA) + "/" + GetParam() + "/bin/node.exe");
  if (!pe) GTEST_SKIP() << "SKIPPED: " << test::missing_corpora(WINDLASS_PE_CORPORA);
  const Builtins builtins(*pe);
  const Exact without = exact_of(builtins.functions, false), with = exact_of(builtins.functions, true);
  const auto percent = [](std::uint64_t part, std::uint64_t all) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(all);
  };
  fmt::print("{}: rows for {:.2f}% of {} bytes, {:.2f}% without; for Windows {} builtins of {}, {} without\n",
             GetParam(), percent(with.described, with.bytes), with.bytes, percent(without.described, without.bytes),
             with.windows, builtins.functions.size(), without.windows);
  EXPECT_GT(with.described, without.described);
  EXPECT_GT(with.windows, without.windows);
}

INSTANTIATE_TEST_SUITE_P(Versions, EmitNode, testing::Values("node-26", "node-20"),
                         [](const auto& version) { return std::string(version.param).replace(4, 1, "_"); });

}  // namespace
}  // namespace windlass
