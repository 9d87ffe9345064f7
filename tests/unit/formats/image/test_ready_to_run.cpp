// Methods of .NET compiled ahead of time: in images made up, whole and damaged.
#include "formats/image/ready_to_run.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/image/machine.h"
#include "support/pe_file.h"

namespace windlass::image {
namespace {

using Bytes = std::vector<std::uint8_t>;

void add(Bytes& to, std::uint32_t value) {
  for (unsigned i = 0; i < 4; ++i) to.push_back(static_cast<std::uint8_t>(value >> 8 * i));
}
void add(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

// A number of NativeFormat in as few bytes as it fits.
Bytes number(std::uint32_t value) {
  for (unsigned more = 0; more < 4; ++more) {
    if (value >> (7 * (more + 1)) != 0) continue;
    const std::uint32_t all = value << (more + 1) | ((1U << more) - 1);
    Bytes bytes;
    for (unsigned i = 0; i <= more; ++i) bytes.push_back(static_cast<std::uint8_t>(all >> 8 * i));
    return bytes;
  }
  Bytes bytes = {0x0f};
  add(bytes, value);
  return bytes;
}

// A tree of up to 16 methods: what stands behind the place of each, by number.
using Block = std::map<std::uint32_t, std::uint32_t>;
Bytes tree(const Block& block, std::uint32_t bit = 8) {
  if (bit == 0) return number(block.begin()->second);
  if (block.size() == 1) {
    Bytes only = number(block.begin()->first << 2);
    add(only, number(block.begin()->second));
    return only;
  }
  Block left, right;
  for (const auto& [index, value] : block) ((index & bit) != 0 ? right : left).emplace(index, value);
  const Bytes before = left.empty() ? Bytes() : tree(left, bit / 2);
  const Bytes behind = right.empty() ? Bytes() : tree(right, bit / 2);
  const std::uint32_t kinds = (left.empty() ? 0 : 1) | (right.empty() ? 0 : 2);
  Bytes node;
  for (std::size_t size = 0; node.size() != size || size == 0;) {
    size = node.empty() ? 1 : node.size();
    node = number(static_cast<std::uint32_t>(size + before.size()) << 2 | kinds);
  }
  add(node, before);
  add(node, behind);
  return node;
}

// Methods by row; `entries` of the array's index have `width` bytes.
Bytes methods(const Block& by_row, std::uint32_t width) {
  const std::uint32_t count = by_row.rbegin()->first, blocks = (count + 15) / 16;
  Bytes trees, places;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    Block block;
    for (const auto& [row, value] : by_row)
      if ((row - 1) / 16 == i) block.emplace((row - 1) % 16, value);
    const auto at = static_cast<std::uint32_t>(blocks * (1U << width) + trees.size());
    for (unsigned byte = 0; byte < 1U << width; ++byte) places.push_back(static_cast<std::uint8_t>(at >> 8 * byte));
    add(trees, block.empty() ? Bytes{0} : tree(block));
  }
  Bytes all = number(count << 2 | width);
  add(all, places);
  add(all, trees);
  return all;
}

// Two buckets: {hash, distance} of the entries, and these behind.
Bytes instances(const std::vector<Bytes>& entries) {
  constexpr std::uint8_t kTwoBuckets = 1 << 2, kIndex = 3;
  const auto heads = static_cast<std::uint8_t>(2 * entries.size());
  Bytes all = {kTwoBuckets, kIndex, static_cast<std::uint8_t>(kIndex + 2), static_cast<std::uint8_t>(kIndex + heads)};
  Bytes behind;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t from = all.size() + 1, to = 4 + heads + behind.size();
    all.push_back(7);
    all.push_back(static_cast<std::uint8_t>((to - from) << 1));
    add(behind, entries[i]);
  }
  add(all, behind);
  return all;
}

struct Made {
  explicit Made(std::uint16_t of = 0xfd1d, std::uint32_t bits = 1) : machine(of), width(bits) {}
  std::uint16_t machine;
  std::uint32_t magic = 0x00525452;
  Block by_row = {{1, 0 << 1}, {2, 2 << 1}, {5, 3 << 2 | 1}, {17, 4 << 1}, {36, 5 << 1}, {40, 6 << 1}};
  std::uint32_t width;  // 1 << width bytes
  std::vector<Bytes> generic;

  [[nodiscard]] Bytes file() const {
    constexpr std::uint32_t kRva = 0x2000, kHeader = kRva + 72, kCount = 12;
    Bytes functions;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      add(functions, 0x1000 + i * 0x10);
      if (machine != 0x8664 && machine != 0xfd1d) {
        add(functions, 0);
        continue;
      }
      add(functions, 0x1010 + i * 0x10), add(functions, 0);
    }
    const Bytes array = methods(by_row, width), table = instances(generic);
    Bytes text(72);
    const auto put = [&](std::size_t at, std::uint32_t value) { std::memcpy(text.data() + at, &value, sizeof value); };
    put(0, 72), put(64, kHeader), put(68, 16);
    add(text, magic), add(text, 0x00010009), add(text, 0), add(text, 4);
    std::uint32_t at = kHeader + 16 + 4 * 12;
    for (const auto& [kind, bytes] :
         {std::pair<std::uint32_t, const Bytes*>{100, &functions}, {102, &functions}, {103, &array}, {109, &table}}) {
      add(text, kind), add(text, at), add(text, static_cast<std::uint32_t>(bytes->size()));
      if (kind != 100) at += static_cast<std::uint32_t>(bytes->size());
    }
    add(text, functions), add(text, array), add(text, table);
    test::PeFile pe;
    pe.machine = static_cast<PeMachine>(machine);
    pe.headers_size = 0x1000, pe.image_size = 0x4000;
    pe.set_directory(PeDirectory::kClrHeader, kRva, 72);
    pe.sections = {{".code", 0x1000, Bytes(0x200, 0xcc), true}, {".text", kRva, text}};
    return pe.build(test::PeFile::kPacked);
  }
};

