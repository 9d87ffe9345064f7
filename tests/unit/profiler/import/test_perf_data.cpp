// Recordings of perf, made up here: of call chains, of several events, compressed, as streams; and one of this
// program's own stack, which is unwound.
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/utsname.h>
#include <ucontext.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "os/proc_maps.h"
#include "profiler/import/import.h"
#include "profiler/import/perf_data.h"
#include "profiler/import/perf_processes.h"
#include "windlass_ends.h"

namespace windlass::importer {
namespace {

using Bytes = std::string;

template <typename... Values>
Bytes packed(Values... values) {
  Bytes bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}
Bytes record(std::uint32_t type, std::uint16_t misc, const Bytes& content) {
  return packed(type, misc, static_cast<std::uint16_t>(8 + content.size())) + content;
}
Bytes padded(std::string_view text) {
  Bytes bytes(text);
  bytes.resize((bytes.size() + 8) & ~std::size_t{7});
  return bytes;
}

constexpr std::uint64_t kTypes = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
                                 PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN;
perf_event_attr attr_of(std::uint64_t config, std::uint64_t types = kTypes) {
  perf_event_attr attr{};
  attr.type = PERF_TYPE_SOFTWARE;
  attr.size = sizeof attr;
  attr.config = config;
  attr.sample_type = types;
  attr.sample_id_all = 1;
  return attr;
}

// Of a record that is no sample: TID, TIME, IDENTIFIER.
Bytes trailer(std::uint32_t pid, std::uint64_t time) { return packed(pid, pid, time, std::uint64_t{0}); }
Bytes mmap2(std::uint32_t pid, std::uint64_t begin, std::uint64_t size, std::uint64_t offset, std::string_view path,
            std::uint64_t inode = 0, std::uint64_t time = 0) {
  return record(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER,
                packed(pid, pid, begin, size, offset, 0u, 0u, inode, std::uint64_t{0}, 5u, 2u) + padded(path) +
                    trailer(pid, time));
}
Bytes comm(std::uint32_t pid, std::string_view name, std::uint64_t time = 0, bool exec = false) {
  return record(PERF_RECORD_COMM, exec ? PERF_RECORD_MISC_COMM_EXEC : 0,
                packed(pid, pid) + padded(name) + trailer(pid, time));
}
Bytes sample(std::uint32_t pid, std::uint64_t time, std::uint64_t id, std::vector<std::uint64_t> chain,
             std::uint64_t period = 10, std::uint16_t misc = PERF_RECORD_MISC_USER) {
  Bytes content = packed(id, chain.empty() ? std::uint64_t{0} : chain.back(), pid, pid, time, period,
                         static_cast<std::uint64_t>(chain.size()));
  for (const std::uint64_t address : chain) content += packed(address);
  return record(PERF_RECORD_SAMPLE, misc, content);
}
constexpr auto kUser = static_cast<std::uint64_t>(PERF_CONTEXT_USER),
               kKernel = static_cast<std::uint64_t>(PERF_CONTEXT_KERNEL);

struct MadeEvent {
  perf_event_attr attr;
  std::uint64_t id;
};
// A file that was seeked. Features: the machine.
Bytes file_of(const std::vector<MadeEvent>& events, const Bytes& data) {
  const std::uint64_t header = 104, ids = header, attrs = ids + events.size() * 8;
  const std::uint64_t attr_size = sizeof(perf_event_attr) + 16;
  Bytes id_bytes, attr_bytes;
  for (std::size_t i = 0; i < events.size(); ++i) {
    id_bytes += packed(events[i].id);
    attr_bytes += packed(events[i].attr, ids + i * 8, std::uint64_t{8});
  }
  const std::uint64_t data_at = attrs + attr_bytes.size();
#if defined(__aarch64__)
  const Bytes machine = packed(16u) + Bytes("aarch64\0\0\0\0\0\0\0\0\0", 16);
#else
  const Bytes machine = packed(16u) + Bytes("x86_64\0\0\0\0\0\0\0\0\0\0", 16);
#endif
  Bytes file = "PERFILE2" + packed(header, attr_size, attrs, std::uint64_t{attr_bytes.size()}, data_at,
                                   std::uint64_t{data.size()}, std::uint64_t{0}, std::uint64_t{0},
                                   std::uint64_t{1} << 6, std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{0});
  file += id_bytes + attr_bytes + data;
  const std::uint64_t feature_at = file.size() + 16;
  return file + packed(feature_at, std::uint64_t{machine.size()}) + machine;
}
Bytes stream_of(const std::vector<MadeEvent>& events, const Bytes& data) {
  Bytes file = "PERFILE2" + packed(std::uint64_t{16});
  for (const MadeEvent& event : events) file += record(64, 0, packed(event.attr, event.id));
  return file + data;
}
Expected<PerfProfile> read(const Bytes& bytes, const Limits& limits = {},
                           const PerfFilePlaces& places = {.open = false}) {
  return read_perf_data(ByteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()), limits, places);
}

// "app: /bin/x+0x12 [kernel]+0x34", innermost first.
std::vector<std::string> stacks_of(const profile::Profile& profile) {
  std::vector<std::string> stacks;
  for (const auto& of : profile.samples) {
    std::ostringstream text;
    text << std::hex << (of.comm == profile::kNone ? "?" : profile.strings[of.comm]) << ':';
    for (const auto number : of.locations) {
      const auto& location = profile.locations[number];
      text << ' ' << (location.module == profile::kNone ? "?" : profile.modules[location.module].path) << '+'
           << location.address;
    }
    text << std::dec << " x" << of.count;
    stacks.push_back(text.str());
  }
  std::ranges::sort(stacks);
  return stacks;
}
using Stacks = std::vector<std::string>;

const std::vector<MadeEvent> kClock = {{attr_of(PERF_COUNT_SW_CPU_CLOCK), 7}};
const Bytes kRecords =
    comm(5, "app") + mmap2(5, 0x10000, 0x1000, 0x2000, "/bin/x") + sample(5, 3, 7, {kUser, 0x10010, 0x10021}) +
    sample(5, 1, 7, {kUser, 0x10010, 0x10021}) +
    sample(5, 2, 7, {kKernel, 0xffffffff81000010, 0xffffffff81000020, kUser, 0x10010}, 10, PERF_RECORD_MISC_KERNEL);
const Stacks kExpected = {"app: /bin/x+2010 /bin/x+2020 x2",
                          "app: [kernel]+ffffffff81000010 [kernel]+ffffffff8100001f /bin/x+2010 x1"};

TEST(PerfData, CallChainsBecomeStacks) {
  const auto perf = read(file_of(kClock, kRecords));
  ASSERT_TRUE(perf) << perf.error().text();
  EXPECT_EQ(stacks_of(perf->profile), kExpected);
  EXPECT_EQ(perf->profile.events[0].name, "cpu-clock");
  EXPECT_EQ(weight_of(perf->profile, perf->profile.samples[0], {0, false}), 20u);
  EXPECT_EQ(perf->profile.samples[0].end, WL_END_BAD_FRAME_POINTER);  // nothing proves the end
  EXPECT_EQ(perf->profile.duration_ns, 2u);
  EXPECT_EQ(perf->profile.events[0].period, 10u);
  EXPECT_EQ(perf->profile.times, (std::vector<profile::SampleTime>{{0, 0}, {2, 0}, {1, 0}}));
  EXPECT_EQ(perf->profile.samples[1].first_time, 2u);
  ASSERT_EQ(perf->notes.size(), 2u);
  EXPECT_EQ(perf->notes[0], "/bin/x: not here, or not the file that was mapped");
}

TEST(PerfData, StreamsAndCompressedRecordsAreTheSame) {
  const auto stream = read(stream_of(kClock, kRecords));
  ASSERT_TRUE(stream) << stream.error().text();
  EXPECT_EQ(stacks_of(stream->profile), kExpected);
  // One zstd stream in two records, the second of which begins within a record.
  Bytes packed_records(ZSTD_compressBound(kRecords.size()), '\0');
  packed_records.resize(
      ZSTD_compress(packed_records.data(), packed_records.size(), kRecords.data(), kRecords.size(), 1));
  const std::size_t half = packed_records.size() / 2;
  const Bytes data = record(81, 0, packed_records.substr(0, half)) + record(81, 0, packed_records.substr(half));
  const auto compressed = read(file_of(kClock, data));
  ASSERT_TRUE(compressed) << compressed.error().text();
  EXPECT_EQ(stacks_of(compressed->profile), kExpected);
  const auto limited = read(file_of(kClock, data), {.max_record_bytes = 64});
  ASSERT_FALSE(limited);
  EXPECT_EQ(limited.error().code, ErrorCode::kLimit);
}

TEST(PerfData, SeveralEventsStayApart) {
  const std::vector<MadeEvent> events = {{attr_of(PERF_COUNT_SW_CPU_CLOCK), 7},
                                         {attr_of(PERF_COUNT_SW_PAGE_FAULTS), 8}};
  const auto perf =
      read(file_of(events, comm(5, "app") + sample(5, 1, 8, {kUser, 0x10}, 3) + sample(5, 2, 7, {kUser, 0x10})));
  ASSERT_TRUE(perf) << perf.error().text();
  ASSERT_EQ(perf->profile.events.size(), 2u);
  EXPECT_EQ(perf->profile.events[0].unit, "nanoseconds") << "in the order of the recording's attributes";
  EXPECT_EQ(perf->profile.events[1].unit, "count");
  EXPECT_EQ(perf->profile.samples[0].count, 3u);
  EXPECT_EQ(perf->profile.samples[0].event, 1u);
  EXPECT_EQ(perf->profile.samples[1].event, 0u);
}

// `perf record -e '{cpu-clock,page-faults}:S'`.
TEST(PerfData, MembersOfAGroupHaveWhatTheyCountedSinceTheLastSample) {
  perf_event_attr clock =
      attr_of(PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
                                           PERF_SAMPLE_PERIOD | PERF_SAMPLE_READ);
  clock.read_format = PERF_FORMAT_ID | PERF_FORMAT_GROUP | PERF_FORMAT_LOST;
  perf_event_attr faults = clock;
  faults.config = PERF_COUNT_SW_PAGE_FAULTS;
  const auto with_counts = [](std::uint64_t time, std::uint64_t counted) {
    constexpr std::uint64_t kLost = 0;
    return record(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
                  packed(std::uint64_t{7}, std::uint64_t{0x10}, 5u, 5u, time, std::uint64_t{10}, std::uint64_t{2},
                         time * 10, std::uint64_t{7}, kLost, counted, std::uint64_t{8}, kLost));
  };
  const auto perf = read(file_of({{clock, 7}, {faults, 8}},
                                 with_counts(1, 4) + with_counts(2, 4) + with_counts(3, 9) + with_counts(4, 2)));
  ASSERT_TRUE(perf) << perf.error().text();
  ASSERT_EQ(perf->profile.events.size(), 2u);
  EXPECT_EQ(perf->profile.events[1].name, "event 1:0x2");
  ASSERT_EQ(perf->profile.samples.size(), 2u);
  EXPECT_EQ(perf->profile.samples[0].count, 4u);
  EXPECT_EQ(perf->profile.samples[1].event, 1u);
  EXPECT_EQ(perf->profile.samples[1].count, 9u) << "4, then 5 more";
}

// What stands behind the counts is found, however many words these have (enum perf_event_read_format).
TEST(PerfData, CountsHaveAsManyWordsAsTheirFormatSays) {
  constexpr std::uint64_t kTimes = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  for (std::uint64_t format = 0; format < 0x20; ++format) {
    perf_event_attr clock =
        attr_of(PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
                                             PERF_SAMPLE_PERIOD | PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN);
    clock.read_format = format;
    const auto times = static_cast<std::size_t>(std::popcount(format & kTimes));
    const auto of_each = static_cast<std::size_t>(1 + std::popcount(format & (PERF_FORMAT_ID | PERF_FORMAT_LOST)));
    Bytes counts;
    const auto words = [&](std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) counts += packed(std::uint64_t{9});
    };
    if ((format & PERF_FORMAT_GROUP) != 0) {
      counts += packed(std::uint64_t{3});  // members
      words(times + 3 * of_each);
    } else {
      words(times + of_each);
    }
    const Bytes chain = packed(std::uint64_t{3}, static_cast<std::uint64_t>(PERF_CONTEXT_USER), std::uint64_t{0x10},
                               std::uint64_t{0x4000});
    const auto perf =
        read(file_of({{clock, 7}},
                     record(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
                            packed(std::uint64_t{7}, std::uint64_t{0x10}, 5u, 5u, std::uint64_t{1}, std::uint64_t{10}) +
                                counts + chain)));
    ASSERT_TRUE(perf) << format << ": " << perf.error().text();
    ASSERT_EQ(perf->profile.samples.size(), 1u) << format;
    ASSERT_EQ(perf->profile.samples[0].locations.size(), 2u) << format;
    EXPECT_EQ(perf->profile.locations[perf->profile.samples[0].locations[1]].address, 0x4000u - 1) << format;
  }
}

