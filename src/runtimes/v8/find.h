// Is V8, the JavaScript engine of node, in a process? By what its image exports for debuggers.
#pragma once

#include <cstdint>
#include <memory>

#include "base/mapped_file.h"
#include "runtimes/runtime_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::v8 {

// In the image whose first byte is mapped at `base`: gives that address. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_metadata(const Memory& memory, std::uint64_t base);

// The V8 in the image at an address, whose file is `file`. Never fails: if the image cannot be understood, the result
// finds nothing, and its problem() has the reason. Keeps the memory and the file.
[[nodiscard]] std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image,
                                            Expected<MappedFile> file);

// A V8 that exports nothing for debuggers: of deno, by the version that the file names; of Chromium, its builtins alone
// if the file shows where they are. Null: it does not. By find_large_image() any image may have one.
[[nodiscard]] Expected<std::uint64_t> find_large_image(const Memory& memory, std::uint64_t base);
[[nodiscard]] std::unique_ptr<Runtime> open_without_symbols(std::shared_ptr<const Memory> memory, std::uint64_t image,
                                                            Expected<MappedFile> file);

}  // namespace windlass::runtimes::v8
