// What is read of a HotSpot, on one made up in this process, which exports the tables that libjvm.so does; and that
// nothing in its memory makes the reader run on or fall over.
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "process/process_memory.h"
#include "runtimes/find.h"
#include "runtimes/hotspot/debug_info.h"
#include "runtimes/hotspot/find.h"
#include "runtimes/hotspot/names.h"
#include "runtimes/hotspot/rows.h"
#include "runtimes/hotspot/vm_structs.h"

// ---- a virtual machine
// ------------------------------------------------------------------------------------------------

namespace {

struct Space {
  std::uint8_t* low;
  std::uint8_t* high;
};
struct Heap {
  Space memory, map;
  int log2_segment;
};
struct Array {
  int length;
  Heap** data;
};
struct Block {
  std::uint64_t length;
  std::uint8_t used;
};
struct Nmethod {  // a CodeBlob first of all
  const char* name;
  int size, data_offset, frame_size, compile_id;
  std::uint8_t* code_begin;
  void* method;
  int exception_offset, stub_offset;
  std::uint8_t *entry, *verified_entry, *osr_entry, *deopt_handler, *scopes;
  int scopes_pcs, scopes_pcs_end, metadata;
};
struct Symbol {
  std::uint16_t length;
  char body[30];
};
struct Klass {
  Symbol* name;
};
struct Pool {
  Klass* holder;
  std::uint16_t file_index;
  Symbol* entries[5];  // behind the header
};
constexpr std::size_t kPoolHeader = offsetof(Pool, entries);
struct ConstMethod {
  Pool* constants;
  std::uint16_t name_index, code_size, flags;
  std::uint8_t code[8];  // behind the header
  std::uint8_t lines[8];
};
constexpr std::size_t kConstHeader = offsetof(ConstMethod, code);
struct Method {
  ConstMethod* constant;
};
struct Queue {
  std::uint8_t* buffer;
  int begin, end;
};
struct Codelet {
  const char* description;
  int size;
};

constexpr int kSegment = 64, kSegments = 32;
alignas(64) std::uint8_t code_memory[kSegment * kSegments];
std::uint8_t segment_map[kSegments];
Heap heap = {{code_memory, code_memory + sizeof code_memory}, {segment_map, segment_map + sizeof segment_map}, 6};
Heap* heap_list[] = {&heap};
Array heap_array = {1, heap_list};
Array* heaps = &heap_array;
Queue queue = {nullptr, 0, 0};
Queue* interpreter = &queue;
void* call_stub_return = nullptr;
int major_version = 17;

Symbol symbol(const char* text) {
  Symbol made{static_cast<std::uint16_t>(std::strlen(text)), {}};
  std::memcpy(made.body, text, made.length);
  return made;
}
Symbol class_name = symbol("org/example/Shape"), outer_name = symbol("outer"), inner_name = symbol("inner"),
       file_name = symbol("Shape.java");
Klass klass = {&class_name};
Pool pool = {&klass, 3, {nullptr, &outer_name, &inner_name, &file_name, nullptr}};
// Lines: bci 0 is of 100 (two numbers, by zigzag), bci 2 of 101, bci 4 of 105.
ConstMethod outer_const = {&pool, 1, 8, 1, {}, {0xff, 0, 200, 0, 0x11, 0x14, 0, 0}};
ConstMethod inner_const = {&pool, 2, 8, 0, {}, {}};
Method outer = {&outer_const}, inner = {&inner_const};

struct Field {
  const char *type, *name, *kind;
  int is_static;
  std::uint64_t offset;
  void* address;
};
struct Type {
  const char *name, *super;
  int oop, integer, is_unsigned;
  std::uint64_t size;
};
#define FIELD(type, field, of, member) \
  { type, field, "", 0, offsetof(of, member), nullptr }
#define ROOT(type, field, at) \
  { type, field, "", 1, 0, &at }
Field fields[] = {
    ROOT("CodeCache", "_heaps", heaps),
    ROOT("AbstractInterpreter", "_code", interpreter),
    ROOT("StubRoutines", "_call_stub_return_address", call_stub_return),
    ROOT("Abstract_VM_Version", "_vm_major_version", major_version),
    FIELD("GrowableArrayBase", "_len", Array, length),
    FIELD("GrowableArray<int>", "_data", Array, data),
    FIELD("CodeHeap", "_memory", Heap, memory),
    FIELD("CodeHeap", "_segmap", Heap, map),
    FIELD("CodeHeap", "_log2_segment_size", Heap, log2_segment),
    FIELD("VirtualSpace", "_low", Space, low),
    FIELD("VirtualSpace", "_high", Space, high),
    FIELD("HeapBlock::Header", "_used", Block, used),
    FIELD("CodeBlob", "_name", Nmethod, name),
    FIELD("CodeBlob", "_size", Nmethod, size),
    FIELD("CodeBlob", "_data_offset", Nmethod, data_offset),
    FIELD("CodeBlob", "_frame_size", Nmethod, frame_size),
    FIELD("CodeBlob", "_code_begin", Nmethod, code_begin),
    FIELD("CompiledMethod", "_method", Nmethod, method),
    FIELD("CompiledMethod", "_deopt_handler_begin", Nmethod, deopt_handler),
    FIELD("CompiledMethod", "_scopes_data_begin", Nmethod, scopes),
    FIELD("nmethod", "_compile_id", Nmethod, compile_id),
    FIELD("nmethod", "_exception_offset", Nmethod, exception_offset),
    FIELD("nmethod", "_stub_offset", Nmethod, stub_offset),
    FIELD("nmethod", "_entry_point", Nmethod, entry),
    FIELD("nmethod", "_verified_entry_point", Nmethod, verified_entry),
    FIELD("nmethod", "_osr_entry_point", Nmethod, osr_entry),
    FIELD("nmethod", "_scopes_pcs_offset", Nmethod, scopes_pcs),
    FIELD("nmethod", "_dependencies_offset", Nmethod, scopes_pcs_end),
    FIELD("nmethod", "_metadata_offset", Nmethod, metadata),
    FIELD("StubQueue", "_stub_buffer", Queue, buffer),
    FIELD("StubQueue", "_queue_begin", Queue, begin),
    FIELD("StubQueue", "_queue_end", Queue, end),
    FIELD("InterpreterCodelet", "_size", Codelet, size),
    FIELD("InterpreterCodelet", "_description", Codelet, description),
    FIELD("Method", "_constMethod", Method, constant),
    FIELD("ConstMethod", "_constants", ConstMethod, constants),
    FIELD("ConstMethod", "_name_index", ConstMethod, name_index),
    FIELD("ConstMethod", "_code_size", ConstMethod, code_size),
    FIELD("ConstMethod", "_flags", ConstMethod, flags),
    FIELD("ConstantPool", "_pool_holder", Pool, holder),
    FIELD("ConstantPool", "_source_file_name_index", Pool, file_index),
    FIELD("Klass", "_name", Klass, name),
    FIELD("Symbol", "_length", Symbol, length),
    FIELD("Symbol", "_body", Symbol, body),
    {},
};
Type types[] = {
    {"HeapBlock", "", 0, 0, 0, sizeof(Block)},
    {"ConstMethod", "", 0, 0, 0, kConstHeader},
    {"ConstantPool", "", 0, 0, 0, kPoolHeader},
    {"InterpreterCodelet", "", 0, 0, 0, sizeof(Codelet)},
    {},
};

}  // namespace

