// Names of .NET's methods that were compiled ahead of time, from the image's own tables:
// "Namespace.Type.Method(Int32)".
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "formats/image/ready_to_run.h"
#include "runtimes/coreclr/metadata.h"
#include "symbols/symbol_result.h"

namespace windlass::symbols {

// One image's, whose bytes outlive it. One thread at a time.
class NetNames {
 public:
  // Null: the image has no such methods, or its tables cannot be read.
  [[nodiscard]] static std::unique_ptr<NetNames> make(const image::PeImage& image);

  // Adds the name of the method that `rva` is in to names' address number `index`, and where the method begins.
  // `begin`: of the function of the image's function table that `rva` is in. A handler belongs to the method in front.
  bool name(std::size_t index, std::uint32_t begin, ModuleNames& names) const;
  [[nodiscard]] const std::vector<image::CompiledMethod>& methods() const { return methods_; }

 private:
  class FileMemory;
  NetNames(std::vector<image::CompiledMethod> methods, std::shared_ptr<const Memory> file,
           const runtimes::coreclr::MetadataTables& tables);

  std::vector<image::CompiledMethod> methods_;
  std::shared_ptr<const Memory> file_;
  runtimes::coreclr::MetadataTables tables_;
  runtimes::coreclr::Metadata metadata_;
};

}  // namespace windlass::symbols
