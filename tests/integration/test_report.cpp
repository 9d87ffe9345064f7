// The command `windlass report`: forms, standard input, exit statuses.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/mapped_file.h"
#include "formats/image/pe.h"
#include "profiler/export/pprof.h"
#include "support/events_profile.h"
#include "support/page_data.h"
#include "support/synthetic_profile.h"

namespace windlass {
namespace {

struct Result {
  int status;
  std::string output;  // both streams
};

Result run(const std::string& arguments) {
  Result result{-1, {}};
  std::FILE* pipe = ::popen((arguments + " 2>&1").c_str(), "r");
  char buffer[65536];
  for (std::size_t got; pipe != nullptr && (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    result.output.append(buffer, got);
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return result;
}

class ReportCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/windlass-report-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    file_ = directory_ + "/p.pb.gz";
    ASSERT_TRUE(exporter::write_pprof_file(testing::synthetic_profile(), file_).has_value());
  }
  void TearDown() override { EXPECT_EQ(run("rm -r " + directory_).status, 0); }

  const std::string report_ = WINDLASS_COMMAND " report ";
  std::string directory_, file_;
};

TEST_F(ReportCommand, EveryForm) {
  const auto text = run("COLUMNS=80 " + report_ + file_);
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.output.find("CALL TREE"), std::string::npos);
  EXPECT_EQ(text.output.find('\x1b'), std::string::npos) << "colours only on a terminal";
  const auto folded = run(report_ + "--folded " + file_);
  EXPECT_EQ(folded.status, 0);
  EXPECT_TRUE(folded.output.starts_with("main;"));
  EXPECT_TRUE(nlohmann::json::accept(run(report_ + "--speedscope " + file_).output));
  std::istringstream lines(run(report_ + "--json " + file_).output);
  for (std::string line; std::getline(lines, line);) ASSERT_TRUE(nlohmann::json::accept(line));
  const auto html = run(report_ + "--html " + file_);
  EXPECT_EQ(html.status, 0);
  EXPECT_NE(html.output.find("<!DOCTYPE html>"), std::string::npos);
}

TEST_F(ReportCommand, StandardInputAndAClosedPipe) {
  EXPECT_EQ(run(report_ + "--folded - < " + file_).output, run(report_ + "--folded " + file_).output);
  EXPECT_EQ(run("bash -c 'set -o pipefail; " + report_ + "--json " + file_ + " | head -n 1'").status, 0);
}

// Through a file of another tool and back.
// A pipe that has a name: what is read of it to tell its kind would be gone.
TEST_F(ReportCommand, APipeIsReadFromItsBegin) {
  const std::string fifo = directory_ + "/fifo";
  ASSERT_EQ(run("mkfifo " + fifo).status, 0);
  const std::string whole = run(report_ + "--folded " + file_).output;
  EXPECT_EQ(run("cat " + file_ + " > " + fifo + " & " + report_ + "--folded " + fifo).output, whole);
  EXPECT_EQ(run(report_ + "--folded /dev/stdin < " + file_).output, whole);
}

TEST_F(ReportCommand, ReadsWhatItWrites) {
  const std::string other = directory_ + "/other", folded = run(report_ + "--folded " + file_).output;
  ASSERT_FALSE(folded.empty());
  for (const char* form : {"--folded", "--folded | gzip"}) {
    ASSERT_EQ(run(report_ + file_ + " " + form + " > " + other).status, 0);
    EXPECT_EQ(run(report_ + "--folded " + other).output, folded) << form;
  }
  for (const char* form : {"--speedscope", "--firefox"}) {
    ASSERT_EQ(run(report_ + form + " " + file_ + " 2> /dev/null | cat > " + other).status, 0);
    const std::string value = std::string(form) == "--speedscope" ? "--value samples " : "";
    const auto csv = run(report_ + "--csv " + value + other + " 2>&1");
    EXPECT_EQ(csv.status, 0) << form << csv.output;
    EXPECT_NE(run(report_ + "--folded " + value + other).output, "") << form;
  }
}

// Whatever file comes in, and whatever is chosen of it.
TEST_F(ReportCommand, EachInputBecomesAProfile) {
  const std::string other = directory_ + "/other", made = directory_ + "/made.pb.gz";
  const auto expect_same = [&](const std::string& options, const std::string& from) {
    SCOPED_TRACE(options + from);
    EXPECT_EQ(run(report_ + "--pprof " + options + from + " 2> /dev/null | cat > " + made).status, 0);
    const std::string chosen = run(report_ + "--json " + options + from + " 2> /dev/null | cat").output;
    EXPECT_GT(std::ranges::count(chosen, '\n'), 3);
    EXPECT_EQ(run(report_ + "--json " + made).output, chosen);
  };
  for (const char* options : {"", "--focus work ", "--ignore work ", "--thread main "}) expect_same(options, file_);
  for (const char* form : {"--folded", "--speedscope --value samples", "--firefox"}) {
    SCOPED_TRACE(form);
    ASSERT_EQ(run(report_ + form + " " + file_ + " 2> /dev/null | cat > " + other).status, 0);
    expect_same("", other);
  }
}

TEST_F(ReportCommand, WhatIsWrongAndWhoseFaultItIs) {
  EXPECT_EQ(run(report_ + directory_ + "/none").status, 3);
  EXPECT_EQ(run(report_ + "--html --json " + file_).status, 2);
  EXPECT_EQ(run(report_).status, 2);
  EXPECT_EQ(run(report_ + "--functions -1 " + file_).status, 2);
  const auto cut = run("head -c 3000 " + file_ + " | " + report_ + "-");
  EXPECT_EQ(cut.status, 1);
  EXPECT_NE(cut.output.find("ends early"), std::string::npos) << cut.output;
  std::ofstream(directory_ + "/text") << "main;f 12\nmain;g\n";
  EXPECT_EQ(run(report_ + directory_ + "/text").status, 1);
  EXPECT_EQ(run(report_ + "--folded " + file_ + " > /dev/full").status, 3);
}

class EventsReport : public ReportCommand {
 protected:
  void SetUp() override {
    ReportCommand::SetUp();
    ASSERT_TRUE(exporter::write_pprof_file(testing::events_profile(), file_).has_value());
  }
};

TEST_F(EventsReport, AnyValue) {
  EXPECT_TRUE(run(report_ + file_).output.starts_with("40 samples at 1000 Hz"));
  EXPECT_TRUE(run(report_ + "--value cpu " + file_).output.starts_with("40.0 ms of cpu at 1000 Hz"));
  EXPECT_TRUE(run(report_ + "--value off-cpu " + file_).output.starts_with("4.50 ms of off-cpu"));
  EXPECT_EQ(run(report_ + "--folded --value waits " + file_).output, "main;main;wait 7\nworker;main;run;wait 1\n");
  EXPECT_NE(run(report_ + "--json --value off-cpu " + file_).output.find("\"samples\":4500000,"), std::string::npos);
  const auto first = [&](const std::string& options) {
    return nlohmann::json::parse(run(report_ + "--speedscope " + options + file_).output)["profiles"][0]["name"];
  };
  EXPECT_EQ(first(""), "cpu: all processes") << "time, which the samples of this event are of";
  EXPECT_EQ(first("--value samples "), "samples: all processes");
  EXPECT_EQ(first("--value off-cpu "), "off-cpu: main (pid 7)");
  EXPECT_EQ(test::page_data(run(report_ + "--html --value waits " + file_).output).names["values"][0]["name"], "waits");
}

TEST_F(EventsReport, LabelsShareFilterAndGroup) {
  const auto label = run(report_ + "--value off-cpu --label reason " + file_);
  EXPECT_EQ(label.status, 0);
  EXPECT_NE(label.output.find("(no reason)"), std::string::npos) << label.output;
  EXPECT_EQ(run(report_ + "--folded --value waits --only reason=futex " + file_).output, "main;main;wait 2\n");
  EXPECT_EQ(run(report_ +
                "--folded --value waits --only reason=futex --only 'reason=page fault' --only pid=7 --by pid " + file_)
                .output,
            "main (pid 7);main;main;wait 2\nmain (pid 7);worker;main;run;wait 1\n");
  const auto text = run(report_ + "--value waits --only comm=worker --by reason " + file_).output;
  EXPECT_TRUE(text.starts_with("1 waits in ")) << text;
  EXPECT_NE(text.find("  only comm=worker\n  by reason\n"), std::string::npos) << text;
  EXPECT_NE(text.find("100.00%  page fault\n"), std::string::npos) << text;
}

TEST_F(EventsReport, WhatTheFileDoesNotHave) {
  const auto wrong = [&](const std::string& options, const std::string& message) {
    const auto result = run(report_ + options + " " + file_);
    EXPECT_EQ(result.status, 2) << options;
    EXPECT_NE(result.output.find(message), std::string::npos) << result.output;
  };
  wrong("--value wait", "there is no value wait. Way out: --value takes one of samples, cpu, waits, off-cpu");
  wrong("--label nosuch", "no sample has a label nosuch. Way out: labels are reason, comm, pid, tid");
  wrong("--folded --by nosuch", "no sample has a label nosuch");
  wrong("--only nosuch=futex", "no sample has a label nosuch");
  wrong("--json --only reason=lock", "no sample has reason=lock. Way out: values of reason are futex, page fault");
  wrong("--only futex", "no KEY=VALUE: futex");
  wrong("--folded --label reason", "at most one of these can be given");
  auto profile = testing::events_profile();
  profile.events[1].counted = "samples";
  ASSERT_TRUE(exporter::write_pprof_file(profile, file_).has_value());
  wrong("--value samples",
        "several values are named samples. Way out: --value takes one of cpu/samples, off-cpu/samples");
  EXPECT_EQ(run(report_ + "--folded --value off-cpu/samples " + file_).output,
            "main;main;wait 7\nworker;main;run;wait 1\n");
  // A key and a value of the file's come back as text.
  profile.strings[2] = "\x1b[31m";
  ASSERT_TRUE(exporter::write_pprof_file(profile, file_).has_value());
  wrong("--by nosuch", "labels are \\x1b[31m, comm");
}

#ifdef WINDLASS_PDB_FOLDER
// Addresses of Windows images that the recording left unnamed, and no others.
TEST_F(ReportCommand, NamesFromPdbFiles) {
  const std::string program = WINDLASS_PDB_FOLDER "/program-x86_64";
  const auto image_file = MappedFile::open(program + ".exe");
  ASSERT_TRUE(image_file);
  const auto image = image::PeImage::parse(image_file->bytes());
  ASSERT_TRUE(image);
  profile::Profile profile = testing::synthetic_profile();
  profile.modules.push_back({.path = "/gone/program.exe", .build_id = image->build_id()});
  profile.modules.push_back({.path = program + ".exe", .build_id = image->build_id()});
  profile.modules.push_back({.path = "/proc/self/exe", .build_id = "00"});
  const auto first = static_cast<std::uint32_t>(profile.locations.size());
  const auto modules = static_cast<std::uint32_t>(profile.modules.size());
  for (std::uint32_t i = 0; i < 3; ++i) {
    profile.locations.push_back({.module = modules - 3 + i, .address = image->entry()});
    auto sample = profile.samples.front();
    sample.locations = {first + i};
    profile.samples.push_back(sample);
  }
  ASSERT_TRUE(exporter::write_pprof_file(profile, file_));
  const auto count = [](const std::string& text, const std::string& word) {
    std::size_t found = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(run(report_ + "--folded " + file_).output, ";start "), 0U);
  const auto named = run(report_ + "--folded --pdb " + program + ".pdb " + file_);
  EXPECT_EQ(named.status, 0) << named.output;
  EXPECT_EQ(count(named.output, ";start "), 1U) << named.output;
  EXPECT_EQ(count(run("_NT_SYMBOL_PATH=" WINDLASS_PDB_FOLDER " " + report_ + "--folded " + file_).output, ";start "),
            1U);
  const auto wrong = run(report_ + "--folded --pdb " + directory_ + "/nosuch.pdb --symbol-path /nowhere " + file_);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.output.find("--pdb: cannot open " + directory_ + "/nosuch.pdb: No such file"), std::string::npos)
      << wrong.output;
}
#endif

}  // namespace
}  // namespace windlass
