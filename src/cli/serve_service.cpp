#include "cli/serve_service.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "os/peer_user.h"

namespace windlass::cli {
namespace {

// No inline script, nothing of other sites, in no frame. Boxes have their places in style attributes.
constexpr std::string_view kPageHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
    "worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nX-Frame-Options: DENY\r\n";

std::shared_ptr<const std::string> shared(std::string&& text) {
  return std::make_shared<const std::string>(std::move(text));
}

HttpReply file_reply(const std::shared_ptr<const std::string>& file, std::string_view type,
                     std::string_view more = "") {
  return {.head = http_head("200 OK", type, file->size(), more), .body = file};
}

HttpReply error_reply(std::string_view status, std::string_view text, std::string_view more = "") {
  const std::string body = api_error(text);
  return {.head = http_head(status, "application/json", body.size(), more) + body};
}

// "localhost:7433" has the name of this machine alone, whatever the port is: a tunnel has another one.
bool is_local_name(std::string_view host) {
  const std::size_t end = host.starts_with('[') ? host.find(']') : host.find(':');
  const std::string_view name = host.substr(0, host.starts_with('[') && end != host.npos ? end + 1 : end);
  constexpr std::array<std::string_view, 3> kNames = {"127.0.0.1", "localhost", "[::1]"};
  return std::ranges::find(kNames, name) != kNames.end();
}

// Nobody: `sudo` was not run.
uid_t user_of_sudo() {
  constexpr auto kNobody = static_cast<uid_t>(-1);
  const char* text = std::getenv("SUDO_UID");
  if (geteuid() != 0 || text == nullptr) return kNobody;
  uid_t user = kNobody;
  const std::string_view digits = text;
  const auto read = std::from_chars(digits.begin(), digits.end(), user);
  return read.ec == std::errc() && read.ptr == digits.end() ? user : kNobody;
}

bool is_own_user(int connection) {
  const auto user = os::peer_user(connection);
  return user && (*user == 0 || *user == geteuid() || *user == user_of_sudo());
}

}  // namespace

bool is_token(std::string_view given, std::string_view token) {
  unsigned differs = given.size() == token.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    differs |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(token[i % token.size()]);
  return differs == 0;
}

bool is_good_token(std::string_view token) {
  constexpr std::size_t kLeast = 16, kMost = 256;
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return token.size() >= kLeast && token.size() <= kMost && token.find_first_not_of(kLetters) == token.npos;
}

ServeService::ServeService(ServedStore store, ServeAccess access)
    : store_(std::move(store)), access_(std::move(access)), cookie_(fmt::format("windlass_{}", access_.port)) {
  exporter::StorePage page = exporter::store_page();
  html_ = shared(std::move(page.html));
  page_script_ = shared(std::move(page.page_script));
  store_script_ = shared(std::move(page.store_script));
}

HttpReply ServeService::reply(const HttpRequest& request) const {
  if (access_.token.empty() && !access_.certificates) {
    if (!is_local_name(request.header("host")))
      return error_reply("403 Forbidden", "not by this name. Way out: the address that windlass printed");
    if (!is_own_user(request.connection))
      return error_reply("403 Forbidden",
                         "this server answers its own user alone. Way out: windlass serve --token-file");
  }
  HttpReply made = route(request);
  made.trusted |= access_.token.empty();
  return made;
}

HttpReply ServeService::route(const HttpRequest& request) const {
  if (request.path == "/") return page(request);
  constexpr std::string_view kScript = "text/javascript", kApi = "/api/";
  if (request.path == "/page.js") return file_reply(page_script_, kScript);
  if (request.path == "/store.js") return file_reply(store_script_, kScript);
  if (request.path.starts_with(kApi)) return api(request, request.path.substr(kApi.size()));
  return error_reply("404 Not Found", "there are / and api/");
}

HttpReply ServeService::page(const HttpRequest& request) const {
  std::string_view given;
  std::string rest;
  each_parameter(request.query, [&](std::string_view name, std::string_view value) {
    if (name == "token")
      given = value;
    else
      rest += fmt::format("{}{}={}", rest.empty() ? "?" : "&", name, value);
  });
  if (access_.token.empty() || given.empty()) return file_reply(html_, "text/html", kPageHeaders);
  if (!is_token(given, access_.token))
    return error_reply("401 Unauthorized", "another token. Way out: that of --token-file");
  // The address without the token: it does not stay in what is shown and shared.
  const std::string more = fmt::format("Location: /{}\r\nSet-Cookie: {}={}; Path=/; HttpOnly; SameSite=Strict{}\r\n",
                                       rest, cookie_, access_.token, access_.is_encrypted ? "; Secure" : "");
  return short_reply("303 See Other", "", more);
}

bool ServeService::has_token(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view header = request.header("authorization");
  if (header.starts_with(kBearer)) return is_token(header.substr(kBearer.size()), access_.token);
  std::string_view cookies = request.header("cookie");
  while (!cookies.empty()) {
    const std::string_view one = cookies.substr(0, cookies.find("; "));
    cookies.remove_prefix(std::min(cookies.size(), one.size() + 2));
    if (one.size() > cookie_.size() && one.starts_with(cookie_) && one[cookie_.size()] == '=')
      return is_token(one.substr(cookie_.size() + 1), access_.token);
  }
  return false;
}

HttpReply ServeService::api(const HttpRequest& request, std::string_view kind) const {
  if (!access_.token.empty() && !has_token(request))
    return error_reply("401 Unauthorized", "a token is needed. Way out: open /?token=TOKEN once, of --token-file",
                       "WWW-Authenticate: Bearer\r\n");
  // "none": typed by a person.
  if (!is_same_origin(request) && request.header("sec-fetch-site") != "none")
    return error_reply("403 Forbidden", "only the page itself may ask");
  ApiQuestion question = api_question(store_, kind, request.query);
  if (!question.work) return error_reply(question.status, question.problem);
  return {.head = {}, .body = {}, .work = std::move(question.work->work), .type = question.work->type, .trusted = true};
}

std::string ServeService::worked_out(const WorkedOut& answer, std::string_view type) {
  if (!answer.good) return error_reply("500 Internal Server Error", answer.text).head;
  return http_head("200 OK", type, answer.text.size()) + answer.text;
}

}  // namespace windlass::cli
