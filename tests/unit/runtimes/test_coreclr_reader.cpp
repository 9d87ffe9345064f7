// The reader of a CoreCLR, on one made up. Nothing in its memory may make the reader run on or crash.
#include <elf.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "runtimes/coreclr/code_map.h"
#include "runtimes/coreclr/find.h"
#include "runtimes/coreclr/frames.h"
#include "runtimes/coreclr/names.h"
#include "runtimes/coreclr/rows.h"
#include "runtimes/find.h"
#include "support/fake_coreclr.h"

namespace windlass::runtimes::coreclr {
namespace {

using test::BlockMemory;
using test::FakeCoreClr;

constexpr RegisterNumber kRbx = 3, kRsp = 7;

std::unique_ptr<Runtime> runtime_of(const FakeCoreClr& fake, const Memory& memory) {
  return open(unowned(memory), {.descriptor = fake.descriptor});
}

// ---- nibble maps
// ------------------------------------------------------------------------------------------------------

std::uint64_t found(const std::map<std::uint64_t, std::uint32_t>& units, std::uint64_t offset, bool pointers) {
  const auto unit = [&](std::uint64_t index) -> std::optional<std::uint32_t> {
    const auto at = units.find(index);
    return at != units.end() ? at->second : 0;
  };
  return find_in_nibbles(unit, offset, pointers).value_or(~std::uint64_t{0});
}

// ExecutionManager.md's example.
TEST(NibbleMap, FindsWhereAMethodBegins) {
  const std::map<std::uint64_t, std::uint32_t> units = {{1, 0x0500'0000}};
  EXPECT_EQ(found(units, 304, false), 304U);
  EXPECT_EQ(found(units, 306, false), 304U);
  EXPECT_EQ(found(units, 302, false), ~std::uint64_t{0});
  EXPECT_EQ(found(units, 256 * 9, false), 304U);  // searched backwards over units
  EXPECT_EQ(found(units, 256 * 3, true), ~std::uint64_t{0});
}

TEST(NibbleMap, FollowsAPointerWhereAMethodCoversAUnit) {
  const std::map<std::uint64_t, std::uint32_t> units = {{1, 0x0500'0000}, {2, 304 | 9}, {3, 304 | 9}};
  EXPECT_EQ(found(units, 256 * 2 + 77, true), 304U);
  EXPECT_EQ(found(units, 256 * 4, true), 304U);  // of the unit before
  EXPECT_EQ(found({{2, 300 / 16 * 16 | (9 + 3)}}, 600, true), 300U);
}

// Any methods, asked for at every address, as a list of them answers.
TEST(NibbleMap, AgreesWithAListOfMethods) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::map<std::uint64_t, std::uint32_t> old_units, units;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> methods;
    for (std::uint64_t at = random() % 64 * 4; at < 8192;) {
      const std::uint64_t size = 32 + random() % (round % 2 == 0 ? 100 : 1500);
      methods.emplace_back(at, at + size);
      const std::uint32_t nibble = static_cast<std::uint32_t>(at % 32 / 4 + 1) << (28 - at / 32 % 8 * 4);
      old_units[at / 256] |= nibble, units[at / 256] |= nibble;
      for (std::uint64_t unit = at / 256 + 1; (unit + 1) * 256 <= at + size; ++unit)
        units[unit] = static_cast<std::uint32_t>((at & ~15ULL) | (9 + at % 16 / 4));
      at = (at + size + 3) / 4 * 4 + random() % 16 * 4;
      at += at / 32 == methods.back().first / 32 ? 32 : 0;
    }
    for (const auto& [begin, end] : methods)
      for (std::uint64_t at = begin; at < end; ++at) {
        ASSERT_EQ(found(old_units, at, false), begin) << at;
        ASSERT_EQ(found(units, at, true), begin) << at;
      }
  }
}

// ---- methods
// ----------------------------------------------------------------------------------------------------------

TEST(CoreClrReader, FindsMethodsWithTheirNamesAndRows) {
  const FakeCoreClr fake;
  const BlockMemory memory = fake.memory();
  const auto runtime = runtime_of(fake, memory);
  EXPECT_FALSE(runtime->problem().has_value()) << runtime->problem()->text();
  const auto first = runtime->method_at(fake.first + 5);
  ASSERT_TRUE(first.has_value()) << first.error().text();
  EXPECT_EQ((*first)->begin, fake.first);
  EXPECT_EQ((*first)->end, fake.first + 11);
  EXPECT_EQ((*first)->name, "Space.Type.One(Int32, String)");
  FrameRow row;
  const std::array<std::int32_t, 11> offsets = {8, 8, 8, 8, 16, 16, 16, 16, 16, 16, 8};
  for (std::uint64_t at = 0; at < offsets.size(); ++at) {
    if (at != 0 && at != 4 && at != 5 && at != 6 && at != 10) continue;  // where instructions begin
    ASSERT_TRUE((*first)->row_at(fake.first + at, row).has_value());
    EXPECT_EQ(row.cfa, CfaRule::at(kRsp, offsets[at])) << at;
  }
  EXPECT_EQ(row.registers.size(), 0U);  // System V's rsi and rdi are nobody's
}

TEST(CoreClrReader, HandlersArePartsOfTheirMethod) {
  const FakeCoreClr fake;
  const BlockMemory memory = fake.memory();
  const auto runtime = runtime_of(fake, memory);
  for (const std::uint64_t pc : {fake.second + 1, fake.second + 600, fake.handler + 1}) {
    const auto method = runtime->method_at(pc);
    ASSERT_TRUE(method.has_value()) << method.error().text();
    EXPECT_EQ((*method)->begin, fake.second);
    EXPECT_EQ((*method)->name, "Space.Type.Two(Int32, String)");
    FrameRow row;
    ASSERT_TRUE((*method)->row_at(pc, row).has_value());
    EXPECT_EQ(row.cfa, CfaRule::at(kRsp, 16));
    ASSERT_NE(row.registers.find(kRbx), nullptr);
    EXPECT_EQ(*row.registers.find(kRbx), RegisterRule::at_cfa(-16));
  }
  EXPECT_EQ(runtime->method_at(fake.handler + 4).error().code, ErrorCode::kNotFound);
}

TEST(CoreClrReader, AStubsStackIsThatOfItsEntryWhereItJumps) {
  const FakeCoreClr fake;
  const BlockMemory memory = fake.memory();
  const auto runtime = runtime_of(fake, memory);
  for (const auto& [at, offset] : {std::pair{0, 8}, {1, 16}, {2, 16}, {3, 8}}) {
    const auto method = runtime->method_at(fake.stub + static_cast<std::uint64_t>(at));
    ASSERT_TRUE(method.has_value()) << method.error().text();
    FrameRow row;
    ASSERT_TRUE((*method)->row_at(fake.stub + static_cast<std::uint64_t>(at), row).has_value());
    EXPECT_EQ(row.cfa, CfaRule::at(kRsp, offset)) << at;
    EXPECT_TRUE(runtime->is_still(**method));
    EXPECT_EQ((*method)->name, "[CoreCLR stub]");
    EXPECT_GT((*method)->bytes(), sizeof(Stub)) << "the stub's code is kept";
  }
}

TEST(CoreClrReader, SaysWhatItDoesNotKnow) {
  const auto problem_of = [](const FakeCoreClr::Options& options) {
    const FakeCoreClr fake(options);
    const BlockMemory memory = fake.memory();
    const auto runtime = runtime_of(fake, memory);
    EXPECT_EQ(runtime->problem()->code, ErrorCode::kUnsupported);
    const auto method = runtime->method_at(fake.first);
    EXPECT_EQ(runtime->is_understood(), method.has_value());
    EXPECT_EQ(method ? (*method)->name : "", "");  // its frames are known, its name is not
    return std::pair(runtime->problem()->text(), method.has_value());
  };
  const auto manager = problem_of({.execution_manager = 3});
  EXPECT_NE(manager.first.find("ExecutionManager contract of a version that is not known"), std::string::npos);
  EXPECT_FALSE(manager.second);
  const auto types = problem_of({.runtime_types = 2});
  EXPECT_NE(types.first.find("RuntimeTypeSystem contract of a version that is not known"), std::string::npos);
  EXPECT_TRUE(types.second);
  EXPECT_FALSE(problem_of({.version = 1}).second);
  const FakeCoreClr fake({.thread = 2});
  EXPECT_EQ(ExplicitFrames::make(*Descriptor::read(fake.memory(), fake.descriptor)).error().code,
            ErrorCode::kUnsupported);
}

// Its descriptor does not tell of the code, or there is none.
TEST(CoreClrReader, Net9IsReadByWhatIsKnownOfIt) {
  const FakeCoreClr fake({.execution_manager = 0});
  const BlockMemory memory = fake.memory();
  for (const Exports& exports : {Exports{.descriptor = fake.descriptor, .dac_table = fake.dac_table, .info = 0},
                                 Exports{.descriptor = 0, .dac_table = fake.dac_table, .info = fake.runtime_info}}) {
    const auto runtime = open(unowned(memory), exports);
    EXPECT_FALSE(runtime->problem().has_value()) << runtime->problem()->text();
    const auto first = runtime->method_at(fake.first + 5);
    ASSERT_TRUE(first.has_value()) << first.error().text();
    EXPECT_EQ((*first)->begin, fake.first);
    EXPECT_EQ((*first)->name, "Space.Type.One(Int32, String)");
  }
}

// It has no descriptor. A program of a single file tells its version as that of .NET 9 does, libcoreclr.so in a text.
TEST(CoreClrReader, Net8IsReadByWhatIsKnownOfIt) {
  const FakeCoreClr fake;
  BlockMemory memory = fake.memory();
  memory.bytes()[fake.runtime_info + FakeCoreClr::kVersionInInfo - memory.base()] = std::byte{8};
  for (const Exports& exports : {Exports{.dac_table = fake.dac_table, .info = fake.runtime_info},
                                 Exports{.dac_table = fake.dac_table, .text = fake.version_text}}) {
    const auto runtime = open(unowned(memory), exports);
    EXPECT_FALSE(runtime->problem().has_value()) << runtime->problem()->text();
    const auto first = runtime->method_at(fake.first + 5);
    ASSERT_TRUE(first.has_value()) << first.error().text();
    EXPECT_EQ((*first)->begin, fake.first);
    EXPECT_EQ((*first)->name, "Space.Type.One(Int32, String)");
    EXPECT_FALSE(runtime->heap_of(fake.first)) << "its maps have no pointers";
  }
}

TEST(CoreClrReader, TheVersionsTextIsInTheImagesData) {
  constexpr std::uint64_t kBase = 0x7f00'0000'0000, kAddress = 0x3100, kText = 0x2345;
  const auto found_with = [&](std::uint32_t flags, std::uint64_t size) {
    std::vector<std::byte> bytes(0x4000);
    Elf64_Phdr segments[2] = {};
    segments[0].p_type = PT_LOAD, segments[0].p_flags = PF_R, segments[0].p_vaddr = 0x1000;
    segments[0].p_filesz = 0x2000;
    segments[1].p_type = PT_LOAD, segments[1].p_flags = flags, segments[1].p_vaddr = kAddress;
    segments[1].p_filesz = size;
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_phoff = sizeof header, header.e_phentsize = sizeof(Elf64_Phdr), header.e_phnum = std::size(segments);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, segments, sizeof segments);
    std::memcpy(bytes.data() + kText, FakeCoreClr::kVersionText.data(), FakeCoreClr::kVersionText.size());
    return find_version_text(BlockMemory(kBase, bytes), kBase);
  };
  EXPECT_EQ(found_with(PF_R | PF_W, 0x1000).value(), kBase + kText);
  EXPECT_FALSE(found_with(PF_R, 0x1000)) << "no data";
  EXPECT_FALSE(found_with(PF_R | PF_W, 0x245)) << "behind it";
  EXPECT_FALSE(found_with(PF_R | PF_W, 0x10000)) << "cannot be read";
  EXPECT_FALSE(found_with(PF_R | PF_W, std::uint64_t{1} << 60));
  EXPECT_EQ(find_version_text(BlockMemory(kBase, std::vector<std::byte>(64)), kBase).error().code,
            ErrorCode::kNotFound);
}

// Its descriptor does not say which machine it is for; the image does.
TEST(CoreClrReader, Net9OfAnotherMachineIsRefused) {
  const FakeCoreClr fake({.execution_manager = 0});
  const BlockMemory memory = fake.memory();
  const auto runtime =
      open(unowned(memory), Exports{.descriptor = fake.descriptor, .dac_table = fake.dac_table, .x64 = false});
  ASSERT_TRUE(runtime->problem().has_value());
  EXPECT_STREQ(runtime->problem()->what, "code of a .NET runtime for another machine");
  EXPECT_FALSE(runtime->method_at(fake.first));
}

TEST(CoreClrReader, WithoutADescriptorOtherVersionsAreNamed) {
  const FakeCoreClr fake;
  BlockMemory memory = fake.memory();
  const auto put = [&](std::uint64_t at, auto value) {
    std::memcpy(memory.bytes().data() + (at - memory.base()), &value, sizeof value);
  };
  put(fake.runtime_info + FakeCoreClr::kVersionInInfo, std::uint32_t{7});
  const Exports exports{.descriptor = 0, .dac_table = fake.dac_table, .info = fake.runtime_info};
  const auto other = open(unowned(memory), exports);
  ASSERT_TRUE(other->problem().has_value());
  EXPECT_EQ(other->problem()->code, ErrorCode::kUnsupported);
  EXPECT_EQ(other->problem()->detail, 7U);
  EXPECT_FALSE(other->is_understood());
  memory.bytes()[fake.version_text + 12 - memory.base()] = std::byte{'6'};
  const auto older = open(unowned(memory), Exports{.dac_table = fake.dac_table, .text = fake.version_text});
  EXPECT_EQ(older->problem()->detail, 6U);
  const auto untold = open(unowned(memory), Exports{.dac_table = fake.dac_table});
  EXPECT_EQ(untold->problem()->code, ErrorCode::kUnsupported);
  EXPECT_EQ(untold->problem()->detail, 0U);
  // The table is written when the runtime starts.
  put(fake.runtime_info + FakeCoreClr::kVersionInInfo, std::uint32_t{9});
  std::uint64_t map = 0;
  ASSERT_TRUE(memory.read(fake.dac_table, &map, sizeof map));
  put(fake.dac_table, std::uint64_t{0});
  const auto early = open(unowned(memory), exports);
  EXPECT_FALSE(early->method_at(fake.first));
  put(fake.dac_table, map);
  EXPECT_TRUE(early->method_at(fake.first));
}

TEST(CoreClrReader, OldMapsAreSearched) {
  const FakeCoreClr fake({.execution_manager = 1});
  const BlockMemory memory = fake.memory();
  const auto method = runtime_of(fake, memory)->method_at(fake.first + 4);
  ASSERT_TRUE(method.has_value());
  EXPECT_EQ((*method)->begin, fake.first);
}

// ---- explicit frames
// --------------------------------------------------------------------------------------------------

TEST(CoreClrReader, ListsTheExplicitFramesOfThreads) {
  const FakeCoreClr fake;
  const BlockMemory memory = fake.memory();
  const auto reader = ExplicitFrames::make(*Descriptor::read(memory, fake.descriptor));
  ASSERT_TRUE(reader.has_value()) << reader.error().text();
  const auto threads = reader->read(memory);
  ASSERT_TRUE(threads.has_value()) << threads.error().text();
  ASSERT_EQ(threads->size(), 1U);
  const ThreadFrames& thread = threads->front();
  EXPECT_EQ(thread.id, 1234U);
  EXPECT_FALSE(thread.error.has_value());
  ASSERT_EQ(thread.frames.size(), 2U);
  EXPECT_EQ(thread.frames[0].kind, "InlinedCallFrame");
  ASSERT_TRUE(thread.frames[0].call.has_value());
  EXPECT_EQ(thread.frames[0].call->pc, fake.first + 5);
  EXPECT_EQ(thread.frames[1].address, fake.outer_frame);
  EXPECT_EQ(thread.frames[1].kind, "PrestubMethodFrame");
}

TEST(CoreClrReader, AListOfFramesThatTurnsBackIsAnError) {
  const FakeCoreClr fake;
  BlockMemory memory = fake.memory();
  std::memcpy(memory.bytes().data() + (fake.outer_frame + 8 - FakeCoreClr::kBase), &fake.inner_frame, 8);
  const auto threads = ExplicitFrames::make(*Descriptor::read(memory, fake.descriptor))->read(memory);
  ASSERT_TRUE(threads.has_value());
  EXPECT_EQ(threads->front().error->code, ErrorCode::kMalformed);
  EXPECT_EQ(threads->front().frames.size(), 2U);
}

// ---- hostile memory
// ---------------------------------------------------------------------------------------------------

// All that can be asked of a runtime in a memory. Whatever it says, it ends.
void ask_everything(const FakeCoreClr& fake, const Memory& memory) {
  const auto runtime = runtime_of(fake, memory);
  for (const std::uint64_t pc : {fake.first, fake.second + 600, fake.handler, fake.stub, fake.stub + 700}) {
    const auto method = runtime->method_at(pc);
    if (!method) continue;
    FrameRow row;
    (void)(*method)->row_at(pc, row);
    (*method)->for_each_row([](const FrameRow&) {}, [](const Error&) {});
    (void)runtime->is_still(**method);
  }
  if (const auto descriptor = Descriptor::read(memory, fake.descriptor))
    if (const auto frames = ExplicitFrames::make(*descriptor)) (void)frames->read(memory);
}

TEST(CoreClrReader, ForgedMemoryEnds) {
  const FakeCoreClr fake;
  const BlockMemory whole = fake.memory();
  std::mt19937_64 random(2);
  for (int round = 0; round < 20000; ++round) {
    BlockMemory memory = whole;
    for (std::uint64_t i = random() % 4 + 1; i-- > 0;) {
      const std::size_t at = random() % (memory.bytes().size() - 8);
      // A byte, or a word that leads back into it.
      const std::uint64_t word = FakeCoreClr::kBase + random() % memory.bytes().size();
      if (random() % 2 == 0)
        memory.bytes()[at] = static_cast<std::byte>(random());
      else
        std::memcpy(memory.bytes().data() + at / 8 * 8, &word, sizeof word);
    }
    ask_everything(fake, memory);
  }
}

// Every read gives something else.
class GarbageMemory final : public Memory {
 public:
  explicit GarbageMemory(const BlockMemory& about, unsigned seed) : about_(about), random_(seed) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    const bool real = about_.read(address, to, size);
    if (real && random_() % 8 != 0) return true;
    auto* bytes = static_cast<std::uint8_t*>(to);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(random_());
    if (size == 8 && random_() % 2 == 0) {
      const std::uint64_t word = about_.base() + random_() % 8192;
      std::memcpy(to, &word, sizeof word);
    }
    return random_() % 16 != 0;
  }

 private:
  const BlockMemory& about_;
  mutable std::mt19937_64 random_;
};

TEST(CoreClrReader, GarbageEnds) {
  const FakeCoreClr fake;
  const BlockMemory whole = fake.memory();
  for (unsigned seed = 0; seed < 300; ++seed) ask_everything(fake, GarbageMemory(whole, seed));
}

}  // namespace
}  // namespace windlass::runtimes::coreclr
