#include "formats/pdb/types.h"

namespace windlass::pdb {
namespace {

// The size of a number in a record that says itself how it is stored (LF_NUMERIC); 0: an unknown way.
std::size_t numeric_size(ByteView bytes, std::uint64_t at) {
  const auto leaf = bytes.at<std::uint16_t>(at);
  if (!leaf) return 0;
  if (*leaf < 0x8000) return 2;
  switch (*leaf) {
    case 0x8000: return 3;  // LF_CHAR
    case 0x8001:
    case 0x8002: return 4;  // LF_SHORT, LF_USHORT
    case 0x8003:
    case 0x8004: return 6;  // LF_LONG, LF_ULONG
    case 0x8009:
    case 0x800a: return 10;  // LF_QUADWORD, LF_UQUADWORD
    default: return 0;
  }
}

std::string text_at(ByteView bytes, std::uint64_t at) {
  return std::string(bytes.string_at(at).value_or("").substr(0, kLongestName));
}

// Of a class, structure, union, interface or enumeration.
std::string type_name(const TypeStream& types, std::uint32_t index) {
  std::vector<std::byte> copy;
  const auto type = types.record(index, copy);
  if (!type) return {};
  std::uint64_t size_at = 0;
  switch (type->kind) {
    case TypeKind::kClass:
    case TypeKind::kStructure:
    case TypeKind::kInterface: size_at = 16; break;
    case TypeKind::kUnion: size_at = 8; break;
    case TypeKind::kEnum: return text_at(type->bytes, 12);
    default: return {};
  }
  const std::size_t size = numeric_size(type->bytes, size_at);
  return size != 0 ? text_at(type->bytes, size_at + size) : std::string();
}

// Of a namespace.
std::string scope_name(const TypeStream& ids, std::uint32_t id) {
  std::vector<std::byte> copy;
  const auto scope = ids.record(id, copy);
  return scope && scope->kind == TypeKind::kStringId ? text_at(scope->bytes, 4) : std::string();
}

}  // namespace

TypeStream::TypeStream(const MsfFile& file, std::uint32_t number) : records_(file.stream(number)) {
  const auto header = records_.at<TypeHeader>(0);
  if (!header || header->header_size < sizeof(TypeHeader)) return;
  header_ = *header;
  offsets_ = header_.hash_stream != kNoStream ? file.stream(header_.hash_stream) : Stream();
  const std::uint64_t end = std::uint64_t{header_.index_offsets_offset} + header_.index_offsets_size;
  if (end <= offsets_.size()) known_count_ = header_.index_offsets_size / sizeof(Known);
}

TypeStream::Known TypeStream::nearest(std::uint32_t index) const {
  Known best{header_.first, 0};
  std::uint32_t begin = 0, end = known_count_;
  while (begin < end) {
    const std::uint32_t middle = begin + (end - begin) / 2;
    const auto known = offsets_.at<Known>(header_.index_offsets_offset + std::uint64_t{middle} * sizeof(Known));
    if (!known || known->index > index) {
      end = middle;
    } else {
      best = *known;
      begin = middle + 1;
    }
  }
  return best;
}

std::optional<TypeRecord> TypeStream::record(std::uint32_t index, std::vector<std::byte>& copy) const {
  if (index < header_.first || index >= header_.end) return std::nullopt;
  const Known from = nearest(index);
  if (from.index > index || index - from.index > kMostPassed) return std::nullopt;
  std::uint64_t at = std::uint64_t{header_.header_size} + from.offset;
  for (std::uint32_t i = from.index;; ++i) {
    const auto header = records_.at<RecordHeader>(at);
    if (!header || header->size < 2) return std::nullopt;
    if (i == index) {
      const auto bytes = records_.bytes(at + sizeof(RecordHeader), header->size - 2u, copy);
      return bytes ? std::optional(TypeRecord{static_cast<TypeKind>(header->kind), *bytes}) : std::nullopt;
    }
    at += 2u + header->size;
  }
}

std::string function_name(const TypeStream& ids, const TypeStream& types, std::uint32_t id) {
  std::vector<std::byte> copy;
  const auto function = ids.record(id, copy);
  if (!function) return {};
  if (function->kind != TypeKind::kFunctionId && function->kind != TypeKind::kMemberFunctionId) return {};
  const std::uint32_t within = function->bytes.at<std::uint32_t>(0).value_or(0);
  std::string name = text_at(function->bytes, 8);
  if (within == 0 || name.empty()) return name;
  const std::string scope =
      function->kind == TypeKind::kMemberFunctionId ? type_name(types, within) : scope_name(ids, within);
  return scope.empty() ? name : scope + "::" + name;
}

}  // namespace windlass::pdb
