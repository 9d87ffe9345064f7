#include "profiler/samples/code_names.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "os/perf_map.h"

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kCode = 0x7000'0000, kMs = 1'000'000;

// What a process publishes, made up: one function, or functions inlined in each other, innermost first.
class MadeUpCode final : public manager::PublishedCode {
 public:
  MadeUpCode() : PublishedCode(0x1000, {}) {}
  std::string name = "published";
  std::vector<sources::NamedFunction> inlined;
  bool settled = true;

  [[nodiscard]] std::uint64_t begin() const override { return kCode; }
  [[nodiscard]] std::uint64_t end() const override { return kCode + 0x1000; }
  [[nodiscard]] std::uint64_t rank() const override { return 1; }
  void set_time(std::uint64_t /*time*/) override {}
  std::uint64_t functions_at(std::uint64_t address, std::uint64_t /*function*/, std::uint64_t /*time*/,
                             std::vector<sources::NamedFunction>& to) override {
    to.insert(to.end(), inlined.begin(), inlined.end());
    if (inlined.empty() && !name.empty() && address < kCode + 0x100) to.push_back({name, "published.js", 7});
    return kCode;
  }
  bool is_settled(std::uint64_t /*time*/, std::uint64_t /*ended*/) override { return settled; }
  std::unique_ptr<sources::UnwindSource> make_source() override { return nullptr; }
};

// A child that does nothing: a process whose perf map nobody else writes. One that had its number before may have left
// a map, as runtimes do. That would be found where a test is about a map that is not there.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0)
      for (;;) ::pause();
    path = os::perf_map_path(pid_);
    remove_map();
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    remove_map();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] std::uint32_t tgid() const { return static_cast<std::uint32_t>(pid_); }
  void append(const std::string& text) const { std::ofstream(path, std::ios::app) << text; }

  std::string path;

 private:
  void remove_map() const { std::filesystem::remove(fmt::format("/tmp/perf-{}.map", pid_)); }

  pid_t pid_;
};

class CodeNamesTest : public testing::Test {
 protected:
  CodeNamesTest() {
    auto set = std::make_shared<MapSet>();
    manager::PublishedCodes published;
    manager::add(published, code);
    set->set_published(std::move(published));
    set->add({kCode, kCode + 0x2000, 0, 0, 0, MappingKind::kGenerated});
    maps = set;
  }
  // A name, at a time of asking; "" where nothing is known.
  std::string name(std::uint64_t offset, std::uint64_t now, std::uint32_t tgid = 1) {
    const std::uint32_t number = names.find(tgid, place(offset), now, now);
    return number == CodeNames::kUnknown ? std::string() : names.function(number).name;
  }
  [[nodiscard]] CodePlace place(std::uint64_t offset) const {
    return {*maps, *maps->find(kCode + offset), kCode + offset};
  }

  std::shared_ptr<MadeUpCode> code = std::make_shared<MadeUpCode>();
  std::shared_ptr<const MapSet> maps;
  CodeNames names;
};

TEST_F(CodeNamesTest, AFunctionHasOneNumber) {
  const sources::NamedFunction function{"f", "f.js", 3};
  const std::uint32_t number = names.add_inlined(function, CodeNames::kUnknown);
  ASSERT_NE(number, CodeNames::kUnknown);
  EXPECT_EQ(names.add_inlined(function, CodeNames::kUnknown), number);
  EXPECT_EQ(names.function(number).name, "f");
  EXPECT_EQ(names.function(number).file, "f.js");
  EXPECT_EQ(names.function(number).line, 3U);
  EXPECT_EQ(names.function(number).inlined_in, CodeNames::kUnknown);
  // Whatever differs makes another one.
  EXPECT_NE(names.add_inlined({"g", "f.js", 3}, CodeNames::kUnknown), number);
  EXPECT_NE(names.add_inlined({"f", "g.js", 3}, CodeNames::kUnknown), number);
  EXPECT_NE(names.add_inlined({"f", "f.js", 4}, CodeNames::kUnknown), number);
  EXPECT_NE(names.add_inlined({"ff", ".js", 3}, CodeNames::kUnknown), number);
  const std::uint32_t inlined = names.add_inlined(function, number);
  EXPECT_NE(inlined, number);
  EXPECT_EQ(names.function(inlined).inlined_in, number);
}

