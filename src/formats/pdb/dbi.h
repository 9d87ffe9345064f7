// The DBI stream: which object file each piece of code came from, and where the other tables are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/pdb/format.h"
#include "formats/pdb/msf.h"
#include "windlass/function_ref.h"

namespace windlass::pdb {

// An object file of the program, in the words of the format a module.
struct ModuleInfo {
  std::uint16_t stream = kNoStream;  // kNoStream: nothing is known of it
  std::uint32_t symbols_size = 0;    // with 4 bytes of a signature
  std::uint32_t c11_size = 0, c13_size = 0;
  std::uint32_t name_at = 0;  // in the DBI stream
};

struct SectionOffset {
  std::uint16_t section = 0;  // from 1
  std::uint32_t offset = 0;
  friend auto operator<=>(const SectionOffset&, const SectionOffset&) = default;
};

class Dbi {
 public:
  // Reads the lists of modules and sections. Errors: kUnsupported for a PDB with addresses that were
  // changed after the link (OMAP), or without sections. kMalformed, kOutOfRange.
  [[nodiscard]] static Expected<Dbi> read(const MsfFile& file);

  [[nodiscard]] const DbiHeader& header() const { return header_; }
  [[nodiscard]] std::span<const ModuleInfo> modules() const { return modules_; }
  // The path of the object file.
  [[nodiscard]] std::string name_of(const ModuleInfo& module) const { return stream_.string_at(module.name_at); }
  // The module that the code at a place belongs to. Linkers sort the list of all code: a search in the file finds the
  // place. The first place that is not found costs a reading of the whole list.
  [[nodiscard]] std::optional<std::uint32_t> module_at(SectionOffset place);
  // Where the piece of code begins that holds a place: what the linker took as one from an object file. As module_at().
  [[nodiscard]] std::optional<SectionOffset> piece_at(SectionOffset place);
  // Begin and end of each piece of code, in no order.
  void each_piece(FunctionRef<void(SectionOffset)> add);

  // Between RVAs and places. None: in no section.
  [[nodiscard]] std::optional<SectionOffset> place_of(std::uint32_t rva) const;
  [[nodiscard]] std::optional<std::uint32_t> rva_of(SectionOffset place) const;

 private:
  struct Piece {
    SectionOffset begin;
    std::uint32_t size;
    std::uint16_t module;
    bool code;

    [[nodiscard]] bool contains(SectionOffset place) const {
      return code && begin.section == place.section && place.offset - begin.offset < size;
    }
  };
  struct Section {
    std::uint32_t rva, size;
  };
  Expected<void> read_modules(const Stream& stream);
  Expected<void> find_pieces();
  [[nodiscard]] std::optional<Piece> stored_piece(std::uint32_t index) const;
  [[nodiscard]] std::optional<Piece> search_stored(SectionOffset place) const;
  void read_pieces();
  [[nodiscard]] std::optional<Piece> find_piece(SectionOffset place);
  Expected<void> read_sections(const MsfFile& file, const Stream& stream);

  Stream stream_;
  DbiHeader header_{};
  std::vector<ModuleInfo> modules_;
  std::uint64_t pieces_at_ = 0;  // in the stream
  std::uint32_t piece_size_ = 0, piece_count_ = 0;
  std::optional<std::vector<Piece>> pieces_;  // of code, ascending; none: not needed yet
  std::vector<Section> sections_;
};

}  // namespace windlass::pdb
