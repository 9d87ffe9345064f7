#include "profiler/processes/process_events.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "os/proc_maps.h"
#include "profiler/doctor/online_cpus.h"
#include "windlass/bytes.h"

namespace windlass::profiler {
namespace {

// sample_id_all with TID | TIME: u32 pid, u32 tid, u64 time; with ID: u64 id behind it
constexpr std::size_t kSampleIdSize = 16, kIdSize = 8;

// The NUL-padded string in front of the sample id. A missing NUL ends it at the record's end.
std::string padded_string(ByteView record, std::uint64_t offset) {
  if (offset > record.size()) return {};
  const auto* text = reinterpret_cast<const char*>(record.data()) + offset;
  return std::string(text, strnlen(text, record.size() - offset));
}

// struct { header; u32 pid, tid; u64 addr, len, pgoff; union { {u32 maj, min; u64 ino, gen}; {u8 size, ...; u8 id[20]}
// };
//          u32 prot, flags; char filename[]; sample_id; }   (perf_event_open(2), PERF_RECORD_MMAP2)
// Other events of the machine may ask for build ids, and their flag stays in the records of these (see
// request_process_events()): the union is the file's place in any case.
Expected<ProcessEvent> parse_mmap2(ByteView body, ProcessEvent event) {
  constexpr std::size_t kFixed = 72;
  if (body.size() < kFixed) return fail(ErrorCode::kTruncated, "MMAP2 record too short", body.origin(), body.size());
  event.kind = ProcessEventKind::kMap;
  event.tgid = *body.at<std::uint32_t>(8);
  event.tid = *body.at<std::uint32_t>(12);
  os::ProcMap& map = event.map;
  map.begin = *body.at<std::uint64_t>(16);
  const auto length = *body.at<std::uint64_t>(24);
  if (length == 0 || map.begin + length < map.begin)
    return fail(ErrorCode::kMalformed, "MMAP2 record with an impossible range", map.begin, length);
  map.end = map.begin + length;
  map.offset = *body.at<std::uint64_t>(32);
  map.file.major = *body.at<std::uint32_t>(40);
  map.file.minor = *body.at<std::uint32_t>(44);
  map.file.inode = *body.at<std::uint64_t>(48);
  map.file.generation = *body.at<std::uint64_t>(56);
  constexpr std::uint32_t kProtExec = 4;
  map.executable = (*body.at<std::uint32_t>(64) & kProtExec) != 0;
  if (!map.executable) return fail(ErrorCode::kNotFound, "mapping is not executable", map.begin);
  map.set_path(padded_string(body, kFixed));
  return event;
}

// struct { header; u32 pid, ppid, tid, ptid; u64 time; sample_id; }
Expected<ProcessEvent> parse_task(ByteView body, bool fork, ProcessEvent event) {
  if (body.size() < 32) return fail(ErrorCode::kTruncated, "task record too short", body.origin(), body.size());
  event.tgid = *body.at<std::uint32_t>(8);
  event.parent_tgid = *body.at<std::uint32_t>(12);
  event.tid = *body.at<std::uint32_t>(16);
  if (fork) {
    if (event.tgid == event.parent_tgid) return fail(ErrorCode::kNotFound, "a new thread", event.tid);
    event.kind = ProcessEventKind::kFork;
  } else {
    // The leader's exit. Other threads may outlive it; their samples find the process by its grace period.
    if (event.tgid != event.tid) return fail(ErrorCode::kNotFound, "a thread's exit", event.tid);
    event.kind = ProcessEventKind::kExit;
  }
  return event;
}

Expected<ProcessEvent> parse_comm(ByteView body, std::uint16_t misc, ProcessEvent event) {
  if (body.size() < 16) return fail(ErrorCode::kTruncated, "COMM record too short", body.origin(), body.size());
  event.kind = misc & PERF_RECORD_MISC_COMM_EXEC ? ProcessEventKind::kExec : ProcessEventKind::kComm;
  event.tgid = *body.at<std::uint32_t>(8);
  event.tid = *body.at<std::uint32_t>(12);
  event.comm = padded_string(body, 16);
  return event;
}

}  // namespace

void request_process_events(perf_event_attr& attr, std::uint32_t wakeup_bytes) {
  attr.size = sizeof attr;
  attr.sample_type |= PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
  attr.sample_id_all = 1;
  attr.mmap = 1;
  attr.mmap2 = 1;
  attr.comm = 1;
  attr.comm_exec = 1;
  attr.task = 1;
  // No build ids: the kernel does not take their flag back from a mapping's record, which goes to the events of others,
  // too (perf_event_mmap_output() of 5.12 to 6.18). `perf record` then takes a device number for a build id's length,
  // and crashes.
  attr.build_id = 0;
  attr.use_clockid = 1;
  attr.clockid = CLOCK_MONOTONIC;
  attr.read_format = kFormatLost;
  attr.watermark = 1;
  attr.wakeup_watermark = wakeup_bytes;
}

int open_process_events(perf_event_attr& attr, pid_t process, int cpu) {
  const auto open = [&] {
    return static_cast<int>(syscall(SYS_perf_event_open, &attr, process, cpu, -1, PERF_FLAG_FD_CLOEXEC));
  };
  const int fd = open();
  if (fd >= 0 || errno != EINVAL || attr.read_format == 0) return fd;
  attr.read_format = 0;
  return open();
}

Expected<ProcessEvent> parse_perf_record(std::span<const std::byte> record, bool with_id) {
  const std::size_t sample_id = kSampleIdSize + (with_id ? kIdSize : 0);
  const ByteView view(record.data(), record.size());
  const auto header = view.at<perf_event_header>(0);
  if (!header) return Failure(header.error());
  if (header->size != record.size() || header->size < sizeof(perf_event_header))
    return fail(ErrorCode::kMalformed, "record size contradicts its header", 0, header->size);
  if (record.size() < sizeof(perf_event_header) + sample_id)
    return fail(ErrorCode::kTruncated, "record without its sample id", 0, record.size());
  const ByteView body(record.data(), record.size() - sample_id);
  ProcessEvent event;
  event.tgid = *view.at<std::uint32_t>(record.size() - sample_id);
  event.tid = *view.at<std::uint32_t>(record.size() - sample_id + 4);
  event.time = *view.at<std::uint64_t>(record.size() - sample_id + 8);
  switch (header->type) {
    case PERF_RECORD_MMAP2: return parse_mmap2(body, std::move(event));
    case PERF_RECORD_FORK: return parse_task(body, true, std::move(event));
    case PERF_RECORD_EXIT: return parse_task(body, false, std::move(event));
    case PERF_RECORD_COMM: return parse_comm(body, header->misc, std::move(event));
    case PERF_RECORD_LOST: {
      const auto lost = body.at<std::uint64_t>(16);
      if (!lost) return Failure(lost.error());
      event.kind = ProcessEventKind::kLost;
      event.lost = *lost;
      return event;
    }
    default: return fail(ErrorCode::kNotFound, "record type of no interest", 0, header->type);
  }
}

ProcessEventSource::~ProcessEventSource() {
  for (const int fd : fds_) close(fd);
}

Expected<void> ProcessEventSource::open(std::size_t ring_pages) {
  perf_event_attr attr{};
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_DUMMY;
  request_process_events(attr, 1);  // a process start should reach the agent at once
  for (const int cpu : online_cpus()) {
    const int fd = open_process_events(attr, -1, cpu);
    if (fd < 0 && errno == ENODEV) continue;  // the CPU went offline meanwhile
    if (fd < 0) return fail(ErrorCode::kSystem, "perf_event_open for process events", cpu, errno);
    fds_.push_back(fd);
    PerfRing ring;
    if (const int error = ring.map(fd, ring_pages); error != 0)
      return fail(ErrorCode::kSystem, kMappingRing, cpu, static_cast<std::uint64_t>(error));
    cpus_.push_back({std::move(ring)});
  }
  if (fds_.empty()) return fail(ErrorCode::kSystem, "perf_event_open on any CPU", 0, ENODEV);
  return {};
}

// What the kernel's count has told already is not told again.
bool ProcessEventSource::Cpu::tells(ProcessEvent& event) {
  recorded += event.lost;
  event.lost = recorded - std::min(recorded, told);
  told = std::max(told, recorded);
  return event.lost != 0;
}

std::size_t ProcessEventSource::drain(const std::function<void(ProcessEvent&&)>& sink) {
  std::size_t count = 0;
  const auto hand_over = [&](ProcessEvent&& event) {
    sink(std::move(event));
    ++count;
  };
  for (std::size_t i = 0; i < cpus_.size(); ++i) {
    Cpu& cpu = cpus_[i];
    cpu.ring.drain(
        [&](std::span<const std::byte> record) {
          if (auto event = parse_perf_record(record)) {
            if (event->kind != ProcessEventKind::kLost || cpu.tells(*event)) hand_over(std::move(*event));
          } else if (event.error().code != ErrorCode::kNotFound) {
            ++malformed_;
          }
        },
        malformed_);
    // There may be no next record, which would tell.
    if (const std::uint64_t lost = cpu.ring.was_full() ? lost_of(fds_[i]) : 0; lost > cpu.told) {
      ProcessEvent event;
      event.time = monotonic_ns();
      event.lost = lost - std::exchange(cpu.told, lost);
      hand_over(std::move(event));
    }
  }
  return count;
}

}  // namespace windlass::profiler
