// jit-PID.dump: tools/perf/Documentation/jitdump-specification.txt of Linux.
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "jit/registries/file.h"
#include "os/jitdump.h"
#include "os/process_memory.h"
#include "windlass/backtrace.h"
#include "windlass/format/dwarf.h"

namespace windlass::registries {
namespace {

using os::JitdumpHeader;
using os::JitdumpKind;
using os::JitdumpLoad;
using os::JitdumpMove;
using os::JitdumpRecord;
using os::JitdumpUnwinding;

// Records one behind the other.
class Records {
 public:
  void open(JitdumpKind kind) {
    begin_ = text_.size();
    value(JitdumpRecord{.kind = kind, .time = monotonic_ns()});  // perf's clock has to be the same: record -k mono
  }
  void close() {
    const auto size = static_cast<std::uint32_t>(text_.size() - begin_);
    std::memcpy(text_.data() + begin_ + offsetof(JitdumpRecord, size), &size, sizeof size);
  }
  template <typename T>
  void value(T number) {
    bytes(&number, sizeof number);
  }
  void bytes(const void* data, std::size_t size) { text_.append(static_cast<const char*>(data), size); }
  void text(std::string_view text) { text_.append(text) += '\0'; }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::size_t begin_ = 0;
};

// The records of a text.
template <typename Text, typename Visit>
void for_each_record(Text& text, Visit visit) {
  JitdumpRecord record;
  for (auto* at = text.data(); at < text.data() + text.size(); at += record.size) {
    std::memcpy(&record, at, sizeof record);
    visit(record, at);
  }
}

// perf inject puts the code into an object file, and the unwind information behind it, at the next multiple of 8. A
// perf built with libunwind (Debian 12's) reads that information through the mapping that it makes up for the code. The
// mapping is longer than the code by `mapped_size`. If other code begins at `next` before its end, a longer mapping
// would hide that code. Then `mapped_size` is 0, and only a perf built with libdw finds the information.
Expected<void> put_unwinding(Records& to, const Function& function, std::uint64_t next, RowsOf& rows_of) {
  const auto rows = rows_of(function);
  if (!rows) return Failure(rows.error());
  const std::uint64_t size = (std::uint64_t{function.given->size} + 7) / 8 * 8, code = 0x1000, frames = code + size;
  dwarf::Writer writer({.architecture = kOwnArchitecture, .address = frames});
  if (const auto ok = writer.add(*rows, {.address = code}); !ok) return ok;
  const dwarf::Written written = std::move(writer).take();
  const auto header = dwarf::eh_frame_hdr(written, frames + written.bytes.size());
  if (!header) return Failure(header.error());
  const std::uint64_t total = written.bytes.size() + header->size();
  to.open(JitdumpKind::kUnwindingInfo);
  to.value(JitdumpUnwinding{.size = total,
                            .header_size = header->size(),
                            .mapped_size = next - function.begin() >= size + total ? total : 0});
  to.bytes(written.bytes.data(), written.bytes.size());
  to.bytes(header->data(), header->size());
  to.close();
  return {};
}

void put_lines(Records& to, const Function& function) {
  const auto lines = function.given->lines;
  if (lines.empty()) return;
  to.open(JitdumpKind::kDebugInfo);
  to.value(function.begin());
  to.value(std::uint64_t{lines.size()});
  for (const GeneratedLine& line : lines) {
    to.value(function.begin() + line.offset);
    to.value(line.line);
    to.value(std::uint32_t{0});  // discriminator
    to.text(line.file);
  }
  to.close();
}

// Where a sandbox forbids process_vm_readv() the code has to be readable.
Expected<std::string> code_of(const Function& function) {
  std::string code(function.given->size, '\0');
  errno = 0;
  if (os::read_memory(::getpid(), function.begin(), code.data(), code.size())) return code;
  if (errno != EPERM && errno != ENOSYS)
    return fail(ErrorCode::kUnreadable, "code that cannot be read, which a jitdump has a copy of", function.begin());
  std::memcpy(code.data(), reinterpret_cast<const void*>(function.begin()), code.size());
  return code;
}

Expected<void> put_code(Records& to, const Function& function, std::uint64_t index) {
  const auto code = code_of(function);
  if (!code) return Failure(code.error());
  to.open(JitdumpKind::kLoad);
  to.value(JitdumpLoad{.process = static_cast<std::uint32_t>(::getpid()),
                       .thread = static_cast<std::uint32_t>(::gettid()),
                       .vma = function.begin(),
                       .address = function.begin(),
                       .size = function.given->size,
                       .index = index});
  to.text(function.given->name.empty() ? "[jit]" : function.given->name);
  to.bytes(code->data(), code->size());
  to.close();
  return {};
}

class JitdumpRegistrar : public FileRegistrar {
 public:
  explicit JitdumpRegistrar(const std::string& folder) : FileRegistrar(folder + "/jit-", ".dump") {}
  ~JitdumpRegistrar() override {
    remove_all();
    if (is_own()) {
      Records records;
      records.open(JitdumpKind::kClose);
      records.close();
      (void)write(records.take());
    }
    unmap();
  }

