// Names of a CoreCLR's methods, for example "Namespace.Type.Method[T](Int32, String)". The runtime prints methods like
// this in stack traces, but with the parameters' names. Code without metadata gets the runtime's own name
// (IL_STUB_PInvoke).
//
// dotnet/runtime, docs/design/datacontracts: RuntimeTypeSystem.md (MethodDesc, MethodTable), Loader.md,
// EcmaMetadata.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "runtimes/coreclr/descriptor.h"
#include "runtimes/coreclr/metadata.h"
#include "windlass/walk.h"

namespace windlass::runtimes::coreclr {

class Names {
 public:
  static constexpr std::size_t kMaxModules = 4096;  // whose metadata is kept in view

  // kUnsupported: a version that is not known, or a field that is missing.
  [[nodiscard]] static Expected<Names> make(const Descriptor& descriptor);

  // Empty: not known.
  [[nodiscard]] std::string name_of(const Memory& memory, std::uint64_t method_desc);

 private:
  struct Image {
    std::uint64_t base = 0;    // 0: not known
    std::optional<bool> flat;  // laid out as in the file; nothing: not known
  };
  [[nodiscard]] Image image_of(const Memory& memory, std::uint64_t module) const;
  [[nodiscard]] const Metadata* metadata_of(const Memory& memory, std::uint64_t module);

  std::uint32_t method_token_ = 0, method_chunk_index_ = 0, method_flags_ = 0, method_name_ = 0;
  std::uint32_t chunk_size_ = 0, chunk_table_ = 0, chunk_token_ = 0;
  std::uint32_t table_module_ = 0;
  std::optional<std::uint32_t> table_flags2_;  // since .NET 9: with the row of the TypeDef
  std::uint32_t module_base_ = 0;              // .NET 9; others say how the image is laid out, too
  std::uint32_t module_assembly_ = 0, assembly_image_ = 0, image_layout_ = 0, layout_base_ = 0, layout_flags_ = 0;
  std::uint64_t alignment_ = 0, token_bits_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Metadata>> modules_;  // by their image's base; null: unreadable
};

}  // namespace windlass::runtimes::coreclr
