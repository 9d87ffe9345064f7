// axe-core, fetched by npm: judges how a page works with a screen reader and without colours.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "support/browser.h"
#include "support/run_command.h"

namespace windlass::test {

class Axe {
 public:
  // Empty: it has been fetched into `folder`. Else: why not.
  std::string fetch(const std::string& folder) {
    const auto fetched =
        run("sh " WINDLASS_FETCH
            " axe-core 4.10.3 "
            "sha512-Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg== " +
            folder + " 2>&1");
    if (fetched.status == 1) return "npm cannot fetch axe-core";
    EXPECT_EQ(fetched.status, 0) << fetched.output;
    std::ifstream file(folder + "/axe.min.js");
    script_.assign(std::istreambuf_iterator<char>(file), {});
    return {};
  }
  // Each finding is a failure.
  void judge(Browser& browser, const std::string& what) {
    browser.value(script_ + "; 0");
    const auto found = browser.value(
        "axe.run(document, { resultTypes: ['violations'] }).then((found) => [found.passes.length, "
        "...found.violations.map((one) => [one.id, one.nodes.length, one.nodes[0].html.slice(0, 200), "
        "one.nodes[0].failureSummary])])");
    passed_ += found[0].get<std::size_t>();
    for (std::size_t i = 1; i < found.size(); ++i) ADD_FAILURE() << what << ": " << found[i].dump();
  }
  // How many rules held, of all pages.
  [[nodiscard]] std::size_t passed() const { return passed_; }

 private:
  std::string script_;
  std::size_t passed_ = 0;
};

}  // namespace windlass::test
