// A store, or files, for browsers: several people choose what they see of it.
#pragma once

#include <string>
#include <vector>

#include "cli/http_server.h"
#include "cli/tls.h"

namespace windlass::cli {

struct ServeArguments {
  std::vector<std::string> files;
  ListenPlace listen{.address = "127.0.0.1", .port = 7433};
  std::string token_file{};
  TlsFiles tls{};  // without a certificate: no TLS
};

// Serves until Ctrl-C. Returns the exit status; says on stderr what failed. The static file has none of it.
[[nodiscard]] int serve(const ServeArguments& arguments);

}  // namespace windlass::cli
