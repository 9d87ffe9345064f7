// What hostile PDB files may cost: depth, names, records read and memory kept have bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "formats/pdb/pdb.h"
#include "made_up_pdb.h"

namespace {
// Bytes that operator new has given out and that were not given back, and the most of them so far.
std::atomic<std::size_t> live = 0, most = 0;
constexpr std::size_t kHead = 16;  // what keeps a block's size
}  // namespace

void* operator new(std::size_t size) {
  auto* block = static_cast<char*>(std::malloc(size + kHead));
  if (block == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(block) = size;
  most = std::max(most.load(), live += size);
  return block + kHead;
}
// A sanitizer's own one keeps no size.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* given) noexcept {
  if (given == nullptr) return;
  auto* block = static_cast<char*>(given) - kHead;
  live -= *reinterpret_cast<std::size_t*>(block);
  std::free(block);
}
void operator delete(void* given, std::size_t) noexcept { operator delete(given); }
void operator delete(void* given, const std::nothrow_t&) noexcept { operator delete(given); }

namespace windlass {
namespace {

using pdb::PdbFile;
using test::MadeUpPdb;

constexpr std::uint32_t kCode = MadeUpPdb::kCode;

struct Opened {
  explicit Opened(const MadeUpPdb& made) : bytes(made.bytes()), file(open(bytes)) {}
  static PdbFile open(const std::vector<std::byte>& bytes) {
    auto file = PdbFile::parse(ByteView(bytes.data(), bytes.size()));
    if (!file) throw std::runtime_error(file.error().text());
    return std::move(*file);
  }
  std::vector<std::byte> bytes;
  PdbFile file;
};

// Records that no reader knows, as large as records get.
void append_unknown(std::vector<std::byte>& to, std::size_t size) {
  for (const std::size_t end = to.size() + size; to.size() < end;)
    test::append_record(to, 0x7777, std::vector<std::byte>(0xfff0));
}

TEST(PdbBounds, InlinedCallsOfAnAddress) {
  MadeUpPdb made;
  made.add_procedure("outermost");
  made.add_function_id("inlined");
  for (int i = 0; i < 1000; ++i) made.add_inlined(MadeUpPdb::kFirstType);
  Opened opened(made);
  const auto found = opened.file.procedure_at(kCode, true);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->frames.size(), 256U + 1);
  EXPECT_EQ(found->frames.front().function, "inlined");
  EXPECT_EQ(found->frames.back().function, "outermost");
  EXPECT_EQ(opened.file.procedure_at(kCode + 16, true)->frames.size(), 1U);  // behind the inlined code
}

TEST(PdbBounds, Names) {
  const std::string name(60000, 'n'), cut(4096, 'n');
  MadeUpPdb made;
  made.add_procedure(name);
  made.add_function_id(name);
  made.add_inlined(MadeUpPdb::kFirstType);
  made.add_public(name, pdb::kPublicCode, 0);
  Opened opened(made);
  const auto found = opened.file.procedure_at(kCode, true);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->frames.size(), 2U);
  EXPECT_EQ(found->frames[0].function, cut);
  EXPECT_EQ(found->frames[1].function, cut);
  const auto symbol = opened.file.public_before(kCode + 1, false);
  ASSERT_TRUE(symbol);
  EXPECT_EQ(symbol->name, cut);
}

// Ids have no index by number here: a name far from the first would cost all records before it.
TEST(PdbBounds, RecordsPassedForAnId) {
  MadeUpPdb made;
  made.add_procedure("outermost");
  for (int i = 0; i < 5000; ++i) made.add_function_id("inlined");
  made.add_inlined(MadeUpPdb::kFirstType + 4096);
  made.add_inlined(MadeUpPdb::kFirstType + 4097);
  Opened opened(made);
  EXPECT_EQ(opened.file.procedure_at(kCode, true)->frames.size(), 2U);  // the second has no name
}

TEST(PdbBounds, DataPassedForAPublicSymbol) {
  for (const std::uint32_t data : {63U, 64U}) {
    MadeUpPdb made;
    made.add_public("code", pdb::kPublicCode, 0);
    for (std::uint32_t i = 0; i < data; ++i) made.add_public("data", 0, 1 + i);
    Opened opened(made);
    EXPECT_EQ(opened.file.public_before(kCode + 200, false).has_value(), data == 63) << data;
  }
}

// 64 MiB of records for each address: 4 GiB are read after 64 addresses.
TEST(PdbBounds, RecordsReadForInlinedCalls) {
  MadeUpPdb made;
  made.add_procedure("outermost");
  made.add_function_id("inlined");
  append_unknown(made.symbols, 64 << 20);
  made.add_inlined(MadeUpPdb::kFirstType);
  Opened opened(made);
  std::size_t with_inlined = 0;
  for (int i = 0; i < 100; ++i) {
    const auto found = opened.file.procedure_at(kCode, true);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->frames.back().function, "outermost");
    with_inlined += found->frames.size() == 2 ? 1 : 0;
    EXPECT_EQ(opened.file.is_spent(), with_inlined == 64) << i;
  }
  EXPECT_EQ(with_inlined, 64U);
}

// 16 MiB are copied for each of 32 modules, as the blocks of their stream are not in a row.
TEST(PdbBounds, MemoryOfModules) {
  MadeUpPdb made;
  made.modules = 32;
  made.scattered = true;
  made.add_procedure("procedure");
  append_unknown(made.symbols, 16 << 20);
  Opened opened(made);
  const std::size_t before = live;
  most = before;
  for (std::uint32_t i = 0; i < made.modules; ++i)
    (void)opened.file.procedure_at(kCode + i * MadeUpPdb::kCodeSize / made.modules, true);
  EXPECT_GT(most - before, std::size_t{200} << 20);
  EXPECT_LT(most - before, std::size_t{280} << 20);    // 256 MiB, and the module that is one too many
  EXPECT_TRUE(opened.file.procedure_at(kCode, true));  // was forgotten, and is read again
}

}  // namespace
}  // namespace windlass
