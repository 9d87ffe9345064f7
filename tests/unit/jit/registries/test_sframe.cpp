// sframe_register(): what the kernel is given, by something that stands in for it, as no kernel has it yet.
#include "jit/registries/sframe.h"

#include <sys/mman.h>

#include <cerrno>
#include <map>

#include <gtest/gtest.h>

#include "formats/sframe/read.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

using registries::SFrameSetup;

// Keeps what a kernel would, and reads it as one.
struct Known {
  std::map<std::uint64_t, SFrameSetup> sections;  // by sframe_start
  std::size_t refuse_from = 100;                  // how many it takes
  bool sound = true;

  // The row for an address, by the sections there are.
  [[nodiscard]] Expected<FrameRow> row_at(std::uint64_t address) const {
    for (const auto& [start, setup] : sections) {
      if (address - setup.text_start >= setup.text_size) continue;
      const auto* bytes = reinterpret_cast<const std::byte*>(start);  // NOLINT(performance-no-int-to-ptr): it is one
      const auto section = sframe::Section::parse(ByteView(bytes, setup.sframe_size), start);
      if (!section) return Failure(section.error());
      const auto function = section->find(address);
      if (!function) return Failure(function.error());
      FrameRow row;
      if (const auto ok = section->row_at(*function, address, row); !ok) return Failure(ok.error());
      return row;
    }
    return fail(ErrorCode::kNotFound, "no section", address);
  }
};

class FakeKernel final : public registries::SFrameKernel {
 public:
  explicit FakeKernel(Known& known) : known_(known) {}
  int add(const SFrameSetup& setup) override {
    if (known_.sections.size() >= known_.refuse_from) return EINVAL;
    known_.sound = known_.sections.emplace(setup.sframe_start, setup).second && known_.sound;
    return 0;
  }
  int remove(const SFrameSetup& setup) override {
    known_.sound = known_.sections.erase(setup.sframe_start) == 1 && setup.sframe_size == 0 && setup.text_start == 0 &&
                   setup.text_size == 0 && known_.sound;
    return 0;
  }

 private:
  Known& known_;
};

// Room for code that nobody runs.
const std::uint64_t kCode = reinterpret_cast<std::uint64_t>(
    ::mmap(nullptr, 1 << 20, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
constexpr RegisterNumber kPushed = kOwnArchitecture == Architecture::kX86_64 ? 3 : 19;
constexpr std::int32_t kEntry = kOwnArchitecture == Architecture::kX86_64 ? 8 : 0;

Prologue frame_of(std::uint32_t size) {
  Prologue f{.architecture = kOwnArchitecture, .code_size = 32};
  f.ops = {{4, prologue::push(kPushed, 16)}, {8, prologue::Allocate{size}}};
  return f;
}

GeneratedFunction at(std::uint64_t address, const Prologue& prologue) {
  return {.address = address, .size = prologue.code_size, .name = "f", .prologue = &prologue};
}

std::int32_t depth_at(const Known& known, std::uint64_t address) {
  const auto row = known.row_at(address);
  return row ? row->cfa.offset() : -1;
}

TEST(SFrameRegistrar, TheKernelFindsTheRows) {
  Known known;
  const Prologue small = frame_of(32), large = frame_of(4096);
  {
    const auto registrar = registries::make_sframe_registrar(std::make_unique<FakeKernel>(known));
    const auto first = registrar->add(std::vector{at(kCode, small), at(kCode + 48, large), at(kCode + 4096, small)});
    ASSERT_TRUE(first) << first.error().text();
    EXPECT_EQ(known.sections.size(), 2u) << "one for each run of code";
    const auto second = registrar->add(std::vector{at(kCode + 8192, large)});
    ASSERT_TRUE(second) << second.error().text();
    EXPECT_EQ(depth_at(known, kCode), kEntry);
    EXPECT_EQ(depth_at(known, kCode + 8), kEntry + 16 + 32);
    EXPECT_EQ(depth_at(known, kCode + 48 + 8), kEntry + 16 + 4096);
    EXPECT_EQ(depth_at(known, kCode + 4096 + 4), kEntry + 16);
    EXPECT_EQ(depth_at(known, kCode + 8192 + 31), kEntry + 16 + 4096);
    EXPECT_EQ(known.row_at(kCode + 40).error().code, ErrorCode::kNotFound) << "between two functions";
    ASSERT_TRUE(registrar->remove(*first));
    EXPECT_EQ(known.sections.size(), 1u);
    EXPECT_EQ(depth_at(known, kCode + 8), -1);
    EXPECT_EQ(depth_at(known, kCode + 8192 + 8), kEntry + 16 + 4096);
    EXPECT_FALSE(registrar->remove(*first));
  }
  EXPECT_TRUE(known.sections.empty()) << "the registrar's end takes away the rest";
  EXPECT_TRUE(known.sound);
}

TEST(SFrameRegistrar, AllOfABatchOrNothing) {
  Known known;
  known.refuse_from = 2;
  const Prologue f = frame_of(32);
  const auto registrar = registries::make_sframe_registrar(std::make_unique<FakeKernel>(known));
  const auto refused = registrar->add(std::vector{at(kCode, f), at(kCode + 4096, f), at(kCode + 8192, f)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kSystem);
  EXPECT_EQ(refused.error().where, kCode + 8192);
  EXPECT_EQ(refused.error().detail, static_cast<std::uint64_t>(EINVAL));
  EXPECT_TRUE(known.sections.empty());
  EXPECT_TRUE(known.sound);
  EXPECT_TRUE(registrar->add(std::vector{at(kCode, f)})) << "what was refused is not registered";
}

TEST(SFrameRegistrar, WhatSFrameCannotSay) {
  Known known;
  FrameRow row;
  row.end = 32;
  row.cfa = CfaRule::expression({0, 0});
  row.return_address = RegisterRule::at_cfa(-8);
  const auto registrar = registries::make_sframe_registrar(std::make_unique<FakeKernel>(known));
  const auto refused =
      registrar->add(std::vector{GeneratedFunction{.address = kCode, .size = 32, .rows = std::span(&row, 1)}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(known.sections.empty());
}

// The registry is there if the kernel is, and else says what is missing.
TEST(SFrameRegistrar, IsProbed) {
  const auto kernel = registries::find_sframe_kernel();
  const auto registrar = open_registrar(Registry::kSFrame);
  EXPECT_EQ(registrar.has_value(), kernel.has_value());
  if (registrar) return;
  EXPECT_EQ(registrar.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(std::string_view(registrar.error().what).find("sframe_register()"), std::string_view::npos);
}

}  // namespace
}  // namespace windlass
