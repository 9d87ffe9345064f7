// The page of `windlass serve` in headless Chromium.
#include <map>

#include "serve_command.h"
#include "support/axe.h"
#include "support/browser.h"

namespace windlass::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(120);  // of a machine that is busy

class ServePage : public ServeCommand {
 protected:
  void SetUp() override {
    if (Browser::program().empty()) GTEST_SKIP() << "no chromium on this machine";
    ASSERT_NO_FATAL_FAILURE(serve());
  }
  void TearDown() override {
    users_.clear();
    ServeCommand::TearDown();
  }
  // A browser of its own, with an empty profile.
  Browser& user() {
    users_.push_back(
        std::make_unique<Browser>(Browser::program(), fmt::format("{}/browser{}", directory_, browsers_++)));
    EXPECT_TRUE(users_.back()->works());
    users_.back()->size(1400, 900);
    return *users_.back();
  }
  [[nodiscard]] std::string address(const std::string& more = "") const {
    return fmt::format("http://127.0.0.1:{}/{}", port_, more);
  }
  // Waits until the graph, the list and the time line are those of the address.
  static void settle(Browser& browser) {
    ASSERT_TRUE(browser.wait(
        "typeof storeFacts === 'object' && storeFacts !== null && names !== undefined && !fresh && "
        "answer !== null && answer.id === asked && Object.keys(requests).length === 0 && totalList.length > 0",
        kPatience));
  }
  static void open(Browser& browser, const std::string& url) {
    browser.open(url);
    ASSERT_TRUE(browser.wait("typeof pick === 'function'", kPatience));
    ASSERT_NO_FATAL_FAILURE(settle(browser));
  }
  static void act(Browser& browser, const std::string& script) {
    browser.value(script + "; 0");
    ASSERT_NO_FATAL_FAILURE(settle(browser));
  }
  static void drag(Browser& browser, double from, double to) {
    const auto box = browser.value(
        "(({ left, top, width, height }) => [left, top + height / 2, width])"
        "($('lineBrush').getBoundingClientRect())");
    const auto at = [&](const char* type, double part, int buttons) {
      browser.call("Input.dispatchMouseEvent", {{"type", type},
                                                {"x", box[0].get<double>() + part * box[2].get<double>()},
                                                {"y", box[1]},
                                                {"button", "left"},
                                                {"buttons", buttons},
                                                {"clickCount", 1}});
    };
    at("mousePressed", from, 1);
    at("mouseMoved", (from + to) / 2, 1);
    at("mouseMoved", to, 1);
    at("mouseReleased", to, 0);
    ASSERT_NO_FATAL_FAILURE(settle(browser));
  }
  static double samples(Browser& browser) { return browser.value("answer.summary.samples").get<double>(); }

  std::vector<std::unique_ptr<Browser>> users_;
  int browsers_ = 0;
};

TEST_F(ServePage, TwoUsersChooseAmongAThousandServices) {
  Browser &one = user(), &other = user();
  ASSERT_NO_FATAL_FAILURE(open(one, address("?label=service")));
  ASSERT_NO_FATAL_FAILURE(open(other, address("?label=service")));
  const double all = samples(one);
  EXPECT_EQ(one.value("totalList.length"), kServices);
  EXPECT_LE(one.value("document.querySelectorAll('#values button').length").get<int>(), 201);
  EXPECT_EQ(one.text("$('moreValues').textContent"), "800 more: find them by a part of the name.");
  const auto choose = [](Browser& browser, const std::string& name) {
    browser.value("$('findValue').focus(); $('findValue').value = '" + name +
                  "'; $('findValue').dispatchEvent(new Event('input'))");
    EXPECT_EQ(browser.value("document.querySelectorAll('#values button').length"), 1);
    act(browser, "document.querySelector('#values button').click()");
    EXPECT_EQ(browser.text("picked.value"), name);
  };
  choose(one, "service-0777");
  choose(other, "service-0042");
  for (Browser* browser : {&one, &other}) {
    const std::string name = browser->text("picked.value");
    const auto values = json_of("/api/values?event=cpu&label=service&" + served_range())["values"];
    for (const auto& value : values)
      if (value["value"] == name) {
        EXPECT_EQ(samples(*browser), value["count"].get<double>()) << name;
      }
    EXPECT_NE(browser->text("location.search").find(name), std::string::npos);
    EXPECT_LT(samples(*browser), all / 100);
  }
  // Back.
  one.value("history.back(); 0");
  ASSERT_TRUE(one.wait("picked.value === null", kPatience));
  ASSERT_NO_FATAL_FAILURE(settle(one));
  EXPECT_EQ(samples(one), all);
}

