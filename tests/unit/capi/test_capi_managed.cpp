// Managed runtimes by the C interface: a stack made up word by word, code by hand that throws, threads that stop.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/code_by_hand.h"
#include "support/llvm_section.h"
#include "windlass/windlass_managed.h"

WINDLASS_MANAGED_METHOD(c_outer_method)
WINDLASS_MANAGED_METHOD(c_inner_method)
WINDLASS_FUNCLET(c_outer_catch, run_c_outer_catch)
WINDLASS_FUNCLET(c_inner_finally, run_c_inner_finally)

namespace {

using namespace windlass::managed;
constexpr std::uint64_t kCode = 0x10000, kStack = 0x7000'0000;

template <typename T>
T sized() {
  T made{};
  made.size = sizeof made;
  return made;
}

// ---- another process ----------------------------------------------------------------------------------------------

// Method 2, called by method 1, called out: each has a frame of four words, [.., rbx, return address].
struct MadeUp {
  MadeUp() {
    put(kStack + 0x80, windlass_call_site_frame{.header = {.next = WINDLASS_END_OF_FRAMES,
                                                           .cookie = kCookie ^ (kStack + 0x80),
                                                           .kind = WINDLASS_FRAME_INLINED_CALL,
                                                           .form = WINDLASS_FORM_CALL_SITE,
                                                           .attributes = 0,
                                                           .reference_count = 1,
                                                           .references = kStack + 0x100,
                                                           .user = 77},
                                                .pc = kCode + 0x110,
                                                .sp = kStack + 0x200,
                                                .fp = 0});
    put(kStack + 0x100, kStack + 0x108);
    put(kStack + 0x108, std::uint64_t{5});
    put(kStack + 0x200, std::array<std::uint64_t, 8>{1, 2, 0x11, kCode + 0x10, 3, 0x7155, 0x12, 0x900000});
    windlass_memory memory = sized<windlass_memory>();
    memory.read = [](void* user, std::uint64_t address, void* to, std::size_t length) {
      const auto* it = static_cast<const MadeUp*>(user);
      if (address < kStack || address - kStack > sizeof it->words || length > sizeof it->words - (address - kStack))
        return 0;
      std::memcpy(to, reinterpret_cast<const char*>(it->words) + (address - kStack), length);
      return 1;
    };
    memory.user = this;
    EXPECT_EQ(windlass_open_callbacks(WINDLASS_X86_64, &memory, &space, nullptr), WINDLASS_OK);
    const windlass_saved_register saved{3, -16};
    const windlass_row rows[] = {{kCode, kCode + 0x200, 7, 32, -8, 1, &saved}};
    windlass_code code = sized<windlass_code>();
    code.begin = kCode;
    code.end = kCode + 0x200;
    code.rows = rows;
    code.row_count = 1;
    EXPECT_EQ(windlass_add_code(space, &code, nullptr, nullptr), WINDLASS_OK);
    const windlass_root_slot slot{{WINDLASS_AT_SP, 0, 8}, WINDLASS_INTERIOR};
    const windlass_root_site site{0x10, 1, &slot};
    windlass_stack_map map = sized<windlass_stack_map>();
    map.code_size = 0x100;
    map.sites = &site;
    map.site_count = 1;
    EXPECT_EQ(windlass_encode_stack_map(&map, nullptr, 0, &roots_size, nullptr), WINDLASS_LIMIT);
    EXPECT_EQ(windlass_encode_stack_map(&map, roots, sizeof roots, &roots_size, nullptr), WINDLASS_OK);
    for (unsigned i = 0; i < 2; ++i) {
      windlass_method_description description = sized<windlass_method_description>();
      description.begin = kCode + 0x100 * i;
      description.end = description.begin + 0x100;
      description.id = i + 1;
      description.roots = roots;
      description.roots_size = roots_size;
      description.this_object = {WINDLASS_AT_SP, 0, 8};
      description.generic_context = {WINDLASS_IN_REGISTER, 3, 0};
      EXPECT_EQ(windlass_make_method(&description, &methods[i], nullptr), WINDLASS_OK);
    }
    windlass_runtime_callbacks callbacks = sized<windlass_runtime_callbacks>();
    callbacks.find = [](std::uint64_t pc, void* user) -> const windlass_method* {
      return pc - kCode < 0x200 ? static_cast<const MadeUp*>(user)->methods[(pc - kCode) / 0x100] : nullptr;
    };
    callbacks.user = this;
    EXPECT_EQ(windlass_open_runtime(&callbacks, &runtime, nullptr), WINDLASS_OK);
    thread.space = space;
    thread.runtime = runtime;
    thread.frames = kStack + 0x80;
    thread.cookie = kCookie;
    thread.exceptions = WINDLASS_END_OF_FRAMES;
  }
  ~MadeUp() {
    EXPECT_EQ(windlass_close_runtime(runtime), WINDLASS_OK);
    for (windlass_method* method : methods) windlass_free_method(method);
    EXPECT_EQ(windlass_close(space), WINDLASS_OK);
  }
  MadeUp(const MadeUp&) = delete;
  MadeUp& operator=(const MadeUp&) = delete;
  template <typename T>
  void put(std::uint64_t address, const T& value) {
    std::memcpy(reinterpret_cast<char*>(words) + (address - kStack), &value, sizeof value);
  }

