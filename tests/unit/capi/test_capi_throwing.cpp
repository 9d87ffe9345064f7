// Managed code by hand, by the C interface: it throws, runs out of stack, and is stopped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/code_by_hand.h"
#include "support/managed_by_c.h"
#include "support/sized.h"
#include "support/small_stack.h"
#include "windlass/c/managed.h"

WINDLASS_MANAGED_METHOD(c_outer_method)
WINDLASS_MANAGED_METHOD(c_inner_method)
WINDLASS_FUNCLET(c_outer_catch, run_c_outer_catch)
WINDLASS_FUNCLET(c_inner_finally, run_c_inner_finally)

namespace {

using namespace windlass::managed;
using windlass::test::sized, windlass::test::SmallStack, windlass::test::walk;

struct Throwing;
Throwing* throwing = nullptr;

struct Throwing : testing::Test {
  Throwing() {
    throwing = this;
    add(c_outer_method, c_outer_method_end, 1, WINDLASS_NO_FUNCLET, 0, WINDLASS_CLAUSE_CATCH, c_outer_method_try,
        c_outer_catch);
    add(c_inner_method, c_inner_method_end, 2, WINDLASS_NO_FUNCLET, 0, WINDLASS_CLAUSE_FINALLY, c_inner_method_try,
        c_inner_finally);
    add(c_outer_catch, c_outer_catch_end, 11, WINDLASS_CATCH, 1);
    add(c_inner_finally, c_inner_finally_end, 22, WINDLASS_FINALLY, 2);
    auto callbacks = sized<windlass_runtime_callbacks>();
    callbacks.find = [](std::uint64_t pc, void* user) -> const windlass_method* {
      for (const auto& [begin, end, method] : static_cast<const Throwing*>(user)->methods)
        if (pc >= begin && pc < end) return method;
      return nullptr;
    };
    callbacks.each_argument = [](const windlass_crawl*, const windlass_crawl_frame* frame, windlass_root_callback sink,
                                 void* to, void*) {
      const windlass_root root = {
          .value = frame->frame_user, .address = 0x1000, .base = 0, .reg = 5, .flags = WINDLASS_PINNED};
      sink(&root, to);
      return windlass_status{frame->frame_user == 3 ? WINDLASS_NOT_FOUND : WINDLASS_OK};
    };
    callbacks.user = this;
    EXPECT_EQ(windlass_open_runtime(&callbacks, &runtime, nullptr), WINDLASS_OK);
    personality.catches = [](const windlass_crawl*, const windlass_crawl_frame* frame, const windlass_clause* clause,
                             const windlass_thrown* thrown, void* user) {
      static_cast<Throwing*>(user)->events += "asked" + std::to_string(frame->function) + " ";
      return clause->user == 4711 && thrown->object != 8 ? 1 : 0;
    };
    personality.trace = [](const windlass_crawl*, const windlass_crawl_frame* frame, const windlass_thrown* thrown,
                           void* user) {
      static_cast<Throwing*>(user)->events +=
          "through" + std::to_string(frame->function) + (thrown->flags == WINDLASS_RETHROWN ? "r " : " ");
    };
    personality.notify_debugger = [](const windlass_thrown*, void*) { std::fputs("debugger ", stderr); };
    personality.unhandled = [](const windlass_thrown* thrown, void*) {
      std::fprintf(stderr, "unhandled %lu\n", thrown->object);
    };
    personality.failed = [](const windlass_error* why, const windlass_thrown* thrown, void*) {
      std::fprintf(stderr, "failed %lu: %s\n", thrown->object, why->text);
    };
    personality.object_of_fault = [](int signal, std::uint64_t, void*) {
      return 1000 + static_cast<std::uint64_t>(signal);
    };
    personality.make_room = [](std::uint64_t sp, void* user) { return static_cast<Throwing*>(user)->room(sp); };
    personality.user = this;
    EXPECT_EQ(windlass_open_mutator(runtime, &personality, &mutator, nullptr), WINDLASS_OK);
  }
  ~Throwing() override {
    EXPECT_EQ(windlass_close_mutator(mutator), WINDLASS_OK);
    EXPECT_EQ(windlass_close_runtime(runtime), WINDLASS_OK);
    for (auto method = methods.rbegin(); method != methods.rend(); ++method) windlass_free_method(method->method);
  }
  template <typename Code>
  void add(Code* begin, const void* end, std::uint64_t id, std::uint32_t funclet, std::size_t parent,
           std::uint32_t kind = 0, const char* protects = nullptr, const void* handler = nullptr) {
    auto description = sized<windlass_method_description>();
    description.begin = reinterpret_cast<std::uint64_t>(begin);
    description.end = reinterpret_cast<std::uint64_t>(end);
    description.id = id;
    description.funclet = funclet;
    if (parent != 0) description.parent = methods[parent - 1].method;
    windlass_clause clause{};
    if (handler != nullptr) {
      clause.kind = kind;
      clause.begin = static_cast<std::uint32_t>(reinterpret_cast<std::uint64_t>(protects) - description.begin);
      clause.end = clause.begin + 8;
      clause.handler = reinterpret_cast<std::uint64_t>(handler);
      clause.user = 4711;
      description.clauses = &clause;
      description.clause_count = 1;
    }
    windlass_method* method = nullptr;
    EXPECT_EQ(windlass_make_method(&description, &method, nullptr), WINDLASS_OK);
    methods.push_back({description.begin, description.end, method});
  }
  // outer -> inner -> a function that throws `what`.
  std::uint64_t throw_from_inner(std::uint64_t what) {
    object = what;
    const auto raise = [](const void*) { windlass_raise(throwing->mutator, throwing->object); };
    const Call second{reinterpret_cast<void*>(+raise), nullptr};
    first = {reinterpret_cast<void*>(&c_inner_method), &second};
    return c_outer_method(&first);
  }

