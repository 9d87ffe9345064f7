#include "profiler/processes/module_registry.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "lookup/table/unwind_table.h"
#include "os/proc_file.h"
#include "profiler/samples/raw_unwinder.h"
#include "support/pe_builder.h"
#include "support/process_reading.h"
#include "support/program_file.h"
#include "windlass/backtrace.h"

namespace windlass::profiler {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class FakeStore final : public TableStore {
 public:
  std::mutex mutex;
  std::uint32_t next = 100;
  std::uint32_t room = 1000;
  bool refuse_tables = false;
  std::vector<std::uint32_t> loaded, without, removed;

  std::expected<std::uint32_t, SystemError> add_module() override {
    const std::lock_guard lock(mutex);
    if (room == 0) return std::unexpected(SystemError{"the list is full", ENOSPC});
    --room;
    return next++;
  }
  std::expected<void, SystemError> load_table(std::uint32_t module, const table::UnwindTable&) override {
    const std::lock_guard lock(mutex);
    if (refuse_tables) return std::unexpected(SystemError{"no memory", ENOMEM});
    loaded.push_back(module);
    return {};
  }
  void set_no_table(std::uint32_t module) override {
    const std::lock_guard lock(mutex);
    without.push_back(module);
  }
  void remove_module(std::uint32_t module) override { removed.push_back(module); }
};

// Files made for the test, mapped by this process as far as the registry can see.
class ModuleRegistryTest : public testing::Test {
 protected:
  ModuleRegistryTest() {
    char name[] = "/tmp/windlass-registry-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~ModuleRegistryTest() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    return path;
  }
  std::string copy_of_this_program(const std::string& name) const {
    const std::string path = folder_ + "/" + name;
    fs::copy_file(fs::read_symlink("/proc/self/exe"), path);  // qemu-user says its own size of the link
    return path;
  }
  // Nothing is kept of a file that was changed a moment ago, as this program is right behind its link.
  static void wait_until_kept(const std::string& path) {
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0) << path;
    while (status.st_ctim.tv_sec + TableCache::kMoment > std::time(nullptr))
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  static os::ProcMap mapping_of(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    os::ProcMap map;
    map.begin = 0x10000;
    map.end = 0x20000;
    map.executable = true;
    map.path = path;
    map.file.inode = status.st_ino;
    const auto file = MappedFile::open(path);
    if (const auto image = image::ElfImage::parse(file->bytes()))
      map.offset = image->executable_segments().front().file_offset & ~std::uint64_t{4095};
    return map;
  }
  static std::uint32_t resolve(ModuleRegistry& registry, const std::string& path) {
    return registry.resolve(static_cast<std::uint32_t>(::getpid()), 0, mapping_of(path)).module;
  }

