// The places where a Ruby 3.1 keeps the frames of its threads. Ruby's structures do not describe themselves. They are
// the same from 3.1.0 to 3.1.7. The fields of frames are in bpf/windlass_ruby.h.
//
// ruby/ruby, branch ruby_3_1: version.c (ruby_api_version), vm.c (ruby_current_ec), symbol.h (rb_symbols_t).
#pragma once

#include <cstdint>

#include "windlass/error.h"
#include "windlass/walk.h"
#include "windlass_interpreter_layout.h"

namespace windlass::runtimes::ruby {

struct Layout {
  wl_interpreter interpreter;
  std::uint64_t symbols = 0;  // address of the table of identifiers
};

// Of the image at `base`, whose ruby_api_version is at `version`. kUnsupported: another version, or one without what is
// needed; kUnreadable.
[[nodiscard]] Expected<Layout> read_layout(const Memory& memory, std::uint64_t base, std::uint64_t version);

}  // namespace windlass::runtimes::ruby