  static constexpr std::uint64_t kCookie = 0x1234;
  std::uint64_t words[0x400 / 8] = {};
  windlass_space* space = nullptr;
  windlass_runtime* runtime = nullptr;
  windlass_method* methods[2] = {};
  windlass_managed_thread thread = sized<windlass_managed_thread>();
  std::byte roots[32];
  std::size_t roots_size = 0;
};

using Visit = std::function<int(const windlass_crawl*, const windlass_crawl_frame*)>;
std::uint32_t walk(const windlass_managed_thread& thread, std::uint32_t flags, const Visit& visit,
                   windlass_error* error = nullptr) {
  std::uint32_t outcome = 99;
  EXPECT_EQ(windlass_walk_managed(
                &thread, nullptr, flags,
                [](const windlass_crawl* crawl, const windlass_crawl_frame* frame, void* user) {
                  return (*static_cast<const Visit*>(user))(crawl, frame);
                },
                const_cast<Visit*>(&visit), &outcome, error),
            WINDLASS_OK);
  return outcome;
}

TEST(CApiManaged, AnotherProcessIsWalked) {
  MadeUp made;
  std::vector<windlass_crawl_frame> frames;
  std::string roots;
  std::uint64_t self = 0, context = 0, saved_at = 0, rbx = 0;
  EXPECT_EQ(walk(made.thread, 0,
                 [&](const windlass_crawl* crawl, const windlass_crawl_frame* frame) {
                   frames.push_back(*frame);
                   const auto show = [](const windlass_root* root, void* text) {
                     *static_cast<std::string*>(text) += std::to_string(root->value) + "@" +
                                                         std::to_string(root->address - kStack) +
                                                         (root->flags == WINDLASS_INTERIOR ? "i " : " ");
                   };
                   EXPECT_EQ(windlass_crawl_roots(crawl, show, &roots, nullptr), WINDLASS_OK);
                   if (frame->function != 1) return WINDLASS_CONTINUE;
                   EXPECT_EQ(windlass_crawl_this(crawl, &self), WINDLASS_OK);
                   EXPECT_EQ(windlass_crawl_generic_context(crawl, &context), WINDLASS_OK);
                   EXPECT_EQ(windlass_crawl_saved_at(crawl, 3, &saved_at), WINDLASS_OK);
                   windlass_registers registers = sized<windlass_registers>();
                   EXPECT_EQ(windlass_crawl_registers(crawl, &registers), WINDLASS_OK);
                   EXPECT_EQ(windlass_get(&registers, 3, &rbx), WINDLASS_OK);
                   EXPECT_EQ(windlass_crawl_get(crawl, 12, &rbx), WINDLASS_NOT_FOUND);
                   EXPECT_EQ(windlass_crawl_get(crawl, 9999, &rbx), WINDLASS_OUT_OF_RANGE);
                   EXPECT_EQ(windlass_crawl_value(crawl, {WINDLASS_NOWHERE, 0, 0}, &rbx), WINDLASS_NOT_FOUND);
                   return WINDLASS_CONTINUE;
                 }),
            WINDLASS_WALK_DONE);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].state, WINDLASS_FRAME_FUNCTION);
  EXPECT_EQ(frames[0].frame, kStack + 0x80);
  EXPECT_EQ(frames[0].frame_user, 77u);
  EXPECT_EQ(frames[0].pc, 0u);
  EXPECT_EQ(frames[1].function, 2u);
  EXPECT_EQ(frames[1].method, made.methods[1]);
  EXPECT_EQ(frames[1].flags,
            WINDLASS_RETURN_ADDRESS | WINDLASS_IS_FIRST | WINDLASS_REPORTS_ROOTS | WINDLASS_SAVED_KNOWN);
  EXPECT_EQ(frames[2].function, 1u);
  EXPECT_EQ(frames[2].sp, kStack + 0x220);
  EXPECT_EQ(frames[2].cfa, kStack + 0x240);
  EXPECT_EQ(roots, "5@264 2@520i 29013@552i ");
  EXPECT_EQ(self, 0x7155u);
  EXPECT_EQ(context, 0x11u);
  EXPECT_EQ(rbx, 0x11u);
  EXPECT_EQ(saved_at, kStack + 0x210);
}

