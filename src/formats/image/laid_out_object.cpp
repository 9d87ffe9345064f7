#include "formats/image/laid_out_object.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>

// Sources: System V ABI, AMD64 supplement 1.0, table 4.9; ELF for the Arm 64-bit Architecture (2024Q3), section 5.7.

namespace windlass::image {
namespace {

constexpr std::uint64_t kAdrpPage = 4096;                 // AArch64's ADRP counts in them
constexpr std::uint64_t kFirst = 16 * kAdrpPage;          // of all addresses: 0 is none
constexpr std::uint64_t kReach = std::uint64_t{1} << 31;  // of 32 bits with a sign

// What a relocation makes of symbol, addend and place.
struct Relocation {
  enum Value : std::uint8_t {
    kNothing,   // no way of control and no address depends on it: thread-local offsets, sizes, marks
    kSum,       // S + A
    kDistance,  // S + A - P
    kPages,     // the distance in pages, of their beginnings
    kLowBits,   // S + A within its page
    kUnknown,
  } value = kUnknown;
  bool slot = false;  // of the symbol's slot in the GOT
  // Where it goes: `bits` at `shift`, in units of 1 << `scale`. `bits` of 64, 32, 16 and 8 at 0 are data.
  std::uint8_t bits = 0, shift = 0, scale = 0;
};

Relocation x86_64(std::uint32_t type) {
  using R = Relocation;
  constexpr std::uint32_t kApxGotPcRel[] = {43, 44, 45};  // R_X86_64_CODE_{4,5,6}_GOTPCRELX
  switch (type) {
    case R_X86_64_64: return {R::kSum, false, 64};
    case R_X86_64_PC64:
    case R_X86_64_GOTPC64: return {R::kDistance, false, 64};
    case R_X86_64_32:
    case R_X86_64_32S: return {R::kSum, false, 32};
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_GOTPC32: return {R::kDistance, false, 32};
    case R_X86_64_16: return {R::kSum, false, 16};
    case R_X86_64_PC16: return {R::kDistance, false, 16};
    case R_X86_64_8: return {R::kSum, false, 8};
    case R_X86_64_PC8: return {R::kDistance, false, 8};
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
    case R_X86_64_GOTTPOFF:
    case R_X86_64_TLSGD:
    case R_X86_64_TLSLD:
    case R_X86_64_GOTPC32_TLSDESC: return {R::kDistance, true, 32};
    case R_X86_64_NONE:
    case R_X86_64_TLSDESC_CALL:
    case R_X86_64_DTPOFF32:
    case R_X86_64_DTPOFF64:
    case R_X86_64_TPOFF32:
    case R_X86_64_TPOFF64:
    case R_X86_64_SIZE32:
    case R_X86_64_SIZE64:
    case R_X86_64_GOT32:
    case R_X86_64_GOT64:
    case R_X86_64_GOTPLT64:
    case R_X86_64_GOTOFF64:
    case R_X86_64_GOTPCREL64:
    case R_X86_64_PLTOFF64: return {R::kNothing};
    default: break;
  }
  if (std::ranges::find(kApxGotPcRel, type) != std::end(kApxGotPcRel)) return {R::kDistance, true, 32};
  return {};
}

Relocation aarch64(std::uint32_t type) {
  using R = Relocation;
  switch (type) {
    case R_AARCH64_ABS64: return {R::kSum, false, 64};
    case R_AARCH64_ABS32: return {R::kSum, false, 32};
    case R_AARCH64_ABS16: return {R::kSum, false, 16};
    case R_AARCH64_PREL64: return {R::kDistance, false, 64};
    case R_AARCH64_PREL32:
    case 314: return {R::kDistance, false, 32};  // R_AARCH64_PLT32
    case R_AARCH64_PREL16: return {R::kDistance, false, 16};
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26: return {R::kDistance, false, 26, 0, 2};
    case R_AARCH64_CONDBR19:
    case R_AARCH64_LD_PREL_LO19: return {R::kDistance, false, 19, 5, 2};
    case R_AARCH64_TSTBR14: return {R::kDistance, false, 14, 5, 2};
    case R_AARCH64_ADR_PREL_LO21: return {R::kDistance, false, 21};
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADR_PREL_PG_HI21_NC: return {R::kPages, false, 21};
    case R_AARCH64_ADR_GOT_PAGE: return {R::kPages, true, 21};
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC: return {R::kLowBits, false, 12, 10};
    case R_AARCH64_LDST16_ABS_LO12_NC: return {R::kLowBits, false, 12, 10, 1};
    case R_AARCH64_LDST32_ABS_LO12_NC: return {R::kLowBits, false, 12, 10, 2};
    case R_AARCH64_LDST64_ABS_LO12_NC: return {R::kLowBits, false, 12, 10, 3};
    case R_AARCH64_LDST128_ABS_LO12_NC: return {R::kLowBits, false, 12, 10, 4};
    case R_AARCH64_LD64_GOT_LO12_NC: return {R::kLowBits, true, 12, 10, 3};
    case R_AARCH64_NONE:
    case R_AARCH64_LD64_GOTPAGE_LO15: return {R::kNothing};
    default: break;
  }
  const auto within = [type](std::uint32_t first, std::uint32_t last) { return type >= first && type <= last; };
  // Numbers in pieces by MOVZ and MOVK; what is local to threads.
  if (within(R_AARCH64_MOVW_UABS_G0, R_AARCH64_MOVW_SABS_G2) ||
      within(R_AARCH64_MOVW_PREL_G0, R_AARCH64_MOVW_PREL_G3) || within(R_AARCH64_TLSGD_ADR_PREL21, 573))
    return {R::kNothing};
  return {};
}

}  // namespace

class Relocator {
 public:
  explicit Relocator(const ElfImage& image) : image_(image) {}

