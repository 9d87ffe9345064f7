// Is CPython in a process? By what every program or library with the interpreter in it exports.
#pragma once

#include <cstdint>
#include <memory>

#include "runtimes/interpreter.h"
#include "runtimes/python/layout.h"
#include "windlass/walk.h"

namespace windlass::runtimes::python {

// In the image whose first byte is mapped at `base`: the address of _PyRuntime. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_runtime(const Memory& memory, std::uint64_t base);

// That in the image. Errors: of read_layout() and find_evaluator().
[[nodiscard]] Expected<std::unique_ptr<manager::Interpreter>> open(const Memory& memory, std::uint64_t base);

}  // namespace windlass::runtimes::python
