#include "runtimes/jitdump_lines.h"

#include <algorithm>

namespace windlass::manager {

void JitdumpLineTable::add(std::uint32_t function, std::uint64_t size, const os::JitdumpLines& lines,
                           const os::JitdumpFile& in) {
  if (lines.size == 0) return;
  Function& known = functions_[function];
  known.where = lines;
  known.size = size;
  if (counted_ != Counted::kUnknown) return;
  read(known, in);
  if (known.entries.empty()) return;
  if (known.entries.front().offset < kElfHeader)
    counted_ = Counted::kFromCode;
  else if (known.entries.back().offset >= size)
    counted_ = Counted::kFromElfHeader;
}

std::uint32_t JitdumpLineTable::intern(std::string_view file) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' '; };
  if (file.size() > kMaxText - text_ || std::ranges::any_of(file, is_control)) return kNoFile;
  const auto [known, is_new] = numbers_.try_emplace(std::string(file), static_cast<std::uint32_t>(files_.size()));
  if (is_new) {
    text_ += file.size();
    files_.push_back(&known->first);
  }
  return known->second;
}

std::size_t JitdumpLineTable::name_size(const Function& function, ByteView bytes, std::size_t at, bool last) {
  for (std::size_t size = 0;;) {
    const auto part = bytes.string_at(at + size);
    if (!part) return 0;
    size += part->size() + 1;
    if (last) return size;
    const auto next = bytes.at<std::uint64_t>(at + size);
    if (!next) return 0;
    if (*next - function.where.address <= function.size + kElfHeader) return size;
  }
}

// False where they cannot be told apart.
bool JitdumpLineTable::read_entries(Function& function, ByteView bytes) {
  using Stored = os::JitdumpDebugEntry;
  std::uint32_t file = kNoFile;
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < function.where.count; ++i) {
    const auto entry = bytes.at<Stored>(at);
    const std::uint64_t offset = entry ? entry->address - function.where.address : ~std::uint64_t{0};
    const std::size_t size = entry ? name_size(function, bytes, at + sizeof(Stored), i + 1 == function.where.count) : 0;
    if (size == 0 || offset > function.size + kElfHeader) return false;
    const std::string_view name = *bytes.string_at(at + sizeof(Stored));
    if (name != "\xff" || i == 0) file = name.size() + 1 == size ? intern(name) : kNoFile;
    function.entries.push_back({offset, entry->line, file});
    at += sizeof(Stored) + size;
  }
  return true;
}

void JitdumpLineTable::read(Function& function, const os::JitdumpFile& in) {
  function.is_read = true;
  std::vector<std::byte> bytes(function.where.size);
  if (function.where.count > kMaxLines - lines_ || !in.copy(function.where.offset, bytes)) return;
  std::vector<Entry>& entries = function.entries;
  if (!read_entries(function, ByteView(bytes.data(), bytes.size(), function.where.offset))) entries.clear();
  std::ranges::stable_sort(entries, {}, &Entry::offset);
  const auto own = std::ranges::find_if(entries, [](const Entry& entry) { return entry.file != kNoFile; });
  function.file = own != entries.end() ? own->file : kNoFile;
  std::erase_if(entries, [&](const Entry& it) { return it.file != kNoFile && it.file != function.file; });
  lines_ += entries.size();
}

JitdumpLineTable::Line JitdumpLineTable::find(std::uint32_t function, std::uint64_t offset, const os::JitdumpFile& in) {
  const auto known = functions_.find(function);
  if (known == functions_.end()) return {};
  if (!known->second.is_read) read(known->second, in);
  if (counted_ == Counted::kFromElfHeader) offset += kElfHeader;
  const std::vector<Entry>& entries = known->second.entries;
  const auto after = std::ranges::upper_bound(entries, offset, {}, &Entry::offset);
  if (after == entries.begin()) return {};
  const std::uint32_t file = known->second.file;
  return {file != kNoFile ? std::string_view(*files_[file]) : std::string_view(), std::prev(after)->line};
}

}  // namespace windlass::manager
