// `windlass symbols`: a stripped program's samples lie in a store, and its names come later.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "profiler/export/pprof.h"
#include "profiler/store/open_store.h"
#include "support/run_command.h"
#include "symbols/symbol_writer.h"
#include "symbols/symbolize.h"

namespace windlass::test {
namespace {

namespace fs = std::filesystem;

class SymbolsCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    program_ = folder_ + "/program";
    fs::copy_file(WINDLASS_INLINED, program_);
    const auto file = MappedFile::open(program_);
    build_id_ = image::ElfImage::parse(file->bytes())->build_id();
    make_profile();
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Addresses with inlined calls, as a recording of the program without symbols has these.
  void make_profile() {
    profile::Profile whole;
    whole.modules = {{.path = program_, .open_path = program_, .build_id = build_id_}};
    for (std::uint64_t address = 0x1000; address < 0x3000; ++address)
      whole.locations.push_back({.module = 0, .address = address});
    symbols::symbolize(whole);
    profile_.modules = {{.path = "/stripped/program", .build_id = build_id_}};
    profile_.events = {{.period = 1'000'000}};
    profile_.duration_ns = 1'000'000'000;
    for (const profile::Location& location : whole.locations) {
      if (location.lines.size() < 2 || profile_.samples.size() == 40) continue;
      std::string stack;
      for (auto line = location.lines.rbegin(); line != location.lines.rend(); ++line)
        stack += ";" + whole.functions[line->function].name;
      expected_ += stack + "\n";
      profile_.samples.push_back({.locations = {static_cast<std::uint32_t>(profile_.locations.size())}, .count = 1});
      profile_.locations.push_back({.module = 0, .address = location.address});
    }
    ASSERT_GT(profile_.samples.size(), 3u);
  }
  std::string make_store() {
    const std::string path = folder_ + "/profiles.db";
    const auto store = store::open_store(path, {.write = true, .keep = {}});
    const store::Batch batch{.id = {.host = "here", .agent_start_ns = 1, .sequence = 0},
                             .begin_ns = 1'790'000'000'000'000'000,
                             .end_ns = 1'790'000'001'000'000'000,
                             .profile = profile_};
    EXPECT_TRUE((*store)->append(batch).value_or(false));
    return path;
  }
  CommandResult windlass(const std::string& arguments, const std::string& before = "") {
    return run(fmt::format("cd {} && {} {} {} 2>&1", folder_, before, WINDLASS_COMMAND, arguments));
  }
  // Each expected stack is a stack of the folded text.
  void expect_names(const std::string& folded) {
    std::size_t from = 0;
    for (std::size_t end = 0; (end = expected_.find('\n', from)) != std::string::npos; from = end + 1)
      EXPECT_NE(folded.find(expected_.substr(from, end - from) + " "), std::string::npos)
          << expected_.substr(from, end - from) << "\n"
          << folded;
  }

