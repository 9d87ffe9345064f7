// Threads, collections, exceptions and the check of stacks: what the library does for a runtime, and is told by it.
#include <sys/syscall.h>
#include <unistd.h>
#include <windlass/backtrace.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "machine.h"
#include "runtime.h"

// Word lilt_enter(Word entry, Thread*, const Word arguments[6]): from native code into compiled code.
#if defined(__aarch64__)
asm(R"(
  .text
  .globl lilt_enter
  .type lilt_enter, %function
lilt_enter:
  .cfi_startproc
  stp x28, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x28, -16
  .cfi_offset x30, -8
  mov x28, x1
  mov x16, x0
  mov x9, x2
  ldp x0, x1, [x9]
  ldp x2, x3, [x9, #16]
  ldp x4, x5, [x9, #32]
  blr x16
  ldp x28, x30, [sp], #16
  .cfi_def_cfa_offset 0
  .cfi_restore x28
  .cfi_restore x30
  ret
  .cfi_endproc
  .size lilt_enter, .-lilt_enter
)");
#else
asm(R"(
  .text
  .globl lilt_enter
  .type lilt_enter, @function
lilt_enter:
  .cfi_startproc
  pushq %r15
  .cfi_def_cfa_offset 16
  .cfi_offset %r15, -16
  movq %rsi, %r15
  movq %rdi, %rax
  movq %rdx, %r10
  movq (%r10), %rdi
  movq 8(%r10), %rsi
  movq 16(%r10), %rdx
  movq 24(%r10), %rcx
  movq 32(%r10), %r8
  movq 40(%r10), %r9
  call *%rax
  popq %r15
  .cfi_def_cfa_offset 8
  .cfi_restore %r15
  ret
  .cfi_endproc
  .size lilt_enter, .-lilt_enter
)");
#endif
extern "C" std::uint64_t lilt_enter(std::uint64_t entry, lilt::Thread* thread, const std::uint64_t* arguments);

namespace lilt {

using namespace windlass::managed;

namespace {

constexpr std::size_t kShadowDepth = 1u << 20;
thread_local constinit Thread* this_thread = nullptr;

}  // namespace

// ---- threads ------------------------------------------------------------------------------------------------------

Attached::Attached(Runtime& runtime) : shadow_(runtime.options.check_stacks ? new Shadow[kShadowDepth] : nullptr) {
  thread = {.shadow = shadow_.get(), .runtime = &runtime, .mutator = &mutator_, .trace = &trace_, .sampler = {}};
  mutator_.personality = &runtime;
  runtime.suspender.attach(mutator_);
  this_thread = &thread;
  if (runtime.options.sample_us != 0) start_sampling();
}

// The next sample is taken so long after the one before, not every so often: where handlers take longer than that, the
// thread would do nothing else. Signal-safe.
void Thread::sample_later() const {
  const timespec later{.tv_sec = 0, .tv_nsec = runtime->options.sample_us * 1000};
  const itimerspec once{.it_interval = {}, .it_value = later};
  if (sampler) timer_settime(*sampler, 0, &once, nullptr);
}

// Signals for this thread alone: the process's own timers of processor time tick with the scheduler, which is slow.
void Attached::start_sampling() {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGPROF;
  event._sigev_un._tid = static_cast<int>(syscall(SYS_gettid));
  timer_t made{};
  if (timer_create(CLOCK_MONOTONIC, &event, &made) == 0) thread.sampler = made;
  thread.sample_later();
}

Attached::~Attached() {
  if (const auto sampler = std::exchange(thread.sampler, std::nullopt)) timer_delete(*sampler);
  this_thread = nullptr;
  thread.runtime->suspender.detach(mutator_);
}

Word Runtime::call(Thread& thread, const Cell* cell, const Word (&arguments)[6]) {
  MarkerFrame marker;
  const Pushed pushed(thread.mutator->frames, marker);
  // Where an exception goes through here, what was called is left on the shadow stack.
  struct Restore {
    ~Restore() {
      if (returned) return;
      thread.depth = depth;
      thread.leaving = thread.leaving - 1;
    }
    Thread& thread;
    const Word depth;
    bool returned = false;
  } restore{thread, thread.depth};
  if (cell == nullptr) cell = reinterpret_cast<const Cell*>(reinterpret_cast<const Object*>(arguments[0])->words[0]);
  const Word result = lilt_enter(cell->entry.load(std::memory_order_acquire), &thread, arguments);
  restore.returned = true;
  return result;
}

// ---- the collector ------------------------------------------------------------------------------------------------

// In native code. Others may have collected while this thread waited to stop them.
void Runtime::collect_now(std::uint64_t seen) {
  const Stopped stopped(suspender);
  if (heap.collections != seen && !options.gc_stress) return;
  heap.flip();
  for (const MutatorThread* thread : stopped.threads()) {
    ManagedWalker walker(thread->walk, windlass::Registers(windlass::kOwnArchitecture),
                         kThreadIsSuspended | kNotifyOnNoFrameTransitions);
    const auto fail = [](const windlass::Error& error) {
      std::fprintf(stderr, "collection: %s\n", error.text().c_str());
      std::abort();
    };
    while (walker.next()) {
      const auto done = each_root(walker.frame(), windlass::own_process().memory(), [&](const Root& root) {
        Word reference = root.value;
        heap.forward(reference);
        if (root.address == 0 && reference != root.value) std::abort();
        root.set(reference);
      });
      if (!done) fail(done.error());
    }
    if (walker.error()) fail(*walker.error());
  }
  heap.scan();
}

void Runtime::collect(Thread& thread) {
  const std::uint64_t seen = heap.collections;
  if (options.check_stacks) check_stack(windlass::capture_registers(), thread);
  in_native(thread, [&] { collect_now(seen); });
}

Object* Runtime::allocate(Thread& thread, const TypeInfo& type, Word length) {
  const std::size_t size = size_of(type, length);
  if (options.gc_stress) collect(thread);
  Object* made = heap.allocate(size);
  if (made == nullptr) collect(thread);
  if (made == nullptr) made = heap.allocate(size);
  if (made == nullptr) std::fprintf(stderr, "the heap is full\n"), std::exit(3);
  made->header = reinterpret_cast<Word>(&type);
  if (type.shape != TypeInfo::kFields) made->words[0] = length;
  return made;
}

Object* Runtime::text(Thread& thread, std::string_view bytes) {
  Object* made = allocate(thread, string_, bytes.size());
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(made->words + 1));
  return made;
}

// ---- exceptions ---------------------------------------------------------------------------------------------------

void Runtime::raise_error(Thread& thread, std::string_view message) {
  Word text_at = reinterpret_cast<Word>(text(thread, message));
  const TypeInfo& type = info(program.structs.at("Error").type);
  Object* error = heap.allocate(size_of(type, 0));
  if (error == nullptr) {
    const std::uint64_t seen = heap.collections;
    in_native(
        thread, [&] { collect_now(seen); }, &text_at);
    error = heap.allocate(size_of(type, 0));
  }
  if (error == nullptr) std::fprintf(stderr, "the heap is full\n"), std::exit(3);
  error->header = reinterpret_cast<Word>(&type);
  error->words[0] = text_at;
  thread.trace->clear();
  raise(*thread.mutator, reinterpret_cast<Word>(error));
}

bool Runtime::catches(const CrawlFrame&, const Clause& clause, const Thrown& thrown) {
  return reinterpret_cast<const Object*>(thrown.object)->header == clause.user;
}

void Runtime::trace(const CrawlFrame& frame, const Thrown& thrown) {
  if (!thrown.rethrown && frame.method->funclet == Funclet::kNone)
    this_thread->trace->push_back(piece_at(frame.method->begin)->name);
}

// Funclets work on their method's frame, which they have in kBase.
Word Runtime::base(const CrawlFrame& frame) const {
  return frame.method->funclet == Funclet::kNone ? frame.registers.sp() : frame.registers.get(kBase.dwarf);
}

// Through a native qsort, but not out of the program or a thread.
NativePolicy Runtime::at_native(const CrawlFrame& frame, const Thrown&) {
  if (frame.frame.next == kEndOfFrames) return NativePolicy::kStop;
  this_thread->leaving = this_thread->leaving + 1;
  return NativePolicy::kUnwind;
}

void Runtime::unhandled(const Thrown& thrown) {
  const auto* object = reinterpret_cast<const Object*>(thrown.object);
  std::fflush(stdout);
  std::fprintf(stderr, "unhandled %s", object->type().name.c_str());
  if (object->type().name == "Error" && object->words[0] != 0)
    std::fprintf(stderr, ": %s", std::string(reinterpret_cast<const Object*>(object->words[0])->text()).c_str());
  std::fprintf(stderr, "\n");
  for (const std::string& name : *this_thread->trace) std::fprintf(stderr, "  at %s\n", name.c_str());
  if (options.check_stacks) report();
  std::_Exit(1);
}

// ---- the check of stacks ------------------------------------------------------------------------------------------

// Walks from anywhere, and compares with the shadow stack. Signal-safe.
void Runtime::check_stack(const windlass::Registers& registers, Thread& thread) {
  std::size_t depth = thread.depth, frames = 0;
  Word below = registers.sp();
  bool good = true, skips = false;
  ManagedWalker walker(thread.mutator->walk, registers,
                       kAllowAsyncWalk | kNativeFrames | kNotifyOnNoFrameTransitions | kLightUnwind);
  while (good && walker.next()) {
    const CrawlFrame& frame = walker.frame();
    if (frame.state == CrawlState::kNoFrameTransition)
      skips = reinterpret_cast<const ExceptionRecord*>(frame.exception)->pass == 2;
    // The native unwinder runs on the stack of what it has unwound, until the first cleanup.
    while (thread.leaving > 0 && frame.state == CrawlState::kNativeFrame && depth > 0 &&
           thread.shadow[depth - 1].cfa <= frame.registers.sp())
      --depth;
    if (!frame.frameless()) continue;
    const Piece* piece = piece_at(frame.method->begin);
    const Word pc = frame.pc().value();
    ++frames;
    // Not on the shadow stack yet, or not any more.
    if (frame.interrupted && (pc < piece->body_begin || pc >= piece->body_end)) continue;
    // What an exception has left behind: dead by the stack pointer (that of the handler's frame while its registers are
    // loaded), or unwound by the second pass.
    if (frame.first) below = frame.registers.sp();
    const Word dead = skips ? frame.cfa : below + 1;
    while (depth > 0 && thread.shadow[depth - 1].cfa < dead) --depth;
    skips = false;
    good = depth > 0 && thread.shadow[depth - 1].id == frame.method->id && thread.shadow[depth - 1].cfa == frame.cfa;
    if (good) --depth;
    below = frame.cfa - 1;
  }
  good = good && depth == 0 && !walker.error();
  ++checked;
  frames_checked += frames;
  if (!good) ++wrong;
  if (!good && std::getenv("LILT_EXPLAIN") != nullptr) explain(registers, thread);
}

// For who looks for a fault: not signal-safe.
void Runtime::explain(const windlass::Registers& registers, const Thread& thread) const {
  std::fprintf(stderr, "pc %lx sp %lx\n", registers.pc().value(), registers.sp());
  ManagedWalker walker(thread.mutator->walk, registers, kAllowAsyncWalk | kNativeFrames | kNotifyOnNoFrameTransitions);
  while (walker.next())
    std::fprintf(stderr, "  %s pc %lx cfa %lx id %lx %s\n", std::string(state_name(walker.frame().state)).c_str(),
                 walker.frame().pc().value(), walker.frame().cfa,
                 walker.frame().frameless() ? walker.frame().method->id : 0,
                 walker.frame().frameless() ? piece_at(walker.frame().method->begin)->name.c_str() : "");
  if (walker.error()) std::fprintf(stderr, "  %s\n", walker.error()->text().c_str());
  for (std::size_t i = thread.depth; i-- > 0;)
    std::fprintf(stderr, "  shadow: cfa %lx id %lx\n", thread.shadow[i].cfa, thread.shadow[i].id);
}

void Runtime::handle_samples() {
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_sigaction = [](int, siginfo_t*, void* context) {
    const int kept = errno;
    if (Thread* thread = this_thread) {
      thread->runtime->check_stack(windlass::registers_of(context), *thread);
      thread->sample_later();
    }
    errno = kept;
  };
  sigaction(SIGPROF, &action, nullptr);
}

}  // namespace lilt
