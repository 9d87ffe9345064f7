#include "runtimes/v8/functions.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace windlass::runtimes::v8 {
namespace {

constexpr std::uint32_t kLongestName = 1024, kLongestFile = 4096;
constexpr std::uint32_t kMostLocals = 1 << 16;

// What stands behind the names of a scope's variables, by kinds: 's' a string, 'i' a small integer, 'o' another object.
struct ScopeWords {
  std::array<Tagged, 10> words{};
  std::string kinds;
};

ScopeWords scope_words(const Heap& heap, Tagged scope, std::uint32_t from) {
  ScopeWords found;
  if (!heap.read(scope, from, found.words.data(), sizeof found.words)) return found;
  for (const Tagged word : found.words) {
    if (small_integer(word)) {
      found.kinds += 'i';
      continue;
    }
    const std::uint16_t type = heap.type_of(word);
    found.kinds += type != 0 && type < heap.layout().first_nonstring ? 's' : 'o';
    if (found.kinds.ends_with("iio")) break;
  }
  return found;
}

}  // namespace

// The order of a function's ScopeInfo (scope-info.tq). First come the variables. Then, where present: the data that a
// class keeps (i), the function's name, or 0, with its place (si). Then the name from an assignment (s), and the place
// in the source (ii). Since V8 13 the place in the source comes before the variables.
Function Functions::read(const Heap& heap, Tagged name_or_scope) {
  const Layout& layout = heap.layout();
  Function found;
  if (!heap.is(name_or_scope, layout.scope_type)) {
    found.name = heap.text(name_or_scope, kLongestName).value_or("");
    return found;
  }
  const auto word = [&](std::uint32_t index) { return layout.scope_data + 8 * index; };
  const auto locals = heap.field(name_or_scope, word(layout.scope_locals));
  const std::int32_t count = locals ? small_integer(*locals).value_or(-1) : -1;
  if (count < 0 || static_cast<std::uint32_t>(count) > kMostLocals) return found;
  const auto variables = static_cast<std::uint32_t>(count);
  const std::uint32_t names = variables < layout.scope_most_names ? variables : 1;
  const ScopeWords behind = scope_words(heap, name_or_scope, word(layout.scope_first + names + variables));
  const std::uint32_t counts = layout.scope_locals + 1;  // words in front of the place or the variables
  std::size_t end = behind.kinds.find('o');
  std::array<Tagged, 2> place{};
  if (layout.scope_first >= counts + place.size()) {
    if (!heap.read(name_or_scope, word(counts), place.data(), sizeof place)) return found;
  } else {
    end = behind.kinds.find("iio");
    if (end == std::string::npos) return found;
    place = {behind.words[end], behind.words[end + 1]};
  }
  found.begin = small_integer(place[0]).value_or(0);
  found.end = small_integer(place[1]).value_or(0);
  // The name may be an empty string.
  for (std::size_t i = 0; i < std::min(end, behind.kinds.size()) && found.name.empty(); ++i)
    if (behind.kinds[i] == 's') found.name = heap.text(behind.words[i], kLongestName).value_or("");
  if (found.begin < 0 || found.end < found.begin) found.begin = found.end = 0;
  return found;
}

std::uint32_t Functions::number_of(const Heap& heap, Tagged shared) {
  struct {
    Tagged name = 0, script = 0;
    std::array<std::byte, 96> scope{};
  } key;
  const Layout& layout = heap.layout();
  const auto name = heap.field(shared, layout.shared_name), script = heap.field(shared, layout.shared_script);
  if (!name || !script || !heap.is(shared, layout.shared_type)) return kNone;
  key.name = *name;
  key.script = *script;
  (void)heap.read(*name, 0, key.scope.data(), key.scope.size());
  std::string bytes(reinterpret_cast<const char*>(&key), sizeof key);
  if (const auto known = by_bytes_.find(bytes); known != by_bytes_.end()) return known->second;
  if (by_bytes_.size() >= kMaxFunctions) by_bytes_.clear();
  Function function = read(heap, *name);
  function.script = script_of(heap, *script);
  std::string value = function.name;
  for (const std::uint64_t part : {std::uint64_t{function.script}, static_cast<std::uint64_t>(function.begin),
                                   static_cast<std::uint64_t>(function.end)})
    value.append(1, '\0').append(reinterpret_cast<const char*>(&part), sizeof part);
  const auto known = by_value_.find(value);
  if (known == by_value_.end() && functions_.size() >= kMaxFunctions) return kNone;
  const std::uint32_t number = known != by_value_.end() ? known->second : static_cast<std::uint32_t>(functions_.size());
  if (known == by_value_.end()) {
    functions_.push_back(std::move(function));
    by_value_.emplace(std::move(value), number);
  }
  by_bytes_.emplace(std::move(bytes), number);
  return number;
}