 private:
  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  void unmap() {
    if (marker_ != MAP_FAILED) ::munmap(marker_, page());
  }

  [[nodiscard]] int open_flags() const override { return O_RDWR | O_TRUNC; }

  Expected<void> begin() override {
    JitdumpHeader header;
    header.elf_machine = kOwnArchitecture == Architecture::kX86_64 ? EM_X86_64 : EM_AARCH64;
    header.process = static_cast<std::uint32_t>(::getpid());
    header.time = monotonic_ns();
    if (const auto ok = write({reinterpret_cast<const char*>(&header), sizeof header}); !ok) return ok;
    // By this mapping perf learns of the file.
    unmap();
    marker_ = ::mmap(nullptr, page(), PROT_READ | PROT_EXEC, MAP_PRIVATE, file(), 0);
    if (marker_ == MAP_FAILED)
      return fail(ErrorCode::kSystem, "cannot map the jitdump as code, by which perf finds it", 0,
                  static_cast<std::uint64_t>(errno));
    return {};
  }

  Expected<std::string> text_of(std::span<const Function> functions) override {
    Records records;
    RowsOf rows_of;
    for (std::size_t i = 0; i < functions.size(); ++i) {
      const std::uint64_t next = i + 1 < functions.size() ? functions[i + 1].begin() : ~std::uint64_t{0};
      put_lines(records, functions[i]);  // both come before the code
      if (const auto ok = put_unwinding(records, functions[i], next, rows_of); !ok) return Failure(ok.error());
      if (const auto ok = put_code(records, functions[i], index_++); !ok) return Failure(ok.error());
    }
    return records.take();
  }

  // perf takes the process and the time of a mapping from its record. By the parent's, the child's code would be the
  // parent's, and older than the child.
  void inherit(std::string& text) const override {
    const std::uint64_t time = monotonic_ns();
    const auto process = static_cast<std::uint32_t>(::getpid());
    for_each_record(text, [&](JitdumpRecord& record, char* at) {
      record.time = time;
      std::memcpy(at, &record, sizeof record);
      if (record.kind != JitdumpKind::kLoad) return;
      JitdumpLoad load;
      std::memcpy(&load, at + sizeof record, sizeof load);
      load.process = load.thread = process;  // its parent's other threads are not in the child
      std::memcpy(at + sizeof record, &load, sizeof load);
    });
  }

  // Behind these records, all code is written once more under new indexes, since its branches have changed. Also, perf
  // inject takes the unwinding data of moved code for not mapped: in jit_repipe_code_move() of jitdump.c,
  // unwinding_mapped_size is that of the function before, and is used up. These records only add which code is no
  // longer at its old place.
  [[nodiscard]] std::string text_of_moves(std::string_view was,
                                          std::span<const MovedFunction> functions) const override {
    std::map<std::uint64_t, const MovedFunction*> moved;  // by where it was
    for (const MovedFunction& function : functions)
      if (function.now.address != function.from) moved[function.from] = &function;
    Records records;
    for_each_record(was, [&](const JitdumpRecord& record, const char* at) {
      if (record.kind != JitdumpKind::kLoad) return;
      JitdumpLoad load;
      std::memcpy(&load, at + sizeof record, sizeof load);
      const auto found = moved.find(load.address);
      if (found == moved.end()) return;
      records.open(JitdumpKind::kMove);
      records.value(JitdumpMove{.process = static_cast<std::uint32_t>(::getpid()),
                                .thread = static_cast<std::uint32_t>(::gettid()),
                                .vma = found->second->now.address,
                                .from = load.address,
                                .to = found->second->now.address,
                                .size = load.size,
                                .index = load.index});
      records.close();
    });
    return records.take();
  }

  void* marker_ = MAP_FAILED;
  std::uint64_t index_ = 0;
};

}  // namespace

Opened open_jitdump(const RegistrarOptions& options) {
  auto registrar = std::make_unique<JitdumpRegistrar>(options.folder.empty() ? "." : options.folder);
  if (const auto ok = registrar->open(); !ok) return Failure(ok.error());
  return registrar;
}

}  // namespace windlass::registries
