// What a C++ program that links the installed library looks like: bytes read, and its own stack walked. <error.h> is
// the system's, <windlass/error.h> the library's.
#include <error.h>
#include <windlass/backtrace.h>
#include <windlass/bytes.h>
#include <windlass/error.h>

#include <cstdint>
#include <cstdio>

int main() {
  const std::uint8_t bytes[] = {0xe5, 0x8e, 0x26};
  windlass::ByteCursor cursor{windlass::ByteView(std::span<const std::uint8_t>(bytes))};
  const auto value = cursor.uleb();
  const auto past = cursor.uleb();
  if (!value || past) return 1;
  std::printf("%llu; %s\n", static_cast<unsigned long long>(*value), past.error().text().c_str());
  if (*value != 624485) return 2;

  error(0, 0, "%s", past.error().text().c_str());

  int frames = 0;
  windlass::StackWalker walker(windlass::own_process(), windlass::capture_registers());
  for (const windlass::Frame& frame : walker) frames += frame.module != nullptr;
  std::printf("%d frames, %.*s\n", frames, static_cast<int>(end_name(walker.end_reason()).size()),
              end_name(walker.end_reason()).data());
  return frames >= 3 && walker.end_reason() == windlass::WalkEnd::kComplete ? 0 : 3;
}
