#include "profiler/transport/http_client.h"

#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "os/descriptor.h"
#include "profiler/transport/http_parts.h"

namespace windlass::transport {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

bool is_same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.begin(), b.begin(), a.size()) == 0;
}

std::string_view without_spaces(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return c > ' ' && c < 0x7f &&
           std::string_view("()<>@,;:\\\"/[]?={}").find(static_cast<char>(c)) == std::string_view::npos;
  });
}

// No control characters, which could begin another header.
bool is_field_value(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return (c >= ' ' || c == '\t') && c != 0x7f; });
}

Expected<void> check(const HttpRequest& request) {
  if (auto checked = check_url(request.url); !checked) return checked;
  if (!is_token(request.method)) return fail(ErrorCode::kMalformed, "no method of HTTP", 0);
  for (const auto& [name, value] : request.headers)
    if (!is_token(name) || !is_field_value(value))
      return fail(ErrorCode::kMalformed, "a header has characters that HTTP does not allow", 0);
  const auto is_path = [](const std::string& path) { return is_field_value(path); };
  if (!is_path(request.tls.ca) || !is_path(request.tls.certificate) || !is_path(request.tls.key))
    return fail(ErrorCode::kMalformed, "the path of a certificate has control characters", 0);
  return {};
}

}  // namespace

std::string_view HttpAnswer::field(std::string_view name) const {
  for (const HttpFields* fields : {&headers, &trailers})
    for (const auto& [of, value] : *fields)
      if (is_same_name(of, name)) return value;
  return {};
}

struct HttpClient::State {
  bool opened = false;
  std::unique_ptr<Libcurl> library{};
};

HttpClient::HttpClient() : state_(std::make_unique<State>()) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;

Expected<HttpAnswer> HttpClient::send(const HttpRequest& request) {
  if (const auto checked = check(request); !checked) return Failure(checked.error());
  if (!std::exchange(state_->opened, true)) state_->library = open_libcurl();
  return state_->library ? state_->library->send(request) : send_by_program(request);
}

Expected<void> check_url(std::string_view url) {
  const bool is_http = url.starts_with("http://"), is_https = url.starts_with("https://");
  if (!is_http && !is_https) return fail(ErrorCode::kMalformed, "the URL begins with neither http:// nor https://", 0);
  const std::string_view rest = url.substr(is_http ? 7 : 8);
  if (rest.empty() || rest.front() == '/' || rest.front() == '?')
    return fail(ErrorCode::kMalformed, "the URL has no host", 0);
  const bool is_plain =
      std::ranges::all_of(url, [](unsigned char c) { return c > ' ' && c < 0x7f && c != '\\' && c != '"'; });
  if (!is_plain || url.size() > 8192)
    return fail(ErrorCode::kMalformed, "the URL has characters that must be escaped", 0);
  return {};
}

std::string url_shown(std::string_view url) {
  const std::size_t scheme = url.find("://");
  const std::size_t begin = scheme == std::string_view::npos ? 0 : scheme + 3;
  const std::size_t end = std::min(url.find_first_of("?#", begin), url.size());
  const std::size_t host_end = std::min(url.find_first_of("/?#", begin), url.size());
  const std::size_t user_end = url.substr(begin, host_end - begin).rfind('@');
  const std::size_t host = user_end == std::string_view::npos ? begin : begin + user_end + 1;
  return std::string(url.substr(0, begin)).append(url.substr(host, end - host));
}

std::string host_and_port(std::string_view url) {
  const bool is_tls = url.starts_with("https://");
  const std::string shown = url_shown(url);
  const std::size_t begin = shown.find("://") == std::string::npos ? 0 : shown.find("://") + 3;
  std::string place = shown.substr(begin, shown.find_first_of("/?#", begin) - begin);
  const std::size_t colon = place.rfind(':');
  const bool has_port = colon != std::string::npos && place.find(']', colon) == std::string::npos;
  return has_port ? place : place.append(is_tls ? ":443" : ":80");
}

