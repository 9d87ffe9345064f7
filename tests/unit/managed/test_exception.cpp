// Exceptions through methods written by hand: which code is asked, which runs, and in which order.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <functional>
#include <map>

#include "support/code_by_hand.h"
#include "support/pretend_shadow_stack.h"
#include "support/seen_stacks.h"
#include "support/small_stack.h"
#include "support/whole.h"
#include "windlass/managed/suspension.h"

WINDLASS_MANAGED_METHOD(outer_method)
WINDLASS_MANAGED_METHOD(middle_method)
WINDLASS_MANAGED_METHOD(inner_method)
WINDLASS_FUNCLET(outer_catch, run_outer_catch)
WINDLASS_FUNCLET(outer_filter, run_outer_filter)
WINDLASS_FUNCLET(outer_finally, run_outer_finally)
WINDLASS_FUNCLET(middle_catch, run_middle_catch)
WINDLASS_FUNCLET(middle_finally, run_middle_finally)
WINDLASS_FUNCLET(inner_catch, run_inner_catch)
WINDLASS_FUNCLET(inner_finally, run_inner_finally)

namespace windlass::managed {
namespace {

using Body = std::function<std::uint64_t(std::uint64_t object)>;
// What the funclets do, by name, beside being noted.
std::map<std::string, Body> bodies;
std::vector<std::string> events;

std::uint64_t run(const char* name, std::uint64_t object, const void* resume) {
  events.emplace_back(name);
  if (const auto body = bodies.find(name); body != bodies.end()) return body->second(object);
  return reinterpret_cast<std::uint64_t>(resume);
}

// Types are numbers: what a clause has in `user` catches that object, or any if 0.
class Judge : public Personality {
 public:
  bool catches(const CrawlFrame&, const Clause& clause, const Thrown& thrown) override {
    return clause.user == 0 || clause.user == thrown.object;
  }
  void trace(const CrawlFrame& frame, const Thrown& thrown) override {
    traces += std::to_string(frame.method->root().id);
    if (thrown.rethrown) traces += 'r';
    if (thrown.fault) traces += 'f';
  }
  NativePolicy at_native(const CrawlFrame&, const Thrown&) override { return policy; }
  void notify_debugger(const Thrown&) override { std::fputs("debugger ", stderr); }
  void unhandled(const Thrown& thrown) override {
    std::fprintf(stderr, "unhandled %lu trace %s\n", thrown.object, traces.c_str());
  }
  std::uint64_t object_of_fault(int signal, std::uint64_t) override { return 1000 + static_cast<unsigned>(signal); }
  bool make_room(std::uint64_t sp) override { return room ? room() : Personality::make_room(sp); }

  std::string traces;
  NativePolicy policy = NativePolicy::kStop;
  std::function<bool()> room;
};

TEST(Personality, HasNoMoreRoomOfItself) { EXPECT_FALSE(Judge().make_room(0x1000)); }

struct Managed : testing::Test {
  Managed()
      : outer(runtime.add(1, reinterpret_cast<const void*>(&outer_method), outer_method_end)),
        middle(runtime.add(2, reinterpret_cast<const void*>(&middle_method), middle_method_end)),
        inner(runtime.add(3, reinterpret_cast<const void*>(&inner_method), inner_method_end)) {
    runtime.add(11, outer_catch, outer_catch_end, Funclet::kCatch, &outer);
    runtime.add(12, outer_filter, outer_filter_end, Funclet::kFilter, &outer);
    runtime.add(13, outer_finally, outer_finally_end, Funclet::kFinally, &outer);
    runtime.add(21, middle_catch, middle_catch_end, Funclet::kCatch, &middle);
    runtime.add(23, middle_finally, middle_finally_end, Funclet::kFinally, &middle);
    runtime.add(31, inner_catch, inner_catch_end, Funclet::kCatch, &inner);
    runtime.add(33, inner_finally, inner_finally_end, Funclet::kFinally, &inner);
    thread.walk = {.space = &own_process(), .runtime = &runtime, .own_list = &frames};
    thread.personality = &judge;
    events.clear();
    bodies.clear();
    current = this;
  }

