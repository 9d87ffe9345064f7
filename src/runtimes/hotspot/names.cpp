#include "runtimes/hotspot/names.h"

#include <algorithm>

#include "base/monotonic.h"
#include "runtimes/hotspot/code_map.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::hotspot {
namespace {

constexpr std::uint32_t kHasLines = 1;  // ConstMethod::_has_linenumber_table
constexpr std::size_t kLongestSymbol = 4096;

}  // namespace

std::optional<std::uint8_t> Compressed::byte() {
  if (at_ >= bytes_.size()) return std::nullopt;
  return bytes_.u8()[at_++];
}

std::optional<std::uint32_t> Compressed::next() {
  constexpr unsigned kHigh = 192, kBits = 6, kMostBytes = 5;
  std::uint32_t sum = 0;
  for (unsigned i = 0; i < kMostBytes; ++i) {
    const auto read = byte();
    if (!read || *read < excluded_) return std::nullopt;
    sum += (*read - excluded_) << (i * kBits);
    if (*read < kHigh) break;
  }
  return sum;
}

std::optional<std::int32_t> Compressed::next_signed() {
  const auto value = next();
  if (!value) return std::nullopt;
  return static_cast<std::int32_t>((*value >> 1) ^ (0U - (*value & 1)));
}

std::uint32_t JavaMethod::line_at(std::int32_t bci) const {
  const Line* best = nullptr;
  for (const Line& line : lines)
    if (line.bci <= bci && (best == nullptr || line.bci >= best->bci)) best = &line;
  return best == nullptr ? 0 : best->line;
}

Expected<Names> Names::make(const VmStructs& structs, bool null_free) {
  Layout layout(structs);
  Names names;
  names.null_free_ = null_free;
  names.method_const_ = layout.field("Method", "_constMethod");
  names.const_pool_ = layout.field("ConstMethod", "_constants");
  names.const_name_ = layout.field("ConstMethod", "_name_index");
  names.const_code_size_ = layout.field("ConstMethod", "_code_size");
  names.const_flags_ = layout.any_field({{"ConstMethod", "_flags"}, {"ConstMethod", "_flags._flags"}});
  names.const_size_ = layout.size("ConstMethod");
  names.pool_holder_ = layout.field("ConstantPool", "_pool_holder");
  names.file_is_of_class_ = structs.offset("InstanceKlass", "_source_file_name_index").has_value();
  names.file_ =
      layout.any_field({{"InstanceKlass", "_source_file_name_index"}, {"ConstantPool", "_source_file_name_index"}});
  names.pool_size_ = layout.size("ConstantPool");
  names.klass_name_ = layout.field("Klass", "_name");
  names.symbol_length_ = layout.field("Symbol", "_length");
  names.symbol_body_ = layout.any_field({{"Symbol", "_body"}, {"Symbol", "_body[0]"}});
  if (layout.error()) return Failure(*layout.error());
  return names;
}

std::string Names::symbol(const Memory& memory, std::uint64_t address) const {
  const auto length = read_value<std::uint16_t>(memory, address + symbol_length_);
  if (!length || *length > kLongestSymbol) return {};
  std::string text(*length, '\0');
  if (!memory.read(address + symbol_body_, text.data(), text.size())) return {};
  return text;
}

std::string Names::text_of_pool(const Memory& memory, std::uint64_t pool, std::uint16_t index) const {
  if (index == 0) return {};
  const auto at = read_value<std::uint64_t>(memory, pool + pool_size_ + std::uint64_t{index} * kWord);
  return at ? symbol(memory, *at) : std::string();
}

std::uint64_t Names::const_method(const Memory& memory, std::uint64_t method) {
  if (method == 0) return 0;
  if (known_.size() >= kMaxMethods) known_.clear();
  const std::uint64_t now = monotonic_ns();
  Known& known = known_[method];
  if (known.const_method != 0 && now - known.looked < kStaleAfter) return known.const_method;
  known.looked = now;
  if (const auto read = read_value<std::uint64_t>(memory, method + method_const_)) known.const_method = *read;
  return known.const_method;
}

