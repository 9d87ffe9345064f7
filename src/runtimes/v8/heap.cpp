#include "runtimes/v8/heap.h"

#include <algorithm>

#include "runtimes/memory_reader.h"
#include "runtimes/needed.h"

namespace windlass::runtimes::v8 {
namespace {

class Finder : public Needed {
 public:
  explicit Finder(const ImageFacts& facts) : facts_(facts) {}

  std::uint32_t field(const char* type, const char* name) { return need(facts_.field(type, name), kUnknownVersion); }
  // Of which versions have one or another.
  std::uint32_t field(const char* type, const char* name, const char* other) {
    const auto found = facts_.field(type, name);
    return found ? *found : field(type, other);
  }
  std::int32_t value(const char* name) { return need(facts_.value(name), kUnknownVersion); }
  // Those of types and indices.
  std::uint16_t number(const char* name) {
    const std::int32_t found = value(name);
    if (found < 0 || found > 0xffff) note({ErrorCode::kMalformed, "a number of a V8's type is none"});
    return static_cast<std::uint16_t>(found);
  }
  // Of which versions have one or another.
  std::uint16_t number(const char* name, const char* other) { return number(facts_.value(name) ? name : other); }
  [[nodiscard]] bool in_one_piece() const { return facts_.is_before(kStreamsSince); }
  // `of_v8_10`: V8 up to 10 does not tell of it.
  std::uint16_t number(const char* name, std::uint16_t of_v8_10) { return in_one_piece() ? of_v8_10 : number(name); }
  std::uint16_t type(const char* name, std::uint16_t otherwise) {
    const auto found = facts_.instance_type(name);
    return found ? static_cast<std::uint16_t>(*found) : otherwise;
  }

