#include "runtimes/coreclr/metadata.h"

#include <optional>
#include <string_view>

namespace windlass::runtimes::coreclr {
namespace {

// Columns (II.22).
constexpr unsigned kTypeRefName = 1;
constexpr unsigned kTypeDefName = 1, kTypeDefNamespace = 2;
constexpr unsigned kMethodName = 3, kMethodSignature = 4;
constexpr unsigned kNestedType = 0, kEnclosingType = 1;
constexpr unsigned kGenericNumber = 0, kGenericOwner = 2, kGenericName = 3;

// II.23.1.16.
enum ElementType : std::uint8_t {
  kPointer = 0x0f,
  kByReference = 0x10,
  kValueType = 0x11,
  kClass = 0x12,
  kVariable = 0x13,
  kArray = 0x14,
  kGenericInstance = 0x15,
  kFunctionPointer = 0x1b,
  kSimpleArray = 0x1d,
  kMethodVariable = 0x1e,
  kRequiredModifier = 0x1f,
  kOptionalModifier = 0x20,
  kSentinel = 0x41,
  kPinned = 0x45,
};
constexpr std::string_view kPrimitives[] = {"",      "Void",   "Boolean", "Char",   "SByte",
                                            "Byte",  "Int16",  "UInt16",  "Int32",  "UInt32",
                                            "Int64", "UInt64", "Single",  "Double", "String"};

std::string_view primitive(std::uint8_t type) {
  constexpr std::uint8_t kTypedReference = 0x16, kInteger = 0x18, kUnsigned = 0x19, kObject = 0x1c;
  switch (type) {
    case kTypedReference: return "TypedReference";
    case kInteger: return "IntPtr";
    case kUnsigned: return "UIntPtr";
    case kObject: return "Object";
    default: return type < std::size(kPrimitives) ? kPrimitives[type] : std::string_view();
  }
}

// TypeOrMethodDef (II.24.2.6).
std::uint32_t owner_code(TableRow owner) { return owner.row << 1 | (owner.table == Table::kMethodDef ? 1 : 0); }

}  // namespace

// A method's signature (II.23.2), read to what the runtime's stack traces print: Type.Name of each parameter.
class Metadata::Signature {
 public:
  Signature(const Metadata& metadata, const Memory& memory, std::string_view blob, TableRow type, TableRow method)
      : metadata_(metadata), memory_(memory), rest_(blob), type_(type), method_(method) {}

  // "(Int32, String)"; nothing: it is malformed, or nested deeper than is read.
  std::optional<std::string> parameters() {
    std::string text = "(";
    const auto count = begin();
    if (!count) return std::nullopt;
    std::string ignored;
    if (!type(ignored, 0)) return std::nullopt;  // what it returns
    for (std::uint32_t i = 0; i < *count; ++i) {
      if (i != 0) text += ", ";
      if (!type(text, 0) || text.size() > MetadataTables::kMaxName) return std::nullopt;
    }
    return text + ")";
  }

 private:
  std::optional<std::uint8_t> byte() {
    if (rest_.empty()) return std::nullopt;
    const auto value = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }

  // II.23.2, "Blobs and signatures".
  std::optional<std::uint32_t> number() {
    const auto first = byte();
    if (!first) return std::nullopt;
    unsigned more = 0;
    std::uint32_t value = *first;
    if ((*first & 0xc0) == 0x80) more = 1, value = *first & 0x3fU;
    if ((*first & 0xe0) == 0xc0) more = 3, value = *first & 0x1fU;
    for (; more != 0; --more) {
      const auto next = byte();
      if (!next) return std::nullopt;
      value = value << 8 | *next;
    }
    return value;
  }

  // Up to the return type: the number of parameters.
  std::optional<std::uint32_t> begin() {
    constexpr std::uint8_t kGeneric = 0x10;
    const auto convention = byte();
    if (!convention) return std::nullopt;
    if ((*convention & kGeneric) != 0 && !number()) return std::nullopt;
    return number();
  }

  bool type_token(std::string& to) {
    const auto token = number();
    if (!token) return false;
    const Table table = (*token & 3) == 0 ? Table::kTypeDef : (*token & 3) == 1 ? Table::kTypeRef : Table::kTypeSpec;
    to += metadata_.simple_name(memory_, {table, *token >> 2});
    return true;
  }

  // Type.Name: "List`1" of an instance, whatever its arguments.
  bool instance(std::string& to, unsigned depth) {
    if (!byte() || !type_token(to)) return false;  // CLASS or VALUETYPE
    const auto count = number();
    if (!count || *count > kMaxGenerics) return false;
    std::string ignored;
    for (std::uint32_t i = 0; i < *count; ++i)
      if (!type(ignored, depth + 1)) return false;
    return true;
  }

  bool array(std::string& to, unsigned depth) {
    constexpr std::uint32_t kMaxRank = 32;
    if (!type(to, depth + 1)) return false;
    const auto rank = number();
    if (!rank || *rank == 0 || *rank > kMaxRank) return false;
    for (int part = 0; part < 2; ++part) {  // sizes, lower bounds
      const auto count = number();
      if (!count || *count > kMaxRank) return false;
      for (std::uint32_t i = 0; i < *count; ++i)
        if (!number()) return false;
    }
    to += *rank == 1 ? "[*]" : "[" + std::string(*rank - 1, ',') + "]";
    return true;
  }

