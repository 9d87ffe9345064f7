// Makes small PE32+ images, so that unwind information that no compiler emits can be read, executed and given to peers.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "image/pe.h"

namespace windlass::test {

// Appends little-endian values.
class ByteWriter {
 public:
  void u8(std::uint32_t value) { put(value, 1); }
  void u16(std::uint32_t value) { put(value, 2); }
  void u32(std::uint32_t value) { put(value, 4); }
  void u64(std::uint64_t value) { put(value, 8); }
  void bytes(std::initializer_list<std::uint8_t> list) { data_.insert(data_.end(), list); }
  void append(const std::vector<std::uint8_t>& more) { data_.insert(data_.end(), more.begin(), more.end()); }
  void pad_to(std::size_t size) { data_.resize(size > data_.size() ? size : data_.size()); }
  void align(std::size_t unit) { data_.resize((data_.size() + unit - 1) / unit * unit); }
  [[nodiscard]] std::size_t size() const { return data_.size(); }
  [[nodiscard]] std::vector<std::uint8_t>& data() { return data_; }
  [[nodiscard]] const std::vector<std::uint8_t>& data() const { return data_; }

 private:
  void put(std::uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) data_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  std::vector<std::uint8_t> data_;
};

// Sections stand in the file as in memory: file offset = RVA.
class PeBuilder {
 public:
  static constexpr std::uint64_t kImageBase = 0x1'4000'0000;
  static constexpr std::uint32_t kAlignment = 0x1000;

  explicit PeBuilder(image::PeMachine machine) : machine_(machine) {}

  // Returns its RVA.
  std::uint32_t add(const std::string& name, std::vector<std::uint8_t> bytes, bool executable = false) {
    const std::uint32_t rva = next_rva_;
    sections_.push_back({name, rva, std::move(bytes), executable});
    next_rva_ += (static_cast<std::uint32_t>(sections_.back().bytes.size()) + kAlignment) / kAlignment * kAlignment;
    return rva;
  }
  // Where the next section will stand.
  [[nodiscard]] std::uint32_t next_rva() const { return next_rva_; }
  void set_directory(image::PeDirectory which, std::uint32_t rva, std::uint32_t size) {
    directories_[static_cast<std::size_t>(which)] = {rva, size};
  }
  // The function table as a section of its own; llvm-readobj finds it by its name.
  void add_function_table(const std::vector<std::uint8_t>& entries) {
    set_directory(image::PeDirectory::kException, add(".pdata", entries), static_cast<std::uint32_t>(entries.size()));
  }

  [[nodiscard]] std::vector<std::uint8_t> build() const {
    ByteWriter out;
    out.bytes({'M', 'Z'});
    out.pad_to(0x3c);
    out.u32(0x40);
    out.bytes({'P', 'E', 0, 0});
    out.u16(static_cast<std::uint16_t>(machine_));
    out.u16(static_cast<std::uint32_t>(sections_.size()));
    out.u32(0), out.u32(0), out.u32(0);  // time, symbols
    out.u16(112 + 16 * 8);               // size of the optional header
    out.u16(0x2022);                     // executable, large addresses, DLL
    out.u16(0x20b);
    out.u16(0);
    out.u32(0), out.u32(0), out.u32(0);  // sizes of code and data
    out.u32(0), out.u32(kAlignment);     // entry, base of code
    out.u64(kImageBase);
    out.u32(kAlignment), out.u32(kAlignment);
    for (int i = 0; i < 6; ++i) out.u16(i == 4 ? 6 : 0);  // versions
    out.u32(0);
    out.u32(next_rva_), out.u32(kAlignment), out.u32(0);  // sizes of image and headers, checksum
    out.u16(2), out.u16(0);
    for (int i = 0; i < 4; ++i) out.u64(0x10000);  // stack and heap
    out.u32(0), out.u32(16);
    for (const image::RvaRange& directory : directories_) out.u32(directory.rva), out.u32(directory.size);
    for (const Section& section : sections_) {
      char name[8] = {};
      std::memcpy(name, section.name.data(), section.name.size() < 8 ? section.name.size() : 8);
      for (const char c : name) out.u8(static_cast<std::uint8_t>(c));
      const auto size = static_cast<std::uint32_t>(section.bytes.size());
      out.u32(size), out.u32(section.rva), out.u32((size + 511) / 512 * 512), out.u32(section.rva);
      out.u32(0), out.u32(0), out.u32(0);
      out.u32(section.executable ? 0x6000'0020 : 0x4000'0040);
    }
    for (const Section& section : sections_) {
      out.pad_to(section.rva);
      out.append(section.bytes);
      out.align(512);
    }
    return out.data();
  }

 private:
  struct Section {
    std::string name;
    std::uint32_t rva;
    std::vector<std::uint8_t> bytes;
    bool executable;
  };
  image::PeMachine machine_;
  std::uint32_t next_rva_ = kAlignment;
  std::vector<Section> sections_;
  image::RvaRange directories_[16];
};

}  // namespace windlass::test
