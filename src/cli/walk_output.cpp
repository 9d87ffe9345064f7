#include "cli/walk_output.h"

#include <fmt/format.h>

#include "arch/registers.h"
#include "export/json_text.h"

namespace windlass::cli {
namespace {

using exporter::json_string;

// The names of one frame.
struct Named {
  const profile::Location* location;
  const profile::Module* module;      // null: the pc lies in nothing known
  const profile::Function* function;  // null: no name; the one that has a frame of its own
};

class WalkPrinter {
 public:
  WalkPrinter(const Target& target, const ThreadStacks& walked, const WalkOutputOptions& options, TextWriter& out)
      : target_(target), names_(walked.names), options_(options), out_(out) {}

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
  Named named(const FrameEntry& frame) const {
    const profile::Location& location = names_.locations[frame.location];
    return {&location, location.module < names_.modules.size() ? &names_.modules[location.module] : nullptr,
            location.lines.empty() ? nullptr : &names_.functions[location.lines.back().function]};
  }

  void json(const FrameEntry& frame) {
    const Named at = named(frame);
    out_.text(fmt::format("{{\"pc\":{},\"sp\":{}", frame.registers.pc().value(), frame.registers.sp()));
    if (at.module != nullptr)
      out_.text(fmt::format(",\"module\":{},\"offset\":{}", json_string(at.module->path), offset_in_module(frame, at)));
    else
      out_.text(",\"module\":null,\"offset\":null");
    out_.text(fmt::format(",\"function\":{}", at.function != nullptr ? json_string(at.function->name) : "null"));
    if (at.location->function_begin != 0)
      out_.text(fmt::format(",\"function_offset\":{}", offset_in_module(frame, at) - at.location->function_begin));
    if (options_.lines && at.function != nullptr && at.location->lines.back().line != 0)
      out_.text(
          fmt::format(",\"file\":{},\"line\":{}", json_string(at.function->file), at.location->lines.back().line));
    if (options_.inlines && at.location->lines.size() > 1) json_inlined(*at.location);
    out_.text(fmt::format(",\"origin\":{}", json_string(origin_name(frame.origin))));
    if (frame.signal_frame) out_.text(",\"signal\":true");
    if (options_.verbose >= 2) json_registers(frame);
    out_.character('}');
  }

  void json_inlined(const profile::Location& location) {
    out_.text(",\"inlined\":[");
    for (std::size_t i = 0; i + 1 < location.lines.size(); ++i) {
      const profile::Function& function = names_.functions[location.lines[i].function];
      out_.text(fmt::format("{}{{\"function\":{}", i == 0 ? "" : ",", json_string(function.name)));
      if (options_.lines)
        out_.text(fmt::format(",\"file\":{},\"line\":{}", json_string(function.file), location.lines[i].line));
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
    const Named at = named(frame);
    const std::uint64_t pc = frame.registers.pc().value();
    if (options_.inlines) {
      for (std::size_t i = 0; i + 1 < at.location->lines.size(); ++i) {
        const profile::Line& line = at.location->lines[i];
        out_.text(fmt::format("#{:<3} {:#018x} {} (inlined)", number++, pc, names_.functions[line.function].name));
        source(line);
        out_.character('\n');
      }
    }
    out_.text(fmt::format("#{:<3} {:#018x} ", number++, pc));
    place(frame, at);
    if (frame.signal_frame) out_.text(" (interrupted)");
    if (!at.location->lines.empty()) source(at.location->lines.back());
    if (options_.verbose >= 1) {
      if (at.module != nullptr && at.function != nullptr) out_.text(fmt::format(" in {}", at.module->path));
      out_.text(fmt::format(" [{}]", origin_name(frame.origin)));
    }
    out_.character('\n');
    if (options_.verbose >= 2) registers(frame);
  }

  void place(const FrameEntry& frame, const Named& at) {
    if (at.function != nullptr) {
      out_.text(at.function->name);
      if (at.location->function_begin != 0)
        out_.text(fmt::format("+{:#x}", offset_in_module(frame, at) - at.location->function_begin));
    } else if (at.module != nullptr) {
      out_.text(fmt::format("{}+{:#x}", at.module->path, offset_in_module(frame, at)));
    } else {
      out_.text("???");
    }
  }

  void source(const profile::Line& line) {
    const profile::Function& function = names_.functions[line.function];
    if (options_.lines && line.line != 0) out_.text(fmt::format(" at {}:{}", function.file, line.line));
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

  // As the module's file numbers it; the location is that of the lookup address, one less for a return address.
  static std::uint64_t offset_in_module(const FrameEntry& frame, const Named& at) {
    const CodeAddress pc = frame.registers.pc();
    return at.location->address + (pc.value() - pc.lookup());
  }

  const Target& target_;
  const profile::Profile& names_;
  const WalkOutputOptions& options_;
  TextWriter& out_;
};

}  // namespace

void print_walk(const Target& target, const ThreadStacks& walked, const WalkOutputOptions& options, TextWriter& out) {
  WalkPrinter printer(target, walked, options, out);
  if (!options.json && target.process != 0) out.text(fmt::format("PID {} {}\n", target.process, target.command));
  for (const ThreadStack& thread : walked.threads) options.json ? printer.json(thread) : printer.text(thread);
}

}  // namespace windlass::cli
