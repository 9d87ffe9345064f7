// V8's builtins in an ELF file without symbols: by the list of their places, and by the padding between them.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_facts.h"

namespace windlass::runtimes::v8 {
namespace {

constexpr std::uint32_t kCount = 1200, kSize = 64, kFirstNamed = 256;  // each of the builtins is as long
constexpr std::uint64_t kCodeAddress = 0x400000, kPage = 4096;

class ImageWithBuiltins {
 public:
  // `words`: of an entry of the list, as V8 12 (2), 11 (8) and 10 (7) have it; `first`: where the first builtin is.
  explicit ImageWithBuiltins(std::size_t words = 2, std::size_t first = kPage) {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB, header.e_ident[EI_VERSION] = 1;
    header.e_type = ET_DYN, header.e_machine = EM_X86_64, header.e_version = 1;
    header.e_ehsize = sizeof header, header.e_phoff = sizeof header, header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 2;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (words == 2)
        list.insert(list.end(), {(i + 1) * kSize, i});
      else
        list.insert(list.end(), {i * kSize, kSize - 4});
      list.resize(words * (i + 1));
    }
    list.insert(list.end(), {0, 0});
    code.assign(first + std::size_t{kCount} * kSize, 0x90);
    for (std::uint32_t i = 1; i <= kCount; ++i) std::memset(code.data() + first + i * kSize - 4, 0xcc, 4);
  }

  Elf64_Ehdr header{};
  std::uint32_t list_flags = PF_R;
  std::vector<std::uint32_t> list;
  std::string text;  // in front of the list
  std::vector<std::uint8_t> code;

  [[nodiscard]] Expected<ImageFacts> facts() const {
    const std::size_t text_at = sizeof header + 2 * sizeof(Elf64_Phdr), list_at = text_at + (text.size() + 7) / 8 * 8;
    const std::size_t list_size = list.size() * sizeof list.front();
    const std::size_t code_at = (list_at + list_size + kPage - 1) / kPage * kPage;
    Elf64_Phdr segments[2] = {
        {PT_LOAD, list_flags, 0, 0, 0, list_at + list_size, list_at + list_size, kPage},
        {PT_LOAD, PF_R | PF_X, code_at, kCodeAddress, kCodeAddress, code.size(), code.size(), kPage}};
    std::vector<std::byte> file(code_at + code.size());
    std::memcpy(file.data(), &header, sizeof header);
    std::memcpy(file.data() + sizeof header, segments, sizeof segments);
    std::memcpy(file.data() + text_at, text.data(), text.size());
    std::memcpy(file.data() + list_at, list.data(), list_size);
    std::memcpy(file.data() + code_at, code.data(), code.size());
    return ImageFacts::read_without_symbols({file.data(), file.size()});
  }
};

TEST(V8Blob, BuiltinsAreWhereThePaddingIs) {
  const auto facts = ImageWithBuiltins().facts();
  ASSERT_TRUE(facts) << facts.error().text();
  EXPECT_TRUE(facts->has_places_only());
  EXPECT_FALSE(facts->builtins_have_symbols());
  // The first ones may have been written by hand, with another frame at their entry.
  ASSERT_EQ(facts->builtins().size(), kCount - kFirstNamed);
  const std::uint64_t base = kCodeAddress + kPage;
  EXPECT_EQ(facts->code_begin(), base + kFirstNamed * kSize);
  for (std::uint32_t i = kFirstNamed; i < kCount; ++i) {
    const ImageFacts::Builtin* const found = facts->builtin_at(base + i * kSize + 7);
    ASSERT_NE(found, nullptr) << i;
    EXPECT_EQ(found->begin, base + i * kSize);
    EXPECT_EQ(found->end, base + (i + 1) * kSize - 4) << "without padding";
    EXPECT_EQ(found->name, "");
  }
  EXPECT_EQ(facts->builtin_at(base + (kFirstNamed + 1) * kSize - 1), nullptr);
}

// By offset and length; 28 bytes of V8 10, whose builtins begin no page, and 32 of V8 11.
TEST(V8Blob, EarlierListsAreReadToo) {
  for (const auto& [words, first] : {std::pair<std::size_t, std::size_t>{7, kPage + 0x240}, {7, kPage}, {8, kPage}}) {
    const auto facts = ImageWithBuiltins(words, first).facts();
    ASSERT_TRUE(facts) << words << ' ' << facts.error().text();
    ASSERT_EQ(facts->builtins().size(), kCount - kFirstNamed);
    const std::uint64_t at = kCodeAddress + first + 700 * kSize;
    const ImageFacts::Builtin* const found = facts->builtin_at(at + 7);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->begin, at);
    EXPECT_EQ(found->end, at + kSize - 4);
  }
  EXPECT_EQ(ImageWithBuiltins(8, kPage + 0x240).facts().error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ImageWithBuiltins(6).facts().error().code, ErrorCode::kNotFound);
}

