// The page of `record --open` while the recording runs, in headless Chromium.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "support/browser.h"
#include "support/child_program.h"
#include "support/loopback.h"
#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass {
namespace {

constexpr auto kPatience = std::chrono::seconds(120);  // of a machine that is busy

class LivePageCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string refusal = test::no_privilege_to_sample(); !refusal.empty()) GTEST_SKIP() << refusal;
    char name[] = "/tmp/windlass-live-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override {
    browser_.reset();
    program_.reset();
    if (!directory_.empty()) {
      EXPECT_EQ(test::run("rm -rf " + directory_).status, 0);
    }
  }
  [[nodiscard]] std::string said() const {
    std::ifstream file(directory_ + "/said");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A recording of `script` and of a loop in bash, which ends once the file "end" is there or the folder is gone.
  void record(const std::string& script) {
    const std::string loop =
        script + "; while [ -e " + directory_ + "/said ] && [ ! -e " + directory_ + "/end ]; do busy; done";
    program_ = std::make_unique<test::ChildProgram>(
        std::vector<std::string>{WINDLASS_COMMAND, "record", "--open", "-F", "499", "-o", directory_ + "/r.pb.gz",
                                 "bash", "-c", loop},
        directory_ + "/said", STDERR_FILENO);
    for (int i = 0; i < 12000 && program_->runs(); ++i) {
      const std::string text = said();
      const std::size_t at = text.find("http://127.0.0.1:"), end = text.find('\n', at);
      if (at != std::string::npos && end != std::string::npos) {
        address_ = text.substr(at, end - at);
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "no address is printed: " << said();
  }
  void end_the_command() { std::ofstream(directory_ + "/end") << "now"; }
  void open_page() {
    const std::string program = test::Browser::program();
    if (program.empty()) GTEST_SKIP() << "no chromium on this machine";
    browser_ = std::make_unique<test::Browser>(program, directory_ + "/browser");
    ASSERT_TRUE(browser_->works());
    browser_->size(1400, 900);
    browser_->open(address_);
    ASSERT_TRUE(browser_->wait("typeof drawn === 'object' && drawn !== null && answer !== null && answer.id === asked",
                               kPatience));
  }
  [[nodiscard]] double number(const std::string& expression) const {
    const auto found = browser_->value(expression);
    return found.is_number() ? found.get<double>() : -1;
  }
  // Waits until newer data than those of `version` are shown.
  void wait_for_newer(double version) {
    ASSERT_TRUE(browser_->wait(
        "names.live.version > " + std::to_string(version) + " && answer !== null && answer.id === asked", kPatience));
  }

  std::string directory_, address_;
  std::unique_ptr<test::ChildProgram> program_;
  std::unique_ptr<test::Browser> browser_;
};

const char* const kBusy = "busy() { for ((i = 0; i < 20000; ++i)); do :; done; }";

TEST_F(LivePageCommand, GrowsAndKeepsWhatIsChosen) {
  ASSERT_NO_FATAL_FAILURE(record(kBusy));
  ASSERT_NO_FATAL_FAILURE(open_page());
  if (IsSkipped()) return;
  EXPECT_TRUE(browser_->value("!$('live').hidden && !$('pause').hidden").get<bool>());
  EXPECT_NE(browser_->text("$('age').textContent").find("the recording goes on"), std::string::npos);
  // A box below several others: the deepest one that has a function as its parent.
  ASSERT_TRUE(browser_->wait("drawn !== null && drawn.boxes.length > 5", kPatience));
  browser_->value(
      " var zoomed = drawn.boxes.filter((box) => isCode(box.frame)).sort((a, b) => b.depth - a.depth)"
      ".find((box) => box.n > answer.summary.samples / 4); var way = (box) => nameOf(box.frame) + "
      "(box.up >= 0 ? ' < ' + way(drawn.boxes[box.up]) : ''); var before = way(zoomed);"
      "$('query').value = 'execute'; choose({ zoom: zoomed.key, query: 'execute' }); 0");
  ASSERT_TRUE(browser_->wait("answer !== null && answer.id === asked && drawn !== null && drawn.at !== ''", kPatience));
  const double samples = number("answer.summary.samples"), version = number("names.live.version");
  EXPECT_GT(samples, 0);
  ASSERT_NO_FATAL_FAILURE(wait_for_newer(version));
  EXPECT_GT(number("answer.summary.samples"), samples);
  EXPECT_EQ(browser_->text("state.query"), "execute");
  EXPECT_EQ(browser_->text("$('query').value"), "execute");
  EXPECT_EQ(browser_->text("way(drawn.boxes.find((box) => box.key === drawn.at))"), browser_->text("before"));
  // The tab and the function.
  browser_->value("choose({ view: 'functions', zoom: '' }); 0");
  ASSERT_TRUE(browser_->wait("answer !== null && answer.id === asked && answer.rows.length > 0", kPatience));
  browser_->value("var chosen = answer.rows[0][0], called = nameOf(chosen); choose({ chosen }); 0");
  ASSERT_NO_FATAL_FAILURE(wait_for_newer(number("names.live.version")));
  EXPECT_EQ(browser_->text("state.view"), "functions");
  EXPECT_EQ(browser_->text("nameOf(state.chosen)"), browser_->text("called"));
}

TEST_F(LivePageCommand, PausesAndSaysTheEnd) {
  ASSERT_NO_FATAL_FAILURE(record(kBusy));
  ASSERT_NO_FATAL_FAILURE(open_page());
  if (IsSkipped()) return;
  ASSERT_NO_FATAL_FAILURE(wait_for_newer(number("names.live.version")));
  browser_->value("$('pause').click()");
  EXPECT_EQ(browser_->text("$('pause').textContent"), "Paused");
  const double version = number("names.live.version"), samples = number("answer.summary.samples");
  // Another reader gets newer data meanwhile.
  ASSERT_TRUE(browser_->wait(
      "fetch(location.pathname, { headers: { 'If-None-Match': `\"${names.live.version}\"` } }).then((one) => one.ok)",
      kPatience));
  ASSERT_TRUE(browser_->wait("performance.now() - live.came > 6000", kPatience));
  EXPECT_EQ(number("names.live.version"), version);
  EXPECT_EQ(number("answer.summary.samples"), samples);
  browser_->value("$('pause').click()");
  ASSERT_NO_FATAL_FAILURE(wait_for_newer(version));
  end_the_command();
  ASSERT_TRUE(browser_->wait("names.live.running === false && answer !== null && answer.id === asked", kPatience));
  EXPECT_NE(browser_->text("$('age').textContent").find("has ended"), std::string::npos);
  EXPECT_TRUE(browser_->value("$('pause').hidden").get<bool>());
  EXPECT_GT(number("answer.summary.samples"), samples);
  EXPECT_TRUE(browser_->value("names.served").get<bool>()) << "source and instructions are there behind the end";
  // All that is in the file.
  const std::string report =
      test::run(std::string(WINDLASS_COMMAND) + " report --json " + directory_ + "/r.pb.gz").output;
  EXPECT_EQ(number("answer.summary.samples"),
            nlohmann::json::parse(report.substr(0, report.find('\n')))["samples"].get<double>());
  ::kill(program_->pid(), SIGINT);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(program_->pid()), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(info.si_code, CLD_EXITED);
  EXPECT_EQ(browser_->text("$('age').textContent"), "The recording has ended. This is all of it.");
}

TEST_F(LivePageCommand, HostileNamesAreText) {
  // The name of a thread is all that fits into 15 bytes.
  ASSERT_NO_FATAL_FAILURE(record(std::string(kBusy) + "; printf '<img/src=x><b>' > /proc/$BASHPID/comm"));
  ASSERT_NO_FATAL_FAILURE(open_page());
  if (IsSkipped()) return;
  ASSERT_TRUE(
      browser_->wait("names.frames.some((frame) => frame.name.includes('<img/src=x>')) && answer !== null && "
                     "answer.id === asked",
                     kPatience));
  ASSERT_NO_FATAL_FAILURE(wait_for_newer(number("names.live.version")));
  EXPECT_EQ(number("document.querySelectorAll('img, main b').length"), 0);
  for (const std::string& request : browser_->requests())
    EXPECT_TRUE(request.starts_with(address_) || request.starts_with("blob:")) << request;
}

TEST_F(LivePageCommand, OnlyNewDataAreSent) {
  ASSERT_NO_FATAL_FAILURE(record(kBusy));
  const std::size_t slash = address_.find('/', 7);
  const auto port = static_cast<std::uint16_t>(std::stoul(address_.substr(17)));
  const std::string path = address_.substr(slash);
  const std::string first = test::ask(port, "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_TRUE(first.starts_with("HTTP/1.1 200 OK\r\n")) << first.substr(0, 200);
  EXPECT_NE(first.find("\r\nETag: \"1\"\r\n"), std::string::npos) << first.substr(0, 400);
  // Nobody has asked since a newer one was made, so it stays. The question has another one made.
  const std::string known = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-None-Match: \"1\"\r\n\r\n";
  std::string answer;
  for (int i = 0; i < 1200 && !answer.starts_with("HTTP/1.1 200"); ++i) {
    answer = test::ask(port, known);
    if (i == 0) {
      EXPECT_TRUE(answer.starts_with("HTTP/1.1 304 ")) << answer.substr(0, 200);
      EXPECT_EQ(answer.size(), answer.find("\r\n\r\n") + 4) << "a body";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << "newer data have come";
  EXPECT_TRUE(
      test::ask(port, "GET " + path + "/annotate?function=main&value=samples HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
          .starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(test::ask(port, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
}

}  // namespace
}  // namespace windlass
