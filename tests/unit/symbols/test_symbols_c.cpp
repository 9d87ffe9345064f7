// The C interface of the symbol reader, as the shared library has it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "live_process.h"
#include "nm.h"
#include "windlass/c/stack.h"
#include "windlass/c/symbols.h"

namespace {

std::uint64_t address_of(const std::string& symbol) { return windlass::test::symbols_of(WINDLASS_INLINED).at(symbol); }

std::string tail(const char* path) {
  return path == nullptr ? "" : std::string(path).substr(std::string(path).rfind('/') + 1);
}

// What callbacks said, as text.
struct Heard {
  std::vector<std::string> text;
  std::vector<std::size_t> indexes;
  std::size_t stop_after = SIZE_MAX;
};

int hear(const windlass_named_address* named, std::size_t index, void* user) {
  auto& heard = *static_cast<Heard*>(user);
  std::ostringstream text;
  text << (named->module == nullptr ? "-" : tail(named->module));
  for (std::size_t i = 0; i < named->frame_count; ++i) {
    const windlass_source_frame& frame = *named->frames[i];
    text << ((frame.flags & WINDLASS_FRAME_INLINED) != 0 ? " +" : " ") << frame.function;
    if (frame.file != nullptr) text << "@" << tail(frame.file) << ":" << frame.line;
  }
  heard.text.push_back(text.str());
  heard.indexes.push_back(index);
  return heard.text.size() >= heard.stop_after ? 1 : 0;
}

const std::string kInlined =
    " +outer::innermost@inlined.cpp:7 +outer::middle(int)@inlined.cpp:11 outer::Box::work(int)@inlined.cpp:19";

TEST(SymbolsFromC, AFile) {
  windlass_symbols* symbols = nullptr;
  ASSERT_EQ(windlass_symbols_open_file(WINDLASS_INLINED, nullptr, &symbols, nullptr), WINDLASS_OK);
  const std::uint64_t addresses[] = {address_of("wl_mark_inlined"), 1, address_of("wl_mark_plain")};
  Heard heard;
  ASSERT_EQ(windlass_symbols_name(symbols, addresses, 3, 0, hear, &heard, nullptr), WINDLASS_OK);
  const std::string file = tail(WINDLASS_INLINED);
  EXPECT_EQ(heard.text, (std::vector<std::string>{file + kInlined, file, file + " plain_c@inlined.cpp:37"}));
  EXPECT_EQ(heard.indexes, (std::vector<std::size_t>{0, 1, 2}));
  Heard once{.text = {}, .indexes = {}, .stop_after = 1};
  EXPECT_EQ(windlass_symbols_name(symbols, addresses, 3, 0, hear, &once, nullptr), WINDLASS_OK);
  EXPECT_EQ(once.text.size(), 1u);
  EXPECT_EQ(windlass_symbols_close(symbols), WINDLASS_OK);

  windlass_symbols_options options{};
  options.size = sizeof options;
  options.flags = WINDLASS_SYMBOLS_NO_LINES;
  options.threads = 1;
  ASSERT_EQ(windlass_symbols_open_file(WINDLASS_INLINED, &options, &symbols, nullptr), WINDLASS_OK);
  Heard plain;
  EXPECT_EQ(windlass_symbols_name(symbols, addresses, 1, 0, hear, &plain, nullptr), WINDLASS_OK);
  EXPECT_EQ(plain.text, std::vector<std::string>{file + " outer::Box::work(int)"});
  windlass_symbols_close(symbols);
}

TEST(SymbolsFromC, AProcessAndThisOne) {
  const windlass::test::LiveProcess process(WINDLASS_LIVE);
  ASSERT_TRUE(process.started());
  windlass_symbols* symbols = nullptr;
  ASSERT_EQ(windlass_symbols_open_process(static_cast<std::int64_t>(process.id()), nullptr, &symbols, nullptr),
            WINDLASS_OK);
  const std::uint64_t after = process.at("known_function") + 1;
  Heard heard;
  EXPECT_EQ(windlass_symbols_name(symbols, &after, 1, WINDLASS_RETURN_ADDRESS, hear, &heard, nullptr), WINDLASS_OK);
  ASSERT_EQ(heard.text.size(), 1u);
  EXPECT_NE(heard.text[0].find(" known_function@live.cpp:"), std::string::npos) << heard.text[0];
  windlass_symbols_close(symbols);

  ASSERT_EQ(windlass_symbols_open_self(nullptr, &symbols, nullptr), WINDLASS_OK);
  const auto own = reinterpret_cast<std::uint64_t>(&hear);
  Heard self;
  EXPECT_EQ(windlass_symbols_name(symbols, &own, 1, 0, hear, &self, nullptr), WINDLASS_OK);
  EXPECT_NE(self.text.at(0).find("hear"), std::string::npos) << self.text.at(0);
  windlass_symbols_close(symbols);
}

TEST(SymbolsFromC, WalkedFramesOfModulesOfOnesOwn) {
  windlass_symbols* symbols = nullptr;
  ASSERT_EQ(windlass_symbols_open_empty(nullptr, &symbols, nullptr), WINDLASS_OK);
  windlass_module module{};
  module.size = sizeof module;
  module.begin = 0x500000;
  module.end = 0x600000;
  module.bias = 0x500000;
  module.path = "/there/prog";
  module.file = WINDLASS_INLINED;
  ASSERT_EQ(windlass_symbols_add_module(symbols, &module, nullptr), WINDLASS_OK);
  EXPECT_EQ(windlass_symbols_add_module(symbols, &module, nullptr), WINDLASS_MALFORMED);
  windlass_frame frames[2] = {};
  for (windlass_frame& frame : frames) frame.size = sizeof frame;
  frames[0].pc = module.bias + address_of("wl_mark_inlined");
  frames[1].pc = module.bias + address_of("wl_mark_plain") + 1;
  frames[1].flags = WINDLASS_RETURN_ADDRESS;
  Heard heard;
  EXPECT_EQ(windlass_symbols_name_frames(symbols, frames, 2, hear, &heard, nullptr), WINDLASS_OK);
  EXPECT_EQ(heard.text, (std::vector<std::string>{"prog" + kInlined, "prog plain_c@inlined.cpp:37"}));
  windlass_symbols_close(symbols);
}

TEST(SymbolsFromC, MisuseAndErrors) {
  windlass_error error{};
  error.size = sizeof error;
  windlass_symbols* symbols = nullptr;
  EXPECT_EQ(windlass_symbols_open_file("/no/such/file", nullptr, &symbols, &error), WINDLASS_SYSTEM);
  EXPECT_EQ(symbols, nullptr);
  EXPECT_EQ(error.detail, static_cast<std::uint64_t>(ENOENT));
  EXPECT_NE(std::strlen(error.text), 0u);
  EXPECT_EQ(windlass_symbols_open_file("/etc/passwd", nullptr, &symbols, nullptr), WINDLASS_UNSUPPORTED);
  EXPECT_EQ(windlass_symbols_open_core(WINDLASS_INLINED, nullptr, nullptr, &symbols, nullptr), WINDLASS_UNSUPPORTED);
  EXPECT_EQ(windlass_symbols_open_minidump(WINDLASS_INLINED, nullptr, nullptr, &symbols, &error), error.status);
  EXPECT_NE(error.status, WINDLASS_OK);
  EXPECT_EQ(windlass_symbols_open_file(nullptr, nullptr, &symbols, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_open_file(WINDLASS_INLINED, nullptr, nullptr, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_open_process(-1, nullptr, &symbols, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_open_process(2147483646, nullptr, &symbols, nullptr), WINDLASS_SYSTEM);
  windlass_symbols_options options{};
  EXPECT_EQ(windlass_symbols_open_file(WINDLASS_INLINED, &options, &symbols, nullptr), WINDLASS_INVALID);
  options.size = sizeof options;
  options.flags = 0x80;
  EXPECT_EQ(windlass_symbols_open_file(WINDLASS_INLINED, &options, &symbols, nullptr), WINDLASS_INVALID);

  ASSERT_EQ(windlass_symbols_open_file(WINDLASS_INLINED, nullptr, &symbols, nullptr), WINDLASS_OK);
  const std::uint64_t address = 1;
  windlass_frame frame{};
  windlass_module module{};
  module.size = sizeof module;
  EXPECT_EQ(windlass_symbols_name(symbols, nullptr, 1, 0, hear, nullptr, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_name(symbols, &address, 1, 0, nullptr, nullptr, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_name(symbols, &address, 1, 8, hear, nullptr, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_name(symbols, nullptr, 0, 0, hear, nullptr, nullptr), WINDLASS_OK);
  EXPECT_EQ(windlass_symbols_name_frames(symbols, &frame, 1, hear, nullptr, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_add_module(symbols, &module, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_close(symbols), WINDLASS_OK);
  EXPECT_EQ(windlass_symbols_close(symbols), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_name(symbols, &address, 1, 0, hear, nullptr, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_symbols_close(nullptr), WINDLASS_INVALID);
}

// ---- stacks --------------------------------------------------------------------------------------------------------

struct HeardStacks {
  std::vector<std::string> first, text;    // the function of the first frame; all of it
  std::vector<std::uint32_t> ends, flags;  // of the stack; of the first frame
  int answer = 0;
};

int hear_stack(const windlass_named_stack* stack, void* user) {
  auto& heard = *static_cast<HeardStacks*>(user);
  const windlass_named_address* names = stack->frame_count != 0 ? stack->frames[0]->names : nullptr;
  heard.first.emplace_back(
      names == nullptr || names->frame_count == 0 ? "" : names->frames[names->frame_count - 1]->function);
  heard.text.emplace_back(stack->text);
  heard.ends.push_back(stack->end);
  heard.flags.push_back(stack->frame_count != 0 ? stack->frames[0]->flags : 0);
  return heard.answer;
}

TEST(StacksFromC, TheOwnBeginsWithTheCaller) {
  HeardStacks heard;
  ASSERT_EQ(windlass_own_named_stack(hear_stack, &heard), WINDLASS_OK);
  ASSERT_EQ(heard.first.size(), 1U);
  EXPECT_NE(heard.first[0].find("TheOwnBeginsWithTheCaller"), std::string::npos) << heard.text[0];
  EXPECT_NE(heard.text[0].find(" main+0x"), std::string::npos) << heard.text[0];
  EXPECT_EQ(heard.ends[0], static_cast<std::uint32_t>(WINDLASS_END_COMPLETE));
  EXPECT_EQ(heard.flags[0], WINDLASS_RETURN_ADDRESS);
  EXPECT_EQ(windlass_own_named_stack(nullptr, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_print_stack(-1), WINDLASS_SYSTEM);
}

TEST(StacksFromC, OfAProcess) {
  const windlass::test::LiveProcess process(WINDLASS_LIVE);
  ASSERT_TRUE(process.started());
  const std::string pid = std::to_string(process.id());
  HeardStacks heard;
  ASSERT_EQ(windlass_named_stacks(pid.c_str(), hear_stack, &heard, nullptr), WINDLASS_OK);
  ASSERT_FALSE(heard.text.empty());
  EXPECT_NE(heard.text[0].find(" main+0x"), std::string::npos) << heard.text[0];
  const auto tasks = std::filesystem::directory_iterator("/proc/" + pid + "/task");
  EXPECT_EQ(heard.text.size(), static_cast<std::size_t>(std::distance(begin(tasks), end(tasks))));
  HeardStacks one;
  one.answer = 1;  // enough
  ASSERT_EQ(windlass_named_stacks(pid.c_str(), hear_stack, &one, nullptr), WINDLASS_OK);
  EXPECT_EQ(one.text.size(), 1U);

  windlass_error error{};
  error.size = sizeof error;
  EXPECT_EQ(windlass_named_stacks("999999999", hear_stack, &heard, &error), WINDLASS_SYSTEM);
  EXPECT_EQ(error.detail, static_cast<std::uint64_t>(ESRCH));
  EXPECT_EQ(windlass_named_stacks(nullptr, hear_stack, &heard, &error), WINDLASS_INVALID);
  EXPECT_EQ(windlass_named_stacks(pid.c_str(), nullptr, nullptr, &error), WINDLASS_INVALID);
  EXPECT_EQ(windlass_print_stacks(pid.c_str(), -1, &error), WINDLASS_SYSTEM);
}

}  // namespace
