#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "fake_server.h"
#include "profiler/transport/http_client.h"
#include "profiler/transport/http_parts.h"

namespace windlass::transport {
namespace {

using namespace std::chrono_literals;

constexpr int kRefusedConnection = 7, kLate = 28, kClosed = 52, kCut = 18;  // of libcurl

// Each test runs with the library and with the program.
class HttpBy : public testing::TestWithParam<bool> {
 protected:
  HttpBy() { ::signal(SIGPIPE, SIG_IGN); }
  Expected<HttpAnswer> send(const HttpRequest& request) {
    return GetParam() ? client_.send(request) : send_by_program(request);
  }
  HttpClient client_;
};

INSTANTIATE_TEST_SUITE_P(Ways, HttpBy, testing::Bool(),
                         [](const auto& way) { return way.param ? "library" : "program"; });

TEST_P(HttpBy, SendsABodyAndReadsTheAnswer) {
  FakeServer server({answer_of(201, "X-One: first\r\nx-two:second \r\n", std::string("an\0swer", 7))});
  const std::string body("a\0b\r\n\"\\@", 8);
  const auto answer =
      send({.url = server.url("/v1?q=%20"),
            .headers = {{"Content-Type", "application/x-protobuf"}, {"X-Quote", "a \"b\" \\c"}, {"X-Empty", ""}},
            .body = body});
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->body, std::string("an\0swer", 7));
  EXPECT_EQ(answer->field("x-ONE"), "first");
  EXPECT_EQ(answer->field("X-Two"), "second");
  EXPECT_EQ(answer->field("X-Three"), "");
  ASSERT_EQ(server.requests().size(), 1u);
  const std::string request = server.requests()[0];
  EXPECT_TRUE(request.starts_with("POST /v1?q=%20 HTTP/1.1\r\n")) << request;
  EXPECT_TRUE(request.ends_with("\r\n\r\n" + body)) << request;
  EXPECT_NE(request.find("\r\nContent-Type: application/x-protobuf\r\n"), std::string::npos) << request;
  EXPECT_NE(request.find("\r\nX-Quote: a \"b\" \\c\r\n"), std::string::npos) << request;
  EXPECT_NE(request.find("\r\nX-Empty:"), std::string::npos) << request;
  EXPECT_EQ(request.find("Expect"), std::string::npos) << request;
}

TEST_P(HttpBy, SendsLargeBodiesAndNone) {
  FakeServer server({answer_of(200, "", ""), answer_of(200, "", "1")});
  const std::string body(3'000'000, 'x');
  auto answer = send({.url = server.url(), .body = body});
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_TRUE(server.requests()[0].ends_with(body));
  answer = send({.method = "GET", .url = server.url()});
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(answer->body, "1");
  EXPECT_TRUE(server.requests()[1].starts_with("GET / HTTP/1.1\r\n"));
  EXPECT_EQ(server.requests()[1].find("Content-Length"), std::string::npos);
}

TEST_P(HttpBy, ABodyOfNothingHasALength) {
  FakeServer server({answer_of(200, "", ""), answer_of(200, "", "")});
  for (const std::string method : {"POST", "PUT"}) {
    const auto answer = send({.method = method, .url = server.url()});
    ASSERT_TRUE(answer) << answer.error().text();
    const std::string request = server.requests().back();
    EXPECT_TRUE(request.starts_with(method + " / HTTP/1.1\r\n")) << request;
    EXPECT_NE(request.find("Content-Length: 0\r\n"), std::string::npos) << request;
  }
}

TEST_P(HttpBy, EveryStatusIsAnAnswer) {
  FakeServer server({answer_of(429, "Retry-After: 7\r\n", "slow down"), answer_of(503, "", ""),
                     answer_of(302, "Location: http://127.0.0.1:1/\r\n", "")});
  for (const int status : {429, 503, 302}) {
    const auto answer = send({.url = server.url(), .body = "x"});
    ASSERT_TRUE(answer) << answer.error().text();
    EXPECT_EQ(answer->status, status);
    EXPECT_EQ(answer->field("retry-after"), status == 429 ? "7" : "");
  }
}

TEST_P(HttpBy, DropsInterimAnswersAndKeepsTrailers) {
  FakeServer server(
      {"HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n"
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n"
       "3\r\nabc\r\n0\r\nX-End: done\r\n\r\n"});
  const auto answer = send({.url = server.url(), .body = "x"});
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "abc");
  EXPECT_EQ(answer->field("x-interim"), "");
  ASSERT_EQ(answer->trailers.size(), 1u);
  EXPECT_EQ(answer->trailers[0].second, "done");
}

TEST_P(HttpBy, SaysWhyNoAnswerCame) {
  const auto error_of = [&](const HttpRequest& request) {
    const auto answer = send(request);
    return answer ? Error{.detail = 0} : answer.error();
  };
  std::string gone;
  {
    FakeServer server({"", std::string("\0", 1), "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
                       answer_of(200, "", std::string(2000, 'x'))});
    gone = server.url();
    Error error = error_of({.url = server.url(), .body = "x"});
    EXPECT_EQ(error.detail, kClosed) << error.text();
    EXPECT_EQ(error.code, ErrorCode::kUnreadable);
    error = error_of({.url = server.url(), .body = "x", .timeout = 300ms});
    EXPECT_EQ(error.detail, kLate) << error.text();
  }
  {
    FakeServer server({"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc"});
    const Error error = error_of({.url = server.url(), .body = "x", .timeout = 1s});
    EXPECT_TRUE(error.detail == kCut || error.detail == kLate) << error.text();
  }
  const Error error = error_of({.url = gone, .body = "x"});
  EXPECT_EQ(error.detail, kRefusedConnection) << error.text();
}