TEST(CApiManaged, TheCallbackSaysWhatBecomesOfIt) {
  MadeUp made;
  const auto say = [&](int what) {
    unsigned count = 0;
    const std::uint32_t outcome =
        walk(made.thread, WINDLASS_FUNCTIONS_ONLY,
             [&](const windlass_crawl*, const windlass_crawl_frame*) { return ++count == 1 ? what : 0; });
    return std::pair(outcome, count);
  };
  EXPECT_EQ(say(WINDLASS_CONTINUE), std::pair(std::uint32_t{WINDLASS_WALK_DONE}, 2u));
  EXPECT_EQ(say(WINDLASS_STOP), std::pair(std::uint32_t{WINDLASS_WALK_STOPPED}, 1u));
  EXPECT_EQ(say(WINDLASS_ABORT), std::pair(std::uint32_t{WINDLASS_WALK_ABORTED}, 1u));
  made.thread.cookie ^= 1;
  windlass_error error = sized<windlass_error>();
  EXPECT_EQ(walk(
                made.thread, 0, [](auto, auto) { return 0; }, &error),
            WINDLASS_WALK_FAILED);
  EXPECT_EQ(error.status, WINDLASS_MALFORMED);
  EXPECT_EQ(error.where, kStack + 0x80);
  EXPECT_EQ(walk(made.thread, WINDLASS_SKIP_COOKIE_CHECK, [](auto, auto) { return 0; }), WINDLASS_WALK_DONE);
}

TEST(CApiManaged, MarksSayWhoCalled) {
  MadeUp made;
  windlass_crawl_frame frame = sized<windlass_crawl_frame>();
  EXPECT_EQ(windlass_find_managed_caller(&made.thread, nullptr, WINDLASS_MYSELF, &frame, nullptr), WINDLASS_OK);
  EXPECT_EQ(frame.function, 2u);
  EXPECT_EQ(windlass_find_managed_caller(&made.thread, nullptr, WINDLASS_MY_CALLER, &frame, nullptr), WINDLASS_OK);
  EXPECT_EQ(frame.function, 1u);
  EXPECT_EQ(windlass_find_managed_caller(&made.thread, nullptr, WINDLASS_MY_CALLERS_CALLER, &frame, nullptr),
            WINDLASS_NOT_FOUND);
}

