#include "runtimes/windows/find.h"

#include <optional>
#include <utility>

#include "runtimes/windows/rows.h"
#include "runtimes/windows/tables.h"

namespace windlass::runtimes::windows {
namespace {

class FunctionTables final : public Runtime {
 public:
  FunctionTables(std::shared_ptr<const Memory> memory, const TableList& list)
      : memory_(std::move(memory)), list_(list) {}

  Architecture architecture() const override { return Architecture::kX86_64; }
  bool is_understood() const override { return !read_tables(*memory_, list_).empty(); }
  bool is_starting() override {
    if (looks_ >= kMostLooks) return false;
    ++looks_;
    return !is_understood();
  }
  // A table that describes all of a heap is not right in prologues, nor for code without its frame.
  bool is_exact() const override { return false; }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    for (const Table& table : read_tables(*memory_, list_)) {
      if (!table.contains(address)) continue;
      const auto function = function_at(*memory_, table, address);
      if (!function && function.error().code == ErrorCode::kNotFound) continue;
      if (!function) return Failure(function.error());
      auto code = TableCode::read(*memory_, table, *function, address);
      if (!code) return Failure(code.error());
      return std::move(*code);
    }
    return fail(ErrorCode::kNotFound, "no function table has the address", address);
  }
  bool is_still(const Method& method) override {
    return static_cast<const TableCode&>(method).is_still(*memory_, list_);
  }
  std::optional<Error> problem() const override {
    for (const Table& table : read_tables(*memory_, list_))
      if (table.callback != 0)
        return Error{ErrorCode::kUnsupported, "a callback of the process makes the function table of code", table.begin,
                     table.end};
    return std::nullopt;
  }

 private:
  static constexpr unsigned kMostLooks = 200;  // as long as it may take from the first code to its registration

  std::shared_ptr<const Memory> memory_;
  TableList list_;
  unsigned looks_ = 0;
};

}  // namespace

Expected<std::uint64_t> find_tables(const Memory& memory, std::uint64_t base) {
  const auto list = find_list(memory, base);
  if (!list) return Failure(list.error());
  return base;
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t base) {
  const TableList list = find_list(*memory, base).value_or(TableList());
  return std::make_unique<FunctionTables>(std::move(memory), list);
}

}  // namespace windlass::runtimes::windows