// Each fork could copy all mappings. The copies have a limit, and forks that map nothing need none.
TEST(PerfData, ForksShareMappingsUntilTheyChange) {
  constexpr std::uint32_t kMappings = 1 << 12, kForks = 1100;  // more than PerfProcesses::kMostCopies together
  PerfProcesses processes;
  const auto apply = [&](const Bytes& bytes) {
    return processes.apply(ByteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size())).has_value();
  };
  const auto fork = [&](std::uint32_t child) {
    return apply(record(PERF_RECORD_FORK, 0, packed(child, 5u, child, 5u, std::uint64_t{2}) + trailer(5, 2)));
  };
  for (std::uint64_t i = 0; i < kMappings; ++i) ASSERT_TRUE(apply(mmap2(5, 0x10000 + i * 0x2000, 0x1000, 0, "/bin/x")));
  for (std::uint32_t i = 0; i < kForks; ++i) ASSERT_TRUE(fork(100 + i));
  EXPECT_EQ(processes.find(100)->mappings, processes.find(5)->mappings);
  EXPECT_NE(PerfProcesses::mapping_at(*processes.find(100 + kForks - 1), 0x10010), nullptr);
  ASSERT_TRUE(apply(mmap2(100, 0x1000, 0x1000, 0, "/bin/y")));
  EXPECT_NE(PerfProcesses::mapping_at(*processes.find(100), 0x10010), nullptr);
  EXPECT_NE(PerfProcesses::mapping_at(*processes.find(100), 0x1010), nullptr);
  EXPECT_EQ(PerfProcesses::mapping_at(*processes.find(5), 0x1010), nullptr);
  EXPECT_EQ(PerfProcesses::mapping_at(*processes.find(101), 0x1010), nullptr);
  for (std::uint32_t i = 1; i < kForks; ++i) ASSERT_TRUE(apply(mmap2(100 + i, 0x1000, 0x1000, 0, "/bin/y")));
  const auto& last = *processes.find(100 + kForks - 1);
  EXPECT_EQ(last.mappings->size(), 1u) << "over the limit";
  EXPECT_NE(PerfProcesses::mapping_at(last, 0x1010), nullptr);
}

