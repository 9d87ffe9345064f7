// windlass symbols: the command line.
#include "cli/symbols.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace windlass::cli {

void register_symbols(CLI::App& app, int& status) {
  auto arguments = std::make_shared<SymbolsArguments>();
  CLI::App* command =
      app.add_subcommand("symbols", "write symbol files of programs, and put them where stripped ones get names");
  command
      ->add_option("ACTION", arguments->action,
                   "write: make symbol files. push: put them into a store, or a folder. list: what is there")
      ->required()
      ->check(CLI::IsMember({"write", "push", "list"}));
  command
      ->add_option("FILE", arguments->files,
                   "programs, libraries, debug files, PDB files, symbol files (.wlsym), and folders of them; of list: "
                   "stores and folders")
      ->required()
      ->type_name("FILE");
  command->add_option("-o,--output", arguments->output, "write: the folder for symbol files")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--to", arguments->to, "push: a store of windlass agent, or a folder")->type_name("STORE");
  command->add_flag("--json", arguments->json, "list: one JSON object a symbol file");
  command->callback([arguments, &status] { status = run_symbols(*arguments); });
}

}  // namespace windlass::cli
