// `windlass walk` on a live process, core files and a minidump of it: the same frames everywhere, and those that gdb
// and eu-stack see.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "support/await_sleep.h"
#include "support/core_of.h"
#include "support/core_writer.h"
#include "support/dump_file.h"
#include "support/minidump_writer.h"
#include "support/run_command.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using nlohmann::json;
using test::run;

const std::string kWalk = WINDLASS_COMMAND " walk ";

bool have(const std::string& tool) { return run("command -v " + tool).status == 0; }

// The workload, standing still.
class Workload {
 public:
  explicit Workload(const char* program = WINDLASS_THREADS_PROGRAM, const char* argument = nullptr) {
    int fds[2];
    if (::pipe(fds) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(fds[1], 1);
      ::close(fds[0]);
      ::close(fds[1]);
      ::execl(program, program, argument, nullptr);
      ::_exit(1);
    }
    ::close(fds[1]);
    char text[6] = {};
    if (::read(fds[0], text, 5) == 5 && !test::await_sleep(pid_))
      ADD_FAILURE() << program << " does not come to its sleep";
    ::close(fds[0]);
  }
  ~Workload() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;
  [[nodiscard]] std::string pid() const { return std::to_string(pid_); }
  [[nodiscard]] std::uint64_t id() const { return static_cast<std::uint64_t>(pid_); }

 private:
  pid_t pid_ = -1;
};

struct NamedFrame {
  std::uint64_t pc;
  std::string name;  // without parameters
  bool operator==(const NamedFrame&) const = default;
};
std::ostream& operator<<(std::ostream& out, const NamedFrame& frame) {
  return out << std::hex << frame.pc << ' ' << frame.name;
}
using Stacks = std::map<std::uint64_t, std::vector<NamedFrame>>;  // by thread

// "(anonymous namespace)::Tower::climb(int) const" -> "Tower::climb". Versions ("@@GLIBC_2.34") go too.
std::string plain(std::string name) {
  const std::string anonymous = "(anonymous namespace)::";
  for (std::size_t at; (at = name.find(anonymous)) != std::string::npos;) name.erase(at, anonymous.size());
  if (const auto at = name.find("operator()"); at != std::string::npos) name.replace(at, 10, "operator");
  return name.substr(0, std::min({name.find('('), name.find('@'), name.find('+')}));
}

Stacks stacks_of(const std::string& ndjson, std::string* end = nullptr) {
  Stacks stacks;
  std::istringstream lines(ndjson);
  for (std::string line; std::getline(lines, line);) {
    const json thread = json::parse(line);
    auto& frames = stacks[thread["thread"]];
    for (const json& frame : thread["frames"])
      frames.push_back({frame["pc"], frame["function"].is_null() ? "" : plain(frame["function"])});
    if (end != nullptr) *end += thread["end"].get<std::string>() + " ";
  }
  return stacks;
}

// What Tower::climb() was called with, by `walk --arguments`: "floor=12 floor=11 ..." of each thread.
std::map<std::uint64_t, std::string> floors_of(const std::string& subject) {
  std::map<std::uint64_t, std::string> floors;
  std::istringstream lines(run(kWalk + "--arguments --json " + subject).output);
  for (std::string line; std::getline(lines, line);) {
    const json thread = json::parse(line);
    for (const json& frame : thread["frames"])
      for (const json& argument : frame.value("arguments", json::array()))
        if (argument["name"] == "floor") floors[thread["thread"]] += argument["value"].get<std::string>() + ' ';
  }
  return floors;
}

std::vector<std::uint64_t> addresses(const std::vector<NamedFrame>& frames) {
  std::vector<std::uint64_t> out;
  for (const NamedFrame& frame : frames) out.push_back(frame.pc);
  return out;
}

std::string last_part(const std::string& name) {
  const auto at = name.rfind("::");
  return at == std::string::npos ? name : name.substr(at + 2);
}