  bool function_pointer(unsigned depth) {
    const auto count = begin();
    std::string ignored;
    for (std::uint32_t i = 0; count && i <= *count; ++i)
      if (!type(ignored, depth + 1)) return false;
    return count.has_value();
  }

  bool variable(std::string& to, TableRow owner) {
    const auto index = number();
    if (!index) return false;
    to += metadata_.generic_name(memory_, owner, *index);
    return true;
  }

  bool with_suffix(std::string& to, unsigned depth, std::string_view suffix) {
    if (!type(to, depth + 1)) return false;
    to += suffix;
    return true;
  }

  bool type(std::string& to, unsigned depth) {
    if (depth == kMaxNesting) return false;
    const auto kind = byte();
    if (!kind) return false;
    switch (*kind) {
      case kRequiredModifier:
      case kOptionalModifier: return number() && type(to, depth + 1);
      case kPinned:
      case kSentinel: return type(to, depth + 1);
      case kPointer: return with_suffix(to, depth, "*");
      case kByReference: return with_suffix(to, depth, "&");
      case kSimpleArray: return with_suffix(to, depth, "[]");
      case kValueType:
      case kClass: return type_token(to);
      case kVariable: return variable(to, type_);
      case kMethodVariable: return variable(to, method_);
      case kArray: return array(to, depth);
      case kGenericInstance: return instance(to, depth);
      case kFunctionPointer: return function_pointer(depth);  // Type.Name of one is empty
      default: to += primitive(*kind); return !primitive(*kind).empty();
    }
  }

  const Metadata& metadata_;
  const Memory& memory_;
  std::string_view rest_;
  TableRow type_, method_;
};

std::string Metadata::simple_name(const Memory& memory, TableRow type) const {
  if (type.table == Table::kTypeSpec) return {};
  const auto name = tables_.column(memory, type, type.table == Table::kTypeRef ? kTypeRefName : kTypeDefName);
  return name ? tables_.string_at(memory, *name) : std::string();
}

std::string Metadata::type_name(const Memory& memory, std::uint32_t row) const {
  std::string name = simple_name(memory, {Table::kTypeDef, row});
  for (unsigned depth = 0; depth < kMaxNesting; ++depth) {
    const auto nested = tables_.find_sorted(memory, Table::kNestedClass, kNestedType, row);
    if (!nested) break;
    row = tables_.column(memory, {Table::kNestedClass, *nested}, kEnclosingType).value_or(0);
    name.insert(0, simple_name(memory, {Table::kTypeDef, row}).append("."));
  }
  const auto space = tables_.column(memory, {Table::kTypeDef, row}, kTypeDefNamespace);
  const std::string prefix = space ? tables_.string_at(memory, *space) : std::string();
  return prefix.empty() ? name : prefix + "." + name;
}

std::string Metadata::generic_name(const Memory& memory, TableRow owner, std::uint32_t number) const {
  const auto first = tables_.find_sorted(memory, Table::kGenericParam, kGenericOwner, owner_code(owner));
  for (std::uint32_t row = first.value_or(0); row != 0 && row < *first + kMaxGenerics; ++row) {
    const TableRow at{Table::kGenericParam, row};
    if (tables_.column(memory, at, kGenericOwner) != owner_code(owner)) break;
    if (tables_.column(memory, at, kGenericNumber) == number)
      return tables_.string_at(memory, tables_.column(memory, at, kGenericName).value_or(0));
  }
  return "?";
}

// "[T,U]"; empty: it is not generic.
std::string Metadata::generics(const Memory& memory, TableRow owner) const {
  const auto first = tables_.find_sorted(memory, Table::kGenericParam, kGenericOwner, owner_code(owner));
  if (!first) return {};
  std::string text;
  for (std::uint32_t row = *first; row < *first + kMaxGenerics; ++row) {
    const TableRow at{Table::kGenericParam, row};
    if (tables_.column(memory, at, kGenericOwner) != owner_code(owner)) break;
    text +=
        (text.empty() ? "[" : ",") + tables_.string_at(memory, tables_.column(memory, at, kGenericName).value_or(0));
  }
  return text + "]";
}

std::string Metadata::full_name(const Memory& memory, std::uint32_t row, std::uint32_t type) const {
  if (type == 0) type = tables_.owner_of(memory, row);
  std::string name = method_name(memory, row, type);
  if (name.empty()) return name;
  const std::string in = type_name(memory, type);
  return in.empty() ? name : in + "." + name;
}

std::string Metadata::method_name(const Memory& memory, std::uint32_t row, std::uint32_t type) const {
  const TableRow method{Table::kMethodDef, row};
  const auto at = tables_.column(memory, method, kMethodName);
  std::string name = at ? tables_.string_at(memory, *at) : std::string();
  if (name.empty()) return {};
  name += generics(memory, method);
  const std::string blob = tables_.blob_at(memory, tables_.column(memory, method, kMethodSignature).value_or(0));
  const auto parameters = Signature(*this, memory, blob, {Table::kTypeDef, type}, method).parameters();
  return parameters ? name + *parameters : name;
}

}  // namespace windlass::runtimes::coreclr
