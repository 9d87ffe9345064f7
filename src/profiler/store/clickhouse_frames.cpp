// Stacks by their ids: frames, functions and modules.
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "profiler/store/clickhouse_query.h"
#include "profiler/store/clickhouse_wire.h"

namespace windlass::store {

namespace {

class FrameReader {
 public:
  explicit FrameReader(ClickhouseServer& server) : server_(server) {}

  Expected<Frames> ask(std::span<const std::uint64_t> stacks) {
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> frames_of;
    if (const auto read = read_stacks(stacks, frames_of); !read) return Failure(read.error());
    if (const auto read = read_frames(); !read) return Failure(read.error());
    for (const std::uint64_t stack : stacks) {
      const auto frames = frames_of.find(stack);
      if (frames == frames_of.end()) return fail(ErrorCode::kMalformed, kNoSuchStack, 0);
      auto& list = made_.stacks.emplace_back();
      for (const std::uint64_t frame : frames->second) {
        const auto location = locations_.find(frame);
        if (location == locations_.end() || location->second == profile::kNone)
          return fail(ErrorCode::kMalformed, kNoSuchStack, 0);
        list.push_back(location->second);
      }
    }
    return std::move(made_);
  }

 private:
  Expected<void> read_stacks(std::span<const std::uint64_t> stacks,
                             std::unordered_map<std::uint64_t, std::vector<std::uint64_t>>& frames_of) {
    if (stacks.empty()) return {};
    const auto answer =
        server_.query("SELECT stack, frames FROM stacks WHERE stack IN " + sql_ids(stacks) + " FORMAT RowBinary");
    if (!answer) return Failure(answer.error());
    RowReader row(*answer);
    while (row.has_more()) {
      const std::uint64_t id = row.u64();
      auto frames = row.numbers<std::uint64_t>();
      for (const std::uint64_t frame : frames)
        if (locations_.try_emplace(frame, profile::kNone).second) wanted_.push_back(frame);
      frames_of[id] = std::move(frames);
    }
    return is_whole(row);
  }

  Expected<void> read_frames() {
    if (wanted_.empty()) return {};
    const auto answer = server_.query(
        "SELECT frame, has_module, path, build_id, begin, end, file_offset, pid, is_kernel, address, function_begin, "
        "interpreted, functions, system_names, files, start_lines, lines, has_function FROM frames WHERE frame IN " +
        sql_ids(wanted_) + " ORDER BY frame, ver DESC LIMIT 1 BY frame FORMAT RowBinary");
    if (!answer) return Failure(answer.error());
    RowReader row(*answer);
    while (row.has_more()) {
      const std::uint64_t id = row.u64();
      profile::Location location;
      location.module = module(row);
      location.address = row.u64();
      location.function_begin = row.u64();
      location.interpreted = row.u8() != 0;
      if (!take_lines(row, location)) return fail(ErrorCode::kMalformed, kNoSuchStack, 0);
      locations_[id] = static_cast<std::uint32_t>(made_.locations.size());
      made_.locations.push_back(std::move(location));
    }
    return is_whole(row);
  }
  static Expected<void> is_whole(const RowReader& row) {
    if (row.is_good()) return {};
    return fail(ErrorCode::kMalformed, kCutAnswer, 0);
  }

  std::uint32_t module(RowReader& row) {
    const bool has = row.u8() != 0;
    profile::Module module;
    module.path = row.text();
    module.build_id = row.text();
    module.begin = row.u64();
    module.end = row.u64();
    module.file_offset = row.u64();
    module.pid = row.u32();
    module.is_kernel = row.u8() != 0;
    if (!has) return profile::kNone;
    const auto [place, is_new] = modules_.try_emplace(
        {module.path, module.build_id, module.begin, module.end, module.file_offset, module.pid, module.is_kernel},
        static_cast<std::uint32_t>(made_.modules.size()));
    if (is_new) made_.modules.push_back(std::move(module));
    return place->second;
  }

  bool take_lines(RowReader& row, profile::Location& to) {
    auto names = row.texts(), system_names = row.texts(), files = row.texts();
    const auto starts = row.numbers<std::uint32_t>(), lines = row.numbers<std::uint32_t>();
    const auto has = row.numbers<std::uint8_t>();
    for (const std::size_t size : {system_names.size(), files.size(), starts.size(), lines.size(), has.size()})
      if (size != names.size()) return false;
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::uint32_t function = profile::kNone;
      if (has[i] != 0) {
        const auto [place, is_new] = functions_.try_emplace({names[i], system_names[i], files[i], starts[i]},
                                                            static_cast<std::uint32_t>(made_.functions.size()));
        if (is_new)
          made_.functions.push_back({.name = std::move(names[i]),
                                     .system_name = std::move(system_names[i]),
                                     .file = std::move(files[i]),
                                     .start_line = starts[i]});
        function = place->second;
      }
      to.lines.push_back({function, lines[i]});
    }
    return true;
  }

  ClickhouseServer& server_;
  Frames made_;
  std::vector<std::uint64_t> wanted_;
  std::unordered_map<std::uint64_t, std::uint32_t> locations_;  // ids to places in `made_`
  std::map<std::tuple<std::string, std::string, std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t, bool>,
           std::uint32_t>
      modules_;
  std::map<std::tuple<std::string, std::string, std::string, std::uint32_t>, std::uint32_t> functions_;
};

}  // namespace

Expected<Frames> ClickhouseQuery::frames(std::span<const std::uint64_t> stacks) {
  return FrameReader(server_).ask(stacks);
}

}  // namespace windlass::store
