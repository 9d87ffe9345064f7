// PE images written by hand: forms that linkers do not make, and wrong ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "support/pe_file.h"

namespace windlass::test {

// Three sections: .text, .rdata (unwind information and whatever else), .pdata. Each is filled by appending, which
// returns the RVA of what was appended.
class PeImageBuilder {
 public:
  static constexpr std::uint32_t kText = 0x1000, kData = 0x11000, kTable = 0x21000, kImageSize = 0x31000;
  static constexpr std::uint32_t kHeaders = 0x400;
  static constexpr std::uint64_t kBase = PeFile::kImageBase;

  image::PeMachine machine = image::PeMachine::kAmd64;
  std::uint16_t magic = image::pe::kPe32Plus;
  std::uint64_t image_base = kBase;
  image::RvaRange directories[16];
  Bytes symbols, strings;        // COFF; the string table without its size
  std::uint32_t table_size = 0;  // of the exception directory; 0: what was added

  std::uint32_t text(std::initializer_list<int> code) { return append(text_, kText, Bytes(code)); }
  std::uint32_t data(const Bytes& bytes) {
    while (data_.size() % 4 != 0) data_.u8(0);
    return append(data_, kData, bytes);
  }
  void entry(std::uint32_t begin, std::uint32_t end, std::uint32_t info) { table_.u32(begin).u32(end).u32(info); }
  void arm64_entry(std::uint32_t begin, std::uint32_t info) { table_.u32(begin).u32(info); }
  [[nodiscard]] std::uint32_t next_text() const { return kText + static_cast<std::uint32_t>(text_.size()); }
  [[nodiscard]] std::uint32_t next_data() const {
    return kData + static_cast<std::uint32_t>((data_.size() + 3) / 4 * 4);
  }
  void directory(image::PeDirectory which, std::uint32_t rva, std::uint32_t size) {
    directories[static_cast<std::size_t>(which)] = {rva, size};
  }

  // Makes the image ARM64EC or ARM64X: a load configuration that leads to CHPE metadata. Each range is followed by its
  // size; the two low bits of its begin are the machine (0 ARM64, 1 ARM64EC, 2 x64). `base`: of the address.
  void hybrid(std::initializer_list<std::uint32_t> ranges, image::RvaRange extra_functions = {},
              std::uint64_t base = kBase) {
    Bytes map, metadata, config;
    for (const std::uint32_t value : ranges) map.u32(value);
    metadata.u32(1).u32(data(map)).u32(ranges.size() / 2);
    for (int i = 0; i < 13; ++i) metadata.u32(0);
    metadata.u32(extra_functions.rva).u32(extra_functions.size);
    const auto metadata_at = data(metadata);
    config.u32(0x140);
    while (config.size() < image::pe::kChpeMetadataAt) config.u32(0);
    config.u64(base + metadata_at);
    directory(image::PeDirectory::kLoadConfig, data(config), 0x140);
  }

  // The file, or (mapped) what a loader makes of it.
  [[nodiscard]] std::vector<std::uint8_t> build(bool mapped = false) {
    directory(image::PeDirectory::kException, kTable,
              table_size != 0 ? table_size : static_cast<std::uint32_t>(table_.size()));
    PeFile file;
    file.machine = machine;
    file.magic = magic;
    file.image_base = image_base;
    file.image_size = kImageSize;
    file.headers_size = kHeaders;
    std::copy(std::begin(directories), std::end(directories), file.directories);
    file.sections = {{".text", kText, text_.data(), true},
                     {".rdata", kData, data_.data(), false},
                     {".pdata", kTable, table_.data(), false}};
    file.symbols = symbols;
    file.strings = strings;
    return file.build(mapped ? PeFile::kMapped : PeFile::kPacked);
  }

 private:
  static std::uint32_t append(Bytes& to, std::uint32_t rva, const Bytes& bytes) {
    const auto at = rva + static_cast<std::uint32_t>(to.size());
    to.add(bytes);
    return at;
  }
  Bytes text_, data_, table_;
};

// UNWIND_INFO of version 1 or 2. Codes as 16-bit slots, in stored order.
struct UnwindInfoBytes {
  unsigned version = 1, flags = 0, prolog_size = 0, frame_register = 0, frame_offset = 0;
  std::vector<std::uint16_t> slots;

  static std::uint16_t slot(unsigned offset, unsigned operation, unsigned info) {
    return static_cast<std::uint16_t>(offset | operation << 8 | info << 12);
  }
  [[nodiscard]] Bytes bytes() const {
    Bytes out;
    out.u8(version | flags << 3).u8(prolog_size).u8(slots.size()).u8(frame_register | frame_offset << 4);
    for (const std::uint16_t value : slots) out.u16(value);
    if (slots.size() % 2 != 0) out.u16(0);
    return out;
  }
};

}  // namespace windlass::test
