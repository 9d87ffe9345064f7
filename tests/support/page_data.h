// The data of an HTML page (profiler/export/page_table.h), read by a reader of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/export/gzip.h"

namespace windlass::test {

struct PageNode {
  std::size_t parent = 0, frame = 0;  // node 0 is the root, without a frame
};
struct PageSample {
  std::size_t node = 0;
  std::map<std::string, std::uint64_t> numbers;  // "process", "event", ...
};
struct PageTime {
  std::size_t thread = 0, sample = 0;
  std::uint64_t begin = 0, lasted = 0;  // ns
};
struct PageData {
  nlohmann::json names;
  std::vector<PageNode> nodes;
  std::vector<PageSample> samples;
  std::vector<PageTime> times;  // by thread, then by time

  // "root;...;leaf" of a node.
  [[nodiscard]] std::string path(std::size_t node) const {
    std::string text;
    for (; node != 0; node = nodes[node].parent)
      text = names["frames"][nodes[node].frame]["name"].get<std::string>() + (text.empty() ? "" : ";") + text;
    return text;
  }
};

inline std::string from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0, count = 0;
  for (const char c : text) {
    const auto digit = std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count);
  }
  return bytes;
}

inline PageData page_data(std::string_view page) {
  PageData data;
  const std::string_view mark = "<script id=\"profile\" type=\"text/plain\">";
  const std::size_t begin = page.find(mark) + mark.size();
  const std::string packed = from_base64(page.substr(begin, page.find("</script>", begin) - begin));
  const auto bytes =
      exporter::gunzip({reinterpret_cast<const std::byte*>(packed.data()), packed.size()}, std::uint64_t{1} << 30);
  EXPECT_TRUE(bytes.has_value());
  if (!bytes) return data;
  const std::string_view all(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  std::size_t at = all.find('\0');
  data.names = nlohmann::json::parse(all.substr(0, at++));
  const auto number = [&] {
    std::uint64_t value = 0;
    for (unsigned shift = 0; at < all.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(all[at++]);
      value |= std::uint64_t{byte & 127u} << shift;
      if (byte < 128) break;
    }
    return value;
  };
  data.nodes.resize(number() + 1);
  data.samples.resize(number());
  std::vector<std::size_t> open{0};
  for (std::size_t i = 1; i < data.nodes.size(); ++i) {
    open.resize(open.size() - number());
    data.nodes[i].parent = open.back();
    open.push_back(i);
  }
  std::size_t next = 0;
  for (std::size_t i = 1; i < data.nodes.size(); ++i) {
    const std::uint64_t back = number();
    data.nodes[i].frame = back == 0 ? next++ : next - back;
  }
  std::size_t node = 0;
  for (PageSample& sample : data.samples) sample.node = node += number();
  for (const char* column : {"process", "event", "labels", "end", "certainty", "module", "line", "count", "value"})
    for (PageSample& sample : data.samples) sample.numbers[column] = number();
  for (std::size_t thread = 0; thread < data.names["threads"].size(); ++thread)
    data.times.resize(data.times.size() + number(), {.thread = thread});
  for (std::size_t i = 0; i < data.times.size(); ++i) {
    const bool follows = i != 0 && data.times[i - 1].thread == data.times[i].thread;
    data.times[i].begin = number() + (follows ? data.times[i - 1].begin : 0);
  }
  for (PageTime& time : data.times) time.sample = number();
  for (PageTime& time : data.times) time.lasted = number();
  EXPECT_EQ(at, all.size());
  EXPECT_EQ(next, data.names["frames"].size());
  return data;
}

}  // namespace windlass::test
