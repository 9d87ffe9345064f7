// The places where a Ruby 3.1, 3.2 or 3.3 keeps the frames of its threads. Ruby's structures do not describe
// themselves. They are the same from 3.1.0 to 3.1.7. The fields that are the same in all are in bpf/windlass_ruby.h.
//
// From 3.2 on, a Ruby that was built with YJIT has more fields than one that was not.
//
// ruby/ruby, branches ruby_3_1 to ruby_3_3: version.c (ruby_api_version), vm.c (ruby_current_ec), symbol.h
// (rb_symbols_t).
#pragma once

#include <cstdint>

#include "runtimes/evaluator.h"
#include "windlass/error.h"
#include "windlass/walk.h"
#include "windlass_interpreter_layout.h"

namespace windlass::runtimes::ruby {

struct Layout {
  wl_interpreter interpreter;
  std::uint64_t symbols = 0;  // address of the table of identifiers
  std::uint32_t lines = 0;    // in a body: the table of lines
};

// vm_exec(), which each activation of the evaluator has one frame of. The instructions run in vm_exec_core(), which it
// calls. Ruby 3.3 does not export it, but rb_iseq_eval(), which ends with a jump there.
[[nodiscard]] Expected<Evaluator> find_vm_exec(const Memory& memory, std::uint64_t base);

// Of the image at `base`, whose ruby_api_version is at `version`. kUnsupported: another version, or one without what is
// needed; kUnreadable.
[[nodiscard]] Expected<Layout> read_layout(const Memory& memory, std::uint64_t base, std::uint64_t version);

}  // namespace windlass::runtimes::ruby
