// windlass store: databases of ClickHouse that take the samples of many machines.
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/durations.h"
#include "cli/store_admin.h"

namespace windlass::cli {

void register_store(CLI::App& app, int& status) {
  auto arguments = std::make_shared<StoreAdmin>();
  CLI::App* command = app.add_subcommand("store", "make or prune a ClickHouse database for samples of many machines");
  command
      ->add_option(
          "ACTION", arguments->action,
          "create: make the database and the tables that are not there; prune: delete whole days that are too old")
      ->required()
      ->check(CLI::IsMember({"create", "prune"}))
      ->type_name("create|prune");
  command
      ->add_option("URL", arguments->url,
                   "the database, windlass unless named; clickhouses:// with TLS: "
                   "clickhouse://[USER:PASSWORD@]HOST[:8123][,HOST...][/DATABASE]")
      ->required()
      ->check([](const std::string& text) { return problem_of_store_url(text); })
      ->type_name("URL");
  add_duration(*command, "--keep", arguments->keep, "older samples are deleted (30d)");
  command
      ->add_option("--cluster", arguments->cluster,
                   "create: make replicated tables on all servers of this cluster, of the servers' configuration")
      ->check([](const std::string& text) { return problem_of_cluster(text); })
      ->type_name("NAME");
  command->callback([arguments, &status] {
    status = arguments->action == "create" ? create_store(*arguments) : prune_store(*arguments);
  });
}

}  // namespace windlass::cli
