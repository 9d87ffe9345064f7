// Headers of OTLP requests, and what OpenTelemetry's variables of the environment say.
#pragma once

#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/agent_otlp.h"
#include "profiler/transport/http_client.h"

namespace windlass::cli {

// KEY and VALUE of a header; "": it is none.
[[nodiscard]] std::pair<std::string, std::string> header_of(const std::string& text);

// "api-key=a%20b,tenant=1", as OTEL_EXPORTER_OTLP_HEADERS has them (W3C Baggage). Nothing: an entry is no KEY=VALUE.
[[nodiscard]] std::optional<transport::HttpFields> parse_header_list(std::string_view text);

// The value of a variable of the environment; null: it is not set.
using Variable = std::function<const char*(const char*)>;

// What the options leave open is taken of the variables of OpenTelemetry's specification ("OpenTelemetry Protocol
// Exporter"): the headers, the place of the certificates, and the URL if there is no store. An error is a sentence.
[[nodiscard]] std::expected<void, std::string> take_otlp_environment(OtlpArguments& to, bool has_store,
                                                                     const Variable& variable);

// Those of the options, then of the file, then of the environment. Of one name the first ones count. Errors: of the
// file: kSystem, kMalformed.
[[nodiscard]] Expected<transport::HttpFields> otlp_headers(const OtlpArguments& arguments);

}  // namespace windlass::cli
