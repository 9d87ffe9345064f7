// The own walks: code ranges (walk/code_ranges.h).
#include "jit/registries/batch.h"
#include "windlass/jit/code_range.h"

namespace windlass::registries {
namespace {

class OwnCode : public Published {
 public:
  ~OwnCode() override {
    for (const CodeRangeId id : ids_) (void)retire_own_code(id);
  }
  OwnCode() = default;
  OwnCode(const OwnCode&) = delete;
  OwnCode& operator=(const OwnCode&) = delete;

  // A range for a run: its rows leave gaps where the code does.
  Expected<void> add(std::span<const Function> functions) {
    CodeRange range{.begin = functions.front().begin(), .end = functions.back().end()};
    if (functions.size() == 1 && !functions.front().given->name.empty()) range.name = functions.front().given->name;
    for (const Function& function : functions) {
      const auto rows = rows_of_(function);
      if (!rows) return Failure(rows.error());
      for (FrameRow row : *rows) {
        row.begin += function.begin();
        row.end += function.begin();
        range.rows.push_back(row);
      }
    }
    const auto id = add_own_code(std::move(range));
    if (!id) return Failure(id.error());
    ids_.push_back(*id);
    return {};
  }

 private:
  RowsOf rows_of_;
  std::vector<CodeRangeId> ids_;
};

class WindlassRegistrar : public BatchRegistrar {
 public:
  WindlassRegistrar() : BatchRegistrar(true) {}

 private:
  Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                               std::span<const Run> runs) override {
    auto code = std::make_unique<OwnCode>();
    for (const Run& run : runs)
      if (const auto ok = code->add(functions.subspan(run.first, run.last - run.first)); !ok)
        return Failure(ok.error());
    return code;
  }
};

}  // namespace

Opened open_windlass() { return std::make_unique<WindlassRegistrar>(); }

}  // namespace windlass::registries