ByteView view(const Bytes& bytes) { return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}; }

// "1000:1 1020:2": RVA and row of each.
std::string found(const Bytes& file) {
  const auto image = PeImage::parse(view(file));
  if (!image) return image.error().text();
  const auto methods = compiled_methods(*image);
  if (!methods) return methods.error().text();
  std::string text;
  for (const CompiledMethod& it : *methods)
    text += fmt::format("{}{:x}:{}", text.empty() ? "" : " ", it.rva, it.method);
  return text;
}

constexpr const char* kMethods = "1000:1 1020:2 1030:5 1040:17 1050:36 1060:40";

TEST(ReadyToRun, MethodsAreFoundByTheirRow) {
  for (const std::uint32_t width : {0U, 1U, 2U}) EXPECT_EQ(found(Made(0xfd1d, width).file()), kMethods) << width;
  EXPECT_EQ(found(Made(0xd11d).file()), kMethods) << "ARM64: entries of 8 bytes";
  EXPECT_EQ(found(Made(0x8664).file()), kMethods) << "for Windows";
}

TEST(ReadyToRun, InstancesOfGenericsHaveTheRowOfTheGenericMethod) {
  Made made;
  // Type<Object>.Method<Struct of another module>; a method of another module; one of an array of pointers to
  // functions, which needs fixups; one whose type is none.
  const auto entry = [](Bytes signature, std::uint32_t place) {
    add(signature, number(place));
    return signature;
  };
  made.generic = {entry({0x44, 0x15, 0x12, 0x08, 0x01, 0x1c, 0x05, 0x01, 0x3f, 0x01, 0x11, 0x80, 0x81}, 7 << 1),
                  entry({0x10, 0x06}, 9 << 1),
                  entry({0x40, 0x14, 0x1b, 0x00, 0x01, 0x01, 0x08, 0x02, 0x01, 0x05, 0x00, 0x09}, 8 << 2 | 1),
                  entry({0x40, 0x20, 0x05}, 10 << 1)};
  EXPECT_EQ(found(made.file()), std::string(kMethods) + " 1070:5 1080:9 1090:0");
}

TEST(ReadyToRun, OtherImagesHaveNone) {
  Made made;
  made.magic = 0x00525453;
  EXPECT_EQ(found(made.file()), "0x2048: no header of code compiled ahead: RVA");
  made = Made();
  made.by_row = {{3, 100 << 1}};  // behind the last function
  EXPECT_EQ(found(made.file()), "");
  test::PeFile plain;
  plain.headers_size = 0x1000;
  plain.sections = {{".text", 0x1000, Bytes(16)}};
  EXPECT_EQ(found(plain.build(test::PeFile::kPacked)), "0x0: no code compiled ahead");
}

// Only that it ends, and reads nothing that is not there.
TEST(ReadyToRun, DamagedTablesEnd) {
  Made made;
  made.generic = {{0x44, 0x15, 0x12, 0x08, 0x01, 0x1c, 0x05, 0x01, 0x3f, 0x01, 0x11, 0x0c, 7 << 1},
                  {0x10, 0x06, 9 << 1}};
  const Bytes whole = made.file();
  std::mt19937 random(11);  // NOLINT(bugprone-random-generator-seed): the same each time
  std::size_t other = 0;
  for (int i = 0; i < 20'000; ++i) {
    Bytes file = whole;
    for (std::size_t n = 1 + random() % 4; n-- > 0;)
      file[0x1200 + random() % (file.size() - 0x1200)] = static_cast<std::uint8_t>(random());
    other += found(file) != found(whole) ? 1 : 0;
  }
  EXPECT_GT(other, 1'000U);
}

// The number of a machine XOR that of a system; an unknown system is none.
TEST(ReadyToRun, MachinesOfOtherSystemsAreKnown) {
  const auto machine = [](std::uint16_t field) {
    const Bytes file = Made(field).file();
    const auto image = PeImage::parse(view(file));
    return image ? fmt::format("{} {}", machine_name(image->machine()), image->is_of_other_system()) : "none";
  };
  EXPECT_EQ(machine(0x8664), "x64 false");
  EXPECT_EQ(machine(0x8664 ^ 0x7b79), "x64 true");
  EXPECT_EQ(machine(0xaa64 ^ 0x7b79), "ARM64 true");
  EXPECT_EQ(machine(0x8664 ^ 0x4644), "x64 true");
  EXPECT_EQ(machine(0x8664 ^ 0x7b78), "none");
  EXPECT_EQ(machine(0xa641 ^ 0x7b79), "none") << "ARM64EC is Windows' alone";
  const Bytes linux_x64 = Made().file();
  EXPECT_TRUE(machine_of(view(linux_x64)).runs_on(Architecture::kX86_64));
  EXPECT_FALSE(machine_of(view(linux_x64)).runs_on(Architecture::kAArch64));
}

}  // namespace
}  // namespace windlass::image
