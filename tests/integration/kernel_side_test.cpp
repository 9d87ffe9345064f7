// The real BPF program on this kernel. Skipped, with the reason, where it cannot be loaded.
#include "profile/kernel_side.h"

#include <gtest/gtest.h>

namespace windlass::profile {
namespace {

TEST(KernelSide, Loads) {
  KernelSideOptions options;
  auto opened = KernelSide::open(options);
  if (!opened) GTEST_SKIP() << opened.error().text;
}

}  // namespace
}  // namespace windlass::profile
