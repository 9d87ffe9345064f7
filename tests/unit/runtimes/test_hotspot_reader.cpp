// The reader of a HotSpot, on one made up in this process, which exports libjvm.so's tables. Nothing in its memory may
// make the reader run on or crash.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "os/process_memory.h"
#include "runtimes/find.h"
#include "runtimes/hotspot/debug_info.h"
#include "runtimes/hotspot/find.h"
#include "runtimes/hotspot/names.h"
#include "runtimes/hotspot/rows.h"
#include "runtimes/hotspot/vm_structs.h"
#include "support/fake_hotspot.h"
#include "support/flipping_memory.h"

namespace windlass::runtimes::hotspot {
namespace {

using namespace test::fake_hotspot;  // NOLINT(google-build-using-namespace)

class HotSpotReader : public ::testing::Test {
 protected:
  void SetUp() override { make_method(); }
  const os::MemoryFile memory_{::getpid()};
};

TEST_F(HotSpotReader, FindsAMethodByItsSegments) {
  const auto structs = VmStructs::read(memory_, fake_image());
  ASSERT_TRUE(structs.has_value()) << structs.error().text();
  const auto map = CodeMap::make(*structs);
  ASSERT_TRUE(map.has_value()) << map.error().text();
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{kCodeSize - 1}}) {
    const auto blob = map->find(memory_, code_at() + offset);
    ASSERT_TRUE(blob.has_value()) << blob.error().text();
    EXPECT_EQ(blob->kind, Blob::Kind::kMethod);
    EXPECT_EQ(blob->begin, code_at());
    EXPECT_EQ(blob->end, code_at() + kCodeSize);
    EXPECT_EQ(blob->frame_bytes, 40);
    EXPECT_EQ(blob->id, 7U);
    EXPECT_TRUE(map->is_still(memory_, *blob));
  }
  EXPECT_EQ(map->find(memory_, code_at() + kCodeSize).error().code, ErrorCode::kNotFound);  // its data
  EXPECT_EQ(map->find(memory_, reinterpret_cast<std::uint64_t>(code_memory)).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(map->find(memory_, 4096).error().code, ErrorCode::kNotFound);
  const auto blob = map->find(memory_, code_at());
  reinterpret_cast<Nmethod*>(blob->address)->compile_id = 8;  // another one at the same place
  EXPECT_FALSE(map->is_still(memory_, *blob));
}

void expect_rows_names_and_lines(const Memory& memory) {
  const auto runtime = open(unowned(memory), fake_image());
  ASSERT_FALSE(runtime->problem().has_value());
  const auto method = runtime->method_at(code_at() + 6);
  ASSERT_TRUE(method.has_value()) << method.error().text();
  EXPECT_EQ((*method)->name, "org.example.Shape.outer");
  FrameRow row;
  ASSERT_TRUE((*method)->row_at(code_at() + 5, row).has_value());
  EXPECT_EQ(row.cfa, CfaRule::at(7, 48));
  EXPECT_EQ(row.begin, code_at() + 5);
  EXPECT_EQ(row.end, code_at() + 11);
  std::vector<sources::NamedFunction> names;
  runtime->functions_at(**method, code_at() + 5, names);
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[0].name, "org.example.Shape.inner");
  EXPECT_EQ(names[1].name, "org.example.Shape.outer");
  EXPECT_EQ(names[1].file, "Shape.java");
  EXPECT_EQ(names[1].line, 105U);
  names.clear();
  runtime->functions_at(**method, code_at() + 6, names);  // a place counts up to the address it is of
  EXPECT_EQ(names.size(), 2U);
  names.clear();
  runtime->functions_at(**method, code_at() + 7, names);
  EXPECT_EQ(names.size(), 1U);
  names.clear();
  runtime->functions_at(**method, code_at() + 10, names);
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(names[0].line, 105U);
}

TEST_F(HotSpotReader, TellsRowsNamesAndLines) { expect_rows_names_and_lines(memory_); }

