// `windlass dump` and `windlass rows` as their callers use them: the contract of their output and exit status.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/pe_builder.h"

namespace windlass {
namespace {

using nlohmann::json;

struct Result {
  int status = -1;  // exit status; 128 + n for signal n
  std::string out;
};

Result shell(const std::string& command) {
  Result result;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 65536> buffer{};
  for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    result.out.append(buffer.data(), got);
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

Result windlass(const std::string& arguments) { return shell(WINDLASS_COMMAND " " + arguments + " 2>/dev/null"); }
std::string fixture(const std::string& name) { return std::string(WINDLASS_FIXTURES) + "/" + name; }

std::vector<json> lines(const std::string& text) {
  std::vector<json> out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

void check_rule(const json& rule) {
  if (rule.is_string()) {
    EXPECT_TRUE(rule == "same" || rule == "undefined") << rule;
    return;
  }
  ASSERT_TRUE(rule.is_object()) << rule;
  const bool number = rule.contains("cfa") || rule.contains("cfa_value");
  const bool text = rule.contains("reg") || rule.contains("expr");
  const bool loaded = rule.contains("at");
  EXPECT_EQ(number + text + loaded, 1) << rule;
  if (loaded) {
    EXPECT_TRUE(rule["at"].at("reg").is_string() && rule["at"].at("offset").is_number_integer()) << rule;
  }
  if (rule.contains("cfa")) {
    EXPECT_TRUE(rule["cfa"].is_number_integer());
  }
}

TEST(Rows, JsonKeepsTheContract) {
  for (const char* name : {"eh.so", "debug.so", "directives.so"}) {
    const auto result = windlass("rows --json " + fixture(name));
    EXPECT_EQ(result.status, 0) << name;
    const auto rows = lines(result.out);
    EXPECT_GT(rows.size(), 15u) << name;
    for (const json& row : rows) {
      EXPECT_LT(row.at("begin").get<std::uint64_t>(), row.at("end").get<std::uint64_t>());
      const json& cfa = row.at("cfa");
      EXPECT_TRUE(cfa.contains("expr") || (cfa.at("reg").is_string() && cfa.at("offset").is_number_integer())) << cfa;
      check_rule(row.at("ra"));
      for (const auto& [reg, rule] : row.at("regs").items()) check_rule(rule);
    }
  }
}

TEST(Rows, EveryKindOfRule) {
  std::set<std::string> seen;
  for (const json& row : lines(windlass("rows --json " + fixture("directives.so")).out))
    for (const auto& [reg, rule] : row.at("regs").items())
      seen.insert(rule.is_string() ? rule.get<std::string>() : rule.begin().key());
  EXPECT_EQ(seen, (std::set<std::string>{"same", "undefined", "cfa", "cfa_value", "reg", "expr"}));
}

TEST(Dump, JsonKeepsTheContract) {
  const auto result = windlass("dump --json " + fixture("directives.so"));
  EXPECT_EQ(result.status, 0);
  const auto records = lines(result.out);
  ASSERT_EQ(records.size(), 5u);
  bool lsda = false;
  bool signal = false;
  for (const json& record : records) {
    EXPECT_EQ(record.at("format"), "dwarf");
    EXPECT_EQ(record.at("section"), ".eh_frame");
    EXPECT_TRUE(record.at("offset").is_number_integer());
    EXPECT_LT(record.at("begin").get<std::uint64_t>(), record.at("end").get<std::uint64_t>());
    EXPECT_TRUE(record.at("cie").is_number_integer());
    signal = signal || record.at("signal").get<bool>();
    lsda = lsda || record.at("lsda").is_number_integer();
    for (const json& instruction : record.at("instructions")) EXPECT_TRUE(instruction.at("op").is_string());
  }
  EXPECT_TRUE(signal);
  EXPECT_TRUE(lsda);
}

TEST(Dump, TextHasEveryEntry) {
  const auto result = windlass("dump " + fixture("directives.so"));
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("DW_CFA_GNU_args_size +16"), std::string::npos);
  EXPECT_NE(result.out.find("DW_CFA_register rcx in r11"), std::string::npos);
  EXPECT_NE(result.out.find("CIE version 1 augmentation \"zPLR\""), std::string::npos);
}

// An ARM64 image of a packed function, one with a record, one with a spoiled record, one that refers to the first.
std::string arm64_image() {
  test::PeBuilder builder(image::PeMachine::kArm64);
  const std::uint32_t text = builder.add(".text", std::vector<std::uint8_t>(0x800), true);
  test::ByteWriter xdata;
  xdata.u32(0x80 / 4 | 1U << 20 | 1U << 22 | 2U << 27);  // 128 bytes, handler, one epilogue, two words of codes
  xdata.u32(0x40 / 4 | 1U << 22);
  xdata.bytes({0xe1, 0x81, 0xc8, 0x82, 0x26, 0xfc, 0xe4, 0xe3});
  xdata.u32(text);
  const auto bad = static_cast<std::uint32_t>(xdata.size());
  xdata.u32(0x80 / 4 | 1U << 27);
  xdata.bytes({0x81, 0xee, 0xe4, 0xe4});
  const std::uint32_t at = builder.add(".xdata", xdata.data());
  test::ByteWriter table;
  table.u32(text), table.u32(1 | 32U << 2 | 2U << 16 | 3U << 21 | 3U << 23);
  table.u32(text + 0x100), table.u32(at);
  table.u32(text + 0x200), table.u32(at + bad);
  table.u32(text + 0x300), table.u32((at + 0x1000) | 3);  // .pdata follows
  builder.add_function_table(table.data());
  const std::vector<std::uint8_t> bytes = builder.build();
  const std::string path = testing::TempDir() + "windlass-arm64-" + std::to_string(::getpid()) + ".dll";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

TEST(Dump, WindowsArm64) {
  const std::string path = arm64_image();
  EXPECT_NE(shell(WINDLASS_COMMAND " dump --dumpbin " + path + " 2>&1").out.find("not printed in dumpbin's form"),
            std::string::npos);
  const auto result = windlass("dump --json " + path);
  EXPECT_EQ(result.status, 1);  // a record is wrong
  const auto records = lines(result.out);
  ASSERT_EQ(records.size(), 5U);
  const json& packed = records[0];
  EXPECT_EQ(packed, json::parse(R"({"format":"winarm64","begin":4096,"length":128,"packed":true,"flag":1,"reg_f":0,
    "reg_i":2,"h":0,"cr":3,"frame_size":48,"codes":[{"index":0,"op":"set_fp"},
    {"index":1,"op":"save_fplr_x","reg":29,"disp":-32},{"index":2,"op":"save_regp_x","reg":19,"disp":-16},
    {"index":4,"op":"end"}],"epilogs":[{"start":116,"index":1}],"handler":null})"));
  EXPECT_EQ(records[1], json::parse(R"({"format":"winarm64","begin":4352,"length":128,"packed":false,"flag":0,
    "info":8192,"version":0,"single_epilog":false,"codes":[{"index":0,"op":"set_fp"},
    {"index":1,"op":"save_fplr_x","reg":29,"disp":-16},{"index":2,"op":"save_regp","reg":21,"disp":16},
    {"index":4,"op":"save_r19r20_x","reg":19,"disp":-48},{"index":5,"op":"pac_sign_lr"},{"index":6,"op":"end"}],
    "epilogs":[{"start":64,"index":1}],"handler":4096,"handler_data":8212})"));
  EXPECT_EQ(records[2].at("begin"), 4608);
  EXPECT_EQ(records[3].at("offset"), 8192 + 20 + 4 + 1);  // the undefined code
  EXPECT_TRUE(records[3].at("error").is_string());
  EXPECT_EQ(records[4].at("parent_begin"), 4096);
  const auto text = windlass("dump " + path);
  EXPECT_NE(text.out.find("stp x29, lr, [sp, #-32]!"), std::string::npos);
  ::unlink(path.c_str());
}

TEST(Rows, WindowsArm64) {
  const std::string path = arm64_image();
  const auto result = windlass("rows --json " + path);
  EXPECT_EQ(result.status, 1);
  std::size_t errors = 0;
  const auto rows = lines(result.out);
  ASSERT_GT(rows.size(), 10U);
  for (const json& row : rows) {
    if (row.contains("error")) {
      ++errors;
      continue;
    }
    EXPECT_LT(row.at("begin").get<std::uint64_t>(), row.at("end").get<std::uint64_t>());
    EXPECT_TRUE(row.at("cfa").at("reg") == "sp" || row.at("cfa").at("reg") == "x29");
    check_rule(row.at("ra"));
    for (const auto& [reg, rule] : row.at("regs").items()) check_rule(rule);
  }
  EXPECT_GT(errors, 0U);
  EXPECT_EQ(rows[2], json::parse(R"({"begin":4104,"end":4108,"cfa":{"reg":"sp","offset":48},"ra":{"cfa":-40},
    "regs":{"x19":{"cfa":-16},"x20":{"cfa":-8},"x29":{"cfa":-48}}})"));
  ::unlink(path.c_str());
}

// An x64 image of 16 bytes of code at 0x1000 and `info` at 0x2000, with these entries.
std::string x64_image(std::initializer_list<int> info, std::initializer_list<std::uint32_t> entries) {
  test::PeBuilder builder(image::PeMachine::kAmd64);
  builder.add(".text", std::vector<std::uint8_t>(16, 0x90), true);
  test::ByteWriter xdata;
  for (const int byte : info) xdata.u8(static_cast<std::uint8_t>(byte));
  builder.add(".xdata", xdata.data());
  test::ByteWriter table;
  for (const std::uint32_t word : entries) table.u32(word);
  builder.add_function_table(table.data());
  const std::vector<std::uint8_t> bytes = builder.build();
  const std::string path = testing::TempDir() + "windlass-x64-" + std::to_string(::getpid()) + ".dll";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

// Two functions of coreclr.dll, as Microsoft's tool lists them (mattwarren.org, "Stack Walking in the .NET Runtime").
// Addresses, names and the contents of the handlers' data differ.
TEST(Dump, WindowsX64AsDumpbinPrintsIt) {
  const std::string path = x64_image(
      {0x19, 0x3b, 13,   0, 0x29, 0xc4, 0x39, 0,    0x25, 0x74, 0x38, 0, 0x21, 0x64, 0x37, 0, 0x1d, 0x34, 0x36, 0,
       0x10, 0x01, 0x32, 0, 0x09, 0xf0, 0x07, 0xe0, 0x05, 0xd0, 0,    0, 0x00, 0x10, 0,    0, 0,    0,    0,    0,  //
       0x19, 0x0a, 2,    0, 0x0a, 0x32, 0x06, 0x50, 0x04, 0x10, 0,    0, 0,    0,    0,    0},
      {0x1000, 0x1008, 0x2000, 0x1008, 0x1010, 0x2028});
  const Result result = windlass("dump --dumpbin " + path);
  std::remove(path.c_str());
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find(R"(  00000000 00001000 00001008 00002000  
    Unwind version: 1
    Unwind flags: EHANDLER UHANDLER
    Size of prologue: 0x3B
    Count of codes: 13
    Unwind codes:
      29: SAVE_NONVOL, register=r12 offset=0x1C8
      25: SAVE_NONVOL, register=rdi offset=0x1C0
      21: SAVE_NONVOL, register=rsi offset=0x1B8
      1D: SAVE_NONVOL, register=rbx offset=0x1B0
      10: ALLOC_LARGE, size=0x190
      09: PUSH_NONVOL, register=r15
      07: PUSH_NONVOL, register=r14
      05: PUSH_NONVOL, register=r13
    Handler: 00001000
)"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find(R"(  0000000C 00001008 00001010 00002028  
    Unwind version: 1
    Unwind flags: EHANDLER UHANDLER
    Size of prologue: 0x0A
    Count of codes: 2
    Unwind codes:
      0A: ALLOC_SMALL, size=0x20
      06: PUSH_NONVOL, register=rbp
    Handler: 00001004
)"),
            std::string::npos)
      << result.out;
}

// One with a handler and data, one that ends before it begins, one whose information is nowhere.
TEST(Dump, WindowsX64) {
  const std::string path = x64_image({0x09, 4, 1, 0, 4, 0x42, 0, 0, 0, 0x10, 0, 0, 7, 0, 0, 0},
                                     {0x1000, 0x1008, 0x2000, 0x100c, 0x1008, 0x2000, 0x100c, 0x1010, 0x900000});
  const auto dumped = windlass("dump --json " + path);
  EXPECT_EQ(dumped.status, 1);
  auto records = lines(dumped.out);
  EXPECT_EQ(std::erase_if(records, [](const json& record) { return record.contains("error"); }), 2U);
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0], json::parse(R"({"format":"winx64","begin":4096,"end":4104,"info":8192,"version":1,
    "flags":["EHANDLER"],"prolog_size":4,"frame_register":null,"frame_offset":0,
    "codes":[{"offset":4,"op":"ALLOC_SMALL","size":40}],"epilogs":[],"handler":4096,"handler_data":8204,
    "chained":null})"));
  EXPECT_EQ(records[1].at("begin"), 4108);
  EXPECT_EQ(records[1].at("end"), 4104);
  EXPECT_EQ(records[1].at("codes"), records[0].at("codes"));
  EXPECT_EQ(records[2], json::parse(R"({"format":"winx64","begin":4108,"end":4112,"info":9437184,"unreadable":true})"));
  const auto listed = windlass("dump " + path).out;
  const auto inverted = listed.find("0000100C 00001008 00002000");
  ASSERT_NE(inverted, std::string::npos) << listed;
  EXPECT_NE(listed.find("Unwind version: 1", inverted), std::string::npos) << listed;
  ::unlink(path.c_str());
}

// A machine frame with an error code, below rbx and 32 bytes: what is loaded from rsp plus an offset.
TEST(Rows, WindowsX64MachineFrame) {
  // alloc_small 32, push_nonvol rbx, push_machframe
  const std::string path = x64_image({1, 0, 3, 0, 0, 0x32, 0, 0x30, 0, 0x1a, 0, 0}, {0x1000, 0x1010, 0x2000});
  const auto rows = lines(windlass("rows --json " + path).out);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0], json::parse(R"({"begin":4096,"end":4112,"cfa":{"at":{"reg":"rsp","offset":72},"offset":0},
    "ra":{"at":{"reg":"rsp","offset":48}},"regs":{"rbx":{"at":{"reg":"rsp","offset":32}},"rsi":"same","rdi":"same"}})"));
  const auto listed = windlass("rows " + path).out;
  EXPECT_NE(listed.find("cfa=[rsp+72]  ra=[rsp+48]  rbx=[rsp+32]  rsi=same  rdi=same  signal frame"), std::string::npos)
      << listed;
  ::unlink(path.c_str());
}

