// Values by location expressions (symbolize/locations.S): what DWARF 5, sections 2.5 and 2.6, says of each.
#include "symbols/dwarf_location.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "debug_information.h"
#include "support/made_up_memory.h"

namespace windlass::symbols {
namespace {

constexpr std::uint64_t kStack = 0x10000, kFrameBase = kStack + 0x40, kCfa = kStack + 0x80, kBias = 0x1000;
constexpr std::uint64_t kRax = 0x1122'3344'5566'7788, kRbx = 0x99aa'bbcc'ddee'ff01, kEntry = 0x5555;
constexpr RegisterNumber kRdi = 5;

// Words at different places differ.
test::MadeUpMemory make_memory(std::uint64_t base, std::size_t size) {
  test::MadeUpMemory memory(base, size);
  for (std::size_t i = 0; i < size; ++i) memory.bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256 * 13 + 3);
  return memory;
}

class MadeUpFrame final : public ExpressionFrame {
 public:
  using ExpressionFrame::ExpressionFrame;
  std::optional<std::uint64_t> cfa() override { return kCfa; }
  std::optional<std::uint64_t> frame_base() override { return kFrameBase; }
  std::optional<std::uint64_t> entry_value(std::uint64_t reg) override {
    return reg == kRdi ? std::optional(kEntry) : std::nullopt;
  }
};

class Locations : public testing::Test {
 protected:
  void SetUp() override {
    std::iota(reinterpret_cast<std::uint8_t*>(vectors_.data()),
              reinterpret_cast<std::uint8_t*>(vectors_.data() + vectors_.size()), std::uint8_t{1});
    x86_.set(0, kRax);
    x86_.set(3, kRbx);
    x86_.set_sp(kStack + 0x20);
    arm_.set(0, kRax);
    i386_.set(3, 0x12345678);
    i386_.set_sp(kStack + 0x20);
  }
  Dwarf_Attribute* location(const std::string& name) {
    const auto found = debug_.variables().find(name);
    if (found == debug_.variables().end()) ADD_FAILURE() << "no variable " << name;
    return dwarf_attr(&found->second, DW_AT_location, &attribute_);
  }
  LocatedValue read(const std::string& name, std::size_t size = 8, bool has_vectors = true) {
    return read_with(x86_, name, size, has_vectors);
  }
  LocatedValue read_with(const Registers& registers, const std::string& name, std::size_t size, bool has_vectors) {
    MadeUpFrame frame(registers, memory_, kBias,
                      has_vectors ? std::span<const std::byte>(vectors_) : std::span<const std::byte>());
    return read_located(location(name), 0, size, frame);
  }
  void expect_value(const std::string& name, std::uint64_t value, std::size_t size = 8) {
    const LocatedValue found = read(name, size);
    ASSERT_EQ(found.presence, Presence::kHere) << name;
    ASSERT_EQ(found.bytes.size(), size) << name;
    EXPECT_EQ(std::memcmp(found.bytes.data(), &value, size), 0) << name;
  }
  std::uint64_t word_at(std::uint64_t address, std::size_t size = 8) {
    std::uint64_t value = 0;
    EXPECT_TRUE(memory_.read(address, &value, size));
    return value;
  }
  std::optional<std::uint64_t> value(const std::string& name, MemoryReads reads = MemoryReads::kAllowed) {
    MadeUpFrame frame(x86_, memory_, kBias, {});
    return value_of(location(name), 0, frame, reads);
  }

