#include "runtimes/v8/wasm_map.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::v8 {
namespace {

constexpr std::uint32_t kRoot = 8, kLeftmost = 16, kRightmost = 24,
                        kBehindMap = 40;    // in a std::map, from its header on
constexpr std::uint32_t kFarthest = 0x600;  // bytes of an object looked through
constexpr unsigned kDeepest = 64;           // of a tree

}  // namespace

// Behind the pointers to the module and to the instructions come, since V8 13, a hash of the signature and a pointer.
// Then lengths, first the length of the instructions, and the index.
WasmMap::WasmMap(const Memory& memory, std::uint64_t state, std::int32_t version) : memory_(memory), state_(state) {
  if (version == 10) size_at_ = 32, index_at_ = 48;
  if (version == 11 || version == 12) size_at_ = 24, index_at_ = 44;
  if (version == 13 || version == 14) size_at_ = 32, index_at_ = 56;
}

// The last node at or in front of an address.
std::optional<WasmMap::Node> WasmMap::floor(std::uint64_t header, std::uint64_t pc) const {
  std::optional<Node> best;
  std::uint64_t at = read_value<std::uint64_t>(memory_, header + kRoot).value_or(0);
  for (unsigned depth = 0; depth < kDeepest && at != 0; ++depth) {
    const auto node = read_value<Node>(memory_, at);
    if (!node || (depth == 0 && node->parent != header)) break;
    if (node->key <= pc) best = node;
    at = node->key <= pc ? node->right : node->left;
  }
  return best;
}

std::optional<WasmObject> WasmMap::code_at(std::uint64_t object, std::uint64_t module) const {
  std::array<std::byte, 64> bytes{};
  if (index_at_ == 0 || !memory_.read(object, bytes.data(), bytes.size())) return std::nullopt;
  const auto get = [&](std::uint32_t at, auto& to) { std::memcpy(&to, bytes.data() + at, sizeof to); };
  WasmObject found{.object = object};
  std::uint32_t size = 0;
  get(0, found.module), get(8, found.begin), get(size_at_, size), get(index_at_, found.index);
  found.end = found.begin + size;
  if (found.module != module || size == 0 || size > kLongest || found.end < found.begin ||
      found.index < WasmObject::kNone || found.index >= kMostFunctions)
    return std::nullopt;
  return found;
}

// Calls visit(object) for the code behind a module's map, newest first, until one is true.
template <typename Visit>
bool WasmMap::any_new(std::uint64_t codes, Visit&& visit) const {
  const auto vector = read_value<std::array<std::uint64_t, 2>>(memory_, codes + kBehindMap);
  if (!vector || (*vector)[0] >= (*vector)[1] || ((*vector)[1] - (*vector)[0]) % 8 != 0) return false;
  const std::uint64_t count = std::min<std::uint64_t>(((*vector)[1] - (*vector)[0]) / 8, kMostNew);
  std::vector<std::uint64_t> objects(count);
  if (!memory_.read((*vector)[1] - count * 8, objects.data(), count * 8)) return false;
  return std::any_of(objects.rbegin(), objects.rend(), visit);
}

// The first map that there is: an empty one has no root and its header for both ends.
std::uint32_t WasmMap::find_ranges(std::uint64_t state) const {
  for (std::uint32_t at = 8; at < kFarthest; at += 8) {
    const std::uint64_t header = state + at;
    const auto words = read_value<std::array<std::uint64_t, 4>>(memory_, header);
    if (!words) break;
    const std::uint64_t root = (*words)[kRoot / 8];
    if (root == 0 ? (*words)[kLeftmost / 8] == header && (*words)[kRightmost / 8] == header
                  : read_value<std::uint64_t>(memory_, root + kRoot) == header)
      return at;
  }
  return 0;
}

// The map of a module's code, or of that which is no module's.
std::uint32_t WasmMap::find_codes(std::uint64_t object, std::uint64_t module) const {
  for (std::uint32_t at = 8; at < kFarthest; at += 8) {
    const std::uint64_t header = object + at;
    const auto root = read_value<std::uint64_t>(memory_, header + kRoot);
    if (!root) break;
    const auto node = *root != 0 ? read_value<Node>(memory_, *root) : std::nullopt;
    if (node && node->parent == header) {
      const auto code = code_at(node->value[0], module);
      if (code && code->begin == node->key) return at;
    }
    // Nothing is sorted yet.
    if (module != 0 && *root == 0 && read_value<std::uint64_t>(memory_, header + kLeftmost) == header &&
        any_new(header, [&](std::uint64_t code) { return code_at(code, module).has_value(); }))
      return at;
  }
  return 0;
}

std::optional<WasmMap::Range> WasmMap::range_of(std::uint64_t pc) {
  if (index_at_ == 0 || state_ == 0) return std::nullopt;
  const std::uint64_t state = read_value<std::uint64_t>(memory_, state_).value_or(0);
  if (state == 0) return std::nullopt;
  if (ranges_ == 0) ranges_ = find_ranges(state);
  if (ranges_ == 0 || read_value<std::uint64_t>(memory_, state + ranges_ + kRoot).value_or(0) == 0)
    return std::nullopt;  // there is no module
  if (const auto node = floor(state + ranges_, pc); node && pc < node->value[0]) {
    const std::uint64_t module = node->value[1];
    if (codes_ == 0) codes_ = find_codes(module, module);
    return Range{node->key, node->value[0], module, codes_ != 0 ? module + codes_ : 0};
  }
  if (shared_ == 0) shared_ = find_codes(state, 0);
  const auto node = shared_ != 0 ? floor(state + shared_, pc) : std::nullopt;
  const auto code = node ? code_at(node->value[0], 0) : std::nullopt;
  if (!code || pc < code->begin || pc >= code->end) return std::nullopt;
  return Range{code->begin, code->end, 0, state + shared_};
}

Expected<WasmObject> WasmMap::find(const Range& range, std::uint64_t pc) const {
  std::optional<WasmObject> found;
  const auto has = [&](std::uint64_t object) {
    found = code_at(object, range.module);
    return found && pc >= found->begin && pc < found->end && found->begin >= range.begin && found->end <= range.end;
  };
  const auto node = range.codes != 0 ? floor(range.codes, pc) : std::nullopt;
  if ((node && has(node->value[0])) || (range.module != 0 && range.codes != 0 && any_new(range.codes, has)))
    return *found;
  return fail(ErrorCode::kNotFound, "no code of WebAssembly is there", pc);
}

bool WasmMap::is_still(const WasmObject& object) const {
  const auto now = code_at(object.object, object.module);
  return now && *now == object;
}

}  // namespace windlass::runtimes::v8
