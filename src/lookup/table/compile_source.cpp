#include "lookup/table/compile.h"
#include "lookup/table/compile_pe.h"
#include "lookup/table/compile_rows.h"

namespace windlass::table {
namespace {

class Compiler final : public sources::FormatVisitor {
 public:
  explicit Compiler(sources::ErrorSink report) : report_(report) {}

  void elf(const sources::UnwindSource&, const image::ElfImage& image) override { table = compile_elf(image, report_); }
  void winx64(const sources::UnwindSource& from, const winx64::Functions& functions) override {
    table = compile_winx64(from, functions, report_);
  }
  void winarm64(const sources::UnwindSource& from, const winarm64::Functions& functions) override {
    table = compile_winarm64(from, functions, report_);
  }
  void rows(const sources::UnwindSource& from) override { table = compile_rows(from, report_); }

  Expected<UnwindTable> table;

 private:
  sources::ErrorSink report_;
};

}  // namespace

Expected<UnwindTable> compile(const sources::UnwindSource& source, sources::ErrorSink report) {
  if (source.architecture() == Architecture::kI386)
    return fail(ErrorCode::kUnsupported, "a table has no room for 4-byte slots: i386", 0);
  Compiler compiler(report);
  source.accept(compiler);
  return std::move(compiler.table);
}

}  // namespace windlass::table