TEST_F(CodeNamesTest, WhatIsPublishedIsNamed) {
  const std::uint32_t number = names.find(1, place(0x10), 5, 5);
  ASSERT_NE(number, CodeNames::kUnknown);
  EXPECT_EQ(names.function(number).name, "published");
  EXPECT_EQ(names.function(number).file, "published.js");
  EXPECT_EQ(names.function(number).line, 7U);
  EXPECT_EQ(names.function(number).begin, kCode);
  EXPECT_EQ(names.find(1, place(0x20), 5, 5), number);
  EXPECT_EQ(name(0x180, 5), "") << "no function there";
  code->name.clear();
  EXPECT_EQ(name(0x10, 5), "") << "a function without a name";
}

TEST_F(CodeNamesTest, InlinedFunctionsLeadOutward) {
  code->inlined = {{"inner", "a.js", 1}, {"outer", "b.js", 2}};
  const std::uint32_t inner = names.find(1, place(0x10), 5, 5);
  ASSERT_NE(inner, CodeNames::kUnknown);
  EXPECT_EQ(names.function(inner).name, "inner");
  EXPECT_EQ(names.function(inner).begin, kCode);
  const std::uint32_t outer = names.function(inner).inlined_in;
  ASSERT_NE(outer, CodeNames::kUnknown);
  EXPECT_EQ(names.function(outer).name, "outer");
  EXPECT_EQ(names.function(outer).inlined_in, CodeNames::kUnknown);
  code->inlined.clear();
  code->name.clear();
  EXPECT_EQ(names.find(1, place(0x10), 5, 5), CodeNames::kUnknown) << "it knows of nothing";
}

TEST_F(CodeNamesTest, APerfMapSaysTheRest) {
  const Child child;
  child.append(fmt::format("{:x} 100 published twice\n{:x} 100 mapped\n", kCode, kCode + 0x180));
  EXPECT_EQ(name(0x10, kMs, child.tgid()), "published") << "what is published goes first";
  EXPECT_EQ(name(0x180, kMs, child.tgid()), "mapped");
  EXPECT_EQ(name(0x300, kMs, child.tgid()), "");
  const std::uint32_t number = names.find(child.tgid(), place(0x200), kMs, kMs);
  ASSERT_NE(number, CodeNames::kUnknown);
  EXPECT_EQ(names.function(number).begin, kCode + 0x180);
  EXPECT_FALSE(names.open_path(child.tgid()).empty());
  EXPECT_EQ(names.open_path(1), "");
}

// A file's code has the file's symbols: a perf map is not asked.
TEST_F(CodeNamesTest, CodeOfAFileIsNotAskedFor) {
  const Child child;
  child.append(fmt::format("{:x} 1000 mapped\n", kCode));
  Mapping mapping = *maps->find(kCode + 0x1800);
  mapping.kind = MappingKind::kFile;
  EXPECT_EQ(names.find(child.tgid(), {*maps, mapping, kCode + 0x10}, kMs, kMs), CodeNames::kUnknown);
  EXPECT_EQ(names.open_path(child.tgid()), "");
}

// A file that is not there is looked for ten times a second, one that is open is read on each millisecond.
TEST_F(CodeNamesTest, LooksAreRare) {
  const Child child;
  EXPECT_EQ(name(0x200, 1 * kMs, child.tgid()), "");
  child.append(fmt::format("{:x} 100 first\n", kCode + 0x200));
  EXPECT_EQ(name(0x200, 100 * kMs, child.tgid()), "") << "99 ms later it is not looked for";
  EXPECT_EQ(name(0x200, 101 * kMs, child.tgid()), "first");
  child.append(fmt::format("{:x} 100 second\n", kCode + 0x400));
  EXPECT_EQ(name(0x400, 102 * kMs - 1, child.tgid()), "");
  EXPECT_EQ(name(0x400, 102 * kMs, child.tgid()), "second");
}

