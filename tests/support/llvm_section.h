// LLVM's stack maps, made by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "windlass/managed/gc_roots.h"

namespace windlass::test {

// A section with one statepoint, 16 bytes into a function, whose pairs are given: slots of sp at these offsets.
inline std::vector<std::byte> llvm_section(std::uint64_t function,
                                           const std::vector<std::pair<std::int32_t, std::int32_t>>& pairs) {
  std::vector<std::byte> section;
  const auto put = [&](auto value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    section.insert(section.end(), bytes, bytes + sizeof value);
  };
  const auto location = [&](std::uint8_t kind, std::uint16_t reg, std::int32_t offset) {
    for (const std::uint16_t part : {std::uint16_t{kind}, std::uint16_t{8}, reg, std::uint16_t{0}}) put(part);
    put(offset);
  };
  for (const std::uint32_t word : {3u, 1u, 0u, 1u}) put(word);       // version; functions, constants, records
  for (const std::uint64_t word : {function, 64ul, 1ul}) put(word);  // a function: address, stack size, records
  put(std::uint64_t{1});
  put(std::uint32_t{0x10});
  put(std::uint16_t{0});
  put(static_cast<std::uint16_t>(3 + 2 * pairs.size()));
  for (int i = 0; i < 3; ++i) location(managed::LlvmStackMaps::Location::kConstant, 0, 0);
  for (const auto& [base, derived] : pairs) {
    location(managed::LlvmStackMaps::Location::kIndirect, 7, base);
    location(managed::LlvmStackMaps::Location::kIndirect, 7, derived);
  }
  section.resize((section.size() + 7) / 8 * 8);
  put(std::uint64_t{0});  // no live outs
  return section;
}

}  // namespace windlass::test
