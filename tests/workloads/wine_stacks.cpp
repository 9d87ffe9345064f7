// A Windows program with a thread for each kind of stack there is under Wine. Each thread prints one line, "NAME
// PC...", its stack as the system itself unwinds it, and waits for ever in the function that printed it.
#define WIN32_LEAN_AND_MEAN
#define _WIN32_WINNT 0x0a00
#include <windows.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#define NOINLINE __attribute__((noinline, noclone))

extern "C" __declspec(dllimport) int relay(int depth, int (*callback)(int));  // wine_stacks_dll.cpp

extern "C" {

static CRITICAL_SECTION printing;

NOINLINE void publish_and_wait(const char* name) {
  void* pcs[512];
  const unsigned count = RtlCaptureStackBackTrace(0, 512, pcs, nullptr);
  EnterCriticalSection(&printing);
  std::printf("%s", name);
  for (unsigned i = 0; i < count && pcs[i] != nullptr; ++i) std::printf(" %p", pcs[i]);
  std::printf("\n");
  std::fflush(stdout);
  LeaveCriticalSection(&printing);
  Sleep(INFINITE);
}

NOINLINE int recurse(int depth) {
  volatile char room[200];
  room[depth % 200] = static_cast<char>(depth);
  if (depth == 0)
    publish_and_wait("deep");
  else
    recurse(depth - 1);
  return room[0];
}
static DWORD WINAPI deep_thread(void*) { return static_cast<DWORD>(recurse(300)); }

static int compare(const void*, const void*) {
  publish_and_wait("qsort");
  return 0;
}
static DWORD WINAPI sorting_thread(void*) {
  int values[3] = {3, 2, 1};
  std::qsort(values, 3, sizeof *values, compare);
  return static_cast<DWORD>(values[0]);
}

static int relayed(int) {
  publish_and_wait("dll");
  return 0;
}
static DWORD WINAPI relaying_thread(void*) { return static_cast<DWORD>(relay(5, relayed)); }

static void CALLBACK on_apc(ULONG_PTR) { publish_and_wait("apc"); }
static DWORD WINAPI apc_thread(void*) {
  QueueUserAPC(on_apc, GetCurrentThread(), 0);
  return SleepEx(INFINITE, TRUE);
}

static LONG CALLBACK on_exception(EXCEPTION_POINTERS* what) {
  constexpr DWORD kRaised = 0xe0001234;
  if (what->ExceptionRecord->ExceptionCode == EXCEPTION_ACCESS_VIOLATION) publish_and_wait("fault");
  if (what->ExceptionRecord->ExceptionCode == kRaised) publish_and_wait("raise");
  return EXCEPTION_CONTINUE_SEARCH;
}
NOINLINE int fault(const volatile int* where) { return *where; }  // faults at its first instruction
static DWORD WINAPI faulting_thread(void*) {
  return static_cast<DWORD>(fault(reinterpret_cast<const volatile int*>(16)) + 1);
}
static DWORD WINAPI raising_thread(void*) {
  RaiseException(0xe0001234, 0, 0, nullptr);
  return 1;
}

static LRESULT CALLBACK on_message(HWND window, UINT message, WPARAM w, LPARAM l) {
  if (message == WM_NCCREATE) publish_and_wait("window");
  return DefWindowProcA(window, message, w, l);
}

static DWORD WINAPI window_thread(void*) {
  WNDCLASSA window_class{};
  window_class.lpfnWndProc = on_message;
  window_class.lpszClassName = "stacks";
  window_class.hInstance = GetModuleHandleA(nullptr);
  RegisterClassA(&window_class);
  CreateWindowA("stacks", "", 0, 0, 0, 1, 1, HWND_MESSAGE, nullptr, window_class.hInstance, nullptr);
  return 2;
}

// Four callbacks, one in another. (What a window's own thread sends to it by SendMessage() does not leave user32.)
NOINLINE void move(HWND window, int depth) {
  SetWindowPos(window, nullptr, 0, 0, 1 + depth, 1, SWP_NOZORDER | SWP_NOACTIVATE);
}
static LRESULT CALLBACK on_nested_message(HWND window, UINT message, WPARAM w, LPARAM l) {
  if (message != WM_WINDOWPOSCHANGING) return DefWindowProcA(window, message, w, l);
  const int depth = reinterpret_cast<WINDOWPOS*>(l)->cx - 1;
  if (depth == 0) publish_and_wait("nested");
  move(window, depth - 1);
  return 1;
}
static DWORD WINAPI nesting_thread(void*) {
  WNDCLASSA window_class{};
  window_class.lpfnWndProc = on_nested_message;
  window_class.lpszClassName = "nested";
  window_class.hInstance = GetModuleHandleA(nullptr);
  RegisterClassA(&window_class);
  move(CreateWindowA("nested", "", 0, 0, 0, 9, 9, HWND_MESSAGE, nullptr, window_class.hInstance, nullptr), 3);
  return 4;
}

struct Guard {
  ~Guard() { publish_and_wait("landing"); }
};
NOINLINE void throw_below(int depth) {
  if (depth == 0) throw 42;
  throw_below(depth - 1);
}
static DWORD WINAPI catching_thread(void*) {
  try {
    Guard guard;
    throw_below(3);
  } catch (int) {}
  return 0;
}

static volatile long sum;
static volatile bool go_on = true;
NOINLINE void spin_inner(long n) {
  for (long i = 0; i < n; ++i) sum = sum + i;
}
NOINLINE void spin_outer() {
  while (go_on) spin_inner(100);
}
static DWORD WINAPI spinning_thread(void*) {
  spin_outer();
  return 3;
}

static VOID CALLBACK on_timer(PVOID, BOOLEAN) { publish_and_wait("timer"); }

}  // extern "C"

int main() {
  InitializeCriticalSection(&printing);
  std::printf("process %lx\n", GetCurrentProcessId());
  AddVectoredExceptionHandler(1, on_exception);
  for (LPTHREAD_START_ROUTINE start : {deep_thread, sorting_thread, relaying_thread, apc_thread, faulting_thread,
                                       raising_thread, window_thread, nesting_thread, catching_thread, spinning_thread})
    CreateThread(nullptr, 0, start, nullptr, 0, nullptr);
  HANDLE timer = nullptr;
  CreateTimerQueueTimer(&timer, nullptr, on_timer, nullptr, 0, 0, 0);
  const HANDLE suspended = CreateThread(nullptr, 0, spinning_thread, nullptr, 0, nullptr);
  Sleep(200);
  SuspendThread(suspended);
  publish_and_wait("main");
}
