// The tables that a HotSpot exports for its own debugger, the serviceability agent: the offsets of fields, and the
// addresses of roots.
//
// openjdk/jdk, src/hotspot/share/runtime/vmStructs.hpp: gHotSpotVMStructs, gHotSpotVMTypes and the offsets of the
// fields of their entries, gHotSpotVM*Entry*Offset.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtimes/needed.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::hotspot {

class VmStructs {
 public:
  static constexpr std::size_t kMaxEntries = 16384;  // of one table; JDK 17 has 1,250 fields
  static constexpr std::size_t kLongestName = 256;

  // Of the image (libjvm.so) whose first byte is mapped at `image`. kNotFound: it is none; kUnreadable; kMalformed;
  // kLimit. Some 10,000 names, read by the page.
  [[nodiscard]] static Expected<VmStructs> read(const Memory& memory, std::uint64_t image);

  [[nodiscard]] std::optional<std::uint32_t> offset(std::string_view type, std::string_view field) const;
  // Of a static field.
  [[nodiscard]] std::optional<std::uint64_t> address(std::string_view type, std::string_view field) const;
  [[nodiscard]] std::optional<std::uint32_t> size(std::string_view type) const;
  // JDK 8 has one heap of code; JDK 9 and later have several.
  [[nodiscard]] bool is_jdk_8() const { return address("CodeCache", "_heap").has_value(); }
  // 8, 11, ...; 0: it does not tell.
  [[nodiscard]] std::uint32_t jdk_version(const Memory& memory) const;

 private:
  struct Field {
    bool is_static = false;
    std::uint64_t value = 0;  // offset or address
  };
  [[nodiscard]] const Field* find(std::string_view type, std::string_view field, bool is_static) const;

  std::map<std::string, Field, std::less<>> fields_;  // "Type::field"
  std::map<std::string, std::uint32_t, std::less<>> sizes_;
};

class Layout : public Needed {
 public:
  // Of which versions have one or another.
  using Names = std::initializer_list<std::pair<const char*, const char*>>;

  explicit Layout(const VmStructs& structs) : structs_(structs) {}
  [[nodiscard]] std::uint32_t field(const char* type, const char* field) { return any_field({{type, field}}); }
  [[nodiscard]] std::uint32_t any_field(Names names) {
    std::optional<std::uint32_t> found;
    for (const auto& [type, field] : names)
      if (!found) found = structs_.offset(type, field);
    return need(found, "the runtime does not tell of a field that is needed");
  }
  [[nodiscard]] std::uint64_t address(const char* type, const char* field) { return any_address({{type, field}}); }
  [[nodiscard]] std::uint64_t any_address(Names names) {
    std::optional<std::uint64_t> found;
    for (const auto& [type, field] : names)
      if (!found) found = structs_.address(type, field);
    return need(found, "the runtime does not tell of a root that is needed");
  }
  [[nodiscard]] std::uint32_t size(const char* type) {
    return need(structs_.size(type), "the runtime does not tell of a size that is needed");
  }

 private:
  const VmStructs& structs_;
};

}  // namespace windlass::runtimes::hotspot
