// Managed runtimes by the C interface: a stack made up word by word, and calls that are wrong.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "capi/managed.h"
#include "support/llvm_section.h"
#include "support/managed_by_c.h"
#include "support/sized.h"
#include "windlass/c/managed.h"

namespace {

using windlass::test::sized, windlass::test::walk;
constexpr std::uint64_t kCode = 0x10000, kStack = 0x7000'0000;

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

// What has been closed is refused from then on, and closing it again is no mistake that goes unnoticed.
TEST(CApiManaged, WhatIsClosedIsClosed) {
  windlass_runtime_callbacks callbacks = sized<windlass_runtime_callbacks>();
  callbacks.find = [](std::uint64_t, void*) -> const windlass_method* { return nullptr; };
  windlass_runtime* runtime = nullptr;
  ASSERT_EQ(windlass_open_runtime(&callbacks, &runtime, nullptr), WINDLASS_OK);
  windlass_mutator* mutator = nullptr;
  ASSERT_EQ(windlass_open_mutator(runtime, nullptr, &mutator, nullptr), WINDLASS_OK);
  EXPECT_NE(windlass_mutator_frames(mutator), nullptr);
  EXPECT_EQ(windlass_close_mutator(mutator), WINDLASS_OK);
  EXPECT_EQ(windlass_mutator_frames(mutator), nullptr);
  EXPECT_EQ(windlass_close_mutator(mutator), WINDLASS_INVALID);
  EXPECT_EQ(windlass_close_runtime(runtime), WINDLASS_OK);
  EXPECT_EQ(windlass_close_runtime(runtime), WINDLASS_INVALID);
  EXPECT_EQ(windlass_open_mutator(runtime, nullptr, &mutator, nullptr), WINDLASS_INVALID);
}

TEST(CApiManaged, SlotsThatAreNoneAreRefused) {
  const windlass_root_slot good{{WINDLASS_AT_SP, 0, 8}, 0}, other{{WINDLASS_AT_SP, 0, 16}, 0};
  const windlass_root_slot no_place{{5, 0, 8}, 0}, no_flag{{WINDLASS_AT_SP, 0, 8}, WINDLASS_DERIVED};
  const auto encode = [](const windlass_root_slot& always, const windlass_root_slot& slot,
                         const windlass_root_slot& base, const windlass_root_slot& live) {
    const windlass_derived_slot derived{slot, base};
    const windlass_root_site site{0x10, 1, &live};
    windlass_stack_map map = sized<windlass_stack_map>();
    map.code_size = 0x100;
    map.always = &always;
    map.always_count = 1;
    map.derived = &derived;
    map.derived_count = 1;
    map.sites = &site;
    map.site_count = 1;
    std::byte bytes[256];
    std::size_t needed = 0;
    return windlass_encode_stack_map(&map, bytes, sizeof bytes, &needed, nullptr);
  };
  EXPECT_EQ(encode(other, good, other, good), WINDLASS_OK);
  for (const windlass_root_slot& wrong : {no_place, no_flag}) {
    EXPECT_EQ(encode(wrong, good, other, good), WINDLASS_INVALID);
    EXPECT_EQ(encode(other, wrong, other, good), WINDLASS_INVALID);
    EXPECT_EQ(encode(other, good, wrong, good), WINDLASS_INVALID);
    EXPECT_EQ(encode(other, good, other, wrong), WINDLASS_INVALID);
  }
}

TEST(CApiManaged, SafePointsAreAskedByCallbacks) {
  windlass_safe_points points = sized<windlass_safe_points>();
  points.is_safe_point = [](const windlass_method*, std::uint64_t pc, void*) { return pc == kCode ? 1 : 0; };
  const windlass_method method{};
  {
    const windlass::capi::CallbackSafePoints asked(points);
    EXPECT_TRUE(asked.is_safe_point(method, kCode));
    EXPECT_FALSE(asked.is_safe_point(method, kCode + 1));
    EXPECT_TRUE(asked.can_hijack(method)) << "without a callback, returns of all methods";
    EXPECT_FALSE(asked.returns_reference(method));
  }
  for (const int answer : {0, 1}) {
    points.user = const_cast<int*>(&answer);
    points.can_hijack = [](const windlass_method*, void* user) { return *static_cast<int*>(user); };
    points.returns_reference = [](const windlass_method*, void* user) { return *static_cast<int*>(user); };
    const windlass::capi::CallbackSafePoints asked(points);
    EXPECT_EQ(asked.can_hijack(method), answer != 0);
    EXPECT_EQ(asked.returns_reference(method), answer != 0);
  }
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
  EXPECT_NE(why([](Description& d) { d.this_object.base = 5; }).find("place"), std::string::npos);
  EXPECT_NE(why([](Description& d) { d.generic_context.base = 5; }).find("place"), std::string::npos);
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

}  // namespace
