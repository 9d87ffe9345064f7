// Generated code in Windows' function tables: found and forgotten, walked and thrown through by the system, in each of
// the three ways to register it.
#include <gtest/gtest.h>
#include <windows.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "base/registers.h"
#include "every_table.h"
#include "jit_heap.h"
#include "system_walk.h"
#include "windlass/backtrace.h"
#include "windlass/jit/code_heap.h"
#include "windlass/walk.h"

namespace windlass {
namespace {

using test::JitHeap;
using Function = std::uint64_t (*)(std::uint64_t);

using test::address_of;
using test::EveryTable;
using test::found;

INSTANTIATE_TEST_SUITE_P(, EveryTable,
                         testing::Values(Registry::kGrowableTable, Registry::kTableCallback, Registry::kFunctionTable),
                         [](const auto& each) {
                           return each.param == Registry::kGrowableTable   ? "Growable"
                                  : each.param == Registry::kTableCallback ? "Callback"
                                                                           : "FunctionTable";
                         });

TEST_P(EveryTable, IsFoundFromAddToRemove) {
  const std::uint64_t at = heap_.begin() + 0x400;
  EXPECT_EQ(found(at), 0U);
  for (const std::uint64_t offset : {0x400, 0x800, 0xc00}) heap_.put_call(offset, 0);
  // In no order: tables are sorted.
  const RegistrationId id = add({call_at(0x800), call_at(0x400), call_at(0xc00)});
  for (const std::uint64_t offset : {0x400, 0x800, 0xc00}) {
    EXPECT_EQ(found(heap_.begin() + offset), heap_.begin() + offset);
    EXPECT_EQ(found(heap_.begin() + offset + JitHeap::kCallSize - 1), heap_.begin() + offset);
    EXPECT_EQ(found(heap_.begin() + offset + JitHeap::kCallSize), 0U);
    EXPECT_EQ(found(heap_.begin() + offset - 1), 0U);
  }
  const Error twice = refusal({call_at(0x800)});
  EXPECT_EQ(twice.code, ErrorCode::kMalformed) << twice.text();
  EXPECT_EQ(twice.where, heap_.begin() + 0x800);
  ASSERT_TRUE(registrar_->remove(id));
  EXPECT_EQ(found(at), 0U);
  EXPECT_EQ(registrar_->remove(id).error().code, ErrorCode::kNotFound);
  // The same place, other code.
  const Prologue other = JitHeap::call_prologue(512);
  heap_.put_call(0x408, 0, 512);
  const auto again = call_at(0x408);
  add({{.address = again.address, .size = again.size, .prologue = &other}});
  EXPECT_EQ(found(again.address), again.address);
  EXPECT_EQ(found(at), 0U);
  registrar_.reset();
  EXPECT_EQ(found(again.address), 0U);
}

// ---- walks and exceptions -------------------------------------------------------------------------------------------

struct Seen {
  std::vector<std::uint64_t> pcs;
};
std::uint64_t look(std::uint64_t to) {
  CONTEXT context;
  RtlCaptureContext(&context);
  for (const CONTEXT& frame : test::system_walk(context, 200)) reinterpret_cast<Seen*>(to)->pcs.push_back(frame.Rip);
  return 42;
}

TEST_P(EveryTable, IsWalkedThrough) {
  const std::uint64_t first = chain(address_of(look), 30);
  Seen seen, direct;
  EXPECT_EQ(reinterpret_cast<Function>(first)(address_of(&seen)), 42U);
  look(address_of(&direct));
  ASSERT_EQ(seen.pcs.size(), direct.pcs.size() + 30);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(seen.pcs[1 + i], heap_.begin() + 0x100 * i + JitHeap::kReturnOffset);
}

std::uint64_t look_ourselves(std::uint64_t to) {
  std::uint64_t pcs[200];
  const std::size_t count = backtrace(pcs, 200);
  reinterpret_cast<Seen*>(to)->pcs.assign(pcs, pcs + count);
  return 42;
}

// The same stack three times.
struct Walks {
  std::vector<std::uint64_t> by_system, by_walker, by_backtrace;
};
Walks walks_from(const CONTEXT& context) {
  Walks walks;
  for (const CONTEXT& frame : test::system_walk(context, 200)) walks.by_system.push_back(frame.Rip);
  StackWalker walker(own_process(), registers_of(&context));
  do walks.by_walker.push_back(walker.frame().pc().value());
  while (walker.step());
  walks.by_backtrace.resize(200);
  walks.by_backtrace.resize(backtrace_from(registers_of(&context), walks.by_backtrace.data(), 200));
  return walks;
}
std::uint64_t look_thrice(std::uint64_t to) {
  CONTEXT context;
  RtlCaptureContext(&context);
  *reinterpret_cast<Walks*>(to) = walks_from(context);
  return 42;
}

// One registration serves the system and the own walks.
TEST_P(EveryTable, OwnWalksSeeWhatTheSystemSees) {
  const std::uint64_t first = chain(address_of(look_thrice), 15);
  Walks walks;
  EXPECT_EQ(reinterpret_cast<Function>(first)(address_of(&walks)), 42U);
  ASSERT_GT(walks.by_system.size(), 17U);
  for (std::size_t i = 0; i < 15; ++i)
    EXPECT_EQ(walks.by_system[1 + i], heap_.begin() + 0x100 * i + JitHeap::kReturnOffset);
  EXPECT_EQ(walks.by_walker, walks.by_system);
  EXPECT_EQ(walks.by_backtrace, walks.by_system);
  Seen seen;
  reinterpret_cast<Function>(chain(address_of(look_ourselves), 15))(address_of(&seen));
  ASSERT_GT(seen.pcs.size(), 17U);
  for (std::size_t i = 0; i < 15; ++i)
    EXPECT_EQ(seen.pcs[1 + i], heap_.begin() + 0xf00 + 0x100 * i + JitHeap::kReturnOffset);
}

// Also where code is interrupted, in prologue and epilogue, and where the entry has just been taken away: a leaf then.
TEST_P(EveryTable, OwnStepsAreThoseOfTheSystem) {
  const std::uint64_t at = heap_.put_call(0x400, 0);
  const RegistrationId id = add({call_at(0x400)});
  const auto compare = [&](std::uint32_t offset) {
    std::uint64_t stack[16];
    for (std::size_t i = 0; i < std::size(stack); ++i) stack[i] = address_of(look) + i;
    CONTEXT context{};
    context.Rip = at + offset;
    context.Rsp = address_of(stack);
    context.Rbx = 0x1234;
    StackWalker walker(own_process(), registers_of(&context));
    ASSERT_TRUE(walker.step()) << offset << ": " << walker.error().text();
    CONTEXT caller = context;
    if (!test::system_step(caller)) {
      caller.Rip = stack[0];
      caller.Rsp += 8;
    }
    const Registers& registers = walker.frame().registers;
    EXPECT_EQ(registers.pc().value(), caller.Rip) << offset;
    EXPECT_EQ(registers.sp(), caller.Rsp) << offset;
    EXPECT_EQ(registers.get(x86_64::kRbx), caller.Rbx) << offset;
    const bool described = walker.frame().certainty == FrameCertainty::kDescribed;
    EXPECT_EQ(described, found(context.Rip) != 0) << offset;
  };
  for (const std::uint32_t offset : {0, 1, 8, 18, 20, 21, 28, 29}) compare(offset);
  ASSERT_TRUE(registrar_->remove(id));
  compare(0);
}

// A table may lie: about where its information is, or what that says. The walk ends, and nothing faults.
TEST(OwnWalks, HoldAgainstTablesThatLie) {
  JitHeap heap;
  const JitHeap gone(1 << 16, PAGE_NOACCESS);
  const auto unreadable = static_cast<DWORD>(gone.begin() - heap.begin());
  ASSERT_LT(gone.begin() - heap.begin(), std::uint64_t{1} << 32);
  heap.put(0x800, {7, 0, 0, 0});                                      // of no version
  heap.put(0x900, {1 | 4 << 3, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0});  // chained to itself
  const DWORD self[] = {0x40, 0x50, 0x900};
  std::memcpy(reinterpret_cast<void*>(heap.begin() + 0x904), self, sizeof self);
  for (const DWORD info : {unreadable, DWORD{0x800}, DWORD{0x900}, DWORD{0xffff'fff0}}) {
    RUNTIME_FUNCTION entry{0x40, 0x50, {info}};
    ASSERT_TRUE(RtlAddFunctionTable(&entry, 1, heap.begin()));
    ASSERT_NE(found(heap.begin() + 0x44), 0U);
    std::uint64_t stack[16] = {};
    CONTEXT context{};
    context.Rip = heap.begin() + 0x44;
    context.Rsp = address_of(stack);
    StackWalker walker(own_process(), registers_of(&context));
    EXPECT_FALSE(walker.step()) << info;
    EXPECT_EQ(walker.end_reason(), WalkEnd::kBadRow) << info;
    RtlDeleteFunctionTable(&entry);
  }
}

// The own walks know generated code from Registry::kWindlass, here too.
TEST(OwnWalks, KnowGeneratedCode) {
  JitHeap heap;
  const Prologue call = JitHeap::call_prologue(64);
  auto registrar = open_registrar(Registry::kWindlass);
  ASSERT_TRUE(registrar) << registrar.error().text();
  std::vector<GeneratedFunction> functions;
  std::uint64_t target = address_of(look_ourselves);
  for (std::uint64_t i = 0; i < 10; ++i) {
    target = heap.put_call(0x100 * i, target, 64);
    functions.push_back({.address = target, .size = JitHeap::kCallSize, .prologue = &call});
  }
  const auto id = (*registrar)->add(functions);
  ASSERT_TRUE(id) << id.error().text();
  Seen seen, direct;
  reinterpret_cast<Function>(target)(address_of(&seen));
  look_ourselves(address_of(&direct));
  ASSERT_EQ(seen.pcs.size(), direct.pcs.size() + 10);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(seen.pcs[1 + i], heap.begin() + 0x100 * i + JitHeap::kReturnOffset);
}

struct Counted {
  int* count;
  ~Counted() { ++*count; }
};
int unwound;
Function inner;
std::uint64_t through(std::uint64_t value) {
  const Counted counted{&unwound};
  return inner(value) + 1;
}
std::uint64_t throws(std::uint64_t value) { throw static_cast<int>(value); }

TEST_P(EveryTable, ExceptionsCrossIt) {
  inner = reinterpret_cast<Function>(chain(address_of(throws), 10));
  const auto outer = reinterpret_cast<Function>(chain(address_of(through), 10));
  for (int i = 0; i < 100; ++i) {
    unwound = 0;
    int caught = -1;
    try {
      outer(static_cast<std::uint64_t>(i));
    } catch (int value) {
      caught = value;
    }
    ASSERT_EQ(caught, i);
    ASSERT_EQ(unwound, 1);
  }
}

int searches, unwinds;
std::uint64_t handler_data;
EXCEPTION_DISPOSITION count_passes(EXCEPTION_RECORD* record, void*, CONTEXT*, DISPATCHER_CONTEXT* dispatch) {
  ++((record->ExceptionFlags & EXCEPTION_UNWIND) != 0 ? unwinds : searches);
  std::memcpy(&handler_data, dispatch->HandlerData, sizeof handler_data);
  return ExceptionContinueSearch;
}

TEST_P(EveryTable, HandlersAreAskedInBothPasses) {
  for (int passes = 1; passes < 4; ++passes) {
    Prologue handled = call_;
    handled.handler.emplace();
    handled.handler->on_exception = (passes & 1) != 0;
    handled.handler->on_unwind = (passes & 2) != 0;
    handled.handler->data = std::vector<std::byte>(8, std::byte{0x5a});
    const std::uint64_t at = heap_.put_call(0x1000, address_of(throws));
    const RegistrationId id = add(
        {{.address = at, .size = JitHeap::kCallSize, .prologue = &handled, .personality = address_of(count_passes)}});
    searches = unwinds = 0;
    try {
      reinterpret_cast<Function>(at)(1);
    } catch (int) {}
    EXPECT_EQ(searches, passes & 1);
    EXPECT_EQ(unwinds, passes >> 1);
    EXPECT_EQ(handler_data, 0x5a5a'5a5a'5a5a'5a5aU);
    ASSERT_TRUE(registrar_->remove(id));
  }
}

std::uint64_t landing;
EXCEPTION_DISPOSITION land(EXCEPTION_RECORD* record, void* frame, CONTEXT*, DISPATCHER_CONTEXT* dispatch) {
  if ((record->ExceptionFlags & EXCEPTION_UNWIND) != 0 || record->ExceptionCode != 0xe0001234)
    return ExceptionContinueSearch;
  RtlUnwindEx(frame, reinterpret_cast<void*>(landing), record, reinterpret_cast<void*>(77), dispatch->ContextRecord,
              dispatch->HistoryTable);
  return ExceptionContinueSearch;
}
std::uint64_t raises(std::uint64_t) {
  RaiseException(0xe0001234, 0, 0, nullptr);
  return 0;
}

TEST_P(EveryTable, HandlersLandInGeneratedCode) {
  inner = reinterpret_cast<Function>(chain(address_of(raises), 5, address_of(count_passes)));
  const std::uint64_t middle = chain(address_of(inner), 1, address_of(land));
  landing = middle + JitHeap::kReturnOffset;
  searches = unwinds = 0;
  EXPECT_EQ(reinterpret_cast<Function>(middle)(1), 77U);
  EXPECT_EQ(searches, 5);
  EXPECT_EQ(unwinds, 5);
}

// ---- crashes --------------------------------------------------------------------------------------------------------

// mov rax, [0]; nop, in the frame of call_prologue(). Skipped by whoever handles the fault.
constexpr std::uint32_t kLoadSize = 8, kLoadOffset = 8;
std::uint64_t put_fault(JitHeap& heap, std::uint64_t offset) {
  const std::uint64_t at = heap.put_call(offset, 0);
  heap.put(offset + kLoadOffset, {0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x90, 0x90, 0x90, 0x90, 0x90});
  return at;
}
std::vector<std::uint64_t> crash_stack;
LONG WINAPI crash_reporter(EXCEPTION_POINTERS* crash) {
  if (crash->ExceptionRecord->ExceptionCode != EXCEPTION_ACCESS_VIOLATION) return EXCEPTION_CONTINUE_SEARCH;
  for (const CONTEXT& frame : test::system_walk(*crash->ContextRecord, 200)) crash_stack.push_back(frame.Rip);
  crash->ContextRecord->Rip += kLoadSize;
  crash->ContextRecord->Rax = 9;
  return EXCEPTION_CONTINUE_EXECUTION;
}
// In a thread without the handler that the C runtime puts around main().
std::uint64_t run_in_thread(std::uint64_t function) {
  crash_stack.clear();
  const auto body = [](void* code) -> DWORD { return static_cast<DWORD>(reinterpret_cast<Function>(code)(0)); };
  HANDLE thread = CreateThread(nullptr, 0, body, reinterpret_cast<void*>(function), 0, nullptr);
  WaitForSingleObject(thread, INFINITE);
  DWORD result = 0;
  GetExitCodeThread(thread, &result);
  CloseHandle(thread);
  return result;
}

TEST_P(EveryTable, CrashesReachTheFilterOfUnhandledOnes) {
  const std::uint64_t at = put_fault(heap_, 0x2000);
  add({call_at(0x2000)});
  chained_ = 0x3000;
  const std::uint64_t first = chain(at, 4);
  const auto before = SetUnhandledExceptionFilter(crash_reporter);
  EXPECT_EQ(run_in_thread(first), 9U);
  SetUnhandledExceptionFilter(before);
  ASSERT_GT(crash_stack.size(), 6U);
  EXPECT_EQ(crash_stack[0], at + kLoadOffset);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(crash_stack[1 + i], heap_.begin() + 0x3000 + 0x100 * i + JitHeap::kReturnOffset);
}

// A heap with a front (windlass/jit/code_heap.h): V8's way to have crashes in generated code reported.
int reports;
Walks crash_walks;
EXCEPTION_DISPOSITION report(EXCEPTION_RECORD* record, void*, CONTEXT* context, DISPATCHER_CONTEXT*) {
  if (record->ExceptionCode != EXCEPTION_ACCESS_VIOLATION) return ExceptionContinueSearch;
  ++reports;
  EXCEPTION_POINTERS crash{record, context};
  crash_stack.clear();
  crash_walks = walks_from(*context);
  crash_reporter(&crash);
  return ExceptionContinueExecution;
}

// push rbp; mov rbp, rsp; sub rsp, 32; mov rax, target; call rax; nop; leave; ret: so many, each calling the one
// before. The last one's address.
constexpr std::uint32_t kFramedReturn = 20, kFramedApart = 0x10010;
std::uint64_t put_framed(JitHeap& heap, std::uint64_t offset, std::uint64_t target, std::uint32_t depth) {
  for (std::uint32_t i = 0; i < depth; ++i, offset += kFramedApart) {
    std::vector<std::uint8_t> code = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x48, 0xb8, 0,   0,
                                      0,    0,    0,    0,    0,    0,    0xff, 0xd0, 0x90, 0xc9, 0xc3};
    std::memcpy(&code[10], &target, 8);
    heap.put(offset, code);
    target = heap.begin() + offset;
  }
  return target;
}

// The own walks take the front without the system.
TEST(HeapWithFront, IsCodeOfTheOwnWalks) {
  JitHeap heap;
  const auto front = write_heap_front({.begin = heap.begin(), .end = heap.end()});
  ASSERT_TRUE(front) << front.error().text();
  const auto id = add_own_code(
      {.begin = front->code,
       .end = heap.end(),
       .name = "[heap]",
       .function_table = {
           .bytes = front->bytes, .address = heap.begin(), .table = front->table, .entries = front->entries}});
  ASSERT_TRUE(id) << id.error().text();
  Seen seen;
  reinterpret_cast<Function>(put_framed(heap, 0x1000, address_of(look_ourselves), 12))(address_of(&seen));
  ASSERT_GT(seen.pcs.size(), 14U);
  for (std::uint32_t i = 0; i < 12; ++i)
    EXPECT_EQ(seen.pcs[1 + i], heap.begin() + 0x1000 + kFramedApart * i + kFramedReturn);
  EXPECT_TRUE(retire_own_code(*id));
}

TEST(HeapWithFront, ServesCodeThatNobodyRegistered) {
  JitHeap heap;
  const auto front = write_heap_front({.begin = heap.begin(), .end = heap.end(), .handler = address_of(report)});
  ASSERT_TRUE(front) << front.error().text();
  std::memcpy(reinterpret_cast<void*>(heap.begin()), front->bytes.data(), front->bytes.size());
  DWORD before = 0;
  ASSERT_TRUE(
      VirtualProtect(reinterpret_cast<void*>(heap.begin()), front->code - heap.begin(), PAGE_EXECUTE_READ, &before));
  auto* const table = reinterpret_cast<RUNTIME_FUNCTION*>(heap.begin() + front->table);
  ASSERT_TRUE(RtlAddFunctionTable(table, front->entries, heap.begin()));
  constexpr std::uint32_t kDepth = 12;
  const auto chain = [&](std::uint64_t offset, std::uint64_t target) {
    return reinterpret_cast<Function>(put_framed(heap, offset, target, kDepth));
  };
  const std::uint64_t fault = heap.begin() + 0x200000;
  heap.put(0x200000, {0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x5d, 0xc3});
  const Function crashing = chain(0x1000, fault);
  EXPECT_EQ(crashing(0), 9U);
  EXPECT_EQ(reports, 1);
  ASSERT_GT(crash_stack.size(), kDepth + 2U);
  EXPECT_EQ(crash_stack[0], fault + 4);
  for (std::uint32_t i = 0; i < kDepth; ++i)
    EXPECT_EQ(crash_stack[1 + i], heap.begin() + 0x1000 + kFramedApart * i + kFramedReturn);
  EXPECT_EQ(crash_walks.by_walker, crash_stack);
  EXPECT_EQ(crash_walks.by_backtrace, crash_stack);
  const Function throwing = chain(0x1100, address_of(throws));
  int caught = 0;
  try {
    throwing(5);
  } catch (int value) {
    caught = value;
  }
  EXPECT_EQ(caught, 5);
  EXPECT_EQ(reports, 1);
  EXPECT_TRUE(RtlDeleteFunctionTable(table));
  EXPECT_EQ(found(fault + 4), 0U);
}

// ---- many, and meanwhile --------------------------------------------------------------------------------------------

TEST_P(EveryTable, FindsWhatIsThereAfterAnyChange) {
  registrar_.reset();
  RegistrarOptions options = heap_.options();
  options.table_entries = 4;  // full again and again
  open(options);
  std::mt19937 random(5);
  std::map<std::uint64_t, RegistrationId> there;
  constexpr std::uint64_t kPlace = 128, kPlaces = 300;
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t offset = kPlace * (random() % kPlaces);
    if (const auto known = there.find(offset); known != there.end()) {
      ASSERT_TRUE(registrar_->remove(known->second));
      there.erase(known);
    } else {
      there[offset] = add({call_at(offset)});
    }
    if (i % 16 != 0) continue;
    for (std::uint64_t place = 0; place < kPlaces; ++place) {
      const std::uint64_t at = heap_.begin() + kPlace * place;
      ASSERT_EQ(found(at + 3), there.contains(kPlace * place) ? at : 0) << "change " << i;
      ASSERT_EQ(found(at + 100), 0U);
    }
  }
}

TEST_P(EveryTable, OneHundredThousand) {
  registrar_.reset();
  const JitHeap heap(16 << 20);
  open(heap.options());
  std::vector<GeneratedFunction> functions;
  for (std::uint64_t i = 0; i < 100000; ++i)
    functions.push_back({.address = heap.begin() + 128 * i, .size = JitHeap::kCallSize, .prologue = &call_});
  // A table of Windows' first kind is one for each function that stands apart from the others.
  const bool runs = GetParam() == Registry::kFunctionTable;
  if (runs)
    for (std::uint64_t i = 0; i < functions.size(); ++i) functions[i].address = heap.begin() + 64 * i;
  std::shuffle(functions.begin(), functions.end(), std::mt19937(7));
  if (runs) {
    add(functions);
  } else {
    for (std::size_t i = 0; i < functions.size(); i += 100)
      add(std::vector(functions.begin() + static_cast<std::ptrdiff_t>(i),
                      functions.begin() + static_cast<std::ptrdiff_t>(i) + 100));
  }
  for (const GeneratedFunction& function : functions) ASSERT_EQ(found(function.address + 9), function.address);
}

TEST_P(EveryTable, OthersComeAndGoWhileThreadsWalkAndThrow) {
  chained_ = 0x10000;
  const auto walk = reinterpret_cast<Function>(chain(address_of(look), 20));
  const auto own_walk = reinterpret_cast<Function>(chain(address_of(look_ourselves), 20));
  const auto thrower = reinterpret_cast<Function>(chain(address_of(throws), 20));
  std::atomic<bool> stop = false;
  std::atomic<int> walks = 0, wrong = 0;
  const auto body = [&] {
    while (!stop) {
      Seen seen;
      walk(address_of(&seen));
      const auto check = [&] {
        const auto inside = [&](std::uint64_t pc) { return pc >= heap_.begin() && pc < heap_.end(); };
        if (std::ranges::count_if(seen.pcs, inside) != 20) ++wrong;
      };
      check();
      own_walk(address_of(&seen));
      check();
      try {
        thrower(3);
        ++wrong;
      } catch (int) {}
      ++walks;
    }
  };
  std::thread first(body), second(body);
  std::mt19937 random(9);
  std::map<std::uint64_t, RegistrationId> there;
  for (int i = 0; i < 3000 || walks < 200; ++i) {
    const std::uint64_t offset = 128 * (random() % 2000);
    if (offset + 128 > 0x10000 && offset < 0x20000) continue;
    if (const auto known = there.find(offset); known != there.end()) {
      ASSERT_TRUE(registrar_->remove(known->second));
      there.erase(known);
    } else {
      there[offset] = add({call_at(offset)});
    }
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
}

// ---- what is refused ------------------------------------------------------------------------------------------------

TEST_P(EveryTable, ImpossibleCodeIsAnError) {
  const GeneratedFunction good = call_at(0x100);
  GeneratedFunction bad = good;
  bad.address = heap_.end() - 16;
  EXPECT_EQ(refusal({good, bad}).code, ErrorCode::kOutOfRange);
  EXPECT_EQ(found(good.address), 0U);  // nothing of the batch
  DWORD before = 0;
  VirtualProtect(reinterpret_cast<void*>(heap_.begin() + 0x5000), 0x1000, PAGE_READWRITE, &before);
  EXPECT_EQ(refusal({call_at(0x5000)}).where, heap_.begin() + 0x5000);
  EXPECT_EQ(refusal({call_at(0x4ff8)}).where, heap_.begin() + 0x5000);
  const std::vector<FrameRow> rows = *rows_of(call_);
  EXPECT_EQ(refusal({{.address = good.address, .size = good.size, .rows = rows}}).code, ErrorCode::kUnsupported);
  Prologue handled = call_;
  handled.handler.emplace();
  EXPECT_EQ(refusal({{.address = good.address, .size = good.size, .prologue = &handled}}).code, ErrorCode::kMalformed);
  EXPECT_EQ(found(good.address), 0U);
  add({good});  // after all that
  EXPECT_EQ(found(good.address), good.address);
}

TEST_P(EveryTable, SomebodyElsesTableIsNoticed) {
  registrar_.reset();
  RUNTIME_FUNCTION other{0x100, 0x1000, {0x8000}};
  ASSERT_TRUE(RtlAddFunctionTable(&other, 1, heap_.begin()));
  open(heap_.options());
  const Error error = refusal({call_at(0x200)});
  EXPECT_EQ(error.code, ErrorCode::kMalformed) << error.text();
  EXPECT_EQ(error.where, heap_.begin() + 0x200);
  RtlDeleteFunctionTable(&other);
  EXPECT_EQ(found(heap_.begin() + 0x200), 0U);
  add({call_at(0x200)});
  EXPECT_EQ(found(heap_.begin() + 0x200), heap_.begin() + 0x200);
}

TEST_P(EveryTable, ImpossibleHeapsAreErrors) {
  const auto refused = [&](std::uint64_t begin, std::uint64_t end) {
    const auto registrar = open_registrar(GetParam(), {.folder = {}, .heap_begin = begin, .heap_end = end});
    return registrar ? Error{.what = "nothing was refused"} : registrar.error();
  };
  EXPECT_EQ(refused(0, 0).code, ErrorCode::kMalformed);
  EXPECT_EQ(refused(heap_.end(), heap_.begin()).code, ErrorCode::kMalformed);
  EXPECT_EQ(refused(heap_.begin() + 0x1000, heap_.end()).where, heap_.begin());  // the test's own registrar
  EXPECT_EQ(refused(heap_.begin() - 0x1000, heap_.begin() + 4).code, ErrorCode::kMalformed);
  const std::uint64_t image = address_of(GetModuleHandleW(nullptr));
  EXPECT_EQ(refused(image, image + 0x1000).code, ErrorCode::kMalformed);
  const JitHeap other;
  EXPECT_EQ(refused(other.begin(), other.begin() + 0xffff'0000).code, ErrorCode::kOutOfRange);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(open_registrar(GetParam(), other.options()));  // goes, and leaves nothing
}

}  // namespace
}  // namespace windlass
