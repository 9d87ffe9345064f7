// Stacks by their ids: frames, functions and modules.
#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "profiler/export/hash_slots.h"
#include "profiler/store/clickhouse_query.h"
#include "profiler/store/clickhouse_schema.h"
#include "profiler/store/clickhouse_wire.h"
#include "profiler/store/id_numbers.h"

namespace windlass::store {

namespace {

std::uint64_t hash_of_function(std::string_view name, std::string_view file, std::uint32_t line) {
  const std::hash<std::string_view> hash;
  return exporter::mix_hash(exporter::mix_hash(hash(name), hash(file)), line);
}

class FrameReader {
 public:
  explicit FrameReader(ClickhouseServer& server) : server_(server) {}

  Expected<Frames> ask(std::span<const std::uint64_t> stacks) {
    for (const std::uint64_t stack : stacks) stacks_.number_of(stack);
    if (const auto read = read_stacks(); !read) return Failure(read.error());
    if (const auto read = read_frames(); !read) return Failure(read.error());
    made_.stacks.reserve(stacks.size());
    for (const std::uint64_t stack : stacks) {
      const Part part = parts_[stacks_.number_of(stack)];
      if (!part.is_known) return fail(ErrorCode::kMalformed, kNoSuchStack, 0);
      auto& list = made_.stacks.emplace_back(part.count);
      for (std::size_t i = 0; i < list.size(); ++i) {
        list[i] = locations_[numbers_[part.first + i]];
        if (list[i] == profile::kNone) return fail(ErrorCode::kMalformed, kNoSuchStack, 0);
      }
    }
    return std::move(made_);
  }

 private:
  struct Part {  // of numbers_
    bool is_known = false;
    std::size_t first = 0, count = 0;
  };

  // A condition that the rows of these ids meet, and perhaps as many others. Ids of a service lie together. If most of
  // these are asked for, a range is read in half the time: the server need not read a list of ids.
  Expected<std::string> rows_of(std::string_view table, std::string_view column,
                                const std::vector<std::uint64_t>& ids) {
    constexpr std::size_t kMostRanges = 16;
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> ranges;  // of each group of ids
    for (const std::uint64_t id : ids) {
      auto& [first, last] = ranges.try_emplace(id >> kIdRestBits, id, id).first->second;
      first = std::min(first, id);
      last = std::max(last, id);
      if (ranges.size() > kMostRanges) return fmt::format("{} IN {}", column, sql_ids(ids));
    }
    std::string within;
    for (const auto& [group, range] : ranges)
      within += fmt::format("{}{} BETWEEN {} AND {}", within.empty() ? "" : " OR ", column, range.first, range.second);
    const auto answer = server_.query(fmt::format("SELECT count() FROM {} WHERE {} FORMAT RowBinary", table, within));
    if (!answer) return Failure(answer.error());
    RowReader row(*answer);
    const std::uint64_t rows = row.u64();
    if (!row.is_good()) return fail(ErrorCode::kMalformed, kCutAnswer, 0);
    return rows / 2 <= ids.size() ? within : fmt::format("{} IN {}", column, sql_ids(ids));
  }

  Expected<void> read_stacks() {
    if (stacks_.ids().empty()) return {};
    const auto rows = rows_of("stacks", "stack", stacks_.ids());
    if (!rows) return Failure(rows.error());
    const auto answer = server_.query("SELECT stack, frames FROM stacks WHERE " + *rows + " FORMAT RowBinary");
    if (!answer) return Failure(answer.error());
    parts_.resize(stacks_.ids().size());
    numbers_.reserve(answer->size() / sizeof(std::uint64_t));
    RowReader row(*answer);
    while (row.has_more()) {
      const auto stack = stacks_.find(row.u64());
      const std::size_t first = numbers_.size();
      row.each_number<std::uint64_t>([&](std::uint64_t frame) {
        if (stack) numbers_.push_back(frames_.number_of(frame));
      });
      if (stack) parts_[*stack] = {true, first, numbers_.size() - first};
    }
    locations_.assign(frames_.ids().size(), profile::kNone);
    return is_whole(row);
  }

