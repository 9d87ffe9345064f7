// Finds the function of a pc in the generated code of an Erlang virtual machine. The ranges of the modules' code are
// searched first, then the table of functions at the begin of each module. Code that all modules share is recognised,
// but nothing more is known of it.
#pragma once

#include <cstdint>
#include <optional>

#include "runtimes/beam/layout.h"
#include "windlass/walk.h"

namespace windlass::runtimes::beam {

// A function; its first kInfoSize bytes are its name's and the code that is run where no clause fits.
struct Function {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t module = 0, name = 0;  // atoms
  std::uint64_t arity = 0;
  bool is_last = false;  // of its module
  bool operator==(const Function&) const = default;
};

class CodeMap {
 public:
  static constexpr std::uint64_t kMaxModules = 1U << 20;
  static constexpr std::uint64_t kMaxFunctions = 1U << 20;  // of a module
  static constexpr std::uint64_t kMaxCode = 4U << 20;       // bytes of one function

  explicit CodeMap(const Layout& layout) : layout_(layout) {}

  // kNotFound: no module has the address, or only in front of or behind its functions. Others: what is wrong.
  [[nodiscard]] Expected<Function> find(const Memory& memory, std::uint64_t pc) const;
  // Has a module the address? False, too, where it cannot be read.
  [[nodiscard]] bool in_module(const Memory& memory, std::uint64_t pc) const {
    return module_at(memory, pc).has_value();
  }

 private:
  [[nodiscard]] Expected<std::uint64_t> module_at(const Memory& memory, std::uint64_t pc) const;

  Layout layout_;
};

}  // namespace windlass::runtimes::beam