  static Clause clause(ClauseKind kind, const Method& method, const char* at, const void* handler,
                       std::uint64_t user = 0) {
    Clause made{.kind = kind, .handler = reinterpret_cast<std::uint64_t>(handler), .user = user};
    made.begin = static_cast<std::uint32_t>(reinterpret_cast<std::uint64_t>(at) - method.begin);
    made.end = made.begin + 8;
    return made;
  }
  void protect(Method& method, std::vector<Clause> clauses) {
    tables.push_back(std::move(clauses));
    method.clauses = tables.back();
  }
  void outer_catches(std::uint64_t type = 0) {
    protect(outer, {clause(ClauseKind::kCatch, outer, outer_method_try, outer_catch, type)});
  }
  // outer -> middle -> inner -> a function that throws `object`.
  std::uint64_t throw_from_inner(std::uint64_t object) {
    thrown = object;
    const Call third{reinterpret_cast<void*>(&throw_it), nullptr};
    const Call second{reinterpret_cast<void*>(&inner_method), &third};
    first = {reinterpret_cast<void*>(&middle_method), &second};
    return outer_method(&first);
  }
  [[nodiscard]] bool came_back_by_handler(std::uint64_t result) const {
    return result == reinterpret_cast<std::uint64_t>(&first) && frames.top == kEndOfFrames &&
           thread.walk.exceptions == kEndOfFrames && thread.dispatch == nullptr;
  }
  static void throw_it(const void*) { raise(current->thread, current->thrown); }

  HandRuntime runtime;
  Method &outer, &middle, &inner;
  std::deque<std::vector<Clause>> tables;
  Judge judge;
  FrameList frames;
  ThrowingThread thread;
  Call first{};
  std::uint64_t thrown = 0;
  static Managed* current;
};
Managed* Managed::current = nullptr;
using Events = std::vector<std::string>;

TEST_F(Managed, AnExceptionIsCaught) {
  outer_catches();
  std::uint64_t caught = 0;
  bodies["outer catch"] = [&](std::uint64_t object) {
    caught = object;
    return reinterpret_cast<std::uint64_t>(outer_method_resume);
  };
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, Events{"outer catch"});
  EXPECT_EQ(caught, 7u);
  EXPECT_EQ(judge.traces, "321");
}

TEST_F(Managed, ByTheInnermostHandlerThatTakesIt) {
  outer_catches();
  protect(middle, {clause(ClauseKind::kCatch, middle, middle_method_try, middle_catch, 5)});
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, Events{"outer catch"});
  events.clear();
  EXPECT_EQ(throw_from_inner(5), 0u) << "outer did not see it";
  EXPECT_EQ(events, Events{"middle catch"});
}

TEST_F(Managed, FiltersAreAskedBeforeAnythingIsUnwound) {
  Clause filtered = clause(ClauseKind::kFilter, outer, outer_method_try, outer_catch);
  filtered.filter = reinterpret_cast<std::uint64_t>(outer_filter);
  protect(outer, {filtered});
  protect(middle, {clause(ClauseKind::kFinally, middle, middle_method_try, middle_finally)});
  protect(inner, {clause(ClauseKind::kFault, inner, inner_method_try, inner_finally)});
  bodies["outer filter"] = [](std::uint64_t) { return 1; };
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, (Events{"outer filter", "inner finally", "middle finally", "outer catch"}));
}

TEST_F(Managed, AFilterThatThrowsSaysNo) {
  Clause filtered = clause(ClauseKind::kFilter, middle, middle_method_try, middle_catch);
  filtered.filter = reinterpret_cast<std::uint64_t>(outer_filter);
  protect(middle, {filtered});
  protect(inner, {clause(ClauseKind::kFinally, inner, inner_method_try, inner_finally)});
  outer_catches(7);
  bodies["outer filter"] = [&](std::uint64_t) -> std::uint64_t { raise(thread, 8); };
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, (Events{"outer filter", "inner finally", "outer catch"}));
}