  std::string folder_;
  FakeStore store;
};

TEST_F(ModuleRegistryTest, TheInterpreterOfAScriptIsLoadedAhead) {
  const std::string interpreter = copy_of_this_program("interpreter");
  for (const std::string& line :
       {"#!" + interpreter, "#! \t" + interpreter + " -x\nmore", std::string("#!"), std::string("#!/no/such/file\n")}) {
    ModuleRegistry registry(&store, 1);
    registry.preload(write("script", line));
    ASSERT_TRUE(registry.wait_idle(300s));
    EXPECT_EQ(registry.totals().files, line.find(interpreter) != std::string::npos ? 1U : 0U) << line;
    EXPECT_TRUE(registry.failures().empty()) << line;
  }
}

TEST_F(ModuleRegistryTest, OneModuleForEachContent) {
  ModuleRegistry registry(&store, 1);
  const std::string one = copy_of_this_program("one"), other = copy_of_this_program("other");
  const std::uint32_t number = resolve(registry, one);
  EXPECT_NE(number, ModuleRegistry::kAnonymous);
  EXPECT_EQ(resolve(registry, one), number);
  EXPECT_EQ(resolve(registry, other), number) << "the same build id";
  os::ProcMap gone = mapping_of(one);
  gone.path = "/gone/since";
  EXPECT_EQ(registry.resolve(1, 0, gone).module, number) << "it need not be opened again";
  EXPECT_NE(resolve(registry, write("text", "no program")), number);
  EXPECT_EQ(registry.totals().files, 2u);
}

// Any user can make a file with the build id of root's library, and other code.
TEST_F(ModuleRegistryTest, FilesOfOtherUsersAreOtherModules) {
  constexpr uid_t kNobody = 65534;
  ModuleRegistry registry(&store, 1);
  const std::string mine = copy_of_this_program("mine"), longer = copy_of_this_program("longer"),
                    other = copy_of_this_program("other");
  std::ofstream(longer, std::ios::app) << "more";
  const std::uint32_t number = resolve(registry, mine);
  EXPECT_NE(resolve(registry, longer), number);
  if (::chown(other.c_str(), kNobody, kNobody) != 0) return;  // root can
  EXPECT_NE(resolve(registry, other), number);
  EXPECT_EQ(registry.totals().files, 3u);
}

TEST_F(ModuleRegistryTest, TheTableGoesToTheStore) {
  ModuleRegistry registry(&store, 1);
  const std::uint32_t number = resolve(registry, copy_of_this_program("program"));
  ASSERT_TRUE(registry.wait_idle(300s));
  const CodeFile& file = *registry.find(number);
  EXPECT_EQ(file.state, TableState::kReady) << file.reason;
  EXPECT_EQ(store.loaded, std::vector<std::uint32_t>{registry.kernel_id(number)});
  EXPECT_GT(registry.totals().rows, 0u);
  EXPECT_EQ(registry.totals().tables, 1u);
  EXPECT_TRUE(registry.failures().empty());
}

// Another file may carry the same build id: its table is not that of this one.
TEST_F(ModuleRegistryTest, TheTableOfTheFileItselfIsTakenFromTheCache) {
  const std::string program = fs::read_symlink("/proc/self/exe");
  ASSERT_NO_FATAL_FAILURE(wait_until_kept(program));
  const auto totals_of = [&](const std::string& path) {
    const auto cache = TableCache::open(folder_ + "/tables");
    EXPECT_TRUE(cache) << cache.error();
    ModuleRegistry registry(&store, 1, cache->get());
    (void)resolve(registry, path);
    EXPECT_TRUE(registry.wait_idle(300s));
    EXPECT_EQ(registry.totals().tables, 1u);
    return registry.totals();
  };
  const auto first = totals_of(program), second = totals_of(program);
  EXPECT_EQ(first.from_cache, 0u);
  EXPECT_EQ(second.from_cache, 1u);
  EXPECT_EQ(second.rows, first.rows);
  EXPECT_EQ(second.bytes, first.bytes);
  EXPECT_EQ(store.loaded.size(), 2u);
  const std::string copy = copy_of_this_program("copy");
  ASSERT_NO_FATAL_FAILURE(wait_until_kept(copy));
  EXPECT_EQ(totals_of(copy).from_cache, 0u);
}

TEST_F(ModuleRegistryTest, WhatHasNoTableSaysWhy) {
  store.refuse_tables = true;
  ModuleRegistry registry(&store, 1);
  const std::uint32_t text = resolve(registry, write("text", "no program"));
  const std::uint32_t refused = resolve(registry, copy_of_this_program("program"));
  ASSERT_TRUE(registry.wait_idle(300s));
  for (const std::uint32_t number : {text, refused}) {
    EXPECT_EQ(registry.find(number)->state, TableState::kNoTable);
    EXPECT_EQ(std::ranges::count(store.without, registry.kernel_id(number)), 1);
  }
  const auto failures = registry.failures();
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_FALSE(failures[0].reason.empty());
  EXPECT_EQ(failures[1].reason, "no memory");
}

TEST_F(ModuleRegistryTest, AFullStoreLeavesTheFrameToItsOwnModule) {
  store.room = 1;  // for the code that is in no file
  ModuleRegistry registry(&store, 1);
  const std::uint32_t number = resolve(registry, copy_of_this_program("program"));
  EXPECT_NE(number, ModuleRegistry::kAnonymous) << "it has names all the same";
  EXPECT_EQ(registry.kernel_id(number), registry.kernel_id(ModuleRegistry::kAnonymous));
  ASSERT_EQ(registry.failures().size(), 1u);
  EXPECT_EQ(registry.failures()[0].reason, "the list is full");
  EXPECT_EQ(registry.evict({}, 0), 1u);
  EXPECT_TRUE(store.removed.empty()) << "others use that one";
}

TEST_F(ModuleRegistryTest, AFileWrittenOverInPlaceIsAnotherModule) {
  ModuleRegistry registry(&store, 1);
  const std::string path = write("text", "short");
  const std::uint32_t before = resolve(registry, path);
  write("text", "longer than that");
  EXPECT_NE(resolve(registry, path), before);
}

// Nor does the time say so, where somebody keeps it.
TEST_F(ModuleRegistryTest, AFileOfAnotherSizeIsAnotherModuleWhateverItsTime) {
  ModuleRegistry registry(&store, 1);
  const std::string path = write("text", "short");
  const auto time = fs::last_write_time(path);
  const std::uint32_t before = resolve(registry, path);
  write("text", "longer than that");
  fs::last_write_time(path, time);
  EXPECT_NE(resolve(registry, path), before);
}

TEST_F(ModuleRegistryTest, WhatThePathLeadsToByNowIsNotTaken) {
  ModuleRegistry registry(&store, 1);
  os::ProcMap map = mapping_of(write("text", "another file than the one that is mapped"));
  ++map.file.inode;
  EXPECT_EQ(registry.resolve(static_cast<std::uint32_t>(::getpid()), 0, map).module, ModuleRegistry::kAnonymous);
}

// The file of a Windows image that is loaded is the one with its time stamp.
TEST_F(ModuleRegistryTest, AnImageIsTheFilesOnlyWithItsTimestamp) {
  if (const std::string why = test::no_process_reading(); !why.empty()) GTEST_SKIP() << why;
  constexpr std::size_t kTimestampAt = 0x48;  // of PeBuilder's files
  test::PeBuilder builder(image::PeMachine::kAmd64);
  builder.add(".text", std::vector<std::uint8_t>(64, 0x90), true);
  std::vector<std::uint8_t> loaded = builder.build();
  os::ProcMap headers = mapping_of(write("image.dll", std::string(loaded.begin(), loaded.end())));
  headers.begin = reinterpret_cast<std::uint64_t>(loaded.data());
  headers.end = headers.begin + 0x1000;
  headers.readable = true;
  headers.executable = false;
  headers.offset = 0;
  os::ProcMap code;
  code.begin = headers.end;
  code.end = code.begin + 0x1000;
  code.executable = true;
  ModuleRegistry registry(&store, 1);
  const auto self = static_cast<std::uint32_t>(::getpid());
  EXPECT_EQ(registry.find_images(self, 0, {headers, code}).size(), 1u);
  loaded[kTimestampAt] ^= 1;
  EXPECT_EQ(registry.find_images(self, 0, {headers, code}).size(), 0u);
}

// The C library of this process, as if its file could not be opened.
os::ProcMap c_library_without_a_file() {
  const auto address = reinterpret_cast<std::uint64_t>(&::qsort);
  for (os::ProcMap& map : os::parse_proc_maps(os::read_proc_file("/proc/self/maps"))) {
    if (address < map.begin || address >= map.end) continue;
    map.end -= 4096;  // /proc/PID/map_files has no such entry
    map.path = "/no/such/library";
    map.file = {};
    return map;
  }
  return {};
}

TEST_F(ModuleRegistryTest, AFileThatMayNotBeOpenedIsReadFromMemory) {
  if (const auto reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << "SKIPPED: " << reason;
  ModuleRegistry registry(&store, 1);
  const auto self = static_cast<std::uint32_t>(::getpid());
  const os::ProcMap map = c_library_without_a_file();
  ASSERT_NE(map.begin, 0U);
  const auto place = registry.resolve(self, 0, map);
  ASSERT_NE(place.module, ModuleRegistry::kAnonymous);
  EXPECT_EQ(place.kind, MappingKind::kFile);
  Dl_info library{};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&::qsort), &library), 0);
  EXPECT_EQ(place.bias, reinterpret_cast<std::uint64_t>(library.dli_fbase));
  CodeFile& file = *registry.find(place.module);
  EXPECT_TRUE(file.from_memory);
  EXPECT_EQ(file.path, "/no/such/library");
  const auto address = reinterpret_cast<std::uint64_t>(&::qsort) - place.bias;
  EXPECT_EQ(registry.source(file).function_start(address + 1), address);
  FrameRow row;
  EXPECT_TRUE(registry.source(file).row_at(address, row));
  EXPECT_EQ(registry.resolve(self, 0, map).module, place.module) << "it is read once";
  ASSERT_TRUE(registry.wait_idle(300s));
  EXPECT_EQ(registry.totals().from_memory, 1U);
  EXPECT_EQ(std::ranges::count(store.loaded, file.kernel_id), 1);
  // What is read when it may be opened is another one's business: nobody else gets what a process has in memory.
  const std::uint32_t opened = resolve(registry, library.dli_fname);
  EXPECT_NE(opened, place.module);
  EXPECT_FALSE(registry.find(opened)->from_memory);
}

