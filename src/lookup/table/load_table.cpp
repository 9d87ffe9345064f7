// Loading a table into an arena: pages, palette, escape rules and directory become objects of their own.
#include <algorithm>
#include <utility>

#include "lookup/table/arena.h"
#include "lookup/table/unwind_table.h"

namespace windlass::table {

namespace {

class TableLoader {
 public:
  TableLoader(const UnwindTable& table, Arena& arena) : table_(table), arena_(arena) {}
  ~TableLoader() {
    for (const ArenaPiece& piece : loaded_.pieces) arena_.free(piece.ref, piece.bytes);
  }
  TableLoader(const TableLoader&) = delete;
  TableLoader& operator=(const TableLoader&) = delete;

  Expected<LoadedTable> run() {
    wl_module& module = loaded_.module;
    module.first_page = table_.first_page();
    module.page_count = static_cast<std::uint32_t>(table_.directory().size());
    module.x_reg = table_.x_reg();
    module.state = WL_MODULE_READY;
    if (auto done = place_palette(); !done) return Failure(done.error());
    if (auto done = place_escape_rules(); !done) return Failure(done.error());
    if (auto done = place_directory(); !done) return Failure(done.error());
    return std::exchange(loaded_, {});
  }

 private:
  static constexpr std::uint32_t kEscapeRulesPerPiece = WL_CHUNK_SIZE / 2 / sizeof(TraceRule);

  // Zeroed.
  Expected<std::uint32_t> take(std::uint32_t bytes) {
    auto ref = arena_.allocate(bytes);
    if (ref) loaded_.pieces.push_back({*ref, bytes});
    return ref;
  }

  // Always of full length, so that every id a row can hold stays inside it.
  Expected<void> place_palette() {
    const auto ref = take(WL_PALETTE_RULES * sizeof(TraceRule));
    if (!ref) return Failure(ref.error());
    const auto rules = table_.rules().first(std::min<std::size_t>(table_.rules().size(), WL_PALETTE_RULES));
    std::memcpy(arena_.at(*ref), rules.data(), rules.size_bytes());
    loaded_.module.palette = *ref;
    return {};
  }

  Expected<void> place_escape_rules() {
    if (table_.rules().size() <= WL_PALETTE_RULES) return {};
    auto rest = table_.rules().subspan(WL_PALETTE_RULES);
    while (!rest.empty()) {
      const auto some = rest.first(std::min<std::size_t>(rest.size(), kEscapeRulesPerPiece));
      const auto ref = take(static_cast<std::uint32_t>(some.size_bytes()));
      if (!ref) return Failure(ref.error());
      std::memcpy(arena_.at(*ref), some.data(), some.size_bytes());
      escape_refs_.push_back(*ref);
      rest = rest.subspan(some.size());
    }
    return {};
  }
  [[nodiscard]] std::uint32_t rule_ref(std::uint32_t rule) const {
    const std::uint32_t n = rule - WL_PALETTE_RULES;
    constexpr std::uint32_t kUnits = sizeof(TraceRule) >> WL_REF_SHIFT;
    return escape_refs_[n / kEscapeRulesPerPiece] + (n % kEscapeRulesPerPiece) * kUnits;
  }

  Expected<void> place_directory() {
    const auto directory = table_.directory();
    if (directory.empty()) return {};
    const auto directory_ref = take(static_cast<std::uint32_t>(directory.size_bytes()));
    if (!directory_ref) return Failure(directory_ref.error());
    std::uint32_t previous = 0, previous_ref = 0;
    for (std::size_t i = 0; i < directory.size(); ++i) {
      std::uint32_t ref = 0;
      if (directory[i] != 0 && directory[i] == previous) {  // a run of pages that share one
        ref = previous_ref;
      } else if (directory[i] != 0) {
        const auto page = place_page(table_.page(directory[i]));
        if (!page) return Failure(page.error());
        ref = *page;
      }
      std::memcpy(arena_.at(*directory_ref) + i * sizeof ref, &ref, sizeof ref);
      previous = directory[i];
      previous_ref = ref;
    }
    loaded_.module.directory = *directory_ref;
    return {};
  }

  Expected<std::uint32_t> place_page(const std::byte* page) {
    const PageShape shape = UnwindTable::shape(page);
    const auto ref = take(shape.bytes());
    if (!ref) return Failure(ref.error());
    std::memcpy(arena_.at(*ref), page, shape.bytes());
    std::byte* escape = arena_.at(*ref) + shape.escapes_offset + 8;
    for (std::uint32_t i = 0; i < shape.escapes; ++i, escape += sizeof(wl_escape)) {
      wl_escape value;
      std::memcpy(&value, escape, sizeof value);
      value.rule = rule_ref(value.rule);
      std::memcpy(escape, &value, sizeof value);
    }
    return *ref;
  }

  const UnwindTable& table_;
  Arena& arena_;
  std::vector<std::uint32_t> escape_refs_;
  LoadedTable loaded_;  // given back by the destructor unless run() handed it over
};

}  // namespace

Expected<LoadedTable> load_table(const UnwindTable& table, Arena& arena) { return TableLoader(table, arena).run(); }

}  // namespace windlass::table
