// What stands in perf's map and in a jitdump, of a parent and of its child.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/dwarf/cfi.h"
#include "support/process_reading.h"
#include "windlass/backtrace.h"
#include "windlass/jit/registration.h"

namespace windlass {
namespace {

// Code that nobody runs.
const unsigned char* make_code() {
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  for (unsigned i = 0; i < 256; ++i) static_cast<unsigned char*>(page)[i] = static_cast<unsigned char>(i + 1);
  ::mprotect(page, 4096, PROT_READ | PROT_EXEC);
  return static_cast<const unsigned char*>(page);
}
const unsigned char* const code = make_code();

class RegisteredFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "windlass-registered-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    ASSERT_NE(code, nullptr);
    folder_ = folder;
    prologue_.architecture = kOwnArchitecture;
    prologue_.code_size = 64;
    prologue_.ops = {{4, prologue::Allocate{32}}};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] GeneratedFunction function(unsigned place, std::string_view name) const {
    return {.address = reinterpret_cast<std::uint64_t>(code) + place * 64,
            .size = 64,
            .name = name,
            .prologue = &prologue_};
  }
  [[nodiscard]] std::unique_ptr<Registrar> open(Registry registry) const {
    auto registrar = open_registrar(registry, {.folder = folder_});
    EXPECT_TRUE(registrar) << registrar.error().text();
    return std::move(*registrar);
  }

  std::string folder_;
  Prologue prologue_;
};

TEST_F(RegisteredFiles, PerfMapHasALineAFunctionAndAChildItsOwn) {
  const auto registrar = open(Registry::kPerfMap);
  const auto id = registrar->add(std::vector{function(1, "two\nlines"), function(0, "one")});
  ASSERT_TRUE(id);
  const std::uint64_t at = reinterpret_cast<std::uint64_t>(code);
  const std::string lines = fmt::format("{:x} 40 one\n{:x} 40 two lines\n", at, at + 64);
  const std::string parent = fmt::format("perf-{}.map", ::getpid());
  EXPECT_EQ(text(parent), lines);
  const auto other = registrar->add(std::vector{function(2, "gone")});
  ASSERT_TRUE(other && registrar->remove(*other));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(registrar->add(std::vector{function(3, "child's")}) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text(fmt::format("perf-{}.map", child)), lines + fmt::format("{:x} 40 child's\n", at + 192));
  EXPECT_EQ(text(parent), lines + fmt::format("{:x} 40 gone\n", at + 128)) << "the child writes to its own";
}

TEST_F(RegisteredFiles, AFolderThatIsNotThere) {
  for (const Registry registry : {Registry::kPerfMap, Registry::kJitdump}) {
    const auto registrar = open_registrar(registry, {.folder = "/nonexistent"});
    ASSERT_FALSE(registrar);
    EXPECT_EQ(registrar.error().code, ErrorCode::kSystem);
    EXPECT_EQ(registrar.error().detail, static_cast<std::uint64_t>(ENOENT));
  }
}

// ---- jitdump --------------------------------------------------------------------------------------------------------

template <typename T>
T at(const std::string& text, std::size_t offset) {
  T value{};
  EXPECT_LE(offset + sizeof value, text.size());
  std::memcpy(&value, text.data() + offset, sizeof value);
  return value;
}

struct Record {
  std::uint32_t kind;
  std::string body;
};
std::vector<Record> records_of(const std::string& dump) {
  std::vector<Record> records;
  std::uint64_t time = 0;
  for (std::size_t i = 40; i < dump.size();) {
    const auto size = at<std::uint32_t>(dump, i + 4);
    EXPECT_GE(size, 16u);
    EXPECT_LE(i + size, dump.size());
    EXPECT_GE(at<std::uint64_t>(dump, i + 8), time) << "in the order of time";
    time = at<std::uint64_t>(dump, i + 8);
    records.push_back({at<std::uint32_t>(dump, i), dump.substr(i + 16, size - 16)});
    i += size;
  }
  return records;
}

