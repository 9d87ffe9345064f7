// The command `windlass serve`, by plain HTTP: answers, who may ask, and what is bounded.
#include "serve_command.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "profiler/export/pprof.h"
#include "support/run_command.h"

namespace windlass::test {
namespace {

const std::string kToken = "0123456789abcdef_-XY";

class ServeByHttp : public ServeCommand {
 protected:
  // A file with a token, for its owner alone unless `mode` is another one.
  static std::string token_file(const std::string& text = kToken + "\n", mode_t mode = 0600) {
    const std::string path = directory_ + "/token";
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  // Processes that work for the server now.
  [[nodiscard]] std::vector<pid_t> children() const {
    std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", program_->pid()));
    return {std::istream_iterator<pid_t>(list), {}};
  }
  // Asks, and stops the process that works the answer out. Not where it holds a lock of the store: others would wait
  // for that, by SQLite's rules.
  [[nodiscard]] std::pair<os::Descriptor, pid_t> ask_and_stop(const std::string& path) const {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (int attempt = 0; attempt < 100; ++attempt) {
      os::Descriptor socket = connect_to(port_);
      EXPECT_EQ(::send(socket.get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
      if (const pid_t stopped = stop_child(); stopped > 0) return {std::move(socket), stopped};
      (void)rest_of(socket);
    }
    ADD_FAILURE() << "no process works";
    return {os::Descriptor(), -1};
  }
  // -1: there is none, it has ended, or it holds a lock and goes on.
  [[nodiscard]] pid_t stop_child() const {
    pid_t child = -1;
    for (int i = 0; i < 1'000'000 && child < 0; ++i)
      if (const auto now = children(); !now.empty()) child = now.front();
    if (child < 0 || ::kill(child, SIGSTOP) != 0) return -1;
    char state = 0;
    while (state != 'T') {
      std::ifstream stat(fmt::format("/proc/{}/stat", child));
      std::string number, name;
      if (!(stat >> number >> name >> state) || state == 'Z') return -1;
    }
    std::ifstream locks("/proc/locks");
    const std::string mark = fmt::format(" WRITE {} ", child);
    for (std::string line; std::getline(locks, line);)
      if (line.find(mark) != line.npos) return ::kill(child, SIGCONT), -1;
    return child;
  }
  static std::string rest_of(const os::Descriptor& socket) {
    std::string answer;
    char buffer[65536];
    for (ssize_t got = 0; (got = ::recv(socket.get(), buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(got));
    return answer;
  }
};

TEST_F(ServeByHttp, AnswersAreTheStores) {
  ASSERT_NO_FATAL_FAILURE(serve());
  const auto labels = json_of("/api/labels");
  EXPECT_EQ(labels["schema"], 1);
  EXPECT_EQ(labels["store"], store_);
  EXPECT_EQ(labels["begin"], kServedStart);
  EXPECT_EQ(labels["interval"], kServedInterval);
  EXPECT_EQ(labels["end"], kServedEnd);
  EXPECT_EQ(labels["labels"], nlohmann::json({"host", "pid", "process", "service", "thread", "tid"}));

  std::map<std::string, std::uint64_t> counts;
  std::uint64_t all = 0;
  for (const bool half : {false, true}) {
    const profile::Profile profile = served_profile(half);
    for (const auto& sample : profile.samples) {
      const std::uint64_t count = sample.count * kServedIntervals / 2;
      counts[profile.strings[profile.label_sets[sample.labels][0].value]] += count;
      all += count;
    }
  }
  const std::uint64_t period = served_profile(false).events[0].period;
  const auto values = json_of("/api/values?label=service&event=cpu&" + served_range())["values"];
  ASSERT_EQ(values.size(), kServices);
  std::uint64_t before = ~std::uint64_t{0};
  for (const auto& one : values) {
    EXPECT_EQ(one["count"], counts.at(one["value"])) << one["value"];
    EXPECT_EQ(one["amount"], counts.at(one["value"]) * period);
    EXPECT_LE(one["amount"].get<std::uint64_t>(), before) << "the largest come first";
    before = one["amount"];
  }
  EXPECT_TRUE(json_of("/api/values?label=service&event=none&" + served_range())["values"].empty());

  const auto sum = [&](const std::string& more) {
    const auto series = json_of("/api/series?step=20000&" + served_range() + more)["series"];
    EXPECT_EQ(series.size(), 1u);
    EXPECT_EQ(series[0]["event"], "cpu");
    EXPECT_EQ(series[0]["unit"], "nanoseconds");
    EXPECT_EQ(series[0]["step"], 20000);
    EXPECT_EQ(series[0]["sums"].size(), kServedIntervals / 2);
    std::uint64_t of = 0;
    for (const auto& step : series[0]["sums"]) of += step[0].get<std::uint64_t>();
    return of;
  };
  EXPECT_EQ(sum(""), all);
  EXPECT_EQ(sum("&label=service&value=service-0042"), counts.at("service-0042"));

  // A profile is what the command prints of the same range.
  const std::string report =
      run(fmt::format("{} report --json {}@2026-09-21T14:13:20Z..2026-09-21T14:14:20Z", WINDLASS_COMMAND, store_))
          .output;
  ASSERT_NE(report, "");
  EXPECT_EQ(body_of(get(fmt::format("/api/profile?from={}&to={}", kServedStart, kServedStart + 60'000))), report);
  const std::string few =
      body_of(get(fmt::format("/api/profile?stacks=1&from={}&to={}", kServedStart, kServedStart + 60'000)));
  EXPECT_NE(few.find("the heaviest 1 stacks; "), few.npos) << few.substr(0, 400);
  EXPECT_NE(few.find("\"[stacks left out]\""), few.npos);
  const std::string diff = body_of(get(fmt::format("/api/diff?before_from={0}&before_to={1}&from={1}&to={2}",
                                                   kServedStart, kServedStart + 60'000, kServedEnd)));
  EXPECT_EQ(nlohmann::json::parse(diff.substr(0, diff.find('\n')))["type"], "diff");
  EXPECT_EQ(interrupted(), 0);
}

// Two services in one time, a service and all others, one service at two times.
TEST_F(ServeByHttp, AnythingIsComparedWithAnything) {
  ASSERT_NO_FATAL_FAILURE(serve());
  const std::string times = fmt::format("{}&before_from={}&before_to={}", served_range(), kServedStart, kServedEnd);
  const auto diff = [&](const std::string& more) {
    const std::string answer = body_of(get("/api/diff?" + times + more));
    return nlohmann::json::parse(answer.substr(0, answer.find('\n')), nullptr, false);
  };
  const auto values = json_of("/api/values?label=service&event=cpu&" + served_range())["values"];
  const auto count_of = [&](const std::string& name) {
    for (const auto& value : values)
      if (value["value"] == name) return value["count"].get<std::uint64_t>();
    return std::uint64_t{0};
  };
  const auto two = diff("&label=service&value=service-0007&before_label=service&before_value=service-0042");
  EXPECT_EQ(two["a"]["samples"], count_of("service-0042")) << two;
  EXPECT_EQ(two["b"]["samples"], count_of("service-0007"));
  EXPECT_NE(two["a"]["samples"], two["b"]["samples"]) << "the sides can be told apart";
  EXPECT_EQ(diff("&label=service&value=service-0007&before_value=service-0042"), two) << "the label is the same";
  const auto whole = diff("&label=service&value=service-0007&before_label=service");
  EXPECT_GT(whole["a"]["samples"], 100 * count_of("service-0007"));
  EXPECT_EQ(whole["b"]["samples"], count_of("service-0007"));
  EXPECT_EQ(diff("&label=service&value=service-0007")["a"]["samples"], count_of("service-0007"));
  for (const char* wrong :
       {"/api/page?from=1&to=2&before_value=x&label=service", "/api/page?from=1&to=2&before_label=x",
        "/api/diff?from=1&to=2&before_from=1&before_to=2&before_value=x"})
    EXPECT_EQ(status_of(wrong), "HTTP/1.1 400") << wrong;
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByHttp, StoresOfAFolderAreOne) {
  const std::string folder = directory_ + "/stores";
  std::filesystem::create_directory(folder);
  make_served_store(folder + "/a.db", "alpha");
  std::ofstream(folder + "/notes.txt") << "no store";
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "serve", folder, "--listen", "127.0.0.1:0"}));
  const auto hosts = [&] {
    std::map<std::string, std::uint64_t> counts;
    const auto values = json_of("/api/values?label=host&event=cpu&" + served_range())["values"];
    for (const auto& one : values) counts[one["value"]] = one["count"];
    return counts;
  };
  const auto one = hosts();
  EXPECT_EQ(one.size(), 1u);
  EXPECT_EQ(json_of("/api/labels")["left_out"], nlohmann::json::array());
  // A store that comes later is found, and one that is damaged is said.
  make_served_store(folder + "/b.db", "beta");
  std::ofstream(folder + "/c.db") << std::string("SQLite format 3\0damaged", 23);
  const std::uint64_t count = one.at("alpha");
  EXPECT_EQ(hosts(), (std::map<std::string, std::uint64_t>{{"alpha", count}, {"beta", count}}));
  const auto left_out = json_of("/api/labels")["left_out"];
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_TRUE(left_out[0].get<std::string>().starts_with(folder + "/c.db: ")) << left_out;
  // Each sample has its host.
  std::map<std::string, std::uint64_t> of_hosts;
  std::istringstream lines(body_of(get("/api/profile?" + served_range())));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record["type"] == "sample") of_hosts[record["labels"]["host"][0]] += record["count"].get<std::uint64_t>();
  }
  EXPECT_EQ(of_hosts, (std::map<std::string, std::uint64_t>{{"alpha", count}, {"beta", count}}));
  EXPECT_EQ(interrupted(), 0);

  ASSERT_NO_FATAL_FAILURE(start(
      {WINDLASS_COMMAND, "serve", folder + "/a.db", folder + "/b.db", folder + "/c.db", "--listen", "127.0.0.1:0"}));
  EXPECT_NE(said().find("windlass: not served: " + folder + "/c.db: "), std::string::npos) << said();
  EXPECT_EQ(json_of("/api/labels")["store"], "3 stores");
  EXPECT_EQ(hosts().size(), 2u);
  EXPECT_EQ(interrupted(), 0);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const auto empty = run(fmt::format("{} serve {} --listen 127.0.0.1:0 2>&1", WINDLASS_COMMAND, folder));
  EXPECT_EQ(empty.status, 3);
  EXPECT_NE(empty.output.find("no store is here"), std::string::npos) << empty.output;
}

TEST_F(ServeByHttp, WhatIsWrongIsSaid) {
  ASSERT_NO_FATAL_FAILURE(serve());
  const std::string range = served_range();
  for (const std::string& path : std::vector<std::string>{
           "/api/series?step=0&" + range, "/api/series?" + range, "/api/series?step=1&" + range,
           "/api/series?step=20000&from=5&to=5", "/api/series?step=20000&from=9&to=5", "/api/series?step=1x&" + range,
           "/api/values?" + range, "/api/values?label=service", "/api/profile?value=x&" + range,
           "/api/profile?from=-1&to=5", "/api/page?stacks=0&" + range, "/api/page?stacks=10000001&" + range,
           "/api/page?stacks=all&" + range, "/api/profile?from=1&to=99999999999999999999",
           "/api/profile?from=1&to=20000000000000", "/api/page?label=%zz&" + range,
           "/api/page?before_from=9&before_to=8&" + range, "/api/diff?" + range, "/api/profile?what=1&" + range}) {
    const std::string answer = get(path);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << path << ": " << answer.substr(0, 200);
    EXPECT_TRUE(nlohmann::json::parse(body_of(answer), nullptr, false).contains("error")) << path;
  }
  for (const char* path : {"/api", "/api/", "/api/other", "/x", "//", "/page.js/", "/../etc/passwd", "/api/labels/"})
    EXPECT_EQ(status_of(path), "HTTP/1.1 404") << path;
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "HEAD"}) {
    const std::string answer = ask(port_, std::string(method) + " /api/labels HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 405 ")) << method << ": " << answer.substr(0, 100);
    EXPECT_NE(answer.find("\r\nAllow: GET"), std::string::npos) << method;
  }
  EXPECT_EQ(ask(port_, "GET /" + std::string(100'000, 'a')), "") << "a request without an end";
  EXPECT_EQ(status_of("/api/profile?label=service&value=nobody&" + range), "HTTP/1.1 200") << "nothing is an answer";
  EXPECT_EQ(status_of(fmt::format("/api/diff?before_from=1&before_to=2&{}", range)), "HTTP/1.1 500")
      << "nothing to compare with";
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByHttp, ThePageRunsNoScriptOfOthers) {
  ASSERT_NO_FATAL_FAILURE(serve());
  const std::string page = get("/");
  const std::string headers = page.substr(0, page.find("\r\n\r\n"));
  EXPECT_NE(headers.find("\r\nContent-Security-Policy: default-src 'none'; script-src 'self';"), std::string::npos);
  for (const char* header :
       {"frame-ancestors 'none'", "\r\nX-Frame-Options: DENY", "\r\nX-Content-Type-Options: nosniff",
        "\r\nReferrer-Policy: no-referrer", "\r\nCache-Control: no-store"})
    EXPECT_NE(headers.find(header), std::string::npos) << header;
  EXPECT_EQ(page.find("http-equiv"), std::string::npos) << "the policy of a file would forbid the scripts";
  EXPECT_EQ(page.find("<script>"), std::string::npos);
  EXPECT_EQ(page.find('@'), page.find("@media")) << "a mark of the template is left";
  for (const char* script : {"/page.js", "/store.js"}) {
    EXPECT_NE(page.find(fmt::format("<script src=\"{}\"></script>", script + 1)), std::string::npos);
    EXPECT_NE(get(script).find("\r\nContent-Type: text/javascript;"), std::string::npos);
  }
  EXPECT_EQ(interrupted(), 0);
}

// A page of another site can have its own name lead here; then the browser sends that name.
TEST_F(ServeByHttp, OtherSitesAreRefused) {
  ASSERT_NO_FATAL_FAILURE(serve());
  for (const char* host : {"localhost", "localhost:1", "127.0.0.1", "127.0.0.1:7433", "[::1]", "[::1]:80"})
    EXPECT_EQ(status_of("/api/labels", fmt::format("Host: {}\r\n", host)), "HTTP/1.1 200") << host;
  for (const char* host : {"evil.example", "evil.example:7433", "localhost.evil.example", "127.0.0.1.evil.example",
                           "[::1", "[::2]", "", "localhost evil"})
    for (const char* path : {"/api/labels", "/"})
      EXPECT_EQ(status_of(path, fmt::format("Host: {}\r\n", host)), "HTTP/1.1 403") << host;
  EXPECT_EQ(status_of("/api/labels", ""), "HTTP/1.1 403");
  for (const char* site : {"cross-site", "same-site"})
    EXPECT_EQ(status_of("/api/labels", fmt::format("Host: localhost\r\nSec-Fetch-Site: {}\r\n", site)), "HTTP/1.1 403");
  for (const char* site : {"same-origin", "none"})
    EXPECT_EQ(status_of("/api/labels", fmt::format("Host: localhost\r\nSec-Fetch-Site: {}\r\n", site)), "HTTP/1.1 200");
  EXPECT_EQ(status_of("/", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n"), "HTTP/1.1 200")
      << "a link may lead here";
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByHttp, OtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be several users";
  const auto asked_by = [&](uid_t user) {
    EXPECT_EQ(::seteuid(user), 0);
    const std::string status = status_of("/api/labels");
    EXPECT_EQ(::seteuid(0), 0);
    return status;
  };
  ASSERT_NO_FATAL_FAILURE(serve());
  EXPECT_EQ(asked_by(0), "HTTP/1.1 200");
  EXPECT_EQ(asked_by(65534), "HTTP/1.1 403");
  EXPECT_EQ(interrupted(), 0);
  ASSERT_NO_FATAL_FAILURE(
      start({"/usr/bin/env", "SUDO_UID=65534", WINDLASS_COMMAND, "serve", store_, "--listen", "127.0.0.1:0"}));
  EXPECT_EQ(asked_by(65534), "HTTP/1.1 200") << "who ran sudo";
  EXPECT_EQ(asked_by(1), "HTTP/1.1 403");
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByHttp, ATokenIsAskedFor) {
  ASSERT_NO_FATAL_FAILURE(
      start({WINDLASS_COMMAND, "serve", store_, "--listen", "0.0.0.0:0", "--token-file", token_file()}));
  EXPECT_EQ(said().find(kToken), std::string::npos) << "messages are kept in logs";
  EXPECT_EQ(status_of("/"), "HTTP/1.1 200") << "the page has no data";
  EXPECT_EQ(status_of("/", "Host: profiles.example\r\n"), "HTTP/1.1 200");
  const std::string refused = get("/api/labels");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 401 ")) << refused;
  EXPECT_NE(refused.find("\r\nWWW-Authenticate: Bearer\r\n"), std::string::npos);
  const auto with = [&](const std::string& header) {
    return status_of("/api/labels", "Host: x\r\n" + header + "\r\n");
  };
  EXPECT_EQ(with("Authorization: Bearer " + kToken), "HTTP/1.1 200");
  const std::string name = fmt::format("windlass_{}", port_);
  EXPECT_EQ(with("Cookie: " + name + "=" + kToken), "HTTP/1.1 200");
  EXPECT_EQ(with("Cookie: a=b; " + name + "=" + kToken + "; c=d"), "HTTP/1.1 200");
  for (const std::string& wrong :
       {kToken.substr(0, kToken.size() - 1), kToken + "x", std::string("x"), std::string(), "x" + kToken.substr(1),
        kToken.substr(0, kToken.size() - 1) + "x", kToken + kToken}) {
    EXPECT_EQ(with("Authorization: Bearer " + wrong), "HTTP/1.1 401") << wrong;
    EXPECT_EQ(with("Cookie: " + name + "=" + wrong), "HTTP/1.1 401") << wrong;
    if (!wrong.empty()) {
      EXPECT_EQ(status_of("/?token=" + wrong), "HTTP/1.1 401") << wrong;
    }
  }
  EXPECT_EQ(with("Cookie: windlass_1=" + kToken), "HTTP/1.1 401") << "of another port";
  EXPECT_EQ(with("Authorization: Basic " + kToken), "HTTP/1.1 401");
  const std::string visit = get("/?label=service&token=" + kToken + "&value=a%20b");
  EXPECT_TRUE(visit.starts_with("HTTP/1.1 303 ")) << visit;
  EXPECT_NE(visit.find("\r\nLocation: /?label=service&value=a%20b\r\n"), std::string::npos) << visit;
  EXPECT_NE(visit.find(fmt::format("\r\nSet-Cookie: {}={}; Path=/; HttpOnly; SameSite=Strict\r\n", name, kToken)),
            std::string::npos)
      << visit;
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByHttp, WithoutATokenNobodyElseIsServed) {
  const std::string serve = fmt::format("{} serve {} ", WINDLASS_COMMAND, store_);
  for (const char* address : {"0.0.0.0:0", "[::]:0", "[::1]:0", "127.0.0.2:0"}) {
    const auto done = run(serve + "--listen " + address + " 2>&1");
    EXPECT_EQ(done.status, 2) << address;
    EXPECT_NE(done.output.find("Way out: --token-file FILE"), std::string::npos) << done.output;
  }
  const auto with_token = [&](const std::string& path) {
    const auto done = run(serve + "--listen 127.0.0.1:0 --token-file " + path + " 2>&1");
    EXPECT_EQ(done.status, 3) << done.output;
    return done.output;
  };
  EXPECT_NE(with_token(token_file(kToken, 0640)).find("Way out: chmod 600"), std::string::npos);
  EXPECT_NE(with_token(token_file("short\n")).find("16 to 256 letters"), std::string::npos);
  EXPECT_NE(with_token(token_file("0123456789abcdef; Path=/\n")).find("16 to 256 letters"), std::string::npos);
  EXPECT_NE(with_token(directory_ + "/none").find("No such file"), std::string::npos);
  for (const char* listen : {"127.0.0.1", "7433", ":7433", "127.0.0.1:x", "127.0.0.1:65536", "::1:80", "[::1:80"})
    EXPECT_EQ(run(serve + "--listen " + listen + " 2>&1").status, 2) << listen;
  EXPECT_EQ(run(serve + "--listen localhost:0 --token-file " + token_file() + " 2>&1").status, 2);
}

TEST_F(ServeByHttp, ASlowAnswerHoldsNobodyUp) {
  ASSERT_NO_FATAL_FAILURE(serve());
  const std::string page = "/api/page?" + served_range();
  const auto [slow, process] = ask_and_stop(page);
  ASSERT_GT(process, 0);
  EXPECT_EQ(status_of("/"), "HTTP/1.1 200");
  EXPECT_EQ(status_of("/api/labels"), "HTTP/1.1 200");
  const std::string whole = get(page);
  EXPECT_TRUE(whole.starts_with("HTTP/1.1 200 "));
  ASSERT_EQ(::kill(process, SIGCONT), 0);
  EXPECT_EQ(rest_of(slow), whole);
  // The process of a reader who leaves ends.
  {
    const auto [gone, left] = ask_and_stop(page);
    ASSERT_GT(left, 0);
  }
  for (int i = 0; i < 30'000 && !children().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(children().empty());
  // Nine at once: the ninth waits for one of the others.
  std::vector<os::Descriptor> many;
  const std::string request = "GET " + page + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (int i = 0; i < 12; ++i) {
    many.push_back(connect_to(port_));
    EXPECT_EQ(::send(many.back().get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  }
  for (const os::Descriptor& one : many) {
    EXPECT_LE(children().size(), 8u);
    EXPECT_EQ(rest_of(one), whole);
  }
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByHttp, AnEndlessAnswerIsGivenUp) {
  ASSERT_NO_FATAL_FAILURE(serve());
  const auto [slow, process] = ask_and_stop("/api/page?" + served_range());
  ASSERT_GT(process, 0);
  const std::string answer = rest_of(slow);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 500 ")) << answer;
  EXPECT_NE(answer.find("This takes more than 30 s here. Way out: a shorter range of time, or one value of a label"),
            std::string::npos)
      << answer;
  EXPECT_TRUE(children().empty());
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByHttp, ADamagedStoreIsSaid) {
  const std::string copy = directory_ + "/copy.db";
  std::filesystem::copy_file(store_, copy);
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "serve", copy, "--listen", "127.0.0.1:0"}));
  EXPECT_EQ(status_of("/api/labels"), "HTTP/1.1 200");
  std::ofstream(copy, std::ios::trunc) << "no store any more";
  const std::string answer = get("/api/labels");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 500 ")) << answer;
  EXPECT_NE(answer.find("not a store"), std::string::npos) << answer;
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ServeByHttp, FilesAreServedAsAStore) {
  const std::string temporary = directory_ + "/temporary", a = directory_ + "/a.pb.gz", b = directory_ + "/b.folded";
  std::filesystem::create_directory(temporary);
  ASSERT_TRUE(exporter::write_pprof_file(testing::synthetic_profile(), a).has_value());
  std::ofstream(b) << "main;work 5\n";
  ASSERT_NO_FATAL_FAILURE(
      start({"/usr/bin/env", "TMPDIR=" + temporary, WINDLASS_COMMAND, "serve", "--listen", "127.0.0.1:0", a, b}));
  const auto facts = json_of("/api/labels");
  EXPECT_EQ(facts["store"], "2 files");
  const auto labels = facts["labels"];
  EXPECT_NE(std::ranges::find(labels, "file"), labels.end()) << labels;
  const std::string range = fmt::format("from={}&to={}", facts["begin"].dump(), facts["end"].dump());
  const auto series = json_of("/api/series?step=86400000000&label=file&value=" + b + "&" + range)["series"];
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0]["sums"][0][0], 5);
  EXPECT_FALSE(std::filesystem::is_empty(temporary));
  EXPECT_EQ(interrupted(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(temporary)) << "the store of the files is deleted";
  const std::string serve = fmt::format("TMPDIR={} {} serve ", temporary, WINDLASS_COMMAND);
  EXPECT_EQ(run(serve + directory_ + "/none 2>&1").status, 3);
  EXPECT_EQ(run(serve + "/bin/sh 2>&1").status, 1);
  EXPECT_EQ(run(serve + a + " /bin/sh 2>&1").status, 1);
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
}

}  // namespace
}  // namespace windlass::test