TEST_F(ModuleRegistryTest, WhatIsNoImageInMemoryIsNone) {
  ModuleRegistry registry(&store, 1);
  const auto self = static_cast<std::uint32_t>(::getpid());
  os::ProcMap map = c_library_without_a_file();
  map.file.inode = 1;
  EXPECT_EQ(registry.resolve(self, 0, map).module, ModuleRegistry::kAnonymous) << "another file is mapped there";
  map.file = {};
  map.begin = 0x1000;
  map.end = 0x2000;
  EXPECT_EQ(registry.resolve(self, 0, map).module, ModuleRegistry::kAnonymous);
  EXPECT_EQ(registry.totals().files, 0U);
}

TEST_F(ModuleRegistryTest, CodeOfAnotherMachineIsNotCompiled) {
  constexpr auto kOther = kOwnArchitecture == Architecture::kAArch64 ? Architecture::kX86_64 : Architecture::kAArch64;
  ModuleRegistry registry(&store, 1);
  const std::uint32_t number = resolve(registry, write("foreign", test::program_file(kOther)));
  const std::uint32_t own = resolve(registry, write("own", test::program_file(kOwnArchitecture)));
  ASSERT_TRUE(registry.wait_idle(300s));
  EXPECT_EQ(registry.find(number)->state, TableState::kNoTable);
  EXPECT_EQ(registry.find(number)->reason, "code of another machine");
  EXPECT_EQ(store.loaded, std::vector<std::uint32_t>{registry.kernel_id(own)});
}