TEST(PerfData, AMappingHoldsItsFirstByteAndNotItsEnd) {
  PerfProcesses::Process process;
  process.mappings->insert({{0x1000, {.begin = 0x1000, .end = 0x2000}}, {0x4000, {.begin = 0x4000, .end = 0x5000}}});
  const auto begin_at = [&](std::uint64_t address) -> std::uint64_t {
    const PerfMapping* mapping = PerfProcesses::mapping_at(process, address);
    return mapping != nullptr ? mapping->begin : 0;
  };
  EXPECT_EQ(begin_at(0xfff), 0u);
  EXPECT_EQ(begin_at(0x1000), 0x1000u);
  EXPECT_EQ(begin_at(0x1fff), 0x1000u);
  EXPECT_EQ(begin_at(0x2000), 0u);
  EXPECT_EQ(begin_at(0x3fff), 0u);
  EXPECT_EQ(begin_at(0x4000), 0x4000u);
  EXPECT_EQ(begin_at(0x5000), 0u);
}

// perf writes the rings' account and, at the end, the events'. Both are of the same samples.
TEST(PerfData, LostSamplesCountOnce) {
  constexpr std::uint16_t kByFilter = 1 << 15;  // PERF_RECORD_MISC_LOST_SAMPLES_BPF
  const auto lost = [](std::uint64_t number) { return record(PERF_RECORD_LOST, 0, packed(std::uint64_t{7}, number)); };
  const auto lost_samples = [](std::uint64_t number, std::uint16_t misc) {
    return record(PERF_RECORD_LOST_SAMPLES, misc, packed(number));
  };
  const auto read_lost = [](const Bytes& records) {
    const auto perf = read(file_of(kClock, records));
    EXPECT_TRUE(perf);
    return perf ? perf->profile.lost : 0;
  };
  EXPECT_EQ(read_lost(lost(3) + lost(4) + lost_samples(7, 0) + lost_samples(5, kByFilter)), 7u);
  EXPECT_EQ(read_lost(lost(3) + lost(4)), 7u);
  EXPECT_EQ(read_lost(lost_samples(3, 0) + lost_samples(4, 0)), 7u);
}

