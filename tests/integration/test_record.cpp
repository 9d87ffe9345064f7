// `windlass record` as its users meet it: a whole recording of a known program, and everything that can go wrong.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "recording.h"

namespace windlass::test {
namespace {

const std::string kTarget = WINDLASS_RECORD_TARGET;

TEST_F(Record, KnownChainOfOptimisedCodeIsWholeAndRight) {
  ASSERT_EQ(run({"--", kTarget, "chain", "2"}), 0) << text(log());
  expect_chain(count(read()), 2);
}

TEST_F(Record, ExitStatusIsTheCommands) {
  EXPECT_EQ(run({"--", kTarget, "exit", "0"}), 0);
  EXPECT_EQ(run({"--", kTarget, "exit", "42"}), 42);
  EXPECT_EQ(run({"--", kTarget, "kill", "9"}), 137);
  EXPECT_EQ(run({"--", (folder_ / "not-there").string()}), 3);
  EXPECT_NE(text(log()).find("cannot run"), std::string::npos);
}

// On a busy machine the start would take a share of a CPU that is left for it. A priority that was asked for stays.
TEST_F(Record, ItIsScheduledBeforeOthersAndItsCommandIsNot) {
  const int nice = ::getpriority(PRIO_PROCESS, 0);
  const std::string said = (folder_ / "nice").string();
  const std::string script = fmt::format("for p in $PPID $$; do cut -d' ' -f19 /proc/$p/stat; done > {}", said);
  ASSERT_EQ(run({"--", "sh", "-c", script}), 0) << text(log());
  EXPECT_EQ(text(said), fmt::format("{}\n{}\n", nice == 0 ? -20 : nice, nice));
}

TEST_F(Record, OneProcessUntilItIsInterrupted) {
  Process target({kTarget, "chain", "60"});
  wait_for_chain(target);
  expect_chain_of(target, record({"-p", std::to_string(target.pid())}));
}

// A shell that sleeps, and a child of it that works.
TEST_F(Record, ChildrenThatAreThereAlready) {
  Process shell({"/bin/sh", "-c", kTarget + " chain 60 & child=$!; trap 'kill $child' TERM; wait"});
  const std::string pid = std::to_string(shell.pid()), children = fmt::format("/proc/{0}/task/{0}/children", pid);
  pid_t child = 0;
  ASSERT_TRUE(happens([&] { return (child = std::atoi(text(children).c_str())) != 0; }));
  while (cpu_seconds(child) < 0.1) std::this_thread::sleep_for(10ms);
  ASSERT_EQ(run({"-p", pid, "--children", "--duration", "2"}), 0) << text(log());
  const Profile profile = read();
  EXPECT_GT(count(profile).chain, 0u) << text(log());
  for (const auto& sample : profile.samples) EXPECT_NE(sample.pid, static_cast<std::uint32_t>(shell.pid()));
  EXPECT_EQ(run({"-p", pid, "--duration", "300ms"}), 1) << text(log());  // nothing was sampled
  EXPECT_NE(text(log()).find("too little CPU time"), std::string::npos) << text(log());
  EXPECT_EQ(run({"-a", "--children"}), 2);
  shell.signal(SIGTERM);
  shell.wait();
}

TEST_F(Record, NamesAreLookedUpWhileRecording) {
  Process target({kTarget, "chain", "60"});
  ASSERT_EQ(run({"-v", "-p", std::to_string(target.pid()), "--duration", "4"}), 0) << text(log());
  target.signal(SIGTERM);
  target.wait();
  const std::string said = text(log());
  const std::size_t line = said.find("  names: of ");
  ASSERT_NE(line, std::string::npos) << said;
  unsigned addresses = 0, named = 0, ahead = 0;
  ASSERT_EQ(std::sscanf(said.c_str() + line, "  names: of %u addresses, %u have one; %u were looked up while recording",
                        &addresses, &named, &ahead),
            3)
      << said;
  EXPECT_GT(named, 0U);
  EXPECT_GT(ahead, 0U);
  EXPECT_LE(ahead, addresses);
  EXPECT_GT(count(read()).chain, 0U) << said;
}

TEST_F(Record, AThreadsNumberMeansItsProcess) {
  std::atomic<pid_t> thread = 0;
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    thread = ::gettid();
    while (!stop) continue;
  });
  while (thread == 0) std::this_thread::sleep_for(1ms);
  const int status = run({"-p", std::to_string(thread), "--duration", "2"});
  stop = true;
  worker.join();
  ASSERT_EQ(status, 0) << text(log());
  EXPECT_NE(text(log()).find(fmt::format("{} is a thread of process {}", thread.load(), ::getpid())), std::string::npos)
      << text(log());
  EXPECT_NE(text(log()).find(fmt::format("recording process {} into", ::getpid())), std::string::npos) << text(log());
  for (const auto& sample : read().samples) EXPECT_EQ(sample.pid, static_cast<std::uint32_t>(::getpid()));
}

