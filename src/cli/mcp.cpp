// windlass mcp: profiles and live processes for programs that speak the Model Context Protocol.
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/mcp_child.h"
#include "cli/mcp_session.h"
#include "cli/say.h"

namespace windlass::cli {
namespace {

int run_mcp(const std::vector<std::string>& files, bool allow_record) {
  McpContext context;
  context.allow_record = allow_record;
  for (const std::string& file : files) {
    std::string problem;
    if (context.profiles.open(file, problem, context.open_watch) != nullptr) continue;
    say("windlass: {}\n", problem);
    return kFoundWrong;
  }
  std::signal(SIGPIPE, SIG_IGN);  // a client that leaves shows as EPIPE
  end_child_by_signals();
  const int error = McpSession(STDIN_FILENO, STDOUT_FILENO, std::move(context)).run();
  if (error == 0) return kDone;
  say_unwritten("standard output", error);
  return kRefused;
}

}  // namespace

void register_mcp(CLI::App& app, int& status) {
  auto files = std::make_shared<std::vector<std::string>>();
  auto allow_record = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "mcp", "Answer questions about profiles and live processes, by the Model Context Protocol on standard input");
  command->add_option("FILE", *files, "a profile, or samples of a store (FILE@RANGE), open from the start")
      ->type_name("FILE");
  command->add_flag("--allow-record", *allow_record, "offer a tool that records, into files of a temporary folder");
  command->callback([files, allow_record, &status] { status = run_mcp(*files, *allow_record); });
}

}  // namespace windlass::cli