TEST_F(ModuleRegistryTest, EvictionDropsTheLongestUnusedFirst) {
  ModuleRegistry registry(&store, 1);
  std::vector<std::uint32_t> numbers;
  std::vector<std::string> paths;
  for (int i = 0; i < 4; ++i) {
    paths.push_back(write("text" + std::to_string(i), std::string(static_cast<std::size_t>(i) + 1, 'x')));
    numbers.push_back(resolve(registry, paths.back()));
  }
  ASSERT_TRUE(registry.wait_idle(300s));
  EXPECT_EQ(registry.evict({numbers[0], numbers[1], numbers[2]}, 4), 0u) << "there is room";
  EXPECT_EQ(registry.evict({numbers[0], numbers[1]}, 4), 0u);
  EXPECT_EQ(registry.evictions(), 0u);
  // Now 3 was never used, 2 not since the first time.
  const std::uint32_t kernel_id = registry.kernel_id(numbers[3]);
  EXPECT_EQ(registry.evict({numbers[0]}, 3), 1u);
  EXPECT_EQ(store.removed, std::vector<std::uint32_t>{kernel_id});
  EXPECT_EQ(registry.find(numbers[3])->state, TableState::kDropped);
  EXPECT_EQ(registry.evict({numbers[0]}, 2), 1u);
  EXPECT_EQ(registry.find(numbers[2])->state, TableState::kDropped);
  EXPECT_EQ(registry.find(numbers[1])->state, TableState::kNoTable);
  EXPECT_EQ(registry.evict({numbers[0]}, 0), 1u);
  EXPECT_NE(registry.find(numbers[0])->state, TableState::kDropped) << "a process maps it";
  EXPECT_EQ(registry.evictions(), 3u);
}