TEST_P(HttpBy, BoundsTheAnswer) {
  FakeServer server({answer_of(200, "", std::string(100'000, 'x')), answer_of(200, "", std::string(1000, 'x'))});
  auto answer = send({.url = server.url(), .body = "x", .most_bytes = 99'999});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kLimit) << answer.error().text();
  answer = send({.url = server.url(), .body = "x", .most_bytes = 1000});
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(answer->body.size(), 1000u);
}

TEST_P(HttpBy, GarbageIsAnError) {
  FakeServer server({"\x01\x02 no HTTP at all\r\n\r\n"});
  EXPECT_FALSE(send({.url = server.url(), .body = "x"}));
}

TEST(HttpClient, KeepsTheConnection) {
  if (!open_libcurl()) GTEST_SKIP() << "no libcurl: each request starts the program curl";
  FakeServer server({answer_of(200, "", "a"), answer_of(200, "", "b")});
  HttpClient client;
  ASSERT_TRUE(client.send({.url = server.url(), .body = "x"}));
  ASSERT_TRUE(client.send({.url = server.url(), .body = "y"}));
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, RefusesWhatCannotBeSent) {
  HttpClient client;
  const auto code_of = [&](const HttpRequest& request) {
    const auto answer = client.send(request);
    return answer ? ErrorCode::kSystem : answer.error().code;
  };
  for (const char* url : {"", "file:///etc/passwd", "ftp://host/", "HTTP://host/", "http://", "http:///path",
                          "http://a b/", "http://host/\r\nX: 1", "http://host/\"", "http://h\xc3\xa4/", "gopher://x"})
    EXPECT_EQ(code_of({.url = url}), ErrorCode::kMalformed) << url;
  EXPECT_EQ(code_of({.url = "http://127.0.0.1:1/", .headers = {{"X", "a\r\nY: b"}}}), ErrorCode::kMalformed);
  EXPECT_EQ(code_of({.url = "http://127.0.0.1:1/", .headers = {{"X Y", "a"}}}), ErrorCode::kMalformed);
  EXPECT_EQ(code_of({.url = "http://127.0.0.1:1/", .headers = {{"", "a"}}}), ErrorCode::kMalformed);
  EXPECT_EQ(code_of({.method = "GE T", .url = "http://127.0.0.1:1/"}), ErrorCode::kMalformed);
  EXPECT_EQ(code_of({.url = "https://127.0.0.1:1/", .tls = {.ca = "a\nb"}}), ErrorCode::kMalformed);
}

TEST(HttpClient, ShowsNoCredentials) {
  EXPECT_EQ(url_shown("https://user:secret@host:1/path?token=2"), "https://host:1/path");
  EXPECT_EQ(url_shown("http://a@b@host/p@q"), "http://host/p@q");
  EXPECT_EQ(url_shown("http://host?x=/a@b"), "http://host");
  EXPECT_EQ(url_shown("http://[::1]:4318"), "http://[::1]:4318");
  EXPECT_EQ(url_shown("grpc://u@h:4317"), "grpc://h:4317");
}

TEST(HttpClient, NamesHostAndPort) {
  EXPECT_EQ(host_and_port("http://a:b@db.example:8123/x?y"), "db.example:8123");
  EXPECT_EQ(host_and_port("https://db.example"), "db.example:443");
  EXPECT_EQ(host_and_port("http://db.example/x:1"), "db.example:80");
  EXPECT_EQ(host_and_port("http://[::1]/"), "[::1]:80");
  EXPECT_EQ(host_and_port("http://[::1]:90/"), "[::1]:90");
}

TEST(HttpClient, EachErrorNamesTheWayOut) {
  for (int code = 1; code < 100; ++code) {
    const Error error = curl_failure(code).error();
    EXPECT_NE(std::string_view(error.what).find(". Way out: "), std::string_view::npos) << error.text();
  }
}

TEST(HttpClient, ReadsSecrets) {
  const std::string path = testing::TempDir() + "windlass_secret";
  const auto secret_of = [&](std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
    const auto secret = read_secret(path);
    return secret ? *secret : "error: " + std::string(secret.error().what);
  };
  EXPECT_EQ(secret_of("abc\n"), "abc");
  EXPECT_EQ(secret_of("  abc d \r\nsecond line\n"), "abc d");
  EXPECT_TRUE(secret_of("").starts_with("error: the first line"));
  EXPECT_TRUE(secret_of("\nabc").starts_with("error: the first line"));
  EXPECT_TRUE(secret_of("a\x01"
                        "b")
                  .starts_with("error: the file of a secret has characters"));
  EXPECT_TRUE(secret_of(std::string(70'000, 'x')).starts_with("error: the file of a secret has more"));
  std::filesystem::remove(path);
  EXPECT_EQ(read_secret(path).error().code, ErrorCode::kSystem);
}

// The program's password stands in no command line.
TEST(HttpClient, TheProgramGetsSecretsByADescriptor) {
  const std::string folder = testing::TempDir() + "windlass_curl_path";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/curl") << "#!/bin/sh\necho \"$@\"\ncat - >/dev/null\necho 'HTTP/1.1 200 OK' >&4\n";
  ::chmod((folder + "/curl").c_str(), 0755);
  const std::string before = std::getenv("PATH");
  ::setenv("PATH", (folder + ":" + before).c_str(), 1);
  const auto answer =
      send_by_program({.url = "http://u:secret@127.0.0.1:1/", .headers = {{"Authorization", "Bearer secret"}}});
  ::setenv("PATH", folder.c_str(), 1);
  std::filesystem::remove(folder + "/curl");
  const auto none = send_by_program({.url = "http://127.0.0.1:1/"});
  ::setenv("PATH", before.c_str(), 1);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(answer) << answer.error().text();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "--disable --config -\n");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace windlass::transport
