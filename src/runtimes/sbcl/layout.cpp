#include "runtimes/sbcl/layout.h"

#include <elf.h>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::sbcl {

Expected<Layout> Layout::read(const Memory& memory, std::uint64_t image) {
  const auto header = read_value<Elf64_Ehdr>(memory, image);
  if (!header) return fail(ErrorCode::kUnreadable, "an SBCL's program cannot be read", image);
  if (header->e_machine != EM_X86_64)
    return fail(ErrorCode::kUnsupported, "an SBCL for another machine than x86-64", image);
  const auto begin = find_dynamic_symbol(memory, image, "asm_routines_start");
  const auto end = find_dynamic_symbol(memory, image, "asm_routines_end");
  if (!begin || !end) return fail(ErrorCode::kUnsupported, "an SBCL that does not export its routines", image);
  Layout to;
  to.routines_begin = read_value<std::uint64_t>(memory, *begin).value_or(0);
  to.routines_end = read_value<std::uint64_t>(memory, *end).value_or(0);
  const auto first = read_value<std::uint8_t>(memory, to.routines_begin);
  if (to.routines_begin == 0 || to.routines_end <= to.routines_begin || !first)
    return fail(ErrorCode::kUnreadable, "an SBCL whose Lisp is not loaded yet", image);
  to.code_kind = *first;
  to.packages = find_dynamic_symbol(memory, image, "lisp_package_vector").value_or(0);
  return to;
}

}  // namespace windlass::runtimes::sbcl
