#include "cli/walk_output.h"

#include <fmt/format.h>

#include "arch/registers.h"
#include "base/json_writer.h"

namespace windlass::cli {
namespace {

// The names of one frame.
struct Named {
  const profile::Location* location;
  const profile::Module* module;      // null: the pc lies in nothing known
  const profile::Function* function;  // null: no name; the one that has a frame of its own
};

class WalkPrinter {
 public:
  WalkPrinter(const Target& target, const ThreadStacks& walked, const WalkOutputOptions& options, TextWriter& out)
      : target_(target), names_(walked.names), options_(options), out_(out), json_(out) {}

  void json(const ThreadStack& walked) {
    json_.begin_object();
    json_.member("thread", walked.thread->id);
    json_.member("name", walked.thread->name);
    if (walked.thread->faulted) json_.member("faulted", true);
    json_.key("frames");
    json_.begin_array();
    for (const FrameEntry& frame : walked.frames) json(frame);
    json_.end_array();
    json_.member("end", end_name(walked.end));
    if (walked.end != WalkEnd::kComplete) {
      json_.member("error", walked.error.what);
      json_.member("where", walked.error.where);
    }
    json_.end_object();
    json_.end_text();
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
    json_.begin_object();
    json_.member("pc", frame.registers.pc().value());
    json_.member("sp", frame.registers.sp());
    const std::uint64_t offset = offset_in_module(frame, at);
    json_.member_or_null("module", at.module != nullptr, at.module != nullptr ? std::string_view(at.module->path) : "");
    json_.member_or_null("offset", at.module != nullptr, offset);
    json_.member_or_null("function", at.function != nullptr,
                         at.function != nullptr ? std::string_view(at.function->name) : "");
    if (at.location->function_begin != 0) json_.member("function_offset", offset - at.location->function_begin);
    if (at.function != nullptr && at.location->lines.back().line != 0) json_source(at.location->lines.back());
    if (options_.inlines && at.location->lines.size() > 1) json_inlined(*at.location);
    json_.member("origin", origin_name(frame.origin));
    if (frame.signal_frame) json_.member("signal", true);
    if (options_.verbose >= 2) json_registers(frame);
    json_.end_object();
  }

  void json_source(const profile::Line& line) {
    if (!options_.lines) return;
    json_.member("file", names_.functions[line.function].file);
    json_.member("line", line.line);
  }

  void json_inlined(const profile::Location& location) {
    json_.key("inlined");
    json_.begin_array();
    for (std::size_t i = 0; i + 1 < location.lines.size(); ++i) {
      json_.begin_object();
      json_.member("function", names_.functions[location.lines[i].function].name);
      json_source(location.lines[i]);
      json_.end_object();
    }
    json_.end_array();
  }

  void json_registers(const FrameEntry& frame) {
    json_.key("registers");
    json_.begin_object();
    frame.registers.for_each([&](RegisterNumber number, std::uint64_t value) {
      json_.member(register_text(frame.registers.architecture(), number), value);
    });
    json_.end_object();
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
  JsonWriter json_;
};

}  // namespace

void print_walk(const Target& target, const ThreadStacks& walked, const WalkOutputOptions& options, TextWriter& out) {
  WalkPrinter printer(target, walked, options, out);
  if (!options.json && target.process != 0) out.text(fmt::format("PID {} {}\n", target.process, target.command));
  for (const ThreadStack& thread : walked.threads) options.json ? printer.json(thread) : printer.text(thread);
}

}  // namespace windlass::cli
