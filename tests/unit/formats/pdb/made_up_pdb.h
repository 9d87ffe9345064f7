// Small PDB files with one module and any symbols, for what no linker writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "formats/pdb/format.h"

namespace windlass::test {

using PdbBytes = std::vector<std::byte>;

template <typename T>
void append(PdbBytes& to, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(T));
}
inline void append_text(PdbBytes& to, const std::string& text) {
  for (const char letter : text) to.push_back(static_cast<std::byte>(letter));
  to.push_back(std::byte{0});
}
// A symbol or type record with its header, at a multiple of 4.
inline void append_record(PdbBytes& to, std::uint16_t kind, PdbBytes body) {
  while (body.size() % 4 != 0) body.push_back(std::byte{0});
  append(to, pdb::RecordHeader{static_cast<std::uint16_t>(body.size() + 2), kind});
  to.insert(to.end(), body.begin(), body.end());
}

class MadeUpPdb {
 public:
  static constexpr std::uint32_t kCode = 0x1000, kCodeSize = 0x1000;  // RVA of the only section
  static constexpr std::uint32_t kFirstType = 0x1000;

  PdbBytes symbols;                // of the module
  PdbBytes publics;                // records
  std::vector<std::uint32_t> map;  // where public symbols are, by address
  PdbBytes ids;                    // records of functions
  std::uint32_t id_count = 0;
  std::uint32_t modules = 1;  // with these symbols; each has the code of the same size
  bool scattered = false;     // the blocks of the module's stream are in the reverse order

  void add_procedure(const std::string& name) {
    PdbBytes body;
    append(body, pdb::ProcedureRecord{0, 0, 0, kCodeSize / modules, 0, 0, 0, 0, 1});
    body.resize(pdb::kProcedureName);
    append_text(body, name);
    append_record(symbols, static_cast<std::uint16_t>(pdb::SymbolKind::kGlobalProcedure), std::move(body));
  }
  // Inlined at the first 16 bytes of the procedure.
  void add_inlined(std::uint32_t id) {
    PdbBytes body;
    append(body, pdb::InlineSiteRecord{0, 0, id});
    for (const int annotation : {3, 0, 4, 16}) body.push_back(static_cast<std::byte>(annotation));  // at +0, 16 bytes
    append_record(symbols, static_cast<std::uint16_t>(pdb::SymbolKind::kInlineSite), std::move(body));
  }
  void add_public(const std::string& name, std::uint32_t flags, std::uint32_t offset) {
    map.push_back(static_cast<std::uint32_t>(publics.size()));
    PdbBytes body;
    append(body, pdb::PublicRecord{flags, offset, 1});
    body.resize(pdb::kPublicName);
    append_text(body, name);
    append_record(publics, static_cast<std::uint16_t>(pdb::SymbolKind::kPublic), std::move(body));
  }
  void add_function_id(const std::string& name) {
    PdbBytes body(8);
    append_text(body, name);
    append_record(ids, static_cast<std::uint16_t>(pdb::TypeKind::kFunctionId), std::move(body));
    ++id_count;
  }

