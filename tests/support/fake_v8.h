// A V8 made up in memory: its file, whose symbols have the offsets of its objects' fields, and a heap with the
// optimised code of a function that has another one inlined.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/made_up_memory.h"

namespace windlass::test::fake_v8 {

inline constexpr std::uint64_t kBase = 0x100000;
inline constexpr std::size_t kSize = 0x4000;
inline constexpr std::uint64_t kMaps = kBase, kSource = kBase + 0x400, kScript = kBase + 0x600;
inline constexpr std::uint64_t kScope = kBase + 0x700, kShared = kBase + 0x800, kFunction = kBase + 0x880;
inline constexpr std::uint64_t kData = kBase + 0x900, kTables = kBase + 0xa00, kCode = kBase + 0xc00;
inline constexpr std::uint64_t kBytecodes = kBase + 0xd00, kStack = kBase + 0xf00, kInstructions = kBase + 0x1000;
// WebAssembly: the variable, what it points to, a module's ranges and code, its bytes.
inline constexpr std::uint64_t kWasmVariable = kBase + 0x2000, kWasmState = kBase + 0x2100;
inline constexpr std::uint64_t kWasmNodes = kBase + 0x2800, kWasmModule = kBase + 0x2a00, kWasmObjects = kBase + 0x3100;
inline constexpr std::uint64_t kWasmNew = kBase + 0x3300, kWasmBytes = kBase + 0x3400, kWasmJumps = kBase + 0x3000;
inline constexpr std::uint64_t kWasmCode = kBase + 0x3040, kWasmNewCode = kBase + 0x3080, kWasmShared = kBase + 0x30c0;

enum Type : std::uint16_t {
  kText = 40,
  kMap = 300,
  kScopeType,
  kSharedType,
  kScriptType,
  kArray,
  kBytes,
  kStream,
  kCodeType,
  kBytecodeArray,
  kInterpreterData,
  kWeakArray,
  kContainer
};

// "class_Map__instance_type__uint16_t" and the number that it has.
using Facts = std::vector<std::pair<std::string, std::int32_t>>;
inline Facts facts() {
  return {{"class_Map__instance_type__x", 12},
          {"class_JSFunction__shared__x", 24},
          {"class_SharedFunctionInfo__name_or_scope_info__x", 16},
          {"class_SharedFunctionInfo__script__x", 24},
          {"class_Script__name__x", 16},
          {"class_Script__source__x", 8},
          {"class_FixedArrayBase__length__x", 8},
          {"class_FixedArray__data__x", 16},
          {"class_BytecodeArray__data__x", 64},
          {"scopeinfo_idx_first_vars", 3},
          {"scopeinfo_idx_ncontextlocals", 2},
          {"off_fp_context_or_frame_type", -8},
          {"off_fp_function", -16},
          {"off_fp_bytecode_array", -32},
          {"off_fp_bytecode_offset", -40},
          {"CodeKindFieldMask", 15},
          {"CodeKindBaseline", 9},
          {"DeoptimizationDataInlinedFunctionCountIndex", 1},
          {"DeoptimizationDataLiteralArrayIndex", 2},
          {"DeoptimizationDataInliningPositionsIndex", 3},
          {"DeoptimizationDataSharedFunctionInfoIndex", 4},
          {"class_String__length__x", 12},
          {"class_SeqOneByteString__chars__x", 16},
          {"class_SeqTwoByteString__chars__x", 16},
          {"class_ConsString__first__x", 16},
          {"class_ConsString__second__x", 24},
          {"class_SlicedString__parent__x", 16},
          {"class_SlicedString__offset__x", 24},
          {"class_ThinString__actual__x", 16},
          {"class_ExternalString__resource__x", 16},
          {"StringRepresentationMask", 7},
          {"StringEncodingMask", 8},
          {"OneByteStringTag", 8},
          {"ConsStringTag", 1},
          {"ExternalStringTag", 2},
          {"SlicedStringTag", 3},
          {"ThinStringTag", 5},
          {"FirstNonstringType", 128},
          {"type_Map__MAP_TYPE", kMap},
          {"type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE", kSharedType},
          {"type_Script__SCRIPT_TYPE", kScriptType},
          {"type_ScopeInfo__SCOPE_INFO_TYPE", kScopeType},
          {"type_BytecodeArray__BYTECODE_ARRAY_TYPE", kBytecodeArray},
          {"type_Code__CODE_TYPE", kCodeType},
          {"type_InstructionStream__INSTRUCTION_STREAM_TYPE", kStream},
          {"type_InterpreterData__INTERPRETER_DATA_TYPE", kInterpreterData},
          {"type_ByteArray__BYTE_ARRAY_TYPE", kBytes},
          {"type_FixedArray__FIXED_ARRAY_TYPE", kArray},
          {"type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE", kWeakArray},
          {"TaggedSize", 8},
          {"SmiShiftSize", 31},
          {"SmiValueShift", 1},
          {"SmiTagMask", 1},
          {"class_Code__instruction_start__x", 32},
          {"class_Code__instruction_size__x", 44},
          {"class_Code__flags__x", 40},
          {"class_Code__instruction_stream__x", 24}};
}

// Those of V8 10, whose Code holds the instructions.
inline Facts facts_in_one_piece() {
  Facts all = facts();
  std::erase_if(all, [](const auto& fact) {
    return fact.first.starts_with("Deoptimization") || fact.first.starts_with("class_Code__") ||
           fact.first.ends_with("INSTRUCTION_STREAM_TYPE");
  });
  all.insert(all.end(), {{"_ZN2v88internal7Version6major_E", 10},
                         {"type_CodeDataContainer__CODE_DATA_CONTAINER_TYPE", kContainer},
                         {"class_Code__instruction_start__x", 128},
                         {"class_Code__instruction_size__x", 40},
                         {"class_Code__flags__x", 48}});
  return all;
}

// An ELF file of nothing but a table of symbols and the numbers that they name; `sizes`: of bytecodes.
inline std::vector<std::byte> file_of(const Facts& facts, std::string_view sizes = {}) {
  std::string names(1, '\0');
  std::vector<std::int32_t> values;
  std::vector<Elf64_Sym> symbols(1);
  const std::size_t at = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 3 * sizeof(Elf64_Shdr);
  for (const auto& [name, value] : facts) {
    Elf64_Sym& symbol = symbols.emplace_back();
    symbol.st_name = static_cast<std::uint32_t>(names.size());
    symbol.st_shndx = 1;
    symbol.st_value = at + values.size() * 4;
    symbol.st_size = 4;
    names += (name.starts_with("_Z") ? "" : "v8dbg_") + name + '\0';
    values.push_back(value);
  }
  const std::size_t sizes_at = at + values.size() * 4;
  if (!sizes.empty()) {
    Elf64_Sym& symbol = symbols.emplace_back();
    symbol.st_name = static_cast<std::uint32_t>(names.size());
    symbol.st_shndx = 1, symbol.st_value = sizes_at, symbol.st_size = sizes.size();
    names += std::string("_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE") + '\0';
  }
  const std::size_t table = (sizes_at + sizes.size() + 7) / 8 * 8, text = table + symbols.size() * sizeof(Elf64_Sym);
  std::vector<std::byte> file(text + names.size());
  const auto put = [&](std::size_t to, const void* from, std::size_t size) {
    if (size != 0) std::memcpy(file.data() + to, from, size);
  };
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB, header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC, header.e_machine = EM_X86_64, header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header, header.e_phoff = sizeof header, header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1, header.e_shoff = sizeof header + sizeof(Elf64_Phdr), header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD, segment.p_flags = PF_R, segment.p_filesz = segment.p_memsz = file.size();
  Elf64_Shdr sections[3]{};
  sections[1].sh_type = SHT_SYMTAB, sections[1].sh_link = 2, sections[1].sh_offset = table;
  sections[1].sh_size = symbols.size() * sizeof(Elf64_Sym), sections[1].sh_entsize = sizeof(Elf64_Sym);
  sections[2].sh_type = SHT_STRTAB, sections[2].sh_offset = text, sections[2].sh_size = names.size();
  put(0, &header, sizeof header), put(sizeof header, &segment, sizeof segment);
  put(header.e_shoff, sections, sizeof sections), put(at, values.data(), values.size() * 4);
  put(sizes_at, sizes.data(), sizes.size());
  put(table, symbols.data(), symbols.size() * sizeof(Elf64_Sym)), put(text, names.data(), names.size());
  return file;
}

class FakeMemory final : public MadeUpMemory {
 public:
  FakeMemory() : MadeUpMemory(kBase, kSize) {}
  // The map of a type; its instance type is at 12.
  std::uint64_t map(std::uint16_t type) {
    const std::uint64_t at = kMaps + (type == kMap ? 0u : type % 16u + 1u) * 32u;
    put(at, kMaps + 1), put(at + 12, type);
    return at + 1;
  }
  void put_object(std::uint64_t at, std::uint16_t type, std::initializer_list<std::uint64_t> words) {
    put(at, map(type));
    for (const std::uint64_t word : words) put(at += 8, word);
  }
  void put_text(std::uint64_t at, std::string_view text) {
    put_object(at, kText, {std::uint64_t{text.size()} << 32});
    put_bytes(at + 16, text);
  }
};
constexpr std::uint64_t number(std::uint32_t value) { return std::uint64_t{value} << 32; }

// A std::map of libstdc++ with one node: its header, the node, the key and what stands behind it.
inline void put_map(FakeMemory& memory, std::uint64_t header, std::uint64_t node,
                    std::initializer_list<std::uint64_t> words) {
  memory.put(header + 8, node), memory.put(header + 16, node), memory.put(header + 24, node);
  memory.put(header + 32, std::uint64_t{1}), memory.put(node + 8, header);
  std::uint64_t at = node + 32;
  for (const std::uint64_t word : words) memory.put(at, word), at += 8;
}
// As V8 13 has it; a number below 0: no function's.
inline std::uint64_t put_wasm_code(FakeMemory& memory, unsigned number, std::uint64_t module, std::uint64_t begin,
                                   std::int32_t index) {
  const std::uint64_t at = kWasmObjects + number * 0x40;
  memory.put(at, module), memory.put(at + 8, begin), memory.put(at + 32, std::uint32_t{64}), memory.put(at + 56, index);
  return at;
}
// A module "m" that imports a function and has "f", exported as "x", which is sorted in, and one that is not yet.
inline void put_wasm(FakeMemory& memory) {
  constexpr std::uint64_t kEnd = kWasmShared;
  memory.put(kWasmVariable, kWasmState);
  put_map(memory, kWasmState + 0x28, kWasmNodes, {kWasmJumps, kEnd, kWasmModule});
  put_map(memory, kWasmState + 0xa8, kWasmNodes + 0x40, {kWasmShared, put_wasm_code(memory, 3, 0, kWasmShared, -1)});
  const std::uint64_t code = put_wasm_code(memory, 0, kWasmModule, kWasmCode, 1);
  put_map(memory, kWasmModule + 0x140, kWasmNodes + 0x80, {kWasmCode, code});
  const std::uint64_t jumps = kWasmNodes + 0xc0;  // left of it
  memory.put(kWasmNodes + 0x80 + 16, jumps), memory.put(jumps + 8, kWasmNodes + 0x80);
  memory.put(jumps + 32, kWasmJumps), memory.put(jumps + 40, put_wasm_code(memory, 1, kWasmModule, kWasmJumps, -1));
  memory.put(kWasmModule + 0x168, kWasmNew), memory.put(kWasmModule + 0x170, kWasmNew + 8);
  memory.put(kWasmNew, put_wasm_code(memory, 2, kWasmModule, kWasmNewCode, 2));
  const std::string_view bytes(
      "\0asm\1\0\0\0"
      "\2\7\1\1e\1j\0\0"
      "\7\5\1\1x\0\1"
      "\0\17\4name\0\2\1m\1\4\1\1\1f",
      8 + 9 + 7 + 17);
  memory.put(kWasmModule + 0xf0, kWasmModule + 0x200);
  memory.put(kWasmModule + 0x200, kWasmBytes), memory.put(kWasmModule + 0x208, std::uint64_t{bytes.size()});
  memory.put_bytes(kWasmBytes, bytes);
  memory.put_bytes(kWasmJumps, {"\x68\x01\0\0\0\xe9\0\0\0\0\x68\x02\0\0\0\xe9\0\0\0\0", 20});
  // It has its frame behind the call.
  memory.put_bytes(kWasmCode, {"\x45\x31\xe4\xe8\0\0\0\0\x90\x48\x89\xec\x5d\xc3", 14});
}

inline FakeMemory make() {
  FakeMemory memory;
  put_wasm(memory);
  (void)memory.map(kMap);
  memory.put_text(kSource, "let a;\nfunction f() {\n  return 1;\n}\n");
  memory.put_text(kSource + 0x80, "/a.js"), memory.put_text(kSource + 0xc0, "f");
  memory.put_object(kScript, kScriptType, {kSource + 1, kSource + 0x81});
  memory.put_object(kScope, kScopeType,
                    {number(0), number(0), number(1), kSource + 0x81, number(0), kSource + 0xc1, number(0), number(17),
                     number(36), kScript + 1});
  memory.put_object(kShared, kSharedType, {kBytecodes + 1, kScope + 1, kScript + 1});
  memory.put_object(kFunction, kText, {0, 0, kShared + 1});
  memory.put_object(kData, kArray, {number(6), 0, 0, kData + 0x81, kTables + 0x81, kShared + 1, 0});
  memory.put_object(kData + 0x80, kArray, {number(1), kShared + 1});  // literals
  // Code 0, position 20, inlined; code 4, position 26.
  memory.put_object(kTables, kBytes, {number(12)});
  memory.put_bytes(kTables + 16, "\x02\xd4\x80\x80\x80\x10\x08\xe7\xff\xff\xff\x0f");
  memory.put_object(kTables + 0x80, kBytes, {number(16), 2 * 21, 0});
  memory.put_object(kCode, kCodeType, {kTables + 1, kData + 1, kInstructions - 15, kInstructions});
  memory.put(kCode + 8, kData + 1), memory.put(kCode + 16, kTables + 1);
  memory.put(kCode + 40, std::uint32_t{11}), memory.put(kCode + 44, std::uint32_t{16});
  memory.put_object(kInstructions - 16, kStream, {});
  memory.put(kInstructions - 8, kCode + 1);
  memory.put_object(kBytecodes, kBytecodeArray, {number(4), kTables + 1});
  memory.put_bytes(kInstructions, "\x55\x48\x89\xe5\x56\x57\x90\x90\x48\x89\xec\x5d\xc3\xcc\xcc\xcc");
  // A frame of the interpreter's.
  memory.put(kStack - 8, kFunction + 1), memory.put(kStack - 16, kFunction + 1);
  memory.put(kStack - 32, kBytecodes + 1), memory.put(kStack - 40, number(64));
  return memory;
}

// A Code of V8 10 in front of the instructions, and the data for deoptimisation in V8 10's order.
inline void put_in_one_piece(FakeMemory& memory, std::uint64_t data = kData + 1, std::uint32_t kind = 11) {
  constexpr std::uint64_t kObject = kInstructions - 128;
  memory.put_object(kCode, kContainer, {});
  memory.put_object(kObject, kCodeType, {kTables + 0x81, data, kTables + 1, kCode + 1});
  memory.put(kObject + 40, std::uint32_t{16}), memory.put(kObject + 48, kind);
  memory.put_object(kData, kArray, {number(8), 0, 0, kData + 0x81, 0, 0, 0, kShared + 1, kTables + 0x81});
}

}  // namespace windlass::test::fake_v8
