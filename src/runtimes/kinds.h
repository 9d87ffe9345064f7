// The kinds of runtimes that are looked for: kinds.cpp, or kinds_of_demo.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/mapped_file.h"
#include "runtimes/interpreter.h"
#include "runtimes/runtime_code.h"
#include "windlass/function_ref.h"
#include "windlass/walk.h"

namespace windlass::runtimes {

// How a kind is found in an image, and opened. Null: the file shows that it is none.
struct Kind {
  Expected<std::uint64_t> (*find)(const Memory& memory, std::uint64_t base);
  std::unique_ptr<Runtime> (*open)(std::shared_ptr<const Memory> memory, std::uint64_t at,
                                   FunctionRef<Expected<MappedFile>()> file);
};
[[nodiscard]] std::span<const Kind> kinds();

// Those that make no code, and are known by what the image exports alone.
struct InterpreterKind {
  Expected<std::uint64_t> (*find)(const Memory& memory, std::uint64_t base);
  Expected<std::unique_ptr<manager::Interpreter>> (*open)(const Memory& memory, std::uint64_t base);
};
[[nodiscard]] std::span<const InterpreterKind> interpreter_kinds();

}  // namespace windlass::runtimes