  std::string folder_ = ::testing::TempDir() + fmt::format("windlass-symbols-command-{}", getpid());
  std::string program_, build_id_, expected_;
  profile::Profile profile_;
};

TEST_F(SymbolsCommand, NamesOfTheStoreComeLater) {
  const std::string store = make_store();
  const auto before = windlass("report --folded " + store);
  EXPECT_NE(before.output.find("program+0x"), std::string::npos) << before.output;
  const auto pushed = windlass(fmt::format("symbols push program --to {}", store));
  EXPECT_EQ(pushed.status, 0) << pushed.output;
  EXPECT_NE(pushed.output.find(build_id_ + " program "), std::string::npos) << pushed.output;
  const auto after = windlass("report --folded " + store);
  EXPECT_EQ(after.output.find("program+0x"), std::string::npos) << after.output;
  expect_names(after.output);
  const auto listed = windlass("symbols list " + store);
  EXPECT_NE(listed.output.find(build_id_ + " program "), std::string::npos) << listed.output;
  EXPECT_NE(listed.output.find(" bytes, lines"), std::string::npos) << listed.output;
  ASSERT_EQ(windlass("symbols write program -o s").status, 0);
  for (const std::string& place : {store, folder_ + "/s"}) {
    const auto json = windlass("symbols list --json " + place).output;
    EXPECT_TRUE(json.starts_with(fmt::format(R"({{"build_id":"{}","name":"program","bytes":)", build_id_))) << json;
    EXPECT_NE(json.find(fmt::format(R"(,"contents":"lines","in":"{})", place)), std::string::npos) << json;
    EXPECT_TRUE(json.ends_with("\"}\n")) << json;
  }
  EXPECT_EQ(windlass("symbols push program --json --to " + store).status, 2);
}

TEST_F(SymbolsCommand, FunctionsAloneDoNotTakeThePlaceOfLines) {
  const std::string store = make_store();
  ASSERT_EQ(windlass("symbols push program --to " + store).status, 0);
  ASSERT_EQ(run(fmt::format("strip -g {}", program_)).status, 0);
  const auto second = windlass("symbols push program --to " + store);
  EXPECT_NE(second.output.find(": a file with more is there"), std::string::npos) << second.output;
  expect_names(windlass("report --folded " + store).output);
}

TEST_F(SymbolsCommand, AFolderNamesAProfileFile) {
  const std::string path = folder_ + "/profile.pb.gz";
  {
    std::string bytes;
    TextWriter out(&bytes);
    ASSERT_TRUE(exporter::write_pprof(profile_, out).has_value());
    out.flush();
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ASSERT_EQ(windlass("symbols write program -o s").status, 0);
  ASSERT_TRUE(
      fs::exists(fmt::format("{}/s/.build-id/{}/{}.wlsym", folder_, build_id_.substr(0, 2), build_id_.substr(2))));
  EXPECT_NE(windlass("report --folded profile.pb.gz").output.find("program+0x"), std::string::npos);
  expect_names(windlass("report --folded --symbols s profile.pb.gz").output);
  expect_names(windlass("report --folded profile.pb.gz", "WINDLASS_SYMBOLS=/none:s").output);
  // The folder, pushed to a store, which then names the file.
  const auto pushed = windlass("symbols push s --to t.db");
  EXPECT_EQ(pushed.status, 0) << pushed.output;
  expect_names(windlass("report --folded --symbols t.db profile.pb.gz").output);
}

TEST_F(SymbolsCommand, WhatHasNoNamesIsSaid) {
  ASSERT_EQ(run(fmt::format("strip {}", program_)).status, 0);
  const auto stripped = windlass("symbols write program");
  EXPECT_EQ(stripped.status, 1);
  EXPECT_NE(stripped.output.find("has no symbols, and no debug information was found"), std::string::npos)
      << stripped.output;
  const auto nowhere = windlass("symbols push program");
  EXPECT_EQ(nowhere.status, 2);
  std::ofstream(folder_ + "/cut.wlsym") << std::string("\x89WLSYM\r\n", 8) << "cut";
  const auto cut = windlass("symbols push cut.wlsym --to t.db");
  EXPECT_EQ(cut.status, 1);
  EXPECT_NE(cut.output.find("the symbol file is cut short"), std::string::npos) << cut.output;
}

// Names of a file are text of others.
TEST_F(SymbolsCommand, HostileNamesAreEscaped) {
  symbols::SymbolFileWriter writer;
  const wlsym::Frame frame{writer.function("\x1b[31mred\x1b[0m\n", "/\x1b]0;title\x07", 1), 5};
  writer.add(0, 0x10, {&frame, 1});
  const auto bytes = writer.finish({.build_id = build_id_, .name = "\x1b[2Jname"});
  ASSERT_TRUE(bytes.has_value());
  std::ofstream(folder_ + "/hostile.wlsym", std::ios::binary) << *bytes;
  const std::string store = make_store();
  for (const std::string& command :
       {"symbols push hostile.wlsym --to " + store, "symbols list " + store, "report " + store}) {
    const auto result = windlass(command);
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_EQ(result.output.find('\x1b'), std::string::npos) << command;
    EXPECT_NE(result.output.find("\\x1b["), std::string::npos) << command << "\n" << result.output;
  }
}

}  // namespace
}  // namespace windlass::test
