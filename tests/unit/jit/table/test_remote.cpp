// A code manager read from outside: of another process, after that is gone, from bytes that are garbage, and while a
// process scribbles over them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "runtimes/manager/read.h"
#include "support/managed_rows.h"
#include "support/process_reading.h"
#include "windlass/jit/code_manager.h"

namespace windlass {
namespace {

constexpr std::uint64_t kBegin = 0x10'0000'0000;
constexpr std::uint32_t kFunctions = 500;
constexpr std::uint32_t kPast = 8;

// What is there now, each time; counts how often it was asked.
class OtherProcess final : public Memory {
 public:
  explicit OtherProcess(pid_t pid) : pid_(pid) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    ++reads;
    const iovec local{to, size}, remote{reinterpret_cast<void*>(address), size};
    return ::process_vm_readv(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
  }
  mutable std::uint64_t reads = 0;

 private:
  pid_t pid_;
};

void fill(CodeManager& manager) {
  for (std::uint32_t i = 0; i < kFunctions; ++i) {
    const auto rows = test::managed_rows(100 + i, static_cast<std::int32_t>(64 + i % 7 * 8));
    const std::string name = "function" + std::to_string(i);
    if (!manager.add({{kBegin + i * 1000, 100 + i, name, i, rows}})) ::_exit(2);
  }
}

void expect_filled(const CodeManagerReader& reader) {
  for (std::uint32_t i = 0; i < kFunctions; ++i) {
    const std::uint64_t inside = kBegin + i * 1000 + 50;
    const auto found = reader.find(inside);
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_EQ(found->user, i);
    char room[100];
    EXPECT_EQ(*reader.name(inside, room), "function" + std::to_string(i));
    FrameRow row;
    ASSERT_TRUE(reader.row_at(inside, row));
    EXPECT_EQ(row.cfa.offset(), static_cast<std::int32_t>(64 + i % 7 * 8));
    EXPECT_FALSE(reader.find(kBegin + i * 1000 + 999));
  }
}

// A process with a manager, which then does something else until it is killed.
class Owner {
 public:
  template <typename Then>
  explicit Owner(Then&& then) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      auto manager =
          CodeManager::create(kBegin, kBegin + 1000 * kFunctions,
                              {.functions = kFunctions, .shape_bytes = 1 << 14, .name_bytes = 1 << 14, .past = kPast});
      if (!manager) ::_exit(3);
      fill(*manager);
      if (::write(ready[1], "r", 1) != 1) ::_exit(4);
      then(*manager);
      for (;;) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    find_mapping();
  }
  ~Owner() { kill(); }
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::uint64_t address() const { return address_; }
  // Its memfd, by its mapping.
  [[nodiscard]] int open() const {
    return ::open(("/proc/" + std::to_string(pid_) + "/map_files/" + range_).c_str(), O_RDONLY | O_CLOEXEC);
  }

 private:
  void find_mapping() {
    std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find("/memfd:" WL_CODE_NAME) != std::string::npos && address_ == 0) {  // its first piece
        range_ = line.substr(0, line.find(' '));
        address_ = std::stoull(line, nullptr, 16);
      }
    EXPECT_NE(address_, 0u);
  }

  pid_t pid_ = -1;
  std::string range_;
  std::uint64_t address_ = 0;
};

