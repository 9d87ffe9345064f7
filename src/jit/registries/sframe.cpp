// SFrame sections made known to the kernel, whose own unwinder then walks user stacks through generated code.
// Source: "unwind: Add sframe_(un)register() system calls", version 2 (linux-kernel, May 2026). No released kernel has
// them up to 7.2, and no number is theirs yet, so they are called where the headers have one.
#include "jit/registries/sframe.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "windlass/backtrace.h"
#include "windlass/sframe.h"

namespace windlass::registries {
namespace {

#if defined(SYS_sframe_register) && defined(SYS_sframe_unregister)
class Kernel final : public SFrameKernel {
 public:
  int add(const SFrameSetup& setup) override { return call(SYS_sframe_register, setup, sizeof setup); }
  int remove(const SFrameSetup& setup) override { return call(SYS_sframe_unregister, setup, sizeof setup); }
  // A size that no version of the structure has is refused where there is a system call to refuse it.
  [[nodiscard]] bool is_there() { return call(SYS_sframe_register, {}, 0) != ENOSYS; }

 private:
  static int call(long number, const SFrameSetup& setup, std::size_t size) {
    return ::syscall(number, &setup, size) == 0 ? 0 : errno;
  }
};
#endif

// The sections of a batch, one for each run of code.
class Sections : public Published {
 public:
  explicit Sections(SFrameKernel& kernel) : kernel_(kernel) {}
  ~Sections() override {
    for (const Section& section : sections_)
      if (section.known) (void)kernel_.remove({.sframe_start = address_of(section.bytes.get())});
  }
  Sections(const Sections&) = delete;
  Sections& operator=(const Sections&) = delete;

  // Written, and not known to anybody yet.
  Expected<void> write(std::span<const Function> functions, const Run& run) {
    // Starts count from where they stand, and how long all is decides where that can be: so it is written twice.
    auto bytes = section_at(functions, 0);
    if (!bytes) return Failure(bytes.error());
    Section section{std::make_unique<std::byte[]>(bytes->size()), {}, false};
    section.setup = {.sframe_start = address_of(section.bytes.get()),
                     .sframe_size = bytes->size(),
                     .text_start = run.begin,
                     .text_size = run.end - run.begin};
    bytes = section_at(functions, section.setup.sframe_start);
    if (!bytes) return Failure(bytes.error());
    std::memcpy(section.bytes.get(), bytes->data(), bytes->size());
    sections_.push_back(std::move(section));
    return {};
  }

  Expected<void> tell() {
    for (Section& section : sections_) {
      if (const int error = kernel_.add(section.setup); error != 0)
        return fail(ErrorCode::kSystem, "sframe_register() was refused", section.setup.text_start,
                    static_cast<std::uint64_t>(error));
      section.known = true;
    }
    return {};
  }

 private:
  struct Section {
    std::unique_ptr<std::byte[]> bytes;  // where the kernel reads them
    SFrameSetup setup;
    bool known;
  };

  static std::uint64_t address_of(const std::byte* bytes) { return reinterpret_cast<std::uintptr_t>(bytes); }

  Expected<std::vector<std::byte>> section_at(std::span<const Function> functions, std::uint64_t address) {
    sframe::Writer writer({.architecture = kOwnArchitecture, .address = address});
    for (const Function& function : functions) {
      const auto rows = rows_of_(function);
      if (!rows) return Failure(rows.error());
      if (const auto ok = writer.add(*rows, function.begin()); !ok) return Failure(ok.error());
    }
    return std::move(writer).take();
  }

  SFrameKernel& kernel_;
  RowsOf rows_of_;
  std::vector<Section> sections_;
};

class SFrameRegistrar : public BatchRegistrar {
 public:
  // The kernel keeps a range of code for each section, and bears no overlaps.
  explicit SFrameRegistrar(std::unique_ptr<SFrameKernel> kernel) : BatchRegistrar(true), kernel_(std::move(kernel)) {}
  ~SFrameRegistrar() override { remove_all(); }

 private:
  Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                               std::span<const Run> runs) override {
    auto sections = std::make_unique<Sections>(*kernel_);
    for (const Run& run : runs)
      if (const auto ok = sections->write(functions.subspan(run.first, run.last - run.first), run); !ok)
        return Failure(ok.error());
    if (const auto ok = sections->tell(); !ok) return Failure(ok.error());
    return sections;
  }

  const std::unique_ptr<SFrameKernel> kernel_;
};

}  // namespace

Expected<std::unique_ptr<SFrameKernel>> find_sframe_kernel() {
#if defined(SYS_sframe_register) && defined(SYS_sframe_unregister)
  auto kernel = std::make_unique<Kernel>();
  if (kernel->is_there()) return kernel;
  return fail(ErrorCode::kUnsupported, "this kernel has no sframe_register()", 0);
#else
  return fail(ErrorCode::kUnsupported, "the kernel headers of this build have no sframe_register()", 0);
#endif
}

std::unique_ptr<Registrar> make_sframe_registrar(std::unique_ptr<SFrameKernel> kernel) {
  return std::make_unique<SFrameRegistrar>(std::move(kernel));
}

Opened open_sframe() {
  auto kernel = find_sframe_kernel();
  if (!kernel) return Failure(kernel.error());
  return make_sframe_registrar(std::move(*kernel));
}

}  // namespace windlass::registries
