// Sources of images, asked in both ways: by address, and one after the other.
#include <gtest/gtest.h>
#include <sys/auxv.h>

#include "base/mapped_file.h"
#include "lookup/sources/unwind_source.h"
#include "support/made_up_memory.h"
#include "support/pe_image_builder.h"
#include "support/walk_target.h"
#include "windlass/backtrace.h"

namespace windlass::sources {
namespace {

using test::PeImageBuilder;
using test::UnwindInfoBytes;

const auto kIgnore = [](const Error&) {};

std::vector<Function> functions_of(const UnwindSource& source) {
  std::vector<Function> all;
  const auto add = [&](const Function& function) {
    all.push_back(function);
    return true;
  };
  const auto problem = [](const Error& error) { ADD_FAILURE() << error.text(); };
  source.for_each_function(add, problem);
  return all;
}

// Every function is found by its addresses, and its rows are those that its addresses have.
void expect_consistent(const UnwindSource& source, std::size_t at_least) {
  const std::vector<Function> all = functions_of(source);
  EXPECT_GE(all.size(), at_least);
  std::uint64_t rows = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Function& function = all[i];
    if (i + 1 < all.size() && all[i + 1].begin < function.end) continue;  // an address of both
    for (const std::uint64_t address : {function.begin, function.end - 1}) {
      const auto found = source.function_at(address);
      ASSERT_TRUE(found) << std::hex << address << found.error().text();
      ASSERT_EQ(found->begin, function.begin);
      ASSERT_EQ(found->end, function.end);
      ASSERT_EQ(found->primary, function.primary);
      ASSERT_EQ(found->record.offset, function.record.offset);
      ASSERT_EQ(found->personality.address, function.personality.address);
    }
    const auto compare = [&](const FrameRow& row) {
      ++rows;
      FrameRow found;
      ASSERT_TRUE(source.row_at(row.begin, found)) << std::hex << row.begin;
      ASSERT_EQ(found.cfa, row.cfa) << std::hex << row.begin;
      ASSERT_EQ(found.return_address, row.return_address) << std::hex << row.begin;
      ASSERT_EQ(found.registers.size(), row.registers.size()) << std::hex << row.begin;
      ASSERT_EQ(found.signal_frame, row.signal_frame) << std::hex << row.begin;
    };
    source.for_each_row(function, compare, kIgnore);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GE(rows, at_least);
}

TEST(ImageSources, ElfIsConsistent) {
  const auto file = MappedFile::open("/proc/self/exe");
  ASSERT_TRUE(file);
  const auto source = make_source(file->bytes(), image::PeLayout::kFile);
  EXPECT_EQ(source->architecture(), kOwnArchitecture);
  expect_consistent(*source, 100);
}

// The file's record and the mapped one are the same.
TEST(ImageSources, TheOwnProcessIsItsFile) {
  const auto file = MappedFile::open("/proc/self/exe");
  ASSERT_TRUE(file);
  const auto source = make_source(file->bytes(), image::PeLayout::kFile);
  const std::uint64_t bias = reinterpret_cast<std::uint64_t>(getauxval(AT_ENTRY)) - source->entry_point();
  std::size_t with_personality = 0;
  for (const Function& function : functions_of(*source)) {
    const auto own = own_function(function.begin + bias);
    ASSERT_TRUE(own) << own.error().text();
    ASSERT_EQ(own->begin, function.begin + bias);
    ASSERT_EQ(own->end, function.end + bias);
    ASSERT_EQ(own->fde, function.record.address + bias);
    ASSERT_EQ(own->personality != 0, function.on_exception);
    ASSERT_EQ(own->lsda, function.language_data.address == 0 ? 0 : function.language_data.address + bias);
    with_personality += own->personality != 0 ? 1 : 0;
  }
  EXPECT_GT(with_personality, 10u);
}

// Without an index by address in the file. What the linker has discarded begins at 0.
TEST(ImageSources, FunctionsEndAndDiscardedOnesAreNone) {
  test::CfiBuilder cfi;
  const std::uint64_t cie = cfi.cie(test::WalkTarget().cie_spec());
  cfi.fde(cie, 0, 0x40, {});
  cfi.fde(cie, 0x1000, 0x40, {});
  cfi.fde(cie, 0x1100, 0x40, {});
  cfi.raw().add(test::Bytes{0, 0, 0, 0});
  const auto file = test::elf_with_eh_frame(Architecture::kX86_64, std::vector<std::uint8_t>(0x200), 0x1000,
                                            cfi.raw().data(), 0x2000);
  const auto source = make_source(ByteView(file.data(), file.size()), image::PeLayout::kFile);
  std::vector<std::uint64_t> begins;
  for (const Function& function : functions_of(*source)) begins.push_back(function.begin);
  EXPECT_EQ(begins, (std::vector<std::uint64_t>{0x1000, 0x1100}));
  FrameRow row;
  for (const std::uint64_t address : {0x10u, 0xfffu, 0x1040u, 0x10ffu, 0x1140u}) {
    EXPECT_FALSE(source->function_at(address)) << address;
    const auto found = source->row_at(address, row);
    ASSERT_FALSE(found) << address;
    EXPECT_EQ(found.error().code, ErrorCode::kNotFound) << address;
  }
  EXPECT_TRUE(source->row_at(0x103f, row));
}

class X64 : public testing::Test {
 protected:
  X64() {
    UnwindInfoBytes info;  // push rbx; sub rsp, 32
    info.prolog_size = 5;
    info.slots = {UnwindInfoBytes::slot(5, 2, 3), UnwindInfoBytes::slot(1, 0, 3)};
    const std::initializer_list<int> code{0x53, 0x48, 0x83, 0xec, 0x20, 0x90, 0x90, 0x48, 0x83, 0xc4, 0x20, 0x5b, 0xc3};
    whole_ = builder_.text(code);
    const std::uint32_t end = builder_.next_text();
    const std::uint32_t info_at = builder_.data(info.bytes());
    builder_.entry(whole_, end, info_at);
    part_ = builder_.text({0x90, 0x90, 0x90, 0xc3});
    UnwindInfoBytes chained;
    chained.flags = 4;
    builder_.entry(part_, builder_.next_text(), builder_.data(chained.bytes().u32(whole_).u32(end).u32(info_at)));
    UnwindInfoBytes cleanup;  // UNW_FLAG_UHANDLER alone
    cleanup.flags = 2;
    cleaning_ = builder_.text(code);
    builder_.entry(cleaning_, builder_.next_text(), builder_.data(cleanup.bytes().u32(0x1234)));
    bytes_ = builder_.build();
    source_ = make_source(ByteView(std::span(bytes_)), image::PeLayout::kFile);
  }
  PeImageBuilder builder_;
  std::uint32_t whole_ = 0, part_ = 0, cleaning_ = 0;
  std::vector<std::uint8_t> bytes_;
  std::unique_ptr<UnwindSource> source_;
};

TEST_F(X64, PartsKnowTheirFunction) {
  expect_consistent(*source_, 3);
  EXPECT_EQ(source_->function_at(part_ + 1)->primary, whole_);
  EXPECT_EQ(source_->function_start(part_ + 1), whole_);
  EXPECT_EQ(source_->function_at(whole_)->primary, whole_);
}

TEST_F(X64, HandlersKnowTheirPass) {
  const auto cleaning = source_->function_at(cleaning_);
  ASSERT_TRUE(cleaning);
  EXPECT_EQ(cleaning->personality.address, 0x1234u);
  EXPECT_NE(cleaning->language_data.address, 0u);
  EXPECT_FALSE(cleaning->on_exception);
  EXPECT_TRUE(cleaning->on_termination);
  EXPECT_EQ(source_->function_at(whole_)->personality.address, 0u);
}

TEST_F(X64, RowsAreListedInOrder) {
  struct Collector : RowVisitor {
    void begin_section(std::string_view name) override { sections.emplace_back(name); }
    void row(const FrameRow& row) override { begins.push_back(row.begin); }
    std::vector<std::string> sections;
    std::vector<std::uint64_t> begins;
  } all;
  source_->for_each_row(all, kIgnore);
  EXPECT_EQ(all.sections, std::vector<std::string>{".pdata"});
  EXPECT_TRUE(std::ranges::is_sorted(all.begins));
  EXPECT_GE(all.begins.size(), 3u);
}

// Images of .NET for Linux have Windows' unwind information, and calls there do not preserve rsi and rdi.
TEST_F(X64, CodeForLinuxPreservesWhatLinuxDoes) {
  struct Collector : RowVisitor {
    void begin_section(std::string_view) override {}
    void row(const FrameRow& row) override { rows.push_back(row); }
    std::vector<FrameRow> rows;
  };
  const auto rules_of_rsi_and_rdi = [&](const UnwindSource& source) {
    Collector all;
    source.for_each_row(all, kIgnore);
    FrameRow one;
    EXPECT_TRUE(source.row_at(whole_ + 2, one));
    all.rows.push_back(one);
    std::size_t rules = 0;
    for (const FrameRow& row : all.rows)
      for (const RegisterEntry entry : row.registers) rules += entry.reg == 4 || entry.reg == 5 ? 1 : 0;
    EXPECT_GE(all.rows.size(), 4U);
    return rules;
  };
  const auto knows_rsi = [&](const UnwindSource& source) {
    const test::MadeUpMemory memory(0x10000, 128);
    Registers registers(Architecture::kX86_64), caller(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(whole_ + 5));
    registers.set_sp(0x10000);
    registers.set(4, 7), registers.set(3, 8);
    SavedLocations saved;
    EXPECT_TRUE(source.unwind({memory, registers}, caller, saved));
    EXPECT_TRUE(caller.has(3)) << "rbx was saved";
    return caller.has(4);
  };
  EXPECT_GT(rules_of_rsi_and_rdi(*source_), 0U);
  EXPECT_TRUE(knows_rsi(*source_));
  constexpr std::uint16_t kX64OnLinux = 0x8664 ^ 0x7b79;
  std::uint32_t headers = 0;
  std::memcpy(&headers, bytes_.data() + 0x3c, sizeof headers);
  std::memcpy(bytes_.data() + headers + 4, &kX64OnLinux, sizeof kX64OnLinux);
  const auto linux_source = make_source(ByteView(std::span(bytes_)), image::PeLayout::kFile);
  EXPECT_EQ(rules_of_rsi_and_rdi(*linux_source), 0U);
  EXPECT_FALSE(knows_rsi(*linux_source));
}

// Each of the two sources of an ARM64X image is asked for code of the other, and neither leads to the other for ever.
TEST(ImageSources, Arm64XHasTwoTablesAndNoCircle) {
  PeImageBuilder builder;
  builder.machine = image::PeMachine::kArm64;
  builder.text({0x53, 0x90, 0x5b, 0xc3});  // x64
  UnwindInfoBytes info;
  info.prolog_size = 1;
  info.slots = {UnwindInfoBytes::slot(1, 0, 3)};
  test::Bytes x64;
  x64.u32(0x1000).u32(0x1004).u32(builder.data(info.bytes()));
  builder.arm64_entry(0x1010, 1 | 16U << 2 | 1U << 23);  // packed: 16 instructions, a frame of 16 bytes
  builder.hybrid({0x1000 | 2, 4, 0x1010 | 1, 0x40}, {builder.data(x64), 12});
  const auto bytes = builder.build();
  const ByteView view{std::span(bytes)};
  const auto source = make_source(view, image::PeLayout::kFile);
  EXPECT_EQ(source->architecture(), Architecture::kAArch64);
  EXPECT_TRUE(source->function_at(0x1010));
  EXPECT_STREQ(source->foreign_code(0x1000).value_or(Error{}).what, "x64 code of an ARM64X image is not walked");
  const auto image = image::PeImage::parse(view, image::PeLayout::kFile);
  ASSERT_TRUE(image);
  const auto extra = make_extra_source(*image);
  ASSERT_NE(extra, nullptr);
  EXPECT_EQ(extra->architecture(), Architecture::kX86_64);
  EXPECT_TRUE(extra->function_at(0x1000));
  EXPECT_FALSE(extra->function_at(0x1010));
  test::WordMemory memory;
  Registers caller, callee(Architecture::kX86_64);
  callee.set_sp(0x8000);
  SavedLocations saved;
  memory.set(0x8000, 0x33);
  memory.set(0x8008, 0x1002);
  callee.set_pc(CodeAddress::instruction(0x1002));
  ASSERT_TRUE(extra->unwind({memory, callee}, caller, saved));
  EXPECT_EQ(caller.get(3), 0x33U);
  callee.set_pc(CodeAddress::instruction(0x1014));
  const auto refused = extra->unwind({memory, callee}, caller, saved);
  ASSERT_FALSE(refused);
  EXPECT_STREQ(refused.error().what, "ARM64EC code is not walked");
}

TEST(ImageSources, WhatIsNoImageSaysSo) {
  const std::uint8_t bytes[16] = {1, 2, 3};
  const auto source = make_source(ByteView(std::span(bytes)), image::PeLayout::kFile);
  EXPECT_FALSE(source->architecture());
  EXPECT_FALSE(source->function_at(0));
  unsigned problems = 0;
  const auto count = [&](const Error&) { ++problems; };
  source->for_each_function([](const Function&) { return true; }, count);
  EXPECT_EQ(problems, 1u);
  EXPECT_FALSE(open_source(ByteView(std::span(bytes)), image::PeLayout::kFile));
}

// All addresses of a function are those of where its image lies. 0 says that there is none.
TEST(Moved, AddressesButThoseThatAreNone) {
  Function function;
  function.begin = function.primary = 0x10;
  function.end = 0x20;
  const Function without = moved(function, 0x1000);
  EXPECT_EQ(without.begin, 0x1010u);
  EXPECT_EQ(without.primary, 0x1010u);
  EXPECT_EQ(without.end, 0x1020u);
  EXPECT_EQ(without.personality.address, 0u);
  EXPECT_EQ(without.language_data.address, 0u);
  EXPECT_EQ(without.record.address, 0u);
  function.personality.address = 0x30;
  function.language_data.address = 0x40;
  function.record.address = 0x50;
  const Function with = moved(function, 0x1000);
  EXPECT_EQ(with.personality.address, 0x1030u);
  EXPECT_EQ(with.language_data.address, 0x1040u);
  EXPECT_EQ(with.record.address, 0x1050u);
}

}  // namespace
}  // namespace windlass::sources
