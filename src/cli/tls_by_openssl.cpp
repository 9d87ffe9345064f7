#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <csignal>
#include <limits>
#include <utility>

#include "cli/tls.h"
#include "os/library_function.h"

namespace windlass::cli {
namespace {

// Opened when it is needed: with the library the command would start slower, whatever it does.
struct TlsCalls {
  decltype(&::TLS_server_method) server_method = nullptr;
  decltype(&::SSL_CTX_new) context = nullptr;
  decltype(&::SSL_CTX_free) free_context = nullptr;
  decltype(&::SSL_CTX_ctrl) control = nullptr;
  decltype(&::SSL_CTX_set_default_passwd_cb) set_passphrase = nullptr;
  decltype(&::SSL_CTX_use_certificate_chain_file) use_certificate = nullptr;
  decltype(&::SSL_CTX_use_PrivateKey_file) use_key = nullptr;
  decltype(&::SSL_CTX_load_verify_locations) load_ca = nullptr;
  decltype(&::SSL_load_client_CA_file) names_of_ca = nullptr;
  decltype(&::SSL_CTX_set_client_CA_list) tell_ca = nullptr;
  decltype(&::SSL_CTX_set_verify) set_verify = nullptr;
  decltype(&::SSL_CTX_set_session_id_context) set_session_context = nullptr;
  decltype(&::SSL_new) connection = nullptr;
  decltype(&::SSL_free) free_connection = nullptr;
  decltype(&::SSL_set_fd) set_descriptor = nullptr;
  decltype(&::SSL_set_accept_state) set_accept = nullptr;
  decltype(&::SSL_read) read = nullptr;
  decltype(&::SSL_write) write = nullptr;
  decltype(&::SSL_get_error) error = nullptr;
  decltype(&::SSL_shutdown) shutdown = nullptr;
  decltype(&::ERR_clear_error) clear_errors = nullptr;
};

bool find_calls(void* library, TlsCalls& to) {
  return library != nullptr && os::find_function(library, "TLS_server_method", to.server_method) &&
         os::find_function(library, "SSL_CTX_new", to.context) &&
         os::find_function(library, "SSL_CTX_free", to.free_context) &&
         os::find_function(library, "SSL_CTX_ctrl", to.control) &&
         os::find_function(library, "SSL_CTX_set_default_passwd_cb", to.set_passphrase) &&
         os::find_function(library, "SSL_CTX_use_certificate_chain_file", to.use_certificate) &&
         os::find_function(library, "SSL_CTX_use_PrivateKey_file", to.use_key) &&
         os::find_function(library, "SSL_CTX_load_verify_locations", to.load_ca) &&
         os::find_function(library, "SSL_load_client_CA_file", to.names_of_ca) &&
         os::find_function(library, "SSL_CTX_set_client_CA_list", to.tell_ca) &&
         os::find_function(library, "SSL_CTX_set_verify", to.set_verify) &&
         os::find_function(library, "SSL_CTX_set_session_id_context", to.set_session_context) &&
         os::find_function(library, "SSL_new", to.connection) &&
         os::find_function(library, "SSL_free", to.free_connection) &&
         os::find_function(library, "SSL_set_fd", to.set_descriptor) &&
         os::find_function(library, "SSL_set_accept_state", to.set_accept) &&
         os::find_function(library, "SSL_read", to.read) && os::find_function(library, "SSL_write", to.write) &&
         os::find_function(library, "SSL_get_error", to.error) &&
         os::find_function(library, "SSL_shutdown", to.shutdown) &&
         os::find_function(library, "ERR_clear_error", to.clear_errors);
}

// Null: it is not installed here. Never closed: it has handlers for the end of the process.
const TlsCalls* tls_calls() {
  static const TlsCalls* const loaded = []() -> const TlsCalls* {
    static TlsCalls found;
    return find_calls(dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE), found) ? &found : nullptr;
  }();
  return loaded;
}

class TlsChannel final : public HttpChannel {
 public:
  TlsChannel(const TlsCalls& calls, SSL* connection) : calls_(calls), connection_(connection) {}
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;
  ~TlsChannel() override {
    calls_.clear_errors();
    if (is_good_) (void)calls_.shutdown(connection_);  // says that the answer is over
    calls_.free_connection(connection_);
  }

