// A Windows program whose DLLs live for 2 ms each: two of them, which differ in their frames and names alone, come to
// lie at one address by turns. Their stacks are known: spin_X <- deeper_X <- work_X <- work <- use_library <- main, or
// now <- deeper_X and so on, X being the one that is loaded.
//
// usage: truth_passing SECONDS DLL DLL    (of processor time)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <cstdio>
#include <cstdlib>

using Work = unsigned long long (*)(long long (*now)(), long long until);

namespace {

long long ticks_per_second;

double processor_seconds() {
  FILETIME created, ended, kernel, user;
  if (!GetProcessTimes(GetCurrentProcess(), &created, &ended, &kernel, &user)) std::abort();
  const auto seconds = [](const FILETIME& time) {
    return 1e-7 * static_cast<double>(static_cast<ULONGLONG>(time.dwHighDateTime) << 32 | time.dwLowDateTime);
  };
  return seconds(kernel) + seconds(user);
}

}  // namespace

extern "C" {

[[gnu::noinline]] long long now() {
  LARGE_INTEGER ticks;
  QueryPerformanceCounter(&ticks);
  asm volatile("");
  return ticks.QuadPart;
}

[[gnu::noinline]] unsigned long long use_library(const char* name) {
  const HMODULE library = LoadLibraryA(name);
  if (library == nullptr) std::abort();
  const auto work = reinterpret_cast<Work>(reinterpret_cast<void*>(GetProcAddress(library, "work")));
  const unsigned long long done = work(now, now() + ticks_per_second / 500);
  FreeLibrary(library);
  return done;
}

}  // extern "C"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  LARGE_INTEGER frequency;
  QueryPerformanceFrequency(&frequency);
  ticks_per_second = frequency.QuadPart;
  unsigned long long sum = 0;
  unsigned rounds = 0;
  for (const double end = std::atof(argv[1]); processor_seconds() < end; ++rounds)
    sum += use_library(argv[2 + rounds % 2]);
  std::printf("%u libraries, %llu\n", rounds, sum);
}
