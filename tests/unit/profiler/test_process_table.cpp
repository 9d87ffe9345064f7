#include "profiler/processes/process_table.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "os/proc_file.h"
#include "profiler/processes/main_module.h"
#include "profiler/samples/code_names.h"
#include "support/ended_main_thread.h"
#include "support/jitdump_text.h"
#include "support/process_reading.h"
#include "windlass/jit/code_manager.h"

namespace windlass::profiler {
namespace {

class ProcessTableTest : public testing::Test {
 protected:
  ProcessTable table{[this](std::uint32_t, std::uint32_t parent, const os::ProcMap& map) {
                       last_parent = parent;
                       return ProcessTable::CodeLocation{
                           static_cast<std::uint32_t>(map.file.inode), map.begin - map.offset,
                           map.file.inode == 0 ? MappingKind::kGenerated : MappingKind::kFile,
                           map.file.inode == kPeFile, map.file.inode == kInterpreterFile};
                     },
                     [this](std::uint32_t tgid, std::string& text) {
                       const auto found = proc.find(tgid);
                       if (found == proc.end()) return false;
                       text = found->second;
                       return true;
                     },
                     [this](std::uint32_t, std::uint32_t, const std::vector<os::ProcMap>& maps) {
                       ++image_searches;
                       return maps.empty() ? std::vector<ProcessTable::Image>() : images;
                     }};
  std::vector<ProcessTable::Image> images;
  int image_searches = 0;
  static constexpr std::uint64_t kPeFile = 77, kInterpreterFile = 78;
  std::map<std::uint32_t, std::string> proc;
  std::uint32_t last_parent = 0;

