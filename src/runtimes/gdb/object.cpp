#include "runtimes/gdb/object.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "formats/image/elf_structures.h"

namespace windlass::runtimes::gdb {
namespace {

using image::ElfImage;
using image::Section;

// Makes a relocatable object whose sections are loaded what a linker would have made of it, as far as it is asked for:
// unwind information and symbols.
class Linker {
 public:
  Linker(std::span<std::byte> bytes, const ElfImage& image) : bytes_(bytes), image_(image) {}

  void link() {
    for (const Section& section : image_.sections()) {
      if (section.type == SHT_SYMTAB) place_symbols(section);
    }
    for (const Section& section : image_.sections())
      if (section.type == SHT_RELA && section.info < image_.sections().size() &&
          section.link < image_.sections().size())
        relocate(section, image_.sections()[section.info], image_.sections()[section.link]);
    put(offsetof(Elf64_Ehdr, e_type), Elf64_Half{ET_EXEC});
  }

 private:
  template <typename T>
  [[nodiscard]] std::optional<T> get(std::uint64_t offset) const {
    T value;
    if (offset > bytes_.size() || sizeof value > bytes_.size() - offset) return std::nullopt;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  template <typename T>
  void put(std::uint64_t offset, T value) {
    if (offset <= bytes_.size() && sizeof value <= bytes_.size() - offset)
      std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }

  // A symbol counts from its section (gABI 4.1, Symbol Values).
  void place_symbols(const Section& table) {
    for (std::uint64_t at = table.offset; at - table.offset + sizeof(Elf64_Sym) <= table.size;
         at += sizeof(Elf64_Sym)) {
      const auto symbol = get<Elf64_Sym>(at);
      if (!symbol) return;
      if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= image_.sections().size()) continue;
      put(at + offsetof(Elf64_Sym, st_value), symbol->st_value + image_.sections()[symbol->st_shndx].address);
    }
  }

  // Those of pointers, which is what unwind information has (x86-64 psABI 4.4.1; AAELF64 5.7).
  void relocate(const Section& relocations, const Section& target, const Section& symbols) {
    if (target.name != ".eh_frame" && target.name != ".debug_frame") return;
    const bool is_x86 = image_.machine() == image::Machine::kX86_64;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= relocations.size; at += sizeof(Elf64_Rela)) {
      const auto entry = get<Elf64_Rela>(relocations.offset + at);
      if (!entry) return;
      const auto symbol = get<Elf64_Sym>(symbols.offset + ELF64_R_SYM(entry->r_info) * sizeof(Elf64_Sym));
      if (!symbol || entry->r_offset >= target.size) continue;
      const std::uint64_t value = symbol->st_value + static_cast<std::uint64_t>(entry->r_addend);
      const std::uint64_t distance = value - (target.address + entry->r_offset),
                          place = target.offset + entry->r_offset;
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(entry->r_info));
      if (type == (is_x86 ? R_X86_64_64 : R_AARCH64_ABS64)) put(place, value);
      if (type == (is_x86 ? R_X86_64_32 : R_AARCH64_ABS32)) put(place, static_cast<std::uint32_t>(value));
      if (type == (is_x86 ? R_X86_64_PC64 : R_AARCH64_PREL64)) put(place, distance);
      if (type == (is_x86 ? R_X86_64_PC32 : R_AARCH64_PREL32)) put(place, static_cast<std::uint32_t>(distance));
    }
  }

  std::span<std::byte> bytes_;
  const ElfImage& image_;
};

}  // namespace

Expected<std::shared_ptr<const Object>> Object::read(const Memory& memory, std::uint64_t address, std::uint64_t size) {
  if (size > kMaxBytes) return fail(ErrorCode::kLimit, "an object registered with GDB is too large", address, size);
  std::vector<std::byte> bytes(size);
  if (!memory.read(address, bytes.data(), bytes.size()))
    return fail(ErrorCode::kUnreadable, "an object registered with GDB cannot be read", address);
  auto object = std::make_shared<Object>(std::move(bytes));
  const ByteView view(object->bytes_.data(), size);
  auto image = ElfImage::parse(view);
  if (!image) return Failure(image.error());
  if (image->elf_class() != image::ElfClass::k64)
    return fail(ErrorCode::kUnsupported, "an object of 32-bit code registered with GDB", address);
  if (image->type() == ET_REL) {
    Linker(object->bytes_, *image).link();
    image = ElfImage::parse(view);
    if (!image) return Failure(image.error());
  }
  for (const Section& section : image->sections())
    if ((section.flags & SHF_EXECINSTR) != 0 && section.address != 0 && section.size != 0 &&
        section.size <= ~section.address)
      object->code_.push_back({section.address, section.address + section.size});
  object->read_symbols(*image);
  object->source_ = sources::make_source(*image);
  return object;
}

void Object::read_symbols(const ElfImage& image) {
  for (const Section& table : image.sections()) {
    if (table.type != SHT_SYMTAB || table.link >= image.sections().size()) continue;
    const auto entries = image.stored_bytes(table), names = image.stored_bytes(image.sections()[table.link]);
    if (!entries || !names) continue;
    for (std::uint64_t at = 0; const auto symbol = entries->at<Elf64_Sym>(at); at += sizeof(Elf64_Sym)) {
      if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF || symbol->st_size == 0 ||
          symbol->st_size > ~symbol->st_value)
        continue;
      symbols_.push_back(
          {symbol->st_value, symbol->st_value + symbol->st_size, names->string_at(symbol->st_name).value_or("")});
    }
  }
  std::ranges::sort(symbols_, {}, &Function::begin);
}

const manager::AddressRange* Object::code_at(std::uint64_t address) const {
  const auto found = std::ranges::find_if(
      code_, [&](const manager::AddressRange& it) { return it.begin <= address && address < it.end; });
  return found != code_.end() ? &*found : nullptr;
}

std::optional<Object::Function> Object::function_at(std::uint64_t address) const {
  const manager::AddressRange* section = code_at(address);
  if (section == nullptr) return std::nullopt;
  Function found{section->begin, section->end, {}};
  const auto after = std::ranges::upper_bound(symbols_, address, {}, &Function::begin);
  if (after != symbols_.end()) found.end = std::min(found.end, after->begin);
  const Function* before = after != symbols_.begin() ? &*std::prev(after) : nullptr;
  const bool is_named = before != nullptr && address < before->end;
  if (is_named)
    found = {std::max(found.begin, before->begin), std::min(found.end, before->end), before->name};
  else if (before != nullptr)
    found.begin = std::max(found.begin, before->end);
  if (const auto described = source_->function_at(address))
    found = {std::max(found.begin, described->begin), std::min(found.end, described->end), found.name};
  else if (!is_named)
    return std::nullopt;
  return found;
}

}  // namespace windlass::runtimes::gdb
