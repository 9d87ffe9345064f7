#include "profiler/import/perf_processes.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "profiler/import/perf_layout.h"

namespace windlass::importer {
namespace {

constexpr std::uint32_t kKernelPid = ~std::uint32_t{0};
constexpr std::uint32_t kProtExec = 4;

struct Mmap {
  std::uint32_t pid, tid;
  std::uint64_t address, size, offset;
};
// Behind that, of a PERF_RECORD_MMAP2: { u32 major, minor; u64 inode, generation } or { u8 build_id_size, u8 and u16
// reserved; u8 build_id[20] }, then u32 protection, u32 flags.
constexpr std::uint64_t kMmapEnd = 8 + 32, kProtection = kMmapEnd + 24, kMmap2End = kProtection + 8;

struct Fork {
  std::uint32_t pid, parent, tid, parent_tid;
};

}  // namespace

Expected<void> PerfProcesses::apply(ByteView record) {
  const auto header = record.at<PerfHeader>(0);
  if (!header) return Failure(header.error());
  switch (header->type) {
    case kPerfMmap: return map(record, false);
    case kPerfMmap2: return map(record, true);
    case kPerfComm: {
      const auto pid = record.at<std::uint32_t>(8), tid = record.at<std::uint32_t>(12);
      const auto name = record.string_at(16);
      if (!pid || !tid || !name) return fail(ErrorCode::kTruncated, "a thread's name is cut off", record.origin());
      names_[*tid] = std::string(*name);
      if ((header->misc & kMiscCommExec) != 0) {
        Process& process = processes_[*pid];
        process.mappings = std::make_shared<Mappings>();
        process.version = ++versions_;
      }
      return {};
    }
    case kPerfFork: {
      const auto fork = record.at<Fork>(8);
      if (!fork) return fail(ErrorCode::kTruncated, "a record of fork is cut off", record.origin());
      if (const auto name = names_.find(fork->parent_tid); name != names_.end())
        names_[fork->tid] = std::string(name->second);
      if (fork->pid != fork->parent) this->fork(fork->parent, fork->pid);
      return {};
    }
    case kPerfLost: lost_ += record.at<std::uint64_t>(16).value_or(0); return {};  // { u64 id, lost }
    case kPerfLostSamples:                                                         // { u64 lost }
      if ((header->misc & kMiscLostSamplesBpf) == 0) lost_samples_ += record.at<std::uint64_t>(8).value_or(0);
      return {};
    default: return {};
  }
}

// { u8 size; u8 reserved[3]; u8 id[20] }. Kernels of 5.12 to 6.18 leave the flag of build ids in records that have the
// file's device and inode there, if another event on the machine asks for build ids.
bool is_build_id(ByteView record) {
  const std::span<const std::uint8_t> id(record.u8() + kMmapEnd, 24);
  const auto is_zero = [](std::uint8_t byte) { return byte == 0; };
  return id[0] != 0 && id[0] <= 20 && std::ranges::all_of(id.subspan(1, 3), is_zero) &&
         std::ranges::all_of(id.subspan(std::size_t{4} + id[0]), is_zero);
}

Expected<void> PerfProcesses::map(ByteView record, bool second) {
  const auto header = *record.at<PerfHeader>(0);
  const auto mmap = record.at<Mmap>(8);
  const auto name = record.string_at(second ? kMmap2End : kMmapEnd);
  if (!mmap || !name) return fail(ErrorCode::kTruncated, "a record of a mapping is cut off", record.origin());
  if (mmap->pid == kKernelPid || (header.misc & kMiscModeMask) == kMiscKernel) {
    // "[kernel.kallsyms]_text": there the offset is the symbol's address.
    if (name->starts_with("[kernel.kallsyms]")) kernel_text_ = mmap->offset;
    return {};
  }
  PerfMappedFile file;
  file.path = *name;
  if (second) {
    if ((*record.at<std::uint32_t>(kProtection) & kProtExec) == 0) return {};
    if ((header.misc & kMiscMmapBuildId) != 0 && is_build_id(record)) {
      for (std::size_t i = 0; i < record.u8()[kMmapEnd]; ++i)
        file.identity.build_id += fmt::format("{:02x}", record.u8()[kMmapEnd + 4 + i]);
    } else {
      file.identity.major = *record.at<std::uint32_t>(kMmapEnd);
      file.identity.minor = *record.at<std::uint32_t>(kMmapEnd + 4);
      file.identity.inode = *record.at<std::uint64_t>(kMmapEnd + 8);
    }
  } else if ((header.misc & kMiscMmapData) != 0) {
    return {};
  }
  if (mmap->size == 0 || mmap->size > ~mmap->address) return {};
  insert(processes_[mmap->pid],
         {mmap->address, mmap->address + mmap->size, mmap->offset, file_number(std::move(file))});
  return {};
}

void PerfProcesses::fork(std::uint32_t parent, std::uint32_t child) {
  const std::shared_ptr<Mappings> mappings = processes_[parent].mappings;
  Process& to = processes_[child];  // a process may have had this id before
  to.mappings = mappings;
  to.version = ++versions_;
}

// What is mapped takes the place of what was there; parts of that stay.
void PerfProcesses::insert(Process& process, const PerfMapping& mapping) {
  if (process.mappings.use_count() > 1) {
    const bool is_room = process.mappings->size() <= kMostCopies - copies_;
    if (is_room) copies_ += process.mappings->size();
    process.mappings = is_room ? std::make_shared<Mappings>(*process.mappings) : std::make_shared<Mappings>();
  }
  Mappings& mappings = *process.mappings;
  auto next = mappings.lower_bound(mapping.begin);
  if (next != mappings.begin() && std::prev(next)->second.end > mapping.begin) --next;
  while (next != mappings.end() && next->second.begin < mapping.end) {
    const PerfMapping old = next->second;
    next = mappings.erase(next);
    if (old.begin < mapping.begin) mappings[old.begin] = {old.begin, mapping.begin, old.file_offset, old.file};
    if (old.end > mapping.end)
      mappings[mapping.end] = {mapping.end, old.end, old.file_offset + (mapping.end - old.begin), old.file};
  }
  if (mappings.size() < kMostMappings) mappings[mapping.begin] = mapping;
  process.version = ++versions_;
}

std::uint32_t PerfProcesses::file_number(PerfMappedFile file) {
  const auto [known, is_new] =
      file_numbers_.try_emplace({file.path, file.identity}, static_cast<std::uint32_t>(files_.size()));
  if (is_new) files_.push_back(std::move(file));
  return known->second;
}

const PerfProcesses::Process* PerfProcesses::find(std::uint32_t pid) const {
  const auto known = processes_.find(pid);
  return known == processes_.end() ? nullptr : &known->second;
}

const PerfMapping* PerfProcesses::mapping_at(const Process& process, std::uint64_t address) {
  auto behind = process.mappings->upper_bound(address);
  if (behind == process.mappings->begin()) return nullptr;
  --behind;
  return address < behind->second.end ? &behind->second : nullptr;
}

const std::string& PerfProcesses::name_of(std::uint32_t tid) const {
  static const std::string kNone;
  const auto known = names_.find(tid);
  return known == names_.end() ? kNone : known->second;
}

}  // namespace windlass::importer
