// Maps a pc to the function of an SBCL that has it.
//
// Functions lie in code objects (src/runtime/code.h): a header, constants, the code of all functions, and at the end a
// table of where the functions begin. The constants of SBCL 2.2.9 begin with four of each function, its name first.
// SBCL 2.5 and 2.6 have these four in the debug information, behind its own five fields. Each function begins with a
// word that leads back to the header. The collector finds a code object by the order of all objects on a page. Here it
// is sought from the pc downwards. What looks like a header is one if its table and its functions agree.
#pragma once

#include <cstdint>

#include "runtimes/sbcl/layout.h"
#include "windlass/walk.h"

namespace windlass::runtimes::sbcl {

struct CodeObject {
  std::uint64_t address = 0;
  std::uint64_t header = 0, sizes = 0;  // its first two words
  std::uint64_t serial = 0;             // what its code begins with: its number
  bool operator==(const CodeObject&) const = default;
};

struct Function {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t entry = 0;  // its first instruction
  std::uint64_t name = 0;   // the word with its name; 0: there is none
  // Its name is in the object's debug information, and a symbol's header has the package: SBCL 2.5 and 2.6.
  bool is_apart = false;
  CodeObject object;
  bool operator==(const Function&) const = default;
};

class CodeMap {
 public:
  static constexpr std::uint64_t kMaxCode = 1U << 20;  // bytes from a header to a pc in its object
  static constexpr std::uint64_t kMaxObject = 1U << 24;

  explicit CodeMap(const Layout& layout) : layout_(layout) {}

  // kNotFound: no function of Lisp is there. Reads at most kMaxCode.
  [[nodiscard]] Expected<Function> find(const Memory& memory, std::uint64_t pc) const;
  // Is what find() gave still there?
  [[nodiscard]] static bool is_still(const Memory& memory, const CodeObject& object);

 private:
  [[nodiscard]] bool find_in(const Memory& memory, const CodeObject& object, std::uint64_t pc, Function& to) const;

  Layout layout_;
};

}  // namespace windlass::runtimes::sbcl
