// What ELF files have, in the order of elf_rows.h.
#include <elf.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "formats/dwarf/eh_frame_hdr.h"
#include "formats/dwarf/lower.h"
#include "formats/image/elf.h"
#include "formats/image/function_symbols.h"
#include "lookup/sources/cfi_function.h"
#include "lookup/sources/cfi_sections.h"
#include "lookup/sources/elf_rows.h"
#include "lookup/sources/indexed_row.h"
#include "lookup/sources/row_finder.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::sources {
namespace {

class ElfSource final : public UnwindSource {
 public:
  explicit ElfSource(image::ElfImage image)
      : image_(std::move(image)), others_(image_, [this](const Error& error) { row_problems_.push_back(error); }) {
    find_index();
  }

  std::optional<Architecture> architecture() const override { return image::architecture_of(image_.machine()); }

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    return others_.first(Cfi{*this}, [&](const auto& rows) { return rows.row_at(address, to); });
  }

  Expected<Function> function_at(std::uint64_t address) const override {
    return others_.first(Cfi{*this}, [&](const auto& rows) { return rows.function_at(address); });
  }

  void for_each_function(FunctionSink callback, ErrorSink report) const override {
    // Those that have no other record and Go's, by turns with those that have one.
    for (const Error& problem : row_problems_) report(problem);
    const std::vector<Function> others = other_functions(report);
    auto next = others.begin();
    bool wanted = true;
    const auto give_before = [&](std::uint64_t begin) {
      while (wanted && next != others.end() && next->begin < begin) wanted = callback(*next++);
    };
    // An index of its own: it keeps what it has read, and the callback may ask this source.
    if (const auto all = RowFinder::make(image_)) {
      const auto give = [&](const RowFinder::Located& found) {
        if (is_go(found.fde.begin)) return wanted;
        give_before(found.fde.begin);
        wanted = wanted && callback(function_of(all->section(found.section), found.section, found.fde));
        return wanted;
      };
      all->for_each(give, report);
    }
    give_before(~std::uint64_t{0});
  }

  void for_each_row(const Function& function, RowSink callback, ErrorSink report) const override {
    if (others_.go() != nullptr && function.record.section == RecordPlace::kGoFunctions)
      return others_.go()->for_each_row(function, callback, report);
    if (others_.simple() != nullptr && function.record.section == RecordPlace::kSFrame)
      return others_.simple()->for_each_row(function, callback, report);
    const auto section = section_at(function.record.section);
    if (!section) return report(section.error());
    dwarf::CfiReader reader(*section, report);
    const auto fde = reader.fde_at(function.record.offset);
    if (!fde) return report(fde.error());
    if (const auto done = dwarf::for_each_row(*section, *fde, callback); !done) report(done.error());
  }

  void for_each_row(RowVisitor& visitor, ErrorSink report) const override {
    for (const Error& problem : row_problems_) report(problem);
    const auto of_section = [&](const dwarf::CfiSection& section) {
      if (!visitor.wants_more()) return;
      visitor.begin_section(section.name);
      dwarf::CfiReader reader(section, report);
      dwarf::RowEvaluator evaluator(section);
      const auto give = [&](const FrameRow& row) { visitor.row(row); };
      for (dwarf::Fde fde; visitor.wants_more() && reader.next_fde(fde);)
        if (const auto done = evaluator.for_each_row(fde, give); !done) report(done.error());
    };
    const auto of_other = [&](const UnwindSource& rows) {
      if (visitor.wants_more()) rows.for_each_row(visitor, report);
    };
    others_.each(find_row_sections(image_, report), of_section, of_other);
  }

  bool read_image(std::uint64_t address, void* to, std::size_t size) const override {
    const auto bytes = image_.at_address(address, size);
    if (!bytes) return false;
    std::memcpy(to, bytes->data(), size);
    return true;
  }

  std::uint64_t function_start(std::uint64_t address) const override {
    if (starts_found_.fetch_add(1, std::memory_order_relaxed) < kFewStarts)
      return image::FunctionSymbols::start_in(image_, address);
    std::call_once(symbols_read_, [this] { symbols_ = image::FunctionSymbols(image_); });
    return symbols_.start_of(address);
  }

  std::uint64_t entry_point() const override { return image_.entry(); }
  const std::string& build_id() const override { return image_.build_id(); }
  std::span<const Error> problems() const override { return image_.problems(); }
  void accept(FormatVisitor& visitor) const override {
    const bool others = find_row_eh_frame(image_).has_value() || image::has_other_unwind_sections(image_);
    if (others_.go() != nullptr)
      visitor.go(*this, image_);
    else if (others_.simple() != nullptr && !others)
      visitor.sframe(*this, image_);
    else
      visitor.elf(*this, image_);
  }

