// The tables of a store in ClickHouse.
//
// All that counts is in the table `samples`. A batch is one block there, which the server takes whole or not at all:
//
//   level 0  a sample: event, service (hash of the process's name), label set, stack, sums of the batch
//   level 1  the minute rollup: the same without the label set, and `second` is that of the minute's begin
//   level 2  the batch: service is the hash of the host, labels the recording, stack the batch's id; count is 1, and
//            value the lost samples
//   level 3  the same of the batch's times: count is the interval in ns, value the duration of the recording
//
// Rows that agree in all but the sums are added up by the server. So the rollup holds stacks times minutes, however
// many machines there are. A materialised view would be a second write: a server that is killed between the two would
// lose a part of the rollup.
//
// `hour` is Unix time in seconds, `second` within the hour. The other tables have contents, once each, by 64 bits of
// ContentHash. `period` is the number of the 30 days in which a row was last written, so that old contents leave with
// their partition. Ids of stacks and of frames begin with 12 bits of the service: what is read together lies together.
// So a frame of libc has a row for each service that calls it. Of rows with one id the highest `ver` counts: a late
// symbol is such a row.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace windlass::store {

inline constexpr std::uint32_t kClickhouseVersion = 1;
// Major versions of servers that surely have: TTL of tables, tokens of inserts.
inline constexpr unsigned kTtlServer = 20, kTokenServer = 22;
inline constexpr std::uint64_t kSecondNs = 1'000'000'000, kHourSeconds = 3600, kDaySeconds = 86'400;
inline constexpr std::uint64_t kPeriodSeconds = 30 * kDaySeconds;  // of contents
inline constexpr unsigned kIdRestBits = 52;                        // of an id that begins with 12 bits of a service
enum ClickhouseLevel : std::uint8_t { kRawLevel, kMinuteLevel, kBatchLevel, kTimesLevel };

struct ClickhouseTable {
  std::string_view name, columns, engine;  // engine: of the MergeTree family, with its parameters
  std::string_view partition, order;
  std::string_view seconds;  // Unix time until which a row is of use, as SQL
};

inline constexpr ClickhouseTable kClickhouseTables[] = {
    {"windlass_store", "version UInt32, made UInt32", "ReplacingMergeTree", "tuple()", "version", ""},
    {"events", "event UInt64, name String, unit String, counted String, per_sample UInt64", "ReplacingMergeTree",
     "tuple()", "event", ""},
    {"recordings",
     "recording UInt64, period UInt32, events Array(UInt64), shown UInt64, ends_known UInt8, comments Array(String)",
     "ReplacingMergeTree", "period", "recording", "(period + 1) * 2592000"},
    {"label_sets",
     "labels UInt64, period UInt32, host String, process String, has_thread UInt8, thread String, pid UInt32, tid "
     "UInt32, "
     "keys Array(String), values Array(String)",
     "ReplacingMergeTree", "period", "(process, host, labels)", "(period + 1) * 2592000"},
    {"stacks", "stack UInt64, period UInt32, frames Array(UInt64)", "ReplacingMergeTree", "period", "stack",
     "(period + 1) * 2592000"},
    {"frames",
     "frame UInt64, period UInt32, ver UInt64, has_module UInt8, path String, build_id String, begin UInt64, end "
     "UInt64, "
     "file_offset UInt64, pid UInt32, is_kernel UInt8, address UInt64, function_begin UInt64, interpreted UInt8, "
     "functions Array(String), system_names Array(String), files Array(String), start_lines Array(UInt32), "
     "lines Array(UInt32), has_function Array(UInt8)",
     "ReplacingMergeTree(ver)", "period", "frame", "(period + 1) * 2592000"},
    // Last: a store that has this table has all.
    {"samples",
     "level UInt8, event UInt64, service UInt64, hour UInt32, labels UInt64, stack UInt64, second UInt16, end UInt8, "
     "certainty UInt8, count UInt64, value UInt64",
     "SummingMergeTree((count, value))", "intDiv(hour, 86400)",
     "(level, event, service, hour, labels, stack, second, end, certainty)", "hour"},
};

struct ClickhouseLayout {
  unsigned server = 0;     // its major version, as 18
  std::uint64_t keep = 0;  // seconds; 0: for ever
  std::string cluster{};   // empty: one server
};

// The statements that make the tables that are not there. All can be run again.
[[nodiscard]] std::vector<std::string> clickhouse_statements(const std::string& database,
                                                             const ClickhouseLayout& layout);

}  // namespace windlass::store
