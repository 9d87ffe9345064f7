// The structures of a PE file as they are stored ("PE Format", Microsoft). Read with ByteView::at, which copies.
#pragma once

#include <cstddef>
#include <cstdint>

namespace windlass::image::pe {

inline constexpr std::uint16_t kDosMagic = 0x5a4d;        // "MZ"
inline constexpr std::uint32_t kSignature = 0x0000'4550;  // "PE\0\0"
inline constexpr std::uint64_t kSignatureOffsetAt = 0x3c;
inline constexpr std::uint16_t kPe32Plus = 0x20b;

struct FileHeader {  // "COFF File Header"
  std::uint16_t machine;
  std::uint16_t section_count;
  std::uint32_t timestamp;
  std::uint32_t symbols_offset;
  std::uint32_t symbol_count;
  std::uint16_t optional_header_size;
  std::uint16_t characteristics;
};
static_assert(sizeof(FileHeader) == 20);

struct OptionalHeader {  // "Optional Header", PE32+, without the data directories
  std::uint16_t magic;
  std::uint8_t linker_major, linker_minor;
  std::uint32_t code_size, initialized_size, uninitialized_size;
  std::uint32_t entry;
  std::uint32_t code_base;
  std::uint64_t image_base;
  std::uint32_t section_alignment, file_alignment;
  std::uint16_t versions[6];
  std::uint32_t win32_version;
  std::uint32_t image_size;
  std::uint32_t headers_size;
  std::uint32_t checksum;
  std::uint16_t subsystem, dll_characteristics;
  std::uint64_t stack_reserve, stack_commit, heap_reserve, heap_commit;
  std::uint32_t loader_flags;
  std::uint32_t directory_count;
};
static_assert(sizeof(OptionalHeader) == 112);

struct SectionHeader {  // "Section Table"
  char name[8];
  std::uint32_t virtual_size;
  std::uint32_t rva;
  std::uint32_t file_size;
  std::uint32_t file_offset;
  std::uint32_t relocations_offset, line_numbers_offset;
  std::uint16_t relocation_count, line_number_count;
  std::uint32_t characteristics;
};
static_assert(sizeof(SectionHeader) == 40);

struct DebugDirectory {  // "Debug Directory (Image Only)"
  std::uint32_t characteristics, timestamp;
  std::uint16_t major, minor;
  std::uint32_t type;
  std::uint32_t size;
  std::uint32_t rva;
  std::uint32_t file_offset;
};
static_assert(sizeof(DebugDirectory) == 28);
inline constexpr std::uint32_t kDebugCodeView = 2;
inline constexpr std::uint32_t kRsds = 0x5344'5352;

struct CodeViewRsds {  // followed by the NUL-terminated path
  std::uint32_t magic;
  std::uint32_t guid1;
  std::uint16_t guid2, guid3;
  std::uint8_t guid4[8];
  std::uint32_t age;
};
static_assert(sizeof(CodeViewRsds) == 24);

struct ExportDirectory {  // "Export Directory Table"
  std::uint32_t flags, timestamp;
  std::uint16_t major, minor;
  std::uint32_t name;
  std::uint32_t ordinal_base;
  std::uint32_t address_count;
  std::uint32_t name_count;
  std::uint32_t addresses, names, ordinals;
};
static_assert(sizeof(ExportDirectory) == 40);

struct ImportDescriptor {  // "Import Directory Table"
  std::uint32_t lookup_table;
  std::uint32_t timestamp, forwarder_chain;
  std::uint32_t name;
  std::uint32_t address_table;
};
static_assert(sizeof(ImportDescriptor) == 20);

#pragma pack(push, 1)
struct CoffLongName {
  std::uint32_t zeroes;  // 0: the name is in the string table
  std::uint32_t offset;
};
struct CoffSymbol {  // "COFF Symbol Table"
  union {
    char short_name[8];
    CoffLongName long_name;
  };
  std::uint32_t value;   // offset in its section
  std::int16_t section;  // 1-based; 0, -1, -2 are not in one
  std::uint16_t type;    // 0x20: a function
  std::uint8_t storage_class;
  std::uint8_t auxiliary_count;
};
#pragma pack(pop)
static_assert(sizeof(CoffSymbol) == 18);
inline constexpr std::uint16_t kFunctionType = 0x20;
inline constexpr std::uint8_t kExternal = 2, kStatic = 3;

// CHPEMetadataPointer of IMAGE_LOAD_CONFIG_DIRECTORY64 (winnt.h): not zero in ARM64EC and ARM64X images.
inline constexpr std::uint32_t kChpeMetadataAt = 0xc8;

// IMAGE_ARM64EC_METADATA (winnt.h; LLVM: chpe_metadata), as far as it says where code and its unwind information are.
struct Arm64EcMetadata {
  std::uint32_t version;  // 1 or 2
  std::uint32_t code_map;
  std::uint32_t code_map_count;
  std::uint32_t unused[13];
  std::uint32_t extra_functions;  // ExtraRFETable
  std::uint32_t extra_functions_size;
};
static_assert(sizeof(Arm64EcMetadata) == 72);
// IMAGE_CHPE_RANGE_ENTRY: the two low bits of the begin are the machine.
struct ChpeRange {
  std::uint32_t begin_and_machine;
  std::uint32_t size;
};

}  // namespace windlass::image::pe