  test::DebugInformation debug_{WINDLASS_LOCATIONS};
  test::MadeUpMemory memory_ = make_memory(kBias, 0x20000);
  Registers x86_{Architecture::kX86_64}, arm_{Architecture::kAArch64}, i386_{Architecture::kI386};
  std::vector<std::byte> vectors_ = std::vector<std::byte>(512);
  Dwarf_Attribute attribute_;
};

TEST_F(Locations, ARegisterHasTheValue) {
  for (const char* name : {"reg", "regx", "regx_of_two_bytes"}) {
    for (const std::size_t size : {1, 2, 4, 8}) expect_value(name, kRbx, size);
    EXPECT_EQ(read(name, 9).presence, Presence::kUnknown) << "more than a register has";
  }
  EXPECT_EQ(read("reg_not_known").presence, Presence::kUnknown);
  EXPECT_EQ(read("reg31", 8, false).presence, Presence::kUnknown);
  EXPECT_EQ(read("reg_and_more").presence, Presence::kUnknown);
  EXPECT_EQ(read("reg_on_a_stack").presence, Presence::kUnknown);
  EXPECT_EQ(read_with(i386_, "reg", 4, false).presence, Presence::kHere);
  EXPECT_EQ(read_with(i386_, "reg", 8, false).presence, Presence::kUnknown);
}

// Intel SDM volume 1, table 10-2: xmm0 is at 160 of FXSAVE's area. AArch64's v0 is the first of user_fpsimd_state.
TEST_F(Locations, AVectorRegisterHas16Bytes) {
  const auto is_at = [&](const LocatedValue& found, std::size_t at, std::size_t size) {
    return found.presence == Presence::kHere && found.bytes.size() == size &&
           std::memcmp(found.bytes.data(), vectors_.data() + at, size) == 0;
  };
  for (const std::size_t size : {1, 8, 16}) {
    EXPECT_TRUE(is_at(read("xmm0", size), 160, size)) << size;
    EXPECT_TRUE(is_at(read("xmm15", size), 160 + 15 * 16, size)) << size;
    EXPECT_TRUE(is_at(read("reg31", size), 160 + 14 * 16, size)) << size << " bytes of xmm14";
    EXPECT_TRUE(is_at(read_with(arm_, "v0", size, true), 0, size)) << size;
    EXPECT_TRUE(is_at(read_with(arm_, "v31", size, true), 31 * 16, size)) << size;
    EXPECT_EQ(read("behind_xmm15", size).presence, Presence::kUnknown);
    EXPECT_EQ(read_with(arm_, "behind_v31", size, true).presence, Presence::kUnknown);
    EXPECT_EQ(read("xmm0", size, false).presence, Presence::kUnknown);
  }
  EXPECT_EQ(read("xmm0", 17).presence, Presence::kUnknown);
  vectors_.resize(31 * 16 + 15);
  EXPECT_EQ(read_with(arm_, "v31", 8, true).presence, Presence::kUnknown) << "an area that is cut off";
  EXPECT_EQ(read_with(i386_, "xmm0", 8, true).presence, Presence::kUnknown);
}

TEST_F(Locations, AnAddressIsThatOfTheValue) {
  const std::uint64_t sp = kStack + 0x20;
  for (const std::size_t size : {1, 3, 8}) {
    expect_value("breg", word_at(sp + 16), size);
    expect_value("breg_down", word_at(sp - 16), size);
    expect_value("breg_at", word_at(sp), size);
    expect_value("bregx", word_at(sp + 16), size);
    expect_value("fbreg", word_at(kFrameBase - 16), size);
    expect_value("cfa", word_at(kCfa - 8), size);
    expect_value("addr", word_at(0x2000 + kBias), size);
  }
  EXPECT_EQ(read("breg", 100).bytes.size(), 100u) << "as large as it may be";
  EXPECT_EQ(read("breg_not_known").presence, Presence::kUnknown);
  EXPECT_EQ(read("breg0_of_0").presence, Presence::kUnknown) << "rax leads nowhere";
}

TEST_F(Locations, NumbersAreOfTheirSizeAndSign) {
  expect_value("lit31", 31);
  expect_value("const1u", 0xfb);
  expect_value("const1s", static_cast<std::uint64_t>(-5));
  expect_value("const2u", 0xfffb);
  expect_value("const2s", static_cast<std::uint64_t>(-5));
  expect_value("const4u", 0xffff'fffb);
  expect_value("const4s", static_cast<std::uint64_t>(-5));
  expect_value("const8u", 0x0807'0605'0403'0201);
  expect_value("constu", 128);
  expect_value("consts", static_cast<std::uint64_t>(-5));
  expect_value("arithmetic", 14);
  expect_value("nop", 5);
  expect_value("wraps", 0x1'0000'0000);
  std::uint32_t wrapped = 1;
  const LocatedValue narrow = read_with(i386_, "wraps", 4, false);
  ASSERT_EQ(narrow.presence, Presence::kHere);
  std::memcpy(&wrapped, narrow.bytes.data(), sizeof wrapped);
  EXPECT_EQ(wrapped, 0u) << "words of i386 have 4 bytes";
  EXPECT_EQ(read("lit31", 16).presence, Presence::kUnknown);
  for (const char* name : {"plus_of_one", "value_of_nothing", "value_and_more"})
    EXPECT_EQ(read(name).presence, Presence::kUnknown) << name;
}

TEST_F(Locations, MemoryIsReadOnTheWay) {
  const std::uint64_t sp = kStack + 0x20;
  expect_value("deref", word_at(sp));
  expect_value("deref_1", word_at(sp, 1));
  expect_value("deref_4", word_at(sp, 4));
  for (const char* name : {"deref_0", "deref_9", "deref_nowhere", "deref_nothing"})
    EXPECT_EQ(read(name).presence, Presence::kUnknown) << name;
}

TEST_F(Locations, JumpsAreTaken) {
  expect_value("branch_taken", 5);
  expect_value("branch_not_taken", 2);
  expect_value("skip", 5);
  expect_value("skip_back", 1);
  for (const char* name : {"branch_on_nothing", "skip_for_ever", "skip_into_an_operation"})
    EXPECT_EQ(read(name).presence, Presence::kUnknown) << name;
}

TEST_F(Locations, PiecesAreJoined) {
  const std::uint64_t joined = (kRbx & 0xffff'ffff) | kRax << 32;
  expect_value("pieces", joined);
  expect_value("pieces", joined, 6);
  expect_value("pieces", joined, 3);
  expect_value("bit_pieces", joined);
  expect_value("pieces_too_long", joined);
  expect_value("pieces_of_memory_and_value", (word_at(kStack + 0x20) & 0xffff) | 5 << 16);
  expect_value("pieces_too_short", kRbx, 4);
  EXPECT_EQ(read("piece_that_is_gone").presence, Presence::kOptimizedOut);
  expect_value("piece_that_is_gone", kRbx, 4);
  for (const char* name : {"bit_piece_of_some_bits", "bit_piece_within", "piece_not_known", "piece_of_nothing",
                           "pieces_too_short", "pieces_and_more", "pieces_65"})
    EXPECT_EQ(read(name).presence, Presence::kUnknown) << name;
  const LocatedValue most = read("pieces_64", 64);
  EXPECT_EQ(most.presence, Presence::kHere);
  EXPECT_EQ(most.bytes, std::vector<std::byte>(64, std::byte{5}));
}

TEST_F(Locations, WhatIsNowhereIsInTheExpressionOrGone) {
  expect_value("implicit", 0x0807'0605'0403'0201);
  expect_value("implicit_too_short", 0x0403'0201, 4);
  EXPECT_EQ(read("implicit_too_short").presence, Presence::kUnknown);
  EXPECT_EQ(read("implicit_pointer").presence, Presence::kOptimizedOut);
  MadeUpFrame frame(x86_, memory_, kBias, {});
  EXPECT_EQ(read_located(nullptr, 0, 8, frame).presence, Presence::kOptimizedOut);
}

TEST_F(Locations, AnEntryValueIsAskedOfTheCaller) {
  expect_value("entry_value", kEntry);
  EXPECT_EQ(read("entry_value_not_known").presence, Presence::kOptimizedOut);
  EXPECT_EQ(read("entry_value_of_more").presence, Presence::kUnknown);
}

TEST_F(Locations, TypesAreThoseOfIntegers) {
  expect_value("const_type", 0xffff'fffb, 4);
  expect_value("divides_with_sign", static_cast<std::uint64_t>(-2));
  expect_value("converts", kRbx & 0xff);
  expect_value("regval_type_of_8_bytes", kRbx);
  expect_value("regval_type", static_cast<std::uint64_t>(static_cast<std::int32_t>(kRbx)));
  expect_value("deref_type", static_cast<std::uint64_t>(static_cast<std::int32_t>(word_at(kStack + 0x20))));
  for (const char* name : {"const_type_of_another_size", "const_type_of_a_float", "converts_to_16_bytes",
                           "converts_nothing", "reinterprets_another_size", "deref_type_of_another_size"})
    EXPECT_EQ(read(name).presence, Presence::kUnknown) << name;
}

// DW_AT_frame_base and DW_AT_call_value: the expression itself is the value.
TEST_F(Locations, AnExpressionHasAValue) {
  EXPECT_EQ(value("reg"), kRbx);
  EXPECT_EQ(value("breg"), kStack + 0x30);
  EXPECT_EQ(value("const1s"), static_cast<std::uint64_t>(-5));
  EXPECT_EQ(value("deref"), word_at(kStack + 0x20));
  EXPECT_EQ(value("deref", MemoryReads::kRefused), std::nullopt);
  EXPECT_EQ(value("breg", MemoryReads::kRefused), kStack + 0x30);
  for (const char* name :
       {"reg_not_known", "pieces", "pieces_too_short", "implicit", "plus_of_one", "implicit_pointer"})
    EXPECT_EQ(value(name), std::nullopt) << name;
}

TEST_F(Locations, ARegisterAloneIsKnownAsOne) {
  const auto is = [&](const std::string& name, std::uint64_t number, bool is_bare) {
    const auto found = only_register(location(name));
    return found && found->number == number && found->is_bare == is_bare;
  };
  EXPECT_TRUE(is("reg", 3, true));
  EXPECT_TRUE(is("regx", 3, true));
  EXPECT_TRUE(is("reg31", 31, true));
  EXPECT_TRUE(is("breg_at", 7, true));
  EXPECT_TRUE(is("breg0_of_0", 0, true));
  EXPECT_TRUE(is("breg", 7, false));
  for (const char* name : {"pieces", "lit31", "cfa", "reg_and_more"})
    EXPECT_FALSE(only_register(location(name))) << name;
  EXPECT_FALSE(only_register(nullptr));
}

}  // namespace
}  // namespace windlass::symbols
