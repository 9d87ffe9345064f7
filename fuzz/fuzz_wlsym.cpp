// Input: a first byte, then a symbol file (0), whose checksum of the lists is made right; or the contents of three
// blocks (1), which are compressed and put into a file: two sizes of 16 bits, then ranges, functions and paths.
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/leb128.h"
#include "check.h"
#include "formats/wlsym/wlsym.h"

namespace {

using namespace windlass;

void set_checksum(std::string& bytes) {
  wlsym::Header header{};
  if (bytes.size() < sizeof(header)) return;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::uint64_t lists =
      std::uint64_t{header.segments} * sizeof(wlsym::SegmentEntry) +
      std::uint64_t{header.range_blocks} * sizeof(wlsym::RangeBlockEntry) +
      (std::uint64_t{header.function_blocks} + header.path_blocks) * sizeof(wlsym::TextBlockEntry);
  const std::uint64_t end = std::min<std::uint64_t>(
      bytes.size(), sizeof(header) + lists + std::uint64_t{header.build_id_size} + header.name_size);
  constexpr std::size_t kBehind = offsetof(wlsym::Header, file_size);
  header.checksum = static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()) + kBehind, static_cast<std::size_t>(end) - kBehind));
  std::memcpy(bytes.data(), &header, sizeof(header));
}

std::string packed(std::string_view raw) {
  std::string to(ZSTD_compressBound(raw.size()), '\0');
  to.resize(ZSTD_compress(to.data(), to.size(), raw.data(), raw.size(), 1));
  return to;
}

template <typename T>
void put(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Two numbers, then columns with their sizes: each is compressed by itself.
std::string packed_columns(std::string_view raw) {
  ByteCursor cursor(ByteView(reinterpret_cast<const std::byte*>(raw.data()), raw.size()));
  (void)cursor.uleb();
  (void)cursor.uleb();
  std::string to(raw.substr(0, cursor.position()));
  while (!cursor.at_end()) {
    const auto size = cursor.uleb();
    const auto bytes = size ? cursor.bytes(*size) : Failure(size.error());
    if (!bytes) break;
    const std::string column = packed({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
    put_uleb128(to, *size);
    put_uleb128(to, column.size());
    to += column;
  }
  return to;
}

std::string file_around(std::string_view input) {
  std::uint16_t sizes[2] = {};
  if (input.size() < sizeof(sizes)) return {};
  std::memcpy(sizes, input.data(), sizeof(sizes));
  input.remove_prefix(sizeof(sizes));
  std::string_view parts[3];
  for (int i = 0; i < 3; ++i) {
    parts[i] = input.substr(0, i < 2 ? sizes[i] : input.size());
    input.remove_prefix(parts[i].size());
  }
  wlsym::Header header{};
  std::memcpy(header.magic, wlsym::kMagic, sizeof(header.magic));
  header.version = 1 + sizes[0] % 3;  // all versions
  header.detail = 2;
  header.build_id_size = 4;
  header.segments = 1;
  header.range_blocks = header.function_blocks = header.path_blocks = 1;
  header.functions = header.paths = 4;
  std::string blocks, lists = "abcd";
  put(lists, wlsym::SegmentEntry{0, 0x1000, 0x1000});
  std::uint32_t at = sizeof(header) + 4 + sizeof(wlsym::SegmentEntry) + sizeof(wlsym::RangeBlockEntry) +
                     2 * sizeof(wlsym::TextBlockEntry);
  for (int i = 0; i < 3; ++i) {
    const std::string block = i == 0 && header.version == 3 ? packed_columns(parts[i]) : packed(parts[i]);
    const auto size = static_cast<std::uint32_t>(block.size()), raw = static_cast<std::uint32_t>(parts[i].size());
    if (i == 0)
      put(lists, wlsym::RangeBlockEntry{0x1000, 0, at, size, raw});
    else
      put(lists, wlsym::TextBlockEntry{0, at, size, raw});
    at += size;
    blocks += block;
  }
  header.file_size = at;
  std::string file;
  put(file, header);
  return file + lists + blocks;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string bytes = (data[0] & 1) != 0 ? file_around(input) : std::string(input);
  set_checksum(bytes);
  const ByteView view(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  auto file = wlsym::SymbolFile::parse(view);
  if (!file) return 0;
  FUZZ_CHECK(!file->build_id().empty());
  const bool whole = file->check().has_value();
  for (std::uint32_t i = 0; i < 96; ++i) {
    const std::uint64_t address = i < 64 ? 0x1000 + 3 * i : std::uint64_t{1} << (i - 32);
    const auto place = file->at(address);
    FUZZ_CHECK(place || !whole);
    if (!place) continue;
    FUZZ_CHECK(place->frames.size() <= wlsym::kMostFrames);
    for (const wlsym::Frame& frame : place->frames) {
      FUZZ_CHECK(frame.function < file->functions());
      const auto function = file->function(frame.function);
      FUZZ_CHECK(function || !whole);
      if (function) FUZZ_CHECK(function->name.size() <= wlsym::kLongestText);
    }
    const auto again = file->at(address);
    FUZZ_CHECK(again && again->begin == place->begin && again->frames.size() == place->frames.size());
  }
  (void)file->address_of(0x10);
  return 0;
}
