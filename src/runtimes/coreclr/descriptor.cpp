#include "runtimes/coreclr/descriptor.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::coreclr {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMagic = 0x0043'4144'4343'4e44;  // "DNCCDAC\0"
constexpr std::uint32_t k32Bit = 2;                      // of the flags

// contract-descriptor.md, with the counts as `contract-descriptor.c` in src/coreclr has them.
struct Stored {
  std::uint64_t magic;
  std::uint32_t flags;
  std::uint32_t text_size;
  std::uint64_t text;
  std::uint32_t pointer_count;
  std::uint32_t padding;
  std::uint64_t pointers;
};
static_assert(sizeof(Stored) == 40);

// The structures of .NET 9.0 for x64 Linux, by those of its descriptor and of .NET 10's, which tells of all. Those of
// code are the same in .NET 8.0.
constexpr std::string_view kKnownCode = R"({
  "version": 0,
  "types": {
    "RangeSectionMap": {"TopLevelData": 0},
    "RangeSectionFragment": {"Next": 0, "RangeBegin": 8, "RangeEndOpen": 16, "RangeSection": 24},
    "RangeSection": {"RangeBegin": 0, "Flags": 16, "R2RModule": 32, "HeapList": 40},
    "CodeHeapListNode": {"StartAddress": 16, "EndAddress": 24, "MapBase": 32, "HeaderMap": 40},
    "RealCodeHeader": {"MethodDesc": 24, "NumUnwindInfos": 32, "UnwindInfos": 36},
    "RuntimeFunction": {"!": 12, "BeginAddress": 0, "EndAddress": 4, "UnwindData": 8}
  },
  "globals": {"ExecutionManagerCodeRangeMapAddress": [[0], "pointer"], "StubCodeBlockLast": "0xf"},
  "contracts": {"ExecutionManager": 1}
})";
constexpr std::string_view kNet9Names = R"({
  "version": 0,
  "types": {
    "MethodDesc": {"Flags3AndTokenRemainder": 0, "ChunkIndex": 2, "Flags": 6},
    "DynamicMethodDesc": {"MethodName": 32},
    "MethodDescChunk": {"!": 24, "MethodTable": 0, "FlagsAndTokenRange": 18},
    "MethodTable": {"MTFlags2": 8, "Module": 24},
    "Module": {"Base": 288}
  },
  "globals": {"MethodDescAlignment": "0x8", "MethodDescTokenRemainderBitCount": "0xc"},
  "contracts": {"EcmaMetadata": 1, "Loader": 1, "RuntimeTypeSystem": 1}
})";
// Those of .NET 8.0, as processes of it have them. Its MethodTable has 16 bits of the row of its TypeDef, which are not
// enough for each: that is looked up in the metadata.
constexpr std::string_view kNet8Names = R"({
  "version": 0,
  "types": {
    "MethodDesc": {"Flags3AndTokenRemainder": 0, "ChunkIndex": 2, "Flags": 6},
    "DynamicMethodDesc": {"MethodName": 24},
    "MethodDescChunk": {"!": 24, "MethodTable": 0, "FlagsAndTokenRange": 18},
    "MethodTable": {"Module": 24},
    "Module": {"PEAssembly": 272},
    "PEAssembly": {"PEImage": 8},
    "PEImage": {"LoadedImageLayout": 120},
    "PEImageLayout": {"Base": 8, "Flags": 20}
  },
  "globals": {"MethodDescAlignment": "0x8", "MethodDescTokenRemainderBitCount": "0xc"},
  "contracts": {"EcmaMetadata": 1, "Loader": 1, "RuntimeTypeSystem": 1}
})";

struct KnownNames {
  std::uint32_t version;
  std::string_view names;
};
constexpr KnownNames kKnownNames[] = {{8, kNet8Names}, {9, kNet9Names}};

std::optional<std::uint64_t> number_of(const Json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  const char* begin = text.data() + (hex ? 2 : 0);
  const char* end = text.data() + text.size();
  std::uint64_t number = 0;
  const auto read = std::from_chars(begin, end, number, hex ? 16 : 10);
  return read.ec == std::errc() && read.ptr == end && begin != end ? std::optional(number) : std::nullopt;
}

// VALUE, or [VALUE, "type"].
const Json* without_type(const Json* value) {
  return value->is_array() && value->size() == 2 && (*value)[1].is_string() ? &(*value)[0] : value;
}

std::optional<std::uint32_t> small_number_of(const Json& value) {
  const auto number = number_of(value);
  constexpr std::uint64_t kLargest = 1U << 24;
  return number && *number <= kLargest ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

}  // namespace

