// What a program that links the installed library looks like; every public header stands on its own.
#include <windlass/bytes.h>
#include <windlass/error.h>
#include <windlass/frame_row.h>

#include <cstdint>
#include <cstdio>

int main() {
  const std::uint8_t bytes[] = {0xe5, 0x8e, 0x26};
  windlass::ByteCursor cursor{windlass::ByteView(std::span<const std::uint8_t>(bytes))};
  const auto value = cursor.uleb();
  const auto past = cursor.uleb();
  if (!value || past) return 1;
  std::printf("%llu; %s\n", static_cast<unsigned long long>(*value), past.error().text().c_str());
  return *value == 624485 ? 0 : 1;
}
