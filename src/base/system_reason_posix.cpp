#include <cstring>

#include "base/system_reason.h"

void windlass::system_reason(std::uint64_t number, char* to, std::size_t size) {
#ifdef __GLIBC__
  const char* reason = strerrordesc_np(static_cast<int>(number));  // unlike strerror, for any thread
#else
  const char* reason = std::strerror(static_cast<int>(number));  // musl's texts do not change
#endif
  if (reason == nullptr) reason = "unknown error";
  const std::size_t length = strnlen(reason, size - 1);
  std::memcpy(to, reason, length);
  to[length] = 0;
}
