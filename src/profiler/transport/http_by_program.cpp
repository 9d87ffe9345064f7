#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "os/child_program.h"
#include "os/descriptor.h"
#include "os/write_all.h"
#include "profiler/transport/http_parts.h"

namespace windlass::transport {
namespace {

constexpr std::chrono::seconds kPatienceBeyond{5};  // curl keeps the timeout itself
constexpr off_t kLongestHead = off_t{256} << 10;

// `name = "value"` of a file of curl's options, where nobody sees passwords as in a command line.
void option(std::string& options, std::string_view name, std::string_view value) {
  options.append(name).append(" = \"");
  for (const char c : value) {
    if (c == '"' || c == '\\') options += '\\';
    options += c;
  }
  options += "\"\n";
}

std::string options_of(const HttpRequest& request) {
  std::string options = "silent\ngloboff\n";
  option(options, "url", request.url);
  option(options, "request", request.method);
  option(options, "proto", "=http,https");
  option(options, "header", "Expect:");
  for (const auto& [name, value] : request.headers)
    // NOLINTNEXTLINE(performance-inefficient-string-concatenation): a few short headers
    option(options, "header", value.empty() ? name + ";" : name + ": " + value);
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT")
    option(options, "data-binary", "@/dev/fd/3");
  option(options, "dump-header", "/dev/fd/4");
  option(options, "max-time", fmt::format("{}", static_cast<double>(request.timeout.count()) * 1e-3));
  option(options, "connect-timeout",
         fmt::format("{}", static_cast<double>(std::min(request.timeout, kConnectPatience).count()) * 1e-3));
  if (request.http2_prior_knowledge) options += "http2-prior-knowledge\n";
  if (!request.tls.ca.empty()) option(options, "cacert", request.tls.ca);
  if (!request.tls.certificate.empty()) option(options, "cert", request.tls.certificate);
  if (!request.tls.key.empty()) option(options, "key", request.tls.key);
  return options;
}

// A file in memory, at its begin; none if there is no room.
os::Descriptor file_of(const char* name, std::string_view text) {
  os::Descriptor file(::memfd_create(name, MFD_CLOEXEC));
  if (!file || !os::write_all(file.get(), text)) return {};
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

void read_head(int file, HttpAnswer& to) {
  std::string text(static_cast<std::size_t>(std::clamp<off_t>(::lseek(file, 0, SEEK_END), 0, kLongestHead)), '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(file, text.data(), text.size(), 0))));
  HttpHead head;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1);
    head.line(rest.substr(0, end + 1));
    rest.remove_prefix(end + 1);
  }
  head.take(to);
}

}  // namespace

Expected<HttpAnswer> send_by_program(const HttpRequest& request) {
  const os::Descriptor options = file_of("curl-options", options_of(request));
  const os::Descriptor body = file_of("curl-body", request.body);
  const os::Descriptor head = file_of("curl-head", {});
  if (!options || !body || !head) return fail(ErrorCode::kSystem, "no memory for a request", 0, errno);
  auto end = os::run_program({.arguments = {"curl", "--disable", "--config", "-"},
                              .input = options.get(),
                              .inherited = {body.get(), head.get()},
                              .patience = request.timeout + kPatienceBeyond,
                              .most_bytes = request.most_bytes});
  constexpr int kNoProgram = 127;  // of a shell, and of posix_spawn() where the system cannot tell; none of curl's
  if (end ? end->status == kNoProgram : end.error().code == ErrorCode::kNotFound)
    return fail(ErrorCode::kNotFound,
                "neither libcurl.so.4 nor the program curl is here. Way out: install the package libcurl4 or curl", 0);
  if (!end && end.error().code == ErrorCode::kLimit)
    return fail(ErrorCode::kLimit, "the server's answer is too long", 0, request.most_bytes);
  if (!end) return Failure(end.error());
  if (end->status != 0) return curl_failure(end->status);
  HttpAnswer answer;
  read_head(head.get(), answer);
  answer.body = std::move(end->output);
  return answer;
}

}  // namespace windlass::transport
