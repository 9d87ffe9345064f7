// Makes small PE32+ images, so that unwind information that no compiler emits can be read, executed and given to peers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "support/pe_file.h"

namespace windlass::test {

// Appends little-endian values. Extends Bytes by the needs of images.
class ByteWriter : public Bytes {
 public:
  void bytes(std::initializer_list<std::uint8_t> list) { data().insert(data().end(), list.begin(), list.end()); }
  void append(const std::vector<std::uint8_t>& more) { data().insert(data().end(), more.begin(), more.end()); }
  void pad_to(std::size_t size) { data().resize(size > data().size() ? size : data().size()); }
  void align(std::size_t unit) { data().resize((data().size() + unit - 1) / unit * unit); }
};

// Sections stand in the file as in memory: file offset = RVA.
class PeBuilder {
 public:
  static constexpr std::uint64_t kImageBase = PeFile::kImageBase;
  static constexpr std::uint32_t kAlignment = 0x1000;

  explicit PeBuilder(image::PeMachine machine) {
    file_.machine = machine;
    file_.headers_size = file_.image_size = kAlignment;
  }

  // Returns its RVA.
  std::uint32_t add(const std::string& name, std::vector<std::uint8_t> bytes, bool executable = false) {
    const std::uint32_t rva = next_rva_;
    next_rva_ += (static_cast<std::uint32_t>(bytes.size()) + kAlignment) / kAlignment * kAlignment;
    file_.image_size = next_rva_;
    file_.sections.push_back({name, rva, std::move(bytes), executable});
    return rva;
  }
  // Where the next section will stand.
  [[nodiscard]] std::uint32_t next_rva() const { return next_rva_; }
  void set_directory(image::PeDirectory which, std::uint32_t rva, std::uint32_t size) {
    file_.set_directory(which, rva, size);
  }
  // The function table as a section of its own; llvm-readobj finds it by its name.
  void add_function_table(const std::vector<std::uint8_t>& entries) {
    set_directory(image::PeDirectory::kException, add(".pdata", entries), static_cast<std::uint32_t>(entries.size()));
  }

  // The image as its header describes it, with nothing behind the sections.
  void claim(std::uint32_t size) { file_.image_size = size; }

  [[nodiscard]] std::vector<std::uint8_t> build() const { return file_.build(PeFile::kAtRva); }

 private:
  std::uint32_t next_rva_ = kAlignment;
  PeFile file_;
};

}  // namespace windlass::test
