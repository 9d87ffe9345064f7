// Prints the statements that make a store's tables in the database BENCH, for bench/clickhouse_store.py.
//   clickhouse_schema MAJOR-VERSION-OF-THE-SERVER
#include <cstdio>
#include <cstdlib>

#include "profiler/store/clickhouse_schema.h"

int main(int count, char** arguments) {
  const unsigned server = count > 1 ? static_cast<unsigned>(std::atoi(arguments[1])) : 18;
  for (const auto& statement : windlass::store::clickhouse_statements("BENCH", {.server = server}))
    std::printf("%s;\n", statement.c_str());
}
