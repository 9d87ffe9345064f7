// Names of the functions that Ruby runs, as in its backtraces. A sequence of instructions has a label, a path and
// lines. A method written in C has its name, and the path "<cfunc>", as in rb_profile_frame_path().
//
// ruby/ruby, branches ruby_3_1 to ruby_3_3: vm_core.h (rb_iseq_constant_body), iseq.c (succ_index_table), iseq.h
// (iseq_insn_info_entry), method.h, symbol.c, include/ruby/internal/core/rstring.h and rarray.h.
#pragma once

#include <cstdint>

#include "lookup/sources/name_source.h"
#include "runtimes/ruby/layout.h"

namespace windlass::runtimes::ruby {

// As long as the frame's code is what it was: kNotFound where it is not, or not to be read any more.
[[nodiscard]] Expected<sources::NamedFunction> read_name(const Memory& memory, const Layout& layout,
                                                         const wl_interpreted_frame& frame);

}  // namespace windlass::runtimes::ruby
