#include "profiler/transport/otlp_answer.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <protozero/pbf_reader.hpp>

#include <fmt/format.h>

#include "profiler/transport/otlp_fields.h"

namespace windlass::transport {
namespace {

using protozero::pbf_reader;
using Kind = spool::Answer::Kind;
using std::chrono::milliseconds;

constexpr std::size_t kLongestRemark = 300;
constexpr std::string_view kNotOtlp = "the server's answer is none of OTLP. Way out: check the URL";

std::string remark_of(std::string_view text) { return std::string(text.substr(0, kLongestRemark)); }

// An ExportProfilesServiceResponse; false: the bytes are none.
bool read_response(std::string_view bytes, OtlpResult& to) {
  try {
    pbf_reader response(bytes.data(), bytes.size());
    while (response.next()) {
      if (response.tag_and_type() !=
          protozero::tag_and_type(otlp::kPartialSuccess, protozero::pbf_wire_type::length_delimited)) {
        response.skip();
        continue;
      }
      pbf_reader partial = response.get_message();
      while (partial.next()) {
        if (partial.tag_and_type() ==
            protozero::tag_and_type(otlp::kRejectedProfiles, protozero::pbf_wire_type::varint))
          to.rejected = static_cast<std::uint64_t>(std::max<std::int64_t>(0, partial.get_int64()));
        else if (partial.tag_and_type() ==
                 protozero::tag_and_type(otlp::kErrorMessage, protozero::pbf_wire_type::length_delimited))
          to.remark = remark_of(partial.get_string());
        else
          partial.skip();
      }
    }
    return true;
  } catch (const protozero::exception&) {  // NOLINT(bugprone-empty-catch): the comment
    to.rejected = 0;
    to.remark.clear();
    return false;
  }
}

// google.rpc.Status: its text, and the delay of a google.rpc.RetryInfo among its details.
struct RpcStatus {
  std::string message{};
  std::optional<milliseconds> retry{};
};

milliseconds read_retry_info(std::string_view bytes) {
  std::int64_t seconds = 0, nanoseconds = 0;
  pbf_reader info(bytes.data(), bytes.size());
  while (info.next(1, protozero::pbf_wire_type::length_delimited)) {
    pbf_reader delay = info.get_message();
    while (delay.next()) {
      if (delay.wire_type() != protozero::pbf_wire_type::varint)
        delay.skip();
      else if (delay.tag() == 1)
        seconds = delay.get_int64();
      else
        nanoseconds = delay.get_int64();
    }
  }
  seconds = std::clamp<std::int64_t>(seconds, 0, 1'000'000);
  return milliseconds(seconds * 1000 + std::clamp<std::int64_t>(nanoseconds, 0, 999'999'999) / 1'000'000);
}

RpcStatus read_status(std::string_view bytes) {
  RpcStatus status;
  try {
    pbf_reader message(bytes.data(), bytes.size());
    while (message.next()) {
      if (message.wire_type() != protozero::pbf_wire_type::length_delimited) {
        message.skip();
      } else if (message.tag() == 2) {
        status.message = remark_of(message.get_string());
      } else if (message.tag() == 3) {
        pbf_reader any = message.get_message();
        std::string type, value;
        while (any.next()) {
          if (any.wire_type() != protozero::pbf_wire_type::length_delimited)
            any.skip();
          else
            (any.tag() == 1 ? type : value) = any.get_string();
        }
        if (type.ends_with("/google.rpc.RetryInfo")) status.retry = read_retry_info(value);
      } else {
        message.skip();
      }
    }
  } catch (const protozero::exception&) {  // NOLINT(bugprone-empty-catch): the comment
    // What came before the damage stays.
  }
  return status;
}

// Of letters that are none of base64 nothing is left.
std::string from_base64(std::string_view text) {
  static constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0, count = 0;
  for (const char c : text) {
    const std::size_t value = kLetters.find(c);
    if (value == std::string_view::npos) break;
    bits = bits << 6 | static_cast<unsigned>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count));
      bits &= (1u << count) - 1;
    }
  }
  return bytes;
}

OtlpResult later(std::string why, std::optional<milliseconds> retry = {}) {
  return {.answer = {.kind = Kind::kLater, .retry_after = retry, .why = std::move(why)}};
}
OtlpResult refused(std::string why, bool too_large = false) {
  return {.answer = {.kind = Kind::kRefused, .too_large = too_large, .why = std::move(why)}};
}

std::string with_message(std::string sentence, std::string_view message) {
  return message.empty() ? sentence : sentence.append(": ").append(remark_of(message));
}

constexpr int kContentTooLarge = 413;

bool is_retried(int http_status) {
  return http_status == 429 || http_status == 502 || http_status == 503 || http_status == 504;
}

OtlpResult result_of_status(const HttpAnswer& answer, std::string_view message,
                            std::chrono::system_clock::time_point now) {
  std::string why = with_message(fmt::format("the server answers {}", answer.status), message);
  if (!is_retried(answer.status)) return refused(std::move(why), answer.status == kContentTooLarge);
  return later(std::move(why), spool::parse_retry_after(answer.field("retry-after"), now));
}

constexpr const char* kGrpcNames[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

}  // namespace

OtlpResult result_of_http(const HttpAnswer& answer, std::chrono::system_clock::time_point now) {
  if (answer.status < 200 || answer.status > 299) {
    const bool is_proto = answer.field("content-type").starts_with("application/x-protobuf");
    return result_of_status(answer, is_proto ? read_status(answer.body).message : "", now);
  }
  OtlpResult result;
  const bool is_json = answer.field("content-type").starts_with("application/json");
  if (!is_json && !read_response(answer.body, result)) return later(std::string(kNotOtlp));
  return result;
}

OtlpResult result_of_grpc(const HttpAnswer& answer, std::chrono::system_clock::time_point now) {
  const std::string_view text = answer.field("grpc-status");
  if (text.empty() && answer.status != 200) return result_of_status(answer, "", now);
  unsigned code = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), code);
  if (text.empty() || read.ptr != text.data() + text.size()) return later(std::string(kNotOtlp));
  if (code == 0) {
    OtlpResult result;
    const std::string_view body = answer.body;
    const bool is_whole = body.size() >= 5 && body[0] == 0 && grpc_frame(body.substr(5), false) == body;
    return is_whole && read_response(body.substr(5), result) ? result : later(std::string(kNotOtlp));
  }
  const RpcStatus status = read_status(from_base64(answer.field("grpc-status-details-bin")));
  const std::string name = code < std::size(kGrpcNames) ? kGrpcNames[code] : fmt::format("{}", code);
  std::string why =
      with_message(fmt::format("the server answers {}", name), percent_decoded(answer.field("grpc-message")));
  static constexpr unsigned kCancelled = 1, kDeadline = 4, kExhausted = 8, kAborted = 10, kRange = 11, kAway = 14,
                            kLoss = 15;
  const bool retried = code == kCancelled || code == kDeadline || code == kAborted || code == kRange || code == kAway ||
                       code == kLoss || (code == kExhausted && status.retry);
  return retried ? later(std::move(why), status.retry) : refused(std::move(why), code == kExhausted);
}

std::string percent_decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr == text.data() + i + 3;
    plain.push_back(is_escape ? static_cast<char>(byte) : text[i]);
    i += is_escape ? 2 : 0;
  }
  return plain;
}

std::string grpc_frame(std::string_view message, bool is_compressed) {
  std::string frame(1, is_compressed ? '\1' : '\0');
  for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(message.size() >> shift & 0xff));
  return frame.append(message);
}

}  // namespace windlass::transport
