#include "formats/image/machine.h"

#include <cstring>

#include "formats/image/pe.h"

namespace windlass::image {
namespace {

// What the field says that names a machine. ELF: gABI chapter 4 and the registry of e_machine; PE: "PE Format", Machine
// Types (Microsoft); none: images of i386 have no unwind information, and are not read.
constexpr std::uint8_t kElf32 = 1, kElf64 = 2;
struct Code {
  std::uint16_t elf;
  std::uint8_t elf_class;
  std::optional<PeMachine> pe;
  Architecture architecture;
};
constexpr Code kCodes[] = {{62, kElf64, PeMachine::kAmd64, Architecture::kX86_64},
                           {183, kElf64, PeMachine::kArm64, Architecture::kAArch64},
                           {3, kElf32, std::nullopt, Architecture::kI386}};

constexpr std::uint64_t kElfClass = 4, kElfMachine = 18;  // the same in Elf32_Ehdr
constexpr std::uint64_t kPeOffset = 0x3c;                 // of the headers, in the DOS header

template <typename Is>
CodeMachine machine_where(const Is& is) {
  CodeMachine machine{true, std::nullopt};
  for (const Code& code : kCodes)
    if (is(code)) machine.architecture = code.architecture;
  return machine;
}

bool begins_with(ByteView bytes, std::uint64_t offset, const char* magic, std::size_t size) {
  const auto found = bytes.sub(offset, size);
  return found && std::memcmp(found->data(), magic, size) == 0;
}

}  // namespace

CodeMachine machine_of(ByteView image) {
  if (begins_with(image, 0, "\177ELF", 4)) {
    const auto wide = image.at<std::uint8_t>(kElfClass);
    const auto value = image.at<std::uint16_t>(kElfMachine);
    if (!wide || !value) return {true, std::nullopt};
    return machine_where([&](const Code& code) { return code.elf == *value && code.elf_class == *wide; });
  }
  if (!begins_with(image, 0, "MZ", 2)) return {};
  const auto headers = image.at<std::uint32_t>(kPeOffset);
  if (!headers || !begins_with(image, *headers, "PE\0\0", 4)) return {};
  const auto value = image.at<std::uint16_t>(std::uint64_t{*headers} + 4);
  if (!value) return {};
  return machine_where([&](const Code& code) { return code.pe == machine_number(*value).machine; });
}

}  // namespace windlass::image