TEST_F(Record, TheProgramIsTheFirstMapping) {
  ASSERT_EQ(run({"--", kTarget, "chain", "1"}), 0) << text(log());
  const Profile profile = read();
  ASSERT_FALSE(profile.modules.empty());
  EXPECT_EQ(profile.modules[0].path, fs::canonical(kTarget).string());
}

// The profile alone is on standard output; what the command writes there is on stderr.
TEST_F(Record, ToStandardOutput) {
  const std::string command = fmt::format("exec '{}' record -o - -- sh -c 'echo hello; {} chain 1' > '{}'",
                                          WINDLASS_COMMAND, kTarget, profile_path());
  ASSERT_EQ(Process({"/bin/sh", "-c", command}, log()).wait(), 0) << text(log());
  expect_samples(count(read()).chain, 1, 1);
  EXPECT_NE(text(log()).find("hello\n"), std::string::npos) << text(log());
  EXPECT_NE(text(log()).find("wrote standard output"), std::string::npos) << text(log());
}

TEST_F(Record, EndsWithItsProcessEvenIfNobodyReapsIt) {
  Process target({kTarget, "chain", "2"});
  ASSERT_EQ(run({"-p", std::to_string(target.pid())}), 0) << text(log());
  EXPECT_EQ(target.wait(), 0);
}

TEST_F(Record, GoneProcessIsAClearError) {
  EXPECT_EQ(run({"-p", "999999"}), 3);
  EXPECT_NE(text(log()).find("there is no process 999999"), std::string::npos) << text(log());
  EXPECT_FALSE(fs::exists(profile_path()));
}

TEST_F(Record, WholeMachineSeesAProcessStartedMeanwhile) {
  Process recorder(record({"-a"}), log());
  const auto said = [&](const std::string& what) { return text(log()).find(what) != std::string::npos; };
  ASSERT_TRUE(happens([&] { return said("windlass: recording the whole machine into "); })) << text(log());
  Process target({kTarget, "chain", "3"});
  EXPECT_TRUE(happens([&] { return said(" s  "); })) << "a line every five seconds: " << text(log());
  EXPECT_EQ(target.wait(), 0);
  recorder.signal(SIGINT);
  EXPECT_EQ(recorder.wait(), 0) << text(log());
  const Count seen = count(read());
  EXPECT_GT(seen.chain, 20u) << text(log());
}

TEST_F(Record, InterruptKeepsTheData) {
  Process target({kTarget, "chain", "60"});
  for (const int signal : {SIGINT, SIGTERM}) {
    Process recorder(record({"-a"}), log());
    wait_for_checkpoint();
    recorder.signal(signal);
    EXPECT_EQ(recorder.wait(), 0) << text(log());
    EXPECT_GT(count(read()).chain, 0u) << text(log());
    fs::remove(profile_path());
  }
}

