// LLVM's statepoint stack maps: as its own tool prints them, and a collector that moves what compiled code holds.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <random>
#include <sstream>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "support/run_command.h"
#include "windlass/managed/gc_roots.h"

namespace windlass::managed {
namespace {

using Location = LlvmStackMaps::Location;

std::vector<std::byte> section_of(const std::string& object) {
  const auto file = MappedFile::open(object);
  if (!file) return {};
  const auto elf = image::ElfImage::parse(file->bytes());
  const auto* section = elf ? elf->section(".llvm_stackmaps") : nullptr;
  if (section == nullptr) return {};
  const auto bytes = elf->stored_bytes(*section);
  return {bytes->data(), bytes->data() + bytes->size()};
}

std::string text_of(const Location& location) {
  std::ostringstream text;
  switch (location.kind) {
    case Location::kRegister: text << "Register R#" << location.reg; break;
    case Location::kDirect: text << "Direct R#" << location.reg << " + " << location.offset; break;
    case Location::kIndirect: text << "Indirect [R#" << location.reg << " + " << location.offset << "]"; break;
    case Location::kConstant: text << "Constant " << location.offset; break;
    case Location::kConstantIndex: text << "ConstantIndex " << location.offset; break;
  }
  return text.str();
}

// "19: Indirect [R#7 + 16], ...", a line a record, without the three constants; sorted.
std::vector<std::string> by_readobj(const std::string& object) {
  std::istringstream in(test::run(WINDLASS_LLVM_READOBJ " --stackmap " + object).output);
  std::vector<std::string> records;
  for (std::string line; std::getline(in, line);) {
    if (const auto at = line.find("instruction offset: "); at != std::string::npos)
      records.push_back(line.substr(at + 20) + ":");
    const auto number = line.find('#');
    if (number == std::string::npos || line.find(", size:") == std::string::npos) continue;
    const auto colon = line.find(": ", number);
    if (std::stoi(line.substr(number + 1)) > 3)
      records.back() += " " + line.substr(colon + 2, line.find(", size:") - colon - 2) + ",";
  }
  std::ranges::sort(records);
  return records;
}

class LlvmObject : public testing::TestWithParam<const char*> {};

TEST_P(LlvmObject, AsLlvmReadobjPrintsIt) {
  const std::string object = std::string(WINDLASS_STATEPOINTS) + "/statepoint-" + GetParam() + ".o";
  const std::vector<std::byte> section = section_of(object);
  ASSERT_FALSE(section.empty());
  const auto maps = LlvmStackMaps::open(section);
  ASSERT_TRUE(maps) << maps.error().text();
  ASSERT_GT(maps->size(), 2u);
  std::vector<std::string> records;
  for (std::size_t i = 0; i < maps->size(); ++i) {
    std::string line = std::to_string(maps->address(i)) + ":";  // functions begin at 0 in an object file
    ASSERT_TRUE(maps->each_pair(maps->address(i), [&](const Location& base, const Location& derived) {
      line += " " + text_of(base) + ", " + text_of(derived) + ",";
    }));
    records.push_back(line);
    const auto before = maps->each_pair(maps->address(i) - 1, [](const Location&, const Location&) {});
    EXPECT_EQ(before.has_value(), maps->has(maps->address(i) - 1)) << "in front of " << line;
  }
  std::ranges::sort(records);
  EXPECT_EQ(records, by_readobj(object));
  for (std::size_t size = 0; size < section.size(); ++size) {
    const auto cut = LlvmStackMaps::open(std::span(section).first(size));
    const bool padding = size + 8 > section.size();
    EXPECT_TRUE(size == 0 || padding || !cut) << size;
  }
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> damaged = section;
    for (int i = 0; i < 3; ++i) damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    const auto opened = LlvmStackMaps::open(damaged);
    for (std::size_t i = 0; opened && i < opened->size(); ++i)
      (void)opened->each_pair(opened->address(i), [](const Location&, const Location&) {});
  }
}
INSTANTIATE_TEST_SUITE_P(Machines, LlvmObject, testing::Values("x86_64", "aarch64"));

#if defined(__x86_64__) && !defined(WINDLASS_NO_STATEPOINTS)

using Object = std::array<std::uint64_t, 8>;
// The compiled code: its own calls of collect() are the safe points.
extern "C" Object* store_inside(Object* object, Object* other, bool which);
extern "C" std::uint64_t sum_of_many(Object*, Object*, Object*, Object*, Object*, Object*, Object*, Object*);
extern "C" const std::byte __LLVM_StackMaps[];

class Compiled : public Runtime {
 public:
  const Method* find(std::uint64_t pc) const override {
    for (const Method& method : methods_)
      if (pc >= method.begin && pc < method.end) return &method;
    return nullptr;
  }
  void add(const void* code) {
    const auto function = own_function(reinterpret_cast<std::uint64_t>(code));
    Method& method = methods_.emplace_back();
    method.begin = function->begin;
    method.end = function->end;
  }

