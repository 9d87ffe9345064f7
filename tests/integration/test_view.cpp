// The command `windlass view`, as browsers and others on the machine meet it.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/descriptor.h"
#include "profiler/export/pprof.h"
#include "support/browser.h"
#include "support/child_program.h"
#include "support/loopback.h"
#include "support/page_data.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/synthetic_profile.h"

namespace windlass {
namespace {

using test::ask;
using test::connect_to;

std::string get(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"; }

bool begins(const std::string& text, const std::string& with) { return text.starts_with(with); }

class ViewCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/windlass-view-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    file_ = directory_ + "/p.pb.gz";
    ASSERT_TRUE(exporter::write_pprof_file(testing::synthetic_profile(), file_).has_value());
  }
  void TearDown() override { EXPECT_EQ(test::run("rm -r " + directory_).status, 0); }

  [[nodiscard]] std::string said() const {
    std::ifstream file(directory_ + "/said");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Starts the command; sets port_ and path_ as it prints them.
  void start(std::vector<std::string> words, const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    ::unlink((directory_ + "/said").c_str());
    program_.reset();
    program_ = std::make_unique<test::ChildProgram>(std::move(words), directory_ + "/said", STDERR_FILENO, environment);
    const std::string before = "http://127.0.0.1:";
    for (int i = 0; i < 6000 && program_->runs(); ++i) {
      const std::string text = said();
      const std::size_t at = text.find(before), end = text.find('\n', at);
      if (at != std::string::npos && end != std::string::npos) {
        const std::string place = text.substr(at + before.size(), end - at - before.size());
        port_ = static_cast<std::uint16_t>(std::stoul(place));
        path_ = place.substr(place.find('/'));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "no address is printed: " << said();
  }
  // The command's exit status after Ctrl-C.
  [[nodiscard]] int interrupted() const {
    ::kill(program_->pid(), SIGINT);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(program_->pid()), &info, WEXITED | WNOWAIT);
    return info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
  }

  std::string directory_, file_;
  std::unique_ptr<test::ChildProgram> program_;
  std::uint16_t port_ = 0;
  std::string path_;
};

TEST_F(ViewCommand, ServesThePageUntilInterrupted) {
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "view", file_}));
  const std::string page = test::run(WINDLASS_COMMAND " report --html " + file_).output;
  const std::string answer = ask(port_, get(path_));
  EXPECT_TRUE(begins(answer, "HTTP/1.1 200 OK\r\n")) << answer.substr(0, 200);
  // The same page but for the right to ask its server.
  const std::string served = answer.substr(answer.find("\r\n\r\n") + 4);
  const test::PageData data = test::page_data(page), served_data = test::page_data(served);
  EXPECT_EQ(served_data.samples.size(), data.samples.size());
  EXPECT_EQ(served_data.names["frames"], data.names["frames"]);
  EXPECT_EQ(served_data.names["served"], true);
  EXPECT_NE(served.find("; connect-src 'self'\">"), std::string::npos);
  EXPECT_EQ(page.find("connect-src"), std::string::npos);
  EXPECT_NE(answer.find("Content-Length: " + std::to_string(served.size()) + "\r\n"), std::string::npos);
  EXPECT_TRUE(begins(ask(port_, get(path_ + "?view=callers")), "HTTP/1.1 200"));
  const std::string head = ask(port_, "HEAD " + path_ + " HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(begins(head, "HTTP/1.1 200") && head.ends_with("\r\n\r\n")) << head;
  EXPECT_EQ(interrupted(), 0);
}

// The page has what a whole machine runs: nobody gets it who does not know the path, and nobody from elsewhere.
TEST_F(ViewCommand, NobodyElseGetsThePage) {
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "view", file_}));
  EXPECT_EQ(path_.size(), 1 + 2 * 16U);
  for (const std::string path : {"/", "", "/favicon.ico", path_.substr(0, 8).c_str(), (path_ + "/").c_str(), "/.."})
    EXPECT_TRUE(begins(ask(port_, get(path)), "HTTP/1.1 404")) << path;
  EXPECT_TRUE(begins(ask(port_, "POST " + path_ + " HTTP/1.1\r\n\r\n"), "HTTP/1.1 405"));
  EXPECT_TRUE(begins(ask(port_, "\r\n\r\n"), "HTTP/1.1 405"));
  EXPECT_EQ(ask(port_, std::string(100'000, 'A')), "") << "a request without an end";
  const std::string listening = test::run("cat /proc/net/tcp /proc/net/tcp6").output;
  char port[8];
  std::snprintf(port, sizeof port, ":%04X", port_);
  EXPECT_NE(listening.find(std::string("0100007F") + port), std::string::npos);
  EXPECT_EQ(listening.find(std::string("00000000") + port), std::string::npos);
  EXPECT_EQ(interrupted(), 0);
}

// The path is in the arguments of the browser, which everybody can read.
TEST_F(ViewCommand, OtherUsersAreNotHeard) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be several users";
  ASSERT_EQ(test::run("chmod 755 " + directory_ + " && chmod 644 " + file_).status, 0);
  ASSERT_NO_FATAL_FAILURE(
      start({"/usr/bin/setpriv", "--reuid=65534", "--clear-groups", WINDLASS_COMMAND, "view", file_}));
  const auto asked_by = [&](uid_t user) {
    EXPECT_EQ(::seteuid(user), 0);
    const std::string answer = ask(port_, get(path_));
    EXPECT_EQ(::seteuid(0), 0);
    return answer.substr(0, 12);
  };
  EXPECT_EQ(asked_by(65534), "HTTP/1.1 200");
  EXPECT_EQ(asked_by(0), "HTTP/1.1 200");
  EXPECT_EQ(asked_by(1), "");
  EXPECT_EQ(interrupted(), 0);
}

// Many connections of somebody who does not know the path take nothing from one who does.
TEST_F(ViewCommand, IdleConnectionsLeaveFirst) {
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "view", file_}));
  const os::Descriptor slow = connect_to(port_);
  const std::string request = get(path_);
  int small = 1;
  ASSERT_EQ(::setsockopt(slow.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  ASSERT_EQ(::send(slow.get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string answer(12, '\0');
  ASSERT_EQ(::recv(slow.get(), answer.data(), answer.size(), MSG_WAITALL), 12);
  std::vector<os::Descriptor> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(connect_to(port_));
  EXPECT_TRUE(begins(ask(port_, get(path_)), "HTTP/1.1 200"));
  char buffer[65536];
  ssize_t got = 0;
  while ((got = ::recv(slow.get(), buffer, sizeof buffer, 0)) > 0) answer.append(buffer, static_cast<std::size_t>(got));
  EXPECT_EQ(got, 0);
  const std::size_t at = answer.find("Content-Length: ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, std::stoul(answer.substr(at + 16)));
  EXPECT_EQ(interrupted(), 0);
}

std::string body_of(const std::string& answer) {
  return answer.substr(std::min(answer.size(), answer.find("\r\n\r\n") + 4));
}

TEST_F(ViewCommand, AnswersWhatThePageAsks) {
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "view", file_}));
  const std::string name = testing::synthetic_profile().functions[0].name;
  std::string encoded;
  for (const char c : name) {
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(c));
    encoded += code;
  }
  const std::string place = path_ + "/annotate?value=samples&function=";
  const auto truth = test::run(WINDLASS_COMMAND " report --json --annotate '" + name + "' " + file_);
  ASSERT_EQ(truth.status, 0);
  const std::string answer = ask(port_, get(place + encoded));
  EXPECT_TRUE(begins(answer, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson")) << answer.substr(0, 200);
  EXPECT_EQ(body_of(answer), truth.output);
  // Several at once, and some that do not wait for their answer.
  std::vector<os::Descriptor> waiting;
  for (int i = 0; i < 5; ++i) {
    waiting.push_back(connect_to(port_));
    const std::string request = get(place + encoded);
    (void)::send(waiting.back().get(), request.data(), request.size(), MSG_NOSIGNAL);
  }
  waiting.erase(waiting.begin(), waiting.begin() + 2);
  EXPECT_EQ(body_of(ask(port_, get(place + encoded))), truth.output);
  EXPECT_TRUE(begins(ask(port_, get(path_)), "HTTP/1.1 200"));

  const auto refused = [&](const std::string& request) { return ask(port_, request).substr(0, 12); };
  EXPECT_EQ(refused(get(place + "no+such")), "HTTP/1.1 500");
  EXPECT_EQ(refused(get(path_ + "/annotate?value=none&function=" + encoded)), "HTTP/1.1 500");
  for (const char* query :
       {"", "?", "?function", "?function=", "?value=samples", "?function=%", "?function=%4", "?function=%zz", "?&&=&="})
    EXPECT_EQ(refused(get(path_ + "/annotate" + query)), "HTTP/1.1 400") << query;
  for (const char* elsewhere : {"/annotat", "/annotate/", "//annotate", "annotate"})
    EXPECT_EQ(refused(get(path_ + elsewhere + "?function=x")), "HTTP/1.1 404") << elsewhere;
  EXPECT_EQ(refused(get("/annotate?function=x")), "HTTP/1.1 404");
  for (const char* method : {"POST", "HEAD", "OPTIONS"})
    EXPECT_EQ(refused(method + std::string(" ") + place + encoded + " HTTP/1.1\r\n\r\n"), "HTTP/1.1 405") << method;
  const auto from = [&](const std::string& site) {
    return refused("GET " + place + encoded + " HTTP/1.1\r\nHost: x\r\nsec-Fetch-SITE: " + site + "\r\n\r\n");
  };
  EXPECT_EQ(from("same-origin"), "HTTP/1.1 200");
  for (const char* site : {"cross-site", "same-site", "none"}) EXPECT_EQ(from(site), "HTTP/1.1 403") << site;
  EXPECT_EQ(interrupted(), 0);
}

// A browser lets the page ask, and shows what comes.
TEST_F(ViewCommand, ABrowserShowsSourceAndInstructions) {
  if (test::Browser::program().empty()) GTEST_SKIP() << "no chromium on this machine";
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "view", file_}));
  test::Browser browser(test::Browser::program(), directory_ + "/browser");
  ASSERT_TRUE(browser.works());
  browser.open("http://127.0.0.1:" + std::to_string(port_) + path_ + "#view=functions");
  ASSERT_TRUE(browser.wait("typeof asked === 'number' && answer !== null && answer.id === asked"));
  browser.value("choose({ chosen: answer.rows.find(([id]) => nameOf(id).startsWith('work::'))[0] }); 0");
  browser.wait("document.querySelector('#function button') !== null");
  browser.value("document.querySelector('#function button').click()");
  browser.wait("document.querySelector('#code .sides') !== null");
  EXPECT_EQ(browser.value("code.failed"), "");
  EXPECT_EQ(browser.value("document.querySelector('#code h2').textContent === nameOf(state.chosen)"), true);
  const auto lines = browser.value("document.querySelectorAll('#code .sides > :first-child [data-place]').length");
  EXPECT_GE(lines.get<int>(), 1);
  EXPECT_EQ(browser.value("Number(document.querySelector('#code [data-self]').dataset.self) <= code.lines[0].self"),
            true);
  EXPECT_EQ(interrupted(), 0);
}

