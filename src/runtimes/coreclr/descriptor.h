// The contract descriptor of a CoreCLR, .NET 9 and later: the offsets of fields, the addresses of roots, and the
// versions of the algorithms by which these are read.
//
// .NET 9 does not tell how its methods are found, and programs of a single file have no descriptor then. .NET 8 has no
// descriptor at all. What is missing is known here. The address of the map of code is the first of the addresses in
// g_dacTable.
//
// dotnet/runtime, docs/design/datacontracts: contract-descriptor.md, data_descriptor.md ("Physical JSON descriptor",
// the compact form); src/coreclr/inc/dacvars.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtimes/needed.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::coreclr {

class Descriptor {
 public:
  static constexpr std::uint32_t kMaxText = 1U << 20;  // bytes of JSON; .NET 10 has 10,563
  static constexpr std::uint32_t kMaxPointers = 4096;

  // Reads it where DotNetRuntimeContractDescriptor is. kUnreadable; kMalformed, kLimit: it is none; kUnsupported: of a
  // 32-bit runtime, or of a version that is not known.
  [[nodiscard]] static Expected<Descriptor> read(const Memory& memory, std::uint64_t address);

  // Of a .NET before 10: `found`, its descriptor, or one that is empty, with what it does not say. The version counts
  // where the descriptor is empty. kUnsupported: that version is not known; kUnreadable: the table at `dac_table` is
  // not written yet.
  [[nodiscard]] static Expected<Descriptor> of_known(Descriptor found, const Memory& memory, std::uint64_t dac_table,
                                                     std::uint32_t version);
  [[nodiscard]] bool is_empty() const { return types_.empty(); }

  // 0: the runtime does not have that contract.
  [[nodiscard]] std::uint64_t contract(std::string_view name) const;
  // By "Type.Field". A field that is asked for and missing is a fault of the whole reader: see Layout.
  [[nodiscard]] std::optional<std::uint32_t> offset(std::string_view type, std::string_view field) const;
  [[nodiscard]] std::optional<std::uint32_t> size(std::string_view type) const;
  // A number or an address, whichever it is.
  [[nodiscard]] std::optional<std::uint64_t> global(std::string_view name) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view name) const;
  [[nodiscard]] const std::map<std::string, std::uint64_t, std::less<>>& globals() const { return globals_; }

 private:
  struct Type {
    std::optional<std::uint32_t> size;
    std::map<std::string, std::uint32_t, std::less<>> offsets;
  };
  [[nodiscard]] Expected<void> parse(std::string_view json, std::span<const std::uint64_t> pointers,
                                     std::uint64_t address);

  std::map<std::string, Type, std::less<>> types_;
  std::map<std::string, std::uint64_t, std::less<>> globals_;
  std::map<std::string, std::string, std::less<>> texts_;
  std::map<std::string, std::uint64_t, std::less<>> contracts_;
};

class Layout : public Needed {
 public:
  explicit Layout(const Descriptor& descriptor) : descriptor_(descriptor) {}
  [[nodiscard]] std::uint32_t field(const char* type, const char* field) {
    return need(descriptor_.offset(type, field), "the runtime does not tell of a field that is needed");
  }
  [[nodiscard]] std::uint32_t size(const char* type) {
    return need(descriptor_.size(type), "the runtime does not tell of a size that is needed");
  }
  [[nodiscard]] std::uint64_t global(const char* name) {
    return need(descriptor_.global(name), "the runtime does not tell of a global that is needed");
  }
  // Of versions `first` to `last` of a contract.
  [[nodiscard]] std::uint64_t contract(const char* name, const char* unknown, std::uint64_t first, std::uint64_t last) {
    const std::uint64_t version = descriptor_.contract(name);
    if (version < first || version > last) note({ErrorCode::kUnsupported, unknown, 0, version});
    return version;
  }

 private:
  const Descriptor& descriptor_;
};

}  // namespace windlass::runtimes::coreclr
