// windlass rows: the subcommand.
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/rows.h"

namespace windlass::cli {

void register_rows(CLI::App& app, int& status) {
  auto options = std::make_shared<ListingOptions>();
  CLI::App* command = app.add_subcommand("rows", "The rows the unwind information of a file lowers to");
  auto count = std::make_shared<bool>(false);
  CLI::Option* json = command->add_flag("--json", options->json, "One JSON object a line");
  command->add_flag("--count", *count, "Only how many rows each section has")->excludes(json);
  command->add_option("FILE", options->file, "An ELF or PE file")->required()->type_name("FILE");
  command->callback([options, count, &status] { status = list_file(*options, *count ? count_rows : list_rows); });
}

}  // namespace windlass::cli