// The page of a file that is written again has the newer profile, and stays as it is if there is none.
TEST_F(ViewCommand, FollowsTheFile) {
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "view", "--no-browser", file_}));
  const auto newer_than = [&](int version) {
    return ask(port_, "GET " + path_ + " HTTP/1.1\r\nIf-None-Match: \"" + std::to_string(version) + "\"\r\n\r\n");
  };
  const auto wait_for = [&](int version) {
    std::string answer = newer_than(version - 1);
    for (int i = 0; i < 6000 && begins(answer, "HTTP/1.1 304"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      answer = newer_than(version - 1);
    }
    EXPECT_NE(answer.find("ETag: \"" + std::to_string(version) + "\""), std::string::npos) << answer.substr(0, 300);
    return test::page_data(body_of(answer));
  };
  EXPECT_TRUE(begins(newer_than(1), "HTTP/1.1 304"));
  const test::PageData first = wait_for(1);
  EXPECT_EQ(first.names["live"]["file"], true);
  // Another file of the folder is no news.
  std::ofstream(directory_ + "/other") << "x";
  EXPECT_TRUE(begins(newer_than(1), "HTTP/1.1 304"));
  // By another file that takes its name, then in place.
  ASSERT_TRUE(exporter::write_pprof_file(testing::synthetic_profile({.samples = 20, .stacks = 10}), file_).has_value());
  const test::PageData second = wait_for(2);
  EXPECT_LT(second.samples.size(), first.samples.size());
  std::ofstream(file_) << "main;f 3\n";
  const test::PageData third = wait_for(3);
  ASSERT_EQ(third.samples.size(), 1u);
  std::ofstream(file_) << "no profile";
  for (int i = 0; i < 6000 && said().find("is a text file") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    (void)newer_than(3);
  }
  EXPECT_NE(said().find("is a text file"), std::string::npos) << said();
  EXPECT_TRUE(begins(newer_than(3), "HTTP/1.1 304"));
  ASSERT_TRUE(exporter::write_pprof_file(testing::synthetic_profile(), file_).has_value());
  EXPECT_EQ(wait_for(4).samples.size(), first.samples.size());
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ViewCommand, ABrowserFollowsTheFile) {
  if (test::Browser::program().empty()) GTEST_SKIP() << "no chromium on this machine";
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "view", "--no-browser", file_}));
  test::Browser browser(test::Browser::program(), directory_ + "/browser");
  ASSERT_TRUE(browser.works());
  browser.open("http://127.0.0.1:" + std::to_string(port_) + path_ + "#q=work");
  ASSERT_TRUE(browser.wait("typeof asked === 'number' && answer !== null && answer.id === asked"));
  EXPECT_EQ(browser.text("$('age').textContent"), "The page follows the file.");
  std::ofstream(file_) << "main;work 3\n";
  ASSERT_TRUE(browser.wait("names.live.version === 2 && answer !== null && answer.id === asked"));
  EXPECT_EQ(browser.value("answer.summary.samples"), 3);
  EXPECT_EQ(browser.text("$('query').value"), "work");
  browser.value("$('pause').click()");
  EXPECT_EQ(browser.text("$('age').textContent"), "A change of the file waits.");
  browser.value("$('pause').click()");
  EXPECT_EQ(interrupted(), 0);
  ASSERT_TRUE(browser.wait("$('age').textContent === 'windlass does not answer.'"));
}

