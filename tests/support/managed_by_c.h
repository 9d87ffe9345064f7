// What tests of the C interface of managed frames share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include "support/sized.h"
#include "windlass/c/managed.h"

namespace windlass::test {

using Visit = std::function<int(const windlass_crawl*, const windlass_crawl_frame*)>;
// The outcome, WINDLASS_WALK_DONE for one.
inline std::uint32_t walk(const windlass_managed_thread& thread, std::uint32_t flags, const Visit& visit,
                          windlass_error* error = nullptr) {
  std::uint32_t outcome = 99;
  EXPECT_EQ(windlass_walk_managed(
                &thread, nullptr, flags,
                [](const windlass_crawl* crawl, const windlass_crawl_frame* frame, void* user) {
                  return (*static_cast<const Visit*>(user))(crawl, frame);
                },
                const_cast<Visit*>(&visit), &outcome, error),
            WINDLASS_OK);
  return outcome;
}

}  // namespace windlass::test