TEST_F(CodeNamesTest, RenamedCodeIsToldAtMostTenTimesASecond) {
  const Child child;
  std::vector<std::uint32_t> told;
  const auto poll = [&](std::uint64_t now) { names.poll(now, [&](std::uint32_t tgid) { told.push_back(tgid); }); };
  child.append(fmt::format("{:x} 100 first\n", kCode + 0x200));
  EXPECT_EQ(name(0x200, kMs, child.tgid()), "first");
  poll(2 * kMs);
  EXPECT_TRUE(told.empty());
  child.append(fmt::format("{:x} 100 second\n", kCode + 0x200));
  poll(4 * kMs);
  EXPECT_EQ(told, std::vector{child.tgid()});
  poll(6 * kMs);
  EXPECT_EQ(told.size(), 1U) << "nothing new";
  child.append(fmt::format("{:x} 100 third\n", kCode + 0x200));
  poll(103 * kMs);
  EXPECT_EQ(told.size(), 1U) << "99 ms after the last time";
  poll(104 * kMs);
  EXPECT_EQ(told.size(), 2U);
  EXPECT_EQ(name(0x200, 200 * kMs, child.tgid()), "third");
  child.append(fmt::format("{:x} 100 fourth\n", kCode + 0x200));
  EXPECT_EQ(name(0x200, 202 * kMs, child.tgid()), "fourth");
  names.end(child.tgid());
  poll(400 * kMs);
  EXPECT_EQ(told.size(), 2U) << "what has ended has no code";
}

TEST_F(CodeNamesTest, AnEndedProcessIsKnownUntilManyOthersHaveEnded) {
  const Child child;
  child.append(fmt::format("{:x} 100 first\n", kCode + 0x200));
  EXPECT_EQ(name(0x200, kMs, child.tgid()), "first");
  child.append(fmt::format("{:x} 100 last\n", kCode + 0x400));
  names.end(child.tgid());
  names.end(child.tgid());
  EXPECT_EQ(name(0x400, kMs, child.tgid()), "last") << "read when it ended";
  EXPECT_FALSE(names.open_path(child.tgid()).empty());

  std::vector<std::unique_ptr<Child>> others;
  for (std::size_t i = 0; i < CodeNames::kMaxDead; ++i) {
    auto other = std::make_unique<Child>();
    other->append(fmt::format("{:x} 100 other\n", kCode + 0x200));
    EXPECT_EQ(name(0x200, kMs, other->tgid()), "other");
    if (i + 1 < CodeNames::kMaxDead) {
      names.end(other->tgid());
    } else {
      EXPECT_FALSE(names.open_path(child.tgid()).empty()) << "kMaxDead are kept";
      names.end(other->tgid());
    }
    others.push_back(std::move(other));
  }
  EXPECT_EQ(names.open_path(child.tgid()), "");
  EXPECT_FALSE(names.open_path(others.front()->tgid()).empty());

  const Child another;
  another.append(fmt::format("{:x} 100 other\n", kCode + 0x200));
  EXPECT_EQ(name(0x200, kMs, another.tgid()), "other");
  names.end(another.tgid());
  EXPECT_EQ(names.open_path(others.front()->tgid()), "") << "each that ends is instead of the oldest";
  EXPECT_FALSE(names.open_path(others[1]->tgid()).empty());
}

