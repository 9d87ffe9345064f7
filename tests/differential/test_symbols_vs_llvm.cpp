// Functions, inlined frames, files and lines compared with llvm-symbolizer, address by address.
//
// Where the two deviate by design, and what is compared instead:
//  - GCC leaves local functions without a linkage name; llvm-symbolizer prints the bare name, Windlass the scope as
//  well:
//    "a::S::f" has to end in "f".
//  - clones (".isra.0", ".cold") are the function they were made from, constructors C1/C2 and destructors D1/D2 one.
//  - an address in the padding between functions, past the end of every symbol: llvm-symbolizer may name the function
//    before it, Windlass must not. Only addresses inside functions are asked.
//  - Go's table has "[...]" for arguments of types, and no suffix (".abi0") for the way of calling.
//  - for a function without debug information llvm-symbolizer gives the file of its STT_FILE symbol: no file is
//  compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "differential/peer.h"
#include "integration/go/program.h"
#include "symbols/symbol_files.h"
#include "symbols/symbolize.h"
#include "symbols/write_symbols.h"
#include "windlass/symbols.h"

namespace windlass {
namespace {

struct Named {
  std::string function, file;
  std::uint32_t line;
  bool operator==(const Named&) const = default;
};
using Stack = std::vector<Named>;

// Every third byte of every function with a size, thinned out where that is many.
std::vector<std::uint64_t> addresses_of(const std::string& path) {
  std::vector<std::uint64_t> addresses;
  peer::Lines lines("nm -S --defined-only '" + path + "'");
  while (const auto line = lines.next()) {
    unsigned long long begin = 0, size = 0;
    char type = 0;
    if (std::sscanf(std::string(*line).c_str(), "%llx %llx %c", &begin, &size, &type) != 3) continue;
    if (std::string("tTwW").find(type) == std::string::npos) continue;
    for (std::uint64_t offset = 0; offset < size; offset += 3) addresses.push_back(begin + offset);
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  while (addresses.size() > 20'000) {  // thin out evenly
    for (std::size_t i = 0; i * 2 < addresses.size(); ++i) addresses[i] = addresses[i * 2];
    addresses.resize(addresses.size() / 2);
  }
  return addresses;
}

std::vector<Stack> theirs(const std::string& path, const std::vector<std::uint64_t>& addresses) {
  const std::string input = ::testing::TempDir() + "windlass-addresses";
  std::ofstream file(input);
  for (const auto address : addresses) file << fmt::format("{:#x}\n", address);
  file.close();
  std::vector<Stack> stacks;
  peer::Lines lines(fmt::format(
      "llvm-symbolizer-19 --obj='{}' --functions=linkage --no-demangle --output-style=GNU -a <{}", path, input));
  std::string function;
  bool is_name = true;
  while (const auto line = lines.next()) {
    if (line->starts_with("0x")) {
      stacks.emplace_back();
      is_name = true;
    } else if (is_name) {
      function = *line;
      is_name = false;
    } else {
      const std::string at(line->substr(0, line->find(" (discriminator")));
      const auto colon = at.rfind(':');
      const std::string name = at.substr(0, colon);
      stacks.back().push_back({function, name == "??" ? "" : std::filesystem::path(name).lexically_normal().string(),
                               static_cast<std::uint32_t>(std::strtoul(at.c_str() + colon + 1, nullptr, 10))});
      is_name = true;
    }
  }
  return stacks;
}

std::vector<Stack> stacks_of(const profile::Profile& profile) {
  std::vector<Stack> stacks;
  for (const auto& location : profile.locations) {
    stacks.emplace_back();
    for (const auto& line : location.lines) {
      const auto& function = profile.functions[line.function];
      stacks.back().push_back(
          {function.system_name, std::filesystem::path(function.file).lexically_normal().string(), line.line});
    }
  }
  return stacks;
}

std::vector<Stack> ours(const std::string& path, const std::vector<std::uint64_t>& addresses) {
  profile::Profile profile;
  profile.modules = {{.path = path, .open_path = path}};
  for (const auto address : addresses) profile.locations.push_back({.module = 0, .address = address});
  symbols::symbolize(profile);
  return stacks_of(profile);
}

// The same by the public interface, in batches, as a caller would ask.
std::vector<Stack> by_symbolizer(const std::string& path, const std::vector<std::uint64_t>& addresses) {
  std::vector<Stack> stacks;
  const auto symbolizer = Symbolizer::of_file(path);
  if (!symbolizer) return stacks;
  constexpr std::size_t kBatch = 1000;
  for (std::size_t begin = 0; begin < addresses.size(); begin += kBatch) {
    std::vector<CodeAddress> pcs;
    for (std::size_t i = begin; i < std::min(begin + kBatch, addresses.size()); ++i)
      pcs.push_back(CodeAddress::instruction(addresses[i]));
    for (const NamedAddress& named : symbolizer->name(pcs)) {
      stacks.emplace_back();
      for (const SourceFrame& frame : named.frames)
        stacks.back().push_back({std::string(frame.linkage_name),
                                 std::filesystem::path(frame.file).lexically_normal().string(), frame.line});
    }
  }
  return stacks;
}

// The same from the symbol file of the program, as for a stripped one that nobody has any more.
std::vector<Stack> by_symbol_file(const std::string& path, const std::vector<std::uint64_t>& addresses) {
  auto written = symbols::write_symbols(path);
  if (!written) {
    ADD_FAILURE() << path << ": " << written.error().text();
    return {};
  }
  symbols::SymbolFiles files;
  files.add("test", [&](const std::string& id) -> Expected<std::optional<symbols::SymbolBytes>> {
    if (id != written->build_id) return std::nullopt;
    return symbols::SymbolBytes{.mapped = {}, .copied = written->file};
  });
  profile::Profile profile;
  profile.modules = {{.path = "/gone", .build_id = written->build_id}};
  for (const auto address : addresses) profile.locations.push_back({.module = 0, .address = address});
  symbols::SymbolizeOptions how;
  how.symbol_files = &files;
  how.late = true;
  symbols::symbolize(profile, how);
  std::printf(
      "%s: %zu bytes of symbols, %.2f%% of the file\n", path.c_str(), written->file.size(),
      100.0 * static_cast<double>(written->file.size()) / static_cast<double>(std::filesystem::file_size(path)));
  return stacks_of(profile);
}

// "_ZN1SC2Ev.cold" and "_ZN1SC1Ev" -> the same.
std::string plain(std::string name) {
  for (const char* clone : {".cold", ".isra.", ".part.", ".constprop.", ".abi0"})
    name.resize(std::min(name.find(clone), name.size()));
  for (const auto& [variant, base] :
       {std::pair{"C1E", "C2E"}, {"D1E", "D2E"}, {"C4E", "C2E"}, {"D4E", "D2E"}, {"C1I", "C2I"}, {"C4I", "C2I"}})
    for (auto at = name.find(variant); at != std::string::npos; at = name.find(variant)) name.replace(at, 3, base);
  return name;
}

// "type..eq.[5]main.t" -> "type..eq.[...]main.t", as Go's table has names with arguments of types.
std::string without_arguments(const std::string& name) {
  const std::size_t open = name.find('['), close = name.rfind(']');
  return close == std::string::npos || close < open ? name : name.substr(0, open) + "[...]" + name.substr(close + 1);
}

bool same_name(const std::string& mine, const std::string& peer) {
  return plain(mine) == plain(peer) || mine.ends_with("::" + peer) || mine == without_arguments(peer);
}

bool same(const Stack& mine, const Stack& peer) {
  if (mine.size() != peer.size()) return false;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (!same_name(mine[i].function, peer[i].function)) return false;
    if (mine[i].line != peer[i].line || (mine[i].line != 0 && mine[i].file != peer[i].file)) return false;
  }
  return true;
}

std::string text_of(const Stack& stack) {
  std::string text;
  for (const auto& frame : stack) text += fmt::format("    {} {}:{}\n", frame.function, frame.file, frame.line);
  return text;
}

// Each address has the names of the program itself, which compare() compares with the peer's.
void expect_symbol_file_agrees(const std::string& path) {
  const auto addresses = addresses_of(path);
  const auto mine = ours(path, addresses), late = by_symbol_file(path, addresses);
  ASSERT_EQ(mine.size(), late.size());
  ASSERT_GT(addresses.size(), 40u);
  for (std::size_t i = 0; i < addresses.size(); ++i)
    ASSERT_EQ(mine[i], late[i]) << fmt::format("{:#x}\n  the program\n{}  the symbol file\n{}", addresses[i],
                                               text_of(mine[i]), text_of(late[i]));
}

void compare(const std::string& path, double allowed) {
  if (!peer::have("llvm-symbolizer-19")) GTEST_SKIP() << "llvm-symbolizer-19 is not installed";
  const auto addresses = addresses_of(path);
  const auto mine = ours(path, addresses), peers = theirs(path, addresses);
  ASSERT_EQ(mine.size(), peers.size());
  EXPECT_TRUE(mine == by_symbolizer(path, addresses))
      << "a profile's names and the public interface's are not the same";
  std::size_t different = 0, inlined = 0;
  std::string examples;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    inlined += mine[i].size() > 1;
    if (same(mine[i], peers[i])) continue;
    if (++different <= 4)
      examples +=
          fmt::format("{:#x}\n  windlass\n{}  llvm-symbolizer\n{}", addresses[i], text_of(mine[i]), text_of(peers[i]));
  }
  std::printf("%s: %zu addresses, %zu with inlined frames, %zu different\n", path.c_str(), addresses.size(), inlined,
              different);
  ASSERT_FALSE(addresses.empty());
  EXPECT_LE(static_cast<double>(different), allowed * static_cast<double>(addresses.size())) << examples;
}

TEST(SymbolsVsLlvm, SmallProgramDwarf5) { compare(WINDLASS_INLINED, 0); }
TEST(SymbolsVsLlvm, SmallProgramDwarf4Compressed) { compare(WINDLASS_INLINED_DWARF4, 0); }
TEST(SymbolsVsLlvm, SmallProgramSplit) { compare(WINDLASS_INLINED_SPLIT, 0); }
// A large C++ program: functions whose DWARF and symbol table name different aliases of one piece of code remain.
// GNU ld gives every copy of a function that it leaves out (COMDAT) the addresses of the one it keeps, if both are of
// one size. So several units describe one place, as each was compiled, and either answer is right.
TEST(SymbolsVsLlvm, TheCommandItself) { compare(WINDLASS_COMMAND, 0.004); }
TEST(SymbolFilesVsLlvm, SmallPrograms) {
  expect_symbol_file_agrees(WINDLASS_INLINED);
  expect_symbol_file_agrees(WINDLASS_INLINED_DWARF4);
  expect_symbol_file_agrees(WINDLASS_INLINED_SPLIT);
}
TEST(SymbolFilesVsLlvm, TheCommandItself) { expect_symbol_file_agrees(WINDLASS_COMMAND); }
// A program of Go's: named by its own table, which the peer does not read; the peer has the DWARF of Go's compiler.
TEST(SymbolsVsLlvm, GoProgram) {
  if (const std::string why = test::make_go_program("steps"); !why.empty()) GTEST_SKIP() << why;
  compare(test::kGoFolder + "/steps", 0.004);
}

}  // namespace
}  // namespace windlass