TEST(ExitStatus, AsTheContractSays) {
  EXPECT_EQ(windlass("rows " + fixture("eh.so")).status, 0);
  EXPECT_EQ(windlass("").status, 0);
  EXPECT_EQ(windlass("rows").status, 2);
  EXPECT_EQ(windlass("rows --no-such-option x").status, 2);
  EXPECT_EQ(windlass("no-such-command").status, 2);
  EXPECT_EQ(windlass("--version").status, 0);
  EXPECT_EQ(windlass("--help").status, 0);
  EXPECT_EQ(windlass("rows /no/such/file").status, 3);
  EXPECT_EQ(windlass("rows " + fixture("eh.so") + " > /dev/full").status, 3);
}

TEST(ExitStatus, WrongInputIsNamedInItsPlaceAndTheRestIsRead) {
  const auto text = windlass("rows --json /etc/passwd");
  EXPECT_EQ(text.status, 1);
  const auto errors = lines(text.out);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_TRUE(errors[0].at("error").is_string());
  EXPECT_EQ(errors[0].at("offset"), 0);
  // The message for people stays visible when the listing goes into a file, and names the input file.
  const auto unreadable = shell(WINDLASS_COMMAND " rows /etc/passwd 2>&1 >/dev/null");
  EXPECT_EQ(unreadable.status, 1);
  EXPECT_NE(unreadable.out.find("/etc/passwd is a text file"), std::string::npos) << unreadable.out;

  // The version of the second CIE spoiled: its FDE is lost, the others are not.
  std::ifstream in(fixture("directives.so"), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto dump = lines(windlass("dump --json " + fixture("directives.so")).out);
  const std::size_t section = bytes.find(std::string("\x18\0\0\0\0\0\0\0\1zR\0", 12));
  ASSERT_NE(section, std::string::npos);
  bytes[section + dump[2].at("cie").get<std::size_t>() + 8] = 9;
  std::string path = fixture("spoiled.so");
  std::ofstream(path, std::ios::binary) << bytes;
  const auto spoiled = windlass("dump --json " + path);
  EXPECT_EQ(spoiled.status, 1);
  std::size_t records = 0;
  std::size_t wrong = 0;
  for (const json& line : lines(spoiled.out)) (line.contains("error") ? wrong : records) += 1;
  EXPECT_EQ(records, 4u);
  EXPECT_EQ(wrong, 2u);  // the CIE and the FDE without it
}

TEST(Pipe, HeadEndsItQuietly) {
  // bash: the status of the first command of the pipe, and whatever it says on stderr.
  for (const char* command : {"rows", "rows --json", "dump", "dump --json"}) {
    const std::string line = std::string(WINDLASS_COMMAND " ") + command + " " WINDLASS_COMMAND;
    const auto result = shell("bash -c '" + line + " 2>&1 >/dev/null | cat; " + line +
                              " 2>/dev/null | head -1 >/dev/null; echo ${PIPESTATUS[0]}'");
    EXPECT_EQ(result.out, "0\n") << command;
  }
}

}  // namespace
}  // namespace windlass
