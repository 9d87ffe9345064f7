// A small CoreCLR's structures in a block of memory: two methods, the second of which has a handler, a stub, and a
// thread with two explicit frames.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/walk.h"

namespace windlass::test {

class BlockMemory final : public Memory {
 public:
  BlockMemory(std::uint64_t base, std::vector<std::byte> bytes) : base_(base), bytes_(std::move(bytes)) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    const std::uint64_t at = address - base_;
    if (at > bytes_.size() || size > bytes_.size() - at) return false;
    if (size != 0) std::memcpy(to, bytes_.data() + at, size);
    return true;
  }
  std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] std::uint64_t base() const { return base_; }

 private:
  std::uint64_t base_;
  std::vector<std::byte> bytes_;
};

class FakeCoreClr {
 public:
  static constexpr std::uint64_t kBase = 0x7f12'3456'0000;
  struct Options {
    int execution_manager = 2, thread = 1, runtime_types = 1, version = 0;
  };

  FakeCoreClr() : FakeCoreClr(Options()) {}
  explicit FakeCoreClr(const Options& options) {
    descriptor = take(40);
    make_code();
    make_metadata();
    make_methods();
    make_threads();
    make_descriptor(options);
    dac_table = take(8), runtime_info = take(112);
    put(dac_table, root_), put(runtime_info + kVersionInInfo, std::uint32_t{9});
    version_text = take(64);
    put_bytes(version_text, kVersionText.data(), kVersionText.size());
  }
  [[nodiscard]] BlockMemory memory() const { return {kBase, bytes_}; }

  static constexpr std::uint64_t kVersionInInfo = 96;
  static constexpr std::string_view kVersionText = "@(#)Version 8.0.3426.52217 @Commit: b455eab3";
  std::uint64_t descriptor = 0, dac_table = 0, runtime_info = 0, version_text = 0;
  std::uint64_t first = 0, second = 0, handler = 0, stub = 0;  // where they begin
  std::uint64_t outer_frame = 0, inner_frame = 0;

 private:
  // sub rsp,8; nop...; add rsp,8; ret
  static constexpr std::uint8_t kFirst[] = {0x48, 0x83, 0xec, 0x08, 0x90, 0x90, 0x48, 0x83, 0xc4, 0x08, 0xc3};
  // push rbx; nop x 400; pop rbx; ret: longer than a unit of the map. The handler: push rbx; nop; pop rbx; ret
  static constexpr std::size_t kNops = 700;
  static constexpr std::uint8_t kStub[] = {0x52, 0x90, 0x5a, 0xff, 0xe0};  // push rdx; nop; pop rdx; jmp rax

  std::uint64_t take(std::size_t size, std::size_t align = 8) {
    bytes_.resize((bytes_.size() + align - 1) / align * align);
    const std::uint64_t at = kBase + bytes_.size();
    bytes_.resize(bytes_.size() + size);
    return at;
  }
  template <typename T>
  void put(std::uint64_t at, T value) {
    std::memcpy(bytes_.data() + (at - kBase), &value, sizeof value);
  }
  void put_bytes(std::uint64_t at, const void* from, std::size_t size) {
    std::memcpy(bytes_.data() + (at - kBase), from, size);
  }
  void nibble(std::uint64_t start) {
    const std::uint64_t offset = start - heap_, bucket = offset / 32;
    const std::uint64_t at = map_ + bucket / 8 * 4;
    std::uint32_t unit;
    std::memcpy(&unit, bytes_.data() + (at - kBase), sizeof unit);
    put(at, static_cast<std::uint32_t>(unit | (offset % 32 / 4 + 1) << (28 - bucket % 8 * 4)));
  }
  // As the runtime does for every unit that a method covers.
  void cover(std::uint64_t start, std::uint64_t end) {
    const std::uint64_t offset = start - heap_;
    for (std::uint64_t unit = offset / 256 + 1; (unit + 1) * 256 <= end - heap_; ++unit)
      put(map_ + unit * 4, static_cast<std::uint32_t>((offset & ~15ULL) | (9 + offset % 16 / 4)));
  }
  std::uint64_t info(std::initializer_list<std::uint8_t> bytes) {
    const std::uint64_t at = take(bytes.size(), 4);
    put_bytes(at, std::data(bytes), bytes.size());
    return at;
  }

  void make_code() {
    heap_ = take(4096, 4096);
    map_ = take(4096 / 32 / 2, 4);
    first = heap_ + 64;
    put_bytes(first, kFirst, sizeof kFirst);
    second = heap_ + 128;
    put<std::uint8_t>(second, 0x53);
    for (std::size_t i = 0; i < kNops; ++i) put<std::uint8_t>(second + 1 + i, 0x90);
    put<std::uint16_t>(second + 1 + kNops, 0xc35b);
    handler = second + kNops + 3;
    put<std::uint32_t>(handler, 0xc35b9053);
    stub = heap_ + 2048;
    put_bytes(stub, kStub, sizeof kStub);
    for (const std::uint64_t start : {first, second, stub}) nibble(start);
    cover(second, handler + 4);
  }

