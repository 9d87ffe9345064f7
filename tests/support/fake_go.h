// A Go program made up by hand: the code of its functions, and the table that says what each has on the stack.
//
// Go's src/runtime/symtab.go (of 1.20's form); code as cmd/internal/obj/x86 and arm64 make it.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "formats/go/find.h"
#include "formats/image/elf.h"

namespace windlass::test::fake_go {

using Code = std::vector<std::uint8_t>;

// mov rax, fs:[-8]; mov rbx, [rax + 0x30]; mov rdx, [rbx]; mov rsp, [rdx + 0x38]; call [rdi]; and the way back.
inline const Code kSwitch = {
    0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff,  // 0
    0x48, 0x8b, 0x58, 0x30,                                // 9
    0x48, 0x8b, 0x13,                                      // 13
    0x48, 0x8b, 0x62, 0x38,                                // 16: on the other stack from 20 on
    0xff, 0x17,                                            // 20
    0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff,  // 22
    0x48, 0x8b, 0x58, 0x30,                                // 31
    0x48, 0x8b, 0x83, 0xb8, 0x00, 0x00, 0x00,              // 35
    0x48, 0x8b, 0x60, 0x38,                                // 42: back from 46 on
    0xc3,                                                  // 46
    0xff, 0xd0,                                            // 47: call rax, reached from elsewhere
};

// As runtime.asmcgocall: mov rsp, [rsi + 56]; mov [rsp + 48], rdi; mov [rsp + 40], rdx; call rax; mov rdi, [rsp + 48];
// mov rsi, [rdi + 8]; sub rsi, [rsp + 40]; mov rsp, rsi; ret
inline const Code kKeeps = {0x48, 0x8b, 0x66, 0x38, 0x48, 0x89, 0x7c, 0x24, 0x30, 0x48, 0x89, 0x54,
                            0x24, 0x28, 0xff, 0xd0, 0x48, 0x8b, 0x7c, 0x24, 0x30, 0x48, 0x8b, 0x77,
                            0x08, 0x48, 0x2b, 0x74, 0x24, 0x28, 0x48, 0x89, 0xf4, 0xc3};

class Program {
 public:
  static constexpr std::uint64_t kText = 0x401000;
  // So many bytes of code, with so many on the stack.
  struct Stretch {
    std::uint32_t size;
    std::int32_t depth;
  };

  explicit Program(Architecture architecture = Architecture::kX86_64) : architecture_(architecture) { pad(); }

  // Where it begins. Behind each there is padding.
  std::uint64_t add(std::string_view name, const Code& code, const std::vector<Stretch>& stack,
                    std::uint8_t flags = 0) {
    const std::uint64_t begin = kText + code_.size();
    entries_.push_back({static_cast<std::uint32_t>(code_.size()), static_cast<std::uint32_t>(records_.size())});
    std::uint32_t words[11] = {};
    words[0] = static_cast<std::uint32_t>(code_.size());
    words[1] = static_cast<std::uint32_t>(names_.size());
    words[4] = static_cast<std::uint32_t>(values_.size());
    words[10] = std::uint32_t{flags} << 8;
    const auto* record = reinterpret_cast<const std::uint8_t*>(words);
    records_.insert(records_.end(), record, record + sizeof words);
    names_.append(name) += '\0';
    std::int32_t before = -1;
    for (const Stretch& stretch : stack) {
      number(zigzag(stretch.depth - before)), number(stretch.size / quantum());
      before = stretch.depth;
    }
    number(0);
    code_.insert(code_.end(), code.begin(), code.end());
    pad();
    return begin;
  }

  // Both live as long as this, and know what has been added before.
  [[nodiscard]] image::ElfImage image() {
    file_.assign(kCodeAt, 0);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_EXEC, header.e_version = EV_CURRENT, header.e_ehsize = sizeof header;
    header.e_machine = architecture_ == Architecture::kX86_64 ? EM_X86_64 : EM_AARCH64;
    header.e_phoff = sizeof header, header.e_phentsize = sizeof(Elf64_Phdr), header.e_phnum = 1;
    Elf64_Phdr segment{};
    segment.p_type = PT_LOAD, segment.p_flags = PF_R | PF_X, segment.p_vaddr = kText, segment.p_offset = kCodeAt;
    segment.p_filesz = segment.p_memsz = code_.size();
    std::memcpy(file_.data(), &header, sizeof header);
    std::memcpy(file_.data() + sizeof header, &segment, sizeof segment);
    file_.insert(file_.end(), code_.begin(), code_.end());
    return *image::ElfImage::parse(view(file_));
  }
  [[nodiscard]] runtimes::go::Table table() {
    const std::size_t index = entries_.size() * 8 + 4;
    functions_.assign(index, 0);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const std::uint32_t entry[2] = {entries_[i].begin, entries_[i].record + static_cast<std::uint32_t>(index)};
      std::memcpy(functions_.data() + i * 8, entry, sizeof entry);
    }
    const auto end = static_cast<std::uint32_t>(code_.size());
    std::memcpy(functions_.data() + entries_.size() * 8, &end, sizeof end);
    functions_.insert(functions_.end(), records_.begin(), records_.end());
    runtimes::go::Table table;
    table.architecture = architecture_;
    table.quantum = static_cast<std::uint8_t>(quantum());
    table.text = kText;
    table.function_count = entries_.size();
    table.functions = view(functions_);
    table.index = *table.functions.sub(0, index);
    table.names = ByteView(reinterpret_cast<const std::byte*>(names_.data()), names_.size());
    table.values = view(values_);
    return table;
  }

 private:
  static constexpr std::size_t kCodeAt = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
  struct Entry {
    std::uint32_t begin, record;
  };

  static ByteView view(const Code& bytes) {
    return ByteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  }
  static std::uint32_t zigzag(std::int32_t value) {
    return static_cast<std::uint32_t>(value) << 1 ^ static_cast<std::uint32_t>(value >> 31);
  }
  [[nodiscard]] std::uint32_t quantum() const { return architecture_ == Architecture::kX86_64 ? 1 : 4; }
  void number(std::uint32_t value) {
    for (; value >= 0x80; value >>= 7) values_.push_back(static_cast<std::uint8_t>(value | 0x80));
    values_.push_back(static_cast<std::uint8_t>(value));
  }
  // At least one byte, up to a multiple of 16, as Go's linker aligns functions.
  void pad() { code_.resize((code_.size() + 16) / 16 * 16, 0xcc); }

  Architecture architecture_;
  std::vector<Entry> entries_;
  Code code_, records_, functions_, file_, values_ = {0};  // there is no list 0
  std::string names_ = std::string(1, '\0');
};

}  // namespace windlass::test::fake_go