// The end of a process may never be told.
TEST_F(CodeNamesTest, OfProcessesThatAreGoneNoMoreIsRead) {
  const Child gone, gone_too, there;
  for (const Child* child : {&gone, &gone_too, &there}) {
    child->append(fmt::format("{:x} 100 first\n", kCode + 0x200));
    EXPECT_EQ(name(0x200, kMs, child->tgid()), "first");
  }
  code->settled = false;
  const std::uint32_t late_gone = names.find_late(gone.tgid(), place(0x10), 5, 5);
  const std::uint32_t late_there = names.find_late(there.tgid(), place(0x10), 5, 5);
  names.keep_only([&](std::uint32_t tgid) { return tgid == there.tgid(); });
  EXPECT_EQ(names.function(late_gone).name, "published") << "it says no more";
  EXPECT_EQ(names.function(late_there).name, "");
  for (const Child* child : {&gone, &gone_too, &there}) child->append(fmt::format("{:x} 100 second\n", kCode + 0x400));
  EXPECT_EQ(name(0x200, 2 * kMs, gone.tgid()), "first") << "as of one that has ended";
  EXPECT_EQ(name(0x400, 2 * kMs, gone.tgid()), "");
  EXPECT_EQ(name(0x400, 2 * kMs, gone_too.tgid()), "") << "of which nothing is late";
  EXPECT_EQ(name(0x400, 2 * kMs, there.tgid()), "second");
}

TEST_F(CodeNamesTest, OneWithoutAMapLeavesNothing) {
  const Child child;
  EXPECT_EQ(name(0x200, kMs, child.tgid()), "");
  names.end(child.tgid());
  child.append(fmt::format("{:x} 100 first\n", kCode + 0x200));
  EXPECT_EQ(name(0x200, 2 * kMs, child.tgid()), "first") << "a new process of the same number";
}

TEST_F(CodeNamesTest, OneNumberForManyLateSamples) {
  code->settled = false;
  const std::uint32_t number = names.find_late(1, place(0x10), 5, 5);
  ASSERT_NE(number, CodeNames::kUnknown);
  EXPECT_EQ(names.find_late(1, place(0x10), 6, 6), number);
  EXPECT_NE(names.find_late(1, place(0x11), 5, 5), number);
  EXPECT_NE(names.find_late(1, place(0x10), 10'000'000'005, 10'000'000'005), number);
  EXPECT_EQ(names.function(number).name, "");
  names.resolve();
  EXPECT_EQ(names.function(number).name, "published");
  EXPECT_EQ(names.function(number).file, "published.js");
  EXPECT_EQ(names.function(number).line, 7U);
  EXPECT_NE(names.find_late(1, place(0x10), 5, 5), number) << "what was resolved is done with";
}

