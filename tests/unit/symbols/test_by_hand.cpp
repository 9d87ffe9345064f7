// Names where symbols are such as assembly and linkers leave them (symbolize/by_hand.S): labels, marks, versions, none.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "nm.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {
namespace {

class SymbolsByHand : public testing::Test {
 protected:
  [[nodiscard]] std::uint64_t at(const std::string& symbol) const { return symbols_.at(symbol); }
  static std::string name_at(std::uint64_t address) {
    profile::Profile profile;
    profile.modules = {{.path = WINDLASS_BY_HAND, .open_path = WINDLASS_BY_HAND}};
    profile.locations = {{.module = 0, .address = address}};
    symbolize(profile, {});
    const auto& lines = profile.locations[0].lines;
    return lines.empty() ? "" : profile.functions.at(lines[0].function).name;
  }

  const std::map<std::string, std::uint64_t> symbols_ = test::symbols_of(WINDLASS_BY_HAND);
};

TEST_F(SymbolsByHand, AFunctionGoesBeforeALabel) {
  ASSERT_EQ(at("aa"), at("a_function"));
  EXPECT_EQ(name_at(at("aa") + 8), "a_function");
}

TEST_F(SymbolsByHand, AssemblersMarksAreNoNames) { EXPECT_EQ(name_at(at("$x") + 4), "with_marks"); }

TEST_F(SymbolsByHand, AVersionIsNoPartOfTheName) { EXPECT_EQ(name_at(at("versioned@@BY_HAND_1") + 4), "versioned"); }

TEST_F(SymbolsByHand, ALabelWithoutSizeReachesSoFarAndToItsSectionsEnd) {
  EXPECT_EQ(name_at(at("no_size") + 4096), "no_size");
  EXPECT_EQ(name_at(at("no_size") + 4097), "");
  EXPECT_EQ(name_at(at("at_the_end") - 32), "") << "nobody's, before the label";
  EXPECT_EQ(name_at(at("sized") - 32), "") << "another section's";
  EXPECT_EQ(name_at(at("sized") + 32), "sized");
}

// Without landing pads the stubs of .plt.got have 8 bytes each.
TEST_F(SymbolsByHand, ShortStubsAreNamedEachByItself) {
  std::set<std::string> names;
  for (std::uint64_t stub = at("wl_code") - 24; stub < at("wl_code"); stub += 8) names.insert(name_at(stub + 2));
  EXPECT_EQ(names, (std::set<std::string>{"first_import@plt", "second_import@plt", "third_import@plt"}));
}

}  // namespace
}  // namespace windlass::symbols
