// The Windows program whose every possible stack is known: see truth_levels.h. Its innermost level calls leaf(), which
// leaves the program by every door: the kernel, the C library, the heap, a DLL; and windows call back into it. Four
// threads do the same; that they share the state of the random numbers only makes these more so.
//
// usage: truth_windows SECONDS    (of processor time: on a busy machine there shall be as many samples)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

[[gnu::noinline]] std::uint64_t leaf(std::uint64_t seed);
#define TRUTH_LEAF(seed) leaf(seed)
#include "truth_levels.h"

extern "C" __declspec(dllimport) std::uint64_t call_back(std::uint64_t (*callback)(std::uint64_t), std::uint64_t seed);

namespace {

HANDLE file, event;

}  // namespace

[[gnu::noinline]] void write_and_read() {
  char line[64] = "a line of the file";
  DWORD count;
  SetFilePointer(file, 0, nullptr, FILE_BEGIN);
  WriteFile(file, line, sizeof line, &count, nullptr);
  SetFilePointer(file, 0, nullptr, FILE_BEGIN);
  ReadFile(file, line, sizeof line, &count, nullptr);
  touch(line);
}

[[gnu::noinline]] void wait_in_vain() {
  WaitForSingleObject(event, 0);
  asm volatile("");
}

[[gnu::noinline]] void use_heap(std::uint64_t seed) {
  void* memory = std::malloc(16 + (seed & 0xfff));
  touch(memory);
  std::free(memory);
  memory = HeapAlloc(GetProcessHeap(), 0, 100);
  touch(memory);
  HeapFree(GetProcessHeap(), 0, memory);
  asm volatile("");
}

std::uint64_t leaf(std::uint64_t seed) {
  switch (next_random() % 16) {
    case 0: write_and_read(); break;
    case 1: wait_in_vain(); break;
    case 2: use_heap(seed); break;
    default: break;
  }
  asm volatile("");
  return seed;
}

// Through the DLL: in_library_path -> call_back -> back -> level<0, *>.
[[gnu::noinline]] std::uint64_t back(std::uint64_t seed) {
  const std::uint64_t result = descend<0>(next_random() | 1);
  asm volatile("");
  return result + seed;
}

[[gnu::noinline]] void in_library_path() {
  sink = sink + call_back(back, 1);
  asm volatile("");
}

// By way of a window procedure, which Wine's Unix side calls back, or of one in another: in_window_path -> SetWindowPos
// -> by_message -> level<0, *>, or by_message -> move -> SetWindowPos -> by_message -> level<0, *>.
constexpr UINT kMove = SWP_NOZORDER | SWP_NOACTIVATE;

[[gnu::noinline]] void move(HWND window) {
  SetWindowPos(window, nullptr, 0, 0, 1, 1, kMove);
  asm volatile("");
}

extern "C" [[gnu::noinline]] LRESULT CALLBACK by_message(HWND window, UINT message, WPARAM w, LPARAM l) {
  if (message != WM_WINDOWPOSCHANGING) return DefWindowProcA(window, message, w, l);
  switch (reinterpret_cast<WINDOWPOS*>(l)->cx) {
    case 1:  // often enough that the way here, by the server, is the smaller part
      for (int i = 0; i < 200; ++i) sink = sink + descend<0>(next_random() | 1);
      break;
    case 2: move(window); break;
    default: break;
  }
  asm volatile("");
  return 0;
}

[[gnu::noinline]] void in_window_path(HWND window) {
  SetWindowPos(window, nullptr, 0, 0, next_random() % 4 == 0 ? 2 : 1, 1, kMove);
  asm volatile("");
}

// A system call that takes its time: the thread is elsewhere meanwhile.
[[gnu::noinline]] void sleep_a_little() {
  WaitForSingleObject(event, 1);
  asm volatile("");
}

[[gnu::noinline]] void all_paths(HWND window) {
  for (int i = 0; i < 200; ++i) in_plain_path();
  for (int i = 0; i < 10; ++i) in_callback_path();
  for (int i = 0; i < 40; ++i) in_library_path();
  in_window_path(window);
  sleep_a_little();
}

[[gnu::noinline]] double processor_seconds() {
  FILETIME created, ended, kernel, user;
  if (!GetProcessTimes(GetCurrentProcess(), &created, &ended, &kernel, &user)) std::abort();
  const auto seconds = [](const FILETIME& time) {
    return 1e-7 * static_cast<double>(static_cast<ULONGLONG>(time.dwHighDateTime) << 32 | time.dwLowDateTime);
  };
  return seconds(kernel) + seconds(user);
}

extern "C" [[gnu::noinline]] DWORD WINAPI worker(void* end) {
  const HINSTANCE program = GetModuleHandleA(nullptr);
  const HWND window = CreateWindowA("truth", "", 0, 0, 0, 9, 9, HWND_MESSAGE, nullptr, program, nullptr);
  if (window == nullptr) std::abort();
  while (processor_seconds() < *static_cast<double*>(end)) all_paths(window);
  return 0;
}

int main(int argc, char** argv) {
  double end = argc > 1 ? std::atof(argv[1]) : 1.0;
  event = CreateEventA(nullptr, TRUE, FALSE, nullptr);
  char folder[MAX_PATH], name[MAX_PATH];
  GetTempPathA(sizeof folder, folder);
  GetTempFileNameA(folder, "wl", 0, name);
  file = CreateFileA(name, GENERIC_READ | GENERIC_WRITE, 0, nullptr, CREATE_ALWAYS, FILE_FLAG_DELETE_ON_CLOSE, nullptr);
  WNDCLASSA window_class{};
  window_class.lpfnWndProc = by_message;
  window_class.lpszClassName = "truth";
  window_class.hInstance = GetModuleHandleA(nullptr);
  RegisterClassA(&window_class);
  HANDLE threads[3];
  for (HANDLE& thread : threads) thread = CreateThread(nullptr, 0, worker, &end, 0, nullptr);
  worker(&end);
  WaitForMultipleObjects(3, threads, TRUE, INFINITE);
  std::printf("%llu\n", static_cast<unsigned long long>(sink));
  return 0;
}
