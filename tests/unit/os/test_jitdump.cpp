#include "os/jitdump.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/jitdump_text.h"

namespace windlass::os {
namespace {

using test::GrowingFile;
using test::JitdumpText;

class Seen final : public JitdumpVisitor {
 public:
  void load(std::uint64_t time, const JitdumpLoad& load, std::string_view name,
            const JitdumpDetails& details) override {
    const auto& [frames, source] = details;
    lines.push_back(fmt::format("{} {:x}+{:x} {}", time, load.address, load.size, name));
    if (frames.size != 0) lines.back() += fmt::format(" frames {}/{}", frames.header_size, frames.size);
    if (source.size != 0) lines.back() += fmt::format(" {} lines from {:x}", source.count, source.address);
  }
  void move(std::uint64_t time, const JitdumpMove& move) override {
    lines.push_back(fmt::format("{} {:x}->{:x} {}", time, move.from, move.to, move.index));
  }
  std::vector<std::string> lines;
};

using Lines = std::vector<std::string>;

Lines read(const std::string& text, std::optional<Error>* problem = nullptr) {
  const GrowingFile file;
  EXPECT_TRUE(file.append(text));
  JitdumpFile dump(file.reader());
  Seen seen;
  dump.read(seen);
  if (problem != nullptr) *problem = dump.problem();
  return seen.lines;
}

ProcMap map_of(const std::string& path) {
  ProcMap map;
  map.executable = true;
  map.set_path(path);
  return map;
}

TEST(Jitdump, IsFoundByItsName) {
  EXPECT_TRUE(shows_jitdump(map_of("/tmp/jit-12.dump")));
  EXPECT_TRUE(shows_jitdump(map_of("/root/.debug/jit/java-jit-1/jit-3.dump (deleted)")));
  for (const char* other : {"/tmp/jit-.dump", "/tmp/jit-1a.dump", "/tmp/jit-1.dumpx", "/tmp/xjit-1.dump",
                            "/tmp/jit.dump", "jit-1.dump", "/jit-12.dump/lib.so", ""})
    EXPECT_FALSE(shows_jitdump(map_of(other))) << other;
  ProcMap data = map_of("/tmp/jit-12.dump");
  data.executable = false;
  EXPECT_FALSE(shows_jitdump(data));
}

TEST(Jitdump, EveryRecord) {
  const std::string text = JitdumpText()
                               .header()
                               .load(1, 0x1000, 0x40, 7, "one")
                               .lines(2, 0x2000, {{0x2000, 5, "a.js"}, {0x2008, 6, "b.js"}})
                               .unwinding(3, "0123456789", 4)
                               .load(4, 0x2000, 0x10, 8, "two words")
                               .record(static_cast<JitdumpKind>(77), 5, "of the future")
                               .move(6, 0x1000, 0x3000, 0x40, 7)
                               .load(7, 0x5000, 0, 9, "")
                               .close(8)
                               .load(9, 0x6000, 1, 10, "behind the end")
                               .take();
  std::optional<Error> problem;
  EXPECT_EQ(read(text, &problem), (Lines{"1 1000+40 one", "4 2000+10 two words frames 4/10 2 lines from 2000",
                                         "6 1000->3000 7", "7 5000+0 "}));
  EXPECT_FALSE(problem);
}

// Whatever piece has been written: no record twice, none that is not whole, and in the end all.
TEST(Jitdump, ComesInPieces) {
  const std::string text = JitdumpText()
                               .header()
                               .load(1, 0x1000, 0x40, 7, "one")
                               .unwinding(3, "0123456789", 4)
                               .load(4, 0x2000, 0x10, 8, "two")
                               .close(5)
                               .take();
  for (const std::size_t piece : {1u, 7u, 40u, 100u}) {
    const GrowingFile file;
    JitdumpFile dump(file.reader());
    Seen seen;
    dump.read(seen);
    EXPECT_FALSE(dump.header());
    for (std::size_t at = 0; at < text.size(); at += piece) {
      ASSERT_FALSE(dump.ended());
      ASSERT_TRUE(file.append(text.substr(at, piece)));
      dump.read(seen);
    }
    EXPECT_EQ(seen.lines, (Lines{"1 1000+40 one", "4 2000+10 two frames 4/10"}));
    EXPECT_TRUE(dump.ended());
    EXPECT_EQ(dump.latest(), 5u);
    EXPECT_FALSE(dump.problem());
  }
}

TEST(Jitdump, CutAnywhereItIsTheRecordsThatAreWhole) {
  const std::string text =
      JitdumpText().header().load(1, 0x1000, 0x40, 7, "one").load(2, 0x2000, 0x40, 8, "two").take();
  const std::size_t first = 40 + 16 + 40 + 4 + 0x40;
  for (std::size_t size = 0; size < text.size(); ++size) {
    std::optional<Error> problem;
    EXPECT_EQ(read(text.substr(0, size), &problem).size(), size < first ? 0u : 1u) << size;
    EXPECT_FALSE(problem);
  }
}

TEST(Jitdump, LinesAreThoseOfTheCodeThatComesNext) {
  const std::string text = JitdumpText()
                               .header()
                               .lines(1, 0x1000, {{0x1000, 1, "a"}})
                               .load(2, 0x2000, 0x40, 1, "another")
                               .load(3, 0x1000, 0x40, 2, "too late")
                               .lines(4, 0x3000, {})
                               .load(5, 0x3000, 0x40, 3, "none")
                               .take();
  EXPECT_EQ(read(text), (Lines{"2 2000+40 another", "3 1000+40 too late", "5 3000+40 none"}));
}

TEST(Jitdump, LinesThatAreNotInTheirRecord) {
  for (const std::uint64_t count : {std::uint64_t{2}, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    JitdumpText body;
    body.raw(os::JitdumpDebugInfo{.address = 0x1000, .count = count}).raw(os::JitdumpDebugEntry{}).text("a");
    const std::string entries = body.text({"\0", 1}).take();
    std::optional<Error> problem;
    const std::string text =
        JitdumpText().header().record(JitdumpKind::kDebugInfo, 1, entries).load(2, 0x1000, 0x40, 1, "f").take();
    EXPECT_EQ(read(text, &problem), (Lines{"2 1000+40 f"}));
    ASSERT_TRUE(problem);
    EXPECT_EQ(problem->code, ErrorCode::kMalformed);
    EXPECT_EQ(problem->where, 40u);
  }
  std::optional<Error> problem;
  const std::string many(JitdumpFile::kMaxLines, 'x');
  EXPECT_EQ(
      read(JitdumpText().header().lines(1, 0x1000, {{0x1000, 1, many}}).load(2, 0x1000, 0x40, 1, "f").take(), &problem),
      (Lines{"2 1000+40 f"}));
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ErrorCode::kLimit);
  EXPECT_EQ(read(JitdumpText().header().record(JitdumpKind::kDebugInfo, 1, "short").take(), &problem), Lines());
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ErrorCode::kMalformed);
}

TEST(Jitdump, AHeaderThatIsNoneIsNamed) {
  const auto what = [](const JitdumpHeader& header) {
    std::optional<Error> problem;
    EXPECT_TRUE(read(JitdumpText().header(header).load(1, 1, 1, 1, "f").take(), &problem).empty());
    return problem ? problem->text() : "";
  };
  EXPECT_NE(what({.magic = 0x46454c46}).find("does not begin with"), std::string::npos);
  EXPECT_NE(what({.magic = JitdumpHeader::kSwapped}).find("byte order"), std::string::npos);
  EXPECT_NE(what({.version = 2}).find("version"), std::string::npos);
  EXPECT_NE(what({.total_size = 39}).find("too short"), std::string::npos);
}

// Errors are named with their offset. The records behind count, as long as their begin is known.
TEST(Jitdump, AMalformedRecordIsLeftOut) {
  const auto text_of = [](JitdumpText& begin) { return begin.load(9, 0x9000, 1, 9, "next").take(); };
  const auto header = [] { return JitdumpText().header(); };
  JitdumpText unnamed = header(), wraps = header(), frames = header(), moved = header(), wraps_to = header();
  unnamed.record(JitdumpKind::kLoad, 1, std::string(40, '\0') + "no end");
  wraps.load(1, ~std::uint64_t{0}, 2, 1, "f");
  frames.record(JitdumpKind::kUnwindingInfo, 1, std::string(24, '\1'));
  moved.record(JitdumpKind::kMove, 1, "short");
  wraps_to.move(1, 0, ~std::uint64_t{0}, 2, 1);
  for (JitdumpText* text : {&unnamed, &wraps, &frames, &moved, &wraps_to}) {
    std::optional<Error> problem;
    EXPECT_EQ(read(text_of(*text), &problem), Lines{"9 9000+1 next"});
    ASSERT_TRUE(problem);
    EXPECT_EQ(problem->where, 40u) << problem->text();
  }
  std::optional<Error> problem;
  const JitdumpRecord none{.kind = JitdumpKind::kLoad, .size = 15};
  EXPECT_TRUE(read(header().raw(none).load(9, 0x9000, 1, 9, "lost").take(), &problem).empty());
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->where, 40u);
  EXPECT_EQ(problem->detail, 15u);
}

TEST(Jitdump, NamesOfUpToTheLimit) {
  const std::string longest(JitdumpFile::kMaxName, 'n');
  std::optional<Error> problem;
  EXPECT_EQ(read(JitdumpText().header().load(1, 1, 1, 1, longest).take(), &problem).size(), 1u);
  EXPECT_FALSE(problem);
  EXPECT_TRUE(read(JitdumpText().header().load(1, 1, 1, 1, longest + "n").take(), &problem).empty());
  EXPECT_TRUE(problem);
}

TEST(Jitdump, AnotherProgramHasBegunItAnew) {
  const GrowingFile file;
  JitdumpFile dump(file.reader());
  Seen seen;
  ASSERT_TRUE(file.append(JitdumpText().header().load(1, 0x1000, 0x40, 7, "one").take()));
  dump.read(seen);
  ASSERT_TRUE(file.cut(0));
  ASSERT_TRUE(
      file.append(JitdumpText().header({.elf_machine = 62, .time = 5}).load(6, 0x1000, 0x1000, 7, "another's").take()));
  dump.read(seen);
  EXPECT_TRUE(dump.ended());
  EXPECT_EQ(seen.lines, Lines{"1 1000+40 one"});
}

}  // namespace
}  // namespace windlass::os
