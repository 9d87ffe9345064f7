// What the processes of a recording had mapped, and what their threads were called: by the records of mmap, fork, exec
// and names, in the order of time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "os/file_identity.h"
#include "windlass/bytes.h"
#include "windlass/error.h"

namespace windlass::importer {

// Executable code that a process has mapped.
struct PerfMapping {
  std::uint64_t begin = 0, end = 0, file_offset = 0;
  std::uint32_t file = 0;  // of PerfProcesses::files()
  bool operator==(const PerfMapping&) const = default;
};

// A file as records tell of it.
struct PerfMappedFile {
  std::string path;
  os::FileIdentity identity;
};

class PerfProcesses {
 public:
  using Mappings = std::map<std::uint64_t, PerfMapping>;  // by begin, disjoint
  // Mappings of a process; later ones are left out. Copies of mappings, of all processes together; later forks have
  // none of their parent's once they map something.
  static constexpr std::size_t kMostMappings = 1 << 16, kMostCopies = 1 << 22;

  struct Process {
    std::shared_ptr<Mappings> mappings = std::make_shared<Mappings>();  // a fork shares its parent's until one changes
    std::uint64_t version = 0;                                          // grows with each change
  };

  // A record of any type; others than those above change nothing.
  [[nodiscard]] Expected<void> apply(ByteView record);

  // Null: nothing is known of it.
  [[nodiscard]] const Process* find(std::uint32_t pid) const;
  // Null where the address is in none.
  [[nodiscard]] static const PerfMapping* mapping_at(const Process& process, std::uint64_t address);
  // Empty: not known.
  [[nodiscard]] const std::string& name_of(std::uint32_t tid) const;
  [[nodiscard]] const std::vector<PerfMappedFile>& files() const { return files_; }
  // Where the kernel's text began in the recording; 0: not said.
  [[nodiscard]] std::uint64_t kernel_text() const { return kernel_text_; }
  // Samples that the kernel had no room for.
  // The rings' account and the events' are of the same losses. perf has one of them, or both.
  [[nodiscard]] std::uint64_t lost() const { return std::max(lost_, lost_samples_); }

 private:
  Expected<void> map(ByteView record, bool second);
  void fork(std::uint32_t parent, std::uint32_t child);
  void insert(Process& process, const PerfMapping& mapping);
  std::uint32_t file_number(PerfMappedFile file);

  std::unordered_map<std::uint32_t, Process> processes_;
  std::unordered_map<std::uint32_t, std::string> names_;  // by thread id
  std::vector<PerfMappedFile> files_;
  std::map<std::pair<std::string, os::FileIdentity>, std::uint32_t> file_numbers_;
  std::size_t copies_ = 0;  // of mappings
  std::uint64_t versions_ = 0, kernel_text_ = 0, lost_ = 0, lost_samples_ = 0;
};

}  // namespace windlass::importer
