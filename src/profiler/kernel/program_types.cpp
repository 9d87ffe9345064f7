#include "profiler/kernel/program_types.h"

#include <bpf/btf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "os/write_all.h"

namespace windlass::profiler {
namespace {

// Their names in the kernel: a program may have several ideas of one struct, told apart by "___" and a word.
std::set<std::string, std::less<>> struct_names(const btf& types) {
  std::set<std::string, std::less<>> names;
  for (unsigned number = 1; number < btf__type_cnt(&types); ++number) {
    const btf_type* type = btf__type_by_id(&types, number);
    if (!btf_is_composite(type)) continue;
    const std::string_view name = btf__name_by_offset(&types, type->name_off);
    if (!name.empty()) names.emplace(name.substr(0, name.find("___")));
  }
  return names;
}

}  // namespace

ProgramTypes::ProgramTypes(std::string given) : path_(std::move(given)) {
  if (!path_.empty() || access(kKernelTypes, R_OK) != 0) return;
  file_ = memfd_create("windlass-types", MFD_CLOEXEC);
  if (file_ >= 0) path_ = fmt::format("/proc/self/fd/{}", file_);
}

ProgramTypes::~ProgramTypes() {
  if (file_ >= 0) close(file_);
}

void ProgramTypes::write(const btf& of_programs, const KernelTypes* kernel) {
  if (file_ < 0 || kernel == nullptr) return;
  const auto some = kernel->only(struct_names(of_programs));
  const std::span<const std::byte> bytes = some ? *some : kernel->bytes();
  // A file that is not whole is an error of libbpf's.
  (void)os::write_all(file_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace windlass::profiler