// Browsers open connections ahead and send nothing.
TEST_F(ViewCommand, SilentConnectionsHoldNobodyUp) {
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "view", file_}));
  std::vector<os::Descriptor> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connect_to(port_));
  EXPECT_TRUE(begins(ask(port_, get(path_)), "HTTP/1.1 200"));
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ViewCommand, SaysWhatIsWrong) {
  const std::string view = WINDLASS_COMMAND " view ";
  EXPECT_EQ(test::run(view + directory_ + "/none 2>&1").status, 3);
  const auto program = test::run(view + "/bin/sh 2>&1");
  EXPECT_EQ(program.status, 1);
  EXPECT_NE(program.output.find("is an ELF file. Way out: windlass dump /bin/sh"), std::string::npos) << program.output;
  EXPECT_EQ(test::run(view + file_ + " --port 65536 2>&1").status, 2);
  ASSERT_NO_FATAL_FAILURE(start({WINDLASS_COMMAND, "view", file_}));
  const auto taken = test::run(view + file_ + " --port " + std::to_string(port_) + " 2>&1");
  EXPECT_EQ(taken.status, 3);
  EXPECT_NE(taken.output.find("Way out: another --port"), std::string::npos) << taken.output;
}

// xdg-open is the browser; not root's.
TEST_F(ViewCommand, OpensTheUsersBrowser) {
  if (::geteuid() != 0) GTEST_SKIP() << "no privilege to become somebody else";
  const std::string command = directory_ + "/windlass", opened = directory_ + "/opened";
  // It notes its blocked signals and its session, too: Ctrl-C and SIGTERM have to end a browser as any other. In
  // Python, since shells unblock signals.
  std::ofstream(directory_ + "/xdg-open")
      << "#!/usr/bin/python3\nimport os, signal, sys\n"
         "mine = f'{len(signal.pthread_sigmask(signal.SIG_BLOCK, []))} blocked, session {os.getsid(0)}'\n"
         "open('" +
             directory_ + "/signals', 'w').write(mine)\nopen('" + opened + "', 'w').write(sys.argv[1] + '\\n')\n";
  ASSERT_EQ(test::run("cd " + directory_ +
                      " && cp " WINDLASS_COMMAND " windlass && touch opened signals && chmod 666 opened signals && " +
                      "chmod 755 . windlass xdg-open && chmod 644 p.pb.gz")
                .status,
            0);
  const std::vector<std::pair<std::string, std::string>> desktop = {{"DISPLAY", ":0"},
                                                                    {"PATH", directory_ + ":" + std::getenv("PATH")}};
  ASSERT_NO_FATAL_FAILURE(start({command, "view", file_}, desktop));
  EXPECT_EQ(interrupted(), 0);
  EXPECT_EQ(test::run("cat " + opened).output, "") << "as root";

  const std::vector<std::string> nobody = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  const auto as_nobody = [&](std::vector<std::string> words) {
    words.insert(words.begin(), nobody.begin(), nobody.end());
    return words;
  };
  ASSERT_NO_FATAL_FAILURE(start(as_nobody({command, "view", "--no-browser", file_}), desktop));
  EXPECT_EQ(interrupted(), 0);
  EXPECT_EQ(test::run("cat " + opened).output, "") << "with --no-browser";

  ASSERT_NO_FATAL_FAILURE(start(as_nobody({command, "view", file_}), desktop));
  std::string seen;
  for (int i = 0; i < 3000 && !seen.ends_with('\n'); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    seen = test::run("cat " + opened).output;
  }
  EXPECT_EQ(seen, "http://127.0.0.1:" + std::to_string(port_) + path_ + "\n");
  const std::string signals = test::run("cat " + directory_ + "/signals").output;
  EXPECT_TRUE(begins(signals, "0 blocked, session ")) << signals;
  EXPECT_FALSE(signals.ends_with(" " + std::to_string(::getsid(0)))) << "in this session: " << signals;
  EXPECT_EQ(interrupted(), 0);
}

