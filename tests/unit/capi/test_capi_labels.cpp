// Labels of threads (windlass/c/labels.h and windlass/labels.h): what a profiler finds in the thread's record.
#if defined(__linux__)

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "windlass/labels.h"

extern "C" __thread void* otel_thread_ctx_v1;

namespace windlass {
namespace {

std::uint32_t key(const char* name) {
  std::uint32_t number = 0;
  EXPECT_EQ(windlass_add_label_key(name, &number), WINDLASS_OK);
  return number;
}

// The attributes, as key:value with the key's number; "invalid" if the record is not to be read.
std::string shared() {
  const auto* record = static_cast<const std::uint8_t*>(otel_thread_ctx_v1);
  if (record == nullptr) return "none";
  if (record[24] != 1) return "invalid";
  std::uint16_t size = 0;
  std::memcpy(&size, record + 26, sizeof size);
  std::string text;
  for (std::size_t at = 0; at < size; at += 2u + record[28 + at + 1])
    text += std::to_string(record[28 + at]) + ":" +
            std::string(reinterpret_cast<const char*>(record) + 30 + at, record[28 + at + 1]) + " ";
  return text;
}
std::string label(std::uint32_t number) {
  char value[WINDLASS_MAX_LABEL_VALUE + 1];
  EXPECT_EQ(windlass_thread_label(number, value, sizeof value), WINDLASS_OK);
  return value;
}

TEST(CApiLabels, AreInTheRecord) {
  const std::uint32_t route = key("route"), user = key("user");
  EXPECT_EQ(key("route"), route);
  const std::string r = std::to_string(route) + ":", u = std::to_string(user) + ":";
  EXPECT_EQ(windlass_set_thread_label(route, "/a"), WINDLASS_OK);
  EXPECT_EQ(windlass_set_thread_label(user, "ann"), WINDLASS_OK);
  EXPECT_EQ(shared(), r + "/a " + u + "ann ");
  EXPECT_EQ(windlass_set_thread_label(route, "/longer"), WINDLASS_OK);
  EXPECT_EQ(shared(), r + "/longer " + u + "ann ");
  EXPECT_EQ(label(route), "/longer");
  EXPECT_EQ(windlass_set_thread_label(route, nullptr), WINDLASS_OK);
  EXPECT_EQ(shared(), u + "ann ");
  EXPECT_EQ(label(route), "");
  EXPECT_EQ(windlass_set_thread_label(route, "/b"), WINDLASS_OK);
  std::thread([] { EXPECT_EQ(shared(), "none"); }).join();
  EXPECT_EQ(windlass_clear_thread_labels(), WINDLASS_OK);
  EXPECT_EQ(shared(), "");
}

TEST(CApiLabels, HaveLimits) {
  std::uint32_t number = 0;
  EXPECT_EQ(windlass_add_label_key("", &number), WINDLASS_INVALID);
  EXPECT_EQ(windlass_add_label_key(nullptr, &number), WINDLASS_INVALID);
  EXPECT_EQ(windlass_add_label_key("x", nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_add_label_key(std::string(WINDLASS_MAX_LABEL_NAME + 1, 'x').c_str(), &number), WINDLASS_LIMIT);
  EXPECT_EQ(windlass_set_thread_label(WINDLASS_MAX_LABEL_KEYS, "x"), WINDLASS_INVALID);
  const std::uint32_t a = key("limit a"), b = key("limit b"), c = key("limit c");
  const std::string most(WINDLASS_MAX_LABEL_VALUE, 'v');
  EXPECT_EQ(windlass_set_thread_label(a, (most + "v").c_str()), WINDLASS_LIMIT);
  EXPECT_EQ(windlass_set_thread_label(a, most.c_str()), WINDLASS_OK);
  EXPECT_EQ(windlass_set_thread_label(b, most.c_str()), WINDLASS_OK);
  const std::string before = shared();
  EXPECT_EQ(windlass_set_thread_label(c, most.c_str()), WINDLASS_LIMIT);
  EXPECT_EQ(shared(), before);
  EXPECT_EQ(windlass_set_thread_label(c, most.substr(0, 96).c_str()), WINDLASS_OK);  // 612 bytes in all
  char value[WINDLASS_MAX_LABEL_VALUE];
  EXPECT_EQ(windlass_thread_label(a, value, sizeof value), WINDLASS_INVALID);
  EXPECT_EQ(windlass_clear_thread_labels(), WINDLASS_OK);
}

TEST(CApiLabels, OfATrace) {
  const std::uint8_t trace[16] = {1, 2}, span[8] = {3};
  EXPECT_EQ(windlass_set_thread_trace(trace, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_set_thread_trace(trace, span), WINDLASS_OK);
  const auto* record = static_cast<const std::uint8_t*>(otel_thread_ctx_v1);
  EXPECT_EQ(std::memcmp(record, trace, 16), 0);
  EXPECT_EQ(std::memcmp(record + 16, span, 8), 0);
  EXPECT_EQ(windlass_set_thread_trace(nullptr, nullptr), WINDLASS_OK);
  EXPECT_EQ(record[0], 0);
}

TEST(CApiLabels, AreLeftAloneIfAnotherLibraryHasThem) {
  const std::uint32_t route = key("route");
  std::thread([route] {
    std::uint8_t other[28] = {};
    otel_thread_ctx_v1 = other;
    EXPECT_EQ(windlass_set_thread_label(route, "/a"), WINDLASS_UNSUPPORTED);
    EXPECT_EQ(otel_thread_ctx_v1, other);
    otel_thread_ctx_v1 = nullptr;
  }).join();
}

// As a handler sees it that interrupts a change.
TEST(CApiLabels, AreNotChangedDuringAChange) {
  const std::uint32_t route = key("route");
  EXPECT_EQ(windlass_set_thread_label(route, "/a"), WINDLASS_OK);
  auto* record = static_cast<std::uint8_t*>(otel_thread_ctx_v1);
  record[24] = 0;
  EXPECT_EQ(windlass_set_thread_label(route, "/b"), WINDLASS_LIMIT);
  char value[WINDLASS_MAX_LABEL_VALUE + 1];
  EXPECT_EQ(windlass_thread_label(route, value, sizeof value), WINDLASS_LIMIT) << "it may be half written";
  record[24] = 1;
  EXPECT_EQ(label(route), "/a");
}

TEST(CApiLabels, EndWithTheirScope) {
  const LabelKey route("route");
  EXPECT_EQ(windlass_clear_thread_labels(), WINDLASS_OK);
  {
    const ThreadLabel outer(route, "/a");
    {
      const ThreadLabel inner(route, "/b");
      EXPECT_EQ(inner.status(), WINDLASS_OK);
      EXPECT_EQ(label(route.number()), "/b");
    }
    EXPECT_EQ(label(route.number()), "/a");
    const ThreadLabel cut(route, std::string(300, 'x'));
    EXPECT_EQ(label(route.number()), std::string(WINDLASS_MAX_LABEL_VALUE, 'x'));
  }
  EXPECT_EQ(shared(), "");
}

}  // namespace
}  // namespace windlass

#endif
