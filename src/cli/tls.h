// TLS for the clients of an HttpServer, by OpenSSL. Not in the static file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/http_server.h"
#include "windlass/error.h"

namespace windlass::cli {

// Files in PEM.
struct TlsFiles {
  std::string certificate;  // the server's, and those that lead to one that clients trust
  std::string key;          // without a passphrase
  std::string client_ca;    // of clients, who then need a certificate; empty: they need none
};

// For HttpServer::Service::channel. TLS 1.2 and later. From here on this process ignores SIGPIPE: OpenSSL writes to
// connections that clients have closed.
//
// Errors: kUnsupported, this build or this system has no OpenSSL. kUnreadable, one of the files cannot be used; `place`
// is its path then.
[[nodiscard]] Expected<std::function<std::unique_ptr<HttpChannel>(int connection)>> tls_channels(const TlsFiles& files,
                                                                                                 std::string& place);

}  // namespace windlass::cli
