// The file of options of `windlass agent`, SIGHUP, the counters for Prometheus, and what report asks of a store.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "support/agent_store.h"

namespace windlass::test {
namespace {

class AgentOptions : public AgentStore {
 protected:
  std::string config(const std::string& text) const {
    const std::string file = folder_ + "/agent.conf";
    std::ofstream(file) << text;
    return file;
  }
  // "": refused.
  static std::string ask(int family, const sockaddr* address, socklen_t size, const std::string& request) {
    const int client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::string answer;
    if (connect(client, address, size) == 0 && send(client, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
      char buffer[4096];
      for (ssize_t got; (got = recv(client, buffer, sizeof buffer, 0)) > 0;)
        answer.append(buffer, static_cast<std::size_t>(got));
    }
    close(client);
    return answer;
  }
  static std::string ask_port(std::uint16_t port, const std::string& request) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ask(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address, request);
  }
  // By name and labels. Each line is checked against the format, and each family has its type before.
  static std::map<std::string, double> numbers_in(const std::string& answer) {
    std::map<std::string, double> numbers;
    std::set<std::string> families;
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;")) << answer;
    std::istringstream lines(answer.substr(answer.find("\r\n\r\n") + 4));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# TYPE ")) families.insert(line.substr(7, line.find(' ', 7) - 7));
      if (line.starts_with("#")) continue;
      const std::size_t mark = line.rfind(' ');
      const std::string name = line.substr(0, mark);
      EXPECT_TRUE(families.contains(name.substr(0, name.find('{')))) << line;
      char* end = nullptr;
      const double value = std::strtod(line.c_str() + mark + 1, &end);
      EXPECT_EQ(*end, '\0') << line;
      EXPECT_TRUE(numbers.emplace(name, value).second) << line;
    }
    return numbers;
  }
};

constexpr const char* kGet = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST_F(AgentOptions, AFileHasTheOptionsOfTheCommandLine) {
  const std::string file =
      config(fmt::format("# of a test\n\nstore = {}\nhost=from-file\n  interval = 500ms\nfrequency = 97\nlabel = "
                         "a=1\nlabel = b=2\noff-cpu\n",
                         path_));
  const CommandResult done =
      run(fmt::format("{} agent --config {} --duration 3 --interval 1s 2>&1", WINDLASS_COMMAND, file));
  EXPECT_EQ(done.status, 0) << done.output;
  const auto numbers = numbers_of(done.output);
  EXPECT_LE(numbers[2], 4u) << "the command line's interval counts";
  const store::Stacks stacks = all();
  std::set<std::string> events;
  for (const auto& event : stacks.events) events.insert(event.name);
  EXPECT_EQ(events, (std::set<std::string>{"cpu", "off-cpu"}));
  ASSERT_FALSE(stacks.label_sets.empty());
  for (const auto& set : stacks.label_sets) {
    EXPECT_EQ(set.host, "from-file");
    const std::set<store::Label> labels(set.labels.begin(), set.labels.end());
    EXPECT_TRUE(labels.contains({"a", "1"}) && labels.contains({"b", "2"}));
  }
}

TEST_F(AgentOptions, WhatIsWrongInAFileIsSaidWithItsLine) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"host = here\n\nkeep-siez = 1G\n", "line 3: there is no option keep-siez"},
      {"frequency = fast\n", "line 1: "},
      {"\nkeep-size = 1K\n", "line 2: "},
      {"config = other\n", "line 1: there is no option config"},
      {"help\n", "line 1: there is no option help"},
      {"two words = 1\n", "line 1: neither OPTION = VALUE nor OPTION"},
      {"host =\n", "line 1: neither"},
      {"--host = x\n", "line 1: neither"},
      {"[section]\n", "line 1: neither"},
      {"metrics = example.org:9309\n", "line 1: "},
      {"all\npid = 1\n", "agent.conf: "},
  };
  for (const auto& [text, said] : kWrong) {
    const CommandResult done = agent(fmt::format("--duration 1 --config {}", config(text)));
    EXPECT_EQ(done.status, 2) << text << done.output;
    EXPECT_NE(done.output.find(said), std::string::npos) << text << done.output;
    EXPECT_NE(done.output.find("agent.conf"), std::string::npos) << done.output;
  }
  EXPECT_EQ(agent(fmt::format("--duration 1 --config {}/none", folder_)).status, 2);
  EXPECT_EQ(run(fmt::format("{} agent --duration 1 2>&1", WINDLASS_COMMAND)).status, 2) << "no store";
}

