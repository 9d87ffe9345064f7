// The processed profile format of the Firefox Profiler (github.com/firefox-devtools/profiler, src/types/profile.ts).
// Its tables are columns. In newer versions threads share tables, which are in `shared`: each table is looked for in
// the thread, then there.
//
// The raw format of Firefox itself ("Gecko profile") has rows and a schema in their place, and is refused.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/import/import.h"
#include "profiler/import/json_text.h"

namespace windlass::importer {
namespace {

using profile::kNone;

constexpr std::uint64_t kNanosecondsOfMillisecond = 1000000;

// What a thread's stacks are made of.
struct Tables {
  std::vector<std::string> strings;
  std::vector<std::uint32_t> stack_frames, stack_prefixes;
  std::vector<std::uint32_t> frame_functions, frame_lines, frame_depths;
  std::vector<std::uint64_t> frame_addresses;
  std::vector<std::uint32_t> function_names, function_resources, function_files, function_lines;
  std::vector<std::uint32_t> resource_libs;
};

std::uint32_t number_of(const JsonValue& value) {
  const auto index = value.index();
  return index && *index < kNone ? static_cast<std::uint32_t>(*index) : kNone;
}

template <typename Number>
Number at(const std::vector<Number>& column, std::size_t index, Number otherwise) {
  return index < column.size() ? column[index] : otherwise;
}

// A thread that lacks one of these has that of the file's "shared".
constexpr std::string_view kTables[] = {"stringArray", "stackTable",    "frameTable",
                                        "funcTable",   "resourceTable", "sources"};

class FirefoxReader {
 public:
  FirefoxReader(const JsonValue& root, const Limits& limits) : root_(root), builder_(limits) {}

  Expected<profile::Profile> read() {
    const JsonValue meta = root_["meta"], threads = root_["threads"];
    const JsonValue shared = root_["shared"];
    shared.for_each_member([&](std::string_view name, const JsonValue& value) {
      if (std::ranges::find(kTables, name) != std::end(kTables)) shared_.try_emplace(std::string(name), value);
    });
    if (!meta["preprocessedProfileVersion"])
      return fail(ErrorCode::kUnsupported,
                  "a raw profile of Firefox: open it at profiler.firefox.com and save it, which writes a processed one",
                  meta.where());
    if (const auto interval = meta["interval"].number(); interval && *interval > 0 && *interval < 1e9)
      period_ = static_cast<std::uint64_t>(std::round(*interval * 1e6));
    root_["libs"].for_each([&](const JsonValue& lib) {
      add_lib(lib);
      return builder_.has_room();
    });
    const std::string product = meta["product"].string();
    builder_.edit().ends_known = false;
    if (!product.empty()) builder_.edit().comments.push_back(product);
    if (const auto start = meta["startTime"].number(); start && *start > 0 && *start < 9e12)
      builder_.edit().start_unix_ns = static_cast<std::uint64_t>(*start) * kNanosecondsOfMillisecond;
    if (shared_.contains("stackTable")) read_tables(shared, shared_tables_.emplace());
    threads.for_each([&](const JsonValue& thread) {
      read_thread(thread);
      return !error_ && builder_.has_room();
    });
    if (error_) return Failure(*error_);
    return builder_.profile();
  }