TEST_F(RegisteredFiles, JitdumpHasLinesAndUnwindInformationBeforeTheCode) {
  const std::vector<GeneratedLine> lines = {{.offset = 0, .file = "a.js", .line = 7},
                                            {.offset = 16, .file = "b.js", .line = 9}};
  {
    const auto registrar = open(Registry::kJitdump);
    GeneratedFunction one = function(0, "one");
    one.lines = lines;
    ASSERT_TRUE(registrar->add(std::vector{function(1, "two"), one}));
  }
  const std::string dump = text(fmt::format("jit-{}.dump", ::getpid()));
  EXPECT_EQ(at<std::uint32_t>(dump, 0), 0x4a695444u);
  EXPECT_EQ(at<std::uint32_t>(dump, 20), static_cast<std::uint32_t>(::getpid()));
  const auto records = records_of(dump);
  std::vector<std::uint32_t> kinds;
  for (const Record& record : records) kinds.push_back(record.kind);
  ASSERT_EQ(kinds, (std::vector<std::uint32_t>{2, 4, 0, 4, 0, 3}));

  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(code);
  EXPECT_EQ(at<std::uint64_t>(records[0].body, 0), begin);
  EXPECT_EQ(at<std::uint64_t>(records[0].body, 8), 2u);
  EXPECT_EQ(at<std::uint64_t>(records[0].body, 16), begin);
  EXPECT_EQ(at<std::uint32_t>(records[0].body, 24), 7u);
  EXPECT_STREQ(records[0].body.c_str() + 32, "a.js");
  EXPECT_EQ(at<std::uint64_t>(records[0].body, 37), begin + 16);

  EXPECT_EQ(at<std::uint64_t>(records[2].body, 8), begin);
  EXPECT_EQ(at<std::uint64_t>(records[2].body, 24), 64u);
  EXPECT_STREQ(records[2].body.c_str() + 40, "one");
  EXPECT_EQ(std::memcmp(records[2].body.data() + 44, code, 64), 0);

  // A longer mapping would hide the code that is next.
  EXPECT_EQ(at<std::uint64_t>(records[1].body, 16), 0u);
  EXPECT_EQ(at<std::uint64_t>(records[3].body, 16), at<std::uint64_t>(records[3].body, 0));

  // Laid out as perf inject will: the code, at the next multiple of 8 the frames, and behind them their table.
  const std::string& unwinding = records[1].body;
  const auto total = at<std::uint64_t>(unwinding, 0), table = at<std::uint64_t>(unwinding, 8);
  ASSERT_EQ(unwinding.size(), 24 + total);
  constexpr std::uint64_t kCode = 0x5000;
  const ByteView frames(reinterpret_cast<const std::byte*>(unwinding.data()) + 24, total - table);
  dwarf::CfiSection section{.name = ".eh_frame", .bytes = frames, .address = kCode + 64};
  const auto report = [](const Error& error) { ADD_FAILURE() << error.text(); };
  dwarf::CfiReader reader(section, report);
  dwarf::Fde fde;
  ASSERT_TRUE(reader.next_fde(fde));
  EXPECT_EQ(fde.begin, kCode);
  EXPECT_EQ(fde.end, kCode + 64);
  EXPECT_FALSE(reader.next_fde(fde));
}

// By an executable mapping of it perf learns of the file.
TEST_F(RegisteredFiles, JitdumpIsMappedAsCode) {
  const auto registrar = open(Registry::kJitdump);
  ASSERT_TRUE(registrar->add(std::vector{function(0, "one")}));
  std::ifstream maps("/proc/self/maps");
  std::vector<std::string> found;
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(fmt::format("{}/jit-{}.dump", folder_, ::getpid()))) found.push_back(line);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].find(" r-xp "), std::string::npos) << found[0];
}