  Moved receive(std::span<char> to) override {
    calls_.clear_errors();
    return moved(calls_.read(connection_, to.data(), size_of(to.size())));
  }
  Moved send(std::string_view bytes) override {
    calls_.clear_errors();
    return moved(calls_.write(connection_, bytes.data(), size_of(bytes.size())));
  }

 private:
  static int size_of(std::size_t size) {
    constexpr std::size_t kMost = std::numeric_limits<int>::max();
    return static_cast<int>(size < kMost ? size : kMost);
  }
  Moved moved(int bytes) {
    if (bytes > 0) {
      is_good_ = true;
      return {.bytes = static_cast<std::size_t>(bytes), .wants = 0};
    }
    const int error = calls_.error(connection_, bytes);
    if (error == SSL_ERROR_WANT_READ) return {.bytes = 0, .wants = POLLIN};
    if (error == SSL_ERROR_WANT_WRITE) return {.bytes = 0, .wants = POLLOUT};
    is_good_ = false;  // OpenSSL wants no more calls then
    return {};
  }

  const TlsCalls& calls_;
  SSL* connection_;
  bool is_good_ = false;  // the client is known, and nothing has failed
};

using Context = std::shared_ptr<SSL_CTX>;

Failure file_failure(const std::string& path, std::string& place, const char* what) {
  place = path;
  return fail(ErrorCode::kUnreadable, what, 0);
}

Expected<void> use_files(const TlsCalls& calls, SSL_CTX* context, const TlsFiles& files, std::string& place) {
  if (calls.use_certificate(context, files.certificate.c_str()) != 1)
    return file_failure(files.certificate, place, "no certificate in PEM can be read");
  if (calls.use_key(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return file_failure(files.key, place,
                        "no key in PEM, without a passphrase, can be read, or the key is that of another certificate");
  if (files.client_ca.empty()) return {};
  STACK_OF(X509_NAME)* const names = calls.names_of_ca(files.client_ca.c_str());
  if (names == nullptr || calls.load_ca(context, files.client_ca.c_str(), nullptr) != 1)
    return file_failure(files.client_ca, place, "no certificates in PEM can be read");
  calls.tell_ca(context, names);  // by which browsers choose the certificate that they show
  calls.set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return {};
}

}  // namespace

Expected<std::function<std::unique_ptr<HttpChannel>(int connection)>> tls_channels(const TlsFiles& files,
                                                                                   std::string& place) {
  const TlsCalls* const calls = tls_calls();
  SSL_CTX* const made = calls != nullptr ? calls->context(calls->server_method()) : nullptr;
  if (made == nullptr) return fail(ErrorCode::kUnsupported, "TLS needs OpenSSL. Way out: the package libssl3", 0);
  const Context context(made, calls->free_context);
  calls->control(made, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
  // An answer goes in parts, and the next part may lie elsewhere.
  calls->control(made, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, nullptr);
  calls->set_passphrase(made, [](char*, int, int, void*) { return -1; });  // nobody is asked
  constexpr unsigned char kSessions[] = "windlass";                        // of clients with certificates
  calls->set_session_context(made, kSessions, sizeof kSessions - 1);
  if (const auto used = use_files(*calls, made, files, place); !used) return Failure(used.error());
  std::signal(SIGPIPE, SIG_IGN);
  return [calls, context](int descriptor) -> std::unique_ptr<HttpChannel> {
    SSL* const connection = calls->connection(context.get());
    if (connection == nullptr) return nullptr;
    auto channel = std::make_unique<TlsChannel>(*calls, connection);
    if (calls->set_descriptor(connection, descriptor) != 1) return nullptr;
    calls->set_accept(connection);
    return channel;
  };
}

}  // namespace windlass::cli