 private:
  const ImageFacts& facts_;
};

void find_strings(Finder& find, Layout& to) {
  to.string_length = find.field("String", "length");
  to.one_byte_chars = find.field("SeqOneByteString", "chars");
  to.two_byte_chars = find.field("SeqTwoByteString", "chars");
  to.cons_first = find.field("ConsString", "first");
  to.cons_second = find.field("ConsString", "second");
  to.sliced_parent = find.field("SlicedString", "parent");
  to.sliced_offset = find.field("SlicedString", "offset");
  to.thin_actual = find.field("ThinString", "actual");
  to.external_resource = find.field("ExternalString", "resource");
  to.representation_mask = static_cast<std::uint8_t>(find.value("StringRepresentationMask"));
  to.encoding_mask = static_cast<std::uint8_t>(find.value("StringEncodingMask"));
  to.one_byte = static_cast<std::uint8_t>(find.value("OneByteStringTag"));
  to.cons = static_cast<std::uint8_t>(find.value("ConsStringTag"));
  to.external = static_cast<std::uint8_t>(find.value("ExternalStringTag"));
  to.sliced = static_cast<std::uint8_t>(find.value("SlicedStringTag"));
  to.thin = static_cast<std::uint8_t>(find.value("ThinStringTag"));
}

void find_types(Finder& find, Layout& to) {
  to.first_nonstring = find.number("FirstNonstringType");
  to.map = find.number("MAP_TYPE");
  to.shared_type = find.number("SHARED_FUNCTION_INFO_TYPE");
  to.script_type = find.number("SCRIPT_TYPE");
  to.scope_type = find.number("SCOPE_INFO_TYPE");
  to.bytecode_type = find.number("BYTECODE_ARRAY_TYPE");
  const std::uint16_t code = find.number("CODE_TYPE");
  to.stream_type = find.number("INSTRUCTION_STREAM_TYPE", code);
  to.code_type = find.in_one_piece() ? find.number("CODE_DATA_CONTAINER_TYPE") : code;
  to.interpreter_data = find.number("INTERPRETER_DATA_TYPE");
  to.weak_array = find.number("WEAK_FIXED_ARRAY_TYPE");
  to.baseline_data = find.type("BASELINE_DATA_TYPE", 0);
  const std::uint16_t bytes = find.number("BYTE_ARRAY_TYPE"), array = find.number("FIXED_ARRAY_TYPE");
  // Since V8 12.4 what code trusts is in arrays of other types.
  to.byte_arrays = {bytes, find.type("TRUSTED_BYTE_ARRAY_TYPE", bytes)};
  to.fixed_arrays = {array, find.type("TRUSTED_FIXED_ARRAY_TYPE", array),
                     find.type("PROTECTED_FIXED_ARRAY_TYPE", array)};
  to.shared_wrapper = find.type("SHARED_FUNCTION_INFO_WRAPPER_TYPE", 0);
}

}  // namespace

Expected<Layout> Layout::make(const ImageFacts& facts) {
  Finder find(facts);
  Layout to;
  to.map_type = find.field("Map", "instance_type");
  to.function_shared = find.field("JSFunction", "shared");
  to.shared_name = find.field("SharedFunctionInfo", "name_or_scope_info");
  to.shared_script = find.field("SharedFunctionInfo", "script", "script_or_debug_info");
  to.script_name = find.field("Script", "name");
  to.script_source = find.field("Script", "source");
  to.array_length = find.field("FixedArrayBase", "length");
  to.array_data = find.field("FixedArray", "data");
  to.bytecode_data = find.field("BytecodeArray", "data");
  to.has_plain_lengths = facts.is_since(14, 9);
  to.scope_first = find.number("scopeinfo_idx_first_vars");
  to.scope_locals = find.number("scopeinfo_idx_ncontextlocals");
  if (facts.is_before(9)) to.scope_data = to.array_data;  // ScopeInfo is a FixedArray
  if (facts.is_before(10)) to.scope_most_names = ~std::uint32_t{0};
  to.frame_context = find.value("off_fp_context_or_frame_type");
  to.frame_function = find.value("off_fp_function");
  to.frame_bytecodes = find.value("off_fp_bytecode_array");
  to.frame_bytecode_offset = find.value("off_fp_bytecode_offset");
  to.kind_mask = find.number("CodeKindFieldMask");
  to.kind_baseline = find.number("CodeKindBaseline");
  // V8 does not tell of these (code-kind.h): 10.2 to 14.1 have one kind less in front of them than 14.5.
  to.kind_regexp = facts.is_since(14, 2) ? 4 : 3;
  to.kind_wasm_entry = to.kind_regexp + 4;
  to.has_old_kinds = facts.is_before(9);
  to.deopt_inlined_count = find.number("DeoptimizationDataInlinedFunctionCountIndex", 1);
  to.deopt_literals = find.number("DeoptimizationDataLiteralArrayIndex", 2);
  to.deopt_positions = find.number("DeoptimizationDataInliningPositionsIndex", 7);
  find_strings(find, to);
  find_types(find, to);
  if (to.shared_wrapper != 0) {
    to.wrapper_shared = find.field("SharedFunctionInfoWrapper", "shared_info");
    to.deopt_shared = find.number("DeoptimizationDataWrappedSharedFunctionInfoIndex",
                                  "DeoptimizationDataSharedFunctionInfoWrapperIndex");
  } else {
    to.deopt_shared = find.number("DeoptimizationDataSharedFunctionInfoIndex", 6);
  }
  const bool plain = find.value("TaggedSize") == 8 && find.value("SmiShiftSize") == 31 &&
                     find.value("SmiValueShift") == 1 && find.value("SmiTagMask") == 1;
  if (find.error()) return fail(find.error()->code, find.error()->what, static_cast<std::uint64_t>(facts.version()));
  if (!plain) return fail(ErrorCode::kUnsupported, "a V8 with compressed pointers", 0);
  return to;
}

std::uint32_t Layout::kind_of(std::uint32_t flags) const {
  const std::uint32_t kind = flags & kind_mask;
  if (!has_old_kinds) return kind;
  enum Old : std::uint32_t { kFunction = 0, kBuiltin = 3, kRegexp = 4, kWasmEntry = 8 };
  constexpr std::uint32_t kHandler = 0, kOfBuiltin = 2;  // of V8 10
  switch (kind >> 1) {
    case kFunction: return kind_baseline + 1;
    case kBuiltin: return kOfBuiltin;
    case kRegexp: return kind_regexp;
    case kWasmEntry: return kind_wasm_entry;
    default: return kHandler;
  }
}

std::optional<Tagged> Heap::field(Tagged object, std::uint32_t offset) const {
  Tagged value = 0;
  return read(object, offset, &value, sizeof value) ? std::optional(value) : std::nullopt;
}

std::uint16_t Heap::type_of(Tagged object) const {
  const auto map = field(object, 0);
  std::uint16_t type = 0;
  return map && read(*map, layout_.map_type, &type, sizeof type) ? type : 0;
}

std::optional<std::uint32_t> Heap::length_of(Tagged array) const {
  if (!layout_.has_plain_lengths) return length_of_bytecodes(array);
  const auto length = field(array, layout_.array_length);
  const std::uint32_t number = length ? static_cast<std::uint32_t>(*length) : ~std::uint32_t{0};
  return number <= 0x7fff'ffff ? std::optional(number) : std::nullopt;
}

std::optional<std::uint32_t> Heap::length_of_bytecodes(Tagged bytecodes) const {
  const auto length = field(bytecodes, layout_.array_length);
  const auto number = length ? small_integer(*length) : std::nullopt;
  return number && *number >= 0 ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

std::optional<std::vector<std::byte>> Heap::bytes_of(Tagged array, std::size_t longest) const {
  const auto length = length_of(array);
  if (!length || *length > longest || !layout_.is_byte_array(type_of(array))) return std::nullopt;
  std::vector<std::byte> bytes(*length);
  if (!read(array, layout_.array_data, bytes.data(), bytes.size())) return std::nullopt;
  return bytes;
}

std::optional<Tagged> Heap::element(Tagged array, std::uint32_t index) const {
  const auto length = length_of(array);
  if (!length || index >= *length || index > 0xffffff) return std::nullopt;
  return field(array, layout_.array_data + index * 8);
}

std::optional<Heap::Head> Heap::string_head(Tagged string) const {
  const auto map = field(string, 0);
  std::uint16_t type = 0;
  std::uint32_t length = 0;
  if (!map || !is(*map, layout_.map) || !read(*map, layout_.map_type, &type, sizeof type) ||
      type >= layout_.first_nonstring || !read(string, layout_.string_length, &length, sizeof length) ||
      length > 0x7fff'ffff)
    return std::nullopt;
  constexpr std::uint16_t kUncachedExternal = 0x10;  // instance-type.h: kUncachedExternalStringMask
  return Head{static_cast<std::uint8_t>(type & layout_.representation_mask),
              (type & layout_.encoding_mask) == layout_.one_byte, (type & kUncachedExternal) == 0, length};
}

std::optional<Heap::Characters> Heap::whole(Tagged string) const {
  const auto head = string_head(string);
  if (!head) return std::nullopt;
  Characters found{0, head->length, head->one_byte};
  if (head->representation == 0) {
    found.address = string - 1 + (head->one_byte ? layout_.one_byte_chars : layout_.two_byte_chars);
    return found;
  }
  if (head->representation != layout_.external || !head->has_address) return std::nullopt;
  // Behind the resource, which is the embedder's, where its characters are (string.h: kResourceDataOffset).
  const auto address = field(string, layout_.external_resource + 8);
  if (!address) return std::nullopt;
  found.address = *address;
  return found;
}

std::optional<Heap::Characters> Heap::characters(Tagged string) const {
  for (unsigned depth = 0; depth < 8; ++depth) {
    const auto head = string_head(string);
    if (!head) return std::nullopt;
    if (head->representation == layout_.thin || head->representation == layout_.cons) {
      // One that has been flattened is put together of all of it and of nothing.
      const bool thin = head->representation == layout_.thin;
      const auto first = field(string, thin ? layout_.thin_actual : layout_.cons_first);
      const auto inner = first ? string_head(*first) : std::nullopt;
      if (!inner || inner->length != head->length) return std::nullopt;
      string = *first;
      continue;
    }
    if (head->representation != layout_.sliced) return whole(string);
    const auto parent = field(string, layout_.sliced_parent);
    const auto offset = field(string, layout_.sliced_offset);
    const auto from = offset ? small_integer(*offset) : std::nullopt;
    auto found = parent && from ? whole(*parent) : std::nullopt;
    if (!found || *from < 0 || static_cast<std::uint32_t>(*from) > found->length ||
        head->length > found->length - static_cast<std::uint32_t>(*from))
      return std::nullopt;
    found->address += static_cast<std::uint64_t>(*from) * (found->one_byte ? 1 : 2);
    found->length = head->length;
    return found;
  }
  return std::nullopt;
}

namespace {

void add_utf8(std::uint32_t c, std::string& to) {
  const auto put = [&](std::uint32_t byte) { to += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6), put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  } else {
    put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  }
}

void add_utf16(const std::vector<std::byte>& units, std::string& to) {
  const auto unit = [&](std::size_t i) {
    return static_cast<std::uint32_t>(units[2 * i]) | static_cast<std::uint32_t>(units[2 * i + 1]) << 8;
  };
  for (std::size_t i = 0; i < units.size() / 2; ++i) {
    const std::uint32_t first = unit(i);
    const bool pair = (first & 0xfc00) == 0xd800 && i + 1 < units.size() / 2 && (unit(i + 1) & 0xfc00) == 0xdc00;
    if (pair)
      add_utf8(0x10000 + ((first & 0x3ff) << 10 | (unit(++i) & 0x3ff)), to);
    else
      add_utf8((first & 0xf800) == 0xd800 ? 0xfffd : first, to);
  }
}

}  // namespace

bool Heap::add_text(Tagged string, unsigned depth, Left& left, std::string& to) const {
  if (left.characters == 0) return true;
  if (depth == 0 || left.strings-- == 0) return false;
  if (const auto found = characters(string)) {
    const std::uint32_t length = std::min(found->length, left.characters);
    left.characters -= length;
    std::vector<std::byte> bytes(std::size_t{length} * (found->one_byte ? 1 : 2));
    if (!memory_.read(found->address, bytes.data(), bytes.size())) return false;
    if (!found->one_byte) {
      add_utf16(bytes, to);
    } else {
      for (const std::byte byte : bytes) add_utf8(static_cast<std::uint8_t>(byte), to);
    }
    return true;
  }
  const auto head = string_head(string);
  if (!head || head->representation != layout_.cons) return false;
  const auto first = field(string, layout_.cons_first), second = field(string, layout_.cons_second);
  return first && second && add_text(*first, depth - 1, left, to) && add_text(*second, depth - 1, left, to);
}

std::optional<std::string> Heap::text(Tagged string, std::uint32_t longest) const {
  std::string text;
  Left left{longest};
  if (!add_text(string, kDeepestString, left, text)) return std::nullopt;
  return text;
}

}  // namespace windlass::runtimes::v8