// A server of debug files that takes a connection and never answers holds the naming of the shell's addresses.
TEST_F(Record, ASecondInterruptWritesWithoutNames) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), size) | listen(server, 64), 0);
  ASSERT_EQ(getsockname(server, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::setenv("DEBUGINFOD_URLS", fmt::format("http://127.0.0.1:{}/", ntohs(address.sin_port)).c_str(), 1);
  ::setenv("DEBUGINFOD_CACHE_PATH", (folder_ / "cache").c_str(), 1);
  Process recorder(record({"--", "/bin/sh", "-c", "while :; do :; done"}), log());
  wait_for_checkpoint();
  recorder.signal(SIGINT);
  pollfd asked{server, POLLIN, 0};
  ASSERT_EQ(poll(&asked, 1, 300'000), 1) << "nobody asks for debug information: " << text(log());
  recorder.signal(SIGINT);
  EXPECT_EQ(recorder.wait(), 0) << text(log());
  for (const char* name : {"DEBUGINFOD_URLS", "DEBUGINFOD_CACHE_PATH"}) ::unsetenv(name);
  close(server);
  for (const std::string said : {"interrupted while naming addresses", "with complete stacks", "wrote /"})
    EXPECT_NE(text(log()).find(said), std::string::npos) << text(log());
  const Profile profile = read();
  EXPECT_GT(count(profile).all, 0u) << text(log());
  for (const auto& location : profile.locations) EXPECT_TRUE(location.lines.empty());
}

// A pipe that is full holds the writing of the profile.
TEST_F(Record, AnInterruptWhileTheProfileIsWrittenLosesNothing) {
  ASSERT_EQ(mkfifo(profile_path().c_str(), 0600), 0);
  const int reader = open(profile_path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  std::array<char, 4096> bytes{};
  while (::write(reader, bytes.data(), bytes.size()) > 0) continue;
  Process recorder(record({"--no-symbols", "--duration", "1", "--", kTarget, "chain", "60"}), log());
  ASSERT_TRUE(happens([&] { return text(log()).find("with complete stacks") != std::string::npos; })) << text(log());
  recorder.signal(SIGINT);
  std::jthread drain([&](const std::stop_token& stop) {
    while (!stop.stop_requested())
      if (::read(reader, bytes.data(), bytes.size()) <= 0) std::this_thread::sleep_for(10ms);
  });
  EXPECT_EQ(recorder.wait(), 0) << text(log());
  EXPECT_NE(text(log()).find("wrote "), std::string::npos) << text(log());
  drain.request_stop(), drain.join();
  close(reader);
}

// Somewhere between the program's first instruction and its first sample: where depends on the machine.
TEST_F(Record, AnInterruptBeforeSamplingEndsItAtOnce) {
  bool seen = false;
  for (auto delay = 0ms; delay < 5000ms && !seen; delay += 10ms) {
    fs::remove(profile_path());
    Process recorder(record({"-a"}), log());
    std::this_thread::sleep_for(delay);
    recorder.signal(SIGINT);
    const int status = recorder.wait();
    seen = text(log()).find("interrupted before the first sample") != std::string::npos;
    if (!seen) continue;
    EXPECT_EQ(status, 1) << text(log());
    EXPECT_FALSE(fs::exists(profile_path())) << text(log());
  }
  EXPECT_TRUE(seen);
}

TEST_F(Record, AKilledRecorderLeavesItsLastCheckpoint) {
  Process recorder(record({"--", kTarget, "chain", "10"}), log());
  wait_for_checkpoint();
  recorder.signal(SIGKILL);
  EXPECT_EQ(recorder.wait(), 137);
  EXPECT_GT(count(read()).all, 0u);
}

TEST_F(Record, OutputThatCannotBeWritten) {
  EXPECT_EQ(Process({WINDLASS_COMMAND, "record", "-o", "/nonexistent/folder/p", "--", "true"}, log()).wait(), 3);
  EXPECT_NE(text(log()).find("/nonexistent/folder/p"), std::string::npos) << text(log());
  EXPECT_EQ(Process({WINDLASS_COMMAND, "record", "-o", folder_.string(), "--", "touch", profile_path()}, log()).wait(),
            3);
  EXPECT_EQ(Process({WINDLASS_COMMAND, "record", "-o", "", "--", "touch", profile_path()}, log()).wait(), 3);
  EXPECT_FALSE(fs::exists(profile_path())) << "a folder, or nothing, is refused before the command runs";

  setenv("TMPDIR", folder_.c_str(), 1);
  EXPECT_EQ(Process({WINDLASS_COMMAND, "record", "-o", "/dev/full", "--", kTarget, "chain", "0.3"}, log()).wait(), 3);
  unsetenv("TMPDIR");
  EXPECT_NE(text(log()).find("No space left"), std::string::npos) << text(log());
  bool rescued = false;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.path().filename().string().starts_with("windlass-"))
      rescued |= exporter::read_pprof_file(entry.path().string()).has_value();
  EXPECT_TRUE(rescued) << text(log());
}

// A log on a full disk, `record ... 2>&1 | head`, a closed stderr: what cannot be said costs no data.
TEST_F(Record, MessagesThatCannotBeWritten) {
  const std::string command = fmt::format("{} record -o {} -- {} chain 0.3", WINDLASS_COMMAND, profile_path(), kTarget);
  for (const char* end : {" 2>/dev/full", " 2>&-", " 2>&1 | true"}) {
    EXPECT_EQ(std::system((command + end).c_str()), 0) << end;
    EXPECT_GT(count(read()).all, 20u) << end;
    fs::remove(profile_path());
  }
}

TEST_F(Record, AReaderThatIsGone) {
  setenv("TMPDIR", folder_.c_str(), 1);
  const std::string command = fmt::format("({} record -o /dev/stdout -- {} chain 0.3; echo $? > {}) 2> {} | true",
                                          WINDLASS_COMMAND, kTarget, (folder_ / "status").string(), log().string());
  EXPECT_EQ(std::system(command.c_str()), 0);
  unsetenv("TMPDIR");
  EXPECT_EQ(text(folder_ / "status"), "3\n") << text(log());
  EXPECT_NE(text(log()).find("Broken pipe; the profile is in"), std::string::npos) << text(log());
}

TEST_F(Record, LibrariesThatComeAndGo) {
  ASSERT_EQ(run({"--", kTarget, "dlopen", WINDLASS_PLUGIN_A, WINDLASS_PLUGIN_B}), 0) << text(log());
  const Profile profile = read();
  const Count seen = count(profile);
  expect_samples(seen.all, 2, 2);
  const auto [a, b] = said_work();
  expect_samples(samples_in(profile, "work_a") + samples_in(profile, "work_b"), a + b, a + b);
  expect_samples(samples_in(profile, "work_a"), a, a);
  expect_samples(samples_in(profile, "work_b"), b, b);
  EXPECT_GE(static_cast<double>(seen.complete), 0.99 * static_cast<double>(seen.all)) << text(log());
}

TEST_F(Record, TenThousandShortLivedProcesses) {
  ASSERT_EQ(run({"--", kTarget, "forks", "10000"}), 0) << text(log());
  const Profile profile = read();
  const Count seen = count(profile);
  const double used = said_work().first;  // a fifth of a millisecond each
  EXPECT_GT(used, 0.5) << text(log());
  expect_samples(samples_in(profile, "short_work"), used, used);
  EXPECT_GE(static_cast<double>(seen.complete), 0.99 * static_cast<double>(seen.all)) << text(log());
  EXPECT_LT(peak_kib_, 600 * 1024) << text(log());
}

TEST_F(Record, AStackThatIsRewrittenStopsNothing) {
  ASSERT_EQ(run({"--", kTarget, "scribble", "1"}), 0) << text(log());
  EXPECT_GT(count(read()).all, 20u);
}

// How many are whole depends on the load: where the code has gone before the agent looks at it, its caller is a guess.
// But what is whole leads to the start of a thread, and what is not says that it was the code.
TEST_F(Record, CodeThatIsUnmappedWhileItIsSampled) {
  ASSERT_EQ(run({"--", kTarget, "unmap", "1"}), 0) << text(log());
  const Profile profile = read();
  const Count seen = count(profile);
  expect_samples(seen.all, 3, 3);  // three threads
  EXPECT_GT(seen.complete, 0U) << text(log());
  for (const auto& sample : profile.samples) {
    const std::string names = names_of(profile, sample);
    if (profile::is_whole(sample.end)) {
      EXPECT_TRUE(names.ends_with("clone3;") || names.ends_with("_start;") || names.ends_with("_dl_start_user;") ||
                  sample.end == WL_END_KERNEL_ONLY)
          << names;
    } else {
      EXPECT_TRUE(sample.end == WL_END_GUESSED || sample.end == WL_END_NO_MAPPING ||
                  sample.end == WL_END_BAD_FRAME_POINTER || sample.end == WL_END_NO_PROCESS)
          << unsigned{sample.end} << " " << names;
    }
  }
}

TEST_F(Record, DeletedBinary) {
  const fs::path copy = folder_ / "deleted";
  fs::copy_file(kTarget, copy);
  Process target({copy.string(), "chain", "60"});
  wait_for_chain(target);
  fs::remove(copy);
  expect_chain_of(target, record({"-p", std::to_string(target.pid())}));
}

TEST_F(Record, BinaryInAnotherMountNamespace) {
  if (std::system("unshare -m true 2>/dev/null") != 0) GTEST_SKIP() << "no mount namespaces here (in a chroot?)";
  const fs::path inside = folder_ / "inside";
  fs::create_directories(inside);
  const std::string script = fmt::format("mount -t tmpfs none {0} && cp {1} {0}/hidden && exec {0}/hidden chain 1.5",
                                         inside.string(), kTarget);
  ASSERT_EQ(run({"--", "unshare", "-m", "sh", "-c", script}), 0) << text(log());
  EXPECT_FALSE(fs::exists(inside / "hidden"));
  expect_complete(count(read()));
  expect_samples(count(read()).chain, 1.5, 1.5);
}

// In a container the agent's numbers of processes are the PID namespace's; the kernel side must speak them too.
TEST_F(Record, InsideAPidNamespace) {
  if (std::system("unshare -pfm --mount-proc true 2>/dev/null") != 0) GTEST_SKIP() << "no PID namespaces here";
  const Arguments inside{"unshare", "-pfm", "--mount-proc"};
  const auto record_inside = [&](const Arguments& rest) {
    Arguments all = inside;
    const Arguments command = record(rest);
    all.insert(all.end(), command.begin(), command.end());
    return Process(all, log()).wait();
  };
  ASSERT_EQ(record_inside({"--", "sh", "-c", kTarget + " chain 1 & " + kTarget + " chain 1; wait"}), 0) << text(log());
  Profile profile = read();
  expect_chain(count(profile), 2);  // one each
  EXPECT_EQ(processes_in_chain(profile).size(), 2u) << "both children";
  for (const auto& sample : profile.samples) EXPECT_LT(sample.pid, 100u) << "a number of the namespace";

  // What is outside is not seen, not even by -a; and inside is nothing else.
  Process outside({kTarget, "chain", "30"});
  const int status = record_inside({"-a", "--duration", "1"});
  profile = read();
  // The agent and its readers may have been met.
  for (const auto& sample : profile.samples)
    EXPECT_TRUE(profile.strings.at(sample.comm).starts_with("windlass")) << sample.pid << text(log());
  ASSERT_EQ(status, profile.samples.empty() ? 1 : 0) << text(log());
  EXPECT_EQ(text(log()).find("no samples in") != std::string::npos, profile.samples.empty()) << text(log());
  EXPECT_EQ(samples_in(profile, "inner"), 0u);
  EXPECT_NE(text(log()).find("only its processes are seen"), std::string::npos) << text(log());
}

TEST_F(Record, InsideAPidNamespaceOfAContainersContainer) {
  if (std::system("unshare -pfm --mount-proc true 2>/dev/null") != 0) GTEST_SKIP() << "no PID namespaces here";
  const std::string nested = "unshare -pfm --mount-proc " + kTarget + " chain 1";
  ASSERT_EQ(Process({"unshare", "-pfm", "--mount-proc", WINDLASS_COMMAND, "record", "-v", "-o", profile_path(), "--",
                     "sh", "-c", nested},
                    log())
                .wait(),
            0)
      << text(log());
  expect_chain(count(read()), 1);
}

// Without rights: the same stacks by perf events, as far as they go.
TEST_F(Record, WithoutBpfOwnProcessesAreWholeAndRight) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const Arguments nobody{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set", "-all"};
  const fs::path target = folder_ / "target", command = folder_ / "windlass";  // the build's may be out of reach
  fs::copy_file(kTarget, target);
  fs::copy_file(WINDLASS_COMMAND, command);
  fs::permissions(folder_, fs::perms::all);
  const auto as_nobody = [&](const Arguments& rest) {
    Arguments all = nobody;
    for (const auto& argument :
         {command.string(), std::string("record"), std::string("-v"), std::string("-o"), profile_path()})
      all.push_back(argument);
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  };
  const int status =
      Process(as_nobody({"--", "sh", "-c", fmt::format("{0} chain 1 & {0} chain 1; wait", target.string())}), log())
          .wait();
  if (status == 3 && text(log()).find("perf_event_paranoid is 3") != std::string::npos)
    GTEST_SKIP() << "this kernel's users may not sample anything: " << text(log());
  ASSERT_EQ(status, 0) << text(log());
  const Profile profile = read();
  expect_chain(count(profile), 2);  // one each
  EXPECT_EQ(processes_in_chain(profile).size(), 2u) << "both children";
  for (const auto& sample : profile.samples) {
    if (is_in_inner(names_of(profile, sample))) {
      EXPECT_EQ(profile.strings.at(sample.comm), "target");
    }
  }

  Arguments running = nobody;
  for (const char* argument : {target.c_str(), "chain", "60"}) running.emplace_back(argument);
  const Process attached(running);
  wait_for_chain(attached);
  expect_chain_of(attached, as_nobody({"-p", std::to_string(attached.pid())}));
}

// Even so little time may be sampled. Then the next recording shows it.
TEST_F(Record, OnlyTheProgramThatUsedNoCpuTimeIsToldSo) {
  const auto is_told = [&] { return text(log()).find("too little CPU time") != std::string::npos; };
  for (int tries = 0; tries < 5 && !is_told(); ++tries)
    ASSERT_EQ(
        Process({WINDLASS_COMMAND, "record", "-F", "1", "-o", profile_path(), "--", "sleep", "0.1"}, log()).wait(), 0)
        << text(log());
  EXPECT_TRUE(is_told()) << text(log());
}

TEST_F(Record, DurationEndsTheCommandToo) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run({"--duration", "1", "--", "sleep", "1000"}), 0) << text(log());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 300s);
}