Expected<std::string> read_secret(const std::string& path) {
  const os::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return fail(ErrorCode::kSystem, "cannot open the file of a secret", 0, errno);
  std::string text(std::size_t{64} << 10, '\0');
  std::size_t used = 0;
  while (used < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorCode::kSystem, "cannot read the file of a secret", used, errno);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  if (used == text.size()) return fail(ErrorCode::kMalformed, "the file of a secret has more than 64 KiB", 0);
  text.resize(used);
  std::string secret(without_spaces(std::string_view(text).substr(0, text.find('\n'))));
  std::ranges::fill(text, '\0');
  if (secret.empty()) return fail(ErrorCode::kMalformed, "the first line of the file of a secret is empty", 0);
  if (!is_field_value(secret))
    return fail(ErrorCode::kMalformed, "the file of a secret has characters that no header can have", 0);
  return secret;
}

void HttpHead::line(std::string_view text) {
  text = without_spaces(text);
  if (text.empty()) {
    ended_ = status_ != 0;
    return;
  }
  if (text.starts_with("HTTP/")) {
    *this = HttpHead();
    const std::size_t space = std::min(text.find(' '), text.size() - 1);
    std::from_chars(text.data() + space + 1, text.data() + text.size(), status_);
    return;
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return;
  auto& fields = ended_ ? trailers_ : headers_;
  fields.emplace_back(text.substr(0, colon), without_spaces(text.substr(colon + 1)));
}

std::size_t HttpHead::said_length() const {
  std::size_t length = 0;
  for (const auto& [name, value] : headers_)
    if (is_same_name(name, "content-length")) std::from_chars(value.data(), value.data() + value.size(), length);
  return length;
}

void HttpHead::take(HttpAnswer& to) {
  to.status = status_;
  to.headers = std::move(headers_);
  to.trailers = std::move(trailers_);
}

// Of the numbers that libcurl promises to keep. The texts name the way out; the library's own do not.
Failure curl_failure(int code) {
  struct Text {
    int code;
    const char* what;
  };
  static constexpr auto kTexts = std::to_array<Text>({
      {1, "the server does not speak HTTP. Way out: check the port"},
      {2, "libcurl cannot start. Way out: install the package libcurl4 anew"},
      {5, "the host of the proxy is not known. Way out: the variable https_proxy or http_proxy"},
      {6, "the host is not known. Way out: the URL, or the name server"},
      {7, "no connection. Way out: start the server, or check the address and the port"},
      {16, "the server broke HTTP/2. Way out: check that the server speaks gRPC at this port"},
      {18, "the connection was closed before the answer was whole. Way out: the server's log"},
      {26, "the request could not be read. Way out: free memory"},
      {27, "out of memory. Way out: free memory"},
      {28, "no whole answer in time. Way out: a longer timeout, or the server's log"},
      {35, "TLS failed. Way out: check that the server speaks TLS at this port"},
      {52, "the connection was closed without an answer. Way out: the server's log"},
      {55, "the connection was closed while the request was sent. Way out: the server's log"},
      {56, "the connection broke before the answer was whole. Way out: the server's log"},
      {58, "the client's certificate or its key cannot be used. Way out: name the PEM files of both"},
      {60, "the server's certificate is not trusted. Way out: name the file of its CA"},
      {77, "the file of the CA's certificates cannot be read. Way out: name a PEM file"},
      {83, "the server's certificate is not of this issuer. Way out: name the file of its CA"},
      {92, "the server broke a stream of HTTP/2. Way out: the server's log"},
      {97, "the proxy refused. Way out: the variable https_proxy or http_proxy"},
      {98, "the server wants a certificate of the client. Way out: name the PEM files of the certificate and its key"},
  });
  const auto* known = std::ranges::find(kTexts, code, &Text::code);
  return fail(
      ErrorCode::kUnreadable,
      known != kTexts.end() ? known->what : "libcurl failed. Way out: see the number in the manual page libcurl-errors",
      0, static_cast<std::uint64_t>(code));
}

}  // namespace windlass::transport