// Frames of the workload's own functions must have the same names; libraries may have aliases.
void expect_same(const Stacks& ours, const Stacks& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [thread, frames] : ours) {
    ASSERT_TRUE(theirs.contains(thread));
    const auto& other = theirs.at(thread);
    EXPECT_EQ(addresses(frames), addresses(other)) << "thread " << thread;
    for (std::size_t i = 0; i < std::min(frames.size(), other.size()); ++i) {
      for (const char* name : {"climb", "stand_still", "wait_in_compare", "main", "_start"})
        EXPECT_EQ(last_part(frames[i].name) == name, last_part(other[i].name) == name)
            << frames[i] << " | " << other[i];
    }
  }
}

class WalkCommand : public testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_process(workload_.id());
    if (!opened && opened.error().code == ErrorCode::kSystem)
      GTEST_SKIP() << "SKIPPED: may not trace here: " << opened.error().text();
  }
  [[nodiscard]] Stacks live() const { return stacks_of(run(kWalk + "--json " + workload_.pid()).output); }

  Workload workload_;
};

TEST_F(WalkCommand, LiveProcess) {
  const auto result = run(kWalk + "--json " + workload_.pid());
  EXPECT_EQ(result.status, 0);
  std::map<std::string, int> climbs;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    const json thread = json::parse(line);
    EXPECT_EQ(thread["end"], "complete");
    EXPECT_EQ(thread["frames"][0]["origin"], "context");
    for (const json& frame : thread["frames"]) {
      EXPECT_TRUE(frame["pc"].is_number_unsigned());
      EXPECT_TRUE(frame["sp"].is_number_unsigned());
      EXPECT_TRUE(frame["offset"].is_number_unsigned());
      EXPECT_TRUE(frame["module"].is_string());
      if (!frame["function"].is_null()) climbs[thread["name"]] += plain(frame["function"]) == "Tower::climb";
    }
  }
  EXPECT_EQ(climbs, (std::map<std::string, int>{{"threads", 13}, {"first", 6}, {"second", 51}}));
}

TEST_F(WalkCommand, AgainAndAgain) {
  const Stacks once = live();
  const auto walked = run(kWalk + workload_.pid() + " --json --repeat 3 --interval 5ms");
  EXPECT_EQ(walked.status, 0);
  std::map<int, std::string> turns;
  std::istringstream lines(walked.output);
  for (std::string line; std::getline(lines, line);) {
    const json thread = json::parse(line);
    EXPECT_GT(thread["stopped_ns"], 0);
    turns[thread["walk"]] += line + "\n";
  }
  ASSERT_EQ(turns.size(), 3u) << walked.output;
  for (const auto& [turn, text] : turns) EXPECT_EQ(stacks_of(text), once) << turn;
  const auto text = run(kWalk + workload_.pid() + " --repeat 2 --interval 5ms");
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.output.find("\nwalk 2 of 2, stopped for "), std::string::npos) << text.output;
}

// Without a number of walks they go on until the command is ended.
TEST_F(WalkCommand, AgainWithoutEnd) {
  const std::string file = testing::TempDir() + "windlass-walks-" + workload_.pid();
  const auto walked = run(kWalk + workload_.pid() + " --interval 100ms > " + file +
                          " & walk=$!; for i in $(seq 3000); do grep -q '^walk 3, stopped for ' " + file +
                          " && break; sleep 0.1; done; kill $walk && wait $walk; status=$?; cat " + file + "; rm " +
                          file + "; exit $status");
  EXPECT_EQ(walked.status, 128 + SIGTERM);
  EXPECT_NE(walked.output.find("\nwalk 3, stopped for "), std::string::npos) << walked.output;
}

// A thousand threads are a few lines; each has its own with --each, and in JSON.
TEST_F(WalkCommand, EqualStacksAreOne) {
  const Workload many(WINDLASS_MANY_THREADS_PROGRAM, "1000");
  const auto walked = run(kWalk + many.pid());
  EXPECT_EQ(walked.status, 0);
  EXPECT_LT(std::ranges::count(walked.output, '\n'), 24) << walked.output;
  EXPECT_NE(walked.output.find(" worker-0, worker-1, worker-2 (1000 threads):\n"), std::string::npos) << walked.output;
  EXPECT_NE(walked.output.find("TID " + many.pid() + " many_threads:\n"), std::string::npos) << walked.output;
  EXPECT_NE(walked.output.find("wait_here"), std::string::npos) << walked.output;
  const auto count = [](const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
    return found;
  };
  EXPECT_EQ(count(run(kWalk + "--each " + many.pid()).output, "TID "), 1001u);
  EXPECT_EQ(stacks_of(run(kWalk + "--json " + many.pid()).output).size(), 1001u);
  // Registers differ.
  EXPECT_EQ(count(run(kWalk + "-vv " + many.pid()).output, "TID "), 1001u);
}