TEST_F(ModuleRegistryTest, TablesOfFilesThatNobodyMapsAreBounded) {
  ModuleRegistry registry(&store, 1);
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 3; ++i)
    numbers.push_back(resolve(
        registry, write("own" + std::to_string(i), test::program_file(kOwnArchitecture) + std::string(i, 'x'))));
  ASSERT_TRUE(registry.wait_idle(300s));
  std::vector<std::uint64_t> bytes;
  for (const std::uint32_t number : numbers) {
    ASSERT_EQ(registry.find(number)->state, TableState::kReady);
    bytes.push_back(registry.find(number)->table_bytes);
    ASSERT_GT(bytes.back(), 0u);
  }
  EXPECT_EQ(registry.evict(numbers, 1000, 0), 0u) << "processes map them";
  EXPECT_EQ(registry.evict({numbers[0], numbers[2]}, 1000, bytes[1]), 0u);
  EXPECT_EQ(registry.evict({numbers[0]}, 1000, bytes[2]), 1u);
  EXPECT_EQ(registry.find(numbers[1])->state, TableState::kDropped) << "it was not used for longer";
  EXPECT_EQ(registry.find(numbers[2])->state, TableState::kReady);
}

TEST_F(ModuleRegistryTest, SourcesOfFilesThatNobodyMapsAreBounded) {
  ModuleRegistry registry(&store, 1);
  const std::uint32_t used = resolve(registry, write("used", "used"));
  (void)registry.source(*registry.find(used));
  std::vector<std::uint32_t> idle;
  const auto add_idle = [&](std::size_t count) {
    while (idle.size() < count) {
      idle.push_back(resolve(registry, write("idle" + std::to_string(idle.size()), "text")));
      (void)registry.source(*registry.find(idle.back()));
    }
  };
  const auto sources = [&] {
    return std::ranges::count_if(idle, [&](std::uint32_t it) { return registry.find(it)->source != nullptr; });
  };
  add_idle(ModuleRegistry::kMaxIdleSources);
  ASSERT_TRUE(registry.wait_idle(300s));
  EXPECT_EQ(registry.evict({used}, 1000), 0U);
  EXPECT_EQ(sources(), ModuleRegistry::kMaxIdleSources);
  EXPECT_EQ(registry.evictions(), 0U);
  add_idle(ModuleRegistry::kMaxIdleSources + 1);
  ASSERT_TRUE(registry.wait_idle(300s));
  EXPECT_EQ(registry.evict({used}, 1000), 0U) << "the files stay";
  EXPECT_EQ(sources(), ModuleRegistry::kMaxIdleSources / 2);
  EXPECT_EQ(registry.evictions(), 1U) << "walkers must not go on with what referred to them";
  EXPECT_NE(registry.find(used)->source, nullptr);
  EXPECT_EQ(registry.find(idle.front())->source, nullptr) << "the longest unused first";
  (void)registry.source(*registry.find(idle.front()));
  EXPECT_NE(registry.find(idle.front())->source, nullptr);
}