// A program that makes no new code says nothing of the time, and never will.
TEST_F(CodeNamesTest, LateNumbersHardlyGrowWithTime) {
  constexpr std::uint64_t kSeconds = 1'000'000'000, kAddresses = 64, kTimes = 20'000;
  code->settled = false;
  std::uint32_t most = 0;
  for (std::uint64_t i = 0; i < kTimes; ++i) {
    const std::uint64_t time = (100'000 + i * 10) * kSeconds;
    for (std::uint64_t at = 0; at < kAddresses; ++at) {
      const std::uint32_t number = names.find_late(1, place(at), time, time);
      ASSERT_NE(number, CodeNames::kUnknown) << i;
      most = std::max(most, number);
    }
  }
  EXPECT_LT(most, 12 * CodeNames::kLateStep) << "the interval has doubled at each step";
  EXPECT_GT(most, 4 * CodeNames::kLateStep);
  names.resolve();
  EXPECT_EQ(names.function(most).name, "published");
}

// The interval in which an address has one number doubles, to 121 days at most.
TEST_F(CodeNamesTest, LateNumbersAreOfAtMostFourMonths) {
  constexpr std::uint64_t kDay = 86'400'000'000'000, kDoublings = 24;
  code->settled = false;
  const Mapping mapping = *maps->find(kCode);
  for (std::uint64_t i = 1; i <= kDoublings * CodeNames::kLateStep; ++i)
    ASSERT_NE(names.find_late(1, {*maps, mapping, kCode + 0x10 + i}, 0, 0), CodeNames::kUnknown);
  const std::uint32_t number = names.find_late(1, place(0x10), 0, 0);
  EXPECT_EQ(names.find_late(1, place(0x10), 121 * kDay, 121 * kDay), number);
  EXPECT_NE(names.find_late(1, place(0x10), 122 * kDay, 122 * kDay), number);
}

TEST_F(CodeNamesTest, ThereIsABoundForFunctions) {
  const auto add = [&](std::uint32_t line) { return names.add_inlined({"", "", line}, CodeNames::kUnknown); };
  for (std::uint32_t line = 1; line < CodeNames::kMaxFunctions; ++line) ASSERT_EQ(add(line), line);
  ASSERT_NE(add(CodeNames::kMaxFunctions), CodeNames::kUnknown);
  EXPECT_EQ(add(CodeNames::kMaxFunctions + 1), CodeNames::kUnknown);
  EXPECT_EQ(add(1), 1U) << "those that are known stay so";
}

TEST_F(CodeNamesTest, ThereIsABoundForTheirNames) {
  const std::string half(CodeNames::kMaxBytes / 2, 'x');
  EXPECT_NE(names.add_inlined({half, "", 1}, CodeNames::kUnknown), CodeNames::kUnknown);
  EXPECT_NE(names.add_inlined({"", half, 2}, CodeNames::kUnknown), CodeNames::kUnknown);
  EXPECT_EQ(names.add_inlined({"x", "", 3}, CodeNames::kUnknown), CodeNames::kUnknown);
  EXPECT_EQ(names.add_inlined({"", "x", 4}, CodeNames::kUnknown), CodeNames::kUnknown);
  EXPECT_NE(names.add_inlined({"", "", 5}, CodeNames::kUnknown), CodeNames::kUnknown);
}

TEST_F(CodeNamesTest, LateNamesCountForTheBound) {
  code->name = std::string(CodeNames::kMaxBytes / 2, 'x');
  code->settled = false;
  const std::uint32_t first = names.find_late(1, place(0x10), 5, 5), second = names.find_late(1, place(0x20), 5, 5);
  names.resolve();
  EXPECT_EQ(names.function(first).name.size(), CodeNames::kMaxBytes / 2);
  EXPECT_EQ(names.function(second).name, "") << "with its file's name it is too long";
  const std::string rest(CodeNames::kMaxBytes / 2 - std::string_view("published.js").size(), 'y');
  EXPECT_EQ(names.add_inlined({rest, "y", 1}, CodeNames::kUnknown), CodeNames::kUnknown);
  EXPECT_NE(names.add_inlined({rest, "", 1}, CodeNames::kUnknown), CodeNames::kUnknown);
}

TEST_F(CodeNamesTest, WhatIsForgottenMakesRoom) {
  const std::string half(CodeNames::kMaxBytes / 2, 'x');
  EXPECT_NE(names.add_inlined({half, "", 1}, CodeNames::kUnknown), CodeNames::kUnknown);
  const std::uint32_t outer = names.add_inlined({"outer", "o.js", 2}, CodeNames::kUnknown);
  const std::uint32_t inner = names.add_inlined({"inner", "i.js", 3}, outer);
  const auto moved = names.forget();
  EXPECT_NE(names.add_inlined({half, "", 4}, CodeNames::kUnknown), CodeNames::kUnknown);
  const std::uint32_t again = moved(inner);
  ASSERT_NE(again, CodeNames::kUnknown);
  EXPECT_EQ(moved(inner), again);
  EXPECT_EQ(moved(CodeNames::kUnknown), CodeNames::kUnknown);
  EXPECT_EQ(names.function(again).name, "inner");
  EXPECT_EQ(names.function(again).file, "i.js");
  EXPECT_EQ(names.function(again).line, 3U);
  const std::uint32_t around = names.function(again).inlined_in;
  ASSERT_NE(around, CodeNames::kUnknown);
  EXPECT_EQ(names.function(around).name, "outer");
  EXPECT_EQ(names.function(around).inlined_in, CodeNames::kUnknown);
}

}  // namespace
}  // namespace windlass::profiler
