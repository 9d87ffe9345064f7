// /bin/sleep, as a program that is not the test's own.
#pragma once

#include <unistd.h>

#include <string_view>

#include "windlass/walk.h"

namespace windlass::test {

// How a walk of it ends. In the virtual machines it is Busybox, and nothing proves its outermost frames: it
// is static, and calls its applets from a function without unwind information that never returns.
inline WalkEnd end_of_sleep() {
  char target[256] = {};
  const ssize_t size = ::readlink("/bin/sleep", target, sizeof target - 1);
  return size > 0 && std::string_view(target).ends_with("busybox") ? WalkEnd::kGuessed : WalkEnd::kComplete;
}

}  // namespace windlass::test