  // Streams 5 to 8: the sections, public symbols and their map, the module.
  [[nodiscard]] PdbBytes bytes() const {
    PdbBytes module(4);  // a signature
    module.insert(module.end(), symbols.begin(), symbols.end());
    PdbBytes address_map;
    append(address_map, pdb::PublicsHeader{0, static_cast<std::uint32_t>(map.size() * 4), 0, 0, 0, 0, 0, 0});
    for (const std::uint32_t at : map) append(address_map, at);
    PdbBytes sections;
    append(sections, pdb::SectionHeader{".text", kCodeSize, kCode, kCodeSize, 0, 0, 0, 0, 0, 0x6000'0020});
    return container({{},
                      info(),
                      types({}, 0),
                      dbi(static_cast<std::uint32_t>(module.size())),
                      types(ids, id_count),
                      sections,
                      publics,
                      address_map,
                      module});
  }

 private:
  static constexpr std::uint32_t kBlock = 4096;

  static PdbBytes info() {
    PdbBytes to;
    append(to, pdb::InfoHeader{20000404, 1, 1, {}});
    for (int i = 0; i < 5; ++i) append(to, std::uint32_t{0});  // no named streams
    return to;
  }
  static PdbBytes types(const PdbBytes& records, std::uint32_t count) {
    PdbBytes to;
    pdb::TypeHeader header{};
    header.version = 20040203;
    header.header_size = sizeof header;
    header.first = kFirstType;
    header.end = kFirstType + count;
    header.records_size = static_cast<std::uint32_t>(records.size());
    header.hash_stream = header.hash_aux_stream = pdb::kNoStream;
    append(to, header);
    to.insert(to.end(), records.begin(), records.end());
    return to;
  }
  [[nodiscard]] PdbBytes dbi(std::uint32_t module_size) const {
    PdbBytes list, pieces;
    append(pieces, pdb::kContributionsV60);
    for (std::uint32_t i = 0; i < modules; ++i) {
      pdb::ModuleHeader module{};
      module.stream = 8;
      module.symbols_size = module_size;
      append(list, module);
      append_text(list, "m");
      append_text(list, "m");
      pdb::Contribution piece{};
      piece.section = 1;
      piece.size = kCodeSize / modules;
      piece.offset = i * piece.size;
      piece.characteristics = 0x6000'0020;
      piece.module = static_cast<std::uint16_t>(i);
      append(pieces, piece);
    }
    PdbBytes to;
    pdb::DbiHeader header{};
    header.signature = 0xffff'ffff;
    header.version = 19990903;
    header.globals_stream = pdb::kNoStream;
    header.publics_stream = 7;
    header.symbols_stream = 6;
    header.modules_size = static_cast<std::uint32_t>(list.size());
    header.contributions_size = static_cast<std::uint32_t>(pieces.size());
    header.debug_streams_size = 12;
    append(to, header);
    to.insert(to.end(), list.begin(), list.end());
    to.insert(to.end(), pieces.begin(), pieces.end());
    for (int i = 0; i < 5; ++i) append(to, pdb::kNoStream);
    append(to, std::uint16_t{5});
    return to;
  }

  // The first block is the header, the next has the blocks of the directory. The directory comes last.
  [[nodiscard]] PdbBytes container(const std::vector<PdbBytes>& streams) const {
    PdbBytes file(2 * std::size_t{kBlock}), directory;
    const auto blocks = [](std::size_t size) { return (size + kBlock - 1) / kBlock; };
    append(directory, static_cast<std::uint32_t>(streams.size()));
    for (const PdbBytes& stream : streams) append(directory, static_cast<std::uint32_t>(stream.size()));
    for (const PdbBytes& stream : streams) {
      const std::size_t first = file.size() / kBlock, count = blocks(stream.size());
      file.resize(file.size() + count * kBlock);
      const bool reverse = scattered && &stream == &streams.back();
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t block = first + (reverse ? count - 1 - i : i);
        append(directory, static_cast<std::uint32_t>(block));
        const std::size_t size = std::min<std::size_t>(kBlock, stream.size() - i * kBlock);
        std::memcpy(&file[block * kBlock], &stream[i * kBlock], size);
      }
    }
    for (std::size_t i = 0; i < blocks(directory.size()); ++i) {
      const auto block = static_cast<std::uint32_t>(file.size() / kBlock + i);
      std::memcpy(&file[kBlock + 4 * i], &block, 4);
    }
    const auto size = static_cast<std::uint32_t>(directory.size());
    file.insert(file.end(), directory.begin(), directory.end());
    file.resize(blocks(file.size()) * kBlock);
    const pdb::SuperBlock super{kBlock, 1, static_cast<std::uint32_t>(file.size() / kBlock), size, 0, 1};
    std::memcpy(file.data(), pdb::kMsfMagic.data(), pdb::kMsfMagic.size());
    std::memcpy(&file[pdb::kMsfMagic.size()], &super, sizeof super);
    return file;
  }
};

}  // namespace windlass::test
