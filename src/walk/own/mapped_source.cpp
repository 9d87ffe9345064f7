#include "walk/own/mapped_source.h"

#include <sys/auxv.h>

#include "walk/indexed_row.h"
#include "walk/own/modules.h"

namespace windlass::walk {
namespace {

class MappedSource final : public UnwindSource {
 public:
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    // The module may have been unloaded, and another one be here.
    LoadedObject object;
    if (!find_loaded(address, object)) return fail(ErrorCode::kNotFound, "module has been unloaded", address);
    MappedCfi cfi;
    if (auto mapped = map_cfi(object, cfi); !mapped) return std::unexpected(mapped.error());
    return indexed_row(cfi.header, cfi.eh_frame, address, to);
  }

  std::uint64_t entry_point() const override { return ::getauxval(AT_ENTRY); }  // of the program
};

constinit const StaticSource<MappedSource> mapped;

}  // namespace

const UnwindSource& mapped_source() { return mapped.source; }

}  // namespace windlass::walk
