#include "windlass/stack.h"

#include <string>
#include <utility>

#include <pthread.h>
#include <unistd.h>

#include "base/registers.h"
#include "base/text_writer.h"
#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "runtimes/find.h"
#include "symbols/stack_text.h"
#include "walk/inside.h"
#include "walk/interpreted.h"
#include "walk/own/memory.h"
#include "walk/own/own_memory.h"
#include "walk/target/thread_stacks.h"

namespace windlass {
namespace {

// This process as a target of one thread, which is not stopped.
Target own_target(const Registers& from) {
  Target own(TargetKind::kProcess, AddressSpace::self());
  own.process = static_cast<std::uint64_t>(::getpid());
  Thread& thread = own.threads.emplace_back();
  thread.id = static_cast<std::uint64_t>(::gettid());
  char name[16] = {};
  if (::pthread_getname_np(::pthread_self(), name, sizeof name) == 0) thread.name = name;
  thread.registers = from;
  if (from.architecture() == Architecture::kX86_64 && !from.has(x86_64::kFsBase))
    thread.registers.set(x86_64::kFsBase, walk::thread_pointer());
  std::shared_ptr<const Memory> memory = std::make_shared<walk::OwnMemory>();
  const auto maps = os::parse_proc_maps(os::read_proc_file("/proc/self/maps"));
  const manager::Interpreters interpreters = runtimes::find_interpreters(maps, [&] { return memory; }, {});
  walk::Inside::interpreted(own) = walk::Interpreted::of(interpreters);
  return own;
}

NamedStack named(const Target& target, const walk::ThreadStack& walked, const std::vector<NamedAddress>& names,
                 const std::shared_ptr<const Symbolizer>& texts, bool with_arguments) {
  NamedStack stack{.thread = *walked.thread, .frames = {}, .end = walked.end, .error = walked.error, .texts = texts};
  stack.frames.reserve(walked.frames.size());
  for (const walk::FrameEntry& frame : walked.frames)
    stack.frames.push_back(
        {frame.registers, frame.origin, frame.certainty, frame.signal_frame, names[frame.address], {}});
  if (!with_arguments) return stack;
  std::vector<StackPlace> places;
  for (const NamedFrame& frame : stack.frames) places.push_back({&frame.registers, &frame.names});
  const std::vector<std::byte> vectors = walk::vector_registers(target, *walked.thread);
  if (!places.empty()) places.front().vector_registers = vectors;
  auto arguments = texts->arguments(places);
  for (std::size_t i = 0; i < arguments.size(); ++i) stack.frames[i].arguments = std::move(arguments[i]);
  return stack;
}

}  // namespace

std::vector<NamedStack> named_stacks(const Target& target, const StackOptions& options) {
  const walk::ThreadStacks walked = walk::walk_all(target, options.max_frames);
  const auto symbols = std::make_shared<const Symbolizer>(Symbolizer::of_target(target, options.names));
  const std::vector<NamedAddress> names = symbols->name(walked.addresses, walked.functions);
  std::vector<NamedStack> stacks;
  stacks.reserve(walked.threads.size());
  for (const walk::ThreadStack& thread : walked.threads)
    stacks.push_back(named(target, thread, names, symbols, options.arguments));
  return stacks;
}

[[gnu::noinline]] NamedStack named_stack(const StackOptions& options) {
  return named_stack(walk::caller_of(__builtin_dwarf_cfa()), options);
}

NamedStack named_stack(const Registers& from, const StackOptions& options) {
  return std::move(named_stacks(own_target(from), options).front());
}

std::string NamedStack::text() const {
  std::string text;
  TextWriter out(&text);
  symbols::StackText lines({.verbose = 0, .lines = true, .inlines = true}, out);
  for (const NamedFrame& frame : frames)
    lines.frame({frame.registers, frame.origin, frame.certainty, frame.signal_frame, frame.names, frame.arguments});
  lines.end(end, error);
  out.flush();
  return text;
}

[[gnu::noinline]] Expected<void> print_stack(int fd) {
  TextWriter out(fd);
  out.text(named_stack(walk::caller_of(__builtin_dwarf_cfa()), {}).text());
  return out.finish();
}

}  // namespace windlass
