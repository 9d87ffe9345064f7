#include "runtimes/hotspot/vm_structs.h"

#include <algorithm>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/find.h"
#include "runtimes/memory_reader.h"
#include "runtimes/needed.h"
#include "runtimes/paged_memory.h"
#include "windlass/function_ref.h"

namespace windlass::runtimes::hotspot {
namespace {

class Reader : public Needed {
 public:
  Reader(const Memory& memory, std::uint64_t image) : memory_(memory), image_(image) {}

  // The value of the variable with that name; the first fault is kept.
  std::uint64_t variable(const std::string& name) {
    const auto at = find_dynamic_symbol(memory_, image_, name);
    if (!at) {
      note(at.error());
      return 0;
    }
    return word(*at);
  }
  std::uint64_t word(std::uint64_t address) {
    const auto value = read_value<std::uint64_t>(memory_, address);
    if (!value) note({ErrorCode::kUnreadable, "the runtime's tables cannot be read", address});
    return value.value_or(0);
  }

  // Calls entry(address) for each of a table until one has no name where `name_offset` says.
  void each(const std::string& table, const std::string& prefix, const std::string& name_offset,
            FunctionRef<void(std::uint64_t entry, const std::string& name)> entry) {
    const std::uint64_t stride = variable(prefix + "ArrayStride"), name_at = variable(prefix + name_offset);
    std::uint64_t at = variable(table);
    for (std::size_t i = 0; !error(); ++i, at += stride) {
      const std::uint64_t name = word(at + name_at);
      if (name == 0 || error()) return;
      if (i == VmStructs::kMaxEntries || stride == 0) {
        note({ErrorCode::kLimit, "a table of the runtime's that does not end", at, i});
        return;
      }
      entry(at, read_text(memory_, name, VmStructs::kLongestName));
    }
  }

 private:
  const Memory& memory_;
  std::uint64_t image_;
};

}  // namespace

Expected<VmStructs> VmStructs::read(const Memory& memory, std::uint64_t image) {
  const PagedMemory paged(unowned(memory));  // names lie close together
  Reader reader(paged, image);
  VmStructs structs;
  const std::string field_prefix = "gHotSpotVMStructEntry", type_prefix = "gHotSpotVMTypeEntry";
  const std::uint64_t field_name = reader.variable(field_prefix + "FieldNameOffset"),
                      is_static = reader.variable(field_prefix + "IsStaticOffset"),
                      offset = reader.variable(field_prefix + "OffsetOffset"),
                      address = reader.variable(field_prefix + "AddressOffset");
  reader.each("gHotSpotVMStructs", field_prefix, "TypeNameOffset", [&](std::uint64_t entry, const std::string& type) {
    Field field;
    field.is_static = static_cast<std::uint32_t>(reader.word(entry + is_static)) != 0;
    field.value = reader.word(entry + (field.is_static ? address : offset));
    const std::uint64_t name = reader.word(entry + field_name);
    structs.fields_.insert_or_assign(type + "::" + read_text(paged, name, kLongestName), field);
  });
  const std::uint64_t size = reader.variable(type_prefix + "SizeOffset");
  reader.each("gHotSpotVMTypes", type_prefix, "TypeNameOffset", [&](std::uint64_t entry, const std::string& type) {
    structs.sizes_.insert_or_assign(type, static_cast<std::uint32_t>(reader.word(entry + size)));
  });
  if (reader.error()) return Failure(*reader.error());
  return structs;
}

const VmStructs::Field* VmStructs::find(std::string_view type, std::string_view field, bool is_static) const {
  const auto found = fields_.find(std::string(type) + "::" + std::string(field));
  return found != fields_.end() && found->second.is_static == is_static ? &found->second : nullptr;
}

std::optional<std::uint32_t> VmStructs::offset(std::string_view type, std::string_view field) const {
  const Field* found = find(type, field, false);
  constexpr std::uint64_t kLargest = 1U << 16;  // JavaThread, the largest that is read, has 2 KiB
  if (found == nullptr || found->value > kLargest) return std::nullopt;
  return static_cast<std::uint32_t>(found->value);
}

std::optional<std::uint64_t> VmStructs::address(std::string_view type, std::string_view field) const {
  const Field* found = find(type, field, true);
  if (found == nullptr) return std::nullopt;
  return found->value;
}

std::uint32_t VmStructs::jdk_version(const Memory& memory) const {
  if (is_jdk_8()) return 8;  // whose HotSpot has the number 25
  const auto version = address("Abstract_VM_Version", "_vm_major_version");
  return version ? read_value<std::uint32_t>(memory, *version).value_or(0) : 0;
}

std::optional<std::uint32_t> VmStructs::size(std::string_view type) const {
  const auto found = sizes_.find(type);
  if (found == sizes_.end()) return std::nullopt;
  return found->second;
}

}  // namespace windlass::runtimes::hotspot
