// Of the command that ./demo builds (WINDLASS_DEMO): in place of what is left out, which says so.
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "cli/annotate.h"
#include "cli/commands.h"
#include "cli/otlp_output.h"
#include "cli/profile_of_store.h"
#include "cli/say.h"
#include "cli/symbol_places.h"
#include "cli/version.h"

namespace windlass::cli {
namespace {

constexpr const char* kNoCommand =
    "windlass: this build has no windlass {}. Way out: the windlass of a package, or of cmake --preset command\n";
constexpr const char* kNoAnnotate =
    "this build has no report --annotate. Way out: the windlass of a package, or of cmake --preset command";
constexpr const char* kNoOtlp =
    "this build has no report --otlp. Way out: the windlass of a package, or of cmake --preset command";
constexpr const char* kNoStores =
    "windlass: this build has no stores and symbol files. Way out: the windlass of a package, or of cmake --preset "
    "command\n";

void register_left_out(CLI::App& app, int& status, const char* name) {
  CLI::App* command = app.add_subcommand(name, "not in this build");
  command->set_help_flag();
  command->allow_extras();
  command->prefix_command();
  command->callback([name, &status] {
    say(kNoCommand, name);
    status = kRefused;
  });
}

}  // namespace

const Linkage kLinkage{"with shared libraries", "libdw",
                       "this build knows no managed runtimes (Java, .NET, JavaScript, Python, Ruby, ...). Way out: the "
                       "windlass of a package, or of cmake --preset command"};

void register_dump(CLI::App& app, int& status) { register_left_out(app, status, "dump"); }
void register_rows(CLI::App& app, int& status) { register_left_out(app, status, "rows"); }
void register_top(CLI::App& app, int& status) { register_left_out(app, status, "top"); }
void register_agent(CLI::App& app, int& status) { register_left_out(app, status, "agent"); }
void register_serve(CLI::App& app, int& status) { register_left_out(app, status, "serve"); }
void register_symbols(CLI::App& app, int& status) { register_left_out(app, status, "symbols"); }
void register_store(CLI::App& app, int& status) { register_left_out(app, status, "store"); }
void register_walk(CLI::App& app, int& status) { register_left_out(app, status, "walk"); }
void register_mcp(CLI::App& app, int& status) { register_left_out(app, status, "mcp"); }
void register_emit(CLI::App& app, int& status) { register_left_out(app, status, "emit"); }

void add_annotate_options(CLI::App& command, AnnotateArguments& to) {
  command.add_option("--annotate", to.function, "not in this build")->type_name("FUNCTION");
  add_source_map_option(command, to.source_maps);
}

void add_source_map_option(CLI::App& command, std::vector<std::string>& to) {
  command.add_option("--source-map", to, "not in this build")->type_name("FROM=TO");
}

bool find_function(const profile::Profile&, std::string_view, profile::ValueType, std::string&) {
  say("windlass: {}\n", kNoAnnotate);
  return false;
}

Expected<void> write_annotated(const profile::Profile&, profile::ValueType, const AnnotateArguments&, const PdbSearch&,
                               const AnnotateForm&, TextWriter&) {
  return fail(ErrorCode::kUnsupported, kNoAnnotate, 0);
}

WorkedOut annotated_for_page(const profile::Profile&, const PageServer::Question&, const std::vector<std::string>&) {
  return {.text = kNoAnnotate};
}

Expected<void> write_otlp(const profile::Profile&, TextWriter&) { return fail(ErrorCode::kUnsupported, kNoOtlp, 0); }

std::optional<profile::Profile> read_store(const StoreFile&, std::vector<std::string>&, int& status) {
  say_text(kNoStores);
  status = kRefused;
  return std::nullopt;
}

std::vector<std::string>& symbol_places() {
  static std::vector<std::string> places;
  return places;
}

void name_late(profile::Profile&, store::ProfileStore*) {
  if (!symbol_places().empty()) say_text(kNoStores);
}

}  // namespace windlass::cli
