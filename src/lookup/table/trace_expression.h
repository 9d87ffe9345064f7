// The few shapes of DWARF expressions that compilers, assemblers and linkers put into call frame information of code
// that matters to a profiler. Everything else is left to user space.
#pragma once

#include <cstdint>

#include "windlass/bytes.h"

namespace windlass::table {

struct SimpleExpression {
  enum class Kind : std::uint8_t {
    kOther,
    kRegister,  // reg + offset
    kLoad,      // [reg + offset] + argument
    kPlt,       // reg + offset + ((pc & 15) >= argument ? 8 : 0)
  };
  Kind kind = Kind::kOther;
  std::uint8_t argument = 0;
  std::uint64_t reg = 0;
  std::int64_t offset = 0;
};

// Who emits what:
//   breg N off                                   plain register, e.g. glibc's assembly
//   breg N off; deref                            GCC's DRAP frames (breg6), glibc's signal restorer (breg7)
//   breg N off; deref; plus_uconst k             OpenSSL's perlasm (.cfi_cfa_expression %rsp+off,deref,+8)
//   breg N off; deref; litK; plus                SBCL's call_into_lisp
//   breg7 8; breg16 0; lit15; and; litK; ge; lit3; shl; plus      ld's and lld's lazy PLT (K = 11, with IBT others)
[[nodiscard]] SimpleExpression recognise(ByteView expression);

}  // namespace windlass::table
