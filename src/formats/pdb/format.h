// The structures of a PDB file as they are stored. Sources: microsoft-pdb (github.com/microsoft/microsoft-pdb), the
// headers cvinfo.h, dbi.h, gsi.h and msf.cpp there, and "The PDB File Format" (LLVM). Read with ByteView::at, which
// copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace windlass::pdb {

// Bytes of a name; longer ones are cut.
inline constexpr std::size_t kLongestName = 4096;

// The container, msf.cpp.
inline constexpr std::string_view kMsfMagic(
    "Microsoft C/C++ MSF 7.00\r\n\x1a"
    "DS\0\0\0",
    32);
inline constexpr std::string_view kOldMsfMagic("Microsoft C/C++ program database 2.00");
inline constexpr std::string_view kCompressedMagic("Microsoft MSFZ Container");
inline constexpr std::string_view kPortableMagic("BSJB");  // ECMA-335, II.24.2.1

struct SuperBlock {  // after the magic
  std::uint32_t block_size;
  std::uint32_t free_block_map;
  std::uint32_t block_count;
  std::uint32_t directory_size;
  std::uint32_t reserved;
  std::uint32_t directory_map;  // the block with the numbers of the directory's blocks
};

// Streams of fixed numbers.
inline constexpr std::uint32_t kInfoStream = 1, kTypeStream = 2, kDbiStream = 3, kIdStream = 4;
inline constexpr std::uint16_t kNoStream = 0xffff;

struct InfoHeader {
  std::uint32_t version, signature, age;
  std::uint8_t guid[16];
};
static_assert(sizeof(InfoHeader) == 28);
inline constexpr std::uint32_t kMinimalDebugInfo = 0x494e'494d;  // a feature: "MINI", of /DEBUG:FASTLINK
inline constexpr std::uint32_t kStringTableSignature = 0xeffe'effe;

struct DbiHeader {
  std::uint32_t signature, version, age;
  std::uint16_t globals_stream, build_number, publics_stream, dll_version, symbols_stream, dll_build;
  std::uint32_t modules_size, contributions_size, section_map_size, files_size, type_servers_size, mfc_index;
  std::uint32_t debug_streams_size, edit_names_size;
  std::uint16_t flags, machine;
  std::uint32_t padding;
};
static_assert(sizeof(DbiHeader) == 64);
// Indexes into the "optional debug header", the streams of which the end of the DBI stream lists.
inline constexpr std::size_t kOmapFromSource = 4, kSectionHeaders = 5;

struct ModuleHeader {
  std::uint32_t unused;
  std::uint8_t contribution[28];
  std::uint16_t flags, stream;
  std::uint32_t symbols_size, c11_size, c13_size;
  std::uint16_t file_count, padding;
  std::uint32_t unused2, source_name, pdb_name;
};
static_assert(sizeof(ModuleHeader) == 64);

inline constexpr std::uint32_t kContributionsV60 = 0xeffe'0000 + 19970605, kContributionsV2 = 0xeffe'0000 + 20140516;
struct Contribution {
  std::uint16_t section, padding;
  std::uint32_t offset, size, characteristics;
  std::uint16_t module, padding2;
  std::uint32_t data_checksum, relocation_checksum;
};
static_assert(sizeof(Contribution) == 28);

struct SectionHeader {  // IMAGE_SECTION_HEADER
  char name[8];
  std::uint32_t virtual_size, rva, file_size, file_offset, relocations, line_numbers;
  std::uint16_t relocation_count, line_number_count;
  std::uint32_t characteristics;
};
static_assert(sizeof(SectionHeader) == 40);

struct PublicsHeader {  // PSGSIHDR
  std::uint32_t hash_size, address_map_size;
  std::uint32_t thunk_count, thunk_size;
  std::uint16_t thunk_section, padding;
  std::uint32_t thunk_offset, section_count;
};
static_assert(sizeof(PublicsHeader) == 28);

struct TypeHeader {
  std::uint32_t version, header_size, first, end, records_size;
  std::uint16_t hash_stream, hash_aux_stream;
  std::uint32_t hash_key_size, bucket_count;
  std::uint32_t hash_values_offset, hash_values_size;
  std::uint32_t index_offsets_offset, index_offsets_size;
  std::uint32_t hash_adjust_offset, hash_adjust_size;
};
static_assert(sizeof(TypeHeader) == 56);

// Symbol records: SYM_ENUM_e of cvinfo.h. The names follow the structures.
enum class SymbolKind : std::uint16_t {
  kEnd = 0x0006,
  kThunk = 0x1102,
  kBlock = 0x1103,
  kPublic = 0x110e,
  kLocalProcedure = 0x110f,
  kGlobalProcedure = 0x1110,
  kSeparatedCode = 0x1132,
  kLocalProcedureId = 0x1146,
  kGlobalProcedureId = 0x1147,
  kInlineSite = 0x114d,
  kInlineSiteEnd = 0x114e,
  kProcedureIdEnd = 0x114f,
  kLocalProcedureDpc = 0x1155,
  kLocalProcedureDpcId = 0x1156,
  kInlineSite2 = 0x115d,
};

struct RecordHeader {
  std::uint16_t size;  // of what follows this member
  std::uint16_t kind;
};

struct ProcedureRecord {  // PROCSYM32
  std::uint32_t parent, end, next, size, debug_begin, debug_end, type, offset;
  std::uint16_t section;
};
inline constexpr std::size_t kProcedureName = 35;  // with a byte of flags

struct ThunkRecord {  // THUNKSYM32
  std::uint32_t parent, end, next, offset;
  std::uint16_t section, size;
};
inline constexpr std::size_t kThunkName = 21;  // with a byte of its kind

struct SeparatedCodeRecord {  // SEPCODESYM
  std::uint32_t parent, end, size, flags, offset, parent_offset;
  std::uint16_t section, parent_section;
};
static_assert(sizeof(SeparatedCodeRecord) == 28);

struct InlineSiteRecord {  // INLINESITESYM, before the annotations
  std::uint32_t parent, end, inlinee;
};

struct PublicRecord {  // PUBSYM32
  std::uint32_t flags, offset;
  std::uint16_t section;
};
inline constexpr std::size_t kPublicName = 10;
inline constexpr std::uint32_t kPublicCode = 1, kPublicFunction = 2;

// Type records: LEAF_ENUM_e of cvinfo.h.
enum class TypeKind : std::uint16_t {
  kClass = 0x1504,
  kStructure = 0x1505,
  kUnion = 0x1506,
  kEnum = 0x1507,
  kInterface = 0x1519,
  kFunctionId = 0x1601,
  kMemberFunctionId = 0x1602,
  kStringId = 0x1605,
};

// Sub-sections of a module's lines: DEBUG_S_SUBSECTION_TYPE.
inline constexpr std::uint32_t kLines = 0xf2, kFileChecksums = 0xf4, kInlineeLines = 0xf6;
inline constexpr std::uint32_t kCrossScopeImports = 0xf7, kCrossScopeExports = 0xf8;

struct LinesHeader {
  std::uint32_t offset;
  std::uint16_t section, flags;
  std::uint32_t size;
};
inline constexpr std::uint16_t kHasColumns = 1;

struct LineBlock {
  std::uint32_t file, count, size;
};

struct LineRecord {
  std::uint32_t offset, line_and_flags;
};
// "Never step into" and "always step into": no lines of a file.
inline constexpr std::uint32_t kLineMask = 0xff'ffff, kNeverStep = 0xfe'efee, kAlwaysStep = 0xf0'0f00;

}  // namespace windlass::pdb
