#include "cli/pdb_options.h"

#include <set>

#include <fmt/format.h>

#include "cli/parsing.h"
#include "cli/say.h"

namespace windlass::cli {

void add_pdb_options(CLI::App& command, PdbSearch& to) {
  command.add_option("--pdb", to.files, "a PDB file of a Windows image (repeatable)")
      ->type_name("FILE")
      ->check(readable_file())
      ->allow_extra_args(false);
  command
      .add_option("--symbol-path", to.symbol_path,
                  "folders of PDB files, as srv*DIR or DIR;DIR; servers are not asked [$_NT_SYMBOL_PATH]")
      ->type_name("PATH");
}

void say_notes(std::span<const std::string> notes) {
  for (const std::string& note : std::set<std::string>(notes.begin(), notes.end())) say("windlass: {}\n", note);
}

}  // namespace windlass::cli
