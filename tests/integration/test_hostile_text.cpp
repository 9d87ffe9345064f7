// Every command over a process, files and a profile whose names drive terminals, begin lines and turn text around. None
// of that may get into the output of the command, on either stream.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "support/child_program.h"
#include "support/core_of.h"
#include "support/hostile_text.h"
#include "support/page_data.h"
#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass {
namespace {

using test::hostile_names;

// For the shell, and for C: a string literal.
std::string shell_word(const std::string& text) {
  std::string result = "'";
  for (const char c : text) c == '\'' ? result += "'\\''" : result += c;
  return result + "'";
}
std::string c_literal(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
  return result + "\"";
}

class HostileText : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "windlass-hostile-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    program_ = folder_ + "/" + test::hostile_file_name();
    build();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A thread for each name, in a function of that name: it computes, or sleeps.
  void build() {
    std::ofstream source(folder_ + "/p.c");
    source << "#include <pthread.h>\n#include <sys/prctl.h>\n#include <unistd.h>\nstatic volatile int sink, busy;\n";
    std::string rename, threads;
    for (std::size_t i = 0; i < hostile_names().size(); ++i) {
      source << fmt::format(
          "__attribute__((noinline)) void hot{}(void) {{ do {{ if (!busy) sleep(1); else ++sink; }} while (1); }}\n"
          "static void* t{}(void* p) {{ prctl(PR_SET_NAME, {}); hot{}(); return p; }}\n",
          i, i, c_literal(hostile_names()[i]), i);
      rename += fmt::format(" --redefine-sym hot{}={}", i, shell_word(hostile_names()[i]));
      threads += fmt::format("  pthread_create(&t, 0, t{}, 0);\n", i);
    }
    source << "int main(int n, char** v) {\n  pthread_t t;\n  busy = n > 1;\n  (void)v;\n"
           << threads << "  write(1, \"ready\", 5);\n  if (busy) { sleep(2); _exit(0); }\n  while (1) pause();\n}\n";
    source.close();
    const auto made = test::run(fmt::format(
        "cd {0} && exec 2>&1 && cc -O1 -fno-asynchronous-unwind-tables -fno-unwind-tables -c p.c && objcopy {1} p.o && "
        "cc p.o -pthread -o {2} && cp p.o {2}.o",
        shell_word(folder_), rename, shell_word(program_)));
    ASSERT_EQ(made.status, 0) << made.output;
  }

  // What `windlass ARGUMENTS` prints on both streams.
  static std::string output(const std::string& arguments) {
    return test::run(fmt::format("{} {} 2>&1", WINDLASS_COMMAND, arguments)).output;
  }
  static void expect_harmless(const std::string& arguments) {
    const std::string text = output(arguments);
    EXPECT_FALSE(text.empty()) << arguments;
    EXPECT_EQ(test::forbidden_in(text), "") << "windlass " << arguments;
  }
  // And it says the names, escaped: the title's, at least.
  static void expect_escaped(const std::string& arguments) {
    expect_harmless(arguments);
    EXPECT_NE(output(arguments).find("a\\x1b]0;title\\x07"), std::string::npos) << output(arguments);
  }
  static void expect_json_lines(const std::string& arguments) {
    expect_harmless(arguments);
    std::istringstream lines(output(arguments));
    for (std::string line; std::getline(lines, line);) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }

  std::string folder_, program_;
};

