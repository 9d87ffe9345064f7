#include "lookup/table/stored_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace windlass::table {
namespace {

// The directory, the pages and the rules follow, each of whole words.
struct Head {
  std::uint64_t checksum;  // of the bytes behind it
  std::uint64_t first_page;
  std::uint64_t pages;      // words
  std::uint32_t directory;  // entries
  std::uint32_t rules;
  std::uint64_t x_reg;
  TableStats stats;
};
static_assert(std::is_trivially_copyable_v<Head> && sizeof(Head) % 8 == 0 && sizeof(TraceRule) % 8 == 0);

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::size_t padded(std::size_t bytes) { return (bytes + kWord - 1) / kWord * kWord; }

template <typename T>
void append(std::vector<std::byte>& to, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  to.insert(to.end(), bytes.begin(), bytes.end());
  to.resize(padded(to.size()));
}

template <typename T>
std::vector<T> take(ByteView& from, std::size_t count) {
  std::vector<T> values(count);
  if (count != 0) std::memcpy(values.data(), from.data(), count * sizeof(T));
  const std::size_t taken = padded(count * sizeof(T));
  from = *from.sub(taken, from.size() - taken);
  return values;
}

std::uint16_t number_at(std::span<const std::byte> page, std::size_t offset) {
  std::uint16_t number;
  std::memcpy(&number, page.data() + offset, sizeof number);
  return number;
}

// The bytes of the page at the front of `rest`; nothing if it leads outside itself, or to a rule that there is not.
std::optional<std::size_t> checked_page(std::span<const std::byte> rest, std::size_t rules) {
  if (rest.size() < sizeof(wl_page_head)) return std::nullopt;
  const auto last = [&](std::size_t block) { return number_at(rest, block * 2); };
  for (std::size_t block = 1; block < WL_BLOCKS; ++block)
    if (last(block) < last(block - 1)) return std::nullopt;
  const std::size_t count = last(WL_BLOCKS - 1) + std::size_t{1};
  const std::size_t escapes_at = padded(sizeof(wl_page_head) + count * 2);
  if (rest.size() < escapes_at + kWord) return std::nullopt;
  std::uint64_t escapes;
  std::memcpy(&escapes, rest.data() + escapes_at, sizeof escapes);
  if (escapes > count || rest.size() - escapes_at - kWord < escapes * sizeof(wl_escape)) return std::nullopt;

  // Rows ascend from the page's begin. Each row that is an escape has one, in the order of the rows.
  std::uint64_t escape = 0;
  std::uint32_t block = 0, next = 0;
  for (std::size_t row = 0; row < count; ++row) {
    while (row > last(block)) ++block;
    const std::uint16_t value = number_at(rest, sizeof(wl_page_head) + row * 2);
    const std::uint32_t offset = block << WL_BLOCK_SHIFT | value >> 8;
    if (row == 0 ? offset != 0 : offset < next) return std::nullopt;
    next = offset + 1;
    if ((value & 0xff) != WL_RULE_ESCAPE) {
      if ((value & 0xffU) >= rules) return std::nullopt;
      continue;
    }
    wl_escape found;
    if (escape == escapes) return std::nullopt;
    std::memcpy(&found, rest.data() + escapes_at + kWord + escape++ * sizeof found, sizeof found);
    if (found.page_offset != offset || found.rule < WL_PALETTE_RULES || found.rule >= rules) return std::nullopt;
  }
  if (escape != escapes) return std::nullopt;
  return escapes_at + kWord + escapes * sizeof(wl_escape);
}

// Pages stand one behind the other from the second word on. Each entry of the directory names one.
bool are_checked(std::span<const std::uint64_t> pages, std::span<const std::uint32_t> directory, std::size_t rules) {
  const auto bytes = std::as_bytes(pages);
  std::vector<std::uint32_t> starts;
  for (std::size_t at = kWord; at < bytes.size();) {
    const auto size = checked_page(bytes.subspan(at), rules);
    if (!size) return false;
    starts.push_back(static_cast<std::uint32_t>(at / kWord));
    at += *size;
  }
  std::uint32_t last = 0;
  return std::ranges::all_of(directory, [&](std::uint32_t entry) {
    return entry == 0 || entry == std::exchange(last, entry) || std::ranges::binary_search(starts, entry);
  });
}

}  // namespace

// Of whole words. Four lanes, since each step waits for the one before it.
std::uint64_t StoredTable::checksum(ByteView bytes) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  const std::size_t words = bytes.size() / kWord;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i * kWord, kWord);
    std::uint64_t& lane = lanes[i % 4];
    lane = std::rotl(lane ^ word, 29) * kFactor;
  }
  std::uint64_t sum = words;
  for (const std::uint64_t lane : lanes) sum = std::rotl(sum ^ lane, 29) * kFactor;
  return sum;
}

std::vector<std::byte> StoredTable::write(const UnwindTable& table) {
  Head head{.checksum = 0,
            .first_page = table.first_page_,
            .pages = table.pages_.size(),
            .directory = static_cast<std::uint32_t>(table.directory_.size()),
            .rules = static_cast<std::uint32_t>(table.rules_.size()),
            .x_reg = table.x_reg_,
            .stats = table.stats_};
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof head + padded(table.directory_.size() * sizeof(table.directory_[0])) +
                table.pages_.size() * kWord + table.rules_.size() * sizeof(TraceRule));
  append(bytes, std::span<const Head>(&head, 1));
  append(bytes, std::span(table.directory_));
  append(bytes, std::span(table.pages_));
  append(bytes, std::span(table.rules_));
  head.checksum = checksum(ByteView(bytes.data() + kWord, bytes.size() - kWord));
  std::memcpy(bytes.data(), &head.checksum, kWord);
  return bytes;
}

std::optional<UnwindTable> StoredTable::read(ByteView bytes) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  ByteView rest = *bytes.sub(sizeof head, bytes.size() - sizeof head);
  const std::size_t directory_bytes = padded(std::size_t{head.directory} * sizeof(std::uint32_t));
  const std::size_t rule_bytes = std::size_t{head.rules} * sizeof(TraceRule);
  if (head.directory > WL_MAX_PAGES || head.pages > rest.size() / kWord ||
      directory_bytes + head.pages * kWord + rule_bytes != rest.size())
    return std::nullopt;
  if (checksum(*bytes.sub(kWord, bytes.size() - kWord)) != head.checksum) return std::nullopt;
  UnwindTable table;
  table.first_page_ = head.first_page;
  table.x_reg_ = static_cast<std::uint8_t>(head.x_reg);
  table.stats_ = head.stats;
  table.directory_ = take<std::uint32_t>(rest, head.directory);
  table.pages_ = take<std::uint64_t>(rest, head.pages);
  table.rules_ = take<TraceRule>(rest, head.rules);
  const auto none = std::as_bytes(std::span(table.rules_).first(std::min<std::size_t>(head.rules, 1)));
  if (none.empty() || std::ranges::any_of(none, [](std::byte byte) { return byte != std::byte{}; }))
    return std::nullopt;
  if (!are_checked(table.pages_, table.directory_, table.rules_.size())) return std::nullopt;
  return table;
}

}  // namespace windlass::table
