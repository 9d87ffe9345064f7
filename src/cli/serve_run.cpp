// windlass serve: its store, its token and its server.
#include "cli/serve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/http_server.h"
#include "cli/say.h"
#include "cli/serve_files.h"
#include "cli/serve_service.h"
#include "cli/served_store.h"
#include "cli/stop_signals.h"
#include "cli/store_range.h"
#include "os/descriptor.h"
#include "profiler/store/open_store.h"

namespace windlass::cli {
namespace {

constexpr std::size_t kMostQueries = 8, kMostAnswer = std::size_t{64} << 20;
constexpr auto kPatience = std::chrono::seconds(30);

// Nothing: says why not.
std::optional<std::string> read_token(const std::string& path) {
  const os::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  std::array<char, 512> bytes{};
  const ssize_t got = !file || fstat(file.get(), &facts) != 0 ? -1 : ::read(file.get(), bytes.data(), bytes.size());
  if (got < 0) {
    say_error(path, {ErrorCode::kSystem, "the token cannot be read", 0, static_cast<std::uint64_t>(errno)});
    return std::nullopt;
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    say("windlass: others may read {0}. Way out: chmod 600 {0}\n", path);
    return std::nullopt;
  }
  std::string token(bytes.data(), static_cast<std::size_t>(got));
  while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  if (is_good_token(token)) return token;
  say("windlass: {0} has no token of 16 to 256 letters, digits, - and _. Way out: openssl rand -hex 16 > {0}\n", path);
  return std::nullopt;
}

// As the user names it; the store of `files` otherwise.
ServedStore served_store(const ServeArguments& arguments, const std::optional<ServedFiles>& files) {
  const std::size_t count = arguments.files.size();
  const std::string first = store::shown_place(arguments.files.front());
  if (files) return {.paths = {files->store()}, .name = count == 1 ? first : std::to_string(count) + " files"};
  return {.paths = arguments.files,
          .name = count == 1 ? first : std::to_string(count) + " stores",
          .is_own = count == 1 && store_file(arguments.files.front()).has_value()};
}

// Says what cannot be opened. All is closed again: SQLite must not have a file open in a process and in a fork of it.
int check_stores(const ServedStore& served) {
  const auto opened = open_served(served);
  if (!opened) {
    say_error(served.name, opened.error());
    return opened.error().code == ErrorCode::kMalformed ? kFoundWrong : kRefused;
  }
  for (const std::string& text : opened->left_out) say("windlass: not served: {}\n", text);
  return kDone;
}

using Channels = decltype(HttpServer::Service::channel);

// Nothing: says why not.
std::optional<Channels> open_tls(const TlsFiles& files) {
  std::string place = "serve";
  auto channels = tls_channels(files, place);
  if (channels) return std::move(*channels);
  say_error(place, channels.error());
  return std::nullopt;
}

int run_server(const ServedStore& store, const std::string& token, const ServeArguments& arguments) {
  StopSignals signals;
  const auto server = HttpServer::listen(arguments.listen.address, arguments.listen.port);
  const std::string address = arguments.listen.host();
  if (!server) {
    say_error(address + ":" + std::to_string(arguments.listen.port), server.error(),
              "another --listen; port 0: one that is free");
    return kRefused;
  }
  const bool is_encrypted = !arguments.tls.certificate.empty();
  const auto channel = is_encrypted ? open_tls(arguments.tls) : std::optional<Channels>(std::in_place);
  if (!channel) return kRefused;
  const ServeService service(store, {.token = token,
                                     .port = server->port(),
                                     .is_encrypted = is_encrypted,
                                     .certificates = !arguments.tls.client_ca.empty()});
  say("windlass: {} is served until Ctrl-C at {}://{}:{}/\n", store.name, is_encrypted ? "https" : "http", address,
      server->port());
  if (!token.empty()) say("  once in each browser: with ?token= and the text of {} behind it\n", arguments.token_file);
  const auto served = server->run({.may_connect = [](int) { return true; },
                                   .reply = [&](const HttpRequest& request) { return service.reply(request); },
                                   .worked_out = ServeService::worked_out,
                                   .most_at_once = kMostQueries,
                                   .limits = {.patience = kPatience,
                                              .most_bytes = kMostAnswer,
                                              .way_out = " Way out: a shorter range of time, or one value of a label"},
                                   .channel = *channel},
                                  signals.descriptor());
  if (served) return kDone;
  say_error(store.name, served.error());
  return kRefused;
}

}  // namespace

int serve(const ServeArguments& arguments) {
  std::string token;
  if (!arguments.token_file.empty()) {
    auto read = read_token(arguments.token_file);
    if (!read) return kRefused;
    token = std::move(*read);
  } else if (arguments.listen.address != "127.0.0.1" && arguments.tls.client_ca.empty()) {
    say("windlass: other users can reach {}, so a token is needed. Way out: --token-file FILE, or --tls-client-ca "
        "FILE\n",
        arguments.listen.address);
    return kUsage;
  }
  std::optional<ServedFiles> files;
  int status = kDone;
  if (!std::ranges::all_of(arguments.files, is_servable_store)) {
    auto read = ServedFiles::read(arguments.files, status);
    if (!read) return status;
    files.emplace(std::move(*read));
  }
  const ServedStore served = served_store(arguments, files);
  if (const int refused = check_stores(served); refused != kDone) return refused;
  return run_server(served, token, arguments);
}

}  // namespace windlass::cli