  Expected<void> read_frames() {
    if (locations_.empty()) return {};
    const auto rows = rows_of("frames", "frame", frames_.ids());
    if (!rows) return Failure(rows.error());
    const auto answer = server_.query(
        "SELECT frame, has_module, path, build_id, begin, end, file_offset, pid, is_kernel, address, function_begin, "
        "interpreted, functions, system_names, files, start_lines, lines, has_function FROM frames WHERE " +
        *rows + " ORDER BY frame, ver DESC LIMIT 1 BY frame FORMAT RowBinary");
    if (!answer) return Failure(answer.error());
    made_.locations.reserve(locations_.size());
    RowReader row(*answer);
    while (row.has_more()) {
      const auto number = frames_.find(row.u64());
      profile::Location location;
      location.module = module(row, number.has_value());
      location.address = row.u64();
      location.function_begin = row.u64();
      location.interpreted = row.u8() != 0;
      if (!take_lines(row, number.has_value(), location)) return fail(ErrorCode::kMalformed, kNoSuchStack, 0);
      if (!number) continue;
      locations_[*number] = static_cast<std::uint32_t>(made_.locations.size());
      made_.locations.push_back(std::move(location));
    }
    return is_whole(row);
  }
  static Expected<void> is_whole(const RowReader& row) {
    if (row.is_good()) return {};
    return fail(ErrorCode::kMalformed, kCutAnswer, 0);
  }

  // Two modules are the same if their columns are the same bytes.
  std::uint32_t module(RowReader& row, bool is_wanted) {
    const std::string_view from = row.rest();
    const bool has = row.u8() != 0;
    const std::string_view path = row.view(), build_id = row.view();
    profile::Module module;
    module.begin = row.u64();
    module.end = row.u64();
    module.file_offset = row.u64();
    module.pid = row.u32();
    module.is_kernel = row.u8() != 0;
    if (!has || !is_wanted) return profile::kNone;
    const auto [place, is_new] =
        modules_.try_emplace(row.since(from), static_cast<std::uint32_t>(made_.modules.size()));
    if (!is_new) return place->second;
    module.path = path;
    module.build_id = build_id;
    made_.modules.push_back(std::move(module));
    return place->second;
  }

  bool take_lines(RowReader& row, bool is_wanted, profile::Location& to) {
    row.views(names_);
    row.views(system_names_);
    row.views(files_);
    const auto starts = row.numbers<std::uint32_t>(), lines = row.numbers<std::uint32_t>();
    const auto has = row.numbers<std::uint8_t>();
    for (const std::size_t size : {system_names_.size(), files_.size(), starts.size(), lines.size(), has.size()})
      if (size != names_.size()) return false;
    if (!is_wanted) return true;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      std::uint32_t function = profile::kNone;
      if (has[i] != 0) function = function_of(names_[i], system_names_[i], files_[i], starts[i]);
      to.lines.push_back({function, lines[i]});
    }
    return true;
  }

  std::uint32_t function_of(std::string_view name, std::string_view system_name, std::string_view file,
                            std::uint32_t line) {
    const std::uint32_t known = by_text_.find(hash_of_function(name, file, line), [&](std::uint32_t number) {
      const profile::Function& other = made_.functions[number];
      return other.name == name && other.system_name == system_name && other.file == file && other.start_line == line;
    });
    if (known != profile::kNone) return known;
    const auto number = static_cast<std::uint32_t>(made_.functions.size());
    made_.functions.push_back({.name = std::string(name),
                               .system_name = std::string(system_name),
                               .file = std::string(file),
                               .start_line = line});
    by_text_.add(number, [&](std::uint32_t of) {
      const profile::Function& function = made_.functions[of];
      return hash_of_function(function.name, function.file, function.start_line);
    });
    return number;
  }

  ClickhouseServer& server_;
  Frames made_;
  IdNumbers stacks_, frames_;
  std::vector<Part> parts_;               // of each stack
  std::vector<std::uint32_t> numbers_;    // of the frames of all stacks, one stack behind the other
  std::vector<std::uint32_t> locations_;  // of each frame: a place in `made_`
  std::unordered_map<std::string_view, std::uint32_t> modules_;
  exporter::HashSlots by_text_;                                 // of functions
  std::vector<std::string_view> names_, system_names_, files_;  // of one row
};

}  // namespace

Expected<Frames> ClickhouseQuery::frames(std::span<const std::uint64_t> stacks) {
  return FrameReader(server_).ask(stacks);
}

}  // namespace windlass::store
