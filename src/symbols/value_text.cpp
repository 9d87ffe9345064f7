#include "symbols/value_text.h"

#include <dwarf.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/shown.h"

namespace windlass::symbols {
namespace {

constexpr int kMostAliases = 64;  // typedefs and qualifiers of a type
constexpr int kDeepestType = 12;  // pointers and qualifiers in a type's name
constexpr int kDeepestValue = 6;  // structures in structures
constexpr std::size_t kLargestValue = 4096, kMostText = 1024, kMostNameText = 256;
constexpr std::size_t kMostMembers = 16, kMostElements = 8, kMostCharacters = 200, kMostDimensions = 8;

bool is_alias(int tag) {
  return tag == DW_TAG_typedef || tag == DW_TAG_const_type || tag == DW_TAG_volatile_type ||
         tag == DW_TAG_restrict_type || tag == DW_TAG_atomic_type || tag == DW_TAG_immutable_type ||
         tag == DW_TAG_shared_type || tag == DW_TAG_packed_type;
}

bool is_reference(int tag) { return tag == DW_TAG_reference_type || tag == DW_TAG_rvalue_reference_type; }

// Empty: it has none.
std::string name_of(Dwarf_Die* die) {
  const char* name = dwarf_diename(die);
  return name == nullptr ? std::string() : std::string(name, ::strnlen(name, kMostNameText));
}

std::optional<std::uint64_t> number_of(Dwarf_Die* die, unsigned attribute) {
  Dwarf_Attribute memory;
  Dwarf_Word number = 0;
  if (dwarf_formudata(dwarf_attr(die, attribute, &memory), &number) != 0) return std::nullopt;
  return number;
}

// Of at most 8 bytes.
std::uint64_t word_of(ByteView bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), std::min<std::size_t>(bytes.size(), sizeof value));
  return value;
}

std::int64_t signed_word_of(ByteView bytes) {
  const std::uint64_t value = word_of(bytes);
  const unsigned unused = bytes.size() >= 8 ? 0 : static_cast<unsigned>(64 - 8 * bytes.size());
  return static_cast<std::int64_t>(value << unused) >> unused;
}

std::optional<unsigned> encoding_of(Dwarf_Die& type) {
  if (dwarf_tag(&type) != DW_TAG_base_type) return std::nullopt;
  const auto encoding = number_of(&type, DW_AT_encoding);
  return encoding ? std::optional(static_cast<unsigned>(*encoding)) : std::nullopt;
}

bool is_character(unsigned encoding) { return encoding == DW_ATE_signed_char || encoding == DW_ATE_unsigned_char; }

// Calls callback(child) until it returns false.
template <typename Callback>
void for_each_child(Dwarf_Die& parent, EntryBudget& budget, Callback&& callback) {
  Dwarf_Die child;
  if (dwarf_child(&parent, &child) != 0) return;
  do {
    if (!budget.take() || !callback(child)) return;
  } while (dwarf_siblingof(&child, &child) == 0);
}

// The elements of an array, by dimension. Empty: they are not known.
std::vector<std::uint64_t> dimensions_of(Dwarf_Die& array, EntryBudget& budget) {
  std::vector<std::uint64_t> counts;
  bool is_known = true;
  for_each_child(array, budget, [&](Dwarf_Die& child) {
    if (dwarf_tag(&child) != DW_TAG_subrange_type) return true;
    auto count = number_of(&child, DW_AT_count);
    if (!count)
      if (const auto last = number_of(&child, DW_AT_upper_bound)) count = *last + 1;
    is_known = count && counts.size() < kMostDimensions;
    if (is_known) counts.push_back(*count);
    return is_known;
  });
  return is_known ? counts : std::vector<std::uint64_t>();
}

// Of a base type, or an enumeration's (DWARF 5 section 5.7.1).
bool is_signed(Dwarf_Die type) {
  Dwarf_Die base;
  if (dwarf_tag(&type) == DW_TAG_enumeration_type && type_of(&type, base)) type = base;
  const auto encoding = encoding_of(type);
  return encoding && (*encoding == DW_ATE_signed || *encoding == DW_ATE_signed_char);
}

bool is_empty_structure(Dwarf_Die& type) {
  const int tag = dwarf_tag(&type);
  const bool has_members = tag == DW_TAG_structure_type || tag == DW_TAG_class_type || tag == DW_TAG_union_type;
  return has_members && number_of(&type, DW_AT_byte_size) == 0;
}

}  // namespace