TEST(PerfData, MappingsAreThoseOfTheTime) {
  const Bytes fork = record(PERF_RECORD_FORK, 0, packed(6u, 5u, 6u, 5u, std::uint64_t{2}) + trailer(5, 2));
  const auto perf = read(file_of(
      kClock, comm(5, "app") + mmap2(5, 0x10000, 0x3000, 0, "/bin/x") + fork +
                  mmap2(5, 0x11000, 0x1000, 0x8000, "/bin/y", 0, 3) + sample(5, 4, 7, {kUser, 0x11010, 0x12011}) +
                  sample(6, 4, 7, {kUser, 0x11010}) + comm(6, "new", 5, true) + sample(6, 6, 7, {kUser, 0x11010})));
  ASSERT_TRUE(perf) << perf.error().text();
  EXPECT_EQ(stacks_of(perf->profile),
            (Stacks{"app: /bin/x+1010 x1", "app: /bin/y+8010 /bin/x+2010 x1", "new: ?+11010 x1"}));
}

TEST(PerfData, TheProcessorsCallStackComesBeforeTheChain) {
  perf_event_attr attr = attr_of(PERF_COUNT_SW_CPU_CLOCK,
                                 PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_BRANCH_STACK);
  attr.branch_sample_type = PERF_SAMPLE_BRANCH_USER | PERF_SAMPLE_BRANCH_CALL_STACK;
  const Bytes content = packed(std::uint64_t{0x10010}, 5u, 5u, std::uint64_t{2}, kUser, std::uint64_t{0x10010},
                               std::uint64_t{2}, std::uint64_t{0x10100}, std::uint64_t{0x10000}, std::uint64_t{0},
                               std::uint64_t{0x10200}, std::uint64_t{0x100f0}, std::uint64_t{0});
  const Bytes map = record(PERF_RECORD_MMAP, PERF_RECORD_MISC_USER,
                           packed(5u, 5u, std::uint64_t{0x10000}, std::uint64_t{0x1000}, std::uint64_t{0}) +
                               padded("/bin/x") + packed(5u, 5u));
  const auto perf = read(file_of({{attr, 7}}, map + record(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, content)));
  ASSERT_TRUE(perf) << perf.error().text();
  EXPECT_EQ(stacks_of(perf->profile), (Stacks{"?: /bin/x+10 /bin/x+100 /bin/x+200 x1"}));
}