  Expected<LaidOutObject> run() {
    if (image_.machine() != Machine::kX86_64 && image_.machine() != Machine::kAArch64)
      return fail(ErrorCode::kUnsupported, "relocations of this machine are not known", 0);
    if (const auto ok = lay_out(); !ok) return Failure(ok.error());
    for (const Section& table : image_.sections())
      if (const auto ok = relocate(table); !ok) return Failure(ok.error());
    std::ranges::sort(object_.problems_, {}, &LaidOutObject::Problem::address);
    return std::move(object_);
  }

 private:
  Expected<void> lay_out() {
    std::uint64_t next = kFirst, stored = 0;
    object_.places_.resize(image_.sections().size());
    for (std::size_t i = 0; i < object_.places_.size(); ++i) {
      const Section& section = image_.sections()[i];
      if ((section.flags & SHF_ALLOC) == 0) continue;
      if (section.size >= kReach / 2 || next + section.size >= kReach / 2)
        return fail(ErrorCode::kLimit, "sections of 1 GiB and more are not laid out", section.offset);
      object_.places_[i].address = next;
      object_.loaded_.push_back(i);
      next = (next + section.size) / kAdrpPage * kAdrpPage + 2 * kAdrpPage;
      if (section.type == SHT_NOBITS) continue;
      const auto bytes = image_.stored_bytes(section);
      if (!bytes) return Failure(bytes.error());
      if ((stored += bytes->size()) > image_.file().size())
        return fail(ErrorCode::kMalformed, "sections lie over one another", section.offset);
      object_.places_[i].bytes.assign(bytes->data(), bytes->data() + bytes->size());
    }
    elsewhere_ = next;
    return {};
  }

  Expected<void> relocate(const Section& table) {
    const auto sections = image_.sections();
    if (table.info == 0 || table.info >= sections.size() || object_.places_[table.info].bytes.empty()) return {};
    constexpr std::uint32_t kCrel = 0x4000'0014;
    if (table.type == SHT_REL || table.type == kCrel)
      return fail(ErrorCode::kUnsupported, "relocations of this form are not known", table.offset);
    if (table.type != SHT_RELA) return {};
    const auto entries = image_.stored_bytes(table);
    if (!entries) return Failure(entries.error());
    ByteView symbols;
    if (table.link < sections.size())
      if (const auto bytes = image_.stored_bytes(sections[table.link])) symbols = *bytes;
    const bool describes = sections[table.info].name == ".eh_frame";
    for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= entries->size(); at += sizeof(Elf64_Rela)) {
      const auto entry = *entries->at<Elf64_Rela>(at);
      const std::uint64_t place = object_.places_[table.info].address + entry.r_offset;
      const auto done = apply(entry, symbols, object_.places_[table.info], describes);
      if (done) continue;
      Error error = done.error();
      error.where = sections[table.info].offset + entry.r_offset;
      object_.problems_.push_back({place, error});
    }
    return {};
  }

  Expected<void> apply(const Elf64_Rela& entry, ByteView symbols, LaidOutObject::Place& to, bool describes) {
    const std::uint32_t type = ELF64_R_TYPE(entry.r_info), number = ELF64_R_SYM(entry.r_info);
    const Relocation how = image_.machine() == Machine::kX86_64 ? x86_64(type) : aarch64(type);
    if (how.value == Relocation::kUnknown)
      return fail(ErrorCode::kUnsupported, "a relocation of this type is not known", 0, type);
    if (how.value == Relocation::kNothing) return {};
    const auto symbol = address_of(number, symbols, how.slot);
    if (!symbol) return Failure(symbol.error());
    const std::uint64_t place = to.address + entry.r_offset;
    const std::uint64_t sum = *symbol + static_cast<std::uint64_t>(entry.r_addend);
    if (describes) object_.described_.insert(sum);
    std::uint64_t value = sum;
    if (how.value == Relocation::kDistance) value = sum - place;
    if (how.value == Relocation::kPages) value = sum / kAdrpPage - place / kAdrpPage;
    if (how.value == Relocation::kLowBits) value = sum % kAdrpPage;
    return write(to.bytes, entry.r_offset, how, value);
  }

