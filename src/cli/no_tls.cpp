// In place of tls_by_openssl.cpp, where OpenSSL's headers are not installed.
#include "cli/tls.h"

namespace windlass::cli {

Expected<std::function<std::unique_ptr<HttpChannel>(int connection)>> tls_channels(const TlsFiles&, std::string&) {
  return fail(ErrorCode::kUnsupported, "this build has no TLS. Way out: the windlass of a package", 0);
}

}  // namespace windlass::cli