 private:
  static constexpr Error kNone{ErrorCode::kNotFound, "module has no unwind information"};

  // What call frame information says by itself.
  struct Cfi {
    const ElfSource& file;
    Expected<void> row_at(std::uint64_t address, FrameRow& to) const { return file.cfi_row_at(address, to); }
    Expected<Function> function_at(std::uint64_t address) const { return file.cfi_function_at(address); }
  };

  Expected<void> cfi_row_at(std::uint64_t address, FrameRow& to) const {
    if (index_) {
      const auto found = indexed_row(index_->header, index_->section, address, to);
      if (found || !may_be_elsewhere(found.error())) return found;
    }
    const std::lock_guard hold(lock_);
    RowFinder* const rows = finder();
    if (rows == nullptr) return Failure(kNone);
    return rows->find(address, to);
  }

  Expected<Function> cfi_function_at(std::uint64_t address) const {
    if (index_) {
      dwarf::LocatedFde found;
      const auto located = index_->header.find(index_->section, address, found);
      if (located) return function_of(index_->section, 0, found.fde);
      if (!may_be_elsewhere(located.error())) return Failure(located.error());
    }
    const std::lock_guard hold(lock_);
    RowFinder* const rows = finder();
    if (rows == nullptr) return Failure(kNone);
    const auto found = rows->locate(address);
    if (!found) return Failure(found.error());
    return function_of(rows->section(found->section), found->section, found->fde);
  }

  [[nodiscard]] bool is_go(std::uint64_t address) const {
    return others_.go() != nullptr && others_.go()->function_at(address);
  }

  // Ascending.
  std::vector<Function> other_functions(ErrorSink report) const {
    std::vector<Function> functions;
    const auto add = [&](const Function& function) {
      functions.push_back(function);
      return true;
    };
    const auto add_missing = [&](const Function& function) {
      return is_go(function.begin) || cfi_function_at(function.begin) || add(function);
    };
    const GoSource* const go = others_.go();
    const SFrameSource* const simple = others_.simple();
    if (go != nullptr) go->for_each_function(add, report);
    if (simple != nullptr) simple->for_each_function(add_missing, report);
    if (go != nullptr && simple != nullptr) std::ranges::sort(functions, {}, &Function::begin);
    return functions;
  }

  // The section that .eh_frame_hdr indexes; it is number 0 of all.
  struct Indexed {
    dwarf::EhFrameHdr header;
    dwarf::CfiSection section;
  };

  // A table that is sorted and names the section that the image has.
  void find_index() {
    const auto section = find_row_eh_frame(image_);
    if (!section) return;
    for (const image::Segment& segment : image_.segments()) {
      if (segment.type != PT_GNU_EH_FRAME) continue;
      const auto bytes = image_.at_address(segment.vaddr, segment.filesz);
      if (!bytes) return;
      const auto header = dwarf::EhFrameHdr::parse(*bytes, segment.vaddr);
      if (header && !header->table.empty() && header->eh_frame_address == section->address)
        index_ = Indexed{*header, *section};
    }
  }

  [[nodiscard]] bool may_be_elsewhere(const Error& error) const {
    return error.code == ErrorCode::kNotFound && image::has_other_unwind_sections(image_);
  }

  // Of the sections that have no index; null where there are none. Under the lock.
  RowFinder* finder() const {
    if (!rows_made_) {
      rows_made_ = true;
      rows_ = RowFinder::make(image_, index_.has_value());
    }
    return rows_.get();
  }

  // A view of this source's bytes, which stay.
  Expected<dwarf::CfiSection> section_at(std::uint32_t number) const {
    if (number == 0 && index_) return index_->section;
    const std::lock_guard hold(lock_);
    RowFinder* const rows = finder();
    if (rows == nullptr || number >= rows->section_count()) return Failure(kNone);
    return rows->section(number);
  }

  image::ElfImage image_;
  std::vector<Error> row_problems_;
  ElfRows others_;
  std::optional<Indexed> index_;
  mutable std::mutex lock_;
  mutable bool rows_made_ = false;
  mutable std::unique_ptr<RowFinder> rows_;
  static constexpr unsigned kFewStarts = 8;  // that cost less one by one than all symbols sorted
  mutable std::atomic<unsigned> starts_found_ = 0;
  mutable std::once_flag symbols_read_;
  mutable image::FunctionSymbols symbols_;
};

}  // namespace

std::unique_ptr<UnwindSource> make_source(const image::ElfImage& image) { return std::make_unique<ElfSource>(image); }

Expected<std::unique_ptr<UnwindSource>> open_elf_source(ByteView bytes) {
  const auto image = image::ElfImage::parse(bytes);
  if (!image) return Failure(image.error());
  return make_source(*image);
}

}  // namespace windlass::sources
