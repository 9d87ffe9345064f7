// Names in a PDB file: procedures with their inlined calls, files and lines, and public symbols. Reads hostile bytes
// where they lie: opening reads only lists of streams, modules and sections, and an address reads its module.
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/pdb/dbi.h"
#include "formats/pdb/info.h"
#include "formats/pdb/module.h"
#include "formats/pdb/msf.h"
#include "formats/pdb/publics.h"
#include "formats/pdb/types.h"

namespace windlass::pdb {

struct NamedCode {
  std::string function;  // as the compiler writes it, without parameters
  std::string file;      // of the code; empty: not known
  std::uint32_t line = 0;
  std::string function_file;  // where the function begins
  std::uint32_t function_line = 0;
};

// The procedure at an address.
struct NamedProcedure {
  std::uint32_t begin = 0;        // RVA
  std::vector<NamedCode> frames;  // the innermost inlined call first, last the procedure
};

class PdbFile {
 public:
  // A view of the bytes, which must outlive it. Errors have a sentence: other kinds of PDB files, /DEBUG:FASTLINK,
  // damaged ones.
  [[nodiscard]] static Expected<PdbFile> parse(ByteView bytes);

  // As image::PeImage::build_id(). Reads less than parse(), so of FASTLINK files, too. The same errors.
  [[nodiscard]] static Expected<std::string> identity_of(ByteView bytes);
  // `lines`: with inlined calls, files and lines. None: no procedure is known there.
  [[nodiscard]] std::optional<NamedProcedure> procedure_at(std::uint32_t rva, bool lines);
  struct Symbol {
    std::uint32_t rva;
    std::string name;
  };
  // The last public symbol at or before an address, in the code of the same module. Not the symbol of a procedure that
  // ends before the address. `any`: also symbols that are not marked as code, for example those of assembly.
  [[nodiscard]] std::optional<Symbol> public_before(std::uint32_t rva, bool any);
  // As public_before() of any symbol, without an image that bounds functions: the linker took the symbol and the
  // address as one piece of code from an object file. A function of that piece that has no symbol gets the name of the
  // one before.
  [[nodiscard]] std::optional<Symbol> public_of_piece(std::uint32_t rva);
  // Each RVA at which procedure_at() or a public symbol may have another answer, in no order, some more than once.
  void each_rva(FunctionRef<void(std::uint32_t)> add);
  // So much was read that addresses get no inlined calls any more.
  [[nodiscard]] bool is_spent() const { return scanned_ > kMostScanned; }

 private:
  PdbFile(MsfFile file, const Info& info, Dbi dbi);
  // Null: it cannot be read.
  std::shared_ptr<const Module> module(std::uint32_t index);
  std::optional<std::uint32_t> module_named(const std::string& name);
  void add_inlined(const Module& module, const Procedure& procedure, SectionOffset place, NamedProcedure& to);
  const std::string& inlined_name(const Module& module, std::uint32_t id);
  [[nodiscard]] std::string imported_name(const Module& module, std::uint32_t id);
  // Is the code at a place another's than that at a symbol before it?
  [[nodiscard]] bool is_of_other_code(SectionOffset symbol, SectionOffset place);
  [[nodiscard]] std::string path_of(const Module& module, std::uint32_t file) const;

  // Bytes of modules that are kept. More, and all are read anew.
  static constexpr std::size_t kMostKept = std::size_t{256} << 20;
  // Bytes of records that are read for inlined calls, in some seconds.
  static constexpr std::uint64_t kMostScanned = std::uint64_t{4} << 30;

  MsfFile file_;
  Dbi dbi_;
  Publics publics_;
  TypeStream types_, ids_;
  Stream names_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const Module>> modules_;  // those that were needed
  std::unordered_map<std::string, std::uint32_t> modules_by_name_;            // in lower case; made when needed
  std::unordered_map<std::uint32_t, std::string> names_of_ids_;
  std::unordered_map<const Module*, std::unordered_map<std::uint32_t, std::string>> imported_names_;
  std::size_t kept_ = 0;
  std::uint64_t scanned_ = 0;
};

}  // namespace windlass::pdb
