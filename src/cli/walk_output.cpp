#include "cli/walk_output.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/registers.h"
#include "base/shown_format.h"
#include "walk/target/equal_stacks.h"

namespace windlass::cli {
namespace {

using walk::FrameEntry;
using walk::ThreadStack;

constexpr std::size_t kMostRanges = 4, kMostNames = 4;  // of threads with equal stacks

// "worker", "worker-0, worker-1, 998 more": each name once.
std::string names_of(std::span<const ThreadStack> all, std::span<const std::size_t> group) {
  std::vector<std::string_view> names;
  std::unordered_set<std::string_view> seen;
  for (const std::size_t i : group)
    if (const std::string_view name = all[i].thread->name; !name.empty() && seen.insert(name).second)
      names.push_back(name);
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) text.append(i == 0 ? "" : ", ").append(names[i]);
  if (names.size() > kMostNames) text += fmt::format(", {} more", names.size() - kMostNames);
  return text;
}

// Each thread by itself.
std::vector<std::vector<std::size_t>> alone(std::size_t threads) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < threads; ++i) groups.push_back({i});
  return groups;
}

// All values of a stack. None holds a line feed.
std::string values_of(const StackArguments& stack) {
  std::string text;
  for (const auto& frame : stack)
    for (const FunctionArguments& function : frame)
      for (const Argument& argument : function.arguments) text.append(argument.value).append("\n");
  return text;
}

// Threads with equal stacks, by their functions' arguments.
std::vector<std::vector<std::size_t>> with_equal_arguments(const std::vector<std::size_t>& stacks,
                                                           std::span<const StackArguments> arguments) {
  if (arguments.empty()) return {stacks};
  std::vector<std::vector<std::size_t>> groups;
  std::map<std::string, std::size_t> known;
  for (const std::size_t thread : stacks) {
    const auto [group, is_new] = known.try_emplace(values_of(arguments[thread]), groups.size());
    if (is_new) groups.emplace_back();
    groups[group->second].push_back(thread);
  }
  return groups;
}

class WalkPrinter {
 public:
  WalkPrinter(const NamedWalk& found, const WalkOutputOptions& options, const WalkTurn& turn, TextWriter& out)
      : found_(found), options_(options), turn_(turn), out_(out), json_(out) {}

  void json(std::size_t thread, std::uint64_t process) {
    const ThreadStack& walked = found_.walked.threads[thread];
    json_.begin_object();
    if (options_.processes) json_.member("process", process);
    if (options_.repeat != 1) {
      json_.member("walk", turn_.number);
      json_.member("stopped_ns", turn_.stopped_ns);
    }
    json_.member("thread", walked.thread->id);
    json_.member("name", walked.thread->name);
    if (walked.thread->faulted) json_.member("faulted", true);
    if (walked.thread->kernel_only) json_.member("kernel_only", true);
    json_.key("frames");
    json_.begin_array();
    for (std::size_t i = 0; i < walked.frames.size(); ++i) json(walked.frames[i], arguments_of(thread, i));
    json_.end_array();
    json_.member("end", end_name(walked.end));
    if (walked.end != WalkEnd::kComplete) {
      json_.member("error", walked.error.what);
      json_.member("where", walked.error.where);
    }
    json_.end_object();
    json_.end_text();
  }

  // The stack of one thread or of several.
  void text(std::span<const std::size_t> group) {
    const std::span<const ThreadStack> all = found_.walked.threads;
    const ThreadStack& walked = all[group.front()];
    const Thread& thread = *walked.thread;
    std::vector<std::uint64_t> ids;
    for (const std::size_t i : group) ids.push_back(all[i].thread->id);
    const std::string names = names_of(all, group);
    out_.text(shown_format("TID {}{}{}{}", walk::id_ranges(ids, kMostRanges), names.empty() ? "" : " ", names,
                           thread.faulted ? " (crashed)" : ""));
    if (group.size() > 1) out_.text(fmt::format(" ({} threads)", group.size()));
    out_.text(":\n");
    if (thread.kernel_only) out_.text("    [runs in the kernel alone: no user stack]\n");
    symbols::StackText lines(options_.text, out_);
    for (std::size_t i = 0; i < walked.frames.size(); ++i) {
      const FrameEntry& frame = walked.frames[i];
      lines.frame({frame.registers, frame.origin, frame.certainty, frame.signal_frame, found_.names[frame.address],
                   arguments_of(group.front(), i)});
    }
    lines.end(walked.end, walked.error);
  }

