// windlass serve: the command line.
#include "cli/serve.h"

#include <memory>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/symbol_options.h"

namespace windlass::cli {
namespace {

void add_tls_options(CLI::App& command, TlsFiles& tls) {
  CLI::Option* const certificate =
      command.add_option("--tls-cert", tls.certificate, "serve https, with this certificate and its chain, in PEM")
          ->type_name("FILE");
  CLI::Option* const key =
      command.add_option("--tls-key", tls.key, "the key of that certificate, in PEM, without a passphrase")
          ->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  command
      .add_option("--tls-client-ca", tls.client_ca,
                  "browsers have to show a certificate that one of these has signed; no token is needed then")
      ->type_name("FILE")
      ->needs(certificate);
}

}  // namespace

void register_serve(CLI::App& app, int& status) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* command = app.add_subcommand("serve", "serve a store to browsers: services, times, flame graphs");
  command
      ->add_option(
          "FILE", arguments->files,
          "stores that agent wrote (files, folders of these, clickhouse:// URLs); or profiles, which are served "
          "as one store")
      ->required()
      ->type_name("FILE");
  command
      ->add_option_function<std::string>(
          "--listen",
          [arguments](const std::string& text) {
            if (auto place = ListenPlace::parse(text)) arguments->listen = std::move(*place);
          },
          "where to listen (127.0.0.1:7433); port 0: one that is free")
      ->check([](const std::string& text) {
        return ListenPlace::parse(text)
                   ? std::string()
                   : fmt::format("{} is no address and port, such as 127.0.0.1:7433 or [::1]:7433", text);
      })
      ->type_name("ADDRESS:PORT");
  command
      ->add_option("--token-file", arguments->token_file,
                   "a file with a token, which each browser has to give; needed behind 127.0.0.1")
      ->type_name("FILE");
  add_tls_options(*command, arguments->tls);
  add_symbols_option(*command);
  command->callback([arguments, &status] { status = serve(*arguments); });
}

}  // namespace windlass::cli
