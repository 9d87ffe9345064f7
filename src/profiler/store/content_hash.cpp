#include "profiler/store/content_hash.h"

#include <algorithm>
#include <bit>

namespace windlass::store {

namespace {

std::uint64_t mixed(std::uint64_t value) {  // the last step of MurmurHash3
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccd;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53;
  return value ^ (value >> 33);
}

void put(std::uint64_t number, std::byte* to) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<std::byte>(number >> (8 * i));
}

template <typename Byte>
std::uint64_t number_at(const Byte* from, std::size_t size) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < size; ++i) number |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
  return number;
}

}  // namespace

ContentHash& ContentHash::add(std::uint64_t number) {
  low_ = mixed(low_ ^ number) + high_;
  high_ = std::rotl(high_ ^ (number * 0x9e3779b97f4a7c15), 29) * 0xc2b2ae3d27d4eb4f + low_;
  return *this;
}

ContentHash& ContentHash::add(std::string_view text) {
  add(text.size());
  for (std::size_t at = 0; at < text.size(); at += 8)
    add(number_at(text.data() + at, std::min<std::size_t>(8, text.size() - at)));
  return *this;
}

ContentHash& ContentHash::add(const HashBytes& hash) {
  return add(number_at(hash.data(), 8)).add(number_at(hash.data() + 8, 8));
}

HashBytes ContentHash::bytes() const {
  HashBytes all{};
  const std::uint64_t low = mixed(low_ ^ std::rotl(high_, 32));
  put(low, all.data());
  put(mixed(high_ + low), all.data() + 8);
  return all;
}

}  // namespace windlass::store
