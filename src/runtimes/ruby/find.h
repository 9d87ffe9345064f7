// Is Ruby in a process? By what its library exports.
#pragma once

#include <cstdint>
#include <memory>

#include "runtimes/interpreter.h"
#include "windlass/walk.h"

namespace windlass::runtimes::ruby {

// In the image whose first byte is mapped at `base`: the address of ruby_api_version. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_version(const Memory& memory, std::uint64_t base);

// That in the image. Errors: of read_layout() and find_evaluator().
[[nodiscard]] Expected<std::unique_ptr<manager::Interpreter>> open(const Memory& memory, std::uint64_t base);

}  // namespace windlass::runtimes::ruby
