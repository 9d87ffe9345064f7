// Is .NET's CoreCLR in a process, and which? By the dynamic symbol that it exports for debuggers, in whatever image: a
// program of a single file has no libcoreclr.so.
#pragma once

#include <cstdint>
#include <memory>

#include "runtimes/runtime_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::coreclr {

// What an image exports for debuggers; 0: not that.
struct Exports {
  std::uint64_t descriptor = 0;  // DotNetRuntimeContractDescriptor, since .NET 9
  std::uint64_t dac_table = 0;   // g_dacTable
  std::uint64_t info = 0;        // DotNetRuntimeInfo, of programs of a single file
  std::uint64_t text = 0;        // find_version_text()
  bool x64 = true;               // what machine the image is for
};

// Gives the address of the image at `base`, if it has a runtime. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_image(const Memory& memory, std::uint64_t base);
[[nodiscard]] std::unique_ptr<Runtime> open_image(std::shared_ptr<const Memory> memory, std::uint64_t base);

// "@(#)Version 8.0.3426.52217 @Commit: ...", which each file of .NET's native code has in its data
// (src/coreclr/_version.c). Of the image at `base`; kNotFound. Reads all of its data that the file has.
[[nodiscard]] Expected<std::uint64_t> find_version_text(const Memory& memory, std::uint64_t base);

// In the image whose first byte is mapped at `base`. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_descriptor(const Memory& memory, std::uint64_t base);

// The runtime of these exports. Never fails: if it cannot be understood, the result finds nothing, and its problem()
// has the reason. Keeps the memory.
[[nodiscard]] std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, const Exports& exports);

}  // namespace windlass::runtimes::coreclr