// Its file is there no more, and what was known of it neither.
TEST_F(ModuleRegistryTest, WhatWasEvictedIsNotFoundByItsInode) {
  ModuleRegistry registry(&store, 1);
  const std::string path = write("text", "no program");
  const os::ProcMap map = mapping_of(path);
  const auto self = static_cast<std::uint32_t>(::getpid());
  EXPECT_NE(registry.resolve(self, 0, map).module, ModuleRegistry::kAnonymous);
  ASSERT_EQ(registry.evict({}, 0), 1u);
  fs::remove(path);
  EXPECT_EQ(registry.resolve(self, 0, map).module, ModuleRegistry::kAnonymous);
}

TEST_F(ModuleRegistryTest, AnUnwinderKeepsNothingOfWhatWasEvicted) {
  ModuleRegistry registry(&store, 1);
  const std::string path = write("program", test::program_file(Architecture::kX86_64));
  os::ProcMap map = mapping_of(path);
  map.end = map.begin + test::kProgramEnd;
  map.offset = 0;
  const auto placed = registry.resolve(static_cast<std::uint32_t>(::getpid()), 0, map);
  MapSet maps;
  maps.add({map.begin, map.end, 0, placed.module, placed.bias, placed.kind});
  const std::uint64_t code = placed.bias + test::kProgramCode, sp = 0x7ffd'0000'0000;
  const std::uint64_t words[] = {code + 0x20, code + 0x30, 0};
  RawSample sample;
  sample.tgid = 1;
  sample.registers = Registers(Architecture::kX86_64);
  sample.registers.set_pc(CodeAddress::instruction(code + 8));
  sample.registers.set_sp(sp);
  sample.stack = {sp, std::as_bytes(std::span(words))};
  ASSERT_TRUE(registry.wait_idle(300s));
  RawUnwinder unwinder(registry);
  EXPECT_EQ(unwinder.unwind(sample, &maps).frames,
            (std::vector<std::uint64_t>{(code + 8) | WL_FRAME_EXACT, code + 0x20, code + 0x30}));
  ASSERT_EQ(registry.evict({}, 0), 1u);
  EXPECT_LT(unwinder.unwind(sample, &maps).frames.size(), 3u) << "by no row";
}

TEST_F(ModuleRegistryTest, WhatWasEvictedIsNamedStillAndComesBackAsAnother) {
  ModuleRegistry registry(&store, 1);
  const std::string path = copy_of_this_program("program");
  const std::uint32_t number = resolve(registry, path);
  ASSERT_TRUE(registry.wait_idle(300s));
  ASSERT_EQ(registry.evict({}, 0), 1u);
  EXPECT_EQ(registry.kernel_id(number), registry.kernel_id(ModuleRegistry::kAnonymous));
  EXPECT_TRUE(registry.find(number)->file.bytes().empty());
  FrameRow row;
  EXPECT_FALSE(registry.source(*registry.find(number)).row_at(registry.find(number)->code_begin, row));
  profile::Module module;
  registry.describe(number, module);
  EXPECT_EQ(module.path, path);
  EXPECT_FALSE(module.build_id.empty());
  EXPECT_TRUE(module.open_path.starts_with("/proc/self/fd/"));
  const std::uint32_t again = resolve(registry, path);
  EXPECT_NE(again, number);
  ASSERT_TRUE(registry.wait_idle(300s));
  EXPECT_EQ(registry.find(again)->state, TableState::kReady);
}