  void header(std::uint64_t start, std::uint64_t method,
              std::initializer_list<std::array<std::uint64_t, 3>> functions) {
    const std::uint64_t at = take(40 + functions.size() * 12);
    put(start - 8, at);
    put(at + 24, method);
    put(at + 32, static_cast<std::uint32_t>(functions.size()));
    std::uint64_t to = at + 36;
    for (const auto& function : functions)
      for (const std::uint64_t address : function) put(to, static_cast<std::uint32_t>(address - heap_)), to += 4;
  }

  void make_methods() {
    const std::uint64_t small = info({0x01, 4, 1, 0, 4, 0x02, 0, 0});  // ALLOC_SMALL 8 at 4
    const std::uint64_t push = info({0x01, 1, 1, 0, 1, 0x30, 0, 0});   // PUSH_NONVOL rbx at 1
    const std::uint64_t chunk = take(24 + 32);
    const std::uint64_t table = take(64);
    put(chunk, table);
    put(table + 24, module_);
    put(table + 8, std::uint32_t{2} << 8);  // TypeDef 2
    const std::uint64_t one = chunk + 24, two = chunk + 24 + 16;
    put<std::uint16_t>(one, 1), put<std::uint8_t>(one + 2, 0);
    put<std::uint16_t>(two, 2), put<std::uint8_t>(two + 2, 2);
    header(first, one, {{first, first + sizeof kFirst, small}});
    header(second, two, {{second, handler, push}, {handler, handler + 4, push}});
    put<std::uint64_t>(stub - 8, 3);
    // The map of sections.
    const std::uint64_t heap_node = take(48);
    put(heap_node + 16, heap_), put(heap_node + 24, heap_ + 4096), put(heap_node + 32, heap_),
        put(heap_node + 40, map_);
    const std::uint64_t section = take(48), fragment = take(32);
    put(section, heap_), put(section + 8, heap_ + 4096), put(section + 16, std::uint32_t{2});
    put(section + 40, heap_node);
    put(fragment + 8, heap_), put(fragment + 16, heap_ + 4096), put(fragment + 24, section);
    root_ = take(2048);
    std::uint64_t level = root_;
    for (unsigned shift = 49; shift >= 17; shift -= 8) {
      const std::uint64_t next = shift == 17 ? fragment : take(2048);
      put(level + (heap_ >> shift & 255) * 8, next);
      level = next;
    }
  }

  // ECMA-335: a PE image, flat, of one section that holds metadata of two types and two methods.
  void make_metadata() {
    std::string strings("\0<Module>\0Space\0Type\0One\0Two\0", 30), blobs("\0", 1);
    const auto at = [&](std::string_view name) { return static_cast<std::uint16_t>(strings.find(name)); };
    const auto blob = static_cast<std::uint16_t>(blobs.size());
    blobs += std::string("\5\0\2\1\x8\xe", 6);  // void (Int32, String)
    std::string tables;
    const auto add = [&](auto value) { tables.append(reinterpret_cast<const char*>(&value), sizeof value); };
    add(std::uint32_t{0}), add(std::uint16_t{2}), add(std::uint16_t{0x0100});
    add(std::uint64_t{1 << 2 | 1 << 6}), add(std::uint64_t{0}), add(std::uint32_t{2}), add(std::uint32_t{2});
    const auto type = [&](std::uint16_t name, std::uint16_t space) {
      add(std::uint32_t{0}), add(name), add(space);
      for (int i = 0; i < 3; ++i) add(std::uint16_t{1});
    };
    type(at("<Module>"), 0), type(at("Type"), at("Space"));
    for (const char* name : {"One", "Two"}) {
      add(std::uint32_t{0}), add(std::uint16_t{0}), add(std::uint16_t{0});
      add(at(name)), add(blob), add(std::uint16_t{1});
    }
    std::string root;
    const auto word = [&](auto value) { root.append(reinterpret_cast<const char*>(&value), sizeof value); };
    word(std::uint32_t{0x424a5342}), word(std::uint32_t{0x10001}), word(std::uint32_t{0}), word(std::uint32_t{4});
    root.append("v4\0\0", 4), word(std::uint16_t{0}), word(std::uint16_t{3});
    constexpr std::uint32_t kStreams = 24 + 12 + 20 + 16;
    const auto stream = [&](std::size_t offset, const std::string& bytes, std::string_view name) {
      word(static_cast<std::uint32_t>(offset)), word(static_cast<std::uint32_t>(bytes.size())), root += name;
    };
    stream(kStreams, tables, std::string_view("#~\0\0", 4));
    stream(kStreams + tables.size(), strings, std::string_view("#Strings\0\0\0\0", 12));
    stream(kStreams + tables.size() + strings.size(), blobs, std::string_view("#Blob\0\0\0", 8));
    root += tables + strings + blobs;
    constexpr std::uint32_t kRva = 0x2000, kRaw = 0x200, kPe = 0x80;
    const std::uint64_t image = take(kRaw + 72 + root.size());
    put<std::uint16_t>(image, 0x5a4d), put<std::uint32_t>(image + 0x3c, kPe);
    const std::uint64_t pe = image + kPe;
    put<std::uint32_t>(pe, 0x4550), put<std::uint16_t>(pe + 6, 1), put<std::uint16_t>(pe + 20, 0xf0);
    put<std::uint16_t>(pe + 24, 0x20b), put<std::uint32_t>(pe + 24 + 112 + 14 * 8, kRva);
    const std::uint64_t section = pe + 24 + 0xf0;
    put<std::uint32_t>(section + 12, kRva), put<std::uint32_t>(section + 16, 72 + root.size());
    put<std::uint32_t>(section + 20, kRaw);
    put<std::uint32_t>(image + kRaw + 8, kRva + 72);
    put_bytes(image + kRaw + 72, root.data(), root.size());
    const std::uint64_t layout = take(24), pe_image = take(128), assembly = take(16);
    put(layout + 8, image), put(pe_image + 8, layout), put(assembly + 8, pe_image);
    module_ = take(296);
    put(module_ + 8, assembly), put(module_ + 288, image);
    put(module_ + 272, assembly), put(pe_image + 120, layout);  // .NET 8
  }