// The tables as another version has them, until the end of a test.
class OfVersion {
 public:
  ~OfVersion() { std::ranges::copy(before_, fields); }
  static void replace(const std::string& type, const std::string& name, const Field& by) {
    const auto found =
        std::ranges::find_if(fields, [&](const Field& it) { return it.type == type && it.name == name; });
    ASSERT_NE(found, std::end(fields)) << type << "::" << name;
    *found = by;
  }
  static void make_jdk_11() {
    replace("GrowableArrayBase", "_len", FIELD("GenericGrowableArray", "_len", Array, length));
    replace("ConstantPool", "_source_file_name_index",
            FIELD("InstanceKlass", "_source_file_name_index", Klass, file_index));
  }
  static void make_jdk_8() {
    make_jdk_11();
    replace("CodeCache", "_heaps", ROOT("CodeCache", "_heap", one_heap));
    replace("CompiledMethod", "_method", FIELD("nmethod", "_method", Nmethod, method));
    replace("CompiledMethod", "_deopt_handler_begin", FIELD("nmethod", "_deoptimize_offset", Nmethod, deopt_offset));
    replace("CompiledMethod", "_scopes_data_begin", FIELD("nmethod", "_scopes_data_offset", Nmethod, scopes_offset));
    major_version = 25;
  }
  static void make_jdk_26() {
    replace("CompiledMethod", "_deopt_handler_begin",
            FIELD("nmethod", "_deopt_handler_entry_offset", Nmethod, deopt_offset));
  }

 private:
  const std::vector<Field> before_{std::begin(fields), std::end(fields)};
};

TEST_F(HotSpotReader, TellsTheSameOfJdk11) {
  const OfVersion version;
  OfVersion::make_jdk_11();
  pool.file_index = 0;
  expect_rows_names_and_lines(memory_);
  pool.file_index = 3;
}

TEST_F(HotSpotReader, TellsTheSameOfJdk8) {
  const OfVersion version;
  OfVersion::make_jdk_8();
  expect_rows_names_and_lines(memory_);
  major_version = 17;
}

TEST_F(HotSpotReader, TellsTheSameOfJdk26) {
  const OfVersion version;
  OfVersion::make_jdk_26();
  expect_rows_names_and_lines(memory_);
}

// A method of the class archive is entered by a jump there.
TEST_F(HotSpotReader, AJumpOfTheArchiveIsWhatItLeadsTo) {
  const auto structs = VmStructs::read(memory_, fake_image());
  const auto map = CodeMap::make(*structs);
  alignas(16) std::uint8_t jump[16] = {0x49, 0xba, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe2};
  const std::uint64_t target = code_at(), at = reinterpret_cast<std::uint64_t>(jump);
  std::memcpy(jump + 2, &target, sizeof target);
  EXPECT_FALSE(map->find_archived(memory_, at)) << "it leads to a compiled method";
  reinterpret_cast<Nmethod*>(code_memory + kBlockAt + sizeof(Block))->name = "I2C/C2I adapters";
  const auto blob = map->find_archived(memory_, at + 10);
  ASSERT_TRUE(blob.has_value());
  EXPECT_EQ(blob->kind, Blob::Kind::kAdapter);
  EXPECT_EQ(blob->begin, at);
  EXPECT_EQ(blob->end, at + 13);
  jump[12] = 0xe3;
  EXPECT_FALSE(map->find_archived(memory_, at)) << "another jump";
}

// A block is in the segment map before its code is complete, which its Method tells.
TEST_F(HotSpotReader, ANewMethodIsToldOnceItIsComplete) {
  const auto told = [](Runtime& runtime) {
    std::vector<std::uint64_t> begins;
    for (const auto& found : runtime.new_methods(10)) {
      begins.push_back(found.begin);
      EXPECT_EQ(found.guard, 7U);
    }
    return begins;
  };
  const std::vector<std::uint64_t> none, one{code_at()};
  const auto runtime = open(unowned(memory_), fake_image());
  outer.code = nullptr;
  EXPECT_EQ(told(*runtime), none);
  outer.code = code_memory + kBlockAt + sizeof(Block);
  EXPECT_TRUE(runtime->new_methods(0).empty());
  EXPECT_EQ(told(*runtime), one);
  EXPECT_EQ(told(*runtime), none) << "told before";
  segment_map[2 + 20] = 1;  // another block is there, as its length shows
  EXPECT_EQ(told(*runtime), one);
  reinterpret_cast<Block*>(code_memory + kBlockAt)->used = 0;
  segment_map[2 + 21] = 1;
  EXPECT_EQ(told(*runtime), none) << "freed";
  // What was replaced is never its Method's code again: it is looked at twice.
  make_method();
  const auto other = open(unowned(memory_), fake_image());
  outer.code = nullptr;
  EXPECT_EQ(told(*other), none);
  EXPECT_EQ(told(*other), none);
  outer.code = code_memory + kBlockAt + sizeof(Block);
  EXPECT_EQ(told(*other), none);
  outer.code = nullptr;
}