TEST_F(ModuleRegistryTest, FilesThatNobodyMapsAreBounded) {
  ModuleRegistry registry(&store, 1);
  const std::uint32_t used = resolve(registry, write("used", "used"));
  std::vector<std::uint32_t> idle;
  while (idle.size() < ModuleRegistry::kMaxIdleFiles + 2)
    idle.push_back(resolve(registry, write("idle" + std::to_string(idle.size()), "text")));
  ASSERT_TRUE(registry.wait_idle(300s));
  EXPECT_EQ(registry.evict({used}, ModuleRegistry::kMaxModules), 2U);
  EXPECT_EQ(registry.totals().files, idle.size() + 1) << "samples may be in them";
  registry.forget([&](std::uint32_t number) { return number == idle[0]; });
  EXPECT_EQ(registry.totals().files, idle.size());
  ASSERT_NE(registry.find(idle[0]), nullptr) << "a sample is in it";
  EXPECT_EQ(registry.find(idle[0])->state, TableState::kDropped);
  EXPECT_EQ(registry.find(idle[1]), nullptr);
  EXPECT_EQ(registry.kernel_id(idle[1]), registry.kernel_id(ModuleRegistry::kAnonymous));
  EXPECT_NE(registry.find(idle[2]), nullptr) << "it has not been dropped";
  EXPECT_NE(registry.find(used), nullptr);
  const std::uint32_t again = resolve(registry, folder_ + "/idle1");
  EXPECT_GT(again, idle.back()) << "no number is given twice";
  ASSERT_NE(registry.find(again), nullptr);
}

TEST_F(ModuleRegistryTest, TheVdsoIsNeverEvicted) {
  ModuleRegistry registry(&store, 1);
  os::ProcMap map;
  map.begin = 0x7fff00010000;  // below 4 GiB is the vdso of 32-bit code
  map.end = 0x7fff00020000;
  map.path = "[vdso]";
  const std::uint32_t number = registry.resolve(1, 0, map).module;
  if (number == ModuleRegistry::kAnonymous) GTEST_SKIP() << "no vdso here (qemu-user)";
  ASSERT_TRUE(registry.wait_idle(300s));
  EXPECT_EQ(registry.evict({}, 0), 0u);
  EXPECT_EQ(registry.resolve(2, 0, map).module, number);
}

TEST_F(ModuleRegistryTest, CodeInNoFile) {
  ModuleRegistry registry(&store, 1);
  os::ProcMap map;
  map.begin = 0x10000;
  map.end = 0x20000;
  for (const char* path : {"", "//anon", "[heap]", "/dev/zero", "/no/such/file"}) {
    map.set_path(path);
    const auto placed = registry.resolve(static_cast<std::uint32_t>(::getpid()), 0, map);
    EXPECT_EQ(placed.module, ModuleRegistry::kAnonymous) << path;
    EXPECT_EQ(placed.kind, MappingKind::kGenerated) << path;
  }
  profile::Module module;
  registry.describe(ModuleRegistry::kAnonymous, module);
  EXPECT_EQ(module.path, "[anon]");
}

// At most half of the descriptors there may be are kept; files beyond have a module, but may be gone when named.
TEST_F(ModuleRegistryTest, DescriptorsAreKeptWithinTheLimit) {
  const auto keep_few = [this] {
    const rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ModuleRegistry registry(&store, 1);
    unsigned kept = 0, without = 0;
    for (int i = 0; i < 40; ++i) {
      const CodeFile* file = registry.find(
          resolve(registry, write("text" + std::to_string(i), std::string(40u + static_cast<unsigned>(i), 'x'))));
      if (file != nullptr) ++(file->fd >= 0 ? kept : without);
    }
    ::_exit(kept == 32 && without == 8 ? 0 : 1);
  };
  EXPECT_EXIT(keep_few(), testing::ExitedWithCode(0), "");
}

TEST_F(ModuleRegistryTest, WhatIsForgottenGivesItsDescriptorBack) {
  const auto keep_all = [this] {
    const rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ModuleRegistry registry(&store, 1);
    unsigned kept = 0;
    for (int i = 0; i < 40; ++i) {
      const std::uint32_t number = resolve(registry, write("text" + std::to_string(i), "text"));
      (void)registry.wait_idle(300s);
      const CodeFile* file = registry.find(number);
      kept += file != nullptr && file->fd >= 0 ? 1 : 0;
      (void)registry.evict({}, 0);
      registry.forget([](std::uint32_t) { return false; });
    }
    ::_exit(kept == 40 ? 0 : 1);
  };
  EXPECT_EXIT(keep_all(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace windlass::profiler