TEST_F(WalkCommand, AllProcesses) {
  const Workload second;
  const auto walked = run(kWalk + "--all --json 2>&1");
  std::map<std::uint64_t, Stacks> processes;
  std::istringstream lines(walked.output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('{')) continue;  // of those that may not be traced
    const json thread = json::parse(line);
    processes[thread["process"]].merge(stacks_of(line));
  }
  ASSERT_TRUE(processes.contains(workload_.id())) << walked.output;
  ASSERT_TRUE(processes.contains(second.id()));
  EXPECT_EQ(processes[workload_.id()], live());
  const auto text = run(kWalk + "--all 2> /dev/null");
  EXPECT_NE(text.output.find("PID " + workload_.pid() + " "), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("PID " + second.pid() + " "), std::string::npos) << text.output;
}

// It ends in between: what was walked stands, and that is no error.
TEST_F(WalkCommand, AgainUntilItEnds) {
  test::CommandResult walked;
  // A busy machine may not come to the second walk in time.
  for (const char* seconds : {"0.5", "4", "30"}) {
    walked = run(std::string("sleep ") + seconds + " & " + kWalk + "$! --repeat 100000 --interval 20ms 2>&1");
    if (walked.output.find("walk 2 of 100000") != std::string::npos) break;
  }
  EXPECT_EQ(walked.status, 0) << walked.output;
  EXPECT_NE(walked.output.find("has ended after "), std::string::npos) << walked.output;
  EXPECT_NE(walked.output.find("walk 2 of 100000"), std::string::npos) << walked.output;
}

TEST_F(WalkCommand, ArgumentsOfEachFrame) {
  const auto floors = floors_of(workload_.pid());
  EXPECT_EQ(floors.at(workload_.id()), "12 11 10 9 8 7 6 5 4 3 2 1 0 ");
  EXPECT_EQ(floors.size(), 3U);
}

TEST_F(WalkCommand, TextForm) {
  const auto plain_form = run(kWalk + "-p " + workload_.pid());
  EXPECT_EQ(plain_form.status, 0);
  EXPECT_NE(plain_form.output.find("Tower::climb(int) const"), std::string::npos) << plain_form.output;
  EXPECT_EQ(plain_form.output.find("[cfi"), std::string::npos);
  const auto verbose = run(kWalk + "-v " + workload_.pid());
  EXPECT_NE(verbose.output.find("[cfi, described]"), std::string::npos);
  EXPECT_NE(run(kWalk + "-vv " + workload_.pid()).output.find("rsp=0x"), std::string::npos);
  const auto lines = run(kWalk + "-l " + workload_.pid());
  EXPECT_NE(lines.output.find("threads.cpp:"), std::string::npos) << lines.output;
}

TEST_F(WalkCommand, AsEuStackSeesIt) {
  if (!have("eu-stack")) GTEST_SKIP() << "SKIPPED: no eu-stack";
  Stacks theirs;
  std::uint64_t thread = 0;
  std::istringstream lines(run("eu-stack -p " + workload_.pid() + " 2>/dev/null").output);
  for (std::string line; std::getline(lines, line);) {
    unsigned long long number = 0;
    if (std::sscanf(line.c_str(), "TID %llu:", &number) == 1) thread = number;
    if (std::sscanf(line.c_str(), "#%*d 0x%llx", &number) != 1) continue;
    const auto name = line.find_first_not_of(' ', line.find("0x") + 18);
    theirs[thread].push_back({number, name == std::string::npos ? "" : plain(line.substr(name))});
  }
  expect_same(live(), theirs);
}

