// What stubs look like:
// x86-64 (psABI 5.2 and its IBT form):
//   ff 25 disp32                 jmp *slot(%rip)         .plt, .plt.got; after f3 0f 1e fa (endbr64) or f2 (bnd):
//   .plt.sec f3 0f 1e fa  68 imm32 ...    endbr64; push index     .plt of an IBT binary: index into .rela.plt
// i386 (psABI 5.2): ff 25 abs32   jmp *slot   or   ff a3 disp32   jmp *(slot - GOT)(%ebx); after f3 0f 1e fb (endbr32)
// AArch64 (AAELF64, "PLT sequences"), of 16 or 24 bytes:
//   [bti c;] adrp x16, page; ldr x17, [x16, #offset]; add x16, x16, #offset; [autia1716;] br x17; [nop...]
#include "symbols/plt_names.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace windlass::symbols {

namespace {

struct Relocations {
  std::unordered_map<std::uint64_t, std::string> by_slot;
  std::vector<std::uint64_t> plt_slots;  // .rela.plt in its order
  std::uint64_t got = 0;                 // what _GLOBAL_OFFSET_TABLE_ stands for on i386: .got.plt, else .got
};

struct StubSection {
  std::uint64_t begin, end;
  const unsigned char* code;
  bool got;  // .plt.got
};

// What differs between machines.
struct Machine {
  GElf_Half number;
  std::uint32_t jump_slot, glob_dat;  // relocations of a slot that name its function
  // The slot that the stub around `address` jumps through; 0 if it is no stub.
  std::uint64_t (*slot_of_stub)(const StubSection& section, std::uint64_t address, const Relocations& relocations);
};

void read_relocations(Elf* elf, Elf_Scn* section, const GElf_Shdr& header, const Machine& machine, bool is_plt,
                      Relocations& result) {
  Elf_Data* data = elf_getdata(section, nullptr);
  Elf_Scn* symbols = elf_getscn(elf, header.sh_link);
  GElf_Shdr symbols_header;
  if (data == nullptr || symbols == nullptr || gelf_getshdr(symbols, &symbols_header) == nullptr) return;
  Elf_Data* symbol_data = elf_getdata(symbols, nullptr);
  const std::uint64_t count = header.sh_entsize == 0 ? 0 : data->d_size / header.sh_entsize;
  for (std::uint64_t i = 0; i < count && i < 1'000'000; ++i) {
    GElf_Rela rela{};
    GElf_Rel rel;
    if (header.sh_type == SHT_RELA) {
      if (gelf_getrela(data, static_cast<int>(i), &rela) == nullptr) break;
    } else {
      if (gelf_getrel(data, static_cast<int>(i), &rel) == nullptr) break;
      rela.r_offset = rel.r_offset;
      rela.r_info = rel.r_info;
    }
    if (is_plt) result.plt_slots.push_back(rela.r_offset);
    const auto type = GELF_R_TYPE(rela.r_info);
    if (type != machine.jump_slot && type != machine.glob_dat) continue;
    GElf_Sym symbol;
    if (symbol_data == nullptr ||
        gelf_getsym(symbol_data, static_cast<int>(GELF_R_SYM(rela.r_info)), &symbol) == nullptr)
      continue;
    const char* name = elf_strptr(elf, symbols_header.sh_link, symbol.st_name);
    if (name != nullptr && *name != '\0') result.by_slot.try_emplace(rela.r_offset, name);
  }
}

std::uint64_t x86_64_slot(const StubSection& section, std::uint64_t address, const Relocations& relocations) {
  // .plt.got without IBT has 8-byte stubs
  const bool is_short =
      section.got && section.end - section.begin >= 2 && section.code[0] == 0xff && section.code[1] == 0x25;
  const std::uint64_t step = is_short ? 8 : 16;
  const std::uint64_t start = section.begin + (address - section.begin) / step * step;
  const unsigned char* code = section.code + (start - section.begin);
  const std::uint64_t size = std::min(section.end - start, step);
  std::size_t at = size >= 4 && std::memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0 ? 4 : 0;
  if (at == 4 && size >= at + 5 && code[at] == 0x68) {
    std::uint32_t index = 0;
    std::memcpy(&index, code + at + 1, sizeof index);
    return index < relocations.plt_slots.size() ? relocations.plt_slots[index] : 0;
  }
  if (at < size && code[at] == 0xf2) ++at;
  if (size < at + 6 || code[at] != 0xff || code[at + 1] != 0x25) return 0;
  std::int32_t displacement = 0;
  std::memcpy(&displacement, code + at + 2, sizeof displacement);
  return start + at + 6 + static_cast<std::uint64_t>(static_cast<std::int64_t>(displacement));
}

std::uint64_t i386_slot(const StubSection& section, std::uint64_t address, const Relocations& relocations) {
  const bool is_short = section.got && section.end - section.begin >= 2 && section.code[0] == 0xff;
  const std::uint64_t step = is_short ? 8 : 16;
  const std::uint64_t start = section.begin + (address - section.begin) / step * step;
  const unsigned char* code = section.code + (start - section.begin);
  const std::uint64_t size = std::min(section.end - start, step);
  const std::size_t at = size >= 4 && std::memcmp(code, "\xf3\x0f\x1e\xfb", 4) == 0 ? 4 : 0;
  if (size < at + 6 || code[at] != 0xff || (code[at + 1] != 0x25 && code[at + 1] != 0xa3)) return 0;
  std::uint32_t place = 0;
  std::memcpy(&place, code + at + 2, sizeof place);
  return code[at + 1] == 0x25 ? place : static_cast<std::uint32_t>(relocations.got + place);
}

// From any of its instructions the stub is found by its adrp, which is at most five before.
std::uint64_t aarch64_slot(const StubSection& section, std::uint64_t address, const Relocations&) {
  constexpr std::uint32_t kBtiC = 0xd503245f;
  const std::uint64_t count = (section.end - section.begin) / 4;
  const auto word = [&](std::uint64_t index) {
    std::uint32_t value = 0;
    if (index < count) std::memcpy(&value, section.code + index * 4, sizeof value);
    return value;
  };
  const auto is_adrp_x16 = [&](std::uint64_t index) { return (word(index) & 0x9f00001f) == 0x90000010; };
  std::uint64_t at = (address - section.begin) / 4;
  if (word(at) == kBtiC) ++at;
  for (int i = 0; i < 5 && at > 0 && !is_adrp_x16(at); ++i) --at;
  const std::uint32_t load = word(at + 1);
  if (!is_adrp_x16(at) || (load & 0xffc003ff) != 0xf9400211) return 0;  // ldr x17, [x16, #imm12 * 8]
  const std::uint64_t pages = (std::uint64_t{word(at) >> 5 & 0x7ffff} << 2 | (word(at) >> 29 & 3)) << 43;
  const auto distance = static_cast<std::uint64_t>(static_cast<std::int64_t>(pages) >> 31);  // 21 bits, of 4 KiB
  return ((section.begin + at * 4) & ~std::uint64_t{0xfff}) + distance + std::uint64_t{load >> 10 & 0xfff} * 8;
}

constexpr Machine kMachines[] = {{EM_X86_64, R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, x86_64_slot},
                                 {EM_386, R_386_JMP_SLOT, R_386_GLOB_DAT, i386_slot},
                                 {EM_AARCH64, R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, aarch64_slot}};

const Machine* machine_of(Elf* elf) {
  GElf_Ehdr header;
  if (elf == nullptr || gelf_getehdr(elf, &header) == nullptr) return nullptr;
  const auto* found = std::ranges::find(kMachines, header.e_machine, &Machine::number);
  return found != std::end(kMachines) ? found : nullptr;
}

}  // namespace

