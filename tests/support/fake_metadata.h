// A .NET module's metadata made up by hand, in the image of a PE file.
//
// ECMA-335, II.22 to II.24.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/fake_coreclr.h"

namespace windlass::test {

class FakeMetadata {
 public:
  static constexpr std::uint64_t kBase = 0x7f00'0000'0000;
  struct Options {
    bool wide_heaps = false;  // offsets into heaps have 4 bytes
    bool mapped = false;      // as the loader lays it out
    bool pe32 = false;
    bool extra_data = false;  // II.24.2.6 does not have it; edit-and-continue compilers write it
    std::string version = "v4.0.30319";
  };
  enum Table : std::uint8_t {
    kModule = 0x00,
    kTypeRef = 0x01,
    kTypeDef = 0x02,
    kMethodDef = 0x06,
    kParam = 0x08,
    kTypeSpec = 0x1b,
    kNestedClass = 0x29,
    kGenericParam = 0x2a
  };

  FakeMetadata() : FakeMetadata(Options()) {}
  explicit FakeMetadata(const Options& options) : options_(options) {
    add(kModule, {{k2, 0}, {kText, text("Made.dll")}, {kGuid, 1}, {kGuid, 0}, {kGuid, 0}});
  }

  // Each gives its row.
  std::uint32_t type_ref(std::string_view name) {
    return add(kTypeRef, {{kScope, 0}, {kText, text(name)}, {kText, 0}});
  }
  std::uint32_t type(std::string_view name, std::string_view space, std::uint32_t first_method = 1) {
    return add(kTypeDef,
               {{k4, 0}, {kText, text(name)}, {kText, text(space)}, {kType, 0}, {k2, 1}, {kMethodIndex, first_method}});
  }
  std::uint32_t method(std::string_view name, const std::string& signature) {
    return add(kMethodDef,
               {{k4, 0}, {k2, 0}, {k2, 0}, {kText, text(name)}, {kBlob, blob(signature)}, {kParamIndex, 1}});
  }
  std::uint32_t param(std::string_view name) { return add(kParam, {{k2, 0}, {k2, 1}, {kText, text(name)}}); }
  void nested(std::uint32_t type, std::uint32_t in) { add(kNestedClass, {{k2, type}, {k2, in}}); }
  // Ascending by the owner: 2 * a type's row, or 2 * a method's row + 1.
  void generic(std::uint32_t owner, std::uint32_t number, std::string_view name) {
    add(kGenericParam, {{k2, number}, {k2, 0}, {k2, owner}, {kText, text(name)}});
  }

