// Profiles that a client opens and asks about. A file may be hostile, endless or large, so a process of its own reads
// and converts it. Another one works each answer out.
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "base/text_writer.h"
#include "cli/child_answer.h"
#include "cli/commands.h"
#include "cli/mcp_selection.h"
#include "cli/mcp_tools.h"
#include "cli/profile_input.h"
#include "profiler/export/pprof.h"

namespace windlass::cli {
namespace {

constexpr ChildLimits kToCompute{.patience = std::chrono::seconds(120), .most_bytes = std::size_t{64} << 20};
constexpr ChildLimits kToOpen{.patience = std::chrono::seconds(300), .most_bytes = std::size_t{256} << 20};

// Why a file cannot be a profile; empty: it may be one. Files of the kernel claim to be regular, but reads of some wait
// for events.
std::string not_to_open(const std::string& file) {
  if (file == "-") return "standard input has the protocol, and no profile";
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return file + ": not a regular file";
  struct statfs place {};
  const long kKernels[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC, DEBUGFS_MAGIC};
  if (::statfs(file.c_str(), &place) == 0 && std::ranges::find(kKernels, place.f_type) != std::end(kKernels))
    return file + ": a file of the kernel, and no profile";
  return {};
}

// The profile as pprof.
WorkedOut convert(const std::string& file) {
  WorkedOut answer;
  int ignored = kDone;
  std::string said;
  std::optional<profile::Profile> profile;
  {
    const SaidInto into(said);
    profile = read_profile(file, "report", ignored);
  }
  if (!profile) return {.good = false, .text = problem_of(said)};
  TextWriter out(&answer.text);
  answer.good = exporter::write_pprof(*profile, out).has_value();
  out.flush();
  return answer;
}

WorkedOut wait_for(ChildAnswer child, const ChildWatch& watch) {
  while (child.go_on()) {
    pollfd wanted[] = {{child.descriptor(), POLLIN, 0}, {watch.descriptor(), POLLIN, 0}};
    constexpr int kSecond = 1000;  // go_on() looks at the clock
    if (poll(wanted, std::size(wanted), kSecond) > 0 && wanted[1].revents != 0 && watch.has_to_stop())
      return {};  // nobody waits for the reason
  }
  return child.answer();
}

}  // namespace

McpResult call_apart(McpContext& context, const McpTool& tool, const Json& arguments) {
  McpResult result;
  for (const McpArgument& argument : tool.arguments) {
    if (argument.name != "file" && argument.name != "a" && argument.name != "b") continue;
    std::string file = text_argument(arguments, argument.name.c_str());
    if (context.profiles.find(file, result.problem, context.open_watch) == nullptr) return result;
  }
  const auto work = [&] {
    context.open_watch = {};  // the parent reads the client's lines
    const McpResult made = tool.call(context, arguments);
    if (!made.problem.empty()) return WorkedOut{.good = false, .text = made.problem};
    return WorkedOut{.good = true, .text = made.value.dump(-1, ' ', false, Json::error_handler_t::replace)};
  };
  auto child = ChildAnswer::start(work, kToCompute);
  if (!child) return {.problem = child.error().what};
  WorkedOut answer = wait_for(std::move(*child), context.open_watch);
  if (!answer.good) return {.problem = std::move(answer.text)};
  return {.value = Json::parse(answer.text, nullptr, false)};
}

const profile::Profile* OpenProfiles::open(const std::string& file, std::string& problem, const ChildWatch& watch) {
  problem = not_to_open(file);
  if (!problem.empty()) return nullptr;
  auto child = ChildAnswer::start([&] { return convert(file); }, kToOpen);
  if (!child) {
    problem = child.error().what;
    return nullptr;
  }
  const WorkedOut answer = wait_for(std::move(*child), watch);
  if (!answer.good) {
    problem = answer.text;
    return nullptr;
  }
  const auto bytes = std::as_bytes(std::span(answer.text));
  auto profile = exporter::read_pprof(ByteView(bytes.data(), bytes.size()));
  if (!profile) {
    problem = profile.error().what;
    return nullptr;
  }
  profiles_.remove_if([&](const auto& one) { return one.first == file; });
  if (profiles_.size() == kMost) profiles_.pop_back();
  profiles_.emplace_front(file, std::move(*profile));
  return &profiles_.front().second;
}

const profile::Profile* OpenProfiles::find(std::string& file, std::string& problem, const ChildWatch& watch) {
  if (file.empty() && profiles_.empty()) {
    problem = "no profile is open. Way out: name a file, or call open_profile";
    return nullptr;
  }
  if (file.empty()) file = profiles_.front().first;
  const auto known = std::ranges::find(profiles_, file, &std::pair<std::string, profile::Profile>::first);
  return known != profiles_.end() ? &known->second : open(file, problem, watch);
}

}  // namespace windlass::cli
