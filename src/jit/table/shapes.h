// A code manager's shapes: rows relative to their function, each kept once, however many functions have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "jit/table/pool.h"
#include "windlass/frame_row.h"
#include "windlass/registers.h"
#include "windlass_code_layout.h"

namespace windlass::manager {

// Stores words that others read meanwhile, in the order that the layout asks for. Multiples of 4 bytes.
void store(std::byte* to, const void* from, std::size_t size);

class Shapes {
 public:
  Shapes(std::byte* section, std::uint32_t size, Architecture architecture)
      : section_(section), pool_(sizeof(std::uint64_t), size), architecture_(architecture) {}

  // The place of the shape that a function's rows have, which gets a user more. Linear in the rows. kOutOfRange,
  // kMalformed, kLimit as CodeManager::add says, `where` counted from the function's begin.
  [[nodiscard]] Expected<std::uint32_t> take(std::span<const FrameRow> rows, std::uint32_t function_size);
  // The same for another function with the same rows.
  void take_again(std::uint32_t shape) { set_users(shape, shape_at(shape).users + 1); }
  // A user less; a shape without users may be overwritten by the next take().
  void give(std::uint32_t shape);
  // Bytes of the section, from its begin on, that were ever used.
  [[nodiscard]] std::uint32_t used() const { return pool_.used(); }

 private:
  [[nodiscard]] wl_code_shape& shape_at(std::uint32_t shape) const {
    return *reinterpret_cast<wl_code_shape*>(section_ + shape);
  }
  void set_users(std::uint32_t shape, std::uint32_t users) { store_word(shape_at(shape).users, users); }
  static void store_word(std::uint32_t& word, std::uint32_t value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }

  [[nodiscard]] Expected<void> draft(std::span<const FrameRow> rows, std::uint32_t function_size);
  Expected<void> draft_full(const FrameRow& row);
  void draft_rules(std::span<const FrameRow> rows);
  template <typename T>
  void append(const T& value) {
    append(&value, sizeof value);
  }
  void append(const void* from, std::size_t size);
  template <typename T>
  [[nodiscard]] T& drafted(std::size_t at) {
    return *reinterpret_cast<T*>(draft_.data() + at);
  }
  [[nodiscard]] std::uint32_t hash() const;
  [[nodiscard]] bool is_drafted(std::uint32_t shape) const;

  std::byte* section_;
  Pool pool_;
  Architecture architecture_;
  std::unordered_multimap<std::uint32_t, std::uint32_t> known_;  // by hash
  std::vector<std::byte> draft_;   // a shape as it will stand in the section, its rules 0 until it is new
  std::size_t drafted_ = 0;        // bytes of it
  std::vector<std::size_t> from_;  // of the drafted rows: which of those given; kGap
};

}  // namespace windlass::manager
