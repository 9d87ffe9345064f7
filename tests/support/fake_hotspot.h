// A small Java virtual machine's structures in this process, with the tables that libjvm.so exports: one compiled
// method with another inlined. Its program is linked with -rdynamic. Included once in it.
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace windlass::test::fake_hotspot {

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
  int scopes_offset, deopt_offset;  // JDK 8's
};
struct Symbol {
  std::uint16_t length;
  char body[30];
};
struct Klass {
  Symbol* name;
  std::uint16_t file_index;  // JDK 8's and 11's
};
struct Pool {
  Klass* holder;
  std::uint16_t file_index;
  Symbol* entries[5];  // behind the header
};
inline constexpr std::size_t kPoolHeader = offsetof(Pool, entries);
struct ConstMethod {
  Pool* constants;
  std::uint16_t name_index, code_size, flags;
  std::uint8_t code[8];  // behind the header
  std::uint8_t lines[8];
};
inline constexpr std::size_t kConstHeader = offsetof(ConstMethod, code);
struct Method {
  ConstMethod* constant;
  void* code;
};
struct Queue {
  std::uint8_t* buffer;
  int begin, end;
};
struct Codelet {
  const char* description;
  int size;
};

inline constexpr int kSegment = 64, kSegments = 32;
alignas(64) inline std::uint8_t code_memory[kSegment * kSegments];
inline std::uint8_t segment_map[kSegments];
inline Heap heap = {
    {code_memory, code_memory + sizeof code_memory}, {segment_map, segment_map + sizeof segment_map}, 6};
inline Heap* heap_list[] = {&heap};
inline Array heap_array = {1, heap_list};
inline Array* heaps = &heap_array;
inline Heap* one_heap = &heap;  // JDK 8's
inline Queue queue = {nullptr, 0, 0};
inline Queue* interpreter = &queue;
inline void* call_stub_return = nullptr;
inline int major_version = 17;

inline Symbol symbol(const char* text) {
  Symbol made{static_cast<std::uint16_t>(std::strlen(text)), {}};
  std::memcpy(made.body, text, made.length);
  return made;
}
inline Symbol class_name = symbol("org/example/Shape"), outer_name = symbol("outer"), inner_name = symbol("inner"),
              file_name = symbol("Shape.java");
inline Klass klass = {&class_name, 3};
inline Pool pool = {&klass, 3, {nullptr, &outer_name, &inner_name, &file_name, nullptr}};
// Lines: bci 0 is of 100 (two numbers, by zigzag), bci 2 of 101, bci 4 of 105.
inline ConstMethod outer_const = {&pool, 1, 8, 1, {}, {0xff, 0, 200, 0, 0x11, 0x14, 0, 0}};
inline ConstMethod inner_const = {&pool, 2, 8, 0, {}, {}};
inline Method outer = {&outer_const, nullptr}, inner = {&inner_const, nullptr};

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
inline Field fields[] = {
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
    FIELD("Method", "_code", Method, code),
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
inline Type types[] = {
    {"HeapBlock", "", 0, 0, 0, sizeof(Block)},
    {"ConstMethod", "", 0, 0, 0, kConstHeader},
    {"ConstantPool", "", 0, 0, 0, kPoolHeader},
    {"InterpreterCodelet", "", 0, 0, 0, sizeof(Codelet)},
    {},
};

}  // namespace windlass::test::fake_hotspot

#define WINDLASS_EXPORTED __attribute__((visibility("default"), used))
extern "C" {
WINDLASS_EXPORTED windlass::test::fake_hotspot::Field* gHotSpotVMStructs = windlass::test::fake_hotspot::fields;
WINDLASS_EXPORTED windlass::test::fake_hotspot::Type* gHotSpotVMTypes = windlass::test::fake_hotspot::types;
WINDLASS_EXPORTED std::uint64_t gHotSpotVMStructEntryArrayStride = sizeof(windlass::test::fake_hotspot::Field);
WINDLASS_EXPORTED std::uint64_t gHotSpotVMStructEntryTypeNameOffset =
    offsetof(windlass::test::fake_hotspot::Field, type);
WINDLASS_EXPORTED std::uint64_t gHotSpotVMStructEntryFieldNameOffset =
    offsetof(windlass::test::fake_hotspot::Field, name);
WINDLASS_EXPORTED std::uint64_t gHotSpotVMStructEntryIsStaticOffset =
    offsetof(windlass::test::fake_hotspot::Field, is_static);
WINDLASS_EXPORTED std::uint64_t gHotSpotVMStructEntryOffsetOffset =
    offsetof(windlass::test::fake_hotspot::Field, offset);
WINDLASS_EXPORTED std::uint64_t gHotSpotVMStructEntryAddressOffset =
    offsetof(windlass::test::fake_hotspot::Field, address);
WINDLASS_EXPORTED std::uint64_t gHotSpotVMTypeEntryArrayStride = sizeof(windlass::test::fake_hotspot::Type);
WINDLASS_EXPORTED std::uint64_t gHotSpotVMTypeEntryTypeNameOffset = offsetof(windlass::test::fake_hotspot::Type, name);
WINDLASS_EXPORTED std::uint64_t gHotSpotVMTypeEntrySizeOffset = offsetof(windlass::test::fake_hotspot::Type, size);
}

namespace windlass::test::fake_hotspot {

// This program's first byte.
inline std::uint64_t fake_image() {
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
inline constexpr std::size_t kBlockAt = 2 * kSegment, kCodeAt = 256, kCodeSize = 64;
inline std::uint64_t code_at() {
  return reinterpret_cast<std::uint64_t>(code_memory) + kBlockAt + sizeof(Block) + kCodeAt;
}

inline void make_method() {
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
  Nmethod made = {"nmethod",
                  1024,
                  kCodeAt + kCodeSize,
                  6,
                  7,
                  at + kCodeAt,
                  &outer,
                  -1,
                  kCodeAt + 32,
                  at + kCodeAt,
                  at + kCodeAt,
                  nullptr,
                  nullptr,
                  at + 448,
                  512,
                  512 + sizeof places,
                  432,
                  448,
                  -1};
  std::memcpy(at, &made, sizeof made);
}

}  // namespace windlass::test::fake_hotspot