const JavaMethod& Names::method(const Memory& memory, std::uint64_t const_method) {
  if (methods_.size() >= kMaxMethods) methods_.clear();
  const auto [at, is_new] = methods_.try_emplace(const_method);
  if (is_new) {
    at->second = read(memory, const_method);
    if (at->second.name.empty()) {
      static const JavaMethod kNone;
      methods_.erase(at);
      return kNone;
    }
  }
  return at->second;
}

JavaMethod Names::read(const Memory& memory, std::uint64_t const_method) const {
  JavaMethod found;
  const auto pool = read_value<std::uint64_t>(memory, const_method + const_pool_);
  const auto index = read_value<std::uint16_t>(memory, const_method + const_name_);
  if (!pool || !index) return found;
  const auto holder = read_value<std::uint64_t>(memory, *pool + pool_holder_);
  const auto class_name = holder ? read_value<std::uint64_t>(memory, *holder + klass_name_) : std::nullopt;
  const std::string name = text_of_pool(memory, *pool, *index);
  std::string of = class_name ? symbol(memory, *class_name) : std::string();
  if (name.empty() || of.empty()) return found;
  std::ranges::replace(of, '/', '.');
  found.name = of + "." + name;
  found.code_size = read_value<std::uint16_t>(memory, const_method + const_code_size_).value_or(0);
  found.file = text_of_pool(
      memory, *pool, read_value<std::uint16_t>(memory, (file_is_of_class_ ? *holder : *pool) + file_).value_or(0));
  read_lines(memory, const_method, found);
  return found;
}

// Behind the bytecodes: pairs of differences, one byte where they are small; 0 ends it, 0xff: numbers follow.
void Names::read_lines(const Memory& memory, std::uint64_t const_method, JavaMethod& to) const {
  constexpr std::uint8_t kEnd = 0, kNumbers = 0xff, kLineBits = 3, kLineMask = 7;
  constexpr std::size_t kPiece = 4096;
  const auto flags = read_value<std::uint16_t>(memory, const_method + const_flags_);
  const auto code_size = read_value<std::uint16_t>(memory, const_method + const_code_size_);
  if (!flags || !code_size || (*flags & kHasLines) == 0) return;
  const std::uint64_t begin = const_method + const_size_ + *code_size;
  std::vector<std::byte> bytes;
  for (bool is_whole = false; !is_whole && bytes.size() < kMaxLineBytes;) {
    // By pieces that are aligned, so that none reaches into a page that is not there.
    const std::uint64_t at = begin + bytes.size();
    const std::size_t size = kPiece - at % kPiece, had = bytes.size();
    bytes.resize(had + size);
    if (!memory.read(at, &bytes[had], size)) return;
    to.lines.clear();
    Compressed stream{ByteView(bytes.data(), bytes.size()), null_free_};
    std::int64_t bci = 0, line = 0;
    for (;;) {
      const auto next = stream.byte();
      if (!next) break;
      if (*next == kEnd) {
        is_whole = true;
        break;
      }
      if (*next == kNumbers) {
        const auto more = stream.next_signed(), lines = stream.next_signed();
        if (!more || !lines) break;
        bci += *more;
        line += *lines;
      } else {
        bci += *next >> kLineBits;
        line += *next & kLineMask;
      }
      if (bci < 0 || bci >= *code_size || line < 0 || line > 0xffff) return;
      to.lines.push_back({static_cast<std::uint16_t>(bci), static_cast<std::uint16_t>(line)});
    }
  }
}

std::optional<std::int32_t> Names::bci_of(const Memory& memory, std::uint64_t const_method, std::uint64_t pointer) {
  const std::uint64_t bci = pointer - (const_method + const_size_);
  if (bci >= method(memory, const_method).code_size) return std::nullopt;
  return static_cast<std::int32_t>(bci);
}

}  // namespace windlass::runtimes::hotspot
