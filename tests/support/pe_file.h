// Writes PE images: what the builders of tests share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "formats/image/pe.h"
#include "formats/image/pe_format.h"
#include "support/cfi_builder.h"

namespace windlass::test {

struct PeFile {
  struct Section {
    std::string name;
    std::uint32_t rva = 0;
    std::vector<std::uint8_t> bytes;
    bool executable = false;
    bool writable = false;
  };
  enum Layout : std::uint8_t {
    kPacked,  // one section's bytes behind the other's
    kAtRva,   // every section's bytes at its RVA
    kMapped,  // as a loader lays it out, to its full size
  };
  static constexpr std::uint64_t kImageBase = 0x1'4000'0000;

  image::PeMachine machine = image::PeMachine::kAmd64;
  std::uint16_t magic = image::pe::kPe32Plus;
  std::uint64_t image_base = kImageBase;
  std::uint32_t image_size = 0, headers_size = 0;
  image::RvaRange directories[16];
  std::vector<Section> sections;
  Bytes symbols, strings;  // COFF; the string table without its size. None in a mapped image

  void set_directory(image::PeDirectory which, std::uint32_t rva, std::uint32_t size) {
    directories[static_cast<std::size_t>(which)] = {rva, size};
  }

  [[nodiscard]] std::vector<std::uint8_t> build(Layout layout) const {
    constexpr std::uint32_t kSignatureAt = 0x40, kFileAlignment = 512;
    std::vector<std::uint8_t> file(layout == kMapped ? image_size : headers_size);
    put(file, 0, image::pe::kDosMagic);
    put(file, image::pe::kSignatureOffsetAt, kSignatureAt);
    put(file, kSignatureAt, image::pe::kSignature);
    const std::size_t optional_at = kSignatureAt + 4 + sizeof(image::pe::FileHeader);
    put(file, optional_at, optional_header());
    put(file, optional_at + sizeof(image::pe::OptionalHeader), directories);
    std::size_t header_at = optional_at + sizeof(image::pe::OptionalHeader) + sizeof directories;
    for (const Section& section : sections) {
      image::pe::SectionHeader header{};
      std::memcpy(header.name, section.name.data(), std::min<std::size_t>(section.name.size(), sizeof header.name));
      header.virtual_size = static_cast<std::uint32_t>(section.bytes.size());
      header.rva = section.rva;
      header.file_size = (header.virtual_size + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
      header.file_offset = layout == kPacked ? static_cast<std::uint32_t>(file.size()) : section.rva;
      header.characteristics = section.executable ? 0x6000'0020 : section.writable ? 0xc000'0040 : 0x4000'0040;
      file.resize(std::max<std::size_t>(file.size(), std::size_t{header.file_offset} + header.file_size));
      std::copy(section.bytes.begin(), section.bytes.end(), file.begin() + header.file_offset);
      put(file, header_at, header);
      header_at += sizeof header;
    }
    image::pe::FileHeader header{};
    header.machine = static_cast<std::uint16_t>(machine);
    header.section_count = static_cast<std::uint16_t>(sections.size());
    header.optional_header_size = sizeof(image::pe::OptionalHeader) + sizeof directories;
    header.characteristics = 0x2022;  // executable, large addresses, DLL
    if (symbols.size() != 0 && layout != kMapped) {
      header.symbols_offset = static_cast<std::uint32_t>(file.size());
      header.symbol_count = static_cast<std::uint32_t>(symbols.size() / sizeof(image::pe::CoffSymbol));
      Bytes tail;
      tail.add(symbols).u32(strings.size() + 4).add(strings);
      file.insert(file.end(), tail.data().begin(), tail.data().end());
    }
    put(file, kSignatureAt + 4, header);
    return file;
  }

 private:
  template <typename T>
  static void put(std::vector<std::uint8_t>& file, std::size_t at, const T& value) {
    std::memcpy(file.data() + at, &value, sizeof value);
  }
  [[nodiscard]] image::pe::OptionalHeader optional_header() const {
    constexpr std::uint32_t kAlignment = 0x1000;
    image::pe::OptionalHeader header{};
    header.magic = magic;
    header.code_base = kAlignment;
    header.image_base = image_base;
    header.section_alignment = header.file_alignment = kAlignment;
    header.versions[4] = 6;
    header.image_size = image_size;
    header.headers_size = headers_size;
    header.subsystem = 2;
    header.stack_reserve = header.stack_commit = header.heap_reserve = header.heap_commit = 0x10000;
    header.directory_count = 16;
    return header;
  }
};

}  // namespace windlass::test