bool type_of(Dwarf_Die* entry, Dwarf_Die& type) {
  Dwarf_Attribute memory;
  return dwarf_formref_die(dwarf_attr_integrate(entry, DW_AT_type, &memory), &type) != nullptr;
}

// To the type behind names and qualifiers. dwarf_peel_type() would follow a cycle for ever.
bool ValueText::peel(Dwarf_Die& type) {
  for (int steps = 0; steps < kMostAliases; ++steps) {
    if (!is_alias(dwarf_tag(&type))) return true;
    Dwarf_Die next;
    if (!budget_.take() || !type_of(&type, next)) return false;
    type = next;
  }
  return false;
}

std::size_t ValueText::size_of(const Dwarf_Die& type, int depth) {
  Dwarf_Die behind = type;
  if (depth > kDeepestValue || !peel(behind)) return 0;
  const int tag = dwarf_tag(&behind);
  auto size = number_of(&behind, DW_AT_byte_size);
  if (!size && (tag == DW_TAG_pointer_type || is_reference(tag))) size = word_size_;
  if (Dwarf_Die element; !size && tag == DW_TAG_array_type && type_of(&behind, element)) {
    std::uint64_t all = size_of(element, depth + 1);
    const std::vector<std::uint64_t> counts = dimensions_of(behind, budget_);
    for (const std::uint64_t count : counts) all = all != 0 && count <= kLargestValue / all ? all * count : 0;
    if (!counts.empty()) size = all;
  }
  return size && *size <= kLargestValue ? static_cast<std::size_t>(*size) : 0;
}

std::string ValueText::named(Dwarf_Die type, int depth) {
  if (depth > kDeepestType || !budget_.take()) return "...";
  const int tag = dwarf_tag(&type);
  if (std::string name = name_of(&type); !name.empty() && tag != DW_TAG_pointer_type) return name;
  Dwarf_Die target;
  const bool has_target = type_of(&type, target);
  const bool is_pointer = tag == DW_TAG_pointer_type || tag == DW_TAG_ptr_to_member_type;
  if (!is_pointer && !is_reference(tag) && !is_alias(tag) && tag != DW_TAG_array_type && tag != DW_TAG_subroutine_type)
    return "{...}";
  std::string inner = has_target ? named(target, depth + 1) : "void";
  const char* space = inner.ends_with('*') || inner.ends_with('&') ? "" : " ";
  switch (tag) {
    case DW_TAG_pointer_type: return inner.ends_with(" (...)") ? inner : inner + space + "*";
    case DW_TAG_ptr_to_member_type: return inner + space + "::*";
    case DW_TAG_reference_type: return inner + space + "&";
    case DW_TAG_rvalue_reference_type: return inner + space + "&&";
    case DW_TAG_array_type: return inner + " []";
    case DW_TAG_subroutine_type: return inner + " (...)";
    case DW_TAG_const_type: return inner.ends_with('*') ? inner + " const" : "const " + inner;
    case DW_TAG_volatile_type: return inner.ends_with('*') ? inner + " volatile" : "volatile " + inner;
    default: return inner;
  }
}

std::string ValueText::value(const Dwarf_Die& type, ByteView bytes) {
  text_.clear();
  write(type, bytes, 0);
  return shown(text_);
}

void ValueText::write_type(const Dwarf_Die& type) { text_ += fmt::format("<{}>", type_name(type)); }

void ValueText::write(Dwarf_Die type, ByteView bytes, int depth) {
  const Dwarf_Die given = type;
  if (text_.size() > kMostText || !budget_.take()) {
    text_ += "...";
    return;
  }
  if (!peel(type)) return write_type(given);
  if (bytes.empty() && is_empty_structure(type)) {
    text_ += "{}";
    return;
  }
  if (bytes.empty()) return write_type(given);
  switch (dwarf_tag(&type)) {
    case DW_TAG_base_type: return write_base(type, bytes);
    case DW_TAG_enumeration_type: return bytes.size() <= 8 ? write_enumerator(type, bytes) : write_type(given);
    case DW_TAG_pointer_type: return bytes.size() == word_size_ ? write_pointer(type, bytes) : write_type(given);
    case DW_TAG_reference_type:
    case DW_TAG_rvalue_reference_type:
      return bytes.size() == word_size_ ? write_reference(type, bytes, depth) : write_type(given);
    case DW_TAG_structure_type:
    case DW_TAG_class_type:
    case DW_TAG_union_type: return depth < kDeepestValue ? write_members(type, bytes, depth) : write_type(given);
    case DW_TAG_array_type: return depth < kDeepestValue ? write_array(type, bytes, depth, 0) : write_type(given);
    default: return write_type(given);
  }
}