 private:
  void add_lib(const JsonValue& lib) {
    profile::Module module;
    lib.for_each_member([&](std::string_view key, const JsonValue& value) {
      if (key == "path") module.path = value.string();
      if (key == "name" && module.path.empty()) module.path = value.string();
      if (key == "codeId") module.build_id = value.string();
    });
    std::ranges::transform(module.build_id, module.build_id.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    libs_.push_back(builder_.add_module(std::move(module)));
  }

  template <typename Number, typename Read>
  void column(const JsonValue& table, std::string_view name, std::vector<Number>& to, Read value_of) {
    table[name].for_each([&](const JsonValue& value) {
      to.push_back(value_of(value));
      return true;
    });
  }
  [[nodiscard]] JsonValue table(const JsonValue& from, std::string_view name) const {
    if (const JsonValue own = from[name]) return own;
    const auto shared = shared_.find(std::string(name));
    return shared != shared_.end() ? shared->second : JsonValue();
  }

  void read_tables(const JsonValue& from, Tables& to) {
    table(from, "stringArray").for_each([&](const JsonValue& value) {
      to.strings.push_back(value.string());
      return true;
    });
    const JsonValue stacks = table(from, "stackTable"), frames = table(from, "frameTable"),
                    functions = table(from, "funcTable"), resources = table(from, "resourceTable"),
                    sources = table(from, "sources");
    column(stacks, "frame", to.stack_frames, number_of);
    column(stacks, "prefix", to.stack_prefixes, number_of);
    column(frames, "func", to.frame_functions, number_of);
    column(frames, "line", to.frame_lines, number_of);
    column(frames, "inlineDepth", to.frame_depths, number_of);
    column(frames, "address", to.frame_addresses, [](const JsonValue& value) { return value.index().value_or(0); });
    column(functions, "name", to.function_names, number_of);
    column(functions, "resource", to.function_resources, number_of);
    column(functions, "lineNumber", to.function_lines, number_of);
    column(resources, "lib", to.resource_libs, number_of);
    // Older versions have the file's name in the function, newer ones a number of `sources`.
    column(functions, "fileName", to.function_files, number_of);
    if (!to.function_files.empty() || !sources) return;
    std::vector<std::uint32_t> files;
    column(sources, "filename", files, number_of);
    column(functions, "source", to.function_files, number_of);
    for (std::uint32_t& file : to.function_files) file = at(files, file, kNone);
    builder_.count(files.size());
  }
  // A thread that leaves out a table has read the shared one once more.
  void count_shared(const JsonValue& from, const Tables& read) {
    const std::pair<const char*, std::size_t> tables[] = {{"stringArray", read.strings.size()},
                                                          {"stackTable", read.stack_frames.size()},
                                                          {"frameTable", read.frame_functions.size()},
                                                          {"funcTable", read.function_names.size()},
                                                          {"resourceTable", read.resource_libs.size()}};
    for (const auto& [name, size] : tables)
      if (!from[name]) builder_.count(size);
  }

  std::uint32_t event_of(const std::string& weight_type) {
    const auto [known, is_new] = events_.try_emplace(weight_type, 0);
    if (is_new)
      known->second = builder_.event(weight_type == "bytes"        ? profile::Event{.name = "bytes", .unit = "bytes"}
                                     : weight_type == "tracing-ms" ? profile::Event{.name = "traced time"}
                                                                   : profile::Event{.name = "time", .period = period_});
    return known->second;
  }

  static std::uint32_t id_of(const JsonValue& value) {
    if (!value.is_string()) return number_of(value) == kNone ? 0 : number_of(value);
    const std::string text = value.string();
    std::uint32_t id = 0;
    std::from_chars(text.data(), text.data() + text.size(), id);
    return id;
  }

  void read_thread(const JsonValue& thread) {
    const JsonValue samples = thread["samples"];
    if (!samples["stack"].is_array()) return;  // there are none
    std::optional<Tables> own;
    if (thread["stackTable"] || !shared_tables_) {
      read_tables(thread, own.emplace());
      count_shared(thread, *own);
    }
    const Tables& tables = own ? *own : *shared_tables_;
    profile::Sample sample;
    sample.pid = id_of(thread["pid"]);
    sample.tid = id_of(thread["tid"]);
    sample.comm = builder_.string(thread["name"].string());
    const std::string weight_type = samples["weightType"].string();
    sample.event = event_of(weight_type);
    std::vector<double> weights;
    column(samples, "weight", weights, [](const JsonValue& value) { return value.number().value_or(0); });
    const std::vector<double> times = times_of(samples);
    std::unordered_map<std::uint32_t, std::uint32_t> known;  // samples of stacks
    std::size_t number = 0;
    samples["stack"].for_each([&](const JsonValue& value) {
      const double weight = at(weights, number, 1.0), time = at(times, number, -1.0);
      ++number;
      if (value.is_null()) return true;
      const double scaled = std::round(weight_type == "tracing-ms" ? weight * 1e6 : weight);
      if (!(scaled > 0) || scaled > 9e18) return true;  // differences have no place in a profile
      sample.value = static_cast<std::uint64_t>(scaled);
      sample.count = weight_type == "tracing-ms" || weight_type == "bytes" ? 1 : sample.value;
      if (static_cast<double>(sample.count) > 9e18 / static_cast<double>(period_)) return true;
      const auto [entry, is_new] = known.try_emplace(number_of(value), 0);
      if (is_new) {
        sample.locations.clear();
        if (!add_stack(tables, value, sample.locations)) return false;
        entry->second = builder_.sample_of_reference(sample);
      }
      builder_.add_to(entry->second, sample,
                      time >= 0 && time < 9e12 ? std::optional(static_cast<std::uint64_t>(time * 1e6)) : std::nullopt);
      return builder_.has_room();
    });
  }
  // Milliseconds. Older versions have times, newer ones may have the time since the sample before.
  std::vector<double> times_of(const JsonValue& samples) {
    std::vector<double> times;
    const auto number = [](const JsonValue& value) { return value.number().value_or(0); };
    column(samples, "time", times, number);
    if (!times.empty()) return times;
    column(samples, "timeDeltas", times, number);
    double now = 0;
    for (double& time : times) time = now += time;
    return times;
  }

  // A stack is the innermost of its frames, and the stack of its callers. Inlined frames stand before the one that they
  // are inlined in.
  bool add_stack(const Tables& tables, const JsonValue& value, profile::Stack& to) {
    std::uint32_t stack = number_of(value);
    std::vector<profile::Line> lines;
    std::uint32_t last = kNone;
    while (stack != kNone) {
      const std::uint32_t frame = at(tables.stack_frames, stack, kNone);
      const std::uint32_t function = at(tables.frame_functions, frame, kNone);
      const std::uint32_t name = at(tables.function_names, function, kNone);
      // A caller's stack stands before its callees'. So there is no circle.
      if (stack >= last || name >= tables.strings.size()) return refuse(value);
      last = stack;
      const std::uint32_t file = at(tables.function_files, function, kNone);
      const std::uint32_t start = at(tables.function_lines, function, kNone),
                          line = at(tables.frame_lines, frame, kNone);
      lines.push_back({builder_.function(tables.strings[name],
                                         file < tables.strings.size() ? std::string_view(tables.strings[file]) : "",
                                         start == kNone ? 0 : start),
                       line == kNone ? 0 : line});
      stack = at(tables.stack_prefixes, stack, kNone);
      const bool is_inlined = at(tables.frame_depths, frame, 0u) != 0 && stack != kNone;
      if (is_inlined) {
        builder_.count(1);
        if (!builder_.has_room()) return false;
        continue;
      }
      const std::uint32_t lib = at(tables.resource_libs, at(tables.function_resources, function, kNone), kNone);
      to.push_back(
          builder_.location(at(libs_, lib, kNone), at(tables.frame_addresses, frame, std::uint64_t{0}), lines));
      lines.clear();
    }
    return true;
  }
  bool refuse(const JsonValue& at) {
    error_ = Error{ErrorCode::kOutOfRange, "a stack that the tables of its thread do not have", at.where()};
    return false;
  }

  JsonValue root_;
  std::unordered_map<std::string, JsonValue> shared_;
  ProfileBuilder builder_;
  std::uint64_t period_ = kNanosecondsOfMillisecond;  // of samples
  std::vector<std::uint32_t> libs_;                   // modules
  std::optional<Tables> shared_tables_;
  std::map<std::string, std::uint32_t> events_;  // by the type of weights
  std::optional<Error> error_;
};

}  // namespace

Expected<profile::Profile> read_firefox(std::string_view text, const Limits& limits) {
  const auto root = JsonValue::parse(text);
  if (!root) return Failure(root.error());
  return FirefoxReader(*root, limits).read();
}

}  // namespace windlass::importer