// What is gone from where, and then all code as it is now: by the first alone perf has no unwinding data.
TEST_F(RegisteredFiles, JitdumpSaysWhatHasMoved) {
  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(code);
  const auto registrar = open(Registry::kJitdump);
  ASSERT_TRUE(registrar->add(std::vector{function(3, "other")}));
  const auto id = registrar->add(std::vector{function(0, "one"), function(1, "two")});
  ASSERT_TRUE(id);
  const auto moved =
      registrar->move(*id, std::vector<MovedFunction>{{begin + 64, function(1, "two")}, {begin, function(2, "one")}});
  ASSERT_TRUE(moved) << moved.error().text();
  const auto records = records_of(text(fmt::format("jit-{}.dump", ::getpid())));
  std::vector<std::uint32_t> kinds;
  for (const Record& record : records) kinds.push_back(record.kind);
  ASSERT_EQ(kinds, (std::vector<std::uint32_t>{4, 0, 4, 0, 4, 0, 1, 4, 0, 4, 0})) << "one move: the other one stays";
  const std::string& move = records[6].body;
  EXPECT_EQ(at<std::uint32_t>(move, 0), static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(at<std::uint64_t>(move, 8), begin + 128);
  EXPECT_EQ(at<std::uint64_t>(move, 16), begin);
  EXPECT_EQ(at<std::uint64_t>(move, 24), begin + 128);
  EXPECT_EQ(at<std::uint64_t>(move, 32), 64u);
  EXPECT_EQ(at<std::uint64_t>(move, 40), at<std::uint64_t>(records[3].body, 32)) << "the index it was loaded with";
  EXPECT_STREQ(records[10].body.c_str() + 40, "one");
  EXPECT_EQ(at<std::uint64_t>(records[10].body, 8), begin + 128);
  EXPECT_EQ(at<std::uint64_t>(records[10].body, 32), 4u) << "an index of its own: the file of the first one stays";
  // The next move is of where it is now.
  ASSERT_TRUE(registrar->move(
      *id, std::vector<MovedFunction>{{begin + 64, function(1, "two")}, {begin + 128, function(0, "one")}}));
  const auto again = records_of(text(fmt::format("jit-{}.dump", ::getpid())));
  ASSERT_EQ(again[11].kind, 1u);
  EXPECT_EQ(at<std::uint64_t>(again[11].body, 40), 4u);
}

TEST_F(RegisteredFiles, PerfMapHasWhatMovedOnceMore) {
  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(code);
  const auto registrar = open(Registry::kPerfMap);
  const auto id = registrar->add(std::vector{function(0, "one")});
  ASSERT_TRUE(id && registrar->move(*id, std::vector<MovedFunction>{{begin, function(2, "one")}}));
  EXPECT_EQ(text(fmt::format("perf-{}.map", ::getpid())),
            fmt::format("{:x} 40 one\n{:x} 40 one\n", begin, begin + 128));
}

TEST_F(RegisteredFiles, AChildMovesWhatItInherited) {
  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(code);
  const auto registrar = open(Registry::kJitdump);
  const auto id = registrar->add(std::vector{function(0, "one")});
  ASSERT_TRUE(id);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(registrar->move(*id, std::vector<MovedFunction>{{begin, function(2, "one")}}) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const auto records = records_of(text(fmt::format("jit-{}.dump", child)));
  ASSERT_EQ(records.size(), 5u) << "first where it was";
  EXPECT_EQ(at<std::uint64_t>(records[1].body, 8), begin);
  EXPECT_EQ(records[2].kind, 1u);
  EXPECT_EQ(at<std::uint32_t>(records[2].body, 0), static_cast<std::uint32_t>(child));
  EXPECT_EQ(at<std::uint64_t>(records[4].body, 8), begin + 128);
}

TEST_F(RegisteredFiles, AChildsJitdumpHasWhatItInherited) {
  const auto registrar = open(Registry::kJitdump);
  ASSERT_TRUE(registrar->add(std::vector{function(0, "inherited")}));
  timespec forked{};
  ASSERT_EQ(::clock_gettime(CLOCK_MONOTONIC, &forked), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(registrar->add(std::vector{function(1, "child's")}) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const std::string dump = text(fmt::format("jit-{}.dump", child));
  EXPECT_EQ(at<std::uint32_t>(dump, 20), static_cast<std::uint32_t>(child));
  const auto records = records_of(dump);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_STREQ(records[1].body.c_str() + 40, "inherited");
  EXPECT_STREQ(records[3].body.c_str() + 40, "child's");
  // perf inject takes the process and the time of a mapping from its record: those of the parent are not the child's.
  for (const unsigned load : {1, 3}) {
    EXPECT_EQ(at<std::uint32_t>(records[load].body, 0), static_cast<std::uint32_t>(child));
    EXPECT_EQ(at<std::uint32_t>(records[load].body, 4), static_cast<std::uint32_t>(child));
  }
  EXPECT_GE(at<std::uint64_t>(dump, 40 + 8),
            static_cast<std::uint64_t>(forked.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(forked.tv_nsec));
  EXPECT_EQ(records_of(text(fmt::format("jit-{}.dump", ::getpid()))).size(), 2u);
}

TEST_F(RegisteredFiles, CodeThatCannotBeReadIsAnError) {
  if (const auto reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  const auto registrar = open(Registry::kJitdump);
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const none = ::mmap(nullptr, page, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(none, MAP_FAILED);
  GeneratedFunction hidden = function(0, "hidden");
  hidden.address = reinterpret_cast<std::uint64_t>(none);
  const auto id = registrar->add(std::vector{function(1, "one"), hidden});
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, ErrorCode::kUnreadable);
  EXPECT_EQ(id.error().where, hidden.address);
  EXPECT_EQ(text(fmt::format("jit-{}.dump", ::getpid())).size(), 40u) << "all or nothing";
  EXPECT_TRUE(registrar->add(std::vector{function(1, "one")}));
  ::munmap(none, page);
}

// A full disk, as it shows to write(): a part of the text fits.
TEST_F(RegisteredFiles, ABatchThatDoesNotFitLeavesNothingBehind) {
  for (const Registry registry : {Registry::kPerfMap, Registry::kJitdump}) {
    const auto registrar = open(registry);
    ASSERT_TRUE(registrar->add(std::vector{function(0, "one")}));
    const bool is_map = registry == Registry::kPerfMap;
    const std::string name = fmt::format("{}-{}.{}", is_map ? "perf" : "jit", ::getpid(), is_map ? "map" : "dump");
    const std::string before = text(name);
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlimit small{.rlim_cur = before.size() + 5, .rlim_max = limit.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const auto refused = registrar->add(std::vector{function(1, "two")});
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)std::signal(SIGXFSZ, handler);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kSystem);
    EXPECT_EQ(refused.error().detail, static_cast<std::uint64_t>(EFBIG));
    EXPECT_EQ(text(name), before);
    EXPECT_TRUE(registrar->add(std::vector{function(1, "two")}));
    EXPECT_EQ(text(name).substr(0, before.size()), before);
  }
}

}  // namespace
}  // namespace windlass
