// What the fuzzers of readers of other processes share: an input is bytes to write over a process's memory, made up by
// hand, and whatever they say, a function that is found contains what it was looked up for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "check.h"
#include "runtimes/runtime_code.h"
#include "support/made_up_memory.h"

namespace windlass::fuzz {

// Calls store(at, bytes) for each of up to 64 stores: where (2 bytes, little-endian) and 8 bytes.
inline constexpr std::size_t kStoredBytes = 8;
template <typename Store>
void for_each_store(const std::uint8_t* data, std::size_t size, Store&& store) {
  constexpr std::size_t kStored = 2 + kStoredBytes;
  for (size = std::min<std::size_t>(size, 64 * kStored); size >= kStored; data += kStored, size -= kStored)
    store(static_cast<std::size_t>(data[0] | data[1] << 8), data + 2);
}

// `bytes`: a container of more than eight.
template <typename Bytes>
void write_over(Bytes& bytes, std::size_t at, const std::uint8_t* stored) {
  std::memcpy(bytes.data() + at % (bytes.size() - kStoredBytes), stored, kStoredBytes);
}
inline void write_over(test::MadeUpMemory& memory, const std::uint8_t* data, std::size_t size) {
  for_each_store(data, size, [&](std::size_t at, const std::uint8_t* stored) { write_over(memory.bytes, at, stored); });
}

inline void look_up(runtimes::Runtime& runtime, std::uint64_t pc) {
  const auto method = runtime.method_at(pc);
  if (!method) return;
  FUZZ_CHECK((*method)->contains(pc));
  (void)runtime.is_still(**method);
  FrameRow row;
  (void)(*method)->row_at(pc, row);
  (*method)->for_each_row([](const FrameRow& one) { FUZZ_CHECK(one.begin < one.end); }, [](const Error&) {});
}

}  // namespace windlass::fuzz
