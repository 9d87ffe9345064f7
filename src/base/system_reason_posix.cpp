#include <cstring>

#include "base/system_reason.h"

void windlass::system_reason(std::uint64_t number, char* to, std::size_t size) {
  const char* reason = strerrordesc_np(static_cast<int>(number));  // unlike strerror, for any thread
  if (reason == nullptr) reason = "unknown error";
  const std::size_t length = strnlen(reason, size - 1);
  std::memcpy(to, reason, length);
  to[length] = 0;
}
