// A fixture that shows profiles as HTML pages in one headless Chromium.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "profiler/export/html.h"
#include "support/browser.h"

namespace windlass::test {

class PageInBrowser : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string program = Browser::program();
    if (program.empty()) return;
    char name[] = "/tmp/windlass-page-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    browser_ = std::make_unique<Browser>(program, directory_ + "/browser");
    ASSERT_TRUE(browser_->works());
    browser_->size(1400, 900);
  }
  static void TearDownTestSuite() {
    browser_.reset();
    if (!directory_.empty() && std::system(("rm -rf " + directory_).c_str()) != 0) std::perror("rm");
  }
  void SetUp() override {
    if (browser_ == nullptr) GTEST_SKIP() << "no chromium on this machine";
  }

  static void write(const profile::Profile& profile) {
    std::string page;
    TextWriter out(&page);
    EXPECT_TRUE(exporter::write_html(profile, out).has_value());
    std::ofstream(directory_ + "/page.html") << page;
  }
  static void open(const std::string& hash = "") {
    browser_->open(fmt::format("file://{}/page.html{}", directory_, hash));
    settle();
  }
  // Waits until the worker has answered the last question.
  static void settle() { browser_->wait("typeof asked === 'number' && answer !== null && answer.id === asked"); }
  // Runs a script of the reader's actions, and waits for what it leads to.
  static void act(const std::string& script) {
    browser_->value(script);
    settle();
  }
  // The document after the scripts ran, without the scripts themselves and the exact numbers (data-n).
  static std::string document() {
    return browser_->text(
        "(() => { const copy = document.body.cloneNode(true);"
        "copy.querySelectorAll('script').forEach((one) => one.remove());"
        "copy.querySelectorAll('[data-n]').forEach((one) => { delete one.dataset.n; one.removeAttribute('title'); });"
        "return copy.innerHTML; })()");
  }
  static std::string shown(const profile::Profile& profile, const std::string& hash = "") {
    write(profile);
    open(hash);
    return document();
  }
  // How many boxes of this name are drawn.
  static std::size_t boxes(const std::string& name) {
    return browser_->value(
        fmt::format("drawn.boxes.filter((box) => nameOf(box.frame) === {}).length", nlohmann::json(name).dump()));
  }
  static std::string text_of(const std::string& id) {
    return browser_->text(fmt::format("document.getElementById('{}').textContent", id));
  }

  inline static std::string directory_;
  inline static std::unique_ptr<Browser> browser_;
};

}  // namespace windlass::test