// As node 18 is linked.
TEST(V8Blob, TheListMayStandBesideCode) {
  ImageWithBuiltins image;
  image.list_flags = PF_R | PF_X;
  const auto facts = image.facts();
  ASSERT_TRUE(facts) << facts.error().text();
  EXPECT_EQ(facts->builtins().size(), kCount - kFirstNamed);
  image.list_flags = PF_R | PF_W;
  EXPECT_EQ(image.facts().error().code, ErrorCode::kNotFound);
}

TEST(V8Blob, OnePlaceWithoutPaddingRefutesTheList) {
  ImageWithBuiltins image;
  image.code[kPage + std::size_t{700} * kSize - 1] = 0x90;
  EXPECT_EQ(image.facts().error().code, ErrorCode::kNotFound);
  ImageWithBuiltins filled;
  filled.code.assign(filled.code.size(), 0xcc);
  EXPECT_EQ(filled.facts().error().code, ErrorCode::kNotFound);
  ImageWithBuiltins more;  // what is in front of the list does not begin it
  more.list.insert(more.list.begin(), {64 * kCount, 0});
  EXPECT_TRUE(more.facts());
  ImageWithBuiltins cut;
  cut.code.pop_back();
  EXPECT_EQ(cut.facts().error().code, ErrorCode::kNotFound);
}

// As deno does.
TEST(V8Blob, TheVersionThatTheFileNamesTellsTheRest) {
  ImageWithBuiltins image;
  using namespace std::string_literals;
  image.text = "\0v1.0-rusty\0"s + "15.0.245.2-rusty\0"s;
  const auto facts = image.facts();
  ASSERT_TRUE(facts) << facts.error().text();
  EXPECT_FALSE(facts->has_places_only());
  EXPECT_FALSE(facts->unknown());
  EXPECT_EQ(facts->version(), 15);
  EXPECT_EQ(facts->instance_type("MAP_TYPE"), 268);
  EXPECT_EQ(facts->instance_type("SHARED_FUNCTION_INFO_TYPE"), 278);
  EXPECT_EQ(facts->instance_type("SCRIPT_TYPE"), 166) << "as in 14.6";
  ASSERT_EQ(facts->builtins().size(), kCount);
  EXPECT_EQ(facts->builtins()[66].name, "JSEntry");
  EXPECT_EQ(facts->builtins()[700].name, "");
  const auto layout = Layout::make(*facts);
  ASSERT_TRUE(layout) << layout.error().text();
  EXPECT_TRUE(layout->has_plain_lengths);
}

// As bun does, which has another engine.
TEST(V8Blob, AVersionWithoutBuiltinsIsNoV8) {
  for (const char* version : {"12.4.254.21-node.33", "15.0.245.2-rusty", "15.9.245.2-rusty"}) {
    ImageWithBuiltins image;
    image.text = std::string(version) + '\0';
    image.list.resize(40);
    EXPECT_EQ(image.facts().error().code, ErrorCode::kNotFound) << version;
  }
}

TEST(V8Blob, AVersionThatIsNotKnownLeavesThePlaces) {
  for (const char* version : {"15.9.245.2-rusty", "150.0.1.2-node.7"}) {
    ImageWithBuiltins image;
    image.text = std::string(version) + '\0';
    const auto facts = image.facts();
    ASSERT_TRUE(facts) << facts.error().text();
    EXPECT_TRUE(facts->has_places_only());
    ASSERT_TRUE(facts->unknown());
    EXPECT_EQ(facts->unknown()->code, ErrorCode::kUnsupported);
    EXPECT_EQ(facts->unknown()->where, static_cast<std::uint64_t>(std::atoi(version)));
  }
  for (const char* other : {"15.0.245.2-rustysrc", "15.0-rusty", "rusty"}) {
    ImageWithBuiltins image;
    image.text = std::string(other) + '\0';
    const auto facts = image.facts();
    ASSERT_TRUE(facts) << facts.error().text();
    EXPECT_TRUE(facts->has_places_only()) << other;
    EXPECT_FALSE(facts->unknown()) << other;
  }
}

TEST(V8Blob, OtherListsAreRefused) {
  ImageWithBuiltins reordered;
  std::swap(reordered.list[2 * 600 + 1], reordered.list[2 * 601 + 1]);
  EXPECT_EQ(reordered.facts().error().code, ErrorCode::kNotFound);
  ImageWithBuiltins few;
  few.list[2 * 900] = 1;  // ends the list
  EXPECT_EQ(few.facts().error().code, ErrorCode::kNotFound);
  ImageWithBuiltins other;
  other.header.e_machine = EM_AARCH64;
  EXPECT_EQ(other.facts().error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace windlass::runtimes::v8
