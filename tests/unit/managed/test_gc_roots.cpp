// Stack maps: written, read, and applied to frames.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <utility>

#include "made_up_stack.h"
#include "managed/gc_roots.h"
#include "support/llvm_section.h"

// keep_over_call(f): windlass_call_saving_registers(f, ...) with 4711 in a register that calls preserve; returns what
// is in it then.
#if defined(__x86_64__)
constexpr windlass::RegisterNumber kKept = 15;
asm(R"(
  .text
  .globl keep_over_call
keep_over_call:
  .cfi_startproc
  pushq %r15
  .cfi_def_cfa_offset 16
  .cfi_offset %r15, -16
  movl $4711, %r15d
  call windlass_call_saving_registers
  movq %r15, %rax
  popq %r15
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
)");
#else
constexpr windlass::RegisterNumber kKept = 28;
asm(R"(
  .text
  .p2align 2
  .globl keep_over_call
keep_over_call:
  .cfi_startproc
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset x29, -32
  .cfi_offset x30, -24
  str x28, [sp, #16]
  .cfi_offset x28, -16
  mov x28, #4711
  bl windlass_call_saving_registers
  mov x0, x28
  ldr x28, [sp, #16]
  .cfi_restore x28
  ldp x29, x30, [sp], #32
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
)");
#endif
extern "C" std::uint64_t keep_over_call(void (*function)(void*));

namespace windlass::managed {
namespace {

RootSlot slot(FramePlace place, bool interior = false, bool pinned = false) { return {place, interior, pinned}; }

// What a frame's roots are, as text: "sp+8=1 rbx@...=2".
std::string roots_of(const CrawlFrame& frame, const Memory& memory) {
  std::string text;
  const auto done = each_root(frame, memory, [&](const Root& root) {
    if (!text.empty()) text += ' ';
    text += std::to_string(root.value);
    if (root.interior) text += 'i';
    if (root.pinned) text += 'p';
    if (root.derived) text += "<" + std::to_string(root.base);
    if (root.address == 0) text += "(register)";
  });
  if (!done) text += std::string(text.empty() ? "" : " ") + "error: " + done.error().what;
  return text;
}

struct OneFrame : MadeUpStack {
  explicit OneFrame(const StackMap& map) : bytes(encode(map).value()), method(runtime.add(1, 8)) {
    method.roots = bytes;
    cfa = call(method, 33);
    for (std::uint64_t i = 0; i < 4; ++i) mem->put(sp + 8 * i, 10 + i);
  }
  std::string roots(std::uint64_t offset, bool faulted = false) {
    pc = method.begin + offset;
    ManagedWalker walker(thread, registers(), 0);
    if (!walker.next()) return "no frame";
    CrawlFrame frame = walker.frame();
    frame.faulted = faulted;
    return roots_of(frame, *mem);
  }
  std::vector<std::byte> bytes;
  Method& method;
  std::uint64_t cfa;
};

TEST(GcRoots, EachSiteHasItsOwn) {
  OneFrame frame({.code_size = 0x100,
                  .always = {slot(at_sp(24), false, true)},
                  .sites = {{0x10, {slot(at_sp(0)), slot(in_register(kRbx))}},
                            {0x20, {slot(at_sp(8), true)}},
                            {0x30, {}},
                            {0xff, {slot(at_cfa(-48)), slot(at_sp(0))}}}});
  EXPECT_EQ(frame.roots(0x10), "13p 10 33(register)");
  EXPECT_EQ(frame.roots(0x20), "13p 11i");
  EXPECT_EQ(frame.roots(0x30), "13p");
  EXPECT_EQ(frame.roots(0xff), "13p 10 12");
  EXPECT_EQ(frame.roots(0x11), "error: stack map has no site here");
  EXPECT_EQ(frame.roots(0x11, true), "13p") << "a frame that will not go on";
}

TEST(GcRoots, DerivedOnesComeBeforeTheirBases) {
  const RootSlot base = slot(at_sp(0)), derived = slot(at_sp(8), true);
  OneFrame frame(
      {.code_size = 0x100, .derived = {{derived, base}}, .sites = {{0x10, {base, derived}}, {0x20, {base}}}});
  EXPECT_EQ(frame.roots(0x10), "11i<10 10");
  EXPECT_EQ(frame.roots(0x20), "10");
}

// A preserved register is where a callee has saved it.
TEST(GcRoots, RegistersAreUpdatedWhereTheyWereSaved) {
  MadeUpStack stack;
  Method& outer = stack.runtime.add(1, 8);
  const auto bytes = encode({.code_size = 0x100, .sites = {{0x10, {slot(in_register(kRbx))}}}});
  outer.roots = *bytes;
  stack.call(outer, 0x77);
  const std::uint64_t inner = stack.call(stack.runtime.add(2, 4), 0x88);
  ManagedWalker walker(stack.thread, stack.registers(), 0);
  ASSERT_TRUE(walker.next() && walker.next());
  Root found;
  ASSERT_TRUE(each_root(walker.frame(), *stack.mem, [&](const Root& root) { found = root; }));
  EXPECT_EQ(found.value, 0x77u);
  EXPECT_EQ(found.address, inner - 16);
}

// A helper's, one to many of them.
template <std::size_t... N>
std::string protected_by_helper(std::index_sequence<N...>) {
  std::array<std::uint64_t, sizeof...(N)> objects{(100 + N)...};
  HelperFrame<sizeof...(N)> helper(&objects[N]...);
  FrameList list;
  const Pushed pushed(list, helper);
  const auto view = read_frame(own_process().memory(), list.top, &list.cookie);
  CrawlFrame frame;
  frame.state = CrawlState::kFrameFunction;
  frame.frame = *view;
  std::string text = roots_of(frame, own_process().memory());
  (void)each_root(frame, own_process().memory(), [](const Root& root) { root.set(root.value + 1); });
  for (const std::uint64_t object : objects) text += ">" + std::to_string(object);
  helper.header.attributes |= kFrameAborted;
  frame.frame = *read_frame(own_process().memory(), list.top, &list.cookie);
  return text + roots_of(frame, own_process().memory());
}

TEST(GcRoots, HelpersProtectAsManyAsTheySay) {
  EXPECT_EQ(protected_by_helper(std::make_index_sequence<1>()), "100>101");
  EXPECT_EQ(protected_by_helper(std::make_index_sequence<2>()), "100 101>101>102");
  EXPECT_EQ(protected_by_helper(std::make_index_sequence<3>()), "100 101 102>101>102>103");
  EXPECT_EQ(protected_by_helper(std::make_index_sequence<5>()), "100 101 102 103 104>101>102>103>104>105");
}

// A stub that prepares the called method has the arguments in its frame. They are roots there, and the method begins
// with them.
TEST(GcRoots, ATransitionProtectsItsArguments) {
  MadeUpStack stack;
  stack.call(stack.runtime.add(1, 4), 0x11);
  constexpr RegisterNumber kRdi = 5, kRsi = 4;
  ContextFrame frame(FrameKind::kTransition, FrameForm::kSaved, kStandsForFunction);
  frame.header.user = 2;  // the method that is prepared
  Registers registers = stack.registers();
  registers.set(kRdi, 0xaaa);
  registers.set(kRsi, 0xbbb);
  frame.context.set(registers);
  const std::uint64_t references = stack.sp -= 16, at = stack.sp -= (sizeof frame + 15) / 16 * 16;
  const std::uint64_t slots = at + offsetof(ContextFrame, context) + offsetof(SavedContext, value);
  stack.mem->put(references, slots + 8 * kRdi);
  stack.mem->put(references + 8, slots + 8 * kRsi);
  frame.header.reference_count = 2;
  frame.header.references = references;
  stack.push(frame, at);
  stack.call_native();
  EXPECT_EQ(stack.shown(stack.registers(), 0), "transition 1");
  ManagedWalker walker(stack.thread, stack.registers(), kFunctionsOnly);
  ASSERT_TRUE(walker.next());
  EXPECT_EQ(walker.frame().function(), 2u);
  EXPECT_EQ(roots_of(walker.frame(), *stack.mem), "2730 3003");
}

TEST(GcRoots, InteriorAndPinnedOnesOfExplicitFrames) {
  std::uint64_t object = 100, inside = 101, fixed = 102, both = 103;
  FrameList list;
  HelperFrame<4> helper(&object, interior(&inside), pinned(&fixed), pinned(interior(&both)));
  const Pushed pushed(list, helper);
  CrawlFrame frame;
  frame.state = CrawlState::kFrameFunction;
  frame.frame = *read_frame(own_process().memory(), list.top, &list.cookie);
  std::string text;
  ASSERT_TRUE(each_root(frame, own_process().memory(), [&](const Root& root) {
    text += std::to_string(root.value) + (root.interior ? "i" : "") + (root.pinned ? "p " : " ");
    root.set(0);
  }));
  EXPECT_EQ(text, "100 101i 102p 103ip ");
  EXPECT_EQ(object + inside + fixed + both, 0u);
}

// The runtime knows by the signature which arguments of a function that has no frame yet are references.
TEST(GcRoots, ArgumentsOfATransitionByTheRuntime) {
  constexpr RegisterNumber kRdi = 5;
  class Signatures : public MadeUpRuntime {
   public:
    Expected<void> each_argument(const CrawlFrame& frame, const Memory& memory,
                                 FunctionRef<void(const Root&)> sink) const override {
      Root root{.address = frame.frame.context_at + offsetof(SavedContext, value) + 8 * kRdi};
      EXPECT_EQ(frame.frame.user, 2u);
      EXPECT_TRUE(memory.read(root.address, &root.value, sizeof root.value));
      sink(root);
      return {};
    }
  } signatures;
  MadeUpStack stack;
  stack.call(stack.runtime.add(1, 4));
  (void)signatures.add(1, 4);
  ContextFrame frame(FrameKind::kTransition, FrameForm::kSaved);
  frame.header.user = 2;
  Registers registers = stack.registers();
  registers.set(kRdi, 0xaaa);
  frame.context.set(registers);
  stack.push(frame);
  stack.call_native();
  ManagedThread thread = stack.thread;
  thread.runtime = &signatures;
  const auto roots = [&] {
    std::string text;
    const auto done = each_root(thread, Registers(Architecture::kX86_64), 0,
                                [&](const Root& root) { text += std::to_string(root.value) + " "; });
    return done ? text : done.error().text();
  };
  EXPECT_EQ(roots(), "2730 ") << "those of a whole thread";
  frame.header.kind = static_cast<std::uint16_t>(FrameKind::kHelper);
  frame.header.attributes = 0;
  stack.thread.frames = kEndOfFrames;
  thread.frames = stack.push(frame);
  EXPECT_EQ(roots(), "");
  thread.frames = 0x1000;
  EXPECT_EQ(roots(), "0x1000: explicit frame is not readable (0x28)");
}

TEST(GcRoots, OfExplicitFramesAndExceptions) {
  MadeUpStack stack;
  stack.call(stack.runtime.add(1, 4));
  const std::uint64_t array = stack.sp -= 16, object = stack.sp -= 16;
  stack.mem->put(object, std::uint64_t{5});
  stack.mem->put(array, object);
  ContextFrame frame(FrameKind::kHelper, FrameForm::kSaved);
  frame.header.reference_count = 1;
  frame.header.references = array;
  frame.context.set(stack.registers());
  frame.context.value[7] += 32;
  stack.push(frame);
  ExceptionRecord record{.object = 6};
  record.set_context(stack.registers());
  stack.push_record(record);
  stack.call_native();
  std::string text;
  ManagedWalker walker(stack.thread, stack.registers(), kNotifyOnNoFrameTransitions);
  while (walker.next()) text += roots_of(walker.frame(), *stack.mem) + ";";
  EXPECT_EQ(text, "6;;") << "the record leads past the frame";
  stack.thread.exceptions = kEndOfFrames;
  ManagedWalker again(stack.thread, stack.registers(), 0);
  ASSERT_TRUE(again.next());
  EXPECT_EQ(roots_of(again.frame(), *stack.mem), "5");
}

// A helper that is entered this way leaves no reference in a register alone. Each has an address, and a value stored
// there is in the register when the helper returns.
TEST(GcRoots, RegistersAreSavedAroundACall) {
  const std::uint64_t after = keep_over_call([](void*) {
    StackWalker walker(own_process(), capture_registers());
    const auto begin = reinterpret_cast<std::uint64_t>(&keep_over_call);
    while (walker.frame().pc().value() - begin > 64) ASSERT_TRUE(walker.step());  // out of the stub
    auto* slot = reinterpret_cast<std::uint64_t*>(walker.frame().saved.at(walker.frame().registers, kKept));
    EXPECT_EQ(walker.frame().registers.get(kKept), 4711u);
    ASSERT_NE(slot, nullptr);
    *slot = 4712;
  });
  EXPECT_EQ(after, 4712u);
}

TEST(GcRoots, WhatCannotBeIsRefused) {
  const auto why = [](const StackMap& map) {
    const auto bytes = encode(map);
    return bytes ? std::string("fine") : std::string(bytes.error().what);
  };
  const RootSlot a = slot(at_sp(0)), b = slot(at_sp(8));
  EXPECT_EQ(why({.code_size = 9, .sites = {{9, {a, b}}}}), "fine");
  EXPECT_EQ(why({.code_size = 9, .sites = {{10, {a}}}}), "site is outside of the code");
  EXPECT_EQ(why({.code_size = 9, .sites = {{5, {a}}, {5, {b}}}}), "sites do not ascend");
  EXPECT_EQ(why({.code_size = 9, .sites = {{5, {a, a}}}}), "root is twice among those live at a site");
  EXPECT_EQ(why({.code_size = 9, .always = {a}, .sites = {{5, {a}}}}), "root is twice among those live at a site");
  EXPECT_EQ(why({.code_size = 9, .always = {a, a}}), "root is twice among those always live");
  EXPECT_EQ(why({.code_size = 9, .always = {slot({})}}), "root is nowhere");
  EXPECT_EQ(why({.code_size = 9, .always = {slot(at_sp(4))}}), "root's offset is no multiple of 8, or too large");
  EXPECT_EQ(why({.code_size = 9, .always = {slot(at_sp(1 << 18))}}), "root's offset is no multiple of 8, or too large");
  EXPECT_EQ(why({.code_size = 9, .derived = {{a, b}}}), "derived root, or its base, is never live");
  EXPECT_EQ(why({.code_size = 9, .derived = {{a, b}}, .sites = {{5, {a, b}}, {6, {a}}}}),
            "derived root is live without its base");
  const RootSlot c = slot(at_sp(16));
  EXPECT_EQ(why({.code_size = 9, .always = {a, b, c}, .derived = {{b, a}, {c, a}}}), "fine");
  EXPECT_EQ(why({.code_size = 9, .always = {a, b, c}, .derived = {{b, a}, {b, c}}}),
            "root is derived twice, or from a derived one");
  EXPECT_EQ(why({.code_size = 9, .always = {a, b, c}, .derived = {{b, a}, {c, b}}}),
            "root is derived twice, or from a derived one");
  EXPECT_EQ(why({.code_size = 9, .always = {a, b, c}, .derived = {{a, b}, {b, c}}}),
            "root is derived twice, or from a derived one");
  EXPECT_EQ(why({.code_size = 9, .always = {a, b, c}, .derived = {{c, a}, {b, a}, {c, a}}}),
            "root is derived twice, or from a derived one");
  EXPECT_EQ(why({.code_size = 9, .always = {a}, .derived = {{b, a}}}), "derived root, or its base, is never live");
  EXPECT_EQ(why({.code_size = 9, .always = {a}, .derived = {{a, b}}}), "derived root, or its base, is never live");
  EXPECT_EQ(why({.code_size = 9, .always = {a}, .derived = {{a, a}}}), "derived root, or its base, is never live");
  // They are of the map, not of a site, and the root is named by its number.
  const auto text = [](const StackMap& map) { return encode(map).error().text(); };
  EXPECT_EQ(text({.always = {a}, .derived = {{a, b}}}), "0x0: derived root, or its base, is never live");
  EXPECT_EQ(text({.always = {a, b, c}, .derived = {{b, c}, {b, a}}}),
            "0x0: root is derived twice, or from a derived one (0x1)");
  EXPECT_EQ(text({.always = {a, a}}), "0x0: root is twice among those always live");
}

// Whatever the order that they are given in: who reads the map searches them by slot.
TEST(GcRoots, DerivedOnesAreWrittenAscending) {
  const RootSlot a = slot(at_sp(0)), b = slot(at_sp(8)), c = slot(at_sp(16)), d = slot(at_sp(24));
  const auto one = encode({.code_size = 9, .always = {a, b, c, d}, .derived = {{d, a}, {b, a}, {c, a}}});
  const auto other = encode({.code_size = 9, .always = {a, b, c, d}, .derived = {{b, a}, {c, a}, {d, a}}});
  ASSERT_TRUE(one && other);
  EXPECT_EQ(*one, *other);
  OneFrame frame({.code_size = 9, .always = {a, b, c, d}, .derived = {{d, a}, {b, a}, {c, a}}});
  EXPECT_EQ(frame.roots(1, true), "11<10 12<10 13<10 10");
}

// Byte for byte as gc_roots.h has it.
TEST(GcRoots, TheEncodingIsTheOneThatIsWrittenDown) {
  const RootSlot always = slot(at_sp(16), false, true), base = slot(in_register(3)), derived = slot(at_cfa(-24), true);
  const auto bytes = encode({.code_size = 0x200,
                             .always = {always},
                             .derived = {{derived, base}},
                             .sites = {{0x10, {derived, base}}, {0x11, {}}, {0x1ff, {base, derived}}}});
  ASSERT_TRUE(bytes) << bytes.error().text();
  constexpr std::uint8_t kInterior = 1 << 3, kPinned = 1 << 4;
  const std::vector<std::uint8_t> expected = {
      1,
      0x12,
      3,
      0,
      1,
      0,
      1,
      0,
      3,
      0,
      2,
      0,  // offsets of two bytes, sets of one; the counts
      FramePlace::kAtSp | kPinned,
      0,
      2,
      0,  // the slots, as they were met
      FramePlace::kAtCfa | kInterior,
      0,
      0xfd,
      0xff,  //
      FramePlace::kInRegister,
      3,
      0,
      0,  //
      1,
      0,
      2,
      0,  // the second from the third
      0x03,
      0x00,  // both; none
      0x10,
      0x00,
      0x11,
      0x00,
      0xff,
      0x01,
      0,
      1,
      0,  // sites, and their sets
  };
  std::vector<std::uint8_t> found;
  for (const std::byte byte : *bytes) found.push_back(static_cast<std::uint8_t>(byte));
  EXPECT_EQ(found, expected);
}

TEST(GcRoots, NumbersAreAsWideAsTheyNeed) {
  const auto widths = [](std::uint32_t last, unsigned sets) {
    StackMap map{.code_size = last};
    std::vector<RootSlot> slots;
    for (unsigned i = 0; i < 16; ++i) slots.push_back(slot(at_sp(8 * static_cast<std::int32_t>(i))));
    for (unsigned i = 0; i < sets; ++i) {  // the bits of its number
      RootSite site{.offset = i};
      for (unsigned bit = 0; bit < 16; ++bit)
        if ((i >> bit & 1) != 0) site.live.push_back(slots[bit]);
      map.sites.push_back(std::move(site));
    }
    map.sites.push_back({.offset = last, .live = map.sites.back().live});
    const auto bytes = encode(map);
    EXPECT_TRUE(bytes) << bytes.error().text();
    const auto reader = MapReader::open(*bytes);
    EXPECT_TRUE(reader && reader->set_at(last) == sets - 1 && !reader->set_at(last + 1));
    return static_cast<unsigned>((*bytes)[1]);
  };
  EXPECT_EQ(widths(0xff, 3), 0x11U);
  EXPECT_EQ(widths(0x100, 3), 0x12U);
  EXPECT_EQ(widths(0xffff, 3), 0x12U);
  EXPECT_EQ(widths(0x10000, 3), 0x14U);
  EXPECT_EQ(widths(0xff, 255), 0x11U);
  EXPECT_EQ(widths(0xffff, 256), 0x22U);
}

// Fields of the map have 8 bits for a register, 16 for an offset in words and for each count.
TEST(GcRoots, WhatTheEncodingHasNoRoomForIsRefused) {
  const auto error_of = [](const StackMap& map) {
    const auto bytes = encode(map);
    return bytes ? std::string("fine") : bytes.error().text();
  };
  const auto with = [&](const FramePlace& place) {
    return error_of({.code_size = 99, .sites = {{0x55, {slot(place)}}}});
  };
  EXPECT_EQ(with(at_sp(8 * 0x7fff)), "fine");
  EXPECT_EQ(with(at_sp(-8 * 0x8000)), "fine");
  EXPECT_EQ(with(at_sp(8 * 0x8000)), "0x55: root's offset is no multiple of 8, or too large (0x40000)");
  EXPECT_EQ(with(at_sp(-8 * 0x8001)), "0x55: root's offset is no multiple of 8, or too large (0xfffbfff8)");
  EXPECT_EQ(with(at_sp(-4)), "0x55: root's offset is no multiple of 8, or too large (0xfffffffc)");
  EXPECT_EQ(with(at_register(0xff, 8)), "fine");
  EXPECT_EQ(with(at_register(0x100, 8)), "0x55: root is nowhere (0x100)");
  const auto with_sites = [&](std::uint32_t count) {
    StackMap map{.code_size = count};
    for (std::uint32_t i = 0; i < count; ++i) map.sites.push_back({.offset = i, .live = {}});
    return error_of(map);
  };
  EXPECT_EQ(with_sites(0xffff), "fine");
  EXPECT_EQ(with_sites(0x10000), "0x10000: stack map has too many sites");
}

// Slots and derived slots, as many as there can be: each is looked up in a few steps.
TEST(GcRoots, ManyDerivedSlotsAreQuick) {
  constexpr unsigned kMany = 0xffff;
  MapHeader header{.widths = 0x11, .slots = kMany, .always = kMany, .derived = kMany - 1};
  std::vector<std::byte> bytes(sizeof header + kMany * sizeof(SlotBytes) + (kMany - 1) * sizeof(DerivedBytes));
  std::memcpy(bytes.data(), &header, sizeof header);
  for (unsigned i = 0; i < kMany; ++i) {
    const SlotBytes at{FramePlace::kAtSp, 0, static_cast<std::int16_t>(i % 8)};
    std::memcpy(bytes.data() + sizeof header + i * sizeof at, &at, sizeof at);
  }
  const auto put_derived = [&](unsigned i, DerivedBytes pair) {
    std::memcpy(bytes.data() + sizeof header + kMany * sizeof(SlotBytes) + i * sizeof pair, &pair, sizeof pair);
  };
  for (unsigned i = 0; i < kMany - 1; ++i) put_derived(i, {static_cast<std::uint16_t>(i + 1), 0});
  OneFrame frame({.code_size = 0x100});
  frame.method.roots = bytes;
  ManagedWalker walker(frame.thread, frame.registers(), 0);
  ASSERT_TRUE(walker.next());
  CrawlFrame shown = walker.frame();
  shown.faulted = true;
  unsigned count = 0;
  const auto show = [&] { return each_root(shown, *frame.mem, [&](const Root&) { ++count; }); };
  for (unsigned round = 0; round < 20; ++round) ASSERT_TRUE(show());
  EXPECT_EQ(count, 20 * kMany);
  put_derived(7, {3, 0});
  EXPECT_EQ(show().error().what, std::string("stack map's derived slots do not ascend, or have derived bases"));
  put_derived(7, {8, 5});
  EXPECT_EQ(show().error().what, std::string("stack map's derived slots do not ascend, or have derived bases"));
}

TEST(LlvmRoots, ALocationThatIsNamedTwiceIsShownOnce) {
  MadeUpStack stack;
  const Method& method = stack.runtime.add(1, 8);
  stack.call(method);
  for (std::uint64_t i = 0; i < 4; ++i) stack.mem->put(stack.sp + 8 * i, 10 + i);
  const auto roots = [&](const std::vector<std::pair<std::int32_t, std::int32_t>>& pairs) {
    const auto section = test::llvm_section(method.begin, pairs);
    const auto maps = LlvmStackMaps::open(section);
    EXPECT_TRUE(maps) << maps.error().text();
    ManagedWalker walker(stack.thread, stack.registers(), 0);
    EXPECT_TRUE(walker.next());
    std::string text;
    EXPECT_TRUE(maps->each_root(walker.frame(), *stack.mem, [&](const Root& root) {
      text += std::to_string(root.value) + (root.derived ? "<" + std::to_string(root.base) : "") + " ";
    }));
    return text;
  };
  EXPECT_EQ(roots({{0, 0}, {8, 8}, {0, 16}}), "12<10 10 11 ");
  EXPECT_EQ(roots({{0, 0}, {0, 0}, {8, 8}, {0, 0}}), "10 11 ");
  EXPECT_EQ(roots({{0, 16}, {0, 0}, {8, 16}, {8, 8}}), "12<10 10 11 ");
  EXPECT_EQ(roots({{0, 8}, {0, 0}, {8, 8}}), "10 11 ") << "what is a reference is none that is derived";
}

// Any map says what it was made of; cut off anywhere it is an error.
TEST(GcRoots, RandomMapsReadBack) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<RootSlot> slots;
    for (unsigned i = 0; i < 1 + random() % 40; ++i) {
      const RootSlot made =
          slot(random() % 4 == 0 ? in_register(static_cast<RegisterNumber>(random() % 32))
                                 : at_register(random() % 32, 8 * static_cast<int>(random() % 400) - 1600),
               random() % 2 == 0, random() % 5 == 0);
      if (std::ranges::find(slots, made) == slots.end()) slots.push_back(made);
    }
    const std::size_t always = random() % slots.size();
    StackMap map{.always = {slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(always)}};
    std::uint32_t offset = 0;
    for (unsigned i = 0; i < random() % 60; ++i) {
      RootSite site{.offset = offset += 1 + random() % (round % 3 == 0 ? 3000 : 20)};
      for (std::size_t n = always; n < slots.size(); ++n)
        if (random() % 3 == 0) site.live.push_back(slots[n]);
      map.sites.push_back(std::move(site));
    }
    map.code_size = offset;
    const auto bytes = encode(map);
    ASSERT_TRUE(bytes) << bytes.error().text();
    const auto reader = MapReader::open(*bytes);
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->always(), always);
    std::size_t next = 0;
    for (std::uint32_t at = 0; at <= offset; ++at) {
      const auto set = reader->set_at(at);
      const bool there = next < map.sites.size() && map.sites[next].offset == at;
      ASSERT_EQ(set.has_value(), there) << at;
      if (!there) continue;
      const RootSite& site = map.sites[next++];
      std::size_t live = 0;
      for (unsigned n = 0; n < reader->slots(); ++n) {
        if (n < always || !reader->live(n, *set)) continue;
        ++live;
        EXPECT_NE(std::ranges::find(site.live, *reader->slot(n)), site.live.end());
      }
      EXPECT_EQ(live, site.live.size());
    }
    for (std::size_t size = 0; size < bytes->size(); ++size)
      EXPECT_FALSE(MapReader::open(std::span(*bytes).first(size))) << size << " of " << bytes->size();
  }
}

TEST(GcRoots, GarbageIsBounded) {
  std::mt19937 random(2);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (bytes.size() > 12) {
      bytes[0] = std::byte{1};
      bytes[1] = static_cast<std::byte>(0x11 * (1 + random() % 2));
      for (std::size_t i = 3; i < 12; i += 2) bytes[i] = std::byte{0};
    }
    MadeUpStack stack;
    Method& method = stack.runtime.add(1, 8);
    method.roots = bytes;
    stack.call(method);
    ManagedWalker walker(stack.thread, stack.registers(), 0);
    ASSERT_TRUE(walker.next());
    (void)roots_of(walker.frame(), *stack.mem);
  }
}

}  // namespace
}  // namespace windlass::managed