TEST(CApiManaged, LlvmStackMapsAreRead) {
  MadeUp made;
  const auto section = windlass::test::llvm_section(kCode, {{0, 0}, {0, 8}});
  windlass_llvm_stack_maps* maps = nullptr;
  ASSERT_EQ(windlass_open_llvm_stack_maps(section.data(), section.size(), &maps, nullptr), WINDLASS_OK);
  std::string roots;
  walk(made.thread, WINDLASS_FUNCTIONS_ONLY, [&](const windlass_crawl* crawl, const windlass_crawl_frame* frame) {
    const auto show = [](const windlass_root* root, void* text) {
      *static_cast<std::string*>(text) += std::to_string(root->value) + (root->flags == WINDLASS_DERIVED ? "<" : " ");
    };
    EXPECT_EQ(windlass_crawl_llvm_roots(crawl, maps, show, &roots, nullptr),
              frame->function == 1 ? WINDLASS_OK : WINDLASS_NOT_FOUND);
    return WINDLASS_CONTINUE;
  });
  EXPECT_EQ(roots, "29013<3 ");
  windlass_free_llvm_stack_maps(maps);
  EXPECT_EQ(windlass_open_llvm_stack_maps(section.data(), 7, &maps, nullptr), WINDLASS_TRUNCATED);
}

// ---- misuse -------------------------------------------------------------------------------------------------------

int ignore(const windlass_crawl*, const windlass_crawl_frame*, void*) { return WINDLASS_CONTINUE; }

TEST(CApiManaged, WrongCallsAreInvalid) {
  MadeUp made;
  windlass_managed_thread closed = made.thread, short_one = made.thread, no_space = made.thread;
  windlass_mutator* mutator = nullptr;
  ASSERT_EQ(windlass_open_mutator(made.runtime, nullptr, &mutator, nullptr), WINDLASS_OK);
  closed.mutator = mutator;
  EXPECT_NE(windlass_mutator_frames(mutator), nullptr);
  EXPECT_EQ(windlass_close_mutator(mutator), WINDLASS_OK);
  EXPECT_EQ(windlass_mutator_frames(mutator), nullptr);
  --short_one.size;
  no_space.space = nullptr;
  windlass_registers other = sized<windlass_registers>();
  windlass_registers_init(&other, WINDLASS_AARCH64);
  windlass_method_description description = sized<windlass_method_description>();
  windlass_personality no_catches = sized<windlass_personality>();
  windlass_runtime_callbacks no_find = sized<windlass_runtime_callbacks>();
  windlass_safe_points no_points = sized<windlass_safe_points>();
  windlass_stack_map map = sized<windlass_stack_map>();
  map.site_count = 1;
  windlass_method* method = nullptr;
  windlass_runtime* runtime = nullptr;
  windlass_suspender* suspender = nullptr;
  windlass_crawl_frame frame = sized<windlass_crawl_frame>();
  std::uint64_t value = 0;
  std::size_t needed = 0;
  for (const windlass_status status :
       {windlass_walk_managed(nullptr, nullptr, 0, ignore, nullptr, nullptr, nullptr),
        windlass_walk_managed(&closed, nullptr, 0, ignore, nullptr, nullptr, nullptr),
        windlass_walk_managed(&short_one, nullptr, 0, ignore, nullptr, nullptr, nullptr),
        windlass_walk_managed(&no_space, nullptr, 0, ignore, nullptr, nullptr, nullptr),
        windlass_walk_managed(&made.thread, &other, 0, ignore, nullptr, nullptr, nullptr),
        windlass_walk_managed(&made.thread, nullptr, 1u << 16, ignore, nullptr, nullptr, nullptr),
        windlass_walk_managed(&made.thread, nullptr, 0, nullptr, nullptr, nullptr, nullptr),
        windlass_find_managed_caller(&made.thread, nullptr, 3, &frame, nullptr),
        windlass_find_managed_caller(&made.thread, nullptr, 0, nullptr, nullptr),
        windlass_crawl_registers(nullptr, &other),
        windlass_crawl_get(nullptr, 0, &value),
        windlass_crawl_saved_at(nullptr, 0, &value),
        windlass_crawl_this(nullptr, &value),
        windlass_crawl_generic_context(nullptr, &value),
        windlass_crawl_roots(nullptr, nullptr, nullptr, nullptr),
        windlass_crawl_value(nullptr, {WINDLASS_AT_SP, 0, 0}, &value),
        windlass_make_method(nullptr, &method, nullptr),
        windlass_make_method(&description, nullptr, nullptr),
        windlass_open_runtime(&no_find, &runtime, nullptr),
        windlass_open_runtime(nullptr, &runtime, nullptr),
        windlass_open_mutator(nullptr, nullptr, &mutator, nullptr),
        windlass_open_mutator(made.runtime, &no_catches, &mutator, nullptr),
        windlass_close_mutator(mutator),
        windlass_close_runtime(nullptr),
        windlass_frame_list_init(nullptr),
        windlass_encode_stack_map(&map, nullptr, 0, &needed, nullptr),
        windlass_encode_stack_map(nullptr, nullptr, 0, &needed, nullptr),
        windlass_open_suspender(made.runtime, &no_points, SIGRTMIN + 4, &suspender, nullptr),
        windlass_open_suspender(nullptr, &no_points, SIGRTMIN + 4, &suspender, nullptr),
        windlass_attach(nullptr, mutator),
        windlass_detach(nullptr, mutator),
        windlass_stop(nullptr),
        windlass_resume(nullptr),
        windlass_each_mutator(nullptr, nullptr, nullptr),
        windlass_close_suspender(nullptr)})
    EXPECT_EQ(status, WINDLASS_INVALID);
}