void ValueText::write_base(Dwarf_Die& type, ByteView bytes) {
  const auto encoding = encoding_of(type);
  if (!encoding) return write_type(type);
  const std::size_t size = bytes.size();
  if (*encoding == DW_ATE_float && (size == 4 || size == 8 || (size == 16 && word_size_ == 8) || size == 12)) {
    // Of 16 bytes, x86's is one of 10; AArch64's and __float128 are not shown.
    const char* name = dwarf_diename(&type);
    if (size <= 8 || (name != nullptr && std::strcmp(name, "long double") == 0 && sizeof(long double) == size))
      return write_float(bytes);
    return write_type(type);
  }
  const bool is_integer = *encoding == DW_ATE_signed || *encoding == DW_ATE_unsigned;
  if (is_integer && size == 2 * sizeof(std::uint64_t)) return write_wide(is_signed(type), bytes);
  if (size > 8) return write_type(type);
  switch (*encoding) {
    case DW_ATE_boolean:
    case DW_ATE_signed:
    case DW_ATE_unsigned:
    case DW_ATE_signed_char:
    case DW_ATE_unsigned_char:
    case DW_ATE_UTF:
    case DW_ATE_address: return write_integer(*encoding, bytes);
    default: return write_type(type);
  }
}

void ValueText::write_integer(unsigned encoding, ByteView bytes) {
  const std::uint64_t value = word_of(bytes);
  const bool has_sign = encoding == DW_ATE_signed || encoding == DW_ATE_signed_char;
  if (encoding == DW_ATE_boolean && value <= 1)
    text_ += value == 1 ? "true" : "false";
  else if (encoding == DW_ATE_address)
    text_ += fmt::format("{:#x}", value);
  else if (has_sign)
    text_ += fmt::format("{}", signed_word_of(bytes));
  else
    text_ += fmt::format("{}", value);
  const bool is_text = is_character(encoding) || encoding == DW_ATE_UTF;
  if (is_text && value >= ' ' && value < 0x7f) text_ += fmt::format(" '{}'", static_cast<char>(value));
}

void ValueText::write_wide(bool has_sign, ByteView bytes) {
  __extension__ using Wide = unsigned __int128;
  std::uint64_t words[2];
  std::memcpy(words, bytes.data(), sizeof words);
  Wide value = Wide{words[1]} << 64 | words[0];
  if (has_sign && words[1] >> 63 != 0) {
    text_ += '-';
    value = -value;
  }
  char digits[39];
  char* at = std::end(digits);
  do *--at = static_cast<char>('0' + static_cast<int>(value % 10));
  while ((value /= 10) != 0);
  text_.append(at, std::end(digits));
}

void ValueText::write_float(ByteView bytes) {
  if (bytes.size() == sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    text_ += fmt::format("{}", value);
  } else if (bytes.size() == sizeof(double)) {
    double value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    text_ += fmt::format("{}", value);
  } else {
    long double value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    char digits[48];
    std::snprintf(digits, sizeof digits, "%.18Lg", value);
    text_ += digits;
  }
}

void ValueText::write_enumerator(Dwarf_Die& type, ByteView bytes) {
  const std::uint64_t value = word_of(bytes);
  const std::uint64_t mask = bytes.size() >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes.size()) - 1;
  std::string name;
  bool has_sign = false;
  for_each_child(type, budget_, [&](Dwarf_Die& child) {
    if (dwarf_tag(&child) != DW_TAG_enumerator) return true;
    const auto number = number_of(&child, DW_AT_const_value);
    has_sign |= number && static_cast<std::int64_t>(*number) < 0;
    if (number && (*number & mask) == value) name = name_of(&child);
    return name.empty();
  });
  if (!name.empty())
    text_ += name;
  else if (has_sign)
    text_ += fmt::format("{}", signed_word_of(bytes));
  else
    text_ += fmt::format("{}", value);
}

void ValueText::write_pointer(Dwarf_Die& type, ByteView bytes) {
  const std::uint64_t address = word_of(bytes);
  text_ += fmt::format("{:#x}", address);
  Dwarf_Die target;
  if (address == 0 || !type_of(&type, target) || !peel(target)) return;
  const auto encoding = encoding_of(target);
  if (encoding && is_character(*encoding) && size_of(target) == 1) write_string(address);
}