TEST(PerfData, DamagedFilesAreErrorsThatNameThePlace) {
  const Bytes good = file_of(kClock, kRecords);
  for (std::size_t size = 0; size < good.size(); ++size) {
    const auto cut = read(good.substr(0, size));
    ASSERT_FALSE(cut) << size;
    EXPECT_STRNE(cut.error().what, "");
  }
  for (std::size_t at = 0; at < good.size(); ++at)
    for (const char value : {'\0', '\x7f', '\xff'}) {
      Bytes bad = good;
      bad[at] = value;
      (void)read(bad, {.max_items = 1 << 12});
    }
  Bytes big_endian = good;
  std::reverse(big_endian.begin(), big_endian.begin() + 8);
  const auto other = read(big_endian);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kUnsupported);
}

#if defined(__x86_64__)
// This thread's registers, and the stack above, as `perf record --call-graph dwarf` has them.
struct Here {
  ucontext_t context;
  Bytes stack;
};
[[gnu::noinline, gnu::no_sanitize("address")]] void take(Here& to) {
  getcontext(&to.context);
  const auto* sp = reinterpret_cast<const volatile char*>(to.context.uc_mcontext.gregs[REG_RSP]);
  to.stack.resize(4096);
  char* const stack = to.stack.data();
  for (std::size_t i = 0; i < 4096; ++i) stack[i] = sp[i];
}
__attribute__((noinline)) void import_outer(Here& to, int depth) {
  if (depth != 0)
    import_outer(to, depth - 1);
  else
    take(to);
  asm volatile("" ::: "memory");
}

perf_event_attr event_with_stacks() {
  perf_event_attr attr =
      attr_of(PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN |
                                           PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER);
  attr.sample_regs_user = 0xff0fff;
  attr.exclude_callchain_user = 1;
  return attr;
}

