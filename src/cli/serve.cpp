// windlass serve: the command line.
#include "cli/serve.h"

#include <charconv>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace windlass::cli {
namespace {

// "127.0.0.1:7433", "[::1]:7433". False: it is no such text.
bool read_listen(std::string_view text, ServeArguments& to) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return false;
  std::string_view address = text.substr(0, colon);
  if (address.starts_with('[') != address.ends_with(']')) return false;
  const bool has_colons = address.find(':') != std::string_view::npos;
  if (address.starts_with('['))
    address = address.substr(1, address.size() - 2);
  else if (has_colons)
    return false;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, to.port);
  to.address = address;
  return read.ec == std::errc() && read.ptr == end && !address.empty();
}

}  // namespace

void register_serve(CLI::App& app, int& status) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* command = app.add_subcommand("serve", "serve a store to browsers: services, times, flame graphs");
  command
      ->add_option(
          "FILE", arguments->files,
          "a store that agent wrote, a file or a clickhouse:// URL; or profiles, which are served as one store")
      ->required()
      ->type_name("FILE");
  command
      ->add_option_function<std::string>(
          "--listen", [arguments](const std::string& text) { (void)read_listen(text, *arguments); },
          "where to listen (127.0.0.1:7433); port 0: one that is free")
      ->check([](const std::string& text) {
        ServeArguments ignored;
        return read_listen(text, ignored)
                   ? std::string()
                   : fmt::format("{} is no address and port, such as 127.0.0.1:7433 or [::1]:7433", text);
      })
      ->type_name("ADDRESS:PORT");
  command
      ->add_option("--token-file", arguments->token_file,
                   "a file with a token, which each browser has to give; needed behind 127.0.0.1")
      ->type_name("FILE");
  command->callback([arguments, &status] { status = serve(*arguments); });
}

}  // namespace windlass::cli
