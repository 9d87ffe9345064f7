// Profiles narrowed, cut and merged, and their functions as comma-separated values.
#include "profiler/export/narrow.h"

#include <gtest/gtest.h>

#include "profiler/export/call_tree.h"
#include "profiler/export/csv.h"
#include "profiler/export/folded.h"
#include "profiler/export/labels.h"
#include "profiler/export/merge.h"
#include "profiler/export/pattern.h"
#include "support/events_profile.h"
#include "support/synthetic_profile.h"

namespace windlass::exporter {
namespace {

using profile::Profile;

std::string folded(const Profile& p, profile::ValueType type = {0, true}) {
  std::string text;
  TextWriter out(&text);
  EXPECT_TRUE(write_folded(p, out, type).has_value());
  return text;
}

// main -> run(int) -> leaf, where outer is inlined into run and inner into outer; main -> run -> run; main -> other in
// lib.so. Processes 1 ("prog") and 2 ("helper", with a thread "worker").
Profile calls() {
  Profile p;
  p.strings = {"prog", "helper", "worker"};
  p.events.front().period = 1000;
  p.modules = {{.path = "/bin/prog"}, {.path = "/lib/lib.so"}};
  p.functions = {{.name = "main"},  {.name = "run(int)"}, {.name = "outer"},
                 {.name = "inner"}, {.name = "leaf"},     {.name = "other"}};
  p.locations = {{0, 0x10, {{0, 1}}}, {0, 0x20, {{3, 4}, {2, 3}, {1, 2}}},  // inner in outer in run
                 {0, 0x30, {{4, 5}}}, {0, 0x40, {{1, 6}}},
                 {1, 0x50, {{5, 7}}}, {1, 0x60, {}}};
  p.samples = {{.locations = {2, 1, 0}, .count = 1, .pid = 1, .tid = 1, .comm = 0},
               {.locations = {3, 3, 0}, .count = 2, .pid = 1, .tid = 1, .comm = 0},
               {.locations = {4, 0}, .count = 4, .pid = 2, .tid = 2, .comm = 1},
               {.locations = {5, 3, 0}, .count = 8, .pid = 2, .tid = 3, .comm = 2}};
  return p;
}

std::string narrowed(const Narrowing& wanted) {
  Profile p = calls();
  EXPECT_FALSE(narrow(p, wanted).has_value());
  return folded(p);
}

TEST(Narrow, ProcessesAndThreads) {
  EXPECT_EQ(narrowed({.processes = {"1"}}), "prog;main;run(int);run(int) 2\nprog;main;run(int);outer;inner;leaf 1\n");
  EXPECT_EQ(narrowed({.processes = {"prog"}}), narrowed({.processes = {"1"}}));
  EXPECT_EQ(narrowed({.processes = {"helper"}, .threads = {"worker"}}), "worker;main;run(int);lib.so+0x60 8\n");
  EXPECT_EQ(narrowed({.threads = {"3"}}), narrowed({.threads = {"worker"}}));
  EXPECT_EQ(narrowed({.threads = {"3", "helper"}}), "worker;main;run(int);lib.so+0x60 8\nhelper;main;other 4\n");
}

TEST(Narrow, ModulesFunctionsAndPatterns) {
  EXPECT_EQ(narrowed({.modules = {"lib.so"}}), narrowed({.processes = {"2"}}));
  EXPECT_EQ(narrowed({.modules = {"/lib/lib.so"}}), narrowed({.modules = {"lib.so"}}));
  EXPECT_EQ(narrowed({.functions = {"outer"}}), "prog;main;run(int);outer;inner;leaf 1\n");
  EXPECT_EQ(narrowed({.functions = {"run"}}), narrowed({.functions = {"run(int)"}}));
  EXPECT_EQ(narrowed({.functions = {"outer", "other"}}),
            "helper;main;other 4\nprog;main;run(int);outer;inner;leaf 1\n");
  EXPECT_EQ(narrowed({.focus = "^o[a-z]+r$"}), narrowed({.functions = {"outer", "other"}}));
  EXPECT_EQ(narrowed({.ignore = "run|0x60"}), "helper;main;other 4\n");
  EXPECT_EQ(narrowed({.focus = "run", .ignore = "leaf|lib"}), "prog;main;run(int);run(int) 2\n");
}

TEST(Narrow, CutsAtAFunction) {
  EXPECT_EQ(narrowed({.callers_of = "run"}),
            "worker;main;run(int) 8\nprog;main;run(int) 1\nprog;main;run(int);run(int) 2\n")
      << "to the innermost one, also in the middle of inlined calls";
  EXPECT_EQ(narrowed({.callers_of = "outer"}), "prog;main;run(int);outer 1\n");
  EXPECT_EQ(narrowed({.callees_of = "outer"}), "prog;outer;inner;leaf 1\n");
  EXPECT_EQ(narrowed({.callees_of = "run"}),
            "worker;run(int);lib.so+0x60 8\nprog;run(int);run(int) 2\nprog;run(int);outer;inner;leaf 1\n");
  EXPECT_EQ(narrowed({.callers_of = "inner", .callees_of = "run"}), "prog;run(int);outer;inner 1\n");
  EXPECT_EQ(narrowed({.callers_of = "outer", .callees_of = "inner"}), "") << "the first cut takes the second away";
  EXPECT_EQ(narrowed({.callers_of = "lib.so+0x60"}), "worker;main;run(int);lib.so+0x60 8\n");
}

TEST(Narrow, NamesWithZeroesAndCallersThatAreMissing) {
  Profile p = calls();
  p.functions[5].name = std::string("other\0evil", 10);
  ASSERT_FALSE(narrow(p, {.ignore = "evil"}).has_value());
  EXPECT_EQ(folded(p).find("other"), std::string::npos);
  p = calls();
  for (profile::Sample& sample : p.samples) sample.end = WL_END_NO_ROW;
  ASSERT_FALSE(narrow(p, {.callees_of = "other"}).has_value());
  EXPECT_EQ(folded(p), "helper;other 4\n");
}

TEST(Narrow, SaysWhatIsNotThere) {
  const auto problem = [](const Narrowing& wanted) {
    Profile p = calls();
    const auto found = narrow(p, wanted);
    return found ? found->text : "none";
  };
  EXPECT_EQ(problem({.processes = {"prog", "nosuch"}}), "no sample is of the process nosuch");
  EXPECT_EQ(problem({.threads = {"9"}}), "no sample is of the thread 9");
  EXPECT_EQ(problem({.modules = {"nosuch.so"}}), "there is no module nosuch.so");
  EXPECT_EQ(problem({.functions = {"ru"}}), "there is no function ru");
  EXPECT_EQ(problem({.callees_of = "inn"}), "there is no function inn");
  EXPECT_TRUE(problem({.focus = "("}).starts_with("--focus: no regular expression: "));
  EXPECT_TRUE(problem({.ignore = "["}).starts_with("--ignore: no regular expression: "));
  EXPECT_EQ(problem({}), "none");
}

TEST(Narrow, RefusesPatternsThatTakeTooMuch) {
  const auto problem = [](const std::string& focus) { return Pattern(focus).error(); };
  const std::string brackets(64, '('), closed(64, ')');
  EXPECT_EQ(problem(brackets + "a" + closed), "");
  EXPECT_EQ(problem("(" + brackets + "a" + closed + ")"), "more than 64 brackets within brackets");
  EXPECT_EQ(problem(std::string(20000, '(') + std::string(20000, ')')), "more than 64 brackets within brackets");
  EXPECT_EQ(problem(std::string(2048, 'a')), "");
  EXPECT_EQ(problem("(a{1,255}){1,6}"), "");
  EXPECT_EQ(problem("([[:alpha:](]|[](]|\\()x{3}y{2,}.*z+(a|b)?"), "");
  EXPECT_EQ(problem("[^]](a)"), "");
  for (const char* large : {"((a{1,255}){1,255}){1,20}", "(((a{1,255}){1,255}){1,60})", "a{3000}", "(a{100,}){50}",
                            "((((((a++)++)++)++)++)++)++", "(a{9}{9}){9}{9}", "[[:alpha:]]{255}{255}",
                            "[])]{2047}b(a){100}", "(([)]{200}){200})", "({255}{255})"})
    EXPECT_EQ(problem(large), "more than 2048 characters with all repetitions") << large;
  EXPECT_EQ(problem("a+?b*?c{2}?"), "");
  for (const char operation : {'*', '?', '+'})
    EXPECT_EQ(problem("a" + std::string(3000, operation)), "a repetition of repetitions of a repetition");
  EXPECT_EQ(problem("(a*)*(b*)*\\1\\2x"), "there are no back references");
  EXPECT_NE(problem("a\\"), "") << "nothing behind the last backslash";
  EXPECT_FALSE(Pattern("a{3000}").fits("a"));
}

TEST(Pattern, LongNamesAreSearchedInPieces) {
  constexpr std::size_t kStep = Pattern::kPiece - Pattern::kOverlap;
  const std::string plain(3 * Pattern::kPiece + 100, 'a');
  const auto with = [&](std::size_t at, std::string_view text) {
    return std::string(plain).replace(at, text.size(), text);
  };
  const Pattern needle("n[e]*dle"), begins("^needle"), ends("needle$");
  EXPECT_FALSE(needle.fits(plain));
  for (const std::size_t edge : {kStep, Pattern::kPiece, 2 * Pattern::kPiece, plain.size() - 6})
    for (std::size_t at = edge - 8; at <= edge + 2 && at + 6 <= plain.size(); ++at) {
      EXPECT_TRUE(needle.fits(with(at, "needle"))) << at;
      EXPECT_FALSE(begins.fits(with(at, "needle"))) << at;
      EXPECT_EQ(ends.fits(with(at, "needle")), at + 6 == plain.size()) << at;
    }
  EXPECT_TRUE(begins.fits(with(0, "needle")));
  const auto apart = [&](std::size_t distance) { return with(kStep - 1, "x").replace(kStep - 1 + distance, 1, "y"); };
  EXPECT_TRUE(Pattern("x.*y").fits(apart(Pattern::kOverlap)));
  EXPECT_FALSE(Pattern("x.*y").fits(apart(Pattern::kPiece)));
  EXPECT_TRUE(Pattern("^x.*y$").fits("x" + std::string(Pattern::kPiece - 2, 'a') + "y")) << "one piece";
}

TEST(Narrow, CommentsSayIt) {
  Profile p = calls();
  ASSERT_FALSE(narrow(p, {.processes = {"1"}, .modules = {"prog"}, .focus = "run", .callers_of = "run"}).has_value());
  EXPECT_EQ(p.comments,
            (std::vector<std::string>{"only process=1", "only module=prog", "focus run", "callers of run"}));
}

TEST(Merge, AddsUp) {
  Profile both = calls();
  merge_into(both, calls());
  const Profile one = calls();
  EXPECT_EQ(both.modules.size(), one.modules.size());
  EXPECT_EQ(both.functions.size(), one.functions.size());
  EXPECT_EQ(both.locations.size(), one.locations.size());
  EXPECT_EQ(both.strings, one.strings);
  EXPECT_EQ(both.events.size(), 1u);
  EXPECT_EQ(folded(both),
            "worker;main;run(int);lib.so+0x60 16\nhelper;main;other 8\nprog;main;run(int);run(int) 4\n"
            "prog;main;run(int);outer;inner;leaf 2\n");
}

TEST(Merge, KeepsWhatOnlyOneHas) {
  Profile both = calls();
  both.start_unix_ns = 500;
  Profile events = testing::events_profile();
  events.start_unix_ns = 400;
  events.lost = 3;
  events.comments = {"a comment"};
  merge_into(both, events);
  EXPECT_EQ(both.events.size(), 2u);
  EXPECT_EQ(both.events[0].period, 0u) << "they have no period in common";
  EXPECT_EQ(totals_of(both, {0, true}).samples, 15u + 40u);
  EXPECT_EQ(totals_of(both, {0, false}).samples, 15u * 1000 + 40u * 1'000'000);
  EXPECT_EQ(folded(both, {1, false}), folded(testing::events_profile(), {1, false}));
  EXPECT_EQ(label_values(both, "reason"), (std::vector<std::string>{"futex", "page fault"}));
  EXPECT_EQ(both.start_unix_ns, 400u);
  EXPECT_EQ(both.duration_ns, 1'000'000'000u);
  EXPECT_EQ(both.lost, 3u);
  EXPECT_EQ(both.comments, std::vector<std::string>{"a comment"});
}

TEST(Merge, TimesOfOneRecordingAreNoneOfTwo) {
  Profile both = calls(), other = calls();
  for (Profile* p : {&both, &other}) {
    p->events[0].per_time = 1;
    p->times = {{5, 0}};
    p->samples[0].times = 1;
  }
  merge_into(both, other);
  EXPECT_FALSE(has_times(both));
}

TEST(Merge, SumsOfMoreThan64BitsAreErrors) {
  Profile both = calls();
  both.events[0].period = std::uint64_t{1} << 60;
  const Profile one = both;
  EXPECT_TRUE(check_sums(one).has_value());
  both.lost = ~std::uint64_t{0};
  Profile other = one;
  other.lost = 1;
  merge_into(both, other);
  EXPECT_FALSE(check_sums(both).has_value());
  EXPECT_EQ(both.lost, ~std::uint64_t{0}) << "as many as can be said";
}

TEST(Merge, LargeProfiles) {
  Profile both = testing::synthetic_profile({}, 1);
  const Profile other = testing::synthetic_profile({}, 2);
  const std::uint64_t sum = totals_of(both).samples + totals_of(other).samples;
  merge_into(both, other);
  EXPECT_EQ(totals_of(both).samples, sum);
}

TEST(Csv, IsExactlyThis) {
  Profile p = calls();
  p.functions[5] = {.name = "=cmd(\"x\"),\n", .file = "/src/o.c", .start_line = 9};
  std::string text;
  TextWriter out(&text);
  ASSERT_TRUE(write_csv(p, out, {0, true}).has_value());
  EXPECT_EQ(text,
            "self,total,unit,function,module,modules,file,line,value\n"
            "8,8,count,lib.so+0x60,/lib/lib.so,1,,,samples\n"
            "4,4,count,\"'=cmd(\"\"x\"\"),\\x0a\",/lib/lib.so,1,/src/o.c,9,samples\n"
            "2,11,count,run(int),/bin/prog,1,,2,samples\n"
            "1,1,count,leaf,/bin/prog,1,,5,samples\n"
            "0,15,count,main,/bin/prog,1,,1,samples\n"
            "0,1,count,inner,/bin/prog,1,,4,samples\n"
            "0,1,count,outer,/bin/prog,1,,3,samples\n");
}

}  // namespace
}  // namespace windlass::exporter
