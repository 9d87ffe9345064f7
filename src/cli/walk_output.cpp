#include "cli/walk_output.h"

#include <fmt/format.h>

#include "arch/registers.h"
#include "export/json_text.h"

namespace windlass::cli {
namespace {

using exporter::json_string;

class WalkPrinter {
 public:
  WalkPrinter(std::span<const NamedAddress> names, const WalkOutputOptions& options, TextWriter& out)
      : names_(names), options_(options), out_(out) {}

  void json(const ThreadStack& walked) {
    out_.text(fmt::format("{{\"thread\":{},\"name\":{}", walked.thread->id, json_string(walked.thread->name)));
    if (walked.thread->faulted) out_.text(",\"faulted\":true");
    out_.text(",\"frames\":[");
    bool first = true;
    for (const FrameEntry& frame : walked.frames) {
      if (!first) out_.character(',');
      first = false;
      json(frame);
    }
    out_.text(fmt::format("],\"end\":{}", json_string(end_name(walked.end))));
    if (walked.end != WalkEnd::kComplete)
      out_.text(fmt::format(",\"error\":{},\"where\":{}", json_string(walked.error.what), walked.error.where));
    out_.text("}\n");
  }

  void text(const ThreadStack& walked) {
    const Thread& thread = *walked.thread;
    out_.text(fmt::format("TID {}{}{}{}:\n", thread.id, thread.name.empty() ? "" : " ", thread.name,
                          thread.faulted ? " (crashed)" : ""));
    std::size_t number = 0;
    for (const FrameEntry& frame : walked.frames) text(frame, number);
    if (walked.end != WalkEnd::kComplete)
      out_.text(fmt::format("    [{}: {}]\n", end_name(walked.end), walked.error.text()));
  }

 private:
  void json(const FrameEntry& frame) {
    const NamedAddress& at = names_[frame.address];
    out_.text(fmt::format("{{\"pc\":{},\"sp\":{}", frame.registers.pc().value(), frame.registers.sp()));
    if (!at.module.empty())
      out_.text(fmt::format(",\"module\":{},\"offset\":{}", json_string(at.module), offset_in_module(frame, at)));
    else
      out_.text(",\"module\":null,\"offset\":null");
    out_.text(fmt::format(",\"function\":{}", at.frames.empty() ? "null" : json_string(at.frames.back().function)));
    if (at.function_begin != 0)
      out_.text(fmt::format(",\"function_offset\":{}", offset_in_module(frame, at) - at.function_begin));
    if (options_.lines && !at.frames.empty() && at.frames.back().line != 0)
      out_.text(fmt::format(",\"file\":{},\"line\":{}", json_string(at.frames.back().file), at.frames.back().line));
    if (options_.inlines && at.frames.size() > 1) json_inlined(at);
    out_.text(fmt::format(",\"origin\":{}", json_string(origin_name(frame.origin))));
    if (frame.signal_frame) out_.text(",\"signal\":true");
    if (options_.verbose >= 2) json_registers(frame);
    out_.character('}');
  }

  void json_inlined(const NamedAddress& at) {
    out_.text(",\"inlined\":[");
    for (const SourceFrame& inlined : at.frames) {
      if (!inlined.inlined) break;
      out_.text(
          fmt::format("{}{{\"function\":{}", &inlined == &at.frames.front() ? "" : ",", json_string(inlined.function)));
      if (options_.lines) out_.text(fmt::format(",\"file\":{},\"line\":{}", json_string(inlined.file), inlined.line));
      out_.character('}');
    }
    out_.character(']');
  }

  void json_registers(const FrameEntry& frame) {
    out_.text(",\"registers\":{");
    bool first = true;
    frame.registers.for_each([&](RegisterNumber number, std::uint64_t value) {
      out_.text(
          fmt::format("{}\"{}\":{}", first ? "" : ",", register_text(frame.registers.architecture(), number), value));
      first = false;
    });
    out_.character('}');
  }

  void text(const FrameEntry& frame, std::size_t& number) {
    const NamedAddress& at = names_[frame.address];
    const std::uint64_t pc = frame.registers.pc().value();
    for (const SourceFrame& inlined : at.frames) {
      if (!options_.inlines || !inlined.inlined) break;
      out_.text(fmt::format("#{:<3} {:#018x} {} (inlined)", number++, pc, inlined.function));
      source(inlined);
      out_.character('\n');
    }
    out_.text(fmt::format("#{:<3} {:#018x} ", number++, pc));
    place(frame, at);
    if (frame.signal_frame) out_.text(" (interrupted)");
    if (!at.frames.empty()) source(at.frames.back());
    if (options_.verbose >= 1) {
      if (!at.frames.empty()) out_.text(fmt::format(" in {}", at.module));
      out_.text(fmt::format(" [{}]", origin_name(frame.origin)));
    }
    out_.character('\n');
    if (options_.verbose >= 2) registers(frame);
  }

  void place(const FrameEntry& frame, const NamedAddress& at) {
    if (!at.frames.empty()) {
      out_.text(at.frames.back().function);
      if (at.function_begin != 0) out_.text(fmt::format("+{:#x}", offset_in_module(frame, at) - at.function_begin));
    } else if (!at.module.empty()) {
      out_.text(fmt::format("{}+{:#x}", at.module, offset_in_module(frame, at)));
    } else {
      out_.text("???");
    }
  }

  void source(const SourceFrame& at) {
    if (options_.lines && at.line != 0) out_.text(fmt::format(" at {}:{}", at.file, at.line));
  }

  void registers(const FrameEntry& frame) {
    int column = 0;
    frame.registers.for_each([&](RegisterNumber number, std::uint64_t value) {
      out_.text(fmt::format("{}{:>6}={:#018x}", column == 0 ? "    " : "",
                            register_text(frame.registers.architecture(), number), value));
      if (++column == 4) {
        out_.character('\n');
        column = 0;
      }
    });
    if (column != 0) out_.character('\n');
  }

  // Of the pc as it is, as the module numbers it; what is named may be the call before it.
  static std::uint64_t offset_in_module(const FrameEntry& frame, const NamedAddress& at) {
    return at.offset + (frame.registers.pc().value() - at.lookup);
  }

  std::span<const NamedAddress> names_;
  const WalkOutputOptions& options_;
  TextWriter& out_;
};

}  // namespace

void print_walk(const Target& target, const ThreadStacks& walked, std::span<const NamedAddress> names,
                const WalkOutputOptions& options, TextWriter& out) {
  WalkPrinter printer(names, options, out);
  if (!options.json && target.process != 0) out.text(fmt::format("PID {} {}\n", target.process, target.command));
  for (const ThreadStack& thread : walked.threads) options.json ? printer.json(thread) : printer.text(thread);
}

}  // namespace windlass::cli
