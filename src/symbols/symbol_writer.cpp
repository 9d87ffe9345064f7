#include "symbols/symbol_writer.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "base/leb128.h"

namespace windlass::symbols {
namespace {

using wlsym::zigzag;

// Larger blocks are smaller when packed, and take longer to read.
constexpr std::size_t kRangeBytes = 1536u << 10, kTextBytes = 7u << 20;
constexpr int kLevel = 19;

std::string pack(const std::string& raw) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(raw.size()), '\0');
  packed.resize(ZSTD_compress2(context.get(), packed.data(), packed.size(), raw.data(), raw.size()));
  return packed;
}

void put_column(std::string& to, const std::string& column) {
  put_uleb128(to, column.size());
  to += column;
}

template <typename T>
void put_raw(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Text of a file ends at its first NUL.
std::string plain(std::string_view text) {
  return std::string(text.substr(0, std::min<std::size_t>(text.find('\0'), wlsym::kLongestText)));
}

}  // namespace

std::uint32_t SymbolFileWriter::function(std::string_view name, std::string_view file, std::uint32_t line) {
  std::uint32_t path = 0;
  if (!file.empty()) {
    const auto [entry, is_new] =
        paths_by_text_.try_emplace(plain(file), static_cast<std::uint32_t>(paths_by_text_.size()));
    if (is_new) paths_.push_back(entry->first);
    path = entry->second + 1;
  }
  std::string key = plain(name);
  const std::size_t size = key.size();
  put_raw(key, path);
  put_raw(key, line);
  const auto [entry, is_new] =
      functions_by_key_.try_emplace(std::move(key), static_cast<std::uint32_t>(functions_.size()));
  if (is_new) functions_.push_back({.name = entry->first.substr(0, size), .file = path, .line = line});
  return entry->second;
}

// The column of a new function is 0.
std::uint32_t SymbolFileWriter::number_of(std::uint32_t function, wlsym::RangeColumn column) {
  Function& of = functions_[function];
  const auto next = static_cast<std::uint32_t>(order_.size());
  put_uleb128(columns_[column], of.number == ~0u ? 0 : std::uint64_t{of.number} + 1);
  if (of.number == ~0u) {
    of.number = next;
    order_.push_back(function);
  }
  return of.number;
}

std::uint32_t SymbolFileWriter::scope_of(std::uint64_t begin, std::span<const wlsym::Frame> frames) {
  std::uint32_t parent = ~0u;
  for (std::size_t i = frames.size(); i-- > 0;) {
    const bool is_root = parent == ~0u;
    auto call = static_cast<std::int64_t>(begin);
    if (!is_root) call = std::int64_t{frames[i + 1].line} - functions_[frames[i + 1].function].line;
    const auto next = static_cast<std::uint32_t>(scopes_.size());
    const auto [entry, is_new] = scopes_.try_emplace({frames[i].function, parent, call}, next);
    if (is_new) {
      (void)number_of(frames[i].function, is_root ? wlsym::kFunctionColumn : wlsym::kInlinedFunctionColumn);
      put_uleb128(columns_[wlsym::kCallerColumn], is_root ? 0 : code_of_caller(parent));
      auto difference = static_cast<std::int64_t>(begin - last_begin_);
      if (!is_root) difference = call - std::exchange(guesses_.call(frames[i + 1].function, frames[i].function), call);
      put_uleb128(columns_[is_root ? wlsym::kBeginColumn : wlsym::kCallLineColumn], zigzag(difference));
      if (is_root) last_begin_ = begin;
      scope_list_.push_back({parent, false, 0});
    }
    parent = entry->second;
  }
  return parent;
}

std::uint64_t SymbolFileWriter::code_of(std::uint32_t scope) const {
  if (scope == next_scope_) return wlsym::kNextScope;
  const std::uint64_t code = wlsym::calls_out(scope_list_, last_scope_, scope, wlsym::kCaller, wlsym::kOther);
  return code < wlsym::kOther ? code : code + zigzag(std::int64_t{scope} - next_scope_);
}

std::uint64_t SymbolFileWriter::code_of_caller(std::uint32_t scope) const {
  const std::size_t next = scope_list_.size();
  const std::uint64_t code = wlsym::calls_out(scope_list_, next - 1, scope, wlsym::kOwnCaller, wlsym::kOtherCaller);
  return code < wlsym::kOtherCaller ? code : code + (next - scope);
}

void SymbolFileWriter::add_line(std::uint32_t scope, std::uint32_t function, std::int64_t line) {
  Scope& of = scope_list_[scope];
  const std::int64_t value = of.has_line ? line - of.last_line : line;
  std::int64_t& guess = of.has_line ? guesses_.step(function, of.last_line) : guesses_.first(function);
  put_uleb128(columns_[of.has_line ? wlsym::kLineColumn : wlsym::kFirstLineColumn],
              zigzag(value - std::exchange(guess, value)));
  of.has_line = true;
  of.last_line = line;
}

void SymbolFileWriter::begin_block(std::uint64_t address) {
  is_open_ = true;
  first_ = last_address_ = last_begin_ = address;
  first_function_ = static_cast<std::uint32_t>(order_.size());
  last_scope_ = next_scope_ = 0;
}

