#include "profiler/transport/otlp_sender.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "profiler/transport/otlp_answer.h"
#include "profiler/transport/otlp_pack.h"

namespace windlass::transport {
namespace {

constexpr std::string_view kHttpPath = "/v1development/profiles";
constexpr std::string_view kGrpcPath = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
constexpr std::string_view kGrpcPort = ":4317";

// libcurl's numbers of errors after which no byte of the request has left: names, connections, TLS.
bool is_before_sending(std::uint64_t curl_code) {
  static constexpr std::uint64_t kCodes[] = {2, 5, 6, 7, 35, 58, 60, 77, 83};
  return std::ranges::find(kCodes, curl_code) != std::end(kCodes);
}

const char* name_of(OtlpCompression how) { return how == OtlpCompression::kGzip ? "gzip" : "zstd"; }

// Libcurl's number is no place in a file.
std::string text_of(const Error& error, const std::string& url) {
  if (error.code != ErrorCode::kUnreadable) return error.text();
  return fmt::format("{}: {} (libcurl {})", host_and_port(url), error.what, error.detail);
}

}  // namespace

Expected<OtlpPlace> otlp_place(std::string_view given) {
  const bool is_grpc = given.starts_with("grpc://") || given.starts_with("grpcs://");
  std::string url(given);
  if (is_grpc) url.replace(0, 4, "http");
  if (!is_grpc && !given.starts_with("http://") && !given.starts_with("https://"))
    return fail(ErrorCode::kMalformed, "the URL begins with none of http://, https://, grpc:// and grpcs://", 0);
  if (auto checked = check_url(url); !checked) return Failure(checked.error());
  const std::size_t host = url.find("://") + 3;
  const std::size_t host_end = std::min(url.find_first_of("/?#", host), url.size());
  std::string_view path = std::string_view(url).substr(host_end);
  if (is_grpc && !path.empty() && path != "/") return fail(ErrorCode::kMalformed, "a URL of gRPC has no path", 0);
  if (!path.empty() && path != "/") return OtlpPlace{.url = std::move(url), .is_grpc = false};
  url.resize(host_end);
  const std::size_t colon = url.rfind(':');
  const bool has_port = colon > host && url.find_first_of("@]", colon) == std::string::npos;
  if (is_grpc && !has_port) url += kGrpcPort;
  return OtlpPlace{.url = url.append(is_grpc ? kGrpcPath : kHttpPath), .is_grpc = is_grpc};
}

Expected<HttpAnswer> OtlpSender::ask(std::string_view packed) {
  const OtlpCompression how = packing_of(packed);
  HttpRequest request{.url = target_.place.url,
                      .headers = target_.headers,
                      .body = packed,
                      .timeout = target_.timeout,
                      .tls = target_.tls,
                      .http2_prior_knowledge = target_.place.is_grpc};
  const auto header = [&](const char* name, std::string value) {
    request.headers.emplace_back(name, std::move(value));
  };
  header("user-agent", fmt::format("windlass/{} (OTLP profiles)", WINDLASS_VERSION));
  if (!target_.token_file.empty()) {
    auto token = read_secret(target_.token_file);
    if (!token) return Failure(token.error());
    header("authorization", "Bearer " + *token);
  }
  std::string frame;
  if (target_.place.is_grpc) {
    frame = grpc_frame(packed, how != OtlpCompression::kNone);
    request.body = frame;
    header("content-type", "application/grpc+proto");
    header("te", "trailers");
    header("grpc-timeout", fmt::format("{}m", target_.timeout.count()));
    header("grpc-accept-encoding", "identity");
    if (how != OtlpCompression::kNone) header("grpc-encoding", name_of(how));
  } else {
    header("content-type", "application/x-protobuf");
    if (how != OtlpCompression::kNone) header("content-encoding", name_of(how));
  }
  return client_.send(request);
}

spool::Answer OtlpSender::send(std::string_view packed) {
  const auto answer = ask(packed);
  if (!answer) {
    const bool was_sent =
        (answer.error().code == ErrorCode::kUnreadable && !is_before_sending(answer.error().detail)) ||
        answer.error().code == ErrorCode::kLimit;
    if (was_sent) ++unsure_;
    return {.kind = spool::Answer::Kind::kLater, .why = text_of(answer.error(), target_.place.url)};
  }
  const auto now = std::chrono::system_clock::now();
  OtlpResult result = target_.place.is_grpc ? result_of_grpc(*answer, now) : result_of_http(*answer, now);
  if (result.answer.kind != spool::Answer::Kind::kTaken) return std::move(result.answer);
  rejected_ += result.rejected;
  if (result.rejected == 0 && !result.remark.empty()) ++warnings_;
  const std::string remark =
      result.rejected != 0
          ? fmt::format("the server rejects {} of the profiles that it was sent: {}", result.rejected, result.remark)
          : result.remark;
  if (remark != std::exchange(told_, remark) && !remark.empty()) say_(remark);
  return {};
}

OtlpCounters OtlpSender::counters() const {
  return {.rejected_profiles = rejected_, .warnings = warnings_, .unsure = unsure_};
}

}  // namespace windlass::transport
