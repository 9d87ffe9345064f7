// Finds an export of a PE image in its loaded image, as dynamic_symbol.h does of an ELF image. "The .edata Section" of
// "PE Format" (Microsoft).
#pragma once

#include <cstdint>
#include <string_view>

#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes {

// Does a PE image begin at `base`? One read.
[[nodiscard]] bool has_pe_header(const Memory& memory, std::uint64_t base);

// `base` if the x64 image there exports `name`. Logarithmic in the number of its names. kNotFound: it does not.
// kUnreadable: its exports cannot be read, as while it is being loaded.
[[nodiscard]] Expected<std::uint64_t> find_pe_exporting(const Memory& memory, std::uint64_t base,
                                                        std::string_view name);

// False while a loader still copies the parts of a PE image: its exports are not there yet. Wine maps zeros first. True
// of all else.
[[nodiscard]] bool is_pe_loaded(const Memory& memory, std::uint64_t base);

}  // namespace windlass::runtimes