TEST_F(Managed, WhatAFinallyThrowsTakesThePlace) {
  protect(middle, {clause(ClauseKind::kFinally, middle, middle_method_try, middle_finally),
                   clause(ClauseKind::kCatch, middle, middle_method_try, middle_catch, 7)});
  outer_catches();
  std::uint64_t caught = 0;
  bodies["middle finally"] = [&](std::uint64_t) -> std::uint64_t { raise(thread, 8); };
  bodies["outer catch"] = [&](std::uint64_t object) {
    caught = object;
    return reinterpret_cast<std::uint64_t>(outer_method_resume);
  };
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, (Events{"middle finally", "outer catch"})) << "the finally runs once";
  EXPECT_EQ(caught, 8u);
}

TEST_F(Managed, WhatACatchThrowsIsNotItsOwn) {
  protect(middle, {clause(ClauseKind::kCatch, middle, middle_method_try, middle_catch)});
  outer_catches();
  bodies["middle catch"] = [&](std::uint64_t object) -> std::uint64_t { raise(thread, object + 1); };
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, (Events{"middle catch", "outer catch"}));
}

TEST_F(Managed, ThrownOnceMore) {
  protect(middle, {clause(ClauseKind::kCatch, middle, middle_method_try, middle_catch)});
  outer_catches(7);
  bodies["middle catch"] = [&](std::uint64_t) -> std::uint64_t { rethrow(thread); };
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, (Events{"middle catch", "outer catch"}));
  EXPECT_EQ(judge.traces, "322r2r1r") << "the funclet is its method's, which follows";
}

TEST_F(Managed, ClausesAroundOneAnother) {
  Clause wide = clause(ClauseKind::kCatch, outer, outer_method_try, outer_catch);
  --wide.begin;
  protect(outer, {clause(ClauseKind::kFinally, outer, outer_method_try, outer_finally), wide});
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, (Events{"outer finally", "outer catch"}));
  // And what the inner finally throws is caught by the clause around it, in the same frame.
  events.clear();
  bodies["outer finally"] = [&](std::uint64_t) -> std::uint64_t { raise(thread, 8); };
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, (Events{"outer finally", "outer catch"}));
}

// Exception tables as Windows' compilers write them, for code that handles exceptions in the method itself.
struct ScopeTable {
  std::uint32_t count = 0;
  std::uint32_t words[8] = {};
  // RVAs count from a method of this program.
  static std::uint32_t rva(const void* code) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uint64_t>(code) - base());
  }
  static std::uint64_t base() { return reinterpret_cast<std::uint64_t>(&outer_method) - 0x1000'0000; }
  void add(const char* at, std::uint32_t handler, std::uint32_t target) {
    std::uint32_t* to = words + std::size_t{4} * count++;
    to[0] = rva(at);
    to[1] = rva(at) + 8;
    to[2] = handler;
    to[3] = target;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span(&count, 1 + std::size_t{4} * count));
  }
};

TEST_F(Managed, ScopeTablesOfWindows) {
  ScopeTable cleans, handles;
  cleans.add(middle_method_try, ScopeTable::rva(middle_finally), 0);
  handles.add(outer_method_try, ScopeTable::rva(outer_filter), ScopeTable::rva(outer_method_resume));
  handles.add(outer_method_try, 1, ScopeTable::rva(outer_method_resume));
  const auto of_middle = read_scope_table(cleans.bytes(), ScopeTable::base(), middle);
  const auto of_outer = read_scope_table(handles.bytes(), ScopeTable::base(), outer);
  ASSERT_TRUE(of_middle) << of_middle.error().text();
  ASSERT_TRUE(of_outer) << of_outer.error().text();
  protect(middle, *of_middle);
  protect(outer, *of_outer);
  bodies["outer filter"] = [](std::uint64_t object) { return object == 7 ? 1 : 0; };
  for (const std::uint64_t object : {7, 8}) {  // by the filter, and by the one that takes every exception
    events.clear();
    EXPECT_TRUE(came_back_by_handler(throw_from_inner(object)));
    EXPECT_EQ(events, (Events{"outer filter", "middle finally"}));
  }
  for (std::size_t size = 0; size < handles.bytes().size(); ++size)
    EXPECT_FALSE(read_scope_table(handles.bytes().first(size), ScopeTable::base(), outer)) << size;
  for (const auto& [word, value] : {std::pair(0, 0u), {1, 0u}, {2, 0u}, {3, 1u}}) {
    ScopeTable wrong = handles;
    wrong.words[word] = value;
    EXPECT_EQ(read_scope_table(wrong.bytes(), ScopeTable::base(), outer).error().where, 4u) << word;
  }
}

