// Linkage stubs (x86-64 psABI 5.2 and its IBT form): a stub jumps through a slot of the global offset table, and the
// relocation of that slot names the function.
//   ff 25 disp32                 jmp *slot(%rip)         .plt, .plt.got; after f3 0f 1e fa (endbr64) or f2 (bnd):
//   .plt.sec f3 0f 1e fa  68 imm32 ...    endbr64; push index     .plt of an IBT binary: index into .rela.plt
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "profile/symbol_file.h"

namespace windlass::profile {

namespace {

constexpr std::uint64_t kStubSize = 16;

struct Relocations {
  std::unordered_map<std::uint64_t, std::string> by_slot;
  std::vector<std::uint64_t> plt_slots;  // .rela.plt in its order
};

void read_relocations(Elf* elf, Elf_Scn* section, const GElf_Shdr& header, bool is_plt, Relocations& result) {
  Elf_Data* data = elf_getdata(section, nullptr);
  Elf_Scn* symbols = elf_getscn(elf, header.sh_link);
  GElf_Shdr symbols_header;
  if (data == nullptr || symbols == nullptr || gelf_getshdr(symbols, &symbols_header) == nullptr) return;
  Elf_Data* symbol_data = elf_getdata(symbols, nullptr);
  const std::uint64_t count = header.sh_entsize == 0 ? 0 : data->d_size / header.sh_entsize;
  for (std::uint64_t i = 0; i < count && i < 1'000'000; ++i) {
    GElf_Rela rela;
    if (gelf_getrela(data, static_cast<int>(i), &rela) == nullptr) break;
    if (is_plt) result.plt_slots.push_back(rela.r_offset);
    const auto type = GELF_R_TYPE(rela.r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
    GElf_Sym symbol;
    if (symbol_data == nullptr ||
        gelf_getsym(symbol_data, static_cast<int>(GELF_R_SYM(rela.r_info)), &symbol) == nullptr)
      continue;
    const char* name = elf_strptr(elf, symbols_header.sh_link, symbol.st_name);
    if (name != nullptr && *name != '\0') result.by_slot.try_emplace(rela.r_offset, name);
  }
}

// The slot a stub jumps through; 0 if these bytes are no stub.
std::uint64_t slot_of_stub(const unsigned char* code, std::size_t size, std::uint64_t address,
                           const Relocations& relocations) {
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
  return address + at + 6 + static_cast<std::uint64_t>(static_cast<std::int64_t>(displacement));
}

struct StubSection {
  std::uint64_t begin, end, step;
  const unsigned char* code;
};

std::string stub_name(const StubSection& section, std::uint64_t address, const Relocations& relocations) {
  const std::uint64_t start = section.begin + (address - section.begin) / section.step * section.step;
  const std::uint64_t slot =
      slot_of_stub(section.code + (start - section.begin),
                   static_cast<std::size_t>(std::min(section.end - start, section.step)), start, relocations);
  const auto known = relocations.by_slot.find(slot);
  return slot == 0 || known == relocations.by_slot.end() ? std::string() : known->second + "@plt";
}

}  // namespace

std::vector<std::string> plt_names_at(Dwfl_Module* module, std::span<const std::uint64_t> addresses) {
  std::vector<std::string> names(addresses.size());
  GElf_Addr bias = 0;
  Elf* elf = dwfl_module_getelf(module, &bias);
  GElf_Ehdr ehdr;
  std::size_t strings = 0;
  if (elf == nullptr || gelf_getehdr(elf, &ehdr) == nullptr || ehdr.e_machine != EM_X86_64 ||
      elf_getshdrstrndx(elf, &strings) != 0)
    return names;

  std::vector<StubSection> stubs;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_PROGBITS) continue;
    const char* name = elf_strptr(elf, strings, header.sh_name);
    if (name == nullptr || std::strncmp(name, ".plt", 4) != 0) continue;
    const Elf_Data* data = elf_rawdata(section, nullptr);
    if (data == nullptr || data->d_buf == nullptr || data->d_size != header.sh_size) continue;
    // .plt.got without IBT has 8-byte stubs
    const auto* code = static_cast<const unsigned char*>(data->d_buf);
    const bool is_short = std::strcmp(name, ".plt.got") == 0 && data->d_size >= 2 && code[0] == 0xff && code[1] == 0x25;
    stubs.push_back({header.sh_addr, header.sh_addr + header.sh_size, is_short ? 8 : kStubSize, code});
  }
  const auto section_of = [&](std::uint64_t address) {
    return std::find_if(stubs.begin(), stubs.end(),
                        [&](const auto& s) { return address - bias >= s.begin && address - bias < s.end; });
  };
  if (std::none_of(addresses.begin(), addresses.end(), [&](auto at) { return section_of(at) != stubs.end(); }))
    return names;

  Relocations relocations;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_RELA) continue;
    const char* name = elf_strptr(elf, strings, header.sh_name);
    read_relocations(elf, section, header, name != nullptr && std::strcmp(name, ".rela.plt") == 0, relocations);
  }
  for (std::size_t i = 0; i < addresses.size(); ++i)
    if (const auto section = section_of(addresses[i]); section != stubs.end())
      names[i] = stub_name(*section, addresses[i] - bias, relocations);
  return names;
}

}  // namespace windlass::profile
