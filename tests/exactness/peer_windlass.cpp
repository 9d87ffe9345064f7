// Windlass as an unwinder under test: an AddressSpace kept in step with the process's mappings, and a StackWalker over
// the registers the judge hands over.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "exactness/peer.h"
#include "formats/image/elf.h"
#include "windlass/walk.h"

namespace {

using namespace windlass;

class JudgeMemory : public Memory {
 public:
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    return request != nullptr && request->read(request->context, address, to, size) == 0;
  }
  const uj_request* request = nullptr;
};

// An executable line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  std::string path;
  bool operator==(const Mapping&) const = default;
};

std::vector<Mapping> executable_mappings(int pid) {
  std::vector<Mapping> mappings;
  std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/maps").c_str(), "r");
  if (file == nullptr) return mappings;
  char line[8192];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long long begin = 0, end = 0, offset = 0;
    char permissions[5] = {};
    int path_at = 0;
    if (std::sscanf(line, "%llx-%llx %4s %llx %*s %*s %n", &begin, &end, permissions, &offset, &path_at) < 4) continue;
    line[std::strcspn(line, "\n")] = '\0';
    if (permissions[2] == 'x' && static_cast<std::int64_t>(begin) > 0)  // [vsyscall] is in the kernel's half
      mappings.push_back({begin, end, offset, path_at > 0 ? line + path_at : ""});
  }
  std::fclose(file);
  return mappings;
}

class Peer {
 public:
  Peer() : space_(Architecture::kX86_64, take_memory()) {}

  int unwind(const uj_request& request, uj_frame* out, int max) {
    memory_->request = &request;
    if (!started_ || pid_ != request.pid || generation_ != request.generation) refresh(request);
    Registers registers(Architecture::kX86_64);
    for (unsigned i = 0; i < UJ_PC; ++i) registers.set(i, request.reg[i]);
    registers.set_pc(CodeAddress::instruction(request.reg[UJ_PC]));
    walker_.restart(registers);
    int count = 0;
    while (count < max && walker_.step()) {
      uj_frame& frame = out[count++];
      frame = {};
      walker_.frame().registers.for_each([&](RegisterNumber reg, std::uint64_t value) {
        frame.reg[reg] = value;
        frame.known |= 1u << reg;
      });
    }
    memory_->request = nullptr;
    const bool gave_up = walker_.end_reason() != WalkEnd::kRunning && walker_.end_reason() != WalkEnd::kComplete;
    return gave_up ? -count - 1 : count;
  }

 private:
  std::unique_ptr<Memory> take_memory() {
    auto memory = std::make_unique<JudgeMemory>();
    memory_ = memory.get();
    return memory;
  }

  void refresh(const uj_request& request) {
    std::vector<Mapping> now = executable_mappings(request.pid);
    for (const Mapping& old : mappings_) {
      const auto same = std::find(now.begin(), now.end(), old);
      if (pid_ != request.pid || same == now.end()) (void)space_.remove(old.begin);
    }
    for (const Mapping& mapping : now)
      if (space_.module_at(mapping.begin) == nullptr) add(mapping);
    mappings_ = std::move(now);
    pid_ = request.pid;
    generation_ = request.generation;
    started_ = true;
  }

  void add(const Mapping& mapping) {
    if (mapping.path == "[vdso]") {
      std::vector<std::byte> image(mapping.end - mapping.begin);
      if (memory_->read(mapping.begin, image.data(), image.size()))
        (void)space_.add_module({mapping.begin, mapping.end, mapping.begin, mapping.path, {}}, std::move(image));
      return;
    }
    if (mapping.path.starts_with('/')) {
      if (const auto file = MappedFile::open(mapping.path)) {
        if (const auto image = image::ElfImage::parse(file->bytes())) {
          const auto address = image->address_of_file_offset(mapping.offset);
          (void)space_.add_module({mapping.begin, mapping.end, mapping.begin - address.value_or(0), mapping.path, {}});
          return;
        }
      }
    }
    (void)space_.add({.begin = mapping.begin, .end = mapping.end});
  }

  JudgeMemory* memory_ = nullptr;
  AddressSpace space_;
  StackWalker walker_{space_, Registers(Architecture::kX86_64)};
  std::vector<Mapping> mappings_;
  int pid_ = 0;
  std::uint64_t generation_ = 0;
  bool started_ = false;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) int uj_unwind(const uj_request* request, uj_frame* out, int max) {
  static Peer peer;
  return peer.unwind(*request, out, max);
}