TEST(CodeManagerFromOutside, IsReadInAnotherProcess) {
  if (const auto reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  const Owner owner([](CodeManager&) {});
  const OtherProcess memory(owner.pid());
  const auto reader = CodeManagerReader::open(memory, owner.address());
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ(reader->begin(), kBegin);
  EXPECT_EQ(reader->end(), kBegin + 1000 * kFunctions);
  expect_filled(*reader);
}

TEST(CodeManagerFromOutside, OutlivesItsProcess) {
  Owner owner([](CodeManager&) {});
  const int fd = owner.open();
  if (fd < 0) GTEST_SKIP() << "/proc/PID/map_files cannot be read here";
  EXPECT_EQ(::fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK, F_SEAL_SHRINK);
  owner.kill();
  const auto size = static_cast<std::size_t>(::lseek(fd, 0, SEEK_END));
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto reader = CodeManagerReader::open(std::span(static_cast<const std::byte*>(mapped), size));
  ASSERT_TRUE(reader) << reader.error().text();
  expect_filled(*reader);
  ::munmap(mapped, size);
  ::close(fd);
}

// Only the manager can write, even if others have its descriptor (Linux 5.1).
TEST(CodeManagerFromOutside, IsSealed) {
  auto manager = CodeManager::create(kBegin, kBegin + 4096);
  ASSERT_TRUE(manager);
  const int fd = manager->fd();
  EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(::ftruncate(fd, 0), -1);
  ASSERT_TRUE(manager->add({{kBegin, 10, "f", 1, {}}}));
  EXPECT_TRUE(manager->reader().find(kBegin));
}

// Whatever is there: an answer, after a bounded number of loads.
constexpr std::uint64_t kLoadsOfAnAttempt =
    2 + 2 + kPast + 2 + 2 + WL_CODE_MAX_HALVINGS + 1 + 1 + 16 + 2 + 1 + RegisterRules::kCapacity + 1;

std::uint64_t ask_all(const CodeManagerReader& reader, std::uint64_t address) {
  char name[200];
  std::byte expressions[64];
  FrameRow row;
  std::uint64_t found = 0;
  found += reader.find(address).has_value();
  found += reader.name(address, name).has_value();
  found += reader.row_at(address, row, expressions).has_value();
  found += manager::rule_at(reader, address).has_value();
  found += reader.as_of(1).name(address, name).has_value();
  return found;
}

TEST(CodeManagerFromOutside, IsBoundedWhileItsProcessScribbles) {
  if (const auto reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  const Owner owner([](CodeManager& manager) {
    // Through the manager's own mapping: there can be no other that is writable.
    const auto size = static_cast<std::size_t>(::lseek(manager.fd(), 0, SEEK_END));
    auto* bytes = reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(CodeTableAccess::mapping(manager.reader())));
    const std::vector<std::uint32_t> right(bytes, bytes + size / 4);
    const std::size_t header = sizeof(wl_code_header) / 4;
    std::minstd_rand random(5);
    // Numbers, words of other places and what belongs there, so that much of it goes on to make sense. A wrong header,
    // which stops all readers, is mended soon.
    for (;;) {
      for (int i = 0; i < 100; ++i) {
        const std::size_t to = header + random() % (right.size() - header);
        bytes[to] = random() % 8 == 0   ? static_cast<std::uint32_t>(random())
                    : random() % 4 == 0 ? bytes[random() % right.size()]
                                        : right[to];
      }
      bytes[random() % header] = bytes[random() % right.size()];
      std::copy_n(right.begin(), header, bytes);
    }
  });
  const OtherProcess memory(owner.pid());
  std::mt19937 random(7);
  std::uint64_t opened = 0, found = 0;
  auto reader = CodeManagerReader::open(memory, owner.address());
  for (int round = 0; round < 20'000; ++round) {
    auto again = CodeManagerReader::open(memory, owner.address());
    if (again) reader = std::move(again), ++opened;
    if (!reader) continue;
    const std::uint64_t before = memory.reads;
    found += ask_all(*reader, kBegin + random() % (1000 * kFunctions));
    ASSERT_LE(memory.reads - before, 5 * WL_CODE_RETRIES * kLoadsOfAnAttempt);
  }
  std::printf("%lu times opened, %lu answers\n", opened, found);
  EXPECT_GT(opened, 0u);
  EXPECT_GT(found, 0u);
}

// Every word of a small table replaced by every kind of value, one at a time.
TEST(CodeManagerFromOutside, IsBoundedOnEveryWrongWord) {
  auto manager =
      CodeManager::create(kBegin, kBegin + 4096, {.functions = 20, .shape_bytes = 800, .name_bytes = 400, .past = 4});
  ASSERT_TRUE(manager);
  for (std::uint32_t i = 0; i < 20; ++i) {
    const auto rows = test::managed_rows(100 + i, static_cast<std::int32_t>(64 + i % 2 * 8));
    ASSERT_TRUE(manager->add({{kBegin + i * 150, 100 + i, "name", i, rows}}));
  }
  ASSERT_TRUE(manager->remove({kBegin, kBegin + 19 * 150}));
  ASSERT_TRUE(manager->add({{kBegin, 60, "again", 21, test::managed_rows(60, 64)}}));
  const auto size = static_cast<std::size_t>(::lseek(manager->fd(), 0, SEEK_END));
  std::vector<std::uint64_t> room(size / 8 + 1);
  auto* bytes = reinterpret_cast<std::byte*>(room.data());
  ASSERT_EQ(::pread(manager->fd(), bytes, size, 0), static_cast<ssize_t>(size));
  std::uint64_t answers = 0, refused = 0;
  for (std::size_t at = 0; at < size; at += 4) {
    std::uint32_t kept;
    std::memcpy(&kept, bytes + at, sizeof kept);
    for (const std::uint32_t wrong : {0u, 1u, kept + 1, kept - 1, kept ^ 0x8000'0000u, ~0u, 0x7fff'fffcu, 20u, 4096u}) {
      std::memcpy(bytes + at, &wrong, sizeof wrong);
      const auto reader = CodeManagerReader::open(std::span<const std::byte>(bytes, size));
      refused += !reader;
      if (!reader) continue;
      for (std::uint64_t address = kBegin; address < kBegin + 4096; address += 97) answers += ask_all(*reader, address);
    }
    std::memcpy(bytes + at, &kept, sizeof kept);
  }
  EXPECT_GT(answers, 10'000u);
  EXPECT_GT(refused, 50u);
}

// Where the record of the function at an address is, in a mapped table.
struct RecordPlace {
  RecordPlace(const CodeManagerReader& reader, std::uint64_t address) {
    const auto& table = CodeTableAccess::table(reader);
    manager::FoundRecord found;
    const manager::MappedBytes bytes(CodeTableAccess::mapping(reader), table.size);
    EXPECT_EQ(manager::look_up(bytes, table, address, found), manager::Looked::kFound);
    record = std::bit_cast<wl_code_record>(found.record);
    at = table.records + found.number * sizeof record;
    name_of = table.name_of + found.number * sizeof(std::uint32_t);
  }
  wl_code_record record;
  std::uint64_t at, name_of;  // in the table
};

// A word of a right table made wrong, and what the look-up that comes upon it says.
TEST(CodeManagerFromOutside, SaysWhichWordIsWrong) {
  auto manager =
      CodeManager::create(kBegin, kBegin + 4096, {.functions = 20, .shape_bytes = 800, .name_bytes = 400, .past = 4});
  ASSERT_TRUE(manager);
  const auto rows = test::managed_rows(100, 64);
  ASSERT_TRUE(manager->add({{kBegin, 100, "name", 1, rows}}));
  const auto size = static_cast<std::size_t>(::lseek(manager->fd(), 0, SEEK_END));
  std::vector<std::uint64_t> room(size / 8 + 1);
  auto* bytes = reinterpret_cast<std::byte*>(room.data());
  ASSERT_EQ(::pread(manager->fd(), bytes, size, 0), static_cast<ssize_t>(size));
  const auto reader = CodeManagerReader::open(std::span<const std::byte>(bytes, size));
  ASSERT_TRUE(reader);
  const auto& table = CodeTableAccess::table(*reader);
  const RecordPlace place(*reader, kBegin);
  const wl_code_record record = place.record;
  const std::uint64_t first = place.at, name_of = place.name_of;
  std::uint32_t name_place;
  std::memcpy(&name_place, bytes + name_of, sizeof name_place);
  const std::uint64_t shape = table.shapes + record.shape, name = table.names + name_place;
  const auto with = [&](std::uint64_t at, std::uint32_t wrong, auto&& look_up) {
    std::uint32_t kept;
    std::memcpy(&kept, bytes + at, sizeof kept);
    std::memcpy(bytes + at, &wrong, sizeof wrong);
    const auto result = look_up();
    std::memcpy(bytes + at, &kept, sizeof kept);
    return result ? ErrorCode::kSystem : result.error().code;
  };
  FrameRow row;
  char copied[8];
  const auto find = [&] { return reader->find(kBegin + 50); };
  const auto row_at = [&] { return reader->row_at(kBegin + 50, row); };
  const auto name_there = [&] { return reader->name(kBegin + 50, copied); };
  EXPECT_TRUE(find() && row_at() && name_there());
  const ErrorCode out = ErrorCode::kOutOfRange, malformed = ErrorCode::kMalformed;
  const std::uint64_t block = table.blocks + sizeof(wl_code_block);
  EXPECT_EQ(with(block + offsetof(wl_code_block, first), table.record_count, find), out);
  EXPECT_EQ(with(block + offsetof(wl_code_block, map), 0xe, find), ErrorCode::kNotFound);
  EXPECT_EQ(with(first + offsetof(wl_code_record, begin), 51, find), ErrorCode::kNotFound);
  EXPECT_EQ(with(first + offsetof(wl_code_record, shape), record.shape + 1, row_at), out);
  EXPECT_EQ(with(first + offsetof(wl_code_record, shape), table.shape_bytes, row_at), out);
  EXPECT_EQ(with(name_of, name_place + 1, name_there), out);
  EXPECT_EQ(with(name_of, table.name_bytes, name_there), out);
  EXPECT_EQ(with(name, table.name_bytes - name_place - 3, name_there), out);
  EXPECT_EQ(with(shape, table.shape_bytes - record.shape + 1, row_at), out);
  EXPECT_EQ(with(shape + offsetof(wl_code_shape, row_count), 0, row_at), out);
  // The second row's place, and what is there: the CFA, the return address, the counts, and one register.
  wl_code_row second;
  std::memcpy(&second, bytes + shape + sizeof(wl_code_shape) + sizeof second, sizeof second);
  const std::uint64_t full = shape + second.full;
  const auto row_there = [&] { return reader->row_at(kBegin + 2, row); };
  ASSERT_TRUE(row_there());
  ASSERT_EQ(row.registers.size(), 1u);
  EXPECT_EQ(with(full + offsetof(wl_code_full, register_count), RegisterRules::kCapacity + 1, row_there), malformed);
  EXPECT_EQ(with(full + offsetof(wl_code_full, register_count), 1 | 4 << 16, row_there), malformed);  // flags
  EXPECT_EQ(with(full + offsetof(wl_code_full, expression_bytes), ~0u, row_there), out);
  EXPECT_EQ(with(full + offsetof(wl_code_value, size), 0xff'00'00'00, row_there), malformed);  // the CFA's kind
  EXPECT_EQ(with(full + sizeof(wl_code_full), kMaxRowRegister + 1, row_there), malformed);
  EXPECT_EQ(
      with(shape + sizeof(wl_code_shape) + sizeof second + offsetof(wl_code_row, full), second.full + 1, row_there),
      out);
  // Rows that do not ascend.
  EXPECT_EQ(with(shape + sizeof(wl_code_shape), 60, [&] { return reader->row_at(kBegin, row); }), out);
}

// Behind a row's 48 registers stands what could be a 49th: the next row, whose CFA's offset is a register's number.
TEST(CodeManagerFromOutside, HasNoMoreRegistersThanARow) {
  auto manager =
      CodeManager::create(kBegin, kBegin + 4096, {.functions = 1, .shape_bytes = 1600, .name_bytes = 64, .past = 4});
  ASSERT_TRUE(manager);
  FrameRow rows[] = {test::managed_row(0, 5, 8, RegisterRules::kCapacity), test::managed_row(5, 10, 100)};
  rows[1].return_address = RegisterRule::at_cfa(8);
  ASSERT_TRUE(manager->add({{kBegin, 10, {}, 0, rows}}));
  const auto size = static_cast<std::size_t>(::lseek(manager->fd(), 0, SEEK_END));
  std::vector<std::uint64_t> room(size / 8);
  auto* bytes = reinterpret_cast<std::byte*>(room.data());
  ASSERT_EQ(::pread(manager->fd(), bytes, size, 0), static_cast<ssize_t>(size));
  const auto reader = CodeManagerReader::open(std::as_bytes(std::span(room)));
  ASSERT_TRUE(reader);
  const auto& table = CodeTableAccess::table(*reader);
  const std::uint64_t full =
      table.shapes + RecordPlace(*reader, kBegin).record.shape + sizeof(wl_code_shape) + 2 * sizeof(wl_code_row);
  FrameRow row;
  ASSERT_TRUE(reader->row_at(kBegin, row));
  EXPECT_EQ(row.registers.size(), RegisterRules::kCapacity);
  const std::uint16_t wrong = RegisterRules::kCapacity + 1;
  std::memcpy(bytes + full + offsetof(wl_code_full, register_count), &wrong, sizeof wrong);
  const auto refused = reader->row_at(kBegin, row);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMalformed);
}

TEST(CodeManagerFromOutside, SaysWhatIsNoTable) {
  alignas(8) std::byte bytes[sizeof(wl_code_header)] = {};
  const auto open = [&](std::size_t size) { return CodeManagerReader::open(std::span<const std::byte>(bytes, size)); };
  EXPECT_EQ(open(sizeof bytes - 1).error().code, ErrorCode::kTruncated);
  EXPECT_EQ(open(sizeof bytes).error().code, ErrorCode::kMalformed);
  wl_code_header header{};
  header.magic = WL_CODE_MAGIC;
  header.version = WL_CODE_VERSION + 1;
  std::memcpy(bytes, &header, sizeof header);
  EXPECT_EQ(open(sizeof bytes).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(open(sizeof bytes).error().detail, WL_CODE_VERSION + 1);
  EXPECT_EQ(CodeManagerReader::open(std::span<const std::byte>(bytes + 1, 8)).error().code, ErrorCode::kMalformed);
  // A section that does not lie in the table, each of them.
  auto manager =
      CodeManager::create(kBegin, kBegin + 4096, {.functions = 20, .shape_bytes = 800, .name_bytes = 400, .past = 4});
  ASSERT_TRUE(manager);
  wl_code_header right;
  ASSERT_EQ(::pread(manager->fd(), &right, sizeof right, 0), static_cast<ssize_t>(sizeof right));
  std::vector<std::uint64_t> room(right.size / 8);
  const auto open_with = [&](const wl_code_header& wrong) {
    std::memcpy(room.data(), &wrong, sizeof wrong);
    return CodeManagerReader::open(std::as_bytes(std::span(room)));
  };
  EXPECT_TRUE(open_with(right));
  for (__u64 wl_code_header::*section : {&wl_code_header::blocks, &wl_code_header::records, &wl_code_header::name_of,
                                         &wl_code_header::shapes, &wl_code_header::names, &wl_code_header::past})
    for (const __u64 wrong : {right.size - 8, right.size + 8, ~__u64{7}, right.*section + 2}) {
      header = right;
      header.*section = wrong;
      const auto refused = open_with(header);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kMalformed);
      EXPECT_EQ(refused.error().where, wrong);
    }
  header = right;
  header.size += 8;
  EXPECT_EQ(open_with(header).error().code, ErrorCode::kTruncated);
  header = right;
  header.end = header.begin;
  EXPECT_EQ(open_with(header).error().code, ErrorCode::kMalformed);
  header = right;
  ++header.block_count;
  EXPECT_EQ(open_with(header).error().code, ErrorCode::kMalformed);
}

}  // namespace
}  // namespace windlass