struct StubNames::Contents {
  Elf* elf = nullptr;
  GElf_Addr bias = 0;
  const Machine* machine = nullptr;
  std::vector<StubSection> sections;
  bool has_relocations = false;
  Relocations relocations;

  [[nodiscard]] const char* section_name(const GElf_Shdr& header) const {
    std::size_t strings = 0;
    const char* name = elf_getshdrstrndx(elf, &strings) == 0 ? elf_strptr(elf, strings, header.sh_name) : nullptr;
    return name != nullptr ? name : "";
  }
  void read_all_relocations() {
    has_relocations = true;
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
      GElf_Shdr header;
      if (gelf_getshdr(section, &header) == nullptr) continue;
      const std::string_view name = section_name(header);
      if (name == ".got.plt" || (name == ".got" && relocations.got == 0)) relocations.got = header.sh_addr;
      if (header.sh_type != SHT_RELA && header.sh_type != SHT_REL) continue;
      const bool is_plt = name == ".rela.plt";
      read_relocations(elf, section, header, *machine, is_plt, relocations);
    }
  }
};

StubNames::StubNames(Dwfl_Module* module) : contents_(std::make_unique<Contents>()) {
  Contents& c = *contents_;
  c.elf = dwfl_module_getelf(module, &c.bias);
  c.machine = machine_of(c.elf);
  if (c.machine == nullptr) return;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(c.elf, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_PROGBITS) continue;
    const char* name = c.section_name(header);
    if (std::strncmp(name, ".plt", 4) != 0) continue;
    const Elf_Data* data = elf_rawdata(section, nullptr);
    if (data == nullptr || data->d_buf == nullptr || data->d_size != header.sh_size) continue;
    c.sections.push_back({header.sh_addr, header.sh_addr + header.sh_size,
                          static_cast<const unsigned char*>(data->d_buf), std::strcmp(name, ".plt.got") == 0});
  }
}

StubNames::~StubNames() = default;

std::string StubNames::at(std::uint64_t address) {
  Contents& c = *contents_;
  const std::uint64_t place = address - c.bias;
  const auto section =
      std::ranges::find_if(c.sections, [&](const StubSection& s) { return place >= s.begin && place < s.end; });
  if (section == c.sections.end()) return {};
  if (!c.has_relocations) c.read_all_relocations();
  const auto known = c.relocations.by_slot.find(c.machine->slot_of_stub(*section, place, c.relocations));
  return known == c.relocations.by_slot.end() ? std::string() : known->second + "@plt";
}

}  // namespace windlass::symbols