#define EXPORTED __attribute__((visibility("default"), used))
extern "C" {
EXPORTED Field* gHotSpotVMStructs = fields;
EXPORTED Type* gHotSpotVMTypes = types;
EXPORTED std::uint64_t gHotSpotVMStructEntryArrayStride = sizeof(Field);
EXPORTED std::uint64_t gHotSpotVMStructEntryTypeNameOffset = offsetof(Field, type);
EXPORTED std::uint64_t gHotSpotVMStructEntryFieldNameOffset = offsetof(Field, name);
EXPORTED std::uint64_t gHotSpotVMStructEntryIsStaticOffset = offsetof(Field, is_static);
EXPORTED std::uint64_t gHotSpotVMStructEntryOffsetOffset = offsetof(Field, offset);
EXPORTED std::uint64_t gHotSpotVMStructEntryAddressOffset = offsetof(Field, address);
EXPORTED std::uint64_t gHotSpotVMTypeEntryArrayStride = sizeof(Type);
EXPORTED std::uint64_t gHotSpotVMTypeEntryTypeNameOffset = offsetof(Type, name);
EXPORTED std::uint64_t gHotSpotVMTypeEntrySizeOffset = offsetof(Type, size);
}

namespace windlass::runtimes::hotspot {
namespace {

// This program's first byte.
std::uint64_t image() {
  std::uint64_t base = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_offset == 0)
            *static_cast<std::uint64_t*>(to) = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        return 1;  // the program comes first
      },
      &base);
  return base;
}

// A method of 20 segments from segment 2 on, in which `inner` is inlined up to offset 16.
constexpr std::size_t kBlockAt = 2 * kSegment, kCodeAt = 256, kCodeSize = 64;
std::uint64_t code_at() { return reinterpret_cast<std::uint64_t>(code_memory) + kBlockAt + sizeof(Block) + kCodeAt; }

