// The library on Windows (here under Wine) walks its own stack. Frames, stack pointers and all preserved registers must
// be those of RtlVirtualUnwind. Walks start in ordinary code, callbacks of system libraries, threads, fibers, and
// exception handlers.
#include <gtest/gtest.h>
#include <windows.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "formats/winx64/exec.h"
#include "system_walk.h"
#include "walk/own/windows/modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

constexpr std::size_t kMost = 20000;

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
  return text;
}

// Where an address is, for messages.
std::string place(std::uint64_t pc) {
  void* image = nullptr;
  RtlPcToFileHeader(reinterpret_cast<void*>(pc), &image);
  char name[MAX_PATH] = "?";
  if (image != nullptr) GetModuleFileNameA(static_cast<HMODULE>(image), name, sizeof name);
  return std::string(name) + "+" + hex(pc - reinterpret_cast<std::uint64_t>(image));
}

// What of a frame differs; empty: nothing.
std::string difference(const Registers& ours, const CONTEXT& system) {
  if (ours.pc().value() != system.Rip) return "pc " + place(ours.pc().value()) + " for " + place(system.Rip);
  if (ours.sp() != system.Rsp) return "rsp " + hex(ours.sp()) + " for " + hex(system.Rsp);
  for (unsigned number = 0; number < 16; ++number) {
    const RegisterNumber reg = winx64::dwarf_number(number);
    if (!winx64::is_preserved(number)) continue;
    if (!ours.has(reg) || ours.get(reg) != (&system.Rax)[number])
      return std::string(winx64::register_name(number)) + (ours.has(reg) ? " differs" : " is not known");
  }
  return "";
}

// The preserved vector registers, which walkers do not carry, by the addresses that each virtual unwind gives.
void compare_vectors(const std::vector<CONTEXT>& system) {
  CONTEXT ours = system[0];
  Registers frame = registers_of(&ours);
  for (std::size_t i = 1; i < system.size(); ++i) {
    const walk::OwnImage* image = walk::find_own_image(frame.pc().value());
    ASSERT_NE(image, nullptr);
    winx64::Unwound unwound;
    winx64::SavedAddresses saved;
    ASSERT_TRUE(
        winx64::virtual_unwind(image->functions(), image->base(), own_process().memory(), frame, unwound, &saved));
    for (unsigned number = 6; number < 16; ++number) {
      M128A& value = (&ours.Xmm0)[number];
      if (saved.xmm[number] != 0) {
        ASSERT_TRUE(own_process().memory().read(saved.xmm[number], &value, sizeof value));
      }
      ASSERT_EQ(value.Low, (&system[i].Xmm0)[number].Low) << "xmm" << number << " of frame " << i;
      ASSERT_EQ(value.High, (&system[i].Xmm0)[number].High) << "xmm" << number << " of frame " << i;
    }
    frame = unwound.caller;
  }
}

// Both walks from the same registers. Returns the number of frames; 0 if they differ, with a failure added.
std::size_t compare(const CONTEXT& context) {
  const std::vector<CONTEXT> system = test::system_walk(context, kMost);
  compare_vectors(system);
  StackWalker walker(own_process(), registers_of(&context));
  std::size_t depth = 0;
  do {
    if (depth == system.size()) {
      ADD_FAILURE() << "a frame more than the system's " << depth << ": " << place(walker.frame().pc().value());
      return 0;
    }
    if (const std::string differs = difference(walker.frame().registers, system[depth]); !differs.empty()) {
      ADD_FAILURE() << "frame " << depth << ": " << differs
                    << (depth != 0 ? ", called by " + place(system[depth - 1].Rip) : "");
      return 0;
    }
    ++depth;
  } while (walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete)
      << walker.error().text() << " in " << place(walker.frame().pc().value());
  if (depth != system.size()) {
    ADD_FAILURE() << "the walk ends after " << depth << " of " << system.size() << " frames: " << walker.error().text()
                  << ", below " << place(system[depth].Rip);
    return 0;
  }
  return depth;
}

[[gnu::noinline]] std::size_t compare_here() {
  CONTEXT context;
  RtlCaptureContext(&context);
  return compare(context);
}

// backtrace() against RtlCaptureStackBackTrace, whose first frame is its caller's.
[[gnu::noinline]] void compare_backtraces() {
  static thread_local void* system[kMost];
  static thread_local std::uint64_t ours[kMost];
  const std::size_t depth = backtrace(ours, kMost);
  const std::size_t system_depth = RtlCaptureStackBackTrace(0, kMost, system, nullptr);
  ASSERT_GT(system_depth, 2U);
  for (std::size_t i = 1; i < std::min(depth, system_depth); ++i)  // [0] are two places in here
    ASSERT_EQ(ours[i], reinterpret_cast<std::uint64_t>(system[i])) << i << " " << place(ours[i]);
  // Wine goes on behind the outermost frame, whose caller is 0.
  if (system_depth > depth) {
    EXPECT_EQ(system[depth], nullptr);
  }
  EXPECT_LE(depth, system_depth + 1);
}

