// One database of a ClickHouse server, by its HTTP interface.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/transport/http_client.h"
#include "windlass/error.h"

namespace windlass::store {

// clickhouse://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]]...[/DATABASE], or clickhouses:// with TLS. Ports are 8123
// and 8443 unless given, and the database is windlass. Several hosts are replicas: who is away is passed.
struct ClickhouseAddress {
  std::string http;  // "http://user:password@host:8123/"
  std::string database;

  // Of each host, in their order; never empty. Error: kMalformed.
  [[nodiscard]] static Expected<std::vector<ClickhouseAddress>> parse(std::string_view url);
};

inline constexpr const char* kTooOldServer = "the server is older than 18.16. Way out: a newer ClickHouse";
inline constexpr const char* kOtherColumns = "the server's answer has other columns than a store of this version";
inline constexpr const char* kCutAnswer = "the server's answer ends within a row";
inline constexpr const char* kNoSuchStack = "the server has no such stack or frame";
inline constexpr const char* kNoSuchLabels = "the server has samples whose labels are gone";
inline constexpr const char* kNotClickhouse =
    "the answer is not ClickHouse's. Way out: the port of the server's HTTP interface, which is 8123 by default";

using ClickhouseSettings = std::vector<std::pair<std::string_view, std::string>>;

// Not thread-safe. No text of a query is the caller's to escape but by sql_text() and sql_ids().
//
// Errors of all: kUnreadable: no answer, or a server that is busy, broken or another one; a later try may do.
// kNotFound: there is no such database or table. kUnsupported: the server refuses the user or the query.
class ClickhouseServer {
 public:
  explicit ClickhouseServer(ClickhouseAddress address, std::chrono::milliseconds patience = std::chrono::seconds(30))
      : address_(std::move(address)), patience_(patience) {}

  // The answer is in the format that the query names.
  [[nodiscard]] Expected<std::string> query(std::string_view sql, const ClickhouseSettings& settings = {});
  // A block of the format Native. The server has all of it, or nothing.
  [[nodiscard]] Expected<void> insert(std::string_view table, std::string_view block,
                                      const ClickhouseSettings& settings = {});
  // A query in no database.
  [[nodiscard]] Expected<std::string> run_outside(std::string_view sql);

  [[nodiscard]] const ClickhouseAddress& address() const { return address_; }

 private:
  [[nodiscard]] Expected<std::string> send(transport::HttpClient& client, std::string&& url, std::string_view body);

  ClickhouseAddress address_;
  std::chrono::milliseconds patience_;
  transport::HttpClient client_;
};

}  // namespace windlass::store
