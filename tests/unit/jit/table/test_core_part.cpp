// The part of a code manager's table that core files contain, by the kernel's account of the mappings
// (/proc/self/smaps): all that is used, and little more.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <charconv>
#include <fstream>
#include <string>
#include <vector>

#include "jit/table/core_part.h"
#include "runtimes/manager/read.h"
#include "support/managed_rows.h"
#include "windlass/jit/code_manager.h"

namespace windlass {
namespace {

constexpr std::uint64_t kBegin = 0x10'0000'0000;

struct Piece {
  std::uint64_t begin, end;
};

// The mappings in [begin, end) that core files have, ascending.
std::vector<Piece> in_core_files(std::uint64_t begin, std::uint64_t end) {
  std::vector<Piece> pieces;
  std::ifstream smaps("/proc/self/smaps");
  Piece at{};
  for (std::string line; std::getline(smaps, line);) {
    std::uint64_t first = 0, last = 0;
    const char* const behind = line.data() + line.size();
    const auto dash = std::from_chars(line.data(), behind, first, 16);
    if (dash.ptr != behind && *dash.ptr == '-' && std::from_chars(dash.ptr + 1, behind, last, 16).ec == std::errc()) {
      at = {first, last};
    } else if (line.starts_with("VmFlags:") && line.find(" dd") == std::string::npos && at.begin >= begin &&
               at.begin < end) {
      pieces.push_back(at);
    }
  }
  return pieces;
}

// Does /proc say what core files have? qemu-user's says that of all that it does not know.
bool says_what_core_files_have() {
  constexpr std::size_t kSize = 65536;
  void* const memory = ::mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  const auto begin = reinterpret_cast<std::uint64_t>(memory);
  const bool said = ::madvise(memory, kSize, MADV_DONTDUMP) == 0 && in_core_files(begin, begin + kSize).empty();
  ::munmap(memory, kSize);
  return said;
}

// Those of the table, by their places in it.
std::vector<Piece> pieces_of(const CodeManager& manager) {
  const auto table = reinterpret_cast<std::uint64_t>(CodeTableAccess::mapping(manager.reader()));
  std::vector<Piece> pieces = in_core_files(table, table + CodeTableAccess::table(manager.reader()).size);
  for (Piece& piece : pieces) piece = {piece.begin - table, piece.end - table};
  return pieces;
}

bool has(const std::vector<Piece>& pieces, std::uint64_t begin, std::uint64_t size) {
  std::uint64_t at = begin;
  for (const Piece& piece : pieces)
    if (piece.begin <= at && at < piece.end) at = piece.end;
  return at >= begin + size;
}
std::uint64_t total(const std::vector<Piece>& pieces) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.end - piece.begin;
  return bytes;
}

TEST(CodeManagerInCoreFiles, IsWhatIsUsed) {
  if (!says_what_core_files_have()) GTEST_SKIP() << "/proc does not say what core files have (qemu-user)";
  constexpr std::uint64_t kCode = 64u << 20;
  auto made = CodeManager::create(kBegin, kBegin + kCode);
  ASSERT_TRUE(made);
  CodeManager& manager = *made;
  const auto& header = *reinterpret_cast<const wl_code_header*>(CodeTableAccess::mapping(manager.reader()));
  // Each section's room to grow, and a page at either end.
  constexpr std::uint64_t kRoom = 5 * (manager::CorePart::kStep + 2 * 65536);
  std::uint64_t functions = 0, names = 0;
  for (const std::uint64_t more : {0u, 1u, 1000u, 20'000u, 60'000u}) {
    std::vector<GeneratedFunction> added;
    std::vector<std::string> texts(more);
    std::vector<std::vector<FrameRow>> rows;
    for (std::int32_t kind = 0; kind < 500; ++kind) rows.push_back(test::managed_rows(64, 64 + 16 * kind));
    for (std::uint64_t i = 0; i < more; ++i, ++functions) {
      texts[i] = "a function that has the number " + std::to_string(functions);
      names += texts[i].size() + 8;
      added.push_back({kBegin + functions * 128, 64, texts[i], 0, rows[functions % rows.size()]});
    }
    ASSERT_TRUE(manager.add(added));
    if (more != 0) {
      ASSERT_TRUE(manager.update(std::vector{added[0].address}, std::vector{added[0]}));
    }
    const auto pieces = pieces_of(manager);
    EXPECT_TRUE(has(pieces, 0, header.records)) << "header and blocks";
    EXPECT_TRUE(has(pieces, header.records, header.records_used * sizeof(wl_code_record)));
    EXPECT_TRUE(has(pieces, header.name_of, header.records_used * sizeof(std::uint32_t)));
    EXPECT_TRUE(has(pieces, header.past, header.past_end * sizeof(wl_code_past)));
    for (std::uint64_t i = 0; i < functions; i += 97) {
      manager::FoundRecord found;
      const manager::MappedBytes bytes(CodeTableAccess::mapping(manager.reader()), header.size);
      ASSERT_EQ(manager::look_up(bytes, CodeTableAccess::table(manager.reader()), kBegin + i * 128, found),
                manager::Looked::kFound);
      std::uint32_t name = 0, length = 0;
      ASSERT_TRUE(bytes.read(header.name_of + found.number * sizeof name, &name, sizeof name));
      ASSERT_TRUE(bytes.read(header.names + name, &length, sizeof length));
      EXPECT_TRUE(has(pieces, header.names + name, sizeof length + length)) << i;
      wl_code_shape shape;
      ASSERT_TRUE(bytes.read(header.shapes + found.record.shape(), &shape, sizeof shape));
      EXPECT_TRUE(has(pieces, header.shapes + found.record.shape(), shape.size)) << i;
    }
    const std::uint64_t used = header.records + header.records_used * (sizeof(wl_code_record) + 4) + names + 500 * 512 +
                               header.past_end * sizeof(wl_code_past);
    EXPECT_LE(total(pieces), used + kRoom) << functions;
    EXPECT_GT(header.size, 200u << 20);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace windlass
