// Tools of the Model Context Protocol that run this command as a process of its own: those that look at live processes
// or open the files that a profile names.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/mcp_child.h"
#include "cli/mcp_selection.h"
#include "cli/mcp_tools.h"

namespace windlass::cli {
namespace {

constexpr auto kToWalk = std::chrono::seconds(60), kToAnnotate = std::chrono::seconds(120),
               kToFinish = std::chrono::seconds(60);

// Messages of a child, one a line.
Json notes_of(const std::string& err) {
  constexpr std::size_t kMostNotes = 20;
  Json notes = Json::array();
  for (std::size_t at = 0; at < err.size() && notes.size() < kMostNotes;) {
    const std::size_t end = std::min(err.find('\n', at), err.size());
    notes.push_back(problem_of(err.substr(at, std::min<std::size_t>(end - at, 1000))));
    at = end + 1;
  }
  return notes;
}

// Why a child gave no answer; empty: it gave one.
std::string problem_with(const ChildOutput& child) {
  if (child.too_much) return "the answer is too large. Way out: choose less";
  if (child.stopped) return "it took too long, and was stopped";
  if (child.status > 128) return fmt::format("the process that worked it out ended by signal {}", child.status - 128);
  if (!child.out.empty()) return {};
  return child.err.empty() ? fmt::format("no answer; exit status {}", child.status) : problem_of(child.err);
}

// The heaviest rows that have samples, in their order.
std::vector<Json> heaviest_rows(std::vector<Json> rows, std::size_t limit, std::size_t& more) {
  const auto total = [](const Json& row) { return row.at("total").get<std::uint64_t>(); };
  std::erase_if(rows, [&](const Json& row) { return total(row) == 0; });
  if (rows.size() <= limit) return rows;
  std::vector<std::size_t> order(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](auto a, auto b) { return total(rows[a]) > total(rows[b]); });
  order.resize(limit);
  std::ranges::sort(order);
  more += rows.size() - limit;
  std::vector<Json> kept;
  for (const std::size_t i : order) kept.push_back(std::move(rows[i]));
  return kept;
}

}  // namespace

std::vector<Json> parse_lines(const std::string& text) {
  std::vector<Json> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    Json line = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(at),
                            text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (line.is_object()) lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

McpResult call_annotate(McpContext& context, const Json& arguments) {
  McpResult result;
  std::string file = text_argument(arguments, "file");
  if (context.profiles.find(file, result.problem, context.open_watch) == nullptr) return result;
  std::vector<std::string> words{"report", "--json", "--annotate=" + text_argument(arguments, "function")};
  for (std::string& option : selection_options(arguments)) words.push_back(std::move(option));
  words.insert(words.end(), {"--", file});
  const ChildOutput child = run_windlass(std::move(words), kToAnnotate, context.watch);
  result.problem = problem_with(child);
  if (!result.problem.empty()) return result;
  Json annotation = Json::object(), code = Json::array();
  std::vector<Json> source;
  std::vector<std::vector<Json>> instructions;  // of each code
  for (Json& line : parse_lines(child.out)) {
    const std::string type = line.value("type", "");
    if (type == "annotation") {
      annotation = std::move(line);
    } else if (type == "source_line") {
      source.push_back(std::move(line));
    } else if (type == "code") {
      code.push_back(std::move(line));
      instructions.emplace_back();
    } else if (type == "instruction" && !instructions.empty()) {
      instructions.back().push_back(std::move(line));
    }
  }
  const auto limit = arguments.at("limit").get<std::size_t>();
  std::size_t more = 0;
  source = heaviest_rows(std::move(source), limit, more);
  for (std::size_t i = 0; i < instructions.size(); ++i)
    code[i]["instructions"] = heaviest_rows(std::move(instructions[i]), limit, more);
  result.value = {{"annotation", std::move(annotation)},
                  {"source_lines", std::move(source)},
                  {"code", std::move(code)},
                  {"more", more},
                  {"notes", notes_of(child.err)}};
  return result;
}

McpResult call_walk(McpContext& context, const Json& arguments) {
  McpResult result;
  const auto pid = arguments.at("pid").get<std::uint64_t>();
  std::vector<std::string> words{"walk", "--json", fmt::format("--pid={}", pid)};
  for (const char* flag : {"lines", "inlines"})
    if (arguments.at(flag).get<bool>()) words.push_back(fmt::format("--{}", flag));
  const ChildOutput child = run_windlass(std::move(words), kToWalk, context.watch);
  result.problem = problem_with(child);
  if (!result.problem.empty()) return result;
  std::vector<Json> threads = parse_lines(child.out);
  const std::size_t all = threads.size();
  threads.resize(std::min(all, arguments.at("threads").get<std::size_t>()));
  const auto most_frames = arguments.at("frames").get<std::size_t>();
  std::size_t more_frames = 0;
  for (Json& thread : threads) {
    Json& frames = thread.at("frames");
    if (frames.size() <= most_frames) continue;
    more_frames += frames.size() - most_frames;
    frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(most_frames), frames.end());
  }
  const std::size_t shown = threads.size();
  result.value = {{"pid", pid},
                  {"threads", std::move(threads)},
                  {"more", all - shown},
                  {"more_frames", more_frames},
                  {"notes", notes_of(child.err)}};
  return result;
}

McpResult call_record(McpContext& context, const Json& arguments) {
  McpResult result;
  if (context.folder.empty()) {
    const char* place = std::getenv("TMPDIR");
    std::string folder = std::string(place != nullptr && *place != '\0' ? place : "/tmp") + "/windlass-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
      result.problem = fmt::format("no folder for recordings can be made as {}: {}", folder, std::strerror(errno));
      return result;
    }
    context.folder = std::move(folder);
  }
  const std::string file = fmt::format("{}/{}.pb.gz", context.folder, ++context.recordings);
  const double duration = arguments.at("duration").get<double>();
  std::vector<std::string> words{"record", "-o", file, fmt::format("--duration={:.3f}s", duration),
                                 fmt::format("--frequency={}", arguments.at("frequency").get<std::uint64_t>())};
  words.push_back(arguments.contains("pid") ? fmt::format("--pid={}", arguments.at("pid").get<std::uint64_t>()) : "-a");
  if (arguments.at("off_cpu").get<bool>()) words.emplace_back("--off-cpu");
  if (arguments.at("timeline").get<bool>()) words.emplace_back("--timeline");
  const auto most = std::chrono::milliseconds(static_cast<std::int64_t>(duration * 1000)) + kToFinish;
  const ChildOutput child = run_windlass(std::move(words), most, context.watch);
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) {  // `record` prints nothing on standard output
    result.problem = child.err.empty() || child.status > 128 ? problem_with(child) : problem_of(child.err);
    return result;
  }
  const profile::Profile* profile = context.profiles.open(file, result.problem, context.open_watch);
  if (profile == nullptr) return result;
  result.value = summary_of(file, *profile);
  result.value["notes"] = notes_of(child.err);
  return result;
}

}  // namespace windlass::cli
