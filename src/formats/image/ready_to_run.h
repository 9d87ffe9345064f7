// Methods of .NET that were compiled ahead of time (ReadyToRun): where their code begins in a PE image.
//
// dotnet/runtime, docs/design/coreclr/botr/readytorun-format.md; src/coreclr/vm/nativeformatreader.h for arrays and
// hash tables; src/coreclr/inc/corcompile.h for signatures.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/image/pe.h"

namespace windlass::image {

struct CompiledMethod {
  std::uint32_t rva = 0;     // of its first instruction
  std::uint32_t method = 0;  // its row in the table MethodDef; 0: of another module
};

// Ascending by RVA, one at an RVA. Instances of generic methods and types have the row of what they are instances of.
// kNotFound: the image has no such code. kMalformed, kOutOfRange: its header or its tables. Of hostile files: time and
// memory are linear in the two tables of methods.
[[nodiscard]] Expected<std::vector<CompiledMethod>> compiled_methods(const PeImage& image);

}  // namespace windlass::image
