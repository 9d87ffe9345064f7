#include "runtimes/manager/source.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtimes/manager/read.h"

namespace windlass::manager {
namespace {

sources::Function function_of(const FoundFunction& found) {
  sources::Function function;
  function.begin = function.primary = found.begin;
  function.end = found.begin + found.size;
  return function;
}

// The first function that begins in a block at or behind an offset in it.
bool next_in_block(const CodeManagerReader& reader, std::uint32_t number, std::uint32_t offset, FoundFunction& to) {
  const TableHeader& table = CodeTableAccess::table(reader);
  RecordWords record;
  const auto next = [&](const auto& bytes) {
    BlockWord word;
    Run run, before;
    if (const Looked read = read_block(bytes, table, number, word); read != Looked::kFound) return read;
    if (const Looked read = run_of(bytes, table, word, run); read != Looked::kFound) return read;
    if (offset % (1u << WL_CODE_BLOCK_SHIFT) != 0)
      if (const Looked read = begun(bytes, table, word, offset - 1, before); read != Looked::kFound) return read;
    if (before.count >= run.count) return Looked::kNone;
    return read_record(bytes, table, run.first + before.count, record);
  };
  const Looked looked =
      with_bytes(reader, [&](const auto& bytes) { return consistently(bytes, [&] { return next(bytes); }); });
  to = {table.begin + record.begin(), record.size(), record.user(), record.shape() != 0};
  return looked == Looked::kFound;
}

class ManagerSource final : public sources::UnwindSource {
 public:
  ManagerSource(std::shared_ptr<const void> owner, const CodeManagerReader& reader)
      : owner_(std::move(owner)), reader_(reader) {}

  std::optional<Architecture> architecture() const override { return reader_.architecture(); }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    const auto found = reader_.row_at(address, to);
    if (found || found.error().code != ErrorCode::kLimit || CodeTableAccess::memory(reader_) == nullptr) return found;
    return row_with_expressions(address, to);
  }
  std::optional<std::uint64_t> taken_away() const override {
    const std::byte* table = CodeTableAccess::mapping(reader_);
    if (CodeTableAccess::memory(reader_) != nullptr || table == nullptr) return std::nullopt;
    return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(table + offsetof(wl_code_header, recycled)),
                           __ATOMIC_ACQUIRE);
  }
  Expected<sources::Function> function_at(std::uint64_t address) const override {
    const auto found = reader_.find(address);
    if (!found) return Failure(found.error());
    return function_of(*found);
  }
  std::uint64_t function_start(std::uint64_t address) const override {
    const auto found = reader_.find(address);
    return found ? found->begin : 0;
  }
  // Those that were there when they were come to.
  void for_each_function(sources::FunctionSink callback, sources::ErrorSink) const override {
    const TableHeader& table = CodeTableAccess::table(reader_);
    for (std::uint32_t number = 1; number < table.block_count; ++number) {
      std::uint32_t offset = (number - 1) << WL_CODE_BLOCK_SHIFT;
      for (FoundFunction found; next_in_block(reader_, number, offset, found);) {
        if (!callback(function_of(found))) return;
        offset = static_cast<std::uint32_t>(found.begin - table.begin) + 1;
        if (wl_code_block_of(offset) != number) break;
      }
    }
  }
  void for_each_row(const sources::Function& function, sources::RowSink callback, sources::ErrorSink) const override {
    const auto found = reader_.find(function.begin);
    if (!found || !found->described) return;
    FrameRow row;
    for (std::uint64_t at = function.begin; at < function.end;) {
      const bool known = reader_.row_at(at, row).has_value();
      if (known) callback(row);
      at = known ? row.end : at + 1;
    }
  }
  void for_each_row(sources::RowVisitor& visitor, sources::ErrorSink report) const override {
    sources::for_each_row_by_function(*this, "code manager", visitor, report);
  }

 private:
  // Of a table that can only be copied from: what the row has views of is kept.
  Expected<void> row_with_expressions(std::uint64_t address, FrameRow& to) const {
    std::vector<std::byte> room(std::size_t{1} << 16);
    if (const auto found = reader_.row_at(address, to, room); !found) return found;
    const ByteView view = to.expressions;
    const std::lock_guard hold(lock_);
    const std::vector<std::byte>& kept = *expressions_.emplace(view.data(), view.data() + view.size()).first;
    to.expressions = ByteView(kept.data(), kept.size(), view.origin());
    return {};
  }

  std::shared_ptr<const void> owner_;
  const CodeManagerReader& reader_;
  mutable std::mutex lock_;
  mutable std::set<std::vector<std::byte>> expressions_;
};

}  // namespace

std::uint64_t add_function_at(const CodeManagerReader& reader, std::uint64_t address,
                              std::vector<sources::NamedFunction>& to) {
  const auto found = reader.find(address);
  if (!found) return 0;
  std::string name;
  name.resize_and_overwrite(sources::NameSource::kMaxName, [&](char* room, std::size_t size) {
    const auto read = reader.name(address, {room, size});
    return read ? read->size() : 0;
  });
  if (!name.empty()) to.push_back({std::move(name)});
  return found->begin;
}

std::unique_ptr<sources::UnwindSource> make_source(std::shared_ptr<const void> owner, const CodeManagerReader& reader) {
  return std::make_unique<ManagerSource>(std::move(owner), reader);
}

}  // namespace windlass::manager