// C++ enters Java by the call stub and by upcalls' stubs, and may call helpers.
TEST_F(HotSpotReader, MethodsAreCalledByGeneratedCodeAlone) {
  static const std::uint8_t code[64] = {0xc3};
  const auto is_outermost = [&](Blob::Kind kind, const char* name) {
    Blob blob;
    blob.kind = kind;
    blob.name = name;
    blob.begin = reinterpret_cast<std::uint64_t>(code);
    blob.end = blob.begin + sizeof code;
    const auto read = Code::read(memory_, std::move(blob), false);
    return read && (*read)->may_be_outermost(reinterpret_cast<std::uint64_t>(code));
  };
  using Kind = Blob::Kind;
  EXPECT_TRUE(is_outermost(Kind::kOther, "StubRoutines (initial stubs)"));
  EXPECT_TRUE(is_outermost(Kind::kFramed, "upcall_stub_(J)V"));
  EXPECT_FALSE(is_outermost(Kind::kFramed, "Shared Runtime"));
  for (const Kind kind : {Kind::kMethod, Kind::kNative, Kind::kCodelet, Kind::kAdapter, Kind::kLinkers, Kind::kVirtual})
    EXPECT_FALSE(is_outermost(kind, ""));
}

TEST_F(HotSpotReader, SaysWhatIsMissing) {
  Field& field = fields[10];
  const Field before = field;
  field.name = "_renamed";
  const auto runtime = open(unowned(memory_), fake_image());
  ASSERT_TRUE(runtime->problem().has_value());
  EXPECT_EQ(runtime->problem()->code, ErrorCode::kUnsupported);
  EXPECT_FALSE(runtime->is_understood());
  field = before;
}

TEST_F(HotSpotReader, KnowsTheMethodsOfAProcessThatHasEnded) {
  class Dying final : public Memory {
   public:
    bool read(std::uint64_t address, void* to, std::size_t size) const override {
      return !dead && memory_.read(address, to, size);
    }
    bool dead = false;

   private:
    os::MemoryFile memory_{::getpid()};
  };
  Dying memory;
  const auto runtime = open(unowned(memory), fake_image());
  const auto method = runtime->method_at(code_at());
  ASSERT_TRUE(method.has_value());
  memory.dead = true;
  EXPECT_TRUE(runtime->is_still(**method));
  std::vector<sources::NamedFunction> names;
  runtime->functions_at(**method, code_at() + 5, names);
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[0].name, "org.example.Shape.inner");
}

TEST_F(HotSpotReader, EndsWhateverIsInMemory) {
  const test::FlippingMemory memory(::getpid(), 30);
  std::size_t found = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto runtime = open(unowned(memory), fake_image());
    const auto method = runtime->method_at(code_at() + static_cast<std::uint64_t>(round) % kCodeSize);
    if (!method) continue;
    ++found;
    FrameRow row;
    std::vector<sources::NamedFunction> names;
    (void)(*method)->row_at(code_at() + 5, row);
    runtime->functions_at(**method, code_at() + 5, names);
    EXPECT_LE(names.size(), DebugInfo::kMostScopes);
    (void)runtime->is_still(**method);
  }
  EXPECT_GT(found, 10U);
}

TEST(HotSpotCompressed, NumbersOfBothKinds) {
  const auto read = [](std::initializer_list<int> bytes, bool null_free) {
    std::vector<std::byte> all;
    for (const int byte : bytes) all.push_back(static_cast<std::byte>(byte));
    return Compressed(ByteView(all.data(), all.size()), null_free).next();
  };
  EXPECT_EQ(read({0}, false), 0U);
  EXPECT_EQ(read({191}, false), 191U);
  EXPECT_EQ(read({192, 0}, false), 192U);
  EXPECT_EQ(read({200, 3}, false), 200U + (3U << 6));
  EXPECT_EQ(read({1}, true), 0U);
  EXPECT_EQ(read({191}, true), 190U);
  EXPECT_EQ(read({192, 1}, true), 191U);
  EXPECT_EQ(read({0}, true), std::nullopt);
  EXPECT_EQ(read({255, 255, 255, 255, 255}, false), 255U + (255U << 6) + (255U << 12) + (255U << 18) + (255U << 24));
  EXPECT_EQ(read({255}, false), std::nullopt);
}

}  // namespace
}  // namespace windlass::runtimes::hotspot