void make_method() {
  std::memset(segment_map, 0xff, sizeof segment_map);
  for (int i = 0; i < 20; ++i) segment_map[2 + i] = static_cast<std::uint8_t>(i < 4 ? i : 3);
  segment_map[2 + 4] = 1;
  for (int i = 5; i < 20; ++i) segment_map[2 + i] = 1;
  *reinterpret_cast<Block*>(code_memory + kBlockAt) = {20, 1};
  std::uint8_t* const at = code_memory + kBlockAt + sizeof(Block);
  const std::uint8_t code[] = {0x55, 0x48, 0x83, 0xec, 0x20, 0x90, 0x90, 0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3};
  std::memset(at + kCodeAt, 0x90, kCodeSize);
  std::memcpy(at + kCodeAt, code, sizeof code);
  const std::int32_t places[][4] = {{-1, 0, 0, 0}, {6, 1, 0, 0}, {12, 5, 0, 0}, {1 << 20, 0, 0, 0}};
  std::memcpy(at + 512, places, sizeof places);
  const std::uint8_t scopes[] = {0, 5, 2, 1, 0,
                                 0, 1, 5, 0, 0};  // 1: in 5, the second method, bci 0; 5: the first, bci 4
  std::memcpy(at + 448, scopes, sizeof scopes);
  void* const metadata[] = {&outer, &inner};
  std::memcpy(at + 432, metadata, sizeof metadata);
  Nmethod made = {
      "nmethod",    1024,         kCodeAt + kCodeSize, 6,       7,       at + kCodeAt, &outer, -1,
      kCodeAt + 32, at + kCodeAt, at + kCodeAt,        nullptr, nullptr, at + 448,     512,    512 + sizeof places,
      432};
  std::memcpy(at, &made, sizeof made);
}

class HotSpotReader : public ::testing::Test {
 protected:
  void SetUp() override { make_method(); }
  const process::MemoryFile memory_{::getpid()};
};

TEST_F(HotSpotReader, FindsAMethodByItsSegments) {
  const auto structs = VmStructs::read(memory_, image());
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

TEST_F(HotSpotReader, TellsRowsNamesAndLines) {
  const auto runtime = open(unowned(memory_), image());
  ASSERT_FALSE(runtime->problem().has_value());
  const auto method = runtime->method_at(code_at() + 6);
  ASSERT_TRUE(method.has_value()) << method.error().text();
  EXPECT_EQ((*method)->name, "org.example.Shape.outer");
  FrameRow row;
  ASSERT_TRUE((*method)->row_at(code_at() + 5, row).has_value());
  EXPECT_EQ(row.cfa, CfaRule::at(7, 48));
  EXPECT_EQ(row.begin, code_at() + 5);
  EXPECT_EQ(row.end, code_at() + 11);
  std::vector<source::NamedFunction> names;
  runtime->functions_at(**method, code_at() + 5, names);
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[0].name, "org.example.Shape.inner");
  EXPECT_EQ(names[1].name, "org.example.Shape.outer");
  EXPECT_EQ(names[1].file, "Shape.java");
  EXPECT_EQ(names[1].line, 105U);
  names.clear();
  runtime->functions_at(**method, code_at() + 10, names);
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(names[0].line, 105U);
}

TEST_F(HotSpotReader, SaysWhatIsMissing) {
  Field& field = fields[10];
  const Field before = field;
  field.name = "_renamed";
  const auto runtime = open(unowned(memory_), image());
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
    process::MemoryFile memory_{::getpid()};
  };
  Dying memory;
  const auto runtime = open(unowned(memory), image());
  const auto method = runtime->method_at(code_at());
  ASSERT_TRUE(method.has_value());
  memory.dead = true;
  EXPECT_TRUE(runtime->is_still(**method));
  std::vector<source::NamedFunction> names;
  runtime->functions_at(**method, code_at() + 5, names);
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[0].name, "org.example.Shape.inner");
}

TEST_F(HotSpotReader, EndsWhateverIsInMemory) {
  class Flipping final : public Memory {
   public:
    bool read(std::uint64_t address, void* to, std::size_t size) const override {
      if (!memory_.read(address, to, size)) return false;
      if (size != 0 && random_() % 30 == 0)
        static_cast<std::uint8_t*>(to)[random_() % size] ^= static_cast<std::uint8_t>(random_());
      return true;
    }

   private:
    process::MemoryFile memory_{::getpid()};
    mutable std::mt19937 random_{5};
  };
  const Flipping memory;
  std::size_t found = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto runtime = open(unowned(memory), image());
    const auto method = runtime->method_at(code_at() + static_cast<std::uint64_t>(round) % kCodeSize);
    if (!method) continue;
    ++found;
    FrameRow row;
    std::vector<source::NamedFunction> names;
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