  [[nodiscard]] BlockMemory memory() const {
    const std::string root = metadata();
    constexpr std::uint32_t kRva = 0x2000, kRaw = 0x400, kPe = 0x80;
    const std::uint32_t to = options_.mapped ? kRva : kRaw, optional_size = options_.pe32 ? 0xe0 : 0xf0;
    std::vector<std::byte> bytes((to + 72 + root.size() + 4095) / 4096 * 4096);  // whole pages
    const auto put = [&](std::size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
    put(0, std::uint16_t{0x5a4d}), put(0x3c, kPe);
    put(kPe, std::uint32_t{0x4550}), put(kPe + 6, std::uint16_t{2});
    put(kPe + 20, static_cast<std::uint16_t>(optional_size));
    put(kPe + 24, static_cast<std::uint16_t>(options_.pe32 ? 0x10b : 0x20b));
    put(kPe + 24 + (options_.pe32 ? 96 : 112) + 14 * 8, kRva);
    // A section right in front of that with the metadata.
    const std::size_t section = kPe + 24 + optional_size;
    put(section + 12, std::uint32_t{0x1000}), put(section + 16, std::uint32_t{0x1000}), put(section + 20, kRaw - 0x100);
    put(section + 40 + 12, kRva), put(section + 40 + 16, static_cast<std::uint32_t>(72 + root.size()));
    put(section + 40 + 20, kRaw);
    put(to + 8, kRva + 72);
    std::memcpy(bytes.data() + to + 72, root.data(), root.size());
    return {kBase, std::move(bytes)};
  }

 private:
  enum Kind : std::uint8_t { k2, k4, kText, kGuid, kBlob, kScope, kType, kMethodIndex, kParamIndex };
  struct Cell {
    Kind kind;
    std::uint32_t value;
  };

  std::uint32_t add(Table table, std::vector<Cell> cells) {
    rows_[table].push_back(std::move(cells));
    return static_cast<std::uint32_t>(rows_[table].size());
  }
  std::uint32_t text(std::string_view name) {
    if (name.empty()) return 0;
    const auto at = static_cast<std::uint32_t>(strings_.size());
    strings_.append(name) += '\0';
    return at;
  }
  std::uint32_t blob(const std::string& bytes) {
    const auto at = static_cast<std::uint32_t>(blobs_.size());
    if (bytes.size() > 0x7f) blobs_ += static_cast<char>(0x80 | bytes.size() >> 8);
    blobs_ += static_cast<char>(bytes.size());
    blobs_ += bytes;
    return at;
  }
  [[nodiscard]] std::size_t count(std::uint8_t table) const {
    const auto found = rows_.find(table);
    return found != rows_.end() ? found->second.size() : 0;
  }
  [[nodiscard]] unsigned width(Kind kind) const {
    switch (kind) {
      case k2: return 2;
      case k4: return 4;
      case kText:
      case kGuid:
      case kBlob: return options_.wide_heaps ? 4 : 2;
      case kScope: return count(kTypeRef) > 0x3fff ? 4 : 2;  // two bits say which table
      case kType: return std::max(count(kTypeRef), count(kTypeDef)) > 0x3fff ? 4 : 2;
      case kMethodIndex: return count(kMethodDef) > 0xffff ? 4 : 2;
      case kParamIndex: return count(kParam) > 0xffff ? 4 : 2;
    }
    return 0;
  }
  static void put_number(std::string& to, std::uint64_t value, unsigned width) {
    for (unsigned i = 0; i < width; ++i) to += static_cast<char>(value >> 8 * i);
  }
  [[nodiscard]] std::string tables() const {
    std::string bytes;
    put_number(bytes, 0, 4), put_number(bytes, 2, 2);
    put_number(bytes, (options_.wide_heaps ? 7 : 0) | (options_.extra_data ? 0x40 : 0), 1), put_number(bytes, 1, 1);
    std::uint64_t valid = 0;
    for (const auto& [table, rows] : rows_) valid |= std::uint64_t{1} << table;
    put_number(bytes, valid, 8), put_number(bytes, 0, 8);
    for (const auto& [table, rows] : rows_) put_number(bytes, rows.size(), 4);
    if (options_.extra_data) put_number(bytes, 0x1234'5678, 4);
    for (const auto& [table, rows] : rows_)
      for (const auto& row : rows)
        for (const Cell& cell : row) put_number(bytes, cell.value, width(cell.kind));
    return bytes;
  }
  [[nodiscard]] std::string metadata() const {
    const std::string table = tables();
    std::string root;
    const std::string version = options_.version + std::string(4 - options_.version.size() % 4, '\0');
    put_number(root, 0x424a'5342, 4), put_number(root, 0x10001, 4), put_number(root, 0, 4);
    put_number(root, version.size(), 4), root += version, put_number(root, 0, 2), put_number(root, 3, 2);
    const std::size_t streams = root.size() + 12 + 20 + 16;
    const auto stream = [&](std::size_t offset, const std::string& bytes, std::string_view name) {
      put_number(root, offset, 4), put_number(root, bytes.size(), 4), root += name;
    };
    stream(streams, table, std::string_view("#~\0\0", 4));
    stream(streams + table.size(), strings_, std::string_view("#Strings\0\0\0\0", 12));
    stream(streams + table.size() + strings_.size(), blobs_, std::string_view("#Blob\0\0\0", 8));
    return root + table + strings_ + blobs_;
  }

  Options options_;
  std::map<std::uint8_t, std::vector<std::vector<Cell>>> rows_;
  std::string strings_ = std::string(1, '\0'), blobs_ = std::string(1, '\0');
};

}  // namespace windlass::test
