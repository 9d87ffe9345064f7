// What is known of a V8 in a PE image: by the version that it names, and by its builtins.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtimes/pe_export.h"
#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_facts.h"
#include "support/fake_ntdll.h"
#include "support/pe_corpora.h"
#include "support/pe_file.h"

namespace windlass::runtimes::v8 {
namespace {

std::vector<std::uint8_t> image_with(const std::string& text) {
  test::PeFile file;
  file.headers_size = 0x1000;
  file.image_size = 0x3000;
  file.sections = {{".text", 0x1000, std::vector<std::uint8_t>(16, 0xcc), true},
                   {".rdata", 0x2000, std::vector<std::uint8_t>(text.begin(), text.end())}};
  return file.build(test::PeFile::kPacked);
}

Expected<ImageFacts> facts_of(const std::string& text) {
  const auto bytes = image_with(text);
  const auto image = image::PeImage::parse(ByteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  return image ? ImageFacts::read_pe(*image) : Failure(image.error());
}

TEST(V8InPe, KnownVersionsHaveTheirLayout) {
  for (const char* version : {"10.2.154.26-node.39", "11.3.244.8-node.38", "12.4.254.21-node.57", "13.6.233.17-node.53",
                              "14.1.146.11-node.25", "14.6.202.34-node.34"}) {
    const auto facts = facts_of(std::string("-node.\0x-node.12", 16) + '\0' + version + '\0');
    ASSERT_TRUE(facts) << version << ": " << facts.error().text();
    EXPECT_EQ(facts->version(), std::stoi(version));
    EXPECT_TRUE(facts->builtins().empty());
    const auto layout = Layout::make(*facts);
    ASSERT_TRUE(layout) << version << ": " << layout.error().text();
    EXPECT_EQ(layout->map_type, 12U);
  }
}

TEST(V8InPe, OtherVersionsAreRefused) {
  const auto code_of = [](const std::string& text) {
    const auto facts = facts_of(text);
    return facts ? ErrorCode{} : facts.error().code;
  };
  const std::string end(1, '\0');
  EXPECT_EQ(code_of("10.1.124.8-node.13" + end), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of("12.5.1.2-node.1" + end), ErrorCode::kUnsupported);
  for (const std::string text : {"12.4.254.21-electron.0", "12.4-node.57", "12.4.254.21-node.57 and more",
                                 "99999999.4.254.21-node.57", "...-node.1", "1.2.3-node."})
    EXPECT_EQ(code_of(text + end), ErrorCode::kNotFound) << text;
  const std::string cut_off = "12.4.254.21-node.57";
  EXPECT_EQ(code_of(std::string(512 - cut_off.size(), ' ') + cut_off), ErrorCode::kNotFound);
}

// The runs of 20 and 26 differ in how the places of builtins are kept.
TEST(V8InPe, BuiltinsOfNodeAreFound) {
  unsigned seen = 0;
  for (const char* name : {"node-20", "node-26"}) {
    const auto opened = test::open_pe(std::string(WINDLASS_PE_CORPORA "/") + name + "/bin/node.exe");
    if (!opened) continue;
    ++seen;
    const auto facts = ImageFacts::read_pe(opened->image);
    ASSERT_TRUE(facts) << facts.error().text();
    EXPECT_GT(facts->builtins().size(), 1500U) << name;
    std::uint64_t end = 0;
    for (const ImageFacts::Builtin& builtin : facts->builtins()) {
      EXPECT_GE(builtin.begin, end);
      EXPECT_LT(builtin.begin, builtin.end);
      end = builtin.end;
    }
    for (const char* wanted : {"JSEntry", "JSConstructEntry", "InterpreterEntryTrampoline"}) {
      const auto found = std::ranges::find(facts->builtins(), wanted, &ImageFacts::Builtin::name);
      ASSERT_NE(found, facts->builtins().end()) << name << ' ' << wanted;
      const auto code = opened->image.at_rva(static_cast<std::uint32_t>(found->begin), 4);
      ASSERT_TRUE(code);
      const bool sets_up = code->data()[0] == std::byte{0x55} && code->data()[1] == std::byte{0x48};  // push rbp; mov
      EXPECT_TRUE(sets_up || !std::string(wanted).starts_with("JS")) << name << ' ' << wanted;
    }
  }
  if (seen == 0) GTEST_SKIP() << "SKIPPED: no Windows node by npm pack";
}

TEST(V8InPe, ExportsAreFoundInMemory) {
  test::FakeNtdll ntdll;
  auto memory = ntdll.memory();
  const std::uint64_t base = test::FakeNtdll::kBase;
  const auto found = find_pe_exporting(memory, base, "RtlDeleteFunctionTable");
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(*found, base);
  for (const char* other : {"RtlDeleteFunctionTabl", "RtlDeleteFunctionTables", "A", "zzz", ""})
    EXPECT_FALSE(find_pe_exporting(memory, base, other)) << other;
  EXPECT_FALSE(find_pe_exporting(memory, base + 0x1000, "RtlDeleteFunctionTable"));
  EXPECT_TRUE(is_pe_loaded(memory, base));
  // The headers come first, and zeros where the exports will be.
  for (std::uint64_t at = 0; at < 0x100; at += 8) memory.put<std::uint64_t>(base + test::FakeNtdll::kExports + at, 0);
  EXPECT_FALSE(is_pe_loaded(memory, base));
  EXPECT_FALSE(find_pe_exporting(memory, base, "RtlDeleteFunctionTable"));
}

}  // namespace
}  // namespace windlass::runtimes::v8