TEST_F(Managed, InsideAHandlerAnotherIsThrownAndCaught) {
  outer_catches();
  protect(inner, {clause(ClauseKind::kCatch, inner, inner_method_try, inner_catch, 9)});
  const Call third{reinterpret_cast<void*>(&throw_it), nullptr};
  bodies["outer catch"] = [&](std::uint64_t) {
    current->thrown = 9;
    EXPECT_EQ(inner_method(&third), reinterpret_cast<std::uint64_t>(&third));
    return reinterpret_cast<std::uint64_t>(outer_method_resume);
  };
  EXPECT_TRUE(came_back_by_handler(throw_from_inner(7)));
  EXPECT_EQ(events, (Events{"outer catch", "inner catch"}));
}

// A collector that runs in a finally funclet moves the exception, and what the frames keep in rbx (x19).
TEST_F(Managed, ACollectorMayMoveTheObject) {
  outer_catches();
  protect(middle, {clause(ClauseKind::kFinally, middle, middle_method_try, middle_finally)});
  static Call moved;
  constexpr RegisterNumber kKept = kOwnArchitecture == Architecture::kX86_64 ? 3 : 19;
  bodies["middle finally"] = [&](std::uint64_t) -> std::uint64_t {
    moved = first;
    ManagedWalker walker(thread.walk, capture_registers(), kNotifyOnNoFrameTransitions);
    while (walker.next()) {
      const CrawlFrame& frame = walker.frame();
      if (frame.state == CrawlState::kNoFrameTransition)
        reinterpret_cast<ExceptionRecord*>(frame.exception)->object = 70;
      if (!frame.frameless() || frame.method != &outer) continue;
      auto* slot = reinterpret_cast<std::uint64_t*>(frame.saved.at(frame.registers, kKept));
      EXPECT_NE(slot, nullptr);
      if (slot == nullptr) continue;
      EXPECT_EQ(*slot, reinterpret_cast<std::uint64_t>(&first));
      *slot = reinterpret_cast<std::uint64_t>(&moved);
    }
    EXPECT_FALSE(walker.error());
    return 0;
  };
  std::uint64_t caught = 0;
  bodies["outer catch"] = [&](std::uint64_t object) {
    caught = object;
    return reinterpret_cast<std::uint64_t>(outer_method_resume);
  };
  EXPECT_EQ(throw_from_inner(7), reinterpret_cast<std::uint64_t>(&moved));
  EXPECT_EQ(caught, 70u);
}

// ---- native code --------------------------------------------------------------------------------------------------

struct Destructor {
  ~Destructor() { events.emplace_back("destructor"); }
};

// Called by middle_method, calls inner_method.
void through_native(const void* next) {
  CallSiteFrame out;  // stands for the generated code's, which would link it before the call
  const Registers here = capture_registers();
  StackWalker walker(own_process(), here);
  while (Managed::current->runtime.find(walker.frame().pc().lookup()) == nullptr && walker.step()) {}
  out.site = {walker.frame().pc().value(), walker.frame().sp(), 0};
  const Pushed pushed(Managed::current->frames, out);
  const Destructor destructor;
  MarkerFrame marker;
  const Pushed callback(Managed::current->frames, marker);
  inner_method(static_cast<const Call*>(next));
}

