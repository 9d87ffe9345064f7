#include "profiler/store/sqlite_contents.h"

#include "base/leb128.h"

namespace windlass::store {

namespace {

enum Table : std::size_t { kStrings, kModules, kFunctions, kFrames, kStacks, kLabelSets };
enum Query : std::size_t { kFindEvent, kAddEvent, kAddSetLabel };

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

Expected<InternTable> InternTable::open(sqlite3* database, const char* table, const char* key, const char* columns,
                                        int column_count) {
  const std::string name = table;
  std::string insert = "INSERT INTO " + name + "(" + key + ", used" + columns + ") VALUES(?, ?";
  for (int i = 0; i < column_count; ++i) insert += ", ?";
  auto find = Statement::prepare(database, "SELECT id, used FROM " + name + " WHERE " + key + " = ?");
  auto add = Statement::prepare(database, insert + ")");
  auto touch = Statement::prepare(database, "UPDATE " + name + " SET used = ? WHERE id = ?");
  for (const auto* statement : {&find, &add, &touch})
    if (!*statement) return Failure(statement->error());
  return InternTable(database, std::move(*find), std::move(*add), std::move(*touch));
}

Expected<std::uint64_t> InternTable::touch(std::uint64_t group) {
  const std::uint64_t id = find_.number(0), used = find_.number(1);
  find_.reset();
  if (used >= group) return id;
  if (const auto touched = touch_.bind(group).bind(id).run(); !touched) return Failure(touched.error());
  return id;
}

Expected<Contents> Contents::open(sqlite3* database) {
  constexpr struct {
    const char *table, *key, *columns;
    int count;
  } kTables[] = {
      {"strings", "text", "", 0},
      {"modules", "hash", ", path, build_id, first, behind, file_offset, pid, is_kernel", 7},
      {"functions", "hash", ", name, system_name, file, start_line", 4},
      {"frames", "hash", ", module, address, function_begin, interpreted, lines", 5},
      {"stacks", "hash", ", frames", 1},
      {"label_sets", "hash", ", host, process, thread, pid, tid, labels", 6},
  };
  std::vector<InternTable> tables;
  for (const auto& table : kTables) {
    auto opened = InternTable::open(database, table.table, table.key, table.columns, table.count);
    if (!opened) return Failure(opened.error());
    tables.push_back(std::move(*opened));
  }
  std::vector<Statement> statements;
  for (const char* sql : {"SELECT id FROM events WHERE name = ? AND unit = ? AND counted = ? AND period = ?",
                          "INSERT INTO events(name, unit, counted, period) VALUES(?, ?, ?, ?)",
                          "INSERT OR IGNORE INTO set_labels(key, value, label_set) VALUES(?, ?, ?)"}) {
    auto statement = Statement::prepare(database, sql);
    if (!statement) return Failure(statement.error());
    statements.push_back(std::move(*statement));
  }
  return Contents(database, std::move(tables), std::move(statements));
}

Expected<std::uint64_t> Contents::event(const profile::Event& event) {
  const auto bind = [&](Statement& statement) -> Statement& {
    return statement.bind(std::string_view(event.name))
        .bind(std::string_view(event.unit))
        .bind(std::string_view(event.counted))
        .bind(event.period);
  };
  Statement& find = statements_[kFindEvent];
  find.reset();
  const auto found = bind(find).step();
  if (!found) return Failure(found.error());
  const std::uint64_t id = *found ? find.number(0) : 0;
  find.reset();
  if (*found) return id;
  if (const auto added = bind(statements_[kAddEvent]).run(); !added) return Failure(added.error());
  return static_cast<std::uint64_t>(sqlite3_last_insert_rowid(database_));
}

Expected<std::uint64_t> Contents::string(std::string_view text, std::uint64_t group) {
  return tables_[kStrings].id_of(text, group, [](Statement&) {});
}

Expected<void> Contents::add_set_labels(std::uint64_t set, const std::vector<std::uint64_t>& pairs) {
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const auto added = statements_[kAddSetLabel].bind(pairs[i]).bind(pairs[i + 1]).bind(set).run();
    if (!added) return added;
  }
  return {};
}

Expected<std::uint64_t> Contents::label_set(const LabelSet& set, std::uint64_t group) {
  const std::vector<Label> all = all_labels(set);
  std::vector<std::uint64_t> ids;
  for (const Label& label : all) {
    for (const std::string* text : {&label.key, &label.value}) {
      const auto id = string(*text, group);
      if (!id) return id;
      ids.push_back(*id);
    }
  }
  std::string labels;
  for (std::size_t i = 2 * (all.size() - set.labels.size()); i < ids.size(); ++i) put_uleb128(labels, ids[i]);
  const std::uint64_t thread = set.thread ? ids[2 * kAlwaysLabels + 1] : 0;
  bool is_new = false;
  const HashBytes key = hash_of(set, all);
  const auto id = tables_[kLabelSets].id_of(std::span<const std::byte>(key), group, [&](Statement& row) {
    is_new = true;
    row.bind(ids[1])
        .bind(ids[3])
        .bind(thread)
        .bind(std::uint64_t{set.pid})
        .bind(std::uint64_t{set.tid})
        .bind(bytes_of(labels));
  });
  if (!id || !is_new) return id;
  if (const auto added = add_set_labels(*id, ids); !added) return Failure(added.error());
  return id;
}

BatchContents::BatchContents(Contents& contents, const profile::Profile& profile, std::uint64_t group)
    : contents_(contents),
      profile_(profile),
      group_(group),
      hashes_(profile),
      modules_(profile.modules.size()),
      functions_(profile.functions.size()),
      frames_(profile.locations.size()) {}

Expected<std::uint64_t> BatchContents::module(std::uint32_t index) {
  if (index >= modules_.size()) return std::uint64_t{0};
  if (modules_[index] != 0) return modules_[index];
  const profile::Module& it = profile_.modules[index];
  const HashBytes hash = hashes_.module(index);
  const auto id = contents_.tables_[kModules].id_of(std::span<const std::byte>(hash), group_, [&](Statement& row) {
    row.bind(std::string_view(it.path)).bind(std::string_view(it.build_id)).bind(it.begin).bind(it.end);
    row.bind(it.file_offset).bind(std::uint64_t{it.pid}).bind(std::uint64_t{it.is_kernel});
  });
  if (id) modules_[index] = *id;
  return id;
}

Expected<std::uint64_t> BatchContents::function(std::uint32_t index) {
  if (index >= functions_.size()) return std::uint64_t{0};
  if (functions_[index] != 0) return functions_[index];
  const profile::Function& it = profile_.functions[index];
  const HashBytes hash = hashes_.function(index);
  const auto id = contents_.tables_[kFunctions].id_of(std::span<const std::byte>(hash), group_, [&](Statement& row) {
    row.bind(std::string_view(it.name)).bind(std::string_view(it.system_name)).bind(std::string_view(it.file));
    row.bind(std::uint64_t{it.start_line});
  });
  if (id) functions_[index] = *id;
  return id;
}

Expected<std::uint64_t> BatchContents::frame(std::uint32_t index) {
  if (frames_[index] != 0) return frames_[index];
  const profile::Location& it = profile_.locations[index];
  const auto in = module(it.module);
  if (!in) return in;
  std::string lines;
  for (const profile::Line& line : it.lines) {
    const auto of = function(line.function);
    if (!of) return of;
    put_uleb128(lines, *of);
    put_uleb128(lines, line.line);
  }
  const HashBytes hash = hashes_.frame(index);
  const auto id = contents_.tables_[kFrames].id_of(std::span<const std::byte>(hash), group_, [&](Statement& row) {
    row.bind(*in).bind(it.address).bind(it.function_begin).bind(std::uint64_t{it.interpreted}).bind(bytes_of(lines));
  });
  if (id) frames_[index] = *id;
  return id;
}

Expected<std::uint64_t> BatchContents::stack(const std::vector<std::uint32_t>& locations) {
  std::string frames;
  for (const std::uint32_t location : locations) {
    const auto one = frame(location);
    if (!one) return one;
    put_uleb128(frames, *one);
  }
  const HashBytes key = hashes_.stack(locations);
  return contents_.tables_[kStacks].id_of(std::span<const std::byte>(key), group_,
                                          [&](Statement& row) { row.bind(bytes_of(frames)); });
}

}  // namespace windlass::store