void ValueText::write_reference(Dwarf_Die& type, ByteView bytes, int depth) {
  const std::uint64_t address = word_of(bytes);
  text_ += fmt::format("@{:#x}", address);
  Dwarf_Die target;
  if (depth >= kDeepestValue || !type_of(&type, target)) return;
  std::vector<std::byte> behind(size_of(target));
  if (behind.empty()) return;
  text_ += ": ";
  if (memory_.read(address, behind.data(), behind.size()))
    write(target, ByteView(behind.data(), behind.size()), depth + 1);
  else
    text_ += '?';
}

// Nothing if it cannot be read.
void ValueText::write_string(std::uint64_t address) {
  constexpr std::size_t kStep = 64;  // divides pages: no step reaches into one that is not needed
  std::string found;
  while (found.size() < kMostCharacters) {
    char bytes[kStep];
    const std::uint64_t at = address + found.size();
    const std::size_t size = kStep - at % kStep;
    if (!memory_.read(at, bytes, size)) break;
    const std::size_t length = ::strnlen(bytes, size);
    found.append(bytes, length);
    if (length < size) {
      const bool is_cut = found.size() > kMostCharacters;
      found.resize(std::min(found.size(), kMostCharacters));
      text_ += ' ';
      return write_text(found, is_cut);
    }
  }
  if (found.empty()) return;
  found.resize(std::min(found.size(), kMostCharacters));
  text_ += ' ';
  write_text(found, true);
}

void ValueText::write_text(std::string_view bytes, bool is_cut) {
  text_ += '"';
  for (const char c : bytes) {
    if (c == '"' || c == '\\') text_ += '\\';
    text_ += c;
  }
  text_ += is_cut ? "\"..." : "\"";
}

void ValueText::write_members(Dwarf_Die& type, ByteView bytes, int depth) {
  const std::size_t begin = text_.size();
  std::size_t count = 0;
  bool is_whole = true, has_variants = false;
  text_ += '{';
  for_each_child(type, budget_, [&](Dwarf_Die& child) {
    const int tag = dwarf_tag(&child);
    if (tag == DW_TAG_variant_part) {
      if (count++ != 0) text_ += ", ";
      has_variants = true;
      return is_whole = write_variant(child, bytes, depth);
    }
    if (tag != DW_TAG_member && tag != DW_TAG_inheritance) return true;
    if (dwarf_hasattr(&child, DW_AT_external) != 0 || dwarf_hasattr(&child, DW_AT_declaration) != 0) return true;
    const std::size_t before = text_.size();
    if (count++ != 0) text_ += ", ";
    if (count > kMostMembers || text_.size() > kMostText) {
      text_ += "...";
      return false;
    }
    is_whole = write_member(child, bytes, depth);
    if (tag == DW_TAG_inheritance && text_.ends_with(" = {}")) {  // an empty class
      text_.resize(before);
      --count;
    }
    return is_whole;
  });
  if (is_whole && has_variants && count == 1) {  // "Some{__0 = 3}", as Rust's enums are
    text_.erase(begin, 1);
    return;
  }
  if (is_whole) {
    text_ += '}';
    return;
  }
  text_.resize(begin);
  write_type(type);
}

// The variant that is there: the discriminant's, else the one without a value (DWARF 5 section 5.7.10). False: not
// known.
bool ValueText::write_variant(Dwarf_Die& part, ByteView bytes, int depth) {
  Dwarf_Attribute memory;
  Dwarf_Die discriminant, type, variant, member;
  std::optional<std::uint64_t> value;
  std::uint64_t mask = 0;
  if (dwarf_formref_die(dwarf_attr(&part, DW_AT_discr, &memory), &discriminant) != nullptr) {
    const std::size_t size = type_of(&discriminant, type) ? size_of(type) : 0;
    const auto at = bytes.sub(number_of(&discriminant, DW_AT_data_member_location).value_or(0), size);
    if (!at || size == 0 || size > 8) return false;
    value = word_of(*at);
    mask = ~std::uint64_t{0} >> (64 - 8 * size);
  }
  bool is_found = false, is_sure = true;
  for_each_child(part, budget_, [&](Dwarf_Die& child) {
    if (dwarf_tag(&child) != DW_TAG_variant) return true;
    const auto number = number_of(&child, DW_AT_discr_value);
    const bool is_this = number && value && (*number & mask) == *value;
    is_sure &= dwarf_hasattr(&child, DW_AT_discr_list) == 0;
    if (is_this || (!number && !is_found)) variant = child, is_found = true;
    return !is_this;
  });
  if (!is_found || !is_sure || dwarf_child(&variant, &member) != 0) return false;
  while (dwarf_tag(&member) != DW_TAG_member)
    if (!budget_.take() || dwarf_siblingof(&member, &member) != 0) return false;
  const std::size_t begin = text_.size();
  const std::string name = name_of(&member) + " = ";
  if (!write_member(member, bytes, depth)) return false;
  if (text_.compare(begin, name.size(), name) == 0) text_.erase(begin + name.size() - 3, 3);
  if (text_.ends_with("{}")) text_.resize(text_.size() - 2);
  return true;
}