 private:
  // Of a thread's frame.
  [[nodiscard]] std::span<const FunctionArguments> arguments_of(std::size_t thread, std::size_t frame) const {
    if (found_.arguments.empty()) return {};
    return found_.arguments[thread][frame];
  }

  void json(const FrameEntry& frame, std::span<const FunctionArguments> arguments) {
    const NamedAddress& at = found_.names[frame.address];
    const SourceFrame own = symbols::own_function(at);
    const std::uint64_t offset = symbols::offset_in_module(frame.registers.pc(), at);
    json_.begin_object();
    json_.member("pc", frame.registers.pc().value());
    json_.member("sp", frame.registers.sp());
    json_.member_or_null("module", !at.module.empty(), at.module);
    json_.member_or_null("offset", !at.module.empty(), offset);
    json_.member_or_null("function", !own.function.empty(), own.function);
    if (at.function_begin != 0) json_.member("function_offset", offset - at.function_begin);
    if (!own.file.empty()) json_source(own);
    if (!own.function.empty() && !arguments.empty()) json_arguments(arguments.back());
    json_calls("interpreted", at, arguments, [](const SourceFrame& it) { return it.interpreted; });
    if (options_.text.inlines)
      json_calls("inlined", at, arguments, [](const SourceFrame& it) { return it.inlined && !it.interpreted; });
    json_.member("origin", origin_name(frame.origin));
    json_.member("certainty", certainty_name(frame.certainty));
    if (frame.signal_frame) json_.member("signal", true);
    if (options_.text.verbose >= 2) json_registers(frame);
    json_.end_object();
  }

  void json_source(const SourceFrame& at) {
    if (!options_.text.lines && !at.interpreted) return;
    json_.member("file", at.file);
    if (at.line != 0) json_.member("line", at.line);
  }

  template <typename Is>
  void json_calls(const char* key, const NamedAddress& at, std::span<const FunctionArguments> arguments, Is&& is) {
    if (std::ranges::none_of(at.frames, is)) return;
    json_.key(key);
    json_.begin_array();
    for (std::size_t i = 0; i < at.frames.size(); ++i) {
      const SourceFrame& call = at.frames[i];
      if (!is(call)) continue;
      json_.begin_object();
      json_.member("function", call.function);
      json_source(call);
      if (!arguments.empty()) json_arguments(arguments[i]);
      json_.end_object();
    }
    json_.end_array();
  }

  void json_arguments(const FunctionArguments& of) {
    if (!of.known) return;
    json_.key("arguments");
    json_.begin_array();
    for (const Argument& argument : of.arguments) {
      json_.begin_object();
      json_.member("name", argument.name);
      if (!argument.type.empty()) json_.member("type", argument.type);
      json_.member("value", argument.value);
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

  NamedWalk found_;
  const WalkOutputOptions& options_;
  const WalkTurn& turn_;
  TextWriter& out_;
  JsonWriter json_;
};

}  // namespace

void print_walk(const Target& target, const NamedWalk& found, const WalkOutputOptions& options, const WalkTurn& turn,
                TextWriter& out) {
  WalkPrinter printer(found, options, turn, out);
  const std::span<const ThreadStack> threads = found.walked.threads;
  if (!options.json && target.process != 0) out.text(shown_format("PID {} {}\n", target.process, target.command));
  if (!options.json && options.repeat != 1)
    out.text(shown_format("walk {}{}, stopped for {:.3f} ms\n", turn.number,
                          options.repeat == 0 ? "" : fmt::format(" of {}", options.repeat),
                          static_cast<double>(turn.stopped_ns) / 1e6));
  if (options.json) {
    for (std::size_t i = 0; i < threads.size(); ++i) printer.json(i, target.process);
    return;
  }
  // With the registers no two threads are equal.
  const bool each = options.each || options.text.verbose >= 2;
  for (const auto& stacks : each ? alone(threads.size()) : walk::equal_stacks(threads))
    for (const auto& group : with_equal_arguments(stacks, found.arguments)) printer.text(group);
}

}  // namespace windlass::cli