TEST_F(AgentOptions, SighupReadsTheFileAgain) {
  const std::string file = config("host = before\nfrequency = 97\n");
  auto agent = start(fmt::format("-a --interval 500ms --config {}", file));
  await_intervals(2);
  (void)config("host = after\nfrequency = 49\noff-cpu\n");
  agent->signal(SIGHUP);
  ASSERT_TRUE(agent->said("was read again")) << agent->text();
  ASSERT_TRUE(agent->said("; Ctrl-C ends it", 2)) << agent->text();
  await_intervals(all().intervals + 2);
  (void)config("hots = wrong\n");
  agent->signal(SIGHUP);
  ASSERT_TRUE(agent->said("line 1: there is no option hots")) << agent->text();
  ASSERT_TRUE(agent->said("; Ctrl-C ends it", 3)) << agent->text();
  await_intervals(all().intervals + 2);
  // A file that is right in itself, with a filter that this machine does not have.
  (void)config("cgroup = /no/such/group\n");
  agent->signal(SIGHUP);
  ASSERT_TRUE(agent->said("the options stay as they were")) << agent->text();
  ASSERT_TRUE(agent->said("; Ctrl-C ends it", 4)) << agent->text();
  await_intervals(all().intervals + 2);
  agent->signal(SIGTERM);
  const CommandResult done = agent->wait();
  EXPECT_EQ(done.status, 0) << done.output;
  const auto numbers = numbers_of(done.output);
  const store::Stacks stacks = all();
  std::map<std::string, std::uint64_t> cpu, waits;
  for (const auto& stack : stacks.stacks)
    (stacks.events[stack.event].name == "cpu" ? cpu : waits)[stacks.label_sets[stack.labels].host] += stack.sums.count;
  EXPECT_EQ(cpu.size(), 2u);
  EXPECT_GT(cpu["before"], 0u);
  EXPECT_GT(cpu["after"], 0u);
  EXPECT_EQ(waits.size(), 1u);
  EXPECT_GT(waits["after"], 0u);
  EXPECT_EQ(count_of(stacks), numbers[0]);
  EXPECT_EQ(stacks.intervals, numbers[2]);
}