TEST_F(ViewCommand, RecordOpensThePage) {
  if (const std::string refusal = test::no_privilege_to_sample(); !refusal.empty()) GTEST_SKIP() << refusal;
  const std::string loop = "for ((i = 0; i < 300000; ++i)); do :; done; exit 7";
  ASSERT_NO_FATAL_FAILURE(
      start({WINDLASS_COMMAND, "record", "--open", "-o", directory_ + "/r.pb.gz", "bash", "-c", loop}));
  // The address is there with the first samples, the whole profile with the end.
  for (int i = 0; i < 12000 && program_->runs() && said().find("is shown until Ctrl-C") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::string answer = ask(port_, get(path_));
  EXPECT_NE(answer.find("<!DOCTYPE html>"), std::string::npos) << answer.substr(0, 200);
  const test::PageData page = test::page_data(answer);
  EXPECT_FALSE(page.samples.empty());
  EXPECT_NE(page.names["processes"].dump().find("bash"), std::string::npos);
  // Code is read behind a recording, too: some function of the program's file.
  bool has_code = false;
  for (const auto& frame : page.names["frames"]) {
    if (has_code || frame["kind"] != 0 || !frame.contains("module")) continue;
    if (page.names["modules"][frame["module"].get<std::size_t>()]["name"] != "bash") continue;
    const std::string code =
        ask(port_, get(path_ + "/annotate?value=samples&function=" + frame["name"].get<std::string>()));
    has_code = code.find("{\"type\":\"instruction\"") != std::string::npos;
  }
  EXPECT_TRUE(has_code);
  EXPECT_EQ(interrupted(), 7) << "the status of the command";
}

}  // namespace
}  // namespace windlass