// False: where it is depends on more than its structure.
bool ValueText::write_member(Dwarf_Die& member, ByteView bytes, int depth) {
  Dwarf_Die type;
  if (!type_of(&member, type)) return false;
  if (const std::string name = name_of(&member); !name.empty())
    text_ += fmt::format("{} = ", name);
  else if (dwarf_tag(&member) == DW_TAG_inheritance)
    text_ += fmt::format("<{}> = ", type_name(type));
  const std::size_t size = size_of(type);
  if (size == 0) {
    write(type, {}, depth + 1);
    return true;
  }
  if (const auto width = number_of(&member, DW_AT_bit_size)) {
    auto place = number_of(&member, DW_AT_data_bit_offset);
    // DWARF 3 and before count from the most significant bit of a unit.
    const auto from_top = number_of(&member, DW_AT_bit_offset), begin = number_of(&member, DW_AT_data_member_location);
    if (!place && from_top && begin && *begin < kLargestValue && *from_top + *width <= 8 * size)
      place = 8 * (*begin + size) - *from_top - *width;
    if (!place || *width == 0 || *width > 8 * size || size > 8 || *place / 8 >= bytes.size()) return false;
    std::uint64_t value = word_of(*bytes.sub(*place / 8, std::min<std::size_t>(8, bytes.size() - *place / 8)));
    if (*place % 8 + *width > 64) return false;
    const auto unused = static_cast<unsigned>(64 - *width);
    value = value >> *place % 8 << unused;
    Dwarf_Die behind = type;
    value = peel(behind) && is_signed(behind) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value) >> unused)
                                              : value >> unused;
    write(type, ByteView(reinterpret_cast<const std::byte*>(&value), size), depth + 1);
    return true;
  }
  Dwarf_Attribute memory;
  std::uint64_t offset = 0;  // without one, as in unions: at the begin
  if (Dwarf_Attribute* location = dwarf_attr(&member, DW_AT_data_member_location, &memory); location != nullptr) {
    Dwarf_Word number = 0;
    if (dwarf_formudata(location, &number) != 0) return false;
    offset = number;
  } else if (dwarf_hasattr(&member, DW_AT_data_bit_offset) != 0) {
    return false;
  }
  const auto part = bytes.sub(offset, size);
  if (!part) return false;
  write(type, *part, depth + 1);
  return true;
}

void ValueText::write_array(Dwarf_Die& type, ByteView bytes, int depth, std::size_t dimension) {
  Dwarf_Die element;
  std::size_t size = type_of(&type, element) ? size_of(element) : 0;
  const std::vector<std::uint64_t> counts = dimensions_of(type, budget_);
  const bool has_rows = dimension + 1 < counts.size();
  if (has_rows) size = counts[dimension] != 0 ? bytes.size() / counts[dimension] : 0;
  if (size == 0 || bytes.size() % size != 0) return write_type(type);
  Dwarf_Die behind = element;
  const auto encoding = !has_rows && peel(behind) ? encoding_of(behind) : std::nullopt;
  if (encoding && is_character(*encoding) && size == 1) {
    const auto* characters = reinterpret_cast<const char*>(bytes.data());
    const std::size_t length = ::strnlen(characters, bytes.size());
    return write_text({characters, std::min(length, kMostCharacters)}, length > kMostCharacters);
  }
  const std::size_t count = bytes.size() / size;
  text_ += '{';
  for (std::size_t i = 0; i < count; ++i) {
    if (i != 0) text_ += ", ";
    if (i == kMostElements || text_.size() > kMostText) {
      text_ += "...";
      break;
    }
    if (has_rows)
      write_array(type, *bytes.sub(i * size, size), depth, dimension + 1);
    else
      write(element, *bytes.sub(i * size, size), depth + 1);
  }
  text_ += '}';
}

}  // namespace windlass::symbols
