#include "symbols/stack_text.h"

#include <fmt/format.h>

#include "base/registers.h"
#include "base/shown_format.h"

namespace windlass::symbols {

SourceFrame own_function(const NamedAddress& at) {
  return at.frames.empty() || at.frames.back().inlined ? SourceFrame() : at.frames.back();
}

std::uint64_t offset_in_module(CodeAddress pc, const NamedAddress& at) { return at.offset + (pc.value() - at.lookup); }

void StackText::frame(const ShownFrame& frame) {
  const std::uint64_t pc = frame.registers.pc().value();
  for (std::size_t i = 0; i < frame.at.frames.size(); ++i) {
    const SourceFrame& call = frame.at.frames[i];
    if (!call.inlined || !(options_.inlines || call.interpreted)) continue;
    const char* what = call.interpreted ? "interpreted" : "inlined";
    out_.text(shown_format("#{:<3} {:#018x} {}", number_++, pc, call.function));
    arguments(frame, i);
    out_.text(shown_format(" ({})", what));
    source(call);
    out_.character('\n');
  }
  out_.text(shown_format("#{:<3} {:#018x} ", number_++, pc));
  place(frame);
  if (!own_function(frame.at).function.empty()) arguments(frame, frame.at.frames.size() - 1);
  if (frame.signal_frame) out_.text(" (interrupted)");
  if (frame.certainty >= FrameCertainty::kChained) out_.text(fmt::format(" ({})", certainty_name(frame.certainty)));
  const SourceFrame own = own_function(frame.at);
  source(own);
  if (options_.verbose >= 1) {
    if (!own.function.empty()) out_.text(shown_format(" in {}", frame.at.module));
    out_.text(shown_format(" [{}, {}]", origin_name(frame.origin), certainty_name(frame.certainty)));
  }
  out_.character('\n');
  if (options_.verbose >= 2) registers(frame.registers);
}

void StackText::end(WalkEnd end, const Error& error) {
  if (end != WalkEnd::kComplete) out_.text(shown_format("    [{}: {}]\n", end_name(end), error.text()));
}

void StackText::place(const ShownFrame& frame) {
  const NamedAddress& at = frame.at;
  const std::uint64_t offset = offset_in_module(frame.registers.pc(), at);
  if (const SourceFrame own = own_function(at); !own.function.empty()) {
    out_.text(shown(own.function));
    if (at.function_begin != 0) out_.text(shown_format("+{:#x}", offset - at.function_begin));
  } else if (!at.module.empty()) {
    out_.text(shown_format("{}+{:#x}", at.module, offset));
  } else {
    out_.text("???");
  }
}

// As GDB writes them: " (argc=1, argv=0x7ffe0010)".
void StackText::arguments(const ShownFrame& frame, std::size_t function) {
  if (function >= frame.arguments.size() || !frame.arguments[function].known) return;
  out_.text(" (");
  bool is_first = true;
  for (const Argument& argument : frame.arguments[function].arguments) {
    if (!is_first) out_.text(", ");
    is_first = false;
    out_.text(shown_format("{}={}", argument.name.empty() ? "[unnamed]" : argument.name, argument.value));
  }
  out_.character(')');
}

// What an interpreter runs is known by its file and line, or not at all. WebAssembly has no lines.
void StackText::source(const SourceFrame& at) {
  if (!(options_.lines || at.interpreted) || at.file.empty()) return;
  out_.text(shown_format(" at {}", at.file));
  if (at.line != 0) out_.text(shown_format(":{}", at.line));
}

void StackText::registers(const Registers& registers) {
  int column = 0;
  registers.for_each([&](RegisterNumber number, std::uint64_t value) {
    out_.text(shown_format("{}{:>6}={:#018x}", column == 0 ? "    " : "",
                           register_text(registers.architecture(), number), value));
    if (++column == 4) {
      out_.character('\n');
      column = 0;
    }
  });
  if (column != 0) out_.character('\n');
}

}  // namespace windlass::symbols
