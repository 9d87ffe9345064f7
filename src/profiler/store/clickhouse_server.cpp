#include "profiler/store/clickhouse_server.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "profiler/store/clickhouse_wire.h"
#include "profiler/store/open_store.h"

namespace windlass::store {

namespace {

constexpr std::string_view kScheme = "clickhouse://", kSchemeTls = "clickhouses://";
constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 30;
constexpr const char* kNoAddress =
    "no address of a ClickHouse database. Way out: clickhouse://[USER:PASSWORD@]HOST[:8123][,HOST...][/DATABASE]";
constexpr const char* kHex = "0123456789abcdef";

std::string url_encoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (is_sql_name(c)) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    ((encoded += '%') += kHex[byte >> 4]) += kHex[byte & 15];
  }
  return encoded;
}

// The number in "Code: 60, e.displayText() = ..." or "Code: 60. DB::Exception: ..."; 0: the text is another one.
unsigned code_of(std::string_view text) {
  constexpr std::string_view kMark = "Code: ";
  unsigned code = 0;
  if (text.starts_with(kMark)) std::from_chars(text.data() + kMark.size(), text.data() + text.size(), code);
  return code;
}

struct KnownRefusal {
  unsigned code;
  ErrorCode kind;
  const char* what;
};
constexpr const char* kNoRights =
    "the server refuses the user. Way out: clickhouse://USER:PASSWORD@HOST:PORT/DATABASE, and rights to read and "
    "insert";
constexpr const char* kNoStoreThere = "the database has no store. Way out: windlass store create URL";
constexpr const char* kServerFull = "the server's disk is full, or it refuses to write";
constexpr const char* kServerBusy = "the server has no room for the query now";
// Of ErrorCodes.cpp.
constexpr KnownRefusal kRefusals[] = {
    {60, ErrorCode::kNotFound, kNoStoreThere},
    {81, ErrorCode::kNotFound, kNoStoreThere},
    {164, ErrorCode::kUnsupported, kNoRights},
    {192, ErrorCode::kUnsupported, kNoRights},
    {193, ErrorCode::kUnsupported, kNoRights},
    {194, ErrorCode::kUnsupported, kNoRights},
    {195, ErrorCode::kUnsupported, kNoRights},
    {291, ErrorCode::kUnsupported, kNoRights},
    {497, ErrorCode::kUnsupported, kNoRights},
    {516, ErrorCode::kUnsupported, kNoRights},
    {74, ErrorCode::kUnreadable, kServerFull},
    {75, ErrorCode::kUnreadable, kServerFull},
    {243, ErrorCode::kUnreadable, kServerFull},
    {242, ErrorCode::kUnreadable, kServerFull},
    {202, ErrorCode::kUnreadable, kServerBusy},
    {216, ErrorCode::kUnreadable, "the server still works on this batch"},
    {241, ErrorCode::kUnreadable, kServerBusy},
    {252, ErrorCode::kUnreadable, kServerBusy},
    {159, ErrorCode::kUnreadable, kServerBusy},
    {439, ErrorCode::kUnreadable, kServerBusy},
    {319, ErrorCode::kUnreadable, "too few replicas have the batch"},
};

Failure refusal(const transport::HttpAnswer& answer) {
  const unsigned code = code_of(answer.body);
  const auto* known = std::ranges::find(kRefusals, code, &KnownRefusal::code);
  if (known != std::end(kRefusals)) return fail(known->kind, known->what, 0);
  if (code != 0)
    return fail(ErrorCode::kUnreadable,
                "the server cannot answer, and its log says why. ClickHouse's number of the error", 0, code);
  if (answer.status == 401 || answer.status == 403) return fail(ErrorCode::kUnsupported, kNoRights, 0);
  if (answer.status == 429 || answer.status == 503) return fail(ErrorCode::kUnreadable, kServerBusy, 0);
  return fail(ErrorCode::kUnreadable, kNotClickhouse, 0, static_cast<std::uint64_t>(answer.status));
}

}  // namespace

