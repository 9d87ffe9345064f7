// The object file that debuggers get, read by our own readers; by gdb: test_jit_debuggers.
#include <elf.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "image/elf.h"
#include "registration/gdb_object.h"
#include "source/unwind_source.h"
#include "windlass/backtrace.h"

namespace windlass::registration {
namespace {

TEST(RegisteredObject, SectionsSymbolsAndFrames) {
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 32};
  prologue.ops = {{4, prologue::Allocate{48}}};
  const std::vector<GeneratedLine> lines = {{.offset = 0, .file = "a.c", .line = 3}};
  const std::vector<GeneratedFunction> given = {
      {.address = 0x7000'0000, .size = 32, .name = "first", .prologue = &prologue, .lines = lines},
      {.address = 0x7000'0040, .size = 32, .name = "second", .prologue = &prologue},
      {.address = 0x7800'0000, .size = 32, .name = "third", .prologue = &prologue},
  };
  const auto batch = check_batch(given);
  ASSERT_TRUE(batch);
  const auto runs = runs_of(*batch);
  ASSERT_EQ(runs.size(), 2u);
  const auto bytes = make_object(*batch, runs);
  ASSERT_TRUE(bytes) << bytes.error().text();
  const ByteView view(bytes->data(), bytes->size());
  const auto image = image::ElfImage::parse(view);
  ASSERT_TRUE(image) << image.error().text();
  EXPECT_TRUE(image->problems().empty());
  std::vector<std::string> names;
  for (const image::Section& section : image->sections())
    if (section.type == SHT_NOBITS)
      names.push_back(fmt::format("{} {:#x} {}", section.name, section.address, section.size));
  EXPECT_EQ(names, (std::vector<std::string>{".text 0x70000000 96", ".text 0x78000000 32"}));
  for (const char* name : {".debug_info", ".debug_line", ".debug_abbrev", ".symtab"})
    EXPECT_NE(image->section(name), nullptr) << name;

  const auto source = source::open_source(view, image::PeLayout::kFile);
  ASSERT_TRUE(source);
  FrameRow row;
  for (const GeneratedFunction& function : given) {
    ASSERT_TRUE((*source)->row_at(function.address + 16, row));
    EXPECT_EQ(row.cfa.offset(), kOwnArchitecture == Architecture::kX86_64 ? 56 : 48);
    EXPECT_EQ((*source)->function_at(function.address)->end, function.address + 32);
  }
  EXPECT_FALSE((*source)->row_at(0x7000'0030, row));
}

TEST(RegisteredObject, NoLinesNoDebugInformation) {
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 32};
  const std::vector<GeneratedFunction> given = {{.address = 0x7000'0000, .size = 32, .prologue = &prologue}};
  const auto batch = check_batch(given);
  const auto bytes = make_object(*batch, runs_of(*batch));
  const auto image = image::ElfImage::parse(ByteView(bytes->data(), bytes->size()));
  ASSERT_TRUE(image);
  EXPECT_EQ(image->section(".debug_info"), nullptr);
}

}  // namespace
}  // namespace windlass::registration