// Steps shorter than an interval would have gaps, and peaks between them.
TEST_F(ServePage, AStepOfTheTimeLineIsNoShorterThanAnInterval) {
  Browser& one = user();
  ASSERT_NO_FATAL_FAILURE(open(one, address()));
  EXPECT_EQ(one.value("shownSeries().step"), kServedInterval);
  EXPECT_EQ(one.value("shownSeries().sums.length"), kServedIntervals);
  EXPECT_TRUE(one.value("shownSeries().sums.every(([n]) => n > 0)").get<bool>());
}

TEST_F(ServePage, ABrushComparesAndALinkShowsTheSame) {
  Browser& one = user();
  ASSERT_NO_FATAL_FAILURE(open(one, address("?label=service&value=service-0100")));
  const double all = samples(one);
  ASSERT_NO_FATAL_FAILURE(drag(one, 0.75, 0.999));
  EXPECT_GT(samples(one), 0);
  EXPECT_LT(samples(one), all / 2);
  EXPECT_NEAR(one.value("picked.from - storeFacts.begin").get<double>(), 90'000, 500);
  // With the keyboard.
  one.value("$('lineBrush').focus()");
  const double from = one.value("picked.from").get<double>();
  one.press("ArrowRight");
  ASSERT_NO_FATAL_FAILURE(settle(one));
  EXPECT_GT(one.value("picked.from").get<double>(), from);
  act(one, "pick({ from: 0, to: 0 })");
  act(one, "$('compare').click()");
  EXPECT_TRUE(one.value("names.diff !== undefined").get<bool>());
  EXPECT_EQ(one.value("picked.before_to === picked.from").get<bool>(), true) << "the first half with the second";
  ASSERT_NO_FATAL_FAILURE(drag(one, 0.001, 0.25));
  EXPECT_NEAR(one.value("picked.before_to - storeFacts.begin").get<double>(), 30'000, 500);
  EXPECT_NE(one.text("$('told').textContent").find("compared with"), std::string::npos);
  act(one, "choose({ view: 'functions', query: 'work' })");
  act(one, "choose({ chosen: answer.rows[0][0] })");

  Browser& other = user();
  ASSERT_NO_FATAL_FAILURE(open(other, one.text("location.href")));
  for (const char* part : {"JSON.stringify(picked)", "addressOf()", "document.querySelector('#functions').innerText",
                           "$('facts').innerText", "$('told').textContent", "location.href"})
    EXPECT_EQ(other.text(part), one.text(part)) << part;

  // Without the comparison the page is that of a profile again.
  act(other, "$('compare').click()");
  EXPECT_TRUE(other.value("names.diff === undefined && !document.body.classList.contains('diff')").get<bool>());
  EXPECT_EQ(other.value("$('colour').hidden"), false);
  EXPECT_EQ(other.value("$('size').hidden"), true);
  // The times as text, too.
  act(other,
      "$('afterFrom').value = localTime(storeFacts.begin); $('afterTo').value = localTime(storeFacts.begin + 20000);"
      "$('afterTo').dispatchEvent(new Event('change'))");
  EXPECT_EQ(other.value("picked.to - picked.from"), 20'000);
  act(other, "$('zoomTime').click()");
  EXPECT_EQ(other.value("picked.end - picked.begin"), 20'000);
}

TEST_F(ServePage, TwoServicesAreComparedAndALinkShowsTheSame) {
  Browser& one = user();
  ASSERT_NO_FATAL_FAILURE(open(one, address("?label=service&value=service-0007")));
  act(one, "$('compare').click()");
  act(one, "$('sameTime').click()");
  EXPECT_EQ(one.value("picked.from === picked.before_from && picked.to === picked.before_to"), true);
  // "Before" is pressed: the list chooses for that side.
  one.value("$('findValue').value = 'service-0042'; $('findValue').dispatchEvent(new Event('input')); 0");
  act(one, "document.querySelector('#values button').click()");
  EXPECT_EQ(one.text("picked.before_value"), "service-0042");
  EXPECT_EQ(one.text("picked.value"), "service-0007");
  EXPECT_NE(one.text("$('told').textContent").find("service service-0007, "), std::string::npos);
  EXPECT_NE(one.text("$('told').textContent").find("compared with service service-0042, "), std::string::npos);
  std::map<std::string, double> counts;
  const auto values = json_of(fmt::format("/api/values?event=cpu&label=service&from={}&to={}",
                                          one.value("picked.from").dump(), one.value("picked.to").dump()))["values"];
  for (const auto& value : values) counts[value["value"]] = value["count"].get<double>();
  EXPECT_NE(counts["service-0042"], counts["service-0007"]) << "the sides can be told apart";
  EXPECT_EQ(one.value("names.diff.sides[0].sum"), counts["service-0042"]);
  EXPECT_EQ(one.value("names.diff.sides[1].sum"), counts["service-0007"]);
  EXPECT_NE(one.text("names.diff.sides[0].name").find("service service-0042 2026-"), std::string::npos);
  const std::string line = one.text("JSON.stringify(seriesList)");
  act(one, "$('findValue').value = ''; $('dragAfter').click()");
  EXPECT_NE(one.text("JSON.stringify(seriesList)"), line) << "the time line is of the side that is moved";
  EXPECT_EQ(one.text("document.querySelector('#values [aria-pressed=true] .name').textContent"), "service-0007");

  Browser& other = user();
  ASSERT_NO_FATAL_FAILURE(open(other, one.text("location.href")));
  for (const char* part : {"JSON.stringify(picked)", "$('told').textContent", "location.href", "$('facts').innerText"})
    EXPECT_EQ(other.text(part), one.text(part)) << part;
  // All in place of the value, then no comparison.
  act(other, "$('findValue').value = ''; $('dragBefore').click()");
  act(other, "document.querySelector('#values button').click()");
  EXPECT_EQ(other.value("picked.before_label === 'service' && picked.before_value === null"), true);
  EXPECT_NE(other.text("$('told').textContent").find("compared with All, "), std::string::npos);
  act(other, "$('compare').click()");
  EXPECT_EQ(other.text("location.search").find("before"), std::string::npos);
  EXPECT_EQ(samples(other), counts["service-0007"]);
}

TEST_F(ServePage, HostileTextIsText) {
  Browser& browser = user();
  ASSERT_NO_FATAL_FAILURE(open(browser, address("?label=service")));
  const std::string hostile = nlohmann::json(kHostile).dump();
  act(browser, "pick({ value: " + hostile + " })");
  EXPECT_GT(samples(browser), 0);
  EXPECT_EQ(browser.value("document.querySelector('#values [aria-pressed=true] .name').textContent === " + hostile),
            true);
  EXPECT_EQ(browser.value("document.querySelectorAll('#store img, #store script, main img, main script').length"), 0);
  EXPECT_EQ(browser.text("visible('a\\u202eb\\u0007')"), "a\uFFFDb\uFFFD");
  browser.value("$('findValue').value = 'turned'; showValues()");
  EXPECT_EQ(browser.text("document.querySelector('#values .name').textContent"), "turned \uFFFD round");
  act(browser, "choose({ view: 'functions' })");
  EXPECT_EQ(browser.text("document.title"), "Windlass: " + store_);
  // What would be added to the page does not run.
  browser.value(
      "var added = document.createElement('script'); added.textContent = 'window.ran = 1';"
      "document.body.append(added); document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = "
      "1\">'); 0");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(browser.value("window.ran === undefined"), true);
  for (const std::string& request : browser.requests())
    EXPECT_TRUE(request.starts_with(address()) || request.starts_with("blob:") || request == "about:blank" ||
                request.starts_with("data:image/svg"))  // the browser's own pictures of a field for times
        << request;
}

TEST_F(ServePage, ATokenIsTypedOnce) {
  const std::string token = "0123456789abcdef", path = directory_ + "/token";
  std::ofstream(path) << token;
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  ASSERT_NO_FATAL_FAILURE(serve({"--token-file", path}));
  Browser& browser = user();
  browser.open(address("?label=service&value=service-0005#view=callers"));
  ASSERT_TRUE(browser.wait("typeof pick === 'function' && !$('token').hidden", kPatience));
  EXPECT_NE(browser.text("$('told').textContent").find("a token is needed"), std::string::npos);
  browser.value("$('tokenText').value = '" + token + "'; document.querySelector('#token button').click()");
  ASSERT_TRUE(browser.wait("document.readyState === 'complete' && typeof pick === 'function' && storeFacts !== null",
                           kPatience));
  ASSERT_NO_FATAL_FAILURE(settle(browser));
  EXPECT_EQ(browser.text("location.href").find(token), std::string::npos);
  EXPECT_EQ(browser.text("picked.value"), "service-0005");
  EXPECT_EQ(browser.text("state.view"), "callers");
  EXPECT_EQ(browser.value("$('token').hidden"), true);
  EXPECT_EQ(browser.text("document.cookie"), "") << "scripts do not see it";
}

TEST_F(ServePage, AxeFindsNothing) {
  Axe axe;
  if (const std::string reason = axe.fetch(directory_ + "/axe-core"); !reason.empty()) GTEST_SKIP() << reason;
  Browser& browser = user();
  for (const int width : {1400, 420})
    for (const char* theme : {"light", "dark"})
      for (const char* before : {"", "&before_from=1790000000000&before_to=1790000030000"}) {
        browser.size(width, 900);
        ASSERT_NO_FATAL_FAILURE(
            open(browser,
                 address(fmt::format("?label=service&value=service-0007&from=1790000060000&to=1790000090000{}#theme={}",
                                     before, theme))));
        axe.judge(browser, fmt::format("{} {} {}", width, theme, before));
      }
  EXPECT_GT(axe.passed(), 100u);
}

}  // namespace
}  // namespace windlass::test
