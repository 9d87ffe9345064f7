// CFI bytes written by hand: forms that assemblers do not emit, and wrong ones.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/dwarf/cfi.h"

namespace windlass::test {

class Bytes {
 public:
  Bytes() = default;
  Bytes(std::initializer_list<int> bytes) {
    for (const int byte : bytes) data_.push_back(static_cast<std::uint8_t>(byte));
  }

  // Room for what is copied elsewhere later. Behind what is read in place the address sanitizer shall see every byte.
  Bytes& reserve(std::size_t size) {
    data_.reserve(size);
    return *this;
  }
  Bytes& u8(std::uint64_t value) { return little(value, 1); }
  Bytes& u16(std::uint64_t value) { return little(value, 2); }
  Bytes& u32(std::uint64_t value) { return little(value, 4); }
  Bytes& u64(std::uint64_t value) { return little(value, 8); }
  Bytes& uleb(std::uint64_t value) {
    do {
      const auto low = static_cast<std::uint8_t>(value & 0x7f);
      value >>= 7;
      data_.push_back(value != 0 ? low | 0x80 : low);
    } while (value != 0);
    return *this;
  }
  Bytes& sleb(std::int64_t value) {
    for (bool more = true; more;) {
      const auto low = static_cast<std::uint8_t>(value & 0x7f);
      value >>= 7;
      more = !((value == 0 && (low & 0x40) == 0) || (value == -1 && (low & 0x40) != 0));
      data_.push_back(more ? low | 0x80 : low);
    }
    return *this;
  }
  Bytes& text(std::string_view text) {  // with its terminator
    data_.insert(data_.end(), text.begin(), text.end());
    data_.push_back(0);
    return *this;
  }
  Bytes& add(const Bytes& other) {
    data_.insert(data_.end(), other.data_.begin(), other.data_.end());
    return *this;
  }

  [[nodiscard]] std::size_t size() const { return data_.size(); }
  [[nodiscard]] const std::vector<std::uint8_t>& data() const { return data_; }
  [[nodiscard]] std::vector<std::uint8_t>& data() { return data_; }
  [[nodiscard]] ByteView view(std::uint64_t origin = 0) const {
    return ByteView(std::span<const std::uint8_t>(data_), origin);
  }

 private:
  Bytes& little(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) data_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    return *this;
  }
  std::vector<std::uint8_t> data_;
};

// The fields of CIEs and FDEs. The defaults are those of compilers for x86-64, with absolute pointers.
struct CieSpec {
  int version = 1;
  std::string augmentation = "zR";
  Bytes augmentation_data = {dwarf::DW_EH_PE_absptr};
  std::uint64_t code_alignment = 1;
  std::int64_t data_alignment = -8;
  std::uint64_t return_register = 16;
  Bytes instructions = {0x0c, 7, 8, 0x90, 1};  // def_cfa rsp+8; offset rip at cfa-8
  bool is_64bit = false;
};

class CfiBuilder {
 public:
  explicit CfiBuilder(bool is_debug_frame = false) : is_debug_frame_(is_debug_frame) {}

  // Each returns the offset of the entry.
  std::uint64_t cie(const CieSpec& spec = {}) {
    Bytes body;
    body.reserve(kUsualBody);
    body.u8(static_cast<std::uint64_t>(spec.version)).text(spec.augmentation);
    if (spec.version >= 4) body.u8(8).u8(0);
    if (spec.augmentation == "eh") body.u64(0x1122334455667788);
    body.uleb(spec.code_alignment).sleb(spec.data_alignment);
    if (spec.version == 1)
      body.u8(spec.return_register);
    else
      body.uleb(spec.return_register);
    if (spec.augmentation.starts_with('z')) body.uleb(spec.augmentation_data.size()).add(spec.augmentation_data);
    body.add(spec.instructions);
    return entry(body, is_debug_frame_ ? ~std::uint64_t{0} : 0, spec.is_64bit, true);
  }

  // `head` is the encoded begin and range; `augmentation_data` goes in for 'z' CIEs (nullptr: not a 'z' CIE).
  std::uint64_t fde(std::uint64_t cie, const Bytes& head, const Bytes* augmentation_data, const Bytes& instructions,
                    bool is_64bit = false) {
    Bytes body;
    body.reserve(kUsualBody);
    body.add(head);
    if (augmentation_data != nullptr) body.uleb(augmentation_data->size()).add(*augmentation_data);
    body.add(instructions);
    const std::uint64_t id_at = section_.size() + (is_64bit ? 12 : 4);
    return entry(body, is_debug_frame_ ? cie : id_at - cie, is_64bit, false);
  }
  // The common case: absolute addresses, "zR".
  std::uint64_t fde(std::uint64_t cie, std::uint64_t begin, std::uint64_t size, const Bytes& instructions) {
    const Bytes none;
    return fde(cie, Bytes().reserve(16).u64(begin).u64(size), &none, instructions);
  }

  Bytes& raw() { return section_; }

  [[nodiscard]] dwarf::CfiSection section(std::uint64_t address = 0) const {
    dwarf::CfiSection out;
    out.bytes = section_.view();
    out.address = address;
    out.is_debug_frame = is_debug_frame_;
    if (is_debug_frame_) out.name = ".debug_frame";
    return out;
  }

 private:
  std::uint64_t entry(const Bytes& body, std::uint64_t id, bool is_64bit, bool /*is_cie*/) {
    const std::uint64_t offset = section_.size();
    const bool wide_id = is_64bit && is_debug_frame_;
    const std::uint64_t length = body.size() + (wide_id ? 8 : 4);
    if (is_64bit)
      section_.u32(0xffffffff).u64(length);
    else
      section_.u32(length);
    if (wide_id)
      section_.u64(id);
    else
      section_.u32(id);
    section_.add(body);
    return offset;
  }

  static constexpr std::size_t kUsualBody = 64;
  bool is_debug_frame_;
  Bytes section_;
};

}  // namespace windlass::test
