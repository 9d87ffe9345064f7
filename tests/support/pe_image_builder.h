// PE images written by hand: what linkers do not make, and what nobody should.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "image/pe.h"
#include "image/pe_format.h"
#include "support/cfi_builder.h"

namespace windlass::test {

// Three sections: .text, .rdata (unwind information and whatever else), .pdata. Each is filled by appending, which
// returns the RVA of what was appended.
class PeImageBuilder {
 public:
  static constexpr std::uint32_t kText = 0x1000, kData = 0x11000, kTable = 0x21000, kImageSize = 0x31000;
  static constexpr std::uint32_t kHeaders = 0x400;
  static constexpr std::uint64_t kBase = 0x1'4000'0000;

  image::PeMachine machine = image::PeMachine::kAmd64;
  std::uint16_t magic = image::pe::kPe32Plus;
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

  // The file, or (mapped) what a loader makes of it.
  [[nodiscard]] std::vector<std::uint8_t> build(bool mapped = false) {
    directory(image::PeDirectory::kException, kTable,
              table_size != 0 ? table_size : static_cast<std::uint32_t>(table_.size()));
    std::vector<std::uint8_t> file(mapped ? kImageSize : kHeaders);
    const std::uint32_t signature_at = 0x40;
    put(file, 0, image::pe::kDosMagic);
    put(file, image::pe::kSignatureOffsetAt, signature_at);
    put(file, signature_at, image::pe::kSignature);
    image::pe::FileHeader header{};
    header.machine = static_cast<std::uint16_t>(machine);
    header.section_count = 3;
    header.optional_header_size = sizeof(image::pe::OptionalHeader) + sizeof directories;
    image::pe::OptionalHeader optional{};
    optional.magic = magic;
    optional.image_base = kBase;
    optional.image_size = kImageSize;
    optional.headers_size = kHeaders;
    optional.directory_count = 16;
    const std::size_t optional_at = signature_at + 4 + sizeof header;
    std::size_t section_at = optional_at + sizeof optional + sizeof directories;
    put(file, optional_at + sizeof optional, directories);
    put(file, optional_at, optional);
    section(file, section_at, ".text", kText, text_, 0x6000'0020, mapped);
    section(file, section_at, ".rdata", kData, data_, 0x4000'0040, mapped);
    section(file, section_at, ".pdata", kTable, table_, 0x4000'0040, mapped);
    if (symbols.size() != 0 && !mapped) {
      header.symbols_offset = static_cast<std::uint32_t>(file.size());
      header.symbol_count = static_cast<std::uint32_t>(symbols.size() / sizeof(image::pe::CoffSymbol));
      Bytes tail;
      tail.add(symbols).u32(strings.size() + 4).add(strings);
      file.insert(file.end(), tail.data().begin(), tail.data().end());
    }
    put(file, signature_at + 4, header);
    return file;
  }

  template <typename T>
  static void put(std::vector<std::uint8_t>& file, std::size_t at, const T& value) {
    std::memcpy(file.data() + at, &value, sizeof value);
  }

 private:
  static std::uint32_t append(Bytes& to, std::uint32_t rva, const Bytes& bytes) {
    const auto at = rva + static_cast<std::uint32_t>(to.size());
    to.add(bytes);
    return at;
  }
  static void section(std::vector<std::uint8_t>& file, std::size_t& at, std::string_view name, std::uint32_t rva,
                      const Bytes& bytes, std::uint32_t characteristics, bool mapped) {
    image::pe::SectionHeader header{};
    std::memcpy(header.name, name.data(), name.size());
    header.virtual_size = static_cast<std::uint32_t>(bytes.size());
    header.rva = rva;
    header.file_size = static_cast<std::uint32_t>((bytes.size() + 511) / 512 * 512);
    header.file_offset = mapped ? rva : static_cast<std::uint32_t>(file.size());
    header.characteristics = characteristics;
    if (!mapped) file.resize(file.size() + header.file_size);
    std::copy(bytes.data().begin(), bytes.data().end(), file.begin() + header.file_offset);
    put(file, at, header);
    at += sizeof header;
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
