#include "cli/page_server.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "os/peer_user.h"

namespace windlass::cli {
namespace {

std::optional<PageServer::Question> question_of(std::string_view query) {
  PageServer::Question question;
  bool good = true;
  each_parameter(query, [&](std::string_view name, std::string_view text) {
    const auto value = form_decoded(text);
    good &= value.has_value();
    if (!value) return;
    if (name == "function") question.function = *value;
    if (name == "value") question.value = *value;
  });
  return !good || question.function.empty() ? std::nullopt : std::optional(std::move(question));
}

// What is served now.
struct Served {
  std::string_view path;
  PageServer::Page page;
  const PageServer::Annotate& annotate;
  const PageServer::Newer* newer;
};

HttpReply page_answer(const Served& served, std::string_view known) {
  if (served.newer != nullptr) served.newer->wanted();
  const std::string tag = fmt::format("\"{}\"", served.page.version);
  const std::string header = fmt::format("ETag: {}\r\n", tag);
  if (known == tag) return {.head = http_head("304 Not Modified", "text/html", served.page.html->size(), header)};
  return {.head = http_head("200 OK", "text/html", served.page.html->size(), header),
          .body = served.page.html,
          .work = {},
          .trusted = true};
}

HttpReply answer_to(const HttpRequest& request, const Served& served) {
  if (request.path == served.path) return page_answer(served, request.header("if-none-match"));
  constexpr std::string_view kAnnotate = "/annotate";
  if (!served.annotate || !request.path.starts_with(served.path) ||
      request.path.substr(served.path.size()) != kAnnotate)
    return short_reply("404 Not Found", "windlass printed the whole address of the page\n");
  if (!is_same_origin(request)) return short_reply("403 Forbidden", "only the page itself may ask\n");
  const auto question = question_of(request.query);
  if (!question) return short_reply("400 Bad Request", "annotate?function=NAME&value=NAME\n");
  return {.head = {},
          .body = {},
          .work = [annotate = served.annotate, question = *question] { return annotate(question); },
          .type = "application/x-ndjson",
          .trusted = true};
}

std::string annotation(const WorkedOut& answer, std::string_view type) {
  if (!answer.good) return short_reply("500 Internal Server Error", answer.text).head;
  return http_head("200 OK", type, answer.text.size()) + answer.text;
}

// The browser's address, with the path, is in its arguments, which other users can read. Root starts no browser, and
// its page may be another user's to see.
bool may_connect(int connection) {
  const uid_t own = geteuid();
  if (own == 0) return true;
  const auto user = os::peer_user(connection);
  return !user || *user == 0 || *user == own;
}

std::string random_path() {
  std::array<unsigned char, 16> bits{};
  if (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) return {};
  std::string path = "/";
  for (const unsigned char byte : bits) path += fmt::format("{:02x}", byte);
  return path;
}

}  // namespace

Expected<PageServer> PageServer::listen(std::uint16_t port) {
  auto server = HttpServer::listen("127.0.0.1", port);
  if (!server) return Failure(server.error());
  std::string path = random_path();
  if (path.empty()) return fail(ErrorCode::kSystem, "no random numbers", 0, static_cast<std::uint64_t>(errno));
  return PageServer(std::move(*server), std::move(path));
}

std::string PageServer::address() const { return fmt::format("http://127.0.0.1:{}{}", port(), path_); }

Expected<void> PageServer::serve(Page page, const Annotate& annotate, int stop, const Newer* newer) const {
  Served served{.path = path_, .page = std::move(page), .annotate = annotate, .newer = newer};
  const HttpServer::Service service{.may_connect = may_connect,
                                    .reply = [&](const HttpRequest& request) { return answer_to(request, served); },
                                    .worked_out = annotation};
  HttpServer::News news;
  if (newer != nullptr) news = {.descriptor = newer->news, .take = [&] { served.page = newer->take(); }};
  return server_.run(service, stop, &news);
}

}  // namespace windlass::cli
