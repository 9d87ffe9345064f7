// What is one function: by name, whatever module it is in.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "profiler/export/call_tree.h"
#include "profiler/export/folded.h"
#include "profiler/export/report.h"

namespace windlass::exporter {
namespace {

using nlohmann::json;

// inline_me is in two libraries and calls itself across them; memset is in the kernel and in libc; two files are named
// lib.so and have an unnamed address each; two processes have code that nothing names.
profile::Profile shared_names() {
  profile::Profile p;
  p.strings = {"prog"};
  p.events.front().period = 1000;
  p.modules = {{.path = "/a/lib.so"},
               {.path = "/b/lib.so"},
               {.path = "[kernel]", .is_kernel = true},
               {.path = "[anon]", .pid = 1},
               {.path = "[anon]", .pid = 2}};
  p.functions = {{.name = "main"}, {.name = "inline_me"}, {.name = "inline_me"}, {.name = "memset"}};
  p.locations = {{0, 0x10, {{0, 1}}}, {0, 0x20, {{1, 2}}},     {1, 0x20, {{2, 3}}},
                 {2, 0x30, {{3, 4}}}, {1, 0x40, {{3, 5}}},     {0, 0x50, {}},
                 {1, 0x50, {}},       {3, 0x7f0000000000, {}}, {4, 0x7f0000000010, {}}};
  const auto add = [&](std::vector<std::uint32_t> locations, std::uint64_t count) {
    p.samples.push_back({.locations = std::move(locations), .count = count, .pid = 1, .tid = 1, .comm = 0});
  };
  add({1, 0}, 1);
  add({2, 0}, 2);
  add({2, 1, 0}, 4);
  add({3, 4, 0}, 8);
  add({5, 0}, 16);
  add({6, 0}, 32);
  add({7, 0}, 64);
  add({8, 0}, 128);
  return p;
}

std::multimap<std::string, json> functions_of(const profile::Profile& p) {
  std::string text;
  TextWriter out(&text);
  EXPECT_TRUE(write_json(p, out).has_value());
  std::istringstream lines(text);
  std::multimap<std::string, json> functions;
  for (std::string line; std::getline(lines, line);)
    if (const json one = json::parse(line); one["type"] == "function") functions.emplace(one["name"], one);
  return functions;
}

TEST(Functions, OfSeveralModulesAreOneRow) {
  const auto functions = functions_of(shared_names());
  ASSERT_EQ(functions.count("inline_me"), 1u);
  const json& both = functions.find("inline_me")->second;
  EXPECT_EQ(both["self"], 1 + 2 + 4);
  EXPECT_EQ(both["total"], 1 + 2 + 4) << "a sample that has it twice counts once";
  EXPECT_EQ(both["module"], nullptr) << "there is not the one";
  EXPECT_EQ(both["modules"], json({0, 1}));
  EXPECT_EQ(functions.find("main")->second["module"], 0);
  EXPECT_EQ(functions.find("main")->second["modules"], json({0}));
}

TEST(Functions, KernelsAndUnnamedAddressesStayApart) {
  const auto functions = functions_of(shared_names());
  EXPECT_EQ(functions.count("memset"), 2u) << "the kernel's is another function";
  EXPECT_EQ(functions.count("lib.so+0x50"), 2u) << "an offset in another file is another function";
  ASSERT_EQ(functions.count("[jit]"), 1u);
  EXPECT_EQ(functions.find("[jit]")->second["self"], 64 + 128);
}

TEST(Functions, AFileMappedTwiceIsOneFile) {
  profile::Profile p;
  p.strings = {"prog"};
  p.events.front().period = 1;
  p.modules = {{.path = "/l.so", .build_id = "12", .end = 1},
               {.path = "/l.so", .build_id = "12", .end = 2},
               {.path = "/l.so", .build_id = "34", .end = 2}};
  p.locations = {{.module = 0, .address = 16}, {.module = 1, .address = 16}, {.module = 2, .address = 16}};
  for (std::uint32_t i = 0; i < 3; ++i)
    p.samples.push_back({.locations = {i}, .count = i + 1, .pid = 1, .tid = 1, .comm = 0});
  const auto functions = functions_of(p);
  ASSERT_EQ(functions.count("l.so+0x10"), 2u);
  EXPECT_EQ(functions.find("l.so+0x10")->second["self"], 3u);
}

TEST(Functions, TheTableNamesTheModules) {
  std::string text;
  TextWriter out(&text);
  ASSERT_TRUE(write_report(shared_names(), out, {}).has_value());
  std::istringstream lines(text);
  std::string found;
  for (std::string line; found.empty() && std::getline(lines, line);)
    if (line.find("inline_me") != std::string::npos) found = line;
  EXPECT_NE(found.find("2.75%    2.75%          7  inline_me"), std::string::npos) << text;
  EXPECT_TRUE(found.ends_with("  lib.so +1")) << found;
}

// One stack begins, and another ends, in the middle of one that is known: the tree finds the place of each.
TEST(CallTree, StacksThatAreBeginningsOfOthers) {
  profile::Profile p = shared_names();
  p.samples.clear();
  for (std::uint64_t i = 0; i < 300; ++i) {
    std::vector<std::uint32_t> locations((i * 37) % 50, 0);
    locations.insert(locations.begin(), {i % 3 == 0 ? 1u : 3u});
    p.samples.push_back({.locations = locations, .count = i + 1, .pid = 1, .tid = 1, .comm = 0});
  }
  Frames frames(p);
  const CallTree tree(p, frames);
  std::map<std::vector<std::uint32_t>, std::uint64_t> expected, found;
  std::vector<std::uint32_t> path;
  for (const profile::Sample& sample : p.samples) {
    frames.path_of(sample, path);
    expected[path] += sample.count;
  }
  for (std::uint32_t node = 1; node < tree.nodes().size(); ++node) {
    if (tree.nodes()[node].self == 0) continue;
    path.clear();
    for (std::uint32_t at = node; at != 0; at = tree.nodes()[at].parent)
      path.insert(path.begin(), tree.nodes()[at].frame);
    EXPECT_TRUE(found.emplace(path, tree.nodes()[node].self).second) << "a path has one node";
  }
  EXPECT_EQ(found, expected);
}

// Of trees with few and with many frames a node: equal totals are in the order of the names.
TEST(CallTree, SiblingsAreInOrder) {
  for (const std::size_t names : {3u, 3000u}) {
    profile::Profile profile;
    profile.events.front().period = 1000;
    for (std::size_t i = 0; i < names; ++i) {
      profile.functions.push_back({.name = fmt::format("f{}", i * 7919 % names)});
      profile.locations.push_back({profile::kNone, i + 1, {{.function = static_cast<std::uint32_t>(i), .line = 0}}});
    }
    std::mt19937 random(1);
    for (int i = 0; i < 1000; ++i) {
      profile::Sample sample{.count = 1};
      for (int depth = 0; depth < 8; ++depth) sample.locations.push_back(static_cast<std::uint32_t>(random() % names));
      profile.samples.push_back(sample);
    }
    Frames frames(profile);
    const CallTree tree(profile, frames);
    EXPECT_EQ(tree.nodes().size() / 16 > frames.size(), names == 3u);
    std::size_t pairs = 0;
    for (const TreeNode& node : tree.nodes())
      for (auto child = node.first_child; child != profile::kNone; child = tree.nodes()[child].next_sibling) {
        const auto next = tree.nodes()[child].next_sibling;
        if (next == profile::kNone) continue;
        const TreeNode &a = tree.nodes()[child], &b = tree.nodes()[next];
        EXPECT_TRUE(a.total > b.total || (a.total == b.total && frames[a.frame].name < frames[b.frame].name));
        ++pairs;
      }
    EXPECT_GT(pairs, 500u);
  }
}

}  // namespace
}  // namespace windlass::exporter