// "45 of them from other recordings, 2 kept for the next ones, 0 refused"
TEST_F(Record, TheSecondRecordingTakesTablesFromTheFirst) {
  struct Tables {
    int taken = -1, kept = -1, refused = -1;
  };
  const auto tables_of = [&](const std::string& place) {
    EXPECT_EQ(run({"--no-symbols", "--table-cache", place, "--", "/bin/sleep", "0.5"}), 0) << text(log());
    const std::string said = text(log());
    const std::size_t at = said.find(" of them from other recordings");
    Tables tables;
    if (at != std::string::npos)
      std::sscanf(&said[said.rfind('\n', at) + 1],
                  "%d of them from other recordings, %d kept for the next ones, %d refused", &tables.taken,
                  &tables.kept, &tables.refused);
    return tables;
  };
  const std::string folder = folder_ / "tables";
  const Tables first = tables_of(folder);
  EXPECT_EQ(first.taken, 0) << text(log());
  EXPECT_GE(first.kept, 1) << "libc's: " << text(log());
  const Tables second = tables_of(folder);
  EXPECT_GE(second.taken, first.kept) << text(log());
  EXPECT_EQ(second.refused, 0) << text(log());
  for (const auto& file : fs::directory_iterator(folder)) fs::resize_file(file, fs::file_size(file) - 8);
  EXPECT_GE(tables_of(folder).refused, first.kept) << text(log());
  EXPECT_EQ(tables_of("none").taken, -1) << text(log());
  EXPECT_EQ(run({"--table-cache", "/dev/null/tables", "--", "true"}), 3) << text(log());
  EXPECT_NE(text(log()).find("Way out: --table-cache"), std::string::npos) << text(log());
}

TEST_F(Record, UsageErrors) {
  EXPECT_EQ(run({"--"}), 2);  // an empty variable for a command: not the whole machine
  EXPECT_EQ(run({"-a", "-p", "1"}), 2);
  EXPECT_EQ(run({"-F", "0"}), 2);
  for (const char* duration : {"-1", "0s", "2 s", "s", "1w", "inf", "nan", "1e400", "5ms5"})
    EXPECT_EQ(run({"--duration", duration}), 2) << duration;
}

}  // namespace
}  // namespace windlass::test