  struct Known {
    std::uint64_t begin, end;
    windlass_method* method;
  };
  std::vector<Known> methods;
  windlass_runtime* runtime = nullptr;
  windlass_personality personality = sized<windlass_personality>();
  windlass_mutator* mutator = nullptr;
  std::function<int(std::uint64_t sp)> room;
  Call first{};
  std::uint64_t object = 0;
  std::string events;
};

TEST_F(Throwing, IsCaughtByTheCallbacks) {
  EXPECT_EQ(throw_from_inner(7), reinterpret_cast<std::uint64_t>(&first));
  EXPECT_EQ(events, "through2 through1 asked1 finally22 caught7 ");
}

TEST_F(Throwing, NobodyHandlesIt) { EXPECT_DEATH(throw_from_inner(8), "debugger unhandled 8\n"); }

TEST_F(Throwing, WithoutAPersonalityTheProcessEnds) {
  windlass_mutator* mute = nullptr;
  ASSERT_EQ(windlass_open_mutator(runtime, nullptr, &mute, nullptr), WINDLASS_OK);
  EXPECT_DEATH(windlass_raise(mute, 7), "closed or has no personality");
  EXPECT_EQ(windlass_close_mutator(mute), WINDLASS_OK);
  EXPECT_DEATH(windlass_rethrow(mute), "closed or has no personality");
}

// A lazy frame's caller is the method that called the helper.
TEST_F(Throwing, HelpersAreWalkedFromTheirFrame) {
  static std::string shown;
  const auto helper = [](const void*) {
    windlass_context_frame frame{};
    frame.header.kind = WINDLASS_FRAME_HELPER;
    frame.header.form = WINDLASS_FORM_LAZY;
    windlass_capture_frame(&frame);
    windlass_frame_list* list = windlass_mutator_frames(throwing->mutator);
    windlass_push_frame(list, &frame.header);
    EXPECT_EQ(list->top, reinterpret_cast<std::uint64_t>(&frame));
    auto thread = sized<windlass_managed_thread>();
    thread.mutator = throwing->mutator;
    EXPECT_EQ(walk(thread, 0,
                   [](const windlass_crawl*, const windlass_crawl_frame* crawled) {
                     shown += std::to_string(crawled->state) + ":" + std::to_string(crawled->function) + " ";
                     return WINDLASS_CONTINUE;
                   }),
              WINDLASS_WALK_DONE);
    windlass_pop_frame(list, &frame.header);
    EXPECT_EQ(list->top, WINDLASS_END_OF_FRAMES);
  };
  const Call second{reinterpret_cast<void*>(+helper), nullptr};
  first = {reinterpret_cast<void*>(&c_inner_method), &second};
  c_outer_method(&first);
  EXPECT_EQ(shown, "2:0 1:2 1:1 ");
}

// The runtime says which arguments of the function that a transition frame is about are references.
TEST_F(Throwing, ArgumentsAreRoots) {
  static std::string shown;
  static windlass_status status;
  const auto helper = [](const void* user) {
    windlass_context_frame frame{};
    frame.header.kind = WINDLASS_FRAME_TRANSITION;
    frame.header.form = WINDLASS_FORM_LAZY;
    frame.header.user = *static_cast<const std::uint64_t*>(user);
    windlass_capture_frame(&frame);
    windlass_frame_list* list = windlass_mutator_frames(throwing->mutator);
    windlass_push_frame(list, &frame.header);
    auto thread = sized<windlass_managed_thread>();
    thread.mutator = throwing->mutator;
    const auto show = [](const windlass_root* root, void*) {
      shown += std::to_string(root->value) + "@" + std::to_string(root->address) + "/" + std::to_string(root->flags);
    };
    status = windlass_each_root(&thread, nullptr, 0, show, nullptr, nullptr);
    EXPECT_EQ(windlass_each_root(&thread, nullptr, WINDLASS_POP_FRAMES, show, nullptr, nullptr), WINDLASS_INVALID);
    windlass_pop_frame(list, &frame.header);
  };
  for (const std::uint64_t user : {2, 3}) {
    const Call second{reinterpret_cast<void*>(+helper), &user};
    first = {reinterpret_cast<void*>(&c_inner_method), &second};
    c_outer_method(&first);
    EXPECT_EQ(status, user == 2 ? WINDLASS_OK : WINDLASS_UNSUPPORTED);
  }
  EXPECT_EQ(shown, "2@4096/23@4096/2");
}

TEST_F(Throwing, WhatCannotGoOnIsHeardOf) {
  windlass_mutator_frames(mutator)->top = 0x1000;
  EXPECT_DEATH(throw_from_inner(7), "failed 7: .*frame is not readable");
  windlass_mutator_frames(mutator)->top = WINDLASS_END_OF_FRAMES;
}

// ---- a stack that has run out -------------------------------------------------------------------------------------

// inner_method, which calls itself until there is no stack left: how often that was caught.
unsigned overflow(Throwing& test, const SmallStack& stack) {
  unsigned caught = 0;
  const auto redirect = [](int signal, siginfo_t* info, void* context) {
    return windlass_redirect_fault(throwing->mutator, signal, info, context) != 0;
  };
  stack.run(redirect, [&] {
    for (int i = 0; i < 2; ++i) {
      Call again{reinterpret_cast<void*>(&c_inner_method), nullptr};
      again.next = &again;
      test.first = {reinterpret_cast<void*>(&c_inner_method), &again};
      caught += c_outer_method(&test.first) == reinterpret_cast<std::uint64_t>(&test.first) ? 1 : 0;
      stack.take_room();
    }
  });
  return caught;
}

TEST_F(Throwing, AStackThatHasRunOutIsGivenRoomToThrow) {
  const SmallStack stack;
  std::vector<std::uint64_t> asked;
  room = [&](std::uint64_t sp) {
    asked.push_back(sp);
    return stack.give_room() ? 1 : 0;
  };
  EXPECT_EQ(overflow(*this, stack), 2u);
  ASSERT_EQ(asked.size(), 2u);
  for (const std::uint64_t sp : asked) EXPECT_TRUE(stack.is_used_up_at(sp)) << sp;
  EXPECT_TRUE(events.ends_with("finally22 caught" + std::to_string(1000 + SIGSEGV) + " "));
}

// 0 is no room, whoever says so.
TEST_F(Throwing, AStackThatIsGivenNoRoomDoesNotThrow) {
  const SmallStack stack;
  room = [](std::uint64_t) {
    std::fputs("no room\n", stderr);
    return 0;
  };
  EXPECT_DEATH(overflow(*this, stack), "^no room\n(qemu: uncaught [^\n]*\n)?$");
  personality.make_room = nullptr;
  ASSERT_EQ(windlass_close_mutator(mutator), WINDLASS_OK);
  ASSERT_EQ(windlass_open_mutator(runtime, &personality, &mutator, nullptr), WINDLASS_OK);
  EXPECT_DEATH(overflow(*this, stack), "windlass: managed code has run out of stack");
}

// ---- threads ------------------------------------------------------------------------------------------------------

// A thread that says that it runs managed code, and comes to no safe point.
TEST_F(Throwing, WhoDoesNotStopIsNamed) {
  static std::atomic<const windlass_mutator*> late = nullptr;
  auto points = sized<windlass_safe_points>();
  points.is_safe_point = [](const windlass_method*, std::uint64_t, void*) { return 0; };
  points.is_late = [](windlass_mutator* slow, const windlass_error* why, void*) {
    EXPECT_EQ(why->status, WINDLASS_LIMIT);
    late = slow;
  };
  windlass_suspender* suspender = nullptr;
  ASSERT_EQ(windlass_open_suspender(runtime, &points, SIGRTMIN + 4, &suspender, nullptr), WINDLASS_OK);
  std::atomic<bool> end = false;
  std::atomic<int> id = 0;
  std::thread thread([&] {
    EXPECT_EQ(windlass_attach(suspender, mutator), WINDLASS_OK);
    windlass_leave_native(suspender, mutator);
    id = static_cast<int>(::gettid());
    while (!end) std::this_thread::yield();
    windlass_enter_native(suspender, mutator);
    while (end) std::this_thread::yield();
    EXPECT_EQ(windlass_detach(suspender, mutator), WINDLASS_OK);
  });
  while (id == 0) std::this_thread::yield();
  auto error = sized<windlass_error>();
  // A busy machine, or an emulator, may give the stopping thread no time before the limit has passed.
  for (int tries = 0; tries < 100 && late == nullptr; ++tries) {
    ASSERT_EQ(windlass_stop_within(suspender, 3'000'000'000, &error), WINDLASS_LIMIT);
    EXPECT_EQ(error.detail, static_cast<std::uint64_t>(id));
  }
  EXPECT_EQ(late, mutator);
  EXPECT_EQ(windlass_resume(suspender), WINDLASS_INVALID) << "nothing stands still";
  end = true;
  EXPECT_EQ(windlass_stop_within(suspender, UINT64_MAX, nullptr), WINDLASS_OK);
  EXPECT_EQ(windlass_resume(suspender), WINDLASS_OK);
  end = false;
  thread.join();
  EXPECT_EQ(windlass_close_suspender(suspender), WINDLASS_OK);
}

TEST_F(Throwing, ThreadsAreStopped) {
  auto points = sized<windlass_safe_points>();
  points.is_safe_point = [](const windlass_method*, std::uint64_t, void*) { return 0; };
  windlass_suspender *suspender = nullptr, *second = nullptr;
  ASSERT_EQ(windlass_open_suspender(runtime, &points, SIGRTMIN + 4, &suspender, nullptr), WINDLASS_OK);
  EXPECT_EQ(windlass_open_suspender(runtime, &points, SIGRTMIN + 4, &second, nullptr), WINDLASS_INVALID);
  std::atomic<bool> end = false;
  std::atomic<unsigned> rounds = 0;
  std::thread thread([&] {
    EXPECT_EQ(windlass_attach(suspender, mutator), WINDLASS_OK);
    EXPECT_EQ(windlass_attach(suspender, mutator), WINDLASS_INVALID);
    EXPECT_EQ(windlass_close_mutator(mutator), WINDLASS_INVALID) << "it is attached";
    while (!end) {
      windlass_leave_native(suspender, mutator);
      ++rounds;
      windlass_enter_native(suspender, mutator);
    }
    EXPECT_EQ(windlass_detach(suspender, mutator), WINDLASS_OK);
  });
  while (rounds == 0) std::this_thread::yield();
  EXPECT_EQ(windlass_resume(suspender), WINDLASS_INVALID);
  EXPECT_EQ(windlass_each_mutator(
                suspender, [](windlass_mutator*, void*) {}, nullptr),
            WINDLASS_INVALID);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(windlass_stop(suspender), WINDLASS_OK);
    EXPECT_EQ(*windlass_pending(suspender), 1u);
    const unsigned before = rounds;
    std::vector<windlass_mutator*> seen;
    EXPECT_EQ(
        windlass_each_mutator(
            suspender,
            [](windlass_mutator* one, void* to) { static_cast<std::vector<windlass_mutator*>*>(to)->push_back(one); },
            &seen),
        WINDLASS_OK);
    EXPECT_EQ(seen, std::vector{mutator});
    std::this_thread::yield();
    EXPECT_EQ(rounds, before);
    EXPECT_EQ(windlass_close_suspender(suspender), WINDLASS_INVALID) << "threads stand still";
    EXPECT_EQ(windlass_resume(suspender), WINDLASS_OK);
  }
  EXPECT_EQ(*windlass_pending(suspender), 0u);
  end = true;
  thread.join();
  EXPECT_EQ(*windlass_mutator_mode(mutator), 0u);
  EXPECT_EQ(windlass_close_suspender(suspender), WINDLASS_OK);
  EXPECT_EQ(windlass_close_suspender(suspender), WINDLASS_INVALID);
}

}  // namespace

extern "C" std::uint64_t run_c_outer_catch(std::uint64_t, std::uint64_t object) {
  throwing->events += "caught" + std::to_string(object) + " ";
  return reinterpret_cast<std::uint64_t>(c_outer_method_resume);
}
extern "C" std::uint64_t run_c_inner_finally(std::uint64_t, std::uint64_t) {
  throwing->events += "finally22 ";
  return 0;
}