std::uint64_t throw_through_native(Managed& test) {
  static const Call third{reinterpret_cast<void*>(&Managed::throw_it), nullptr};
  static const Call second{reinterpret_cast<void*>(&through_native), &third};
  test.thrown = 7;
  test.first = {reinterpret_cast<void*>(&middle_method), &second};
  return outer_method(&test.first);
}

TEST_F(Managed, NativeDestructorsRun) {
  outer_catches();
  protect(middle, {clause(ClauseKind::kFinally, middle, middle_method_try, middle_finally)});
  protect(inner, {clause(ClauseKind::kFinally, inner, inner_method_try, inner_finally)});
  judge.policy = NativePolicy::kUnwind;
  for (int i = 0; i < 3; ++i) {
    events.clear();
    EXPECT_TRUE(came_back_by_handler(throw_through_native(*this)));
    EXPECT_EQ(events, (Events{"inner finally", "destructor", "middle finally", "outer catch"}));
  }
}

TEST_F(Managed, NativeCodeMayBeTheEnd) {
  outer_catches();
  judge.policy = NativePolicy::kStop;
  EXPECT_DEATH(throw_through_native(*this), "debugger unhandled 7 trace 3\n");
  judge.policy = NativePolicy::kFailFast;
  EXPECT_DEATH(throw_through_native(*this), "windlass: a managed exception cannot go on: .*kFailFast");
}

#if defined(__x86_64__)
// A stub that walks know, and the system's unwinder does not: calls through_native(next) for middle_method.
std::uint64_t throw_through_stub(Managed& test) {
  std::vector<std::uint8_t> code = {0x48, 0x83, 0xec, 0x08, 0x48, 0xb8};  // sub rsp, 8; mov rax, through_native
  const auto target = reinterpret_cast<std::uint64_t>(&through_native);
  for (int i = 0; i < 8; ++i) code.push_back(static_cast<std::uint8_t>(target >> 8 * i));
  code.insert(code.end(), {0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3});  // call rax; add rsp, 8; ret
  void* const stub = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::copy(code.begin(), code.end(), static_cast<std::uint8_t*>(stub));
  const auto begin = reinterpret_cast<std::uint64_t>(stub);
  const auto row = [begin](unsigned from, unsigned to, std::int32_t cfa) {
    FrameRow made;
    made.begin = begin + from;
    made.end = begin + to;
    made.cfa = CfaRule::at(7, cfa);
    made.return_address = RegisterRule::at_cfa(-8);
    return made;
  };
  EXPECT_TRUE(add_own_code(
      {.begin = begin, .end = begin + code.size(), .rows = {row(0, 4, 8), row(4, 20, 16), row(20, 21, 8)}}));
  static const Call third{reinterpret_cast<void*>(&Managed::throw_it), nullptr};
  static Call second;
  second = {stub, &third};
  test.thrown = 7;
  test.first = {reinterpret_cast<void*>(&middle_method), &second};
  return outer_method(&test.first);
}

TEST_F(Managed, NativeCodeThatTheSystemCannotUnwindIsNamed) {
  outer_catches();
  judge.policy = NativePolicy::kUnwind;
  EXPECT_DEATH(throw_through_stub(*this),
               "windlass: a managed exception cannot go on: .*not known to the system's unwinder: register it with "
               "Registry::kFrameInfo");
  // Nobody would have caught it: that comes first.
  outer.clauses = {};
  EXPECT_DEATH(throw_through_stub(*this), "unhandled 7");
}
#endif

TEST_F(Managed, NobodyHandlesIt) { EXPECT_DEATH(throw_from_inner(7), "debugger unhandled 7 trace 321\n"); }

#if defined(__x86_64__)
TEST_F(Managed, ShadowStacksAreRefused) {
  EXPECT_EXIT(test::exit_with_shadow_stack([&] { raise(thread, 7); }), testing::ExitedWithCode(0),
              "throwing a managed exception is not possible on a thread with a shadow stack");
}