TEST_F(WalkCommand, AsGdbSeesIt) {
  // Frames that are on the stack, not inlined ones, past main.
  const std::string script =
      "import gdb\n"
      "for t in gdb.selected_inferior().threads():\n"
      "  t.switch()\n"
      "  f = gdb.newest_frame()\n"
      "  while f:\n"
      "    if f.type() != gdb.INLINE_FRAME: print('frame', t.ptid[1], f.pc(), f.name())\n"
      "    f = f.older()\n";
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(script.data()),
                                     reinterpret_cast<const std::byte*>(script.data()) + script.size());
  const test::DumpFile file(bytes);
  const auto gdb =
      run("gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'set backtrace past-main on' "
          "-ex 'set backtrace past-entry on' -ex 'python exec(open(\"" +
          file.path() + "\").read())' -p " + workload_.pid() + " 2>/dev/null </dev/null");
  Stacks theirs;
  std::istringstream lines(gdb.output);
  for (std::string line; std::getline(lines, line);) {
    unsigned long long thread = 0, pc = 0;
    int name = 0;
    if (std::sscanf(line.c_str(), "frame %llu %llu %n", &thread, &pc, &name) == 2)
      theirs[thread].push_back({pc, plain(line.substr(static_cast<std::size_t>(name)))});
  }
  if (theirs.empty()) GTEST_SKIP() << "SKIPPED: no gdb with Python";
  expect_same(live(), theirs);
}

TEST_F(WalkCommand, ACoreOfGcore) {
  const test::DumpFile place({});
  const test::CoreOf core(std::stoi(workload_.pid()), place.path());
  if (!core.why_not().empty()) GTEST_SKIP() << core.why_not();
  std::string ends;
  const auto walked = run(kWalk + "--json " + core.path());
  const auto named = run(kWalk + "--json --core=" + core.path() + " -e " WINDLASS_THREADS_PROGRAM);
  EXPECT_EQ(walked.status, 0);
  EXPECT_EQ(stacks_of(walked.output, &ends), live());
  EXPECT_EQ(ends, "complete complete complete ");
  EXPECT_EQ(walked.output, named.output);
}

// The stacks of the live process, as dumps keep them.
struct Snapshot {
  std::vector<Thread> threads;
  std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> stacks;
  std::vector<os::ProcMap> maps;
  std::string maps_text;
};

Snapshot snapshot_of(const Workload& workload) {
  Snapshot snapshot;
  const auto target = open_process(workload.id());
  if (!target) return snapshot;
  snapshot.threads = target->threads;
  snapshot.maps_text = os::read_proc_file("/proc/" + workload.pid() + "/maps");
  snapshot.maps = os::parse_proc_maps(snapshot.maps_text);
  for (const Thread& thread : target->threads) {
    const std::uint64_t begin = (thread.registers.sp() - 128) & ~std::uint64_t{4095};
    for (const os::ProcMap& map : snapshot.maps) {
      if (begin < map.begin || begin >= map.end) continue;
      std::vector<std::byte> bytes(std::min<std::uint64_t>(map.end - begin, 65536));
      if (target->space.memory().read(begin, bytes.data(), bytes.size())) snapshot.stacks.emplace_back(begin, bytes);
    }
  }
  return snapshot;
}

TEST_F(WalkCommand, ACoreWithStacksAlone) {
  const Snapshot snapshot = snapshot_of(workload_);
  test::CoreWriter writer(Architecture::kX86_64);
  writer.process = static_cast<std::uint32_t>(workload_.id());
  for (const Thread& thread : snapshot.threads)
    writer.threads.push_back({static_cast<std::uint32_t>(thread.id), thread.registers});
  for (const auto& [begin, bytes] : snapshot.stacks) writer.segments.push_back({begin, bytes, 0, PF_R | PF_W});
  for (const os::ProcMap& map : snapshot.maps) {
    if (!map.has_file()) continue;
    writer.files.push_back({map.begin, map.end, map.offset, map.path});
    writer.segments.push_back({map.begin, {}, map.end - map.begin, PF_R | (map.executable ? PF_X : 0u)});
  }
  const test::DumpFile core(writer.write());
  const auto walked = run(kWalk + "--json " + core.path());
  EXPECT_EQ(walked.status, 0);
  EXPECT_EQ(stacks_of(walked.output), live());
  EXPECT_NE(walked.output.find("\"faulted\":true"), std::string::npos);
}

