// The tables of a store.
//
// Contents are kept once, by a 128-bit hash: modules, functions, frames, stacks, label sets. `used` is the
// group of the last interval that has them: contents that no interval has any more are found by it. Intervals are
// numbered as they come, whatever the clock says, and kGroup of them are a group.
// Symbol files are in a table of their own, whose sizes the bound of history does not count.
// Lists are LEB128: a frame's `lines` are pairs of function and line, a stack's `frames` ids with the innermost first,
// an interval's `events` the place of the shown one and then ids.
// `sums` has the samples of each ten minutes and of each hour without their stacks, by the beginnings of intervals.
#pragma once

#include <cstdint>

namespace windlass::store {

inline constexpr std::uint32_t kApplicationId = 0x574c5331;  // "WLS1", in the file's header
inline constexpr std::uint64_t kStoreVersion = 2;            // PRAGMA user_version
inline constexpr std::uint64_t kGroup = 8;

inline constexpr const char* kSchema = R"(
CREATE TABLE events(id INTEGER PRIMARY KEY, name TEXT NOT NULL, unit TEXT NOT NULL, counted TEXT NOT NULL,
  period INTEGER NOT NULL, UNIQUE(name, unit, counted, period));
CREATE TABLE strings(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, used INTEGER NOT NULL);
CREATE TABLE modules(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, path TEXT NOT NULL,
  build_id TEXT NOT NULL, first INTEGER NOT NULL, behind INTEGER NOT NULL, file_offset INTEGER NOT NULL,
  pid INTEGER NOT NULL, is_kernel INTEGER NOT NULL);
CREATE TABLE functions(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, name TEXT NOT NULL,
  system_name TEXT NOT NULL, file TEXT NOT NULL, start_line INTEGER NOT NULL);
CREATE TABLE frames(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, module INTEGER NOT NULL,
  address INTEGER NOT NULL, function_begin INTEGER NOT NULL, interpreted INTEGER NOT NULL, lines BLOB NOT NULL);
CREATE TABLE stacks(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, frames BLOB NOT NULL);
CREATE TABLE label_sets(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL,
  host INTEGER NOT NULL, process INTEGER NOT NULL, thread INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL,
  labels BLOB NOT NULL);
CREATE TABLE set_labels(key INTEGER NOT NULL, value INTEGER NOT NULL, label_set INTEGER NOT NULL,
  PRIMARY KEY(key, value, label_set)) WITHOUT ROWID;
CREATE TABLE intervals(id INTEGER PRIMARY KEY, begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, host TEXT NOT NULL,
  agent_start_ns INTEGER NOT NULL, sequence INTEGER NOT NULL, duration_ns INTEGER NOT NULL, lost INTEGER NOT NULL,
  ends_known INTEGER NOT NULL, events BLOB NOT NULL, comments BLOB NOT NULL, UNIQUE(host, agent_start_ns, sequence));
CREATE INDEX intervals_by_time ON intervals(begin_ns);
CREATE TABLE samples(interval INTEGER NOT NULL, event INTEGER NOT NULL, label_set INTEGER NOT NULL,
  stack INTEGER NOT NULL, end INTEGER NOT NULL, certainty INTEGER NOT NULL, count INTEGER NOT NULL,
  value INTEGER NOT NULL, PRIMARY KEY(interval, event, label_set, stack, end, certainty)) WITHOUT ROWID;
CREATE TABLE symbols(build_id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, rank INTEGER NOT NULL,
  file BLOB NOT NULL);
CREATE TABLE sums(span INTEGER NOT NULL, at INTEGER NOT NULL, event INTEGER NOT NULL, label_set INTEGER NOT NULL,
  count_low INTEGER NOT NULL, count_high INTEGER NOT NULL, value_low INTEGER NOT NULL, value_high INTEGER NOT NULL,
  PRIMARY KEY(span, at, event, label_set)) WITHOUT ROWID;
)";

}  // namespace windlass::store
