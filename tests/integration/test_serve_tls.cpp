// `windlass serve --tls-cert`: answers are those of plain HTTP; who may ask by a certificate; what is refused.
#include "serve_command.h"

#include <csignal>

#include "profiler/transport/http_client.h"
#include "support/run_command.h"

namespace windlass::test {
namespace {

const std::string kToken = "0123456789abcdef_-XY";

class ServeByTls : public ServeCommand {
 protected:
  static void SetUpTestSuite() {
    ServeCommand::SetUpTestSuite();
    // curl writes to connections that the server has closed.
    std::signal(SIGPIPE, SIG_IGN);
    for (const char* name : {"server", "client", "stranger"}) {
      const auto made = run(fmt::format(
          "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={1} -addext subjectAltName=IP:127.0.0.1 "
          "-keyout {0}/{1}.key -out {0}/{1}.crt 2>&1",
          directory_, name));
      ASSERT_EQ(made.status, 0) << made.output;
    }
  }
  static std::string file(const std::string& name) { return directory_ + "/" + name; }
  static std::vector<std::string> with_tls(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--tls-cert", file("server.crt"), "--tls-key", file("server.key")});
    return more;
  }
  // Of https; `client`: whose certificate is shown. The port's answer to anything else is an error.
  [[nodiscard]] Expected<transport::HttpAnswer> fetch(const std::string& path, const std::string& client = "",
                                                      transport::HttpFields headers = {}) const {
    transport::HttpRequest request{.method = "GET",
                                   .url = fmt::format("https://127.0.0.1:{}{}", port_, path),
                                   .headers = std::move(headers),
                                   .timeout = std::chrono::seconds(60),
                                   .tls = {.ca = file("server.crt")},
                                   .most_bytes = std::size_t{64} << 20};
    if (!client.empty()) request.tls.certificate = file(client + ".crt"), request.tls.key = file(client + ".key");
    return transport::HttpClient().send(request);
  }
  [[nodiscard]] int status_by_tls(const std::string& path, const std::string& client = "",
                                  transport::HttpFields headers = {}) const {
    const auto answer = fetch(path, client, std::move(headers));
    return answer ? answer->status : 0;
  }
};

TEST_F(ServeByTls, AnswersAreThoseOfHttp) {
  const std::string page = "/api/profile?" + served_range();
  ASSERT_NO_FATAL_FAILURE(serve());
  const std::string plain = body_of(get(page));
  ASSERT_GT(plain.size(), 100'000u) << "some records of TLS";
  EXPECT_EQ(interrupted(), 0);
  ASSERT_NO_FATAL_FAILURE(serve(with_tls()));
  EXPECT_NE(said().find(fmt::format("at https://127.0.0.1:{}/\n", port_)), std::string::npos) << said();
  const auto answer = fetch(page);
  ASSERT_TRUE(answer.has_value()) << answer.error().text();
  EXPECT_EQ(answer->status, 200);
  EXPECT_TRUE(answer->body == plain) << answer->body.size() << " bytes, not " << plain.size();
  EXPECT_EQ(status_by_tls("/"), 200);
  EXPECT_EQ(status_by_tls("/x"), 404);
  EXPECT_EQ(get("/"), "") << "an answer without TLS";
  // Clients that begin no handshake, or leave within one, hold nobody up.
  std::vector<os::Descriptor> silent;
  for (int i = 0; i < 70; ++i) {
    silent.push_back(connect_to(port_));
    if (i % 2 == 0) (void)::send(silent.back().get(), "\x16\x03\x01\x02", 4, MSG_NOSIGNAL);
  }
  EXPECT_EQ(status_by_tls("/api/labels"), 200);
  silent.clear();
  EXPECT_EQ(status_by_tls("/api/labels"), 200);
  // A client that leaves within the answer: the server writes on, and goes on.
  for (int i = 0; i < 5; ++i)
    (void)run(fmt::format("curl -s --max-filesize 1000 --cacert {} 'https://127.0.0.1:{}{}' | head -c 100",  //
                          file("server.crt"), port_, page));
  EXPECT_EQ(status_by_tls("/api/labels"), 200);
  // Versions of TLS that are not safe any more.
  const auto old =
      run(fmt::format("openssl s_client -connect 127.0.0.1:{} -tls1_1 -cipher ALL:@SECLEVEL=0 </dev/null 2>&1", port_));
  EXPECT_EQ(old.output.find("Cipher is ECDHE"), std::string::npos) << old.output;
  EXPECT_NE(old.status, 0);
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByTls, ATokenIsKeptForTls) {
  std::ofstream(file("token")) << kToken;
  ASSERT_EQ(::chmod(file("token").c_str(), 0600), 0);
  ASSERT_NO_FATAL_FAILURE(serve(with_tls({"--token-file", file("token")})));
  EXPECT_EQ(status_by_tls("/api/labels"), 401);
  EXPECT_EQ(status_by_tls("/api/labels", "", {{"Authorization", "Bearer " + kToken}}), 200);
  const auto visit = fetch("/?token=" + kToken);
  ASSERT_TRUE(visit.has_value()) << visit.error().text();
  EXPECT_EQ(visit->status, 303);
  EXPECT_NE(visit->field("Set-Cookie").find("; Secure"), std::string::npos) << visit->field("Set-Cookie");
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByTls, ACertificateIsEnough) {
  std::vector<std::string> words{WINDLASS_COMMAND, "serve", store_, "--listen", "0.0.0.0:0"};
  for (std::string& word : with_tls({"--tls-client-ca", file("client.crt")})) words.push_back(std::move(word));
  ASSERT_NO_FATAL_FAILURE(start(words));
  EXPECT_EQ(status_by_tls("/api/labels", "client"), 200);
  EXPECT_EQ(status_by_tls("/api/labels", "client", {{"Host", "profiles.example"}}), 200);
  for (const char* path : {"/", "/api/labels"})
    for (const char* other : {"", "stranger", "server"}) EXPECT_EQ(status_by_tls(path, other), 0) << other;
  EXPECT_EQ(status_by_tls("/api/labels", "client", {{"Sec-Fetch-Site", "cross-site"}}), 403);
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByTls, FilesThatCannotBeUsedAreSaid) {
  const auto said_of = [](const std::string& options, int status) {
    const auto done = run(fmt::format("{} serve {} --listen 127.0.0.1:0 {} 2>&1", WINDLASS_COMMAND, store_, options));
    EXPECT_EQ(done.status, status) << done.output;
    return done.output;
  };
  const std::string cert = "--tls-cert " + file("server.crt"), key = " --tls-key " + file("server.key");
  EXPECT_NE(said_of(cert, 2).find("--tls-key"), std::string::npos);
  EXPECT_NE(said_of("--tls-client-ca " + file("client.crt"), 2).find("--tls-cert"), std::string::npos);
  EXPECT_NE(said_of(cert + " --tls-key " + file("client.key"), 3).find("client.key: no key in PEM"), std::string::npos);
  EXPECT_NE(said_of("--tls-cert " + file("none") + key, 3).find("none: no certificate in PEM"), std::string::npos);
  EXPECT_NE(said_of("--tls-cert " + file("server.key") + key, 3).find("server.key: no certificate"), std::string::npos);
  EXPECT_NE(said_of(cert + key + " --tls-client-ca " + file("server.key"), 3).find("server.key: no certificates"),
            std::string::npos);
  // Nobody is asked for a passphrase.
  const auto made = run(fmt::format("openssl rsa -aes128 -passout pass:secret -in {} -out {} 2>&1", file("server.key"),
                                    file("locked.key")));
  ASSERT_EQ(made.status, 0) << made.output;
  EXPECT_NE(said_of(cert + " --tls-key " + file("locked.key") + " </dev/null", 3).find("without a passphrase"),
            std::string::npos);
}

}  // namespace
}  // namespace windlass::test
