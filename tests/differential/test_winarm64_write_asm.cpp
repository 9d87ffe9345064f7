// Assembly text given to LLVM's assembler. Its output for the directives equals that of write(), or is larger for known
// causes. Records written as data stand unchanged in the object file.
#include <cstring>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "differential/peer.h"
#include "formats/winarm64/encode.h"
#include "support/arm64_prologues.h"
#include "support/random_arm64_prologue.h"
#include "support/run_command.h"

namespace windlass {
namespace {

using namespace prologue;

constexpr const char* kAssembler = "llvm-mc-22";

// The sections of a COFF object file, one after another where there are several of a name.
class Object {
 public:
  explicit Object(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    const std::uint32_t sections = bytes_.size() < 20 ? 0 : at(2) & 0xffff;
    for (std::uint32_t i = 0; i < sections; ++i) {
      const std::uint32_t header = 20 + i * 40;
      char name[9] = {};
      std::memcpy(name, bytes_.data() + header, 8);
      sections_[name] += bytes_.substr(at(header + 20), at(header + 16));
    }
  }
  [[nodiscard]] const std::string& section(const std::string& name) { return sections_[name]; }

 private:
  [[nodiscard]] std::uint32_t at(std::uint32_t offset) const {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes_.data() + offset, 4);
    return value;
  }
  std::string bytes_;
  std::map<std::string, std::string> sections_;
};

std::vector<std::byte> code_of(const Prologue& prologue) {
  const test::Arm64PrologueCode code(prologue);
  std::vector<std::byte> bytes(code.words().size() * 4);
  std::memcpy(bytes.data(), code.words().data(), bytes.size());
  return bytes;
}

class WinArm64Assembly : public testing::Test {
 protected:
  void SetUp() override {
    if (!peer::have(kAssembler)) GTEST_SKIP() << kAssembler << " is not installed";
    directory_ = test::run("mktemp -d").output;
    while (!directory_.empty() && directory_.back() == '\n') directory_.pop_back();
  }
  void TearDown() override {
    if (!directory_.empty()) test::run("rm -r '" + directory_ + "'");
  }
  Object assemble(const std::string& text) {
    const std::string source = directory_ + "/functions.s", object = directory_ + "/functions.obj";
    std::ofstream(source) << text;
    const auto done = test::run(
        fmt::format("{} -triple=aarch64-pc-windows-msvc -filetype=obj {} -o {} 2>&1", kAssembler, source, object));
    EXPECT_EQ(done.status, 0) << done.output.substr(0, 2000);
    return Object(object);
  }
  std::string directory_;
};

struct Unwind {
  std::uint32_t word = 0;  // where packed
  std::string record;
};

// Entries and records in their order.
std::vector<Unwind> read(Object& object, std::size_t count) {
  std::vector<Unwind> all;
  const std::string& pdata = object.section(".pdata");
  const std::string& xdata = object.section(".xdata");
  EXPECT_EQ(pdata.size(), count * 8);
  std::size_t next = 0;
  for (std::size_t i = 0; i + 8 <= pdata.size(); i += 8) {
    Unwind unwind;
    std::memcpy(&unwind.word, pdata.data() + i + 4, 4);
    if ((unwind.word & 3) == 0) {
      unwind.word = 0;
      const ByteView rest(reinterpret_cast<const std::byte*>(xdata.data()) + next, xdata.size() - next);
      const auto record = winarm64::parse_record(rest, 0);
      EXPECT_TRUE(record) << i / 8;
      if (!record) return all;
      const std::size_t size = record->codes.origin() + record->codes.size() + (record->has_handler ? 4 : 0);
      unwind.record = xdata.substr(next, size);
      next += size;
    }
    all.push_back(std::move(unwind));
  }
  EXPECT_EQ(next, xdata.size());
  return all;
}

// What LLVM does not make as small.
std::string cause(const std::string& theirs, const std::string& ours) {
  const auto parse = [](const std::string& bytes) {
    return winarm64::parse_record(ByteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()), 0);
  };
  if (ours.empty()) return "LLVM makes a record of what can be packed";
  if (theirs.empty()) return "LLVM PACKS";
  const auto a = parse(theirs), b = parse(ours);
  if (!a || !b || theirs.size() < ours.size()) return "LLVM IS SMALLER";
  if (b->single_epilogue && !a->single_epilogue) return "LLVM has no E";
  if (a->codes.size() > b->codes.size()) return "LLVM repeats codes of epilogues";
  if (theirs.size() > ours.size()) return "LLVM has an extension word";
  if (a->scope_count() == b->scope_count() && a->single_epilogue == b->single_epilogue)
    return "as large, with the codes of epilogues in another order";
  return "OTHER";
}