TEST_F(WalkCommand, AMinidump) {
  const Snapshot snapshot = snapshot_of(workload_);
  for (const bool with_maps : {true, false}) {
    test::MinidumpWriter writer(Architecture::kX86_64);
    for (std::size_t i = 0; i < snapshot.threads.size() && i < snapshot.stacks.size(); ++i) {
      const Thread& thread = snapshot.threads[i];
      writer.threads.push_back({static_cast<std::uint32_t>(thread.id), thread.registers, thread.name,
                                snapshot.stacks[i].first, snapshot.stacks[i].second});
    }
    if (with_maps) writer.linux_maps = snapshot.maps_text;
    for (std::size_t i = 0; i < snapshot.maps.size(); ++i) {
      const os::ProcMap& first = snapshot.maps[i];
      if (!first.has_file() || first.offset != 0) continue;
      std::uint64_t end = first.end;
      while (i + 1 < snapshot.maps.size() && snapshot.maps[i + 1].path == first.path) end = snapshot.maps[++i].end;
      writer.modules.push_back({first.begin, static_cast<std::uint32_t>(end - first.begin), first.path});
    }
    const test::DumpFile dump(writer.write());
    const auto walked = run(kWalk + "--json " + dump.path());
    EXPECT_EQ(walked.status, 0);
    EXPECT_EQ(stacks_of(walked.output), live()) << (with_maps ? "with maps" : "with a module list only");
    EXPECT_NE(walked.output.find("\"name\":\"second\""), std::string::npos);
    EXPECT_EQ(floors_of(dump.path()), floors_of(workload_.pid()));
  }
}

// It may not be traced, but no right is missing.
TEST_F(WalkCommand, AThreadOfTheKernel) {
  const auto found = run("ps -o pid= --ppid 2 2>/dev/null | head -n 1 | tr -d ' \\n'");
  if (found.output.empty()) GTEST_SKIP() << "SKIPPED: no thread of the kernel is to be seen";
  const auto walked = run(kWalk + found.output + " 2>&1");
  EXPECT_EQ(walked.status, 3);
  EXPECT_NE(walked.output.find("a thread of the kernel has no user stack"), std::string::npos) << walked.output;
}

TEST_F(WalkCommand, ExitStatuses) {
  EXPECT_EQ(run(kWalk + "2147483646 2>&1").status, 3);
  EXPECT_EQ(run(kWalk + "/no/such/file 2>&1").status, 3);
  EXPECT_EQ(run(kWalk + "/etc/passwd 2>&1").status, 1);
  EXPECT_EQ(run(kWalk + WINDLASS_THREADS_PROGRAM " 2>&1").status, 1);  // ELF, but no core
  EXPECT_EQ(run(kWalk + "2>&1").status, 2);
  EXPECT_EQ(run(kWalk + "--no-such-option 1 2>&1").status, 2);
  EXPECT_EQ(run(kWalk + "1 --repeat 0 2>&1").status, 2);
  EXPECT_EQ(run(kWalk + "1 --max-frames -1 2>&1").status, 2);
  const auto unknown = run(WINDLASS_COMMAND " wlak 1 2>&1");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.output.find("no command 'wlak'; did you mean walk?"), std::string::npos) << unknown.output;
  EXPECT_EQ(run(kWalk + "1 --repeat 2 --interval 5parsecs 2>&1").status, 2);
  const auto truncated = run("printf 'MDMP\\223\\247\\0\\0' > /tmp/windlass-short; " + kWalk +
                             "/tmp/windlass-short 2>&1; s=$?; rm /tmp/windlass-short; exit $s");
  EXPECT_EQ(truncated.status, 1);
  EXPECT_NE(truncated.output.find("past the end of the file"), std::string::npos) << truncated.output;
  const std::string walk = kWalk + workload_.pid();
  const auto refused = run("setpriv --reuid=65534 --regid=65534 --clear-groups " + walk + " 2>&1");
  if (refused.output.find("windlass:") == std::string::npos) GTEST_SKIP() << "SKIPPED: cannot run as somebody else";
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.output.find("run as root"), std::string::npos) << refused.output;
}

}  // namespace
}  // namespace windlass