// Frames of several sizes, with preserved registers that matter.
[[gnu::noinline]] std::size_t recurse(unsigned depth, std::uint64_t a, double b) {
  if (depth == 0) {
    compare_backtraces();
    return compare_here();
  }
  volatile char space[96];
  space[depth % sizeof space] = static_cast<char>(a);
  const std::uint64_t mixed = a * 31 + depth;
  const double scaled = b * 1.5 + static_cast<double>(depth);
  asm volatile("movq %0, %%xmm6\n movq %1, %%xmm11" : : "r"(mixed), "r"(~mixed) : "xmm6", "xmm11");
  const std::size_t found = recurse(depth - 1, mixed, scaled);
  if (found == 0) return 0;
  return static_cast<std::uint64_t>(scaled) == mixed && space[0] == 1 ? 1 : found;
}

TEST(Own, Recursion) { EXPECT_GT(recurse(300, 1, 1.0), 305U); }

std::size_t called_back;
int __cdecl on_compare(const void* a, const void* b) {
  called_back += compare_here() != 0;
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

TEST(Own, CallbacksOfTheCRuntime) {
  called_back = 0;
  int numbers[] = {5, 3, 9, 1, 7, 2};
  std::qsort(numbers, std::size(numbers), sizeof *numbers, on_compare);
  const int wanted = 7;
  EXPECT_NE(std::bsearch(&wanted, numbers, std::size(numbers), sizeof *numbers, on_compare), nullptr);
  EXPECT_GT(called_back, 8U);
}

BOOL CALLBACK on_locale(LPSTR) {
  ++called_back;
  EXPECT_GT(compare_here(), 5U);
  return called_back < 3;
}
BOOL CALLBACK on_once(PINIT_ONCE, PVOID, PVOID*) {
  ++called_back;
  EXPECT_GT(compare_here(), 5U);
  return TRUE;
}
void CALLBACK on_apc(ULONG_PTR) {
  ++called_back;
  EXPECT_GT(compare_here(), 3U);
}
void CALLBACK on_pool(PTP_CALLBACK_INSTANCE, void* done, PTP_WORK) {
  ++called_back;
  EXPECT_GT(compare_here(), 3U);
  SetEvent(done);
}

TEST(Own, CallbacksOfSystemLibraries) {
  called_back = 0;
  EnumSystemLocalesA(on_locale, LCID_INSTALLED);
  EXPECT_EQ(called_back, 3U);
  INIT_ONCE once = INIT_ONCE_STATIC_INIT;
  InitOnceExecuteOnce(&once, on_once, nullptr, nullptr);
  EXPECT_EQ(called_back, 4U);
  QueueUserAPC(on_apc, GetCurrentThread(), 0);
  SleepEx(0, TRUE);
  EXPECT_EQ(called_back, 5U);
  HANDLE done = CreateEventA(nullptr, TRUE, FALSE, nullptr);
  PTP_WORK work = CreateThreadpoolWork(on_pool, done, nullptr);
  SubmitThreadpoolWork(work);
  EXPECT_EQ(WaitForSingleObject(done, 20000), WAIT_OBJECT_0);
  CloseThreadpoolWork(work);
  CloseHandle(done);
  EXPECT_EQ(called_back, 6U);
}

TEST(Own, Threads) {
  std::vector<std::thread> threads;
  std::atomic<unsigned> right = 0;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&right, t] {
      for (unsigned i = 0; i < 40; ++i) right += recurse(i * 3 + t, i, t) > i * 3 + t;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 160U);
}

void* main_fiber;
std::size_t in_fiber;
void CALLBACK on_fiber(void*) {
  in_fiber = recurse(20, 1, 2);
  SwitchToFiber(main_fiber);
}

TEST(Own, Fibers) {
  main_fiber = ConvertThreadToFiber(nullptr);
  void* fiber = CreateFiber(256 << 10, on_fiber, nullptr);
  SwitchToFiber(fiber);
  DeleteFiber(fiber);
  ConvertFiberToThread();
  EXPECT_GT(in_fiber, 20U);
}

// ---- exceptions ----

