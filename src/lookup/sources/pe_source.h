// What the sources of PE images share: the exception directory's functions by RVA, whatever their records say. x64
// images of Go have a table of their own, too (winx64_source.cpp).
#pragma once

#include "formats/image/function_table.h"
#include "formats/image/pe.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

class PeSource : public UnwindSource {
 public:
  PeSource(const PeSource&) = delete;  // what derived classes keep points to the image
  PeSource& operator=(const PeSource&) = delete;

  Expected<Function> function_at(std::uint64_t address) const override;
  void for_each_function(FunctionSink callback, ErrorSink report) const override;
  void for_each_row(const Function& function, RowSink callback, ErrorSink report) const override;
  void for_each_row(RowVisitor& visitor, ErrorSink report) const override;

  bool is_windows() const final { return true; }
  bool may_be_leaf(std::uint64_t rva) const override { return !foreign_code(rva); }
  std::optional<Error> foreign_code(std::uint64_t rva) const final;
  bool read_image(std::uint64_t rva, void* to, std::size_t size) const final;
  std::uint64_t function_start(std::uint64_t address) const final;
  std::uint64_t entry_point() const final { return image_.entry(); }
  const std::string& build_id() const final { return image_.build_id(); }
  std::span<const Error> problems() const final { return image_.problems(); }

 protected:
  // `entry_size`: bytes of an entry of the function table.
  PeSource(const image::PeImage& image, std::uint32_t entry_size) : image_(image), entry_size_(entry_size) {}

  // By position in the stored table, as everything here.
  [[nodiscard]] virtual const image::FunctionTable& table() const = 0;
  // Makes `to` what is known, which after an error may be no more than where it begins.
  [[nodiscard]] virtual Expected<void> describe(std::size_t stored, Function& to) const = 0;
  virtual void lower(std::size_t stored, RowSink callback, ErrorSink report) const = 0;
  // All functions, as long as the visitor wants more.
  virtual void lower_all(RowVisitor& visitor, ErrorSink report) const;

  [[nodiscard]] Function begin_function(std::size_t stored) const;
  // The last entry that begins at or before an RVA.
  [[nodiscard]] std::optional<std::size_t> candidate(std::uint64_t rva) const {
    if (rva >> 32 != 0) return std::nullopt;
    const auto rank = table().last_at_or_before(static_cast<std::uint32_t>(rva));
    return rank ? std::optional(table().stored_index(*rank)) : std::nullopt;
  }
  [[nodiscard]] static Failure uncovered(std::uint64_t rva) {
    return fail(ErrorCode::kNotFound, "no function table entry covers the address", rva);
  }

  [[nodiscard]] bool is_x64() const { return entry_size_ == 12; }

  const image::PeImage image_;
  const std::uint32_t entry_size_;
};

[[nodiscard]] std::unique_ptr<UnwindSource> make_winx64_source(const image::PeImage& image);
[[nodiscard]] std::unique_ptr<UnwindSource> make_winarm64_source(const image::PeImage& image);
// Of a Go program's own table. Null: the image has none, or is read on Windows.
[[nodiscard]] std::unique_ptr<UnwindSource> make_go_source(const image::PeImage& image, ErrorSink report);

}  // namespace windlass::sources
