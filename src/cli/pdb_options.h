// The options that say where PDB files of Windows images are: the same for each command that names addresses.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace windlass::cli {

struct PdbSearch {
  std::vector<std::string> files;
  std::string symbol_path;

  [[nodiscard]] bool wanted() const { return !files.empty() || !symbol_path.empty(); }
};

void add_pdb_options(CLI::App& command, PdbSearch& to);

// Says each note once: why names are missing.
void say_notes(std::span<const std::string> notes);

}  // namespace windlass::cli