std::size_t handled;
LONG CALLBACK on_exception(EXCEPTION_POINTERS* exception) {
  // From the handler itself, through the system's dispatcher, and from the registers that it was given.
  const std::size_t here = compare_here();
  const std::size_t interrupted = compare(*exception->ContextRecord);
  // The dispatcher leads to the interrupted code.
  StackWalker walker(own_process(), capture_registers());
  bool met = false;
  do met = met || walker.frame().pc().value() == exception->ContextRecord->Rip;
  while (!met && walker.step());
  handled += here > interrupted && interrupted != 0 && met;
  if (exception->ExceptionRecord->ExceptionCode == EXCEPTION_ILLEGAL_INSTRUCTION) exception->ContextRecord->Rip += 2;
  return EXCEPTION_CONTINUE_EXECUTION;
}

[[gnu::noinline]] void fault() { asm volatile("ud2" ::: "memory"); }
[[gnu::noinline]] void fault_deeper(unsigned depth) {
  if (depth == 0)
    fault();
  else
    fault_deeper(depth - 1);
  asm volatile("" ::: "memory");
}

TEST(Own, VectoredHandlers) {
  void* handler = AddVectoredExceptionHandler(1, on_exception);
  handled = 0;
  fault_deeper(10);
  EXPECT_EQ(handled, 1U);
  RaiseException(0xe0000001, 0, 0, nullptr);
  EXPECT_EQ(handled, 2U);
  RemoveVectoredExceptionHandler(handler);
}

// ---- what is captured, and functions ----

TEST(Own, CapturedRegistersAreTheCallers) {
  const Registers captured = capture_registers();
  CONTEXT context;
  RtlCaptureContext(&context);
  EXPECT_EQ(captured.sp(), context.Rsp);
  StackWalker walker(own_process(), captured);
  const std::vector<CONTEXT> system = test::system_walk(context);
  for (std::size_t i = 1; i < system.size(); ++i) {
    ASSERT_TRUE(walker.step()) << walker.error().text();
    EXPECT_EQ(difference(walker.frame().registers, system[i]), "") << i;
  }
}

TEST(Own, FunctionsAreTheSystems) {
  for (const CONTEXT& frame : [] {
         CONTEXT context;
         RtlCaptureContext(&context);
         return test::system_walk(context);
       }()) {
    DWORD64 base = 0;
    const RUNTIME_FUNCTION* system = RtlLookupFunctionEntry(frame.Rip, &base, nullptr);
    if (system == nullptr) continue;
    const auto function = own_function(frame.Rip);
    ASSERT_TRUE(function) << function.error().text();
    EXPECT_EQ(function->begin, base + system->BeginAddress);
    EXPECT_EQ(function->end, base + system->EndAddress);
    EXPECT_EQ(function->fde, reinterpret_cast<std::uint64_t>(system));
  }
}

TEST(Own, ModulesHaveNames) {
  const AddressSpace self = AddressSpace::self();
  bool ntdll = false, program = false;
  for (const ModuleInfo* module : self.modules()) {
    ntdll = ntdll || module->path.ends_with("ntdll.dll");
    program = program || module->path.ends_with("test_wine_own.exe");
  }
  EXPECT_TRUE(ntdll);
  EXPECT_TRUE(program);
}

TEST(Own, UnreadableMemoryIsNoCrash) {
  const Memory& memory = own_process().memory();
  std::uint64_t value = 0;
  EXPECT_FALSE(memory.read(8, &value, sizeof value));
  EXPECT_FALSE(memory.read(~std::uint64_t{7}, &value, sizeof value));
  EXPECT_TRUE(memory.read(reinterpret_cast<std::uint64_t>(&value), &value, sizeof value));
  EXPECT_TRUE(memory.read(reinterpret_cast<std::uint64_t>(GetModuleHandleA(nullptr)), &value, sizeof value));
}

// ---- modules that come and go ----

using CallThrough = std::size_t(__cdecl*)(std::size_t(__cdecl*)());

std::size_t through_plugin(const char* path) {
  HMODULE plugin = LoadLibraryA(path);
  if (plugin == nullptr) return 0;
  const auto call = reinterpret_cast<CallThrough>(reinterpret_cast<void*>(GetProcAddress(plugin, "call_through")));
  const std::size_t depth = call(compare_here);
  EXPECT_NE(own_process().module_at(reinterpret_cast<std::uint64_t>(call)), nullptr);
  FreeLibrary(plugin);
  EXPECT_EQ(own_process().module_at(reinterpret_cast<std::uint64_t>(call)), nullptr);
  return depth;
}

TEST(Own, LibrariesComeAndGo) {
  for (unsigned round = 0; round < 20; ++round) {
    EXPECT_GT(through_plugin(WINDLASS_PLUGIN_A), 5U);
    EXPECT_GT(through_plugin(WINDLASS_PLUGIN_B), 5U);  // often in the same place
  }
}

}  // namespace
}  // namespace windlass