TEST_F(Managed, ShadowStacksAreRefusedWhereReturnsAreReplaced) {
  struct Nowhere : SafePoints {
    [[nodiscard]] bool is_safe_point(const Method&, std::uint64_t) const override { return false; }
  } points;
  const auto attach = [&] {
    Suspender suspender(own_process(), runtime, points, SIGRTMIN + 3);
    MutatorThread mutator;
    suspender.attach(mutator);
  };
  EXPECT_EXIT(test::exit_with_shadow_stack(attach), testing::ExitedWithCode(0),
              "replaced is not possible on a thread with a shadow stack");
}

// From the system call on the thread has a shadow stack, which is empty: no function that was called before returns.
[[noreturn, gnu::noinline]] void throw_with_shadow_stack(ThrowingThread& thread) {
  constexpr long kArchPrctl = 158, kEnable = 0x5001, kShadowStack = 1;
  long result = kArchPrctl;
  asm volatile("syscall" : "+a"(result) : "D"(kEnable), "S"(kShadowStack) : "rcx", "r11", "memory");
  if (result == 0) raise(thread, 7);
  _exit(77);
}

TEST_F(Managed, ShadowStacksOfTheMachineAreRefused) {
  const pid_t child = fork();
  if (child == 0) throw_with_shadow_stack(thread);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no shadow stacks here";
  EXPECT_DEATH(throw_with_shadow_stack(thread), "not possible on a thread with a shadow stack");
}
#endif

// ---- faults -------------------------------------------------------------------------------------------------------

TEST_F(Managed, AFaultIsCaught) {
  outer_catches(1000 + SIGSEGV);
  protect(middle, {clause(ClauseKind::kFinally, middle, middle_method_try, middle_finally)});
  struct sigaction action {
  }, before{};
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
    if (!redirect_fault(current->thread, signal, info, context)) std::abort();
  };
  ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
  for (int i = 0; i < 2; ++i) {
    events.clear();
    judge.traces.clear();
    // inner_method reads through a null pointer.
    const Call second{reinterpret_cast<void*>(&inner_method), nullptr};
    first = {reinterpret_cast<void*>(&middle_method), &second};
    EXPECT_TRUE(came_back_by_handler(outer_method(&first)));
    EXPECT_EQ(events, (Events{"middle finally", "outer catch"}));
    EXPECT_EQ(judge.traces, "3f2f1f");
  }
  sigaction(SIGSEGV, &before, nullptr);
}

// inner_method, which calls itself until there is no stack left: how often that was caught.
unsigned overflow(Managed& test, const test::SmallStack& stack) {
  unsigned caught = 0;
  const auto redirect = [](int signal, siginfo_t* info, void* context) {
    return redirect_fault(Managed::current->thread, signal, info, context);
  };
  stack.run(redirect, [&] {
    for (int i = 0; i < 3; ++i) {
      Call again{reinterpret_cast<void*>(&inner_method), nullptr};
      again.next = &again;
      test.first = {reinterpret_cast<void*>(&inner_method), &again};
      caught += test.came_back_by_handler(outer_method(&test.first)) ? 1 : 0;
      stack.take_room();
    }
  });
  return caught;
}

TEST_F(Managed, AStackOverflowIsCaughtWhereThereIsRoomToThrow) {
  outer_catches(1000 + SIGSEGV);
  const test::SmallStack stack;
  unsigned rooms = 0;
  judge.room = [&] {
    ++rooms;
    return stack.give_room();
  };
  EXPECT_EQ(overflow(*this, stack), 3u);
  EXPECT_EQ(rooms, 3u);
}

TEST_F(Managed, AStackOverflowWithoutRoomIsNobodysFault) {
  outer_catches(1000 + SIGSEGV);
  const test::SmallStack stack;
  EXPECT_DEATH(overflow(*this, stack), "windlass: managed code has run out of stack: .*Personality::make_room");
  judge.room = [] { return true; };  // a lie
  EXPECT_DEATH(overflow(*this, stack), "");
}

// ---- sampled ------------------------------------------------------------------------------------------------------

// By the methods' and funclets' ids.
test::SeenStacks seen;
timer_t sample_timer{};