TEST_F(AgentOptions, CountersAreServed) {
  auto agent = start("-a -F 97 --interval 500ms --metrics 127.0.0.1:0");
  ASSERT_TRUE(agent->said("/metrics\n")) << agent->text();
  const std::string said = agent->text();
  const auto port = static_cast<std::uint16_t>(std::atoi(said.c_str() + said.find("127.0.0.1:") + 10));
  await_intervals(3);
  auto numbers = numbers_in(ask_port(port, kGet));
  const auto is = [&](const std::string& name) {
    EXPECT_TRUE(numbers.contains("windlass_agent_" + name)) << name;
    return numbers["windlass_agent_" + name];
  };
  EXPECT_GT(is("samples_total"), 0);
  EXPECT_GE(is("samples_total"), is("stored_samples_total"));
  EXPECT_GE(is("stored_intervals_total"), 2);
  for (const char* reason : {"ring_full", "wait_maps_full", "stack_event_lost", "not_stored"})
    EXPECT_LT(is(fmt::format("lost_samples_total{{reason=\"{}\"}}", reason)), is("samples_total"));
  for (const char* bound : {"stack_frames", "distinct_samples", "sample_frames", "addresses", "thread_names",
                            "processes_with_generated_code", "waiting_parts", "waiting_intervals"}) {
    EXPECT_GT(is(fmt::format("bound_limit{{bound=\"{}\"}}", bound)), 0);
    EXPECT_LT(is(fmt::format("bound_used{{bound=\"{}\"}}", bound)),
              is(fmt::format("bound_limit{{bound=\"{}\"}}", bound)));
  }
  EXPECT_GT(is("store_bytes{file=\"database\"}") + is("store_bytes{file=\"log\"}"), 4096);
  EXPECT_GT(is("store_oldest_seconds"), 0.9);
  EXPECT_LT(is("store_newest_seconds"), is("store_oldest_seconds"));
  EXPECT_GT(is("resident_bytes"), 1e6);
  EXPECT_GT(is("cpu_seconds_total"), 0);
  EXPECT_EQ(is("recordings_total"), 1);
  EXPECT_TRUE(ask_port(port, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(ask_port(port, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
  EXPECT_EQ(ask_port(port, std::string(100'000, 'x')), "");
  EXPECT_EQ(ask_port(port, "GET /metr"), "") << "half a request is let go after two seconds";
  EXPECT_FALSE(ask_port(port, kGet).empty());
  agent->signal(SIGTERM);
  EXPECT_EQ(agent->wait().status, 0);
}

TEST_F(AgentOptions, CountersAreServedAtASocketFile) {
  const std::string place = folder_ + "/metrics.sock";
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  place.copy(address.sun_path, sizeof address.sun_path - 1);
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  // One that an agent has left behind is replaced.
  const int old = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(old, at, sizeof address), 0);
  close(old);
  auto agent = start(fmt::format("-a --interval 500ms --metrics unix:{}", place));
  await_intervals(1);
  EXPECT_FALSE(numbers_in(ask(AF_UNIX, at, sizeof address, kGet)).empty());
  struct stat facts {};
  ASSERT_EQ(stat(place.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0660u);
  // Nobody takes the socket of an agent that listens.
  EXPECT_EQ(run(fmt::format("{} agent --store {}/other.db --duration 1 --metrics unix:{} 2>&1", WINDLASS_COMMAND,
                            folder_, place))
                .status,
            3);
  agent->signal(SIGTERM);
  EXPECT_EQ(agent->wait().status, 0);
  EXPECT_NE(stat(place.c_str(), &facts), 0) << "it is gone with the agent";
}

TEST_F(AgentOptions, ReportReadsOneProcessOfAStore) {
  const CommandResult done = agent("-F 97 --interval 1s -- " + std::string(kBusy));
  ASSERT_EQ(done.status, 0) << done.output;
  const auto report = [&](const std::string& options) {
    return run(fmt::format("{} report {} 2>&1", WINDLASS_COMMAND, options));
  };
  const store::Stacks stacks = all();
  std::map<std::string, std::uint64_t> counts;
  for (const auto& stack : stacks.stacks) counts[stacks.label_sets[stack.labels].process] += stack.sums.count;
  ASSERT_TRUE(counts.contains("dash") || counts.contains("sh")) << counts.size();
  const std::string shell = counts.contains("dash") ? "dash" : "sh";
  const CommandResult of_one = report(fmt::format("--folded {}@-1h --only process={}", path_, shell));
  EXPECT_EQ(of_one.status, 0) << of_one.output;
  std::uint64_t sum = 0;
  std::istringstream lines(of_one.output);
  for (std::string line; std::getline(lines, line);)
    sum += std::strtoull(line.c_str() + line.rfind(' ') + 1, nullptr, 10);
  EXPECT_EQ(sum, counts[shell]) << of_one.output;
  const CommandResult none = report(fmt::format("{} --only process=nobody", path_));
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.output.find("no sample has process=nobody"), std::string::npos) << none.output;
  EXPECT_NE(none.output.find(shell), std::string::npos) << none.output;
  const CommandResult times = report(fmt::format("{}@-1h --from 1", path_));
  EXPECT_EQ(times.status, 2);
  EXPECT_NE(times.output.find(path_ + "@-1h"), std::string::npos) << times.output;
  EXPECT_EQ(times.output.find("--timeline"), std::string::npos) << times.output;
}

}  // namespace
}  // namespace windlass::test