TEST_F(WinArm64Assembly, DirectivesAreWhatIsWritten) {
  std::string text;
  std::vector<Unwind> ours;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    test::RandomArm64Prologue random(seed);
    Prologue prologue = random.make();
    if (!prologue.parts.empty()) continue;
    winarm64::AssemblyOptions options{.name = fmt::format("f{}", seed)};
    if (seed % 7 == 0) {
      prologue.handler = prologue::Handler{};
      options.handler = "handler";
    }
    const auto written = winarm64::write(prologue);
    const auto source = winarm64::assembly_of(prologue, code_of(prologue), options);
    ASSERT_TRUE(written && source) << seed << ": " << source.error().text();
    text += *source;
    if (written->entries.empty()) continue;
    ASSERT_EQ(written->entries.size(), 1U);
    Unwind unwind;
    if (written->entries[0].packed()) unwind.word = written->entries[0].data;
    unwind.record.assign(reinterpret_cast<const char*>(written->bytes.data()), written->bytes.size());
    ours.push_back(unwind);
  }
  Object object = assemble(text);
  const std::vector<Unwind> theirs = read(object, ours.size());
  ASSERT_EQ(theirs.size(), ours.size());
  std::map<std::string, std::size_t> causes;
  std::size_t same = 0, packed = 0, our_bytes = 0, their_bytes = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    our_bytes += 8 + ours[i].record.size();
    their_bytes += 8 + theirs[i].record.size();
    packed += ours[i].word != 0 ? 1 : 0;
    if (ours[i].word == theirs[i].word && ours[i].record == theirs[i].record)
      ++same;
    else
      ++causes[cause(theirs[i].record, ours[i].record)];
  }
  std::printf("%zu functions (%zu packed): %zu the same bytes; ours %zu bytes, LLVM's %zu\n", ours.size(), packed, same,
              our_bytes, their_bytes);
  for (const auto& [why, count] : causes) {
    std::printf("    %zu %s\n", count, why.c_str());
    EXPECT_TRUE(why != "LLVM PACKS" && why != "LLVM IS SMALLER" && why != "OTHER") << why;
  }
  EXPECT_GT(same, ours.size() / 2);
}

// Parts: no directives for them, so entries and records as data.
TEST_F(WinArm64Assembly, Data) {
  std::string text;
  std::string records;
  std::vector<winarm64::RuntimeFunction> entries;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    test::RandomArm64Prologue random(seed);
    Prologue prologue = random.make();
    if (prologue.parts.empty() || prologue.ops.empty()) continue;
    winarm64::AssemblyOptions options{.name = fmt::format("f{}", seed)};
    const auto list = winarm64::directives_of(prologue, options);
    ASSERT_FALSE(list);
    EXPECT_EQ(list.error().code, ErrorCode::kUnsupported);
    if (seed % 3 == 0) {
      prologue.handler = prologue::Handler{.rva = 77, .data = {std::byte{1}, std::byte{2}}};
      options.handler = "handler";
    }
    const auto source = winarm64::assembly_of(prologue, code_of(prologue), options);
    ASSERT_TRUE(source) << source.error().text();
    text += *source;
    if (prologue.handler) prologue.handler->rva = 0;
    const auto written = winarm64::write(prologue);
    records.append(reinterpret_cast<const char*>(written->bytes.data()), written->bytes.size());
    entries.insert(entries.end(), written->entries.begin(), written->entries.end());
  }
  Object object = assemble(text);
  EXPECT_EQ(object.section(".xdata"), records);
  ASSERT_EQ(object.section(".pdata").size(), entries.size() * 8);
  EXPECT_EQ(std::memcmp(object.section(".pdata").data(), entries.data(), entries.size() * 8), 0);
  EXPECT_GT(entries.size(), 300U);
}

// All directives in one function, a handler with data behind it.
TEST_F(WinArm64Assembly, HandlerData) {
  Prologue f{.architecture = Architecture::kAArch64, .code_size = 60};
  f.ops = {{4, SignReturnAddress{}}, {8, Save{29, 0, 32, 30}}, {12, SetFramePointer{29}}, {20, Save{19, 16}}};
  f.epilogues = {mirrored(f, 40)};
  f.handler = prologue::Handler{.data = {std::byte{0xaa}, std::byte{0xbb}, std::byte{0xcc}, std::byte{0xdd}}};
  const auto source = winarm64::assembly_of(f, code_of(f), {.name = "f", .handler = "handler"});
  ASSERT_TRUE(source);
  Object object = assemble(*source);
  const auto written = winarm64::write(f);
  ASSERT_TRUE(written);
  EXPECT_EQ(object.section(".xdata"),
            std::string(reinterpret_cast<const char*>(written->bytes.data()), written->bytes.size()));
}

// SVE: what clang's assembler makes of the directives is what write() writes.
TEST_F(WinArm64Assembly, SveAsLlvm) {
  Prologue f{.architecture = Architecture::kAArch64, .code_size = 80};
  f.ops = {{4, AllocateVectors{3}},  {8, SaveVector{52}},       {12, SaveVector{63, 7}},  {16, SaveVector{104, 1}},
           {20, SaveVector{119, 2}}, {24, Save{29, 0, 32, 30}}, {28, SetFramePointer{29}}};
  f.epilogues = {mirrored(f, 48)};
  std::vector<std::byte> code(80);
  for (std::size_t i = 0; i < code.size(); i += 4) std::memcpy(code.data() + i, "\x1f\x20\x03\xd5", 4);  // nop
  const auto text = winarm64::assembly_of(f, code, {.name = "f"});
  ASSERT_TRUE(text) << text.error().text();
  EXPECT_NE(text->find(".seh_allocz 3"), std::string::npos);
  Object object = assemble(*text);
  const auto written = winarm64::write(f);
  ASSERT_TRUE(written) << written.error().text();
  EXPECT_EQ(object.section(".xdata"),
            std::string(reinterpret_cast<const char*>(written->bytes.data()), written->bytes.size()));
  EXPECT_FALSE(winarm64::directives_of(f, {.assembler = winarm64::Assembler::kArmasm64, .name = "f"}));
}

}  // namespace
}  // namespace windlass
