// ClickHouse's formats: blocks that are inserted, rows that are read, texts within a query.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/leb128.h"

namespace windlass::store {

// Both formats have the lowest byte first.
static_assert(std::endian::native == std::endian::little);

// One block of the format Native: columns, one behind the other. A server that gets a part of a block takes nothing.
class NativeBlock {
 public:
  NativeBlock(std::uint64_t columns, std::uint64_t rows) {
    put_uleb128(bytes_, columns);
    put_uleb128(bytes_, rows);
  }

  template <typename Number>
  void numbers(std::string_view name, std::string_view type, const std::vector<Number>& values) {
    head(name, type);
    put(values);
  }
  void texts(std::string_view name, const std::vector<std::string>& values) {
    head(name, "String");
    for (const std::string& text : values) put(text);
  }
  // Of arrays: `ends` is the number of elements up to the end of each row.
  template <typename Number>
  void arrays(std::string_view name, std::string_view type, const std::vector<std::uint64_t>& ends,
              const std::vector<Number>& elements) {
    head(name, type);
    put(ends);
    put(elements);
  }
  void text_arrays(std::string_view name, const std::vector<std::uint64_t>& ends,
                   const std::vector<std::string>& elements) {
    head(name, "Array(String)");
    put(ends);
    for (const std::string& text : elements) put(text);
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  void head(std::string_view name, std::string_view type) {
    put(name);
    put(type);
  }
  void put(std::string_view text) {
    put_uleb128(bytes_, text.size());
    bytes_ += text;
  }
  template <typename Number>
  void put(const std::vector<Number>& values) {
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number));
  }

  std::string bytes_;
};

// Rows of the format RowBinary. What is not there is 0 or empty, and is_good() is false from then on.
class RowReader {
 public:
  explicit RowReader(std::string_view bytes) : rest_(bytes) {}

  [[nodiscard]] bool has_more() const { return good_ && !rest_.empty(); }
  [[nodiscard]] bool is_good() const { return good_; }

  template <typename Number>
  Number number() {
    Number value{};
    if (!has(sizeof value)) return value;
    std::memcpy(&value, rest_.begin(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint8_t u8() { return number<std::uint8_t>(); }
  // Within the answer.
  std::string_view view() {
    const std::uint64_t size = length();
    if (!has(size)) return {};
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }
  std::string text() { return std::string(view()); }
  std::vector<std::string> texts() {
    std::vector<std::string> list;
    for (std::uint64_t count = length(); count > 0 && has(1); --count) list.push_back(text());
    return list;
  }
  void views(std::vector<std::string_view>& list) {
    list.clear();
    for (std::uint64_t count = length(); count > 0 && has(1); --count) list.push_back(view());
  }
  template <typename Number>
  std::vector<Number> numbers() {
    std::vector<Number> list;
    each_number<Number>([&](Number value) { list.push_back(value); });
    return list;
  }
  template <typename Number, typename Each>
  void each_number(Each each) {
    const std::uint64_t count = length();
    if (count > rest_.size() || !has(count * sizeof(Number))) {
      good_ = false;
      return;
    }
    for (std::uint64_t i = 0; i < count; ++i) each(number<Number>());
  }
  // The bytes between `from`, an earlier rest(), and here.
  [[nodiscard]] std::string_view rest() const { return rest_; }
  [[nodiscard]] std::string_view since(std::string_view from) const {
    return from.substr(0, from.size() - rest_.size());
  }

 private:
  bool has(std::uint64_t bytes) { return good_ = good_ && bytes <= rest_.size(); }
  std::uint64_t length() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && has(1); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    good_ = false;
    return 0;
  }

  std::string_view rest_;
  bool good_ = true;
};

// Letters, digits and _: what databases and clusters are named with.
[[nodiscard]] constexpr bool is_sql_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
// A literal of SQL, for any bytes: nothing but letters, digits and a few marks is written as it is.
[[nodiscard]] std::string sql_text(std::string_view text);
// The ids as a set: "(SELECT ...)". One literal, however many there are.
template <typename Ids>
[[nodiscard]] std::string sql_ids(const Ids& ids) {
  std::string list;
  for (const std::uint64_t id : ids) (list += list.empty() ? "" : ",") += std::to_string(id);
  if (list.empty()) return "(SELECT toUInt64(0) WHERE 0)";
  return "(SELECT arrayJoin(arrayMap(x -> toUInt64(x), splitByChar(',', '" + list + "'))))";
}

}  // namespace windlass::store
