// A cache of fixed size that all threads share without locks. Signal-safe. A later entry replaces an earlier one in the
// same place.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace windlass {

// For static storage: all zero until something is kept. A reader copies an entry between two looks at the entry's
// version. An entry that is being written counts as absent. The writer may be another thread, or code that a signal
// handler has interrupted.
template <typename Key, typename Value, unsigned kBits>
class SharedCache {
  static_assert(std::is_trivially_copyable_v<Key> && std::is_trivially_copyable_v<Value>);
  static_assert(std::has_unique_object_representations_v<Key>);

 public:
  [[nodiscard]] bool find(const Key& key, Value& to) const {
    const Entry& entry = entries_[place_of(key)];
    const std::uint32_t version = entry.version.load(std::memory_order_acquire);
    if (version == 0 || (version & 1) != 0) return false;
    Words words;
    for (std::size_t i = 0; i < kWords; ++i) words[i] = entry.words[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.version.load(std::memory_order_relaxed) != version) return false;
    if (std::memcmp(words.data(), &key, sizeof key) != 0) return false;
    std::memcpy(static_cast<void*>(&to), words.data() + kKeyWords, sizeof to);
    return true;
  }
  void keep(const Key& key, const Value& value) {
    Entry& entry = entries_[place_of(key)];
    std::uint32_t version = entry.version.load(std::memory_order_relaxed);
    if ((version & 1) != 0 || !entry.version.compare_exchange_strong(version, version + 1, std::memory_order_acquire))
      return;
    std::atomic_thread_fence(std::memory_order_release);  // who reads a new word sees that it is being written
    Words words{};
    std::memcpy(words.data(), &key, sizeof key);
    std::memcpy(words.data() + kKeyWords, static_cast<const void*>(&value), sizeof value);
    for (std::size_t i = 0; i < kWords; ++i) entry.words[i].store(words[i], std::memory_order_relaxed);
    entry.version.store(version + 2 != 0 ? version + 2 : 2, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kKeyWords = (sizeof(Key) + 7) / 8, kWords = kKeyWords + (sizeof(Value) + 7) / 8;
  using Words = std::array<std::uint64_t, kWords>;
  struct Entry {
    std::atomic<std::uint32_t> version;  // 0: empty; odd while it is written
    std::atomic<std::uint64_t> words[kWords];
  };
  [[nodiscard]] static std::size_t place_of(const Key& key) {
    std::uint64_t hash = 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(&key);
    for (std::size_t at = 0; at < sizeof key; at += sizeof hash) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + at, sizeof key - at < sizeof word ? sizeof key - at : sizeof word);
      hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
      hash ^= hash >> 32;
    }
    return (hash * 0x9e37'79b9'7f4a'7c15) >> (64 - kBits);
  }

  Entry entries_[std::size_t{1} << kBits];
};

}  // namespace windlass