// Parts that are not understood are left out. A reader that needs such a part reports that.
Expected<void> Descriptor::parse(std::string_view json, std::span<const std::uint64_t> pointers,
                                 std::uint64_t address) {
  const Json all = Json::parse(json, nullptr, false, true);
  if (!all.is_object()) return fail(ErrorCode::kMalformed, "the runtime's contract descriptor is not JSON", address);
  const auto version = all.find("version");
  if (version == all.end() || number_of(*version) != 0)
    return fail(ErrorCode::kUnsupported, "contract descriptor of a version that is not known", address,
                version != all.end() ? number_of(*version).value_or(0) : 0);
  const auto each = [&](const char* part, auto&& use) {
    const auto found = all.find(part);
    if (found == all.end() || !found->is_object()) return;
    for (const auto& [name, value] : found->items()) use(name, value);
  };
  each("types", [&](const std::string& name, const Json& fields) {
    if (!fields.is_object()) return;
    Type& type = types_[name];
    for (const auto& [field, value] : fields.items()) {
      const auto number = small_number_of(*without_type(&value));
      if (field == "!")
        type.size = number;
      else if (number)
        type.offsets[field] = *number;
    }
  });
  each("globals", [&](const std::string& name, const Json& value) {
    const Json& plain = *without_type(&value);
    const bool indirect = plain.is_array() && plain.size() == 1;
    const auto number = number_of(indirect ? plain[0] : plain);
    if (indirect && number && *number < pointers.size())
      globals_[name] = pointers[*number];
    else if (!indirect && number)
      globals_[name] = *number;
    if (plain.is_string()) texts_[name] = plain.get<std::string>();
  });
  each("contracts", [&](const std::string& name, const Json& value) {
    if (const auto number = number_of(value)) contracts_[name] = *number;
  });
  return {};
}

Expected<Descriptor> Descriptor::read(const Memory& memory, std::uint64_t address) {
  const auto stored = read_value<Stored>(memory, address);
  if (!stored) return fail(ErrorCode::kUnreadable, "the runtime's contract descriptor cannot be read", address);
  if (stored->magic != kMagic)
    return fail(ErrorCode::kMalformed, "the runtime's contract descriptor does not begin with its magic number",
                address, stored->magic);
  if ((stored->flags & k32Bit) != 0)
    return fail(ErrorCode::kUnsupported, "contract descriptor of a 32-bit runtime", address, stored->flags);
  if (stored->text_size > kMaxText || stored->pointer_count > kMaxPointers)
    return fail(ErrorCode::kLimit, "contract descriptor larger than is read", address, stored->text_size);
  std::string json(stored->text_size, '\0');
  std::vector<std::uint64_t> pointers(stored->pointer_count);
  if (!memory.read(stored->text, json.data(), json.size()) ||
      !memory.read(stored->pointers, pointers.data(), pointers.size() * sizeof(std::uint64_t)))
    return fail(ErrorCode::kUnreadable, "the runtime's contract descriptor cannot be read", stored->text);
  Descriptor descriptor;
  if (const auto parsed = descriptor.parse(json, pointers, address); !parsed) return Failure(parsed.error());
  return descriptor;
}

Expected<Descriptor> Descriptor::of_known(Descriptor found, const Memory& memory, std::uint64_t dac_table,
                                          std::uint32_t version) {
  const auto* known = std::ranges::find(kKnownNames, version, &KnownNames::version);
  if (found.is_empty() && known == std::end(kKnownNames))
    return fail(ErrorCode::kUnsupported, "a .NET runtime that says nothing of its methods, and is neither .NET 8 nor 9",
                dac_table, version);
  const std::uint64_t map = read_value<std::uint64_t>(memory, dac_table).value_or(0);
  if (map == 0) return fail(ErrorCode::kUnreadable, "the runtime has not told its debugger of its code yet", dac_table);
  if (found.is_empty())
    if (const auto parsed = found.parse(known->names, {}, dac_table); !parsed) return Failure(parsed.error());
  if (const auto parsed = found.parse(kKnownCode, {&map, 1}, dac_table); !parsed) return Failure(parsed.error());
  return found;
}

std::uint64_t Descriptor::contract(std::string_view name) const {
  const auto found = contracts_.find(name);
  return found != contracts_.end() ? found->second : 0;
}

std::optional<std::uint32_t> Descriptor::offset(std::string_view type, std::string_view field) const {
  const auto found = types_.find(type);
  if (found == types_.end()) return std::nullopt;
  const auto offset = found->second.offsets.find(field);
  return offset != found->second.offsets.end() ? std::optional(offset->second) : std::nullopt;
}

std::optional<std::uint32_t> Descriptor::size(std::string_view type) const {
  const auto found = types_.find(type);
  return found != types_.end() ? found->second.size : std::nullopt;
}

std::optional<std::uint64_t> Descriptor::global(std::string_view name) const {
  const auto found = globals_.find(name);
  return found != globals_.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<std::string> Descriptor::text(std::string_view name) const {
  const auto found = texts_.find(name);
  return found != texts_.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace windlass::runtimes::coreclr