 private:
  std::vector<Method> methods_;
};

// Two spaces; everything is moved at each collection, and what was left is overwritten.
struct Heap {
  std::array<std::array<Object, 8>, 2> spaces{};
  unsigned current = 0;
  unsigned roots = 0, derived = 0;
} heap;
const LlvmStackMaps* the_maps;
Compiled compiled;

std::uint64_t moved(std::uint64_t reference) {
  const auto from = reinterpret_cast<std::uint64_t>(heap.spaces[heap.current ^ 1].data());
  const auto to = reinterpret_cast<std::uint64_t>(heap.spaces[heap.current].data());
  EXPECT_LT(reference - from, sizeof heap.spaces[0]) << "no object of the space that is left";
  return reference - from + to;
}

void collect_now(void*) {
  heap.spaces[heap.current ^ 1] = heap.spaces[heap.current];
  heap.current ^= 1;
  heap.spaces[heap.current ^ 1] = {};
  const Registers here = capture_registers();
  StackWalker walker(own_process(), here);
  while (compiled.find(walker.frame().pc().lookup()) == nullptr) ASSERT_TRUE(walker.step());
  // The helper's own frames have saved registers of the compiled code.
  CrawlFrame frame;
  frame.state = CrawlState::kFrameless;
  frame.registers = walker.frame().registers;
  frame.saved = walker.frame().saved;
  const auto done = the_maps->each_root(frame, own_process().memory(), [](const Root& root) {
    ++heap.roots;
    heap.derived += root.derived ? 1 : 0;
    root.set(root.derived ? moved(root.base) + (root.value - root.base) : moved(root.value));
  });
  ASSERT_TRUE(done) << done.error().text();
}

extern "C" void collect() { windlass_call_saving_registers(collect_now, nullptr); }

TEST(LlvmStackMaps, ACollectorMovesWhatCompiledCodeHolds) {
  const std::vector<std::byte> object = section_of(WINDLASS_STATEPOINTS "/statepoint-x86_64.o");
  const auto maps = LlvmStackMaps::open(std::span(__LLVM_StackMaps, object.size()));
  ASSERT_TRUE(maps) << maps.error().text();
  the_maps = &*maps;
  compiled.add(reinterpret_cast<const void*>(&store_inside));
  compiled.add(reinterpret_cast<const void*>(&sum_of_many));
  auto& objects = heap.spaces[heap.current];
  objects[1][0] = 99;
  const Object* kept = store_inside(objects.data(), &objects[1], true);
  EXPECT_EQ(kept, heap.spaces[heap.current].data());
  EXPECT_EQ((*kept)[2], 77u);
  EXPECT_EQ((*kept)[3], 99u);
  EXPECT_GT(heap.derived, 0u);
  auto& now = heap.spaces[heap.current];
  for (std::uint64_t i = 0; i < 8; ++i) now[i][0] = std::uint64_t{1} << i;
  EXPECT_EQ(sum_of_many(&now[0], &now[1], &now[2], &now[3], &now[4], &now[5], &now[6], &now[7]), 255u);
  EXPECT_GE(heap.roots, 12u);
}

// A call site here, and there.
TEST(LlvmStackMaps, OursIsSmaller) {
  const std::vector<std::byte> section = section_of(WINDLASS_STATEPOINTS "/statepoint-x86_64.o");
  const auto maps = LlvmStackMaps::open(section);
  ASSERT_TRUE(maps);
  StackMap map{.code_size = 0x1000};
  for (std::size_t i = 0; i < maps->size(); ++i) {
    RootSite site{.offset = static_cast<std::uint32_t>(maps->address(i))};
    ASSERT_TRUE(maps->each_pair(maps->address(i), [&](const Location&, const Location& derived) {
      const bool in_reg = derived.kind == Location::kRegister;
      const RootSlot slot{in_reg ? in_register(derived.reg) : at_register(derived.reg, derived.offset)};
      if (std::ranges::find(site.live, slot) == site.live.end()) site.live.push_back(slot);
    }));
    map.sites.push_back(site);
  }
  const auto bytes = encode(map);
  ASSERT_TRUE(bytes) << bytes.error().text();
  RecordProperty("bytes_of_ours", static_cast<int>(bytes->size()));
  RecordProperty("bytes_of_llvm", static_cast<int>(section.size()));
  EXPECT_LT(bytes->size() * 4, section.size());
}
#endif

}  // namespace
}  // namespace windlass::managed
