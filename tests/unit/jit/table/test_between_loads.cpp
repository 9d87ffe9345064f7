// Functions come and go between any two loads of a look-up. The answer must be that of before or of after the change,
// never a mixture. Functions that stay are always found.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "runtimes/manager/read.h"
#include "support/managed_rows.h"
#include "windlass/jit/code_manager.h"

namespace windlass {
namespace {

constexpr std::uint64_t kBegin = 0x5000'0000;
constexpr std::uint32_t kCode = 2048, kStep = 8;
constexpr std::uint64_t kAddress = 0x100'0000;  // where the table is in what is read

// A table that is changed when it is read for the n-th time from now on, or each time.
class ChangedMeanwhile final : public Memory {
 public:
  explicit ChangedMeanwhile(const CodeManager& manager) : mapping_(CodeTableAccess::mapping(manager.reader())) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (change && (always || reads++ == when)) change();
    std::memcpy(to, mapping_ + (address - kAddress), size);
    return true;
  }
  mutable unsigned reads = 0;
  unsigned when = 0;
  bool always = false;
  std::function<void()> change;

 private:
  const std::byte* mapping_;
};

// Its number says everything else of a function. Names and shapes are all of the same size, so that what one leaves
// the next one takes.
using Functions = std::map<std::uint32_t, std::uint32_t>;  // offset -> number
std::uint64_t size_of(std::uint32_t number) { return 16 + number % 7 * 61; }
std::string name_of(std::uint32_t number) { return "f" + std::to_string(1000 + number); }
std::vector<FrameRow> rows_of(std::uint32_t number) {
  return test::managed_rows(size_of(number), static_cast<std::int32_t>(64 + 16 * number));
}

Functions some(std::mt19937& random) {
  Functions made;
  for (std::uint32_t at = random() % 5 * kStep; at < kCode; at += random() % 3 * kStep) {
    const std::uint32_t number = random() % 100;
    if (at + size_of(number) > kCode) break;
    made[at] = number;
    at = (at + static_cast<std::uint32_t>(size_of(number)) + kStep - 1) & ~(kStep - 1);
  }
  return made;
}

// Some of them are gone, and some others have come to where they were or to other places.
Functions changed(const Functions& before, std::mt19937& random) {
  Functions after;
  for (const auto& [at, number] : before) {
    const unsigned what = random() % 4;
    if (what == 0) continue;
    const std::uint32_t other = number - number % 7 + random() % (number % 7 + 1);  // no larger
    after[at] = what == 1 ? other : number;
  }
  return after;
}

void update(CodeManager& manager, const Functions& from, const Functions& to) {
  std::vector<std::uint64_t> gone;
  std::vector<GeneratedFunction> come;
  std::vector<std::string> names(kCode);
  std::vector<std::vector<FrameRow>> rows(kCode);
  const auto has = [](const Functions& functions, const auto& entry) {
    const auto found = functions.find(entry.first);
    return found != functions.end() && found->second == entry.second;
  };
  for (const auto& entry : from)
    if (!has(to, entry)) gone.push_back(kBegin + entry.first);
  for (const auto& entry : to) {
    const auto [at, number] = entry;
    if (has(from, entry)) continue;
    names[at] = name_of(number);
    rows[at] = rows_of(number);
    come.push_back({kBegin + at, size_of(number), names[at], number, rows[at]});
  }
  const auto updated = manager.update(gone, come);
  ASSERT_TRUE(updated) << updated.error().text();
}

// What the three look-ups say, as text.
enum Question { kFind, kName, kRow, kQuestions };
std::string ask(const CodeManagerReader& reader, Question question, std::uint64_t address) {
  const auto error = [](const Error& e) { return e.code == ErrorCode::kNotFound ? "none" : e.text(); };
  if (question == kFind) {
    const auto found = reader.find(address);
    return found ? std::to_string(found->user) + " at " + std::to_string(found->begin) : error(found.error());
  }
  if (question == kName) {
    char room[16];
    const auto name = reader.name(address, room);
    return name ? std::string(*name) : error(name.error());
  }
  FrameRow row;
  const auto status = reader.row_at(address, row);
  return status ? std::to_string(row.begin) + " " + std::to_string(row.end) + " " + std::to_string(row.cfa.offset())
                : error(status.error());
}

// Every moment of a look-up.
void look_up_during(ChangedMeanwhile& memory, const CodeManagerReader& reader, CodeManager& manager,
                    const Functions& before, const Functions& after, std::uint64_t address) {
  for (const Question question : {kFind, kName, kRow}) {
    const std::string old = ask(manager.reader(), question, address);
    for (memory.when = 0;; ++memory.when) {
      memory.reads = 0;
      memory.change = [&] { update(manager, before, after); };
      const std::string said = ask(reader, question, address);
      memory.change = nullptr;
      if (memory.reads <= memory.when) {
        EXPECT_EQ(said, old);
        break;
      }
      const std::string now = ask(manager.reader(), question, address);
      EXPECT_TRUE(said == old || said == now)
          << "changed at load " << memory.when << ", it is " << said << ", neither " << old << " nor " << now;
      update(manager, after, before);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(CodeManagerBetweenLoads, AnAnswerIsOfBeforeOrAfter) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    auto manager = CodeManager::create(kBegin, kBegin + kCode);
    ASSERT_TRUE(manager);
    ChangedMeanwhile memory(*manager);
    const auto reader = CodeManagerReader::open(memory, kAddress);
    ASSERT_TRUE(reader);
    const Functions before = some(random), after = changed(before, random);
    update(*manager, {}, before);
    for (int i = 0; i < 12; ++i) look_up_during(memory, *reader, *manager, before, after, kBegin + random() % kCode);
    if (HasFailure()) return;
  }
}

// With a change at every load a look-up ends, and says why.
TEST(CodeManagerBetweenLoads, AnswersEndWhereAllChanges) {
  auto manager = CodeManager::create(kBegin, kBegin + kCode);
  ASSERT_TRUE(manager);
  ChangedMeanwhile memory(*manager);
  const auto reader = CodeManagerReader::open(memory, kAddress);
  ASSERT_TRUE(reader);
  const Functions with = {{0, 6}, {512, 6}}, without = {{512, 6}};
  update(*manager, {}, with);
  unsigned changes = 0;
  memory.always = true;
  memory.change = [&] { ++changes % 2 != 0 ? update(*manager, with, without) : update(*manager, without, with); };
  const auto found = reader->find(kBegin + 600);
  memory.change = nullptr;
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kLimit);
  EXPECT_GE(changes, WL_CODE_RETRIES * 2);
  EXPECT_LE(changes, WL_CODE_RETRIES * 10);
}

}  // namespace
}  // namespace windlass