  void make_threads() {
    store_ = take(8);
    const std::uint64_t store = take(16), thread = take(32);
    put(store_, store);
    put(store + 8, thread + 16);  // the link
    put(thread, std::uint64_t{1234});
    const std::uint64_t stack = take(128);
    inner_frame = stack, outer_frame = stack + 64;
    put(thread + 8, inner_frame);
    put(inner_frame, std::uint64_t{1}), put(inner_frame + 8, outer_frame);
    put(inner_frame + 24, stack + 100), put(inner_frame + 32, first + 5), put(inner_frame + 40, stack + 120);
    put(outer_frame, std::uint64_t{9}), put(outer_frame + 8, ~std::uint64_t{0});
  }

  void make_descriptor(const Options& options) {
    const auto number = [](int value) { return std::to_string(value); };
    const std::string json = R"({"version":)" + number(options.version) + R"(,"baseline":"empty","types":{
"RangeSectionMap":{"TopLevelData":0},"RangeSectionFragment":{"RangeBegin":8,"RangeEndOpen":16,"RangeSection":24,"Next":0},
"RangeSection":{"RangeBegin":0,"RangeEndOpen":8,"Flags":16,"HeapList":40,"R2RModule":[32,"pointer"]},
"CodeHeapListNode":{"Next":0,"StartAddress":16,"EndAddress":24,"MapBase":32,"HeaderMap":40},
"RealCodeHeader":{"GCInfo":16,"MethodDesc":24,"NumUnwindInfos":32,"UnwindInfos":36},
"RuntimeFunction":{"!":12,"BeginAddress":0,"EndAddress":4,"UnwindData":8},
"MethodDesc":{"!":16,"Flags3AndTokenRemainder":0,"ChunkIndex":2,"Flags":6},"DynamicMethodDesc":{"MethodName":8},
"MethodDescChunk":{"!":24,"MethodTable":0,"FlagsAndTokenRange":18},"MethodTable":{"MTFlags2":8,"Module":24},
"Module":{"PEAssembly":8},"PEAssembly":{"PEImage":8},"PEImage":{"LoadedImageLayout":8},
"PEImageLayout":{"Base":8,"Flags":20},"ThreadStore":{"FirstThreadLink":8},
"Thread":{"OSId":0,"Frame":8,"LinkNext":[16,"pointer"]},"Frame":{"Next":8},
"InlinedCallFrame":{"!":56,"CallSiteSP":24,"CallerReturnAddress":32,"CalleeSavedFP":40}},
"globals":{"ExecutionManagerCodeRangeMapAddress":[[1],"pointer"],"ThreadStore":[[2],"pointer"],
"StubCodeBlockLast":["0xf","uint8"],"MethodDescAlignment":["0x8","uint64"],"MethodDescTokenRemainderBitCount":["12","uint8"],
"InlinedCallFrameIdentifier":["0x1","nuint"],"PrestubMethodFrameIdentifier":9,"Architecture":["x64","string"]},
"contracts":{"ExecutionManager":)" +
                             number(options.execution_manager) +
                             R"(,"EcmaMetadata":1,"Loader":1,"StackWalk":1,"Thread":)" + number(options.thread) +
                             R"(,"RuntimeTypeSystem":)" + number(options.runtime_types) + "}}";
    const std::uint64_t text = take(json.size()), pointers = take(24);
    put_bytes(text, json.data(), json.size());
    put(pointers + 8, root_), put(pointers + 16, store_);
    put(descriptor, std::uint64_t{0x0043414443434e44});
    put(descriptor + 8, std::uint32_t{1}), put(descriptor + 12, static_cast<std::uint32_t>(json.size()));
    put(descriptor + 16, text), put(descriptor + 24, std::uint32_t{3}), put(descriptor + 32, pointers);
  }

  std::vector<std::byte> bytes_;
  std::uint64_t heap_ = 0, map_ = 0, root_ = 0, module_ = 0, store_ = 0;
};

}  // namespace windlass::test
