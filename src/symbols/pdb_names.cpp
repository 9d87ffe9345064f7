#include "symbols/pdb_names.h"

namespace windlass::symbols {

bool name_by_pdb(pdb::PdbFile& file, std::size_t index, std::uint32_t rva, bool lines, ModuleNames& names) {
  const auto procedure = file.procedure_at(rva, lines);
  if (!procedure) return false;
  names.begins[index] = procedure->begin;
  for (const pdb::NamedCode& frame : procedure->frames) {
    // A line counts in the file of the code, which may be another than where the function begins.
    const bool same_file = frame.file.empty() || frame.file == frame.function_file;
    const std::uint32_t function = names.function(frame.function, frame.file.empty() ? frame.function_file : frame.file,
                                                  same_file ? frame.function_line : 0);
    names.add_line(index, {function, frame.line});
  }
  return true;
}

bool name_by_public(pdb::PdbFile& file, std::size_t index, std::uint32_t rva, ModuleNames& names) {
  const auto symbol = file.public_of_piece(rva);
  if (!symbol) return false;
  names.begins[index] = symbol->rva;
  names.add_line(index, {names.function(symbol->name, {}, 0), 0});
  return true;
}

}  // namespace windlass::symbols