// The number of a script. The collector moves scripts, so a script is recognised by its name, its length and pieces of
// its source.
std::uint32_t Functions::script_of(const Heap& heap, Tagged script) {
  const Layout& layout = heap.layout();
  std::string name;
  std::optional<Heap::Characters> source;
  if (heap.is(script, layout.script_type)) {
    const auto name_at = heap.field(script, layout.script_name), source_at = heap.field(script, layout.script_source);
    if (name_at) name = heap.text(*name_at, kLongestFile).value_or("");
    if (source_at) source = heap.characters(*source_at);
  }
  std::string value = name;
  if (source) {
    constexpr std::uint64_t kPiece = 256, kPieces = 4;
    const std::uint64_t size = std::uint64_t{source->length} * (source->one_byte ? 1 : 2);
    value.append(1, '\0').append(reinterpret_cast<const char*>(&size), sizeof size);
    std::array<char, kPiece> piece{};
    for (std::uint64_t i = 0; i < kPieces; ++i) {
      const std::uint64_t bytes = std::min(size, kPiece);
      if (heap.memory().read(source->address + (size - bytes) / (kPieces - 1) * i, piece.data(), bytes))
        value.append(piece.data(), bytes);
    }
  }
  const auto known = script_by_value_.find(value);
  if (known != script_by_value_.end()) return known->second;
  if (scripts_.empty()) scripts_.emplace_back();  // 0: not known
  if (scripts_.size() >= kMaxScripts) return 0;
  const auto number = static_cast<std::uint32_t>(scripts_.size());
  scripts_.push_back({std::move(name), source ? line_ends(heap, *source) : std::vector<std::uint32_t>()});
  script_by_value_.emplace(std::move(value), number);
  return number;
}

// ECMA-262 12.3: LF, CR, CR LF, U+2028, U+2029.
std::vector<std::uint32_t> Functions::line_ends(const Heap& heap, const Heap::Characters& source) {
  constexpr std::uint32_t kPiece = 1 << 15;
  std::vector<std::uint32_t> ends;
  const std::uint32_t width = source.one_byte ? 1 : 2;
  if (std::uint64_t{source.length} * width > kMaxSource - source_) return ends;
  source_ += std::uint64_t{source.length} * width;
  std::vector<std::byte> bytes(std::size_t{kPiece} * width);
  std::uint32_t before = 0;
  for (std::uint32_t at = 0; at < source.length; at += kPiece) {
    const std::uint32_t count = std::min(kPiece, source.length - at);
    if (!heap.memory().read(source.address + std::uint64_t{at} * width, bytes.data(), std::size_t{count} * width))
      return {};
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t c = static_cast<std::uint8_t>(bytes[std::size_t{i} * width]);
      if (width == 2) c |= static_cast<std::uint32_t>(bytes[std::size_t{i} * 2 + 1]) << 8;
      if (before == '\r' && c == '\n')
        ends.back() = at + i + 1;
      else if (c == '\n' || c == '\r' || c == 0x2028 || c == 0x2029)
        ends.push_back(at + i + 1);
      before = c;
    }
    if (ends.size() > kMaxLines - lines_) return {};
  }
  ends.push_back(source.length + 1);
  lines_ += ends.size();
  return ends;
}

std::uint32_t Functions::line_of(std::uint32_t number, std::int32_t position) const {
  const Function& function = functions_[number];
  const std::vector<std::uint32_t>& ends = scripts_[function.script].line_ends;
  if (position < function.begin || position > function.end) position = function.begin;
  const auto after = std::ranges::upper_bound(ends, static_cast<std::uint32_t>(position));
  return after != ends.end() && function.end != 0 ? static_cast<std::uint32_t>(after - ends.begin()) + 1 : 0;
}

}  // namespace windlass::runtimes::v8