TEST_F(HostileText, WalkOfAProcessAndItsCore) {
  test::ChildProgram program({program_}, folder_ + "/out", STDOUT_FILENO);
  for (int i = 0; i < 30'000 && std::ifstream(folder_ + "/out").peek() == EOF; ++i) ::usleep(10'000);
  const std::string pid = std::to_string(program.pid());
  // All threads have their names.
  for (int i = 0; i < 30'000 && output("walk " + pid).find("h\"\\'`$(x)<b>") == std::string::npos; ++i)
    ::usleep(10'000);
  for (const std::string options : {"", "-v ", "-vv -l -i ", "--repeat 2 --interval 1ms "})
    expect_escaped("walk " + options + pid);
  expect_json_lines("walk -vv --json " + pid);
  const std::string lines = output("walk " + pid);
  EXPECT_EQ(lines.find("\nTID 1:"), std::string::npos) << "a name began a line";
  const test::CoreOf core(program.pid(), folder_ + "/core");
  if (!core.why_not().empty()) GTEST_SKIP() << core.why_not();
  expect_escaped("walk -v --core " + core.path());
  const std::string moved = folder_ + "/" + hostile_names()[0] + ".core";
  std::filesystem::copy(core.path(), moved);
  std::filesystem::resize_file(moved, 5000);
  expect_harmless("walk --core " + shell_word(moved));
}

TEST_F(HostileText, FilesAndWhatIsWrongWithThem) {
  for (const std::string& file : {program_, program_ + ".o", folder_ + "/p.c"}) {
    for (const std::string command : {"dump", "dump --json", "rows", "rows --json"})
      EXPECT_EQ(test::forbidden_in(output(command + " " + shell_word(file))), "") << command;
    for (const std::string syntax : {"elf", "gas", "masm"})
      expect_harmless(fmt::format("emit --syntax {} {}", syntax, shell_word(file)));
    for (const std::string command : {"report", "walk", "report --folded"})
      expect_harmless(command + " " + shell_word(file));
  }
  const std::string missing = shell_word(folder_ + "/" + hostile_names()[0] + "/" + hostile_names()[1]);
  const std::string emit_blob = "emit " + shell_word(folder_ + "/p.c");
  for (const std::string& command :
       std::vector<std::string>{"dump", "rows", "report", "walk", "walk --core", "emit", emit_blob,
                                "record --duration 1s -- ", "record --duration 1s -o"})
    expect_escaped(command + " " + missing);
  // What the command line says wrong.
  for (const std::string& name : hostile_names()) {
    expect_harmless(shell_word(name));
    for (const std::string command : {"walk --repeat ", "walk --", "report --functions ", "emit --mode ",
                                      "record --duration ", "record -p ", "dump -"})
      expect_harmless(command + shell_word(name));
  }
  expect_harmless("doctor -v");
  expect_json_lines("doctor --json");
}

TEST_F(HostileText, RecordAndItsProfile) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string profile = folder_ + "/" + hostile_names()[0] + ".pb.gz";
  expect_escaped(fmt::format("record -v -F 997 -o {} -- {} busy", shell_word(profile), shell_word(program_)));
  expect_escaped("report " + shell_word(profile));
  expect_harmless("report --folded " + shell_word(profile));
  expect_json_lines("report --json " + shell_word(profile));
  for (const char* form : {"--speedscope ", "--firefox ", "--chrome "})
    expect_harmless("report " + std::string(form) + shell_word(profile));
  // Labels and values that the file has, and those that it does not.
  expect_escaped("report --label comm " + shell_word(profile));
  expect_escaped("report --label pid " + shell_word(profile));
  expect_escaped("report --by tid --only comm=" + shell_word(hostile_names()[0]) + " " + shell_word(profile));
  expect_escaped("report --only comm=nosuch " + shell_word(profile));
  for (const std::string option : {"--label ", "--by ", "--value ", "--only ", "--only comm="})
    expect_escaped("report " + option + shell_word("=" + hostile_names()[0]) + " " + shell_word(profile));
  std::istringstream stacks(output("report --folded " + shell_word(profile)));
  for (std::string line; std::getline(stacks, line);) {
    const auto last = line.rfind(' ');
    ASSERT_NE(last, std::string::npos) << line;
    EXPECT_EQ(line.find_first_not_of("0123456789", last + 1), std::string::npos) << line;
  }
  const std::string names = test::page_data(output("report --html " + shell_word(profile))).names.dump();
  EXPECT_NE(names.find("title"), std::string::npos);
  EXPECT_EQ(test::forbidden_in(names), "");
}

}  // namespace
}  // namespace windlass
