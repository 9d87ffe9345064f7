// The memory of a made-up Windows process: an ntdll.dll with a list of function tables, and room for these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/image/pe_format.h"
#include "support/made_up_memory.h"
#include "support/pe_file.h"

namespace windlass::test {

class FakeNtdll {
 public:
  static constexpr std::uint64_t kBase = 0x1'8000'0000;
  static constexpr std::uint32_t kText = 0x1000, kData = 0x2000, kExports = 0x3000, kSize = 0x4000;
  static constexpr std::uint64_t kSection = kBase + kData + 0x20;  // a critical section, which is not the list
  static constexpr std::uint64_t kHead = kBase + kData + 0x50;
  static constexpr std::uint64_t kRoom = kBase + 0x10000, kEnd = kBase + 0x40000;

  bool of_wine = true;
  std::string name = "ntdll.dll";
  image::PeMachine machine = image::PeMachine::kAmd64;
  bool data_is_writable = true;

  [[nodiscard]] MadeUpMemory memory() const {
    MadeUpMemory made(kBase, kEnd - kBase);
    PeFile file;
    file.machine = machine;
    file.headers_size = 0x1000;
    file.image_size = kSize;
    const std::vector<std::uint8_t> exports = export_directory();
    file.set_directory(image::PeDirectory::kExport, kExports, static_cast<std::uint32_t>(exports.size()));
    file.sections = {{".text", kText, code(), true},
                     {".data", kData, std::vector<std::uint8_t>(0x100), false, data_is_writable},
                     {".edata", kExports, exports}};
    const std::vector<std::uint8_t> bytes = file.build(PeFile::kMapped);
    std::copy(bytes.begin(), bytes.end(), made.bytes.begin());
    put_link(made, kHead, kHead, kHead);
    // Its first word leads to something whose second word leads back, as a critical section's does.
    put_link(made, kSection, kBase + kData + 0x80, kBase + kData + 0xa0);
    made.put<std::uint64_t>(kBase + kData + 0x88, kSection);
    return made;
  }
  static void put_link(MadeUpMemory& memory, std::uint64_t at, std::uint64_t next, std::uint64_t previous) {
    memory.put(at, next);
    memory.put(at + 8, previous);
  }
  // At the end of the list, with an entry of the system's layout behind the link.
  void append(MadeUpMemory& memory, std::uint64_t at, const std::vector<std::uint64_t>& words) const {
    std::uint64_t last = 0;
    memory.read(kHead + 8, &last, sizeof last);
    put_link(memory, at, kHead, last);
    memory.put(last, at);
    memory.put(kHead + 8, at);
    for (std::size_t i = 0; i < words.size(); ++i) memory.put(at + 16 + 8 * i, words[i]);
  }
  // A table of `count` entries at `functions` for [begin, end), whose base is `begin`. `callback`: not 0 for one.
  void append_table(MadeUpMemory& memory, std::uint64_t at, std::uint64_t begin, std::uint64_t end,
                    std::uint64_t functions, std::uint32_t count, std::uint64_t callback = 0, std::uint64_t library = 0,
                    std::uint32_t type = 0) const {
    const std::uint64_t kind = callback != 0 ? 2 : type;
    if (of_wine)
      append(memory, at, {begin, end, functions, count, callback, 0});
    else
      append(memory, at, {functions, 0, begin, end, begin, callback, 0, library, kind | std::uint64_t{count} << 32});
  }

 private:
  // lea rdi, [rip + section]; lea rcx, [rip + list]; ret. Windows' function returns the list at once.
  [[nodiscard]] std::vector<std::uint8_t> code() const {
    std::vector<std::uint8_t> bytes;
    const auto lea = [&](std::uint8_t reg, std::uint64_t place) {
      bytes.insert(bytes.end(), {0x48, 0x8d, static_cast<std::uint8_t>(0x05 | reg << 3)});
      const auto distance = static_cast<std::uint32_t>(place - kBase - kText - bytes.size() - 4);
      for (int i = 0; i < 32; i += 8) bytes.push_back(static_cast<std::uint8_t>(distance >> i));
    };
    if (of_wine) lea(7, kSection);
    lea(of_wine ? 1 : 0, kHead);
    bytes.push_back(0xc3);
    bytes.resize(0x200, 0xcc);
    return bytes;
  }
  [[nodiscard]] std::vector<std::uint8_t> export_directory() const {
    const std::vector<std::string> names = of_wine
                                               ? std::vector<std::string>{"RtlDeleteFunctionTable", "wine_get_version"}
                                               : std::vector<std::string>{"RtlGetFunctionTableListHead"};
    const auto count = static_cast<std::uint32_t>(names.size());
    Bytes to;
    const std::uint32_t addresses = kExports + 40, pointers = addresses + 4 * count, ordinals = pointers + 4 * count;
    std::uint32_t text = ordinals + 4 * count;
    to.u32(0).u32(0).u32(0).u32(text).u32(1).u32(count).u32(count).u32(addresses).u32(pointers).u32(ordinals);
    for (std::uint32_t i = 0; i < count; ++i) to.u32(kText);
    text += static_cast<std::uint32_t>(name.size()) + 1;
    for (const std::string& exported : names) {
      to.u32(text);
      text += static_cast<std::uint32_t>(exported.size()) + 1;
    }
    for (std::uint32_t i = 0; i < count; ++i) to.u8(static_cast<std::uint8_t>(i)).u8(0);
    while (to.size() < 40 + 12 * count) to.u8(0);
    const auto put = [&](const std::string& one) {
      for (const char letter : one) to.u8(static_cast<std::uint8_t>(letter));
      to.u8(0);
    };
    put(name);
    for (const std::string& exported : names) put(exported);
    return to.data();
  }
};

}  // namespace windlass::test