TEST(CApiManaged, WhatNoMethodCanBeIsRefused) {
  const auto why = [](auto change) {
    windlass_method_description description = sized<windlass_method_description>();
    description.begin = 0x1000;
    description.end = 0x1010;
    change(description);
    windlass_method* method = nullptr;
    windlass_error error = sized<windlass_error>();
    const windlass_status status = windlass_make_method(&description, &method, &error);
    windlass_free_method(method);
    return status == WINDLASS_OK ? std::string("fine") : std::string(error.text);
  };
  using Description = windlass_method_description;
  const windlass_clause clause{
      .kind = 4, .begin = 0, .end = 1, .reserved = 0, .handler = 0, .filter = 0, .user = 0, .resume = 0};
  EXPECT_EQ(why([](Description&) {}), "fine");
  EXPECT_NE(why([](Description& d) { d.end = d.begin; }).find("no code"), std::string::npos);
  EXPECT_NE(why([](Description& d) { d.funclet = 5; }).find("no kind"), std::string::npos);
  EXPECT_NE(why([](Description& d) { d.funclet = WINDLASS_CATCH; }).find("without a method"), std::string::npos);
  EXPECT_NE(why([](Description& d) { d.guard.base = 5; }).find("place"), std::string::npos);
  EXPECT_NE(why([&](Description& d) {
              d.clauses = &clause;
              d.clause_count = 1;
            }).find("clauses"),
            std::string::npos);
  EXPECT_NE(why([&](Description& d) {
              d.roots = "no stack map here";
              d.roots_size = 17;
            }).find("version"),
            std::string::npos);
}

// ---- code by hand -------------------------------------------------------------------------------------------------

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
    windlass_runtime_callbacks callbacks = sized<windlass_runtime_callbacks>();
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
    windlass_personality personality = sized<windlass_personality>();
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
    windlass_method_description description = sized<windlass_method_description>();
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
  windlass_mutator* mutator = nullptr;
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
    windlass_managed_thread thread = sized<windlass_managed_thread>();
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
    windlass_managed_thread thread = sized<windlass_managed_thread>();
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

// ---- threads ------------------------------------------------------------------------------------------------------

// A thread that says that it runs managed code, and comes to no safe point.
TEST_F(Throwing, WhoDoesNotStopIsNamed) {
  static std::atomic<const windlass_mutator*> late = nullptr;
  windlass_safe_points points = sized<windlass_safe_points>();
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
  windlass_error error = sized<windlass_error>();
  EXPECT_EQ(windlass_stop_within(suspender, 1'500'000'000, &error), WINDLASS_LIMIT);
  EXPECT_EQ(error.detail, static_cast<std::uint64_t>(id));
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
  windlass_safe_points points = sized<windlass_safe_points>();
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
