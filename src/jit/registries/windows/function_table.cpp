// RtlAddFunctionTable(). Microsoft's page wants no order; Windows looks through unsorted tables one entry after the
// other, and Wine takes the table's end from its last entry. Wine's range begins at the base address, Windows' at the
// first entry: so the base is the first function.
#include "jit/registries/windows/heap.h"

namespace windlass::registries {
namespace {

class FunctionTables : public HeapRegistrar {
 public:
  explicit FunctionTables(const RegistrarOptions& options) : HeapRegistrar(options, true) {}
  ~FunctionTables() override { remove_all(); }
  using HeapRegistrar::claim;

 private:
  class Tables : public Published {
   public:
    explicit Tables(FunctionTables& owner) : owner_(owner) {}
    ~Tables() override {
      for (TableEntries& table : tables_) {
        if (!table.entries.empty()) RtlDeleteFunctionTable(table.entries.data());
        owner_.free(table);
      }
    }
    Tables(const Tables&) = delete;
    Tables& operator=(const Tables&) = delete;

    Expected<void> add(TableEntries table, std::uint64_t base) {
      if (!table.entries.empty() &&
          RtlAddFunctionTable(table.entries.data(), static_cast<DWORD>(table.entries.size()), base) == 0) {
        owner_.free(table);
        return fail(ErrorCode::kSystem, "the system refuses the function table", base, GetLastError());
      }
      tables_.push_back(std::move(table));
      return check_found(tables_.back(), base);
    }

   private:
    FunctionTables& owner_;
    std::vector<TableEntries> tables_;
  };

  Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                               std::span<const Run> runs) override {
    auto tables = std::make_unique<Tables>(*this);
    if (const auto ok = check_code(runs); !ok) return Failure(ok.error());
    for (const Run& run : runs) {
      auto written = write(functions.subspan(run.first, run.last - run.first), run.begin);
      if (!written) return Failure(written.error());
      if (const auto ok = tables->add(std::move(*written), run.begin); !ok) return Failure(ok.error());
    }
    return tables;
  }
};

}  // namespace

Opened open_function_table(const RegistrarOptions& options) {
  auto registrar = std::make_unique<FunctionTables>(options);
  if (const auto ok = registrar->claim(); !ok) return Failure(ok.error());
  return registrar;
}

}  // namespace windlass::registries
