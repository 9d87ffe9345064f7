#include "cli/otlp_headers.h"

#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "profiler/transport/otlp_answer.h"

namespace windlass::cli {
namespace {

constexpr std::size_t kLongestFile = std::size_t{64} << 10;

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Calls `take` for each part between marks that is not empty; false: one was refused.
template <typename Take>
bool each_part(std::string_view text, char mark, Take take) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(mark), text.size());
    const std::string_view part = without_blanks(text.substr(0, end));
    if (!part.empty() && !take(part)) return false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

// "KEY = VALUE".
std::pair<std::string, std::string> trimmed_header(std::string_view text) {
  const auto [key, value] = header_of(std::string(text));
  return {std::string(without_blanks(key)), std::string(without_blanks(value))};
}

// The variable of profiles alone, else the one of all signals. Empty ones count as not set, as the specification has
// it.
std::string value_of(const Variable& variable, std::string_view suffix, bool& of_profiles) {
  for (const bool own : {true, false}) {
    const std::string name = fmt::format("OTEL_EXPORTER_OTLP_{}{}", own ? "PROFILES_" : "", suffix);
    const char* value = variable(name.c_str());
    of_profiles = own;
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

std::string value_of(const Variable& variable, std::string_view suffix) {
  bool unused = false;
  return value_of(variable, suffix, unused);
}

std::expected<void, std::string> take_url(OtlpArguments& to, const Variable& variable) {
  bool of_profiles = false;
  std::string url = value_of(variable, "ENDPOINT", of_profiles);
  if (url.empty()) return {};
  const std::string protocol = value_of(variable, "PROTOCOL");
  const bool is_http = url.starts_with("http://") || url.starts_with("https://");
  if (protocol == "grpc" && is_http) {
    url.replace(0, 4, "grpc");
  } else if (!protocol.empty() && protocol != "grpc" && protocol != "http/protobuf") {
    return std::unexpected(
        fmt::format("OTEL_EXPORTER_OTLP_PROTOCOL: there is no {}. Way out: grpc or http/protobuf", protocol));
  } else if (is_http && !of_profiles) {
    while (url.ends_with('/')) url.pop_back();
    url += "/v1development/profiles";
  }
  if (const auto place = transport::otlp_place(url); !place)
    return std::unexpected(fmt::format("OTEL_EXPORTER_OTLP_ENDPOINT: {}", place.error().what));
  to.url = std::move(url);
  return {};
}

}  // namespace

std::pair<std::string, std::string> header_of(const std::string& text) {
  const std::size_t mark = text.find('=');
  if (mark == std::string::npos || mark == 0) return {};
  return {text.substr(0, mark), text.substr(mark + 1)};
}

std::optional<transport::HttpFields> parse_header_list(std::string_view text) {
  transport::HttpFields headers;
  const bool good = each_part(text, ',', [&](std::string_view part) {
    auto [key, value] = trimmed_header(part);
    headers.emplace_back(std::move(key), transport::percent_decoded(value));
    return !headers.back().first.empty();
  });
  return good ? std::optional(std::move(headers)) : std::nullopt;
}

std::expected<void, std::string> take_otlp_environment(OtlpArguments& to, bool has_store, const Variable& variable) {
  if (to.url.empty() && !has_store)
    if (auto taken = take_url(to, variable); !taken) return taken;
  if (to.url.empty()) return {};
  auto headers = parse_header_list(value_of(variable, "HEADERS"));
  if (!headers)
    return std::unexpected("OTEL_EXPORTER_OTLP_HEADERS: an entry is no KEY=VALUE. Way out: KEY=VALUE,KEY=VALUE");
  to.environment_headers = *std::move(headers);
  const auto take_file = [&](std::string& path, const char* suffix) {
    if (path.empty()) path = value_of(variable, suffix);
  };
  take_file(to.ca, "CERTIFICATE");
  take_file(to.certificate, "CLIENT_CERTIFICATE");
  take_file(to.key, "CLIENT_KEY");
  return {};
}

Expected<transport::HttpFields> otlp_headers(const OtlpArguments& arguments) {
  transport::HttpFields headers;
  // All of one source; names that an earlier source has are left out.
  const auto add = [&headers](const transport::HttpFields& more) {
    const std::size_t before = headers.size();
    for (const auto& header : more) {
      const bool is_known =
          std::any_of(headers.begin(), headers.begin() + static_cast<std::ptrdiff_t>(before),
                      [&](const auto& other) { return strcasecmp(other.first.c_str(), header.first.c_str()) == 0; });
      if (!is_known) headers.push_back(header);
    }
  };
  transport::HttpFields given;
  for (const std::string& header : arguments.headers) given.push_back(header_of(header));
  add(given);
  if (!arguments.header_file.empty()) {
    std::ifstream file(arguments.header_file, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (file.bad() || !file.is_open())
      return fail(ErrorCode::kSystem, "cannot read the file of --otlp-header-file", 0, static_cast<unsigned>(errno));
    if (text.size() > kLongestFile)
      return fail(ErrorCode::kMalformed, "the file of --otlp-header-file has more than 64 KiB", 0);
    transport::HttpFields of_file;
    const bool good = each_part(text, '\n', [&](std::string_view line) {
      if (line.front() == '#') return true;
      of_file.push_back(trimmed_header(line));
      return !of_file.back().first.empty();
    });
    if (!good)
      return fail(ErrorCode::kMalformed,
                  "the file of --otlp-header-file has a line that is no KEY=VALUE. Way out: a header in each line", 0);
    add(of_file);
  }
  add(arguments.environment_headers);
  return headers;
}

}  // namespace windlass::cli
