// What the fuzzers of readers of other processes share: an input is bytes to write over a process's memory, made up by
// hand, and whatever they say, a function that is found contains what it was looked up for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

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

// Patches of 12 bytes to `bytes`, which are at `base`: where (2 bytes), how many bytes (1), from what (1: as it stands,
// or from the memory's begin on), and 8 bytes.
template <typename Byte>
void patch(std::span<Byte> bytes, std::uint64_t base, const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kPatch = 12;
  for (; size >= kPatch; data += kPatch, size -= kPatch) {
    std::uint64_t value = 0;
    std::memcpy(&value, data + 4, sizeof value);
    if ((data[3] & 1) != 0) value = base + value % bytes.size();
    const std::size_t at = (data[0] + 256U * data[1]) % bytes.size(), length = data[2] % 9U;
    std::memcpy(bytes.data() + at, &value, std::min(length, bytes.size() - at));
  }
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
