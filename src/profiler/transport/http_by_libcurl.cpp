#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>

#include "os/library_function.h"
#include "profiler/transport/http_parts.h"

#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace windlass::transport {
namespace {

// Opened when it is first needed: with its own libraries it would be a third of the time in which the command starts.
struct CurlCalls {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) init = nullptr;
  decltype(&curl_easy_setopt) setopt = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  decltype(&curl_easy_reset) reset = nullptr;
  decltype(&curl_easy_cleanup) cleanup = nullptr;
  decltype(&curl_slist_append) append = nullptr;
  decltype(&curl_slist_free_all) free_all = nullptr;
};

// Null: it is not installed here. Never closed: its TLS library has handlers for the end of the process.
const CurlCalls* curl_calls() {
  static const CurlCalls* const loaded = []() -> const CurlCalls* {
    static CurlCalls found;
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
      void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
      if (library != nullptr && os::find_function(library, "curl_global_init", found.global_init) &&
          os::find_function(library, "curl_easy_init", found.init) &&
          os::find_function(library, "curl_easy_setopt", found.setopt) &&
          os::find_function(library, "curl_easy_perform", found.perform) &&
          os::find_function(library, "curl_easy_reset", found.reset) &&
          os::find_function(library, "curl_easy_cleanup", found.cleanup) &&
          os::find_function(library, "curl_slist_append", found.append) &&
          os::find_function(library, "curl_slist_free_all", found.free_all) &&
          found.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        return &found;
    }
    return nullptr;
  }();
  return loaded;
}

struct Receiving {
  HttpHead head{};
  std::string body{};
  std::size_t most_bytes = 0;
  std::size_t head_bytes = 0;
  bool too_long = false;
};

constexpr std::size_t kMostHeaders = std::size_t{256} << 10;  // bytes
constexpr std::size_t kMostReserved = std::size_t{64} << 20;  // before they come

std::size_t take_line(char* data, std::size_t, std::size_t size, void* to) {
  auto& receiving = *static_cast<Receiving*>(to);
  receiving.head_bytes += size;
  receiving.too_long |= receiving.head_bytes > kMostHeaders;
  if (receiving.too_long) return 0;
  receiving.head.line({data, size});
  return size;
}

std::size_t take_body(char* data, std::size_t, std::size_t size, void* to) {
  auto& receiving = *static_cast<Receiving*>(to);
  receiving.too_long |= size > receiving.most_bytes - receiving.body.size();
  if (receiving.too_long) return 0;
  if (receiving.body.empty())
    receiving.body.reserve(std::min({receiving.head.said_length(), receiving.most_bytes, kMostReserved}));
  receiving.body.append(data, size);
  return size;
}

class Opened final : public Libcurl {
 public:
  Opened(const CurlCalls& calls, CURL* easy) : calls_(calls), easy_(easy) {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() override {
    calls_.free_all(headers_);
    calls_.cleanup(easy_);
  }

  Expected<HttpAnswer> send(const HttpRequest& request) override {
    Receiving receiving{.most_bytes = request.most_bytes};
    calls_.reset(easy_);  // keeps the connections
    set_request(request);
    set_limits(request);
    calls_.setopt(easy_, CURLOPT_HEADERFUNCTION, &take_line);
    calls_.setopt(easy_, CURLOPT_HEADERDATA, &receiving);
    calls_.setopt(easy_, CURLOPT_WRITEFUNCTION, &take_body);
    calls_.setopt(easy_, CURLOPT_WRITEDATA, &receiving);
    const CURLcode code = calls_.perform(easy_);
    if (receiving.too_long) return fail(ErrorCode::kLimit, "the server's answer is too long", 0, request.most_bytes);
    if (code != CURLE_OK) return curl_failure(code);
    HttpAnswer answer;
    receiving.head.take(answer);
    answer.body = std::move(receiving.body);
    return answer;
  }

 private:
  void set_request(const HttpRequest& request) {
    calls_.setopt(easy_, CURLOPT_URL, request.url.c_str());
    const bool has_body = !request.body.empty() || request.method == "POST" || request.method == "PUT";
    if (has_body) {
      calls_.setopt(easy_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
      calls_.setopt(easy_, CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
    }
    calls_.setopt(easy_, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    calls_.free_all(headers_);
    headers_ = calls_.append(nullptr, "Expect:");  // no round trip before the body
    // With a semicolon in place of the colon libcurl sends a header without a value.
    for (const auto& [name, value] : request.headers)
      // NOLINTNEXTLINE(performance-inefficient-string-concatenation): a few short headers
      headers_ = calls_.append(headers_, (value.empty() ? name + ";" : name + ": " + value).c_str());
    calls_.setopt(easy_, CURLOPT_HTTPHEADER, headers_);
    if (request.http2_prior_knowledge) {
      calls_.setopt(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE));
      calls_.setopt(easy_, CURLOPT_FORBID_REUSE, 1L);  // libcurl 7.88 fails on such a connection the second time
    }
    if (!request.tls.ca.empty()) calls_.setopt(easy_, CURLOPT_CAINFO, request.tls.ca.c_str());
    if (!request.tls.certificate.empty()) calls_.setopt(easy_, CURLOPT_SSLCERT, request.tls.certificate.c_str());
    if (!request.tls.key.empty()) calls_.setopt(easy_, CURLOPT_SSLKEY, request.tls.key.c_str());
  }

  void set_limits(const HttpRequest& request) {
    calls_.setopt(easy_, CURLOPT_NOSIGNAL, 1L);
    calls_.setopt(easy_, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
    calls_.setopt(easy_, CURLOPT_CONNECTTIMEOUT_MS,
                  static_cast<long>(std::min(request.timeout, kConnectPatience).count()));
  }

  const CurlCalls& calls_;
  CURL* easy_;
  curl_slist* headers_ = nullptr;
};

}  // namespace

std::unique_ptr<Libcurl> open_libcurl() {
  const CurlCalls* calls = curl_calls();
  CURL* easy = calls != nullptr ? calls->init() : nullptr;
  return easy != nullptr ? std::make_unique<Opened>(*calls, easy) : nullptr;
}

}  // namespace windlass::transport