void SymbolFileWriter::end_block() {
  if (!is_open_) return;
  std::string packed;
  std::size_t raw = 0;
  put_uleb128(packed, scopes_.size());
  put_uleb128(packed, ranges_);
  for (std::string& column : columns_) {
    raw += column.size();
    put_uleb128(packed, column.size());
    put_column(packed, column.empty() ? column : pack(column));
    column.clear();
  }
  blocks_.push_back({first_, first_function_, std::move(packed), static_cast<std::uint32_t>(raw)});
  scopes_.clear();
  scope_list_.clear();
  guesses_ = {};
  ranges_ = 0;
  is_open_ = false;
}

void SymbolFileWriter::add(std::uint64_t address, std::uint64_t begin, std::span<const wlsym::Frame> frames) {
  frames = frames.last(std::min<std::size_t>(frames.size(), wlsym::kMostFrames));
  const auto same = [](const wlsym::Frame& a, const wlsym::Frame& b) {
    return a.function == b.function && a.line == b.line;
  };
  if (frames.empty()) begin = 0;
  if (has_last_ ? last_range_begin_ == begin && std::ranges::equal(last_frames_, frames, same) : frames.empty()) return;
  has_last_ = true;
  last_range_begin_ = begin;
  last_frames_.assign(frames.begin(), frames.end());
  if (!is_open_) begin_block(address);
  put_uleb128(columns_[wlsym::kAddressColumn], address - last_address_);
  last_address_ = address;
  ++ranges_;
  if (frames.empty()) {
    put_uleb128(columns_[wlsym::kScopeColumn], 0);
  } else {
    const std::uint32_t scope = scope_of(begin, frames);
    put_uleb128(columns_[wlsym::kScopeColumn], code_of(scope));
    last_scope_ = scope;
    next_scope_ = std::max(next_scope_, scope + 1);
    add_line(scope, frames[0].function, std::int64_t{frames[0].line} - functions_[frames[0].function].line);
  }
  std::size_t bytes = 0;
  for (const std::string& column : columns_) bytes += column.size();
  if (bytes >= kRangeBytes) end_block();
}

std::vector<SymbolFileWriter::Block> SymbolFileWriter::function_blocks() const {
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < order_.size();) {
    const std::size_t first = at;
    std::string texts, files, lines;
    std::int64_t file = 0;
    for (; at < order_.size() && texts.size() + files.size() + lines.size() < kTextBytes; ++at) {
      const Function& function = functions_[order_[at]];
      texts.append(function.name).push_back('\0');
      put_uleb128(files, zigzag(std::int64_t{function.file} - file));
      file = function.file;
      put_uleb128(lines, function.line);
    }
    std::string raw;
    for (const std::string* column : {&texts, &files, &lines}) put_column(raw, *column);
    blocks.push_back({first, 0, pack(raw), static_cast<std::uint32_t>(raw.size())});
  }
  return blocks;
}

std::vector<SymbolFileWriter::Block> SymbolFileWriter::path_blocks() const {
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < paths_.size();) {
    const std::size_t first = at;
    std::string texts, raw;
    for (; at < paths_.size() && texts.size() < kTextBytes; ++at) texts.append(paths_[at]).push_back('\0');
    put_column(raw, texts);
    blocks.push_back({first, 0, pack(raw), static_cast<std::uint32_t>(raw.size())});
  }
  return blocks;
}

Expected<std::string> SymbolFileWriter::finish(const SymbolFileSubject& subject) {
  end_block();
  const auto functions = function_blocks(), paths = path_blocks();
  const auto count = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
  wlsym::Header header{.magic = {},
                       .version = wlsym::kVersion,
                       .detail = static_cast<std::uint16_t>(subject.detail),
                       .checksum = 0,
                       .file_size = 0,
                       .build_id_size = count(subject.build_id),
                       .name_size = count(subject.name),
                       .segments = count(subject.segments),
                       .range_blocks = count(blocks_),
                       .function_blocks = count(functions),
                       .path_blocks = count(paths),
                       .functions = count(order_),
                       .paths = count(paths_)};
  std::memcpy(header.magic, wlsym::kMagic, sizeof(header.magic));
  std::uint64_t at = sizeof(header) + subject.build_id.size() + subject.name.size() +
                     subject.segments.size() * sizeof(wlsym::SegmentEntry) +
                     blocks_.size() * sizeof(wlsym::RangeBlockEntry) +
                     (functions.size() + paths.size()) * sizeof(wlsym::TextBlockEntry);
  std::string lists = subject.build_id + subject.name, contents;
  for (const auto& segment : subject.segments) put_raw(lists, segment);
  const auto place = [&](const Block& block) {
    const auto here = static_cast<std::uint32_t>(at);
    at += block.packed.size();
    contents += block.packed;
    return here;
  };
  for (const Block& block : blocks_)
    put_raw(lists,
            wlsym::RangeBlockEntry{block.first, block.first_function, place(block), count(block.packed), block.raw});
  for (const auto* list : {&functions, &paths})
    for (const Block& block : *list)
      put_raw(lists, wlsym::TextBlockEntry{static_cast<std::uint32_t>(block.first), place(block), count(block.packed),
                                           block.raw});
  if (at > ~0u) return fail(ErrorCode::kLimit, "the symbol file would have more than 4 GiB", at);
  header.file_size = at;
  std::string file;
  put_raw(file, header);
  file += lists;
  constexpr std::size_t kBehind = offsetof(wlsym::Header, file_size);
  header.checksum = static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(file.data()) + kBehind, file.size() - kBehind));
  std::memcpy(file.data(), &header, sizeof(header));
  return file + contents;
}

}  // namespace windlass::symbols
