// What node.exe was shipped with for its embedded builtins, compared with what `emit` says of the same code by the same
// rule: every entry and every byte of the one record that they share.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "image/function_table.h"
#include "support/pe_corpora.h"
#include "support/v8_blob.h"
#include "windlass/emit.h"
#include "winx64/read.h"

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

class EmitNode : public testing::TestWithParam<const char*> {};

TEST_P(EmitNode, EntriesOfBuiltinsAreTheShippedOnes) {
  const std::string file = std::string(WINDLASS_PE_CORPORA) + "/" + GetParam() + "/bin/node.exe";
  const auto pe = test::open_pe(file);
  if (!pe) GTEST_SKIP() << "SKIPPED: " << test::missing_corpora(WINDLASS_PE_CORPORA);
  std::vector<test::Builtin> builtins;
  for (const image::PeSection& section : pe->image.sections()) {
    const auto bytes = pe->file.bytes().sub(section.file_offset, section.file_size);
    if (bytes && builtins.empty()) builtins = test::find_builtins(*bytes);
  }
  ASSERT_FALSE(builtins.empty());
  const std::vector<Entry> shipped = builtin_entries(pe->image);
  ASSERT_GT(shipped.size(), 1000u);

  // The first builtin has no frame of its own at its begin: its entry begins where a prologue would have.
  const std::uint32_t blob = shipped.front().begin + 4;
  std::vector<emit::Function> functions;
  for (const test::Builtin& builtin : builtins) {
    const auto code = pe->image.from_rva(blob + builtin.offset);
    ASSERT_TRUE(code && code->size() >= builtin.length);
    functions.push_back({.symbol = "blob",
                         .addend = builtin.offset,
                         .address = blob + builtin.offset,
                         .code = {code->data(), builtin.length}});
  }
  // V8 takes for leaves what only jumps to the code that calls functions of C++ (Generate_Adaptor); by what the code
  // does to rsp there are more.
  const auto all = places_of(functions, true), needed = places_of(functions, false);
  std::set<Place> places, adaptors;
  for (const Entry& entry : shipped) places.insert({entry.begin, entry.end});
  std::set_difference(all.begin(), all.end(), places.begin(), places.end(), std::inserter(adaptors, adaptors.end()));
  fmt::print("{}: {} builtins, {} entries shipped, {} by the rule, {} of them of adaptors, {} without leaves\n",
             GetParam(), builtins.size(), shipped.size(), all.size(), adaptors.size(), needed.size());
  EXPECT_TRUE(std::includes(all.begin(), all.end(), places.begin(), places.end()));
  EXPECT_LT(needed.size(), places.size());
  for (const auto& [begin, end] : adaptors) {
    const auto code = pe->image.from_rva(end - kAdaptor);
    EXPECT_TRUE(code && is_adaptor(*code) && end - begin == kAdaptor + 4) << fmt::format("{:#x} to {:#x}", begin, end);
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, EmitNode, testing::Values("node-26", "node-20"),
                         [](const auto& version) { return std::string(version.param).replace(4, 1, "_"); });

}  // namespace
}  // namespace windlass