  void map(std::uint64_t time, std::uint32_t tgid, std::uint64_t begin, std::uint64_t end, std::uint64_t inode,
           std::uint64_t offset = 0) {
    ProcessEvent event;
    event.kind = ProcessEventKind::kMap;
    event.time = time;
    event.tgid = tgid;
    event.map.begin = begin;
    event.map.end = end;
    event.map.offset = offset;
    event.map.file.inode = inode;
    table.apply(event);
  }
  void event(ProcessEventKind kind, std::uint64_t time, std::uint32_t tgid, std::uint32_t parent = 0) {
    ProcessEvent made;
    made.kind = kind;
    made.time = time;
    made.tgid = made.tid = tgid;
    made.parent_tgid = parent;
    table.apply(made);
  }
  std::uint64_t module_at(std::uint32_t tgid, std::uint64_t address) const {
    const Process* process = table.find(tgid);
    const Mapping* mapping = process == nullptr ? nullptr : process->maps->find(address);
    return mapping == nullptr ? 0 : mapping->module;
  }
};

// What an interpreter keeps is looked for where its file is mapped, and in no other process.
TEST_F(ProcessTableTest, AnInterpretersFileIsLookedUp) {
  std::vector<std::uint32_t> due;
  const auto look = [&] {
    due.clear();
    table.for_each_scan_due([&](std::uint32_t tgid) { due.push_back(tgid); });
    return due;
  };
  map(1, 1, 0x1000, 0x3000, 5);
  EXPECT_TRUE(look().empty());
  map(2, 1, 0x5000, 0x7000, kInterpreterFile);
  EXPECT_EQ(look(), std::vector<std::uint32_t>{1});
  proc[1] = "1000-3000 r-xp 00000000 08:01 5 /x\n5000-7000 r-xp 00000000 08:01 78 /y\n";
  ASSERT_TRUE(table.scan(1, 3));
  EXPECT_EQ(look(), std::vector<std::uint32_t>{1}) << "a loader may still be mapping the file's parts";
  ASSERT_TRUE(table.scan(1, 2'000'000'000));
  EXPECT_TRUE(look().empty()) << "a second later it is not";
}

// Text that a program moves to huge pages: only /proc and the bytes there tell that it is the file's.
TEST_F(ProcessTableTest, CodeBetweenTwoPartsOfAFileIsLookedUp) {
  const auto due = [&] {
    std::size_t processes = 0;
    table.for_each_scan_due([&](std::uint32_t) { ++processes; });
    return processes;
  };
  const std::string file = "1000-9000 r-xp 00000000 08:01 5 /x\n", other = "20000-21000 r-xp 00000000 00:00 0\n";
  proc[1] = file + other;
  ASSERT_TRUE(table.scan(1, 1));
  map(2, 1, 0x30000, 0x31000, 0);
  EXPECT_EQ(due(), 0u) << "not the first code in no file, and nowhere near one";
  map(3, 1, 0x8000, 0xa000, 0);
  EXPECT_EQ(due(), 0u) << "behind the file";
  map(4, 1, 0x3000, 0x5000, 0);
  EXPECT_EQ(due(), 1u);
  ASSERT_TRUE(table.scan(1, 5));
  EXPECT_EQ(due(), 0u);
}

// Wine: code in anonymous memory is looked up in /proc once a PE image is there, and only then.
TEST_F(ProcessTableTest, CodeOfImagesThatWereCopied) {
  const auto due = [&] {
    std::vector<std::uint32_t> tgids;
    table.for_each_scan_due([&](std::uint32_t tgid) { tgids.push_back(tgid); });
    return tgids;
  };
  map(1, 1, 0x140001000, 0x140005000, 0);
  EXPECT_EQ(due(), std::vector<std::uint32_t>{1}) << "the first code in no file: a code manager may have it";
  map(2, 1, 0x170001000, 0x170005000, kPeFile);
  EXPECT_EQ(due(), std::vector<std::uint32_t>{1});
  EXPECT_EQ(due(), std::vector<std::uint32_t>{1}) << "until it is scanned";
  proc[1] =
      "140000000-140001000 r--p 00000000 08:01 9 /x.exe\n140001000-140005000 r-xp 00000000 00:00 0\n"
      "150000000-150001000 r-xp 00000000 00:00 0\n";
  images = {{0x140000000, 0x140008000, 9}};
  ASSERT_TRUE(table.scan(1, 3));
  EXPECT_TRUE(due().empty());
  EXPECT_EQ(image_searches, 1);
  EXPECT_EQ(module_at(1, 0x140001000), 9u);
  const Mapping* code = table.find(1)->maps->find(0x140001234);
  ASSERT_NE(code, nullptr);
  EXPECT_EQ(code->bias, 0x140000000u);
  EXPECT_FALSE(code->generated());
  EXPECT_TRUE(table.find(1)->maps->find(0x150000000)->generated());
  map(4, 1, 0x160000000, 0x160001000, 0);
  EXPECT_EQ(due(), std::vector<std::uint32_t>{1});
  event(ProcessEventKind::kExec, 5, 1);
  EXPECT_TRUE(due().empty());
  proc[2] = "400000-401000 r-xp 00000000 08:01 9 /bin/x\n";
  ASSERT_TRUE(table.scan(2, 6));
  EXPECT_EQ(image_searches, 1) << "no code in anonymous memory: not looked for";
}

// Code mapped at fixed addresses, as Wine does. If no function can be hooked, the kernel side does not report it. So
// code that replaced other code there may itself be replaced before that is known.
TEST_F(ProcessTableTest, CodeThatIsReplacedUntoldIsPassing) {
  const auto passing = [&](std::uint32_t tgid, std::uint64_t address) {
    return table.find(tgid)->is_passing(address, address + 1);
  };
  map(1, 7, 0x1000, 0x3000, kPeFile);
  map(2, 7, 0x8000, 0x9000, 5);
  map(3, 7, 0x1000, 0x3000, kPeFile);  // the same again: its protection was changed
  EXPECT_FALSE(passing(7, 0x1000));
  map(4, 7, 0x2000, 0x4000, 6);
  EXPECT_TRUE(passing(7, 0x1000));
  EXPECT_TRUE(passing(7, 0x3fff));
  EXPECT_FALSE(passing(7, 0x4000));
  EXPECT_FALSE(passing(7, 0x8000));
  table.unmap(7, 5, 0x8000, 0x1000);  // told of: noticed when it happens again, too
  map(6, 7, 0x8000, 0x9000, 9);
  EXPECT_FALSE(passing(7, 0x8000));
  map(7, 7, 0x8000, 0x9000, 0);  // code made at run time
  EXPECT_FALSE(passing(7, 0x8000));
  event(ProcessEventKind::kFork, 8, 12, 7);
  EXPECT_TRUE(passing(12, 0x2000));
  event(ProcessEventKind::kExec, 9, 7);
  EXPECT_FALSE(passing(7, 0x2000));
  map(1, 9, 0x1000, 0x3000, 5);  // no image of Windows
  map(2, 9, 0x1000, 0x3000, 5);
  EXPECT_FALSE(passing(9, 0x1000));
  map(3, 9, 0x1000, 0x3000, 6);
  EXPECT_TRUE(passing(9, 0x1000));
  // As /proc shows it.
  map(1, 10, 0x1000, 0x3000, kPeFile);
  proc[10] = "1000-3000 r-xp 00000000 08:01 8 /b\n";
  ASSERT_TRUE(table.scan(10, 2));
  EXPECT_TRUE(passing(10, 0x1000));
  // However many there are.
  map(1, 11, 0x1000, 0x2000, kPeFile);
  for (std::uint64_t at = 1; at <= 300; ++at)
    for (const std::uint64_t inode : {5, 6}) map(at, 11, at * 0x10000, at * 0x10000 + 0x1000, inode);
  EXPECT_TRUE(passing(11, 300 * 0x10000));
  EXPECT_LE(table.find(11)->passing.size(), Process::kMaxPassing);
}

TEST_F(ProcessTableTest, ANewMappingSplitsWhatItOverlaps) {
  map(1, 1, 0x1000, 0x9000, 5, 0x100);
  map(2, 1, 0x3000, 0x4000, 6);
  EXPECT_EQ(module_at(1, 0x0fff), 0u);
  EXPECT_EQ(module_at(1, 0x2fff), 5u);
  EXPECT_EQ(module_at(1, 0x3000), 6u);
  EXPECT_EQ(module_at(1, 0x4000), 5u);
  const auto& mappings = table.find(1)->maps->mappings();
  ASSERT_EQ(mappings.size(), 3u);
  EXPECT_EQ(mappings[2].file_offset, 0x3100u);  // moved with its begin
  EXPECT_EQ(mappings[2].bias, mappings[0].bias);
  map(3, 1, 0, 0x10000, 7);
  EXPECT_EQ(table.find(1)->maps->mappings().size(), 1u);
}

TEST_F(ProcessTableTest, UnmapTakesTheMiddle) {
  map(1, 1, 0x1000, 0x4000, 5);
  table.unmap(1, 2, 0x2000, 0x1000);
  EXPECT_EQ(module_at(1, 0x1fff), 5u);
  EXPECT_EQ(module_at(1, 0x2000), 0u);
  EXPECT_EQ(module_at(1, 0x3000), 5u);
  table.unmap(1, 3, 0x3000, ~0ull);  // a length that wraps
  EXPECT_EQ(module_at(1, 0x3000), 0u);
  EXPECT_EQ(module_at(1, 0x1000), 5u);
}

TEST_F(ProcessTableTest, ForkCopiesExecClears) {
  map(1, 1, 0x1000, 0x2000, 5);
  event(ProcessEventKind::kFork, 2, 2, 1);
  map(3, 1, 0x5000, 0x6000, 6);  // the parent's own, later
  EXPECT_EQ(module_at(2, 0x1000), 5u);
  EXPECT_EQ(module_at(2, 0x5000), 0u);
  event(ProcessEventKind::kExec, 4, 2);
  EXPECT_EQ(module_at(2, 0x1000), 0u);
  map(5, 2, 0x1000, 0x2000, 9);
  EXPECT_EQ(last_parent, 1u);
  EXPECT_EQ(module_at(2, 0x1000), 9u);
  EXPECT_EQ(module_at(1, 0x1000), 5u);
}

TEST_F(ProcessTableTest, EventsBeforeAScanAreContainedInIt) {
  proc[1] = "1000-2000 r-xp 00000000 00:01 5 /a\n";
  EXPECT_TRUE(table.scan(1, 100));
  event(ProcessEventKind::kExec, 90, 1);
  map(95, 1, 0x1000, 0x2000, 8);
  table.unmap(1, 96, 0x1000, 0x1000);
  event(ProcessEventKind::kFork, 80, 1, 7);
  EXPECT_EQ(module_at(1, 0x1000), 5u);
  map(101, 1, 0x1000, 0x2000, 8);
  EXPECT_EQ(module_at(1, 0x1000), 8u);
  EXPECT_FALSE(table.scan(2, 100));
}

TEST_F(ProcessTableTest, LateForkDoesNotUndoTheChild) {
  map(1, 1, 0x1000, 0x2000, 5);
  map(10, 2, 0x1000, 0x2000, 9);
  event(ProcessEventKind::kFork, 5, 2, 1);
  EXPECT_EQ(module_at(2, 0x1000), 9u);
}

TEST_F(ProcessTableTest, TheDeadStayForAWhileAndNoLonger) {
  map(1, 1, 0x1000, 0x2000, 5);
  table.exit(1, 2);
  EXPECT_EQ(module_at(1, 0x1000), 5u);
  for (std::uint32_t tgid = 2; tgid < 20000; ++tgid) {
    event(ProcessEventKind::kFork, tgid, tgid, 1);
    table.exit(tgid, tgid);
  }
  EXPECT_EQ(table.find(1), nullptr);
  EXPECT_LE(table.size(), ProcessTable::kMaxDead + 1);
}

// What is known of a program that makes code may be large.
TEST_F(ProcessTableTest, TheDeadGoWhenOthersEndLater) {
  map(1, 1, 0x1000, 0x2000, 5);
  event(ProcessEventKind::kFork, 2, 2, 1);
  event(ProcessEventKind::kFork, 3, 3, 1);
  table.exit(1, 4);
  table.exit(2, 4 + ProcessTable::kDeadNs);
  EXPECT_NE(table.find(1), nullptr);
  table.exit(3, 5 + ProcessTable::kDeadNs);
  EXPECT_EQ(table.find(1), nullptr);
  EXPECT_NE(table.find(2), nullptr);
  EXPECT_NE(table.find(3), nullptr);
}

TEST_F(ProcessTableTest, TheDeadGoWhereNoOtherEnds) {
  map(1, 1, 0x1000, 0x2000, 5);
  table.exit(1, 4);
  table.forget_dead(4 + ProcessTable::kDeadNs);
  EXPECT_NE(table.find(1), nullptr);
  table.forget_dead(5 + ProcessTable::kDeadNs);
  EXPECT_EQ(table.find(1), nullptr);
  EXPECT_EQ(table.size(), 0U);
}

TEST_F(ProcessTableTest, ANumberUsedAgainIsNotForgottenWithItsFirstOwner) {
  map(1, 1, 0x1000, 0x2000, 5);
  event(ProcessEventKind::kFork, 2, 2, 1);
  table.exit(2, 3);
  event(ProcessEventKind::kFork, 4, 2, 1);
  for (std::uint32_t tgid = 10; tgid < 3000; ++tgid) {
    event(ProcessEventKind::kFork, tgid, tgid, 1);
    table.exit(tgid, tgid);
  }
  ASSERT_NE(table.find(2), nullptr);
  EXPECT_EQ(module_at(2, 0x1000), 5u);
}

TEST_F(ProcessTableTest, DirtyOnce) {
  map(1, 1, 0x1000, 0x2000, 5);
  map(2, 1, 0x3000, 0x4000, 5);
  int calls = 0;
  table.take_dirty([&](Process&) { ++calls; });
  table.take_dirty([&](Process&) { ++calls; });
  EXPECT_EQ(calls, 1);
  table.set_epoch(1, 77);
  table.set_epoch(1, 77);
  table.take_dirty([&](Process& process) {
    ++calls;
    EXPECT_EQ(process.epoch, 77u);
  });
  EXPECT_EQ(calls, 2);
}

TEST_F(ProcessTableTest, MappingsAreBounded) {
  for (std::uint64_t i = 0; i < ProcessTable::kMaxMappings + 10; ++i) map(i + 1, 1, i * 0x1000, i * 0x1000 + 0x800, 5);
  EXPECT_EQ(table.find(1)->maps->mappings().size(), ProcessTable::kMaxMappings);
  EXPECT_EQ(table.dropped_mappings(), 10u);
}

// The page by which perf learns of a jitdump is no code. The jitdump counts for all generated code, whichever is mapped
// first, and for a child, until exec.
TEST_F(ProcessTableTest, AJitdumpTellsOfAllGeneratedCode) {
  std::string folder = testing::TempDir() + "windlass-table-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/jit-1.dump";
  std::ofstream(path) << test::JitdumpText().header().load(1, 0x1010, 0x10, 1, "f").take();
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  map(1, 1, 0x1000, 0x2000, 0);
  map(2, 1, 0x8000, 0x9000, 5);
  ProcessEvent event;
  event.kind = ProcessEventKind::kMap;
  event.time = 3;
  event.tgid = 1;
  event.map.begin = 0x5000;
  event.map.end = 0x6000;
  event.map.executable = true;
  event.map.path = path;
  event.map.file.inode = status.st_ino;
  for (int i = 0; i < 2; ++i) table.apply(event);
  map(4, 1, 0x3000, 0x4000, 0);
  std::filesystem::remove_all(folder);
  const MapSet& maps = *table.find(1)->maps;
  ASSERT_EQ(maps.published().size(), 1u);
  ASSERT_EQ(maps.mappings().size(), 3u);
  for (const Mapping& mapping : maps.mappings()) EXPECT_EQ(mapping.published(), mapping.begin != 0x8000);
  CodeNames names;
  const std::uint32_t number = names.find(1, {maps, maps.mappings()[0], 0x1018}, 5, 5);
  ASSERT_NE(number, CodeNames::kUnknown);
  EXPECT_EQ(names.function(number).name, "f");
  EXPECT_EQ(names.find(1, {maps, maps.mappings()[1], 0x3018}, 5, 5), CodeNames::kUnknown);
  event.map.path = "/nonexistent/jit-2.dump";
  event.map.begin = 0x15000;
  event.map.end = 0x16000;
  table.apply(event);
  EXPECT_EQ(table.find(1)->maps->published().size(), 1u) << "one that is gone already";
}

TEST(ProcMapsOfAProcess, WhoseMainThreadHasEnded) {
  // qemu-user is the program of each process but the one that asks.
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  const test::EndedMainThread child(+[](void*) -> void* {
    for (;;) ::pause();
  });
  ASSERT_TRUE(child.ready());
  const auto tgid = static_cast<std::uint32_t>(child.pid());
  std::string text;
  ASSERT_TRUE(ProcessTable::read_proc_maps(tgid, text));
  const auto maps = os::parse_proc_maps(text);
  const std::string program = program_of(tgid);
  EXPECT_EQ(program, program_of(static_cast<std::uint32_t>(::getpid())));
  EXPECT_TRUE(std::ranges::any_of(maps, [&](const auto& map) { return map.executable && map.path == program; }));
}

// A code manager's functions are managed code, whichever part of its range is mapped when. The code before and behind
// the range is unknown.
TEST(MapSetOfTables, CodeManagersHaveTheirCode) {
  constexpr std::uint64_t kCode = 0x10'0000'0000, kSize = 0x10000;
  auto manager = CodeManager::create(kCode + 0x4000, kCode + 0x8000);
  ASSERT_TRUE(manager);
  ASSERT_TRUE(manager->add({{kCode + 0x5000, 0x100, "f", 1, {}}}));
  const std::string maps = os::read_proc_file("/proc/self/maps");
  manager::PublishedCodes tables;
  for (const os::ProcMap& map : os::parse_proc_maps(maps)) {
    if (!manager::shows_published(map)) continue;
    auto table = manager::open_published(::getpid(), 0, map);
    ASSERT_TRUE(table) << table.error().text();
    if ((*table)->begin() == kCode + 0x4000) manager::add(tables, *table);
  }
  ASSERT_EQ(tables.size(), 1u);
  const auto expect_cut = [&](const MapSet& set) {
    const auto& mappings = set.mappings();
    ASSERT_EQ(mappings.size(), 3u);
    EXPECT_TRUE(mappings[0].generated() && !mappings[0].published());
    EXPECT_TRUE(mappings[1].generated());
    EXPECT_EQ(mappings[1].begin, kCode + 0x4000);
    EXPECT_EQ(mappings[1].end, kCode + 0x8000);
    EXPECT_EQ(mappings[1].publisher, tables[0]->address());
    EXPECT_TRUE(mappings[2].generated() && !mappings[2].published());
    EXPECT_EQ(mappings[2].end, kCode + kSize);
    ASSERT_NE(set.published_of(mappings[1]), nullptr);
    EXPECT_EQ(*set.published_of(mappings[1]), tables[0]);
    EXPECT_EQ(set.published_of(mappings[0]), nullptr);
  };
  const Mapping code{kCode, kCode + kSize, 0, 0, 0, MappingKind::kGenerated};
  MapSet before;
  before.set_published(tables);
  before.add(code);
  expect_cut(before);
  MapSet after;
  after.add(code);
  after.set_published(tables);
  expect_cut(after);
  CodeNames names;
  const std::uint32_t number = names.find(1, {after, after.mappings()[1], kCode + 0x5080}, ~std::uint64_t{0} - 1, 1);
  ASSERT_NE(number, CodeNames::kUnknown);
  EXPECT_EQ(names.function(number).name, "f");
  EXPECT_EQ(names.function(number).begin, kCode + 0x5000);
  EXPECT_EQ(names.find(1, {after, after.mappings()[1], kCode + 0x5100}, 1, 1), CodeNames::kUnknown);
  EXPECT_EQ(names.find(1, {after, after.mappings()[0], kCode + 0x5080}, 1, 1), CodeNames::kUnknown);
  after.set_published({});
  for (const Mapping& mapping : after.mappings()) {
    EXPECT_TRUE(mapping.generated() && !mapping.published());
    EXPECT_EQ(mapping.bias, 0u);
  }
}

}  // namespace
}  // namespace windlass::profiler