// One after the other: an emulator would do nothing else.
void sample_soon() {
  const itimerspec soon{.it_interval = {}, .it_value = {0, 50'000}};
  timer_settime(sample_timer, 0, &soon, nullptr);
}

void sample(int, siginfo_t*, void* ucontext) {
  char text[32] = {};
  std::size_t size = 0;
  ManagedWalker walker(Managed::current->thread.walk, registers_of(ucontext),
                       kFunctionsOnly | kAllowAsyncWalk | kNativeFrames | kAllowInvalidObjects);
  while (walker.next() && size < sizeof text - 4)
    size += static_cast<std::size_t>(
        std::snprintf(text + size, sizeof text - size, "%s%lu", size == 0 ? "" : " ", walker.frame().method->id));
  if (walker.error()) std::snprintf(text, sizeof text, "error: %.20s", walker.error()->what);
  seen.add(text);
  sample_soon();
}

// At whatever instruction a thread stands that throws all the time, the walk shows a stack that there was.
TEST_F(Managed, SamplesWhileItThrows) {
  outer_catches();
  protect(middle, {clause(ClauseKind::kFinally, middle, middle_method_try, middle_finally)});
  struct sigaction action {
  }, before{};
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_sigaction = sample;
  ASSERT_EQ(sigaction(SIGPROF, &action, &before), 0);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGPROF;
  ASSERT_EQ(timer_create(CLOCK_MONOTONIC, &event, &sample_timer), 0);
  const std::uint64_t enough = windlass::test::whole()                     ? 1'000'000
                               : kOwnArchitecture == Architecture::kX86_64 ? 20'000
                                                                           : 5'000;
  sample_soon();
  while (seen.samples < enough) {
    events.clear();
    ASSERT_TRUE(came_back_by_handler(throw_from_inner(7)));
  }
  timer_delete(sample_timer);
  sigaction(SIGPROF, &before, nullptr);
  const std::vector<std::string> possible = {"", "1", "2 1", "3 2 1", "23 2 1", "11 1"};
  std::uint64_t of_possible[6] = {};
  for (unsigned i = 0; i < seen.used; ++i) {
    const auto found = std::ranges::find(possible, seen.text[i]);
    EXPECT_NE(found, possible.end()) << seen.count[i] << " of " << seen.samples << " samples: " << seen.text[i];
    if (found != possible.end()) of_possible[found - possible.begin()] = seen.count[i];
  }
  for (std::size_t i = 0; i < possible.size(); ++i)
    EXPECT_GT(of_possible[i], 0u) << "no sample shows \"" << possible[i] << '"';
}

// Whatever a dispatch takes it gives back, also where it is left by a jump.
TEST_F(Managed, AHundredThousandTimes) {
  outer_catches();
  protect(middle, {clause(ClauseKind::kFinally, middle, middle_method_try, middle_finally)});
  bodies["middle finally"] = [&](std::uint64_t object) -> std::uint64_t {
    events.clear();
    if (object % 2 == 0) raise(thread, object + 1);
    return 0;
  };
  for (std::uint64_t i = 0; i < 100000; ++i) ASSERT_TRUE(came_back_by_handler(throw_from_inner(i)));
}

}  // namespace
}  // namespace windlass::managed

#define WINDLASS_BODY(name, text, resume)                              \
  extern "C" std::uint64_t name(std::uint64_t, std::uint64_t object) { \
    return windlass::managed::run(text, object, resume);               \
  }
WINDLASS_BODY(run_outer_catch, "outer catch", outer_method_resume)
WINDLASS_BODY(run_outer_filter, "outer filter", nullptr)
WINDLASS_BODY(run_outer_finally, "outer finally", nullptr)
WINDLASS_BODY(run_middle_catch, "middle catch", middle_method_resume)
WINDLASS_BODY(run_middle_finally, "middle finally", nullptr)
WINDLASS_BODY(run_inner_catch, "inner catch", inner_method_resume)
WINDLASS_BODY(run_inner_finally, "inner finally", nullptr)
