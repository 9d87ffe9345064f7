// Stacks by their ids: frames, functions and modules.
#include <unordered_map>
#include <utility>

#include "profiler/store/sqlite_lists.h"
#include "profiler/store/sqlite_query.h"

namespace windlass::store {

namespace {

using profile::kNone;

class FrameQuery {
 public:
  static Expected<Frames> ask(sqlite3* database, std::span<const std::uint64_t> stacks) {
    std::vector<Statement> statements;
    for (const char* sql :
         {"SELECT frames FROM stacks WHERE id = ?",
          "SELECT module, address, function_begin, interpreted, lines FROM frames WHERE id = ?",
          "SELECT name, system_name, file, start_line FROM functions WHERE id = ?",
          "SELECT path, build_id, first, behind, file_offset, pid, is_kernel FROM modules WHERE id = ?"}) {
      auto statement = Statement::prepare(database, sql);
      if (!statement) return Failure(statement.error());
      statements.push_back(std::move(*statement));
    }
    FrameQuery query(std::move(statements));
    for (const std::uint64_t stack : stacks)
      if (const auto taken = query.take_stack(stack); !taken) return Failure(taken.error());
    return std::move(query.made_);
  }

 private:
  enum Query : std::size_t { kStack, kFrame, kFunction, kModule };

  explicit FrameQuery(std::vector<Statement>&& statements) : statements_(std::move(statements)) {}

  // The row with an id, which must be there.
  Expected<Statement*> row(Query query, std::uint64_t id) {
    Statement& statement = statements_[query];
    statement.reset();
    const auto found = statement.bind(id).step();
    if (!found) return Failure(found.error());
    if (!*found) return fail(ErrorCode::kMalformed, kDamaged, 0);
    return &statement;
  }

  Expected<void> take_stack(std::uint64_t id) {
    const auto found = row(kStack, id);
    if (!found) return Failure(found.error());
    std::vector<std::uint32_t> locations;
    for (const std::uint64_t frame : numbers_in((*found)->text(0))) {
      const auto location = location_of(frame);
      if (!location) return Failure(location.error());
      locations.push_back(*location);
    }
    made_.stacks.push_back(std::move(locations));
    return {};
  }

  Expected<std::uint32_t> location_of(std::uint64_t id) {
    const auto known = locations_.find(id);
    if (known != locations_.end()) return known->second;
    const auto found = row(kFrame, id);
    if (!found) return Failure(found.error());
    const Statement& frame = **found;
    profile::Location location{.module = kNone,
                               .address = frame.number(1),
                               .interpreted = frame.number(3) != 0,
                               .function_begin = frame.number(2)};
    const auto lines = numbers_in(frame.text(4));
    const auto module = module_of(frame.number(0));
    if (!module) return module;
    location.module = *module;
    for (std::size_t i = 0; i + 1 < lines.size(); i += 2) {
      const auto function = function_of(lines[i]);
      if (!function) return function;
      location.lines.push_back({*function, static_cast<std::uint32_t>(lines[i + 1])});
    }
    made_.locations.push_back(std::move(location));
    return locations_.emplace(id, static_cast<std::uint32_t>(made_.locations.size() - 1)).first->second;
  }

  Expected<std::uint32_t> function_of(std::uint64_t id) {
    if (id == 0) return kNone;
    const auto known = functions_.find(id);
    if (known != functions_.end()) return known->second;
    const auto found = row(kFunction, id);
    if (!found) return Failure(found.error());
    const Statement& function = **found;
    made_.functions.push_back({.name = std::string(function.text(0)),
                               .system_name = std::string(function.text(1)),
                               .file = std::string(function.text(2)),
                               .start_line = static_cast<std::uint32_t>(function.number(3))});
    return functions_.emplace(id, static_cast<std::uint32_t>(made_.functions.size() - 1)).first->second;
  }

  Expected<std::uint32_t> module_of(std::uint64_t id) {
    if (id == 0) return kNone;
    const auto known = modules_.find(id);
    if (known != modules_.end()) return known->second;
    const auto found = row(kModule, id);
    if (!found) return Failure(found.error());
    const Statement& module = **found;
    made_.modules.push_back({.path = std::string(module.text(0)),
                             .build_id = std::string(module.text(1)),
                             .begin = module.number(2),
                             .end = module.number(3),
                             .file_offset = module.number(4),
                             .pid = static_cast<std::uint32_t>(module.number(5)),
                             .is_kernel = module.number(6) != 0});
    return modules_.emplace(id, static_cast<std::uint32_t>(made_.modules.size() - 1)).first->second;
  }

  std::vector<Statement> statements_;
  Frames made_;
  std::unordered_map<std::uint64_t, std::uint32_t> locations_, functions_, modules_;  // ids to places in `made_`
};

}  // namespace

Expected<Frames> query_frames(sqlite3* database, std::span<const std::uint64_t> stacks) {
  return FrameQuery::ask(database, stacks);
}

}  // namespace windlass::store