// The files of this process, and a sample in import_outer(). `kernel`: the kernel's part of the call chain.
Bytes records_of_own_stack(const std::vector<std::uint64_t>& kernel = {}) {
  Here here;
  import_outer(here, 3);
  const auto& gregs = here.context.uc_mcontext.gregs;
  const int order[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_RIP};
  Bytes content =
      packed(static_cast<std::uint64_t>(gregs[REG_RIP]), 5u, 5u, std::uint64_t{9}, std::uint64_t{kernel.size()});
  for (const std::uint64_t address : kernel) content += packed(address);
  content += packed(std::uint64_t{2});
  for (const int reg : order) content += packed(static_cast<std::uint64_t>(gregs[reg]));
  content += packed(std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{0});  // flags, cs, ss
  for (int reg = REG_R8; reg <= REG_R15; ++reg) content += packed(static_cast<std::uint64_t>(gregs[reg]));
  content += packed(std::uint64_t{here.stack.size()}) + here.stack + packed(std::uint64_t{here.stack.size()});
  Bytes data;
  std::ifstream file("/proc/self/maps");
  std::stringstream maps;
  maps << file.rdbuf();
  for (const os::ProcMap& map : os::parse_proc_maps(maps.str()))
    if (map.executable && map.path.starts_with('/'))
      data += mmap2(5, map.begin, map.end - map.begin, map.offset, map.path, map.file.inode);
  return data + record(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, content);
}

TEST(PerfData, CopiesOfStacksAreUnwound) {
  const auto perf = read(file_of({{event_with_stacks(), 7}}, records_of_own_stack()), {}, {});
  ASSERT_TRUE(perf) << perf.error().text();
  ASSERT_EQ(perf->profile.samples.size(), 1u);
  const auto& locations = perf->profile.samples[0].locations;
  ASSERT_GE(locations.size(), 6u);  // a sanitizer makes the frame of the test larger than the copy
  // take(), four of import_outer() - three with one return address -, this test.
  EXPECT_EQ(locations[2], locations[3]);
  EXPECT_EQ(locations[3], locations[4]);
  EXPECT_NE(locations[1], locations[2]);
  EXPECT_NE(locations[4], locations[5]);
  const auto& module = perf->profile.modules[perf->profile.locations[locations[0]].module];
  EXPECT_NE(module.path.find("test_import"), std::string::npos);
  EXPECT_EQ(module.open_path, module.path);
}

// The kernel was replacing the registers, on the way to a signal handler: some are of the code before.
TEST(PerfData, HalfWrittenRegistersLeadToNoCaller) {
  const std::string kallsyms = testing::TempDir() + "windlass-perf-kallsyms-" + std::to_string(::getpid());
  std::ofstream(kallsyms) << "ffffffff81000000 T _text\nffffffff81001000 T x64_setup_rt_frame\n"
                             "ffffffff81002000 T other\nffffffff81003000 T last\n";
  utsname system{};
  ::uname(&system);
  const Bytes release = padded(system.release);
  const Bytes same_kernel =
                  record(80, 0, packed(std::uint64_t{4}, static_cast<std::uint32_t>(release.size())) + release),
              text = record(PERF_RECORD_MMAP, PERF_RECORD_MISC_KERNEL,
                            packed(~0u, 0u, std::uint64_t{0xffffffff81000000}, std::uint64_t{0x10000},
                                   std::uint64_t{0xffffffff81000000}) +
                                padded("[kernel.kallsyms]_text") + trailer(0, 0));
  const auto sample_in = [&](std::uint64_t kernel, const Bytes& before) {
    const auto perf =
        read(stream_of({{event_with_stacks(), 7}}, before + text + records_of_own_stack({kKernel, kernel})), {},
             {.kallsyms = kallsyms});
    EXPECT_TRUE(perf);
    return perf && perf->profile.samples.size() == 1 ? perf->profile.samples[0] : profile::Sample();
  };
  const profile::Sample written = sample_in(0xffffffff81001040, same_kernel);
  EXPECT_EQ(written.end, WL_END_REGISTER_LOST);
  EXPECT_EQ(written.locations.size(), 2u) << "the kernel's function and the innermost one";
  EXPECT_GE(sample_in(0xffffffff81002040, same_kernel).locations.size(), 7u) << "elsewhere in the kernel";
  EXPECT_GE(sample_in(0xffffffff81001040, {}).locations.size(), 7u) << "of another kernel nothing is known";
  ::unlink(kallsyms.c_str());
}
#endif

}  // namespace
}  // namespace windlass::importer
