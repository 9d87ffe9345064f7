// __register_frame(). Sources: unwind-dw2-fde.c of libgcc, which takes the begin of a section that ends with a zero
// word; UnwindLevel1-gcc-ext.c of LLVM's libunwind, which takes one FDE.
#include <dlfcn.h>

#include "jit/registries/batch.h"
#include "windlass/backtrace.h"
#include "windlass/format/dwarf.h"

namespace windlass::registries {
namespace {

using RegisterFunction = void (*)(void*);

struct Unwinder {
  RegisterFunction add = nullptr;
  RegisterFunction remove = nullptr;
  bool takes_fdes = false;  // LLVM's
};

// The one that programs of this process get: of the shared object that has the function, does another function of
// LLVM's come from it, too?
Expected<Unwinder> find_unwinder() {
  Unwinder unwinder;
  void* const add = ::dlsym(RTLD_DEFAULT, "__register_frame");
  unwinder.add = reinterpret_cast<RegisterFunction>(add);
  unwinder.remove = reinterpret_cast<RegisterFunction>(::dlsym(RTLD_DEFAULT, "__deregister_frame"));
  if (unwinder.add == nullptr || unwinder.remove == nullptr)
    return fail(ErrorCode::kUnsupported, "no unwinder of this process has __register_frame(): link libgcc_s", 0);
  Dl_info of_add{}, of_llvm{};
  void* const llvm = ::dlsym(RTLD_DEFAULT, "__unw_add_dynamic_fde");
  unwinder.takes_fdes = llvm != nullptr && ::dladdr(add, &of_add) != 0 && ::dladdr(llvm, &of_llvm) != 0 &&
                        of_add.dli_fbase == of_llvm.dli_fbase;
  return unwinder;
}

class FrameInfo : public Published {
 public:
  explicit FrameInfo(const Unwinder& unwinder) : unwinder_(unwinder) {}
  ~FrameInfo() override {
    for (void* record : records_) unwinder_.remove(record);
  }
  FrameInfo(const FrameInfo&) = delete;
  FrameInfo& operator=(const FrameInfo&) = delete;

  // Written, and not known to anybody yet.
  Expected<void> write(std::span<const Function> functions) {
    // By pointers of eight bytes, so that it may stand anywhere.
    dwarf::Writer writer({.architecture = kOwnArchitecture, .pointers = dwarf::Pointers::kAbsolute});
    for (const Function& function : functions) {
      const auto rows = rows_of_(function);
      if (!rows) return Failure(rows.error());
      const dwarf::Place place{.address = function.begin(),
                               .personality = function.given->personality,
                               .language_data = function.given->language_data};
      if (const auto ok = writer.add(*rows, place); !ok) return ok;
    }
    sections_.push_back(std::move(writer).take());
    return {};
  }
  void tell() {
    for (dwarf::Written& section : sections_) {
      if (unwinder_.takes_fdes)
        for (const dwarf::WrittenFunction& function : section.functions)
          records_.push_back(section.bytes.data() + function.fde);
      else
        records_.push_back(section.bytes.data());
      section.functions = {};
    }
    for (void* record : records_) unwinder_.add(record);
  }

 private:
  Unwinder unwinder_;
  RowsOf rows_of_;
  std::vector<dwarf::Written> sections_;  // a run each
  std::vector<void*> records_;            // as they were registered
};

// Of all registrars: they have one unwinder behind them, and libgcc from 13 on does not bear objects
// whose ranges overlap (GCC's PR 119151). Never destroyed, as registrars may end after main().
Ledger& ledger_of(const Unwinder& unwinder) {
  static Ledger& ledger = *new Ledger(!unwinder.takes_fdes);
  return ledger;
}

class FrameInfoRegistrar : public BatchRegistrar {
 public:
  explicit FrameInfoRegistrar(const Unwinder& unwinder) : BatchRegistrar(ledger_of(unwinder)), unwinder_(unwinder) {}
  ~FrameInfoRegistrar() override { remove_all(); }

 private:
  // libgcc keeps a range for each section (from 13 on in a b-tree that bears no overlaps), and sorts its records when
  // first asked: so a section a run.
  Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                               std::span<const Run> runs) override {
    auto info = std::make_unique<FrameInfo>(unwinder_);
    for (const Run& run : runs)
      if (const auto ok = info->write(functions.subspan(run.first, run.last - run.first)); !ok)
        return Failure(ok.error());
    info->tell();
    return info;
  }

  const Unwinder unwinder_;
};

}  // namespace

Opened open_frame_info() {
  const auto unwinder = find_unwinder();
  if (!unwinder) return Failure(unwinder.error());
  return std::make_unique<FrameInfoRegistrar>(*unwinder);
}

}  // namespace windlass::registries
