#include "profiler/kernel/event_specs.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <string>

namespace windlass::profiler {
namespace {

TEST(EventSpecs, WhatIsNotCountedHasNoPeriod) {
  for (const std::string name : {"cpu", "off-cpu", "lock"}) {
    const auto event = parse_event(name + "@100");
    ASSERT_FALSE(event.has_value()) << name;
    EXPECT_EQ(event.error(), name + " is not counted. Way out: " + name + " without @");
  }
}

TEST(EventSpecs, PlainOnesAreKnown) {
  for (const std::string& name : plain_events()) {
    const auto event = parse_event(name);
    ASSERT_TRUE(event.has_value()) << name;
    EXPECT_EQ(event->name, name);
  }
  EXPECT_EQ(parse_event("cpu")->kind, EventKind::kCpuClock);
  EXPECT_EQ(parse_event("off-cpu")->kind, EventKind::kWait);
  EXPECT_EQ(parse_event("lock")->kind, EventKind::kLock);
  const auto faults = parse_event("page-faults@0x10");
  ASSERT_TRUE(faults.has_value());
  EXPECT_EQ(faults->name, "page-faults");
  EXPECT_EQ(faults->period, 16u);
  EXPECT_EQ(faults->type, PERF_TYPE_SOFTWARE);
  EXPECT_EQ(faults->config, PERF_COUNT_SW_PAGE_FAULTS);
}

TEST(EventSpecs, StaticProbesNameAFileAProviderAndAName) {
  const auto probe = parse_event("usdt:/a:b/lib.so:provider:name");
  ASSERT_TRUE(probe.has_value());
  EXPECT_TRUE(probe->is_static_probe());
  EXPECT_EQ(probe->file, "/a:b/lib.so");
  EXPECT_EQ(probe->category, "provider");
  EXPECT_EQ(probe->point, "name");
  EXPECT_FALSE(parse_event("uprobe:lib.so:name")->is_static_probe());
}

TEST(EventSpecs, ProbesNameAFileAndAPlaceInAFunction) {
  const auto probe = parse_event("uprobe:/a:b/lib.so:name+0x1f");
  ASSERT_TRUE(probe.has_value());
  EXPECT_EQ(probe->kind, EventKind::kProbe);
  EXPECT_EQ(probe->file, "/a:b/lib.so");
  EXPECT_EQ(probe->function, "name");
  EXPECT_EQ(probe->offset, 0x1fu);
  EXPECT_FALSE(probe->returns);
  const auto returns = parse_event("uretprobe:lib.so:ns::name");
  ASSERT_TRUE(returns.has_value());
  EXPECT_EQ(returns->file, "lib.so");
  EXPECT_EQ(returns->function, "ns::name");
  EXPECT_TRUE(returns->returns);
  EXPECT_EQ(parse_event("uprobe:/proc/self/exe:net/http.(*Server).Serve")->function, "net/http.(*Server).Serve");
  EXPECT_EQ(parse_event("uprobe:lib.so:operator+")->function, "operator+") << "no offset behind";
}

TEST(EventSpecs, AnArgumentOfAFunctionMayCount) {
  const auto probe = parse_event("uprobe:/a/lib.so:name+4:arg3");
  ASSERT_TRUE(probe.has_value());
  EXPECT_EQ(probe->function, "name");
  EXPECT_EQ(probe->offset, 4u);
  EXPECT_EQ(probe->argument, 3u);
  const auto event = profile_event(*probe, 99);
  EXPECT_EQ(event.name, "uprobe:/a/lib.so:name+4:arg3");
  EXPECT_EQ(event.counted, "uprobe:/a/lib.so:name+4:arg3:calls");
  EXPECT_EQ(parse_event("uprobe:lib.so:ns::arg1")->function, "ns::arg1") << "a name of C++";
  EXPECT_EQ(parse_event("uprobe:lib.so:name:args")->argument, 0u);
  for (const char* text : {"uprobe:lib.so:name:arg0", "uprobe:lib.so:name:arg7", "uretprobe:lib.so:name:arg1"})
    EXPECT_FALSE(parse_event(text).has_value()) << text;
}

TEST(EventSpecs, KernelProbesNameAPlaceInAFunction) {
  const auto probe = parse_event("kprobe:vfs_read+8");
  ASSERT_TRUE(probe.has_value());
  EXPECT_EQ(probe->kind, EventKind::kKernelProbe);
  EXPECT_EQ(probe->function, "vfs_read");
  EXPECT_EQ(probe->offset, 8u);
  EXPECT_FALSE(probe->returns);
  EXPECT_TRUE(parse_event("kretprobe:vfs_read")->returns);
}

TEST(EventSpecs, TracepointsMayHaveAFilter) {
  const auto event = parse_event("sched:sched_switch/prev_comm == \"a/b\" && prev_prio < 100/");
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->category, "sched");
  EXPECT_EQ(event->point, "sched_switch");
  EXPECT_EQ(event->filter, "prev_comm == \"a/b\" && prev_prio < 100");
  EXPECT_EQ(parse_event("sched:sched_switch")->filter, "");
}

TEST(EventSpecs, WhatIsNoneIsRefused) {
  for (const char* text : {"",
                           "nonsense",
                           "cpu@5",
                           "off-cpu@5",
                           "page-faults@",
                           "page-faults@0",
                           "page-faults@x",
                           "page-faults@-1",
                           "page-faults@99999999999999999999",
                           "uprobe:",
                           "uprobe:lib.so",
                           "uprobe:lib.so:",
                           "uprobe::name",
                           "uretprobe:lib.so:name+4",
                           "usdt:",
                           "usdt:lib.so",
                           "usdt:lib.so:name",
                           "usdt::provider:name",
                           "usdt:lib.so::name",
                           "usdt:lib.so:provider:",
                           "uprobe:lib.so:name+x",
                           ":",
                           "sched:",
                           ":name",
                           "a:b:c",
                           "sched:../x",
                           "sched:sched_switch/",
                           "sched:sched_switch//",
                           "sched:sched_switch/prev_prio < 100",
                           "kprobe:",
                           "kprobe:vfs_read+x",
                           "kretprobe:",
                           "kretprobe:vfs_read+4",
                           "../x:y"}) {
    const auto event = parse_event(text);
    EXPECT_FALSE(event.has_value()) << text;
    const std::string why = event ? std::string() : event.error();
    EXPECT_NE(why.find("Way out: "), std::string::npos) << text << ": " << why;
  }
}

TEST(EventSpecs, AreEventsOfAProfile) {
  const profile::Event cpu = profile_event(*parse_event("cpu"), 1000);
  EXPECT_EQ(cpu.period, 1'000'000u);
  EXPECT_EQ(cpu.unit, "nanoseconds");
  const profile::Event wait = profile_event(*parse_event("off-cpu"), 1000);
  EXPECT_EQ(wait.period, 0u);
  EXPECT_EQ(wait.counted, "waits");
  const profile::Event lock = profile_event(*parse_event("lock"), 1000);
  EXPECT_EQ(lock.unit, "nanoseconds");
  EXPECT_EQ(lock.counted, "contentions");
  const profile::Event fault = profile_event(*parse_event("page-faults@7"), 1000);
  EXPECT_EQ(fault.unit, "count");
  EXPECT_EQ(fault.period, 0u);
}

}  // namespace
}  // namespace windlass::profiler