  // Of a slot: of each symbol one, behind all that is known.
  [[nodiscard]] Expected<std::uint64_t> address_of(std::uint32_t number, ByteView symbols, bool slot) const {
    const std::uint64_t nowhere = elsewhere_ + 32 * std::uint64_t{number};
    if (nowhere + 32 >= kReach)
      return fail(ErrorCode::kLimit, "a relocation's symbol has too high a number", 0, number);
    if (slot) return nowhere + 16;
    if (number == 0) return 0;
    const auto symbol = symbols.at<Elf64_Sym>(number * sizeof(Elf64_Sym));
    if (!symbol) return fail(ErrorCode::kOutOfRange, "a relocation's symbol is not in the table", 0, number);
    if (symbol->st_shndx == SHN_ABS) return symbol->st_value;
    if (symbol->st_shndx == SHN_XINDEX)
      return fail(ErrorCode::kUnsupported, "a relocation's symbol is in a section of a high number", 0, number);
    const bool loaded = symbol->st_shndx < object_.places_.size() && object_.places_[symbol->st_shndx].address != 0;
    return loaded ? object_.places_[symbol->st_shndx].address + symbol->st_value : nowhere;
  }

  // Into data, or into the bits of an AArch64 instruction.
  static Expected<void> write(std::vector<std::byte>& bytes, std::uint64_t offset, const Relocation& how,
                              std::uint64_t value) {
    const bool data = how.bits == 64 || how.bits == 32 || how.bits == 16 || how.bits == 8;
    const std::size_t size = data ? how.bits / 8 : 4;
    if (offset > bytes.size() || size > bytes.size() - offset)
      return fail(ErrorCode::kOutOfRange, "a relocation goes beyond its section", 0);
    const auto scaled = static_cast<std::int64_t>(value) >> how.scale;
    const std::int64_t most = how.bits == 64 ? INT64_MAX : (std::int64_t{1} << (how.bits - 1)) - 1;
    const bool reaches =
        scaled >= -most - 1 && scaled <= most && static_cast<std::uint64_t>(scaled) << how.scale == value;
    if (!reaches && (how.value == Relocation::kDistance || how.value == Relocation::kPages))
      return fail(ErrorCode::kOutOfRange, "a relocation does not reach its symbol", 0, value);
    if (data) {
      std::memcpy(bytes.data() + offset, &scaled, size);
      return {};
    }
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + offset, sizeof word);
    const auto number = static_cast<std::uint32_t>(scaled);
    if (how.bits == 21) {  // ADR and ADRP: the low two bits are at 29
      word = (word & ~0x60ff'ffe0U) | (number & 3) << 29 | (number >> 2 & 0x7ffff) << 5;
    } else {
      const std::uint32_t mask = (1U << how.bits) - 1;
      word = (word & ~(mask << how.shift)) | (number & mask) << how.shift;
    }
    std::memcpy(bytes.data() + offset, &word, sizeof word);
    return {};
  }

  const ElfImage& image_;
  LaidOutObject object_;
  std::uint64_t elsewhere_ = 0;  // where the object's own sections end
};

Expected<LaidOutObject> LaidOutObject::make(const ElfImage& image) { return Relocator(image).run(); }

Expected<ByteView> LaidOutObject::code(std::size_t section, std::uint64_t offset, std::uint64_t size) const {
  const Place& place = places_[section];
  const auto code = ByteView(place.bytes.data(), place.bytes.size()).sub(offset, size);
  if (!code) return code;
  const auto problem = std::ranges::lower_bound(problems_, place.address + offset, {}, &Problem::address);
  if (problem != problems_.end() && problem->address - place.address - offset < size) return Failure(problem->error);
  return code;
}

bool LaidOutObject::read(std::uint64_t address, void* to, std::size_t size) const {
  const auto next =
      std::ranges::upper_bound(loaded_, address, {}, [this](std::size_t i) { return places_[i].address; });
  if (next == loaded_.begin()) return false;
  const Place& place = places_[*std::prev(next)];
  const std::uint64_t offset = address - place.address;
  if (offset > place.bytes.size() || size > place.bytes.size() - offset) return false;
  const auto problem = std::ranges::lower_bound(problems_, address, {}, &Problem::address);
  if (problem != problems_.end() && problem->address - address < size) return false;
  std::memcpy(to, place.bytes.data() + offset, size);
  return true;
}

}  // namespace windlass::image