std::string sql_text(std::string_view text) {
  std::string literal = "'";
  for (const char c : text) {
    if (is_sql_name(c) || c == ' ' || c == '.' || c == '/' || c == '-') {
      literal += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    ((literal += "\\x") += kHex[byte >> 4]) += kHex[byte & 15];
  }
  return literal + "'";
}

Expected<std::vector<ClickhouseAddress>> ClickhouseAddress::parse(std::string_view url) {
  const auto wrong = [] { return fail(ErrorCode::kMalformed, kNoAddress, 0); };
  if (!is_clickhouse_url(url)) return wrong();
  const bool tls = url.starts_with(kSchemeTls);
  url.remove_prefix((tls ? kSchemeTls : kScheme).size());
  const std::size_t slash = std::min(url.find('/'), url.size());
  const std::string_view database = slash < url.size() ? url.substr(slash + 1) : "";
  if (!std::ranges::all_of(database, is_sql_name) || (!database.empty() && database.front() <= '9')) return wrong();
  std::string_view hosts = url.substr(0, slash);
  const std::size_t mark = hosts.rfind('@');
  const std::string_view user = mark == hosts.npos ? "" : hosts.substr(0, mark + 1);
  hosts.remove_prefix(user.size());
  std::vector<ClickhouseAddress> all;
  for (std::size_t end = 0; end != hosts.npos; hosts.remove_prefix(std::min(hosts.size(), end + 1))) {
    end = hosts.find(',');
    const std::string_view host = hosts.substr(0, end);
    if (host.empty()) return wrong();
    const bool has_port =
        host.rfind(':') != host.npos && (host.rfind(']') == host.npos || host.rfind(']') < host.rfind(':'));
    std::string http =
        fmt::format("{}{}{}{}/", tls ? "https://" : "http://", user, host, has_port ? "" : (tls ? ":8443" : ":8123"));
    if (const auto checked = transport::check_url(http); !checked) return wrong();
    all.push_back({std::move(http), database.empty() ? "windlass" : std::string(database)});
  }
  return all;
}

Expected<std::string> ClickhouseServer::send(transport::HttpClient& client, std::string&& url, std::string_view body) {
  transport::HttpRequest request{.headers = {{"Content-Type", "application/octet-stream"}},
                                 .body = body,
                                 .timeout = patience_,
                                 .most_bytes = kMostAnswerBytes};
  request.url = std::move(url);
  auto answer = client.send(request);
  // Its detail is no errno.
  if (!answer) return fail(ErrorCode::kUnreadable, answer.error().what, 0, answer.error().detail);
  if (answer->status != 200) return refusal(*answer);
  if (answer->field("X-ClickHouse-Server-Display-Name").empty())  // which all versions send
    return fail(ErrorCode::kUnreadable, kNotClickhouse, 0);
  return std::move(answer->body);
}

namespace {

std::string url_of(const ClickhouseAddress& address, const ClickhouseSettings& settings) {
  std::string url = address.http + "?database=" + address.database;
  for (const auto& [name, value] : settings) ((url += '&') += name) += '=' + url_encoded(value);
  return url;
}

}  // namespace

Expected<std::string> ClickhouseServer::query(std::string_view sql, const ClickhouseSettings& settings) {
  // The server answers when all is computed: an error in the midst of an answer would look like rows.
  ClickhouseSettings all{{"wait_end_of_query", "1"}, {"max_query_size", "1000000000"}};
  all.insert(all.end(), settings.begin(), settings.end());
  return send(client_, url_of(address_, all), sql);
}

Expected<void> ClickhouseServer::insert(std::string_view table, std::string_view block,
                                        const ClickhouseSettings& settings) {
  ClickhouseSettings all{{"query", "INSERT INTO " + std::string(table) + " FORMAT Native"}};
  all.insert(all.end(), settings.begin(), settings.end());
  // libcurl sends a request again if a connection that was used before ends without an answer. Then a block would be
  // inserted twice. So each block has a connection of its own.
  transport::HttpClient once;
  const auto answer = send(once, url_of(address_, all), block);
  if (!answer) return Failure(answer.error());
  if (!answer->empty()) return fail(ErrorCode::kUnreadable, kNotClickhouse, 0);
  return {};
}

Expected<std::string> ClickhouseServer::run_outside(std::string_view sql) {
  return send(client_, address_.http + "?wait_end_of_query=1", sql);
}

}  // namespace windlass::store
