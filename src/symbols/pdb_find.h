// The PDB file of a PE image: given, beside the image, or in a symbol path. Local files only: a symbol server is never
// asked. Files are opened so that nobody waits for a file that does not answer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/pdb/pdb.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

// What the image says of its PDB file.
struct WantedPdb {
  std::string identity;             // PeImage::build_id()
  std::string name;                 // of the file, without folders
  std::string recorded;             // the linker's path; used if it is one of this system
  std::vector<std::string> images;  // paths that lead to the image
};

// The elements of a symbol path: folders, and the servers that are not asked. "srv*FOLDER*https://HOST;FOLDER".
struct SymbolPath {
  std::vector<std::string> folders, servers;
};
[[nodiscard]] SymbolPath parse_symbol_path(std::string_view text);

struct OpenPdb {
  MappedFile file;
  pdb::PdbFile pdb;  // a view of `file`
};

// Null if there is none with the image's identity. Then `note` is a sentence about a file that was refused or a server
// that was not asked. Otherwise about a file that was given and is not used. Empty: there is nothing to say.
[[nodiscard]] std::unique_ptr<OpenPdb> find_pdb(const WantedPdb& wanted, const SymbolizeOptions& options,
                                                std::string& note);

}  // namespace windlass::symbols
