#include "profiler/samples/resting_threads.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "os/process_memory.h"
#include "profiler/samples/resting_go.h"
#include "windlass_wine_layout.h"

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kPage = WL_RAW_PAGE;

// As many bytes as there are from `address` on. Each page is a piece of its own: what is not there ends the copy.
std::size_t read_stack(std::uint32_t tgid, std::uint64_t address, std::span<std::byte> to) {
  std::vector<iovec> pieces;
  for (std::size_t at = 0; at < to.size();) {
    const std::size_t size = std::min<std::size_t>(to.size() - at, kPage - (address + at) % kPage);
    pieces.push_back({reinterpret_cast<void*>(address + at), size});  // NOLINT: another process's address
    at += size;
  }
  const ssize_t read = os::read_ranges(static_cast<pid_t>(tgid), pieces, to);
  return read > 0 ? static_cast<std::size_t>(read) : 0;
}

// A copy of so many bytes, without gaps.
std::uint64_t pages_of(std::uint64_t address, std::uint64_t size) {
  const std::uint64_t pages = (address % kPage + size + kPage - 1) / kPage;
  return size == 0 ? 0 : ~std::uint64_t{0} >> (WL_MAX_RAW_PAGES - pages);
}

// Where the program's own stack is, if the thread is on the Unix side of Wine; 0: it is not. As wl_emit_raw() does, the
// event gets the frame of its system call.
std::uint64_t find_windows_stack(std::uint32_t tgid, wl_raw_event& event) {
  if (event.gs_base == 0 || event.machine != WL_MACHINE_X86_64) return 0;
  const auto pid = static_cast<pid_t>(tgid);
  std::uint64_t rsp = 0;
  if (!os::read_memory(pid, event.gs_base + WL_WINE_TEB_FRAME, &event.teb_frame, 8) || event.teb_frame == 0) return 0;
  if (!os::read_memory(pid, event.teb_frame + WL_WINE_FRAME_RSP, &rsp, 8)) return 0;
  return rsp > WL_RED_ZONE ? rsp - WL_RED_ZONE : 0;
}

}  // namespace

bool RestingThreads::take(const wl_event_head& head, std::size_t size) {
  if (head.type != WL_EVENT_RAW || size < sizeof(wl_raw_event)) return false;
  const auto& event = reinterpret_cast<const wl_raw_event&>(head);
  const std::size_t used = sizeof event + std::size_t{event.kernel_frames} * 8;
  if (event.hash == 0 || event.stack_size != 0 || event.code_size != 0 || used > size) return false;
  room_.resize((used + kStackBytes + kSecondBytes) / 8 + 1);
  auto* bytes = reinterpret_cast<std::byte*>(room_.data());
  std::memcpy(bytes, &head, used);
  auto& copy = *reinterpret_cast<wl_raw_event*>(bytes);
  copy.stack_size = static_cast<std::uint32_t>(read_stack(head.tgid, event.stack_address, {bytes + used, kStackBytes}));
  copy.stack_pages = pages_of(event.stack_address, copy.stack_size);
  std::size_t end = used + copy.stack_size;
  std::uint64_t second = find_windows_stack(head.tgid, copy);
  if (second == 0) second = find_goroutine_stack(copy);
  if (second != 0) {
    copy.second_address = second;
    copy.second_size = static_cast<std::uint32_t>(read_stack(head.tgid, second, {bytes + end, kSecondBytes}));
    copy.second_pages = pages_of(second, copy.second_size);
    end += copy.second_size;
  }
  events_.push_back(
      {std::vector<std::uint64_t>(room_.begin(), room_.begin() + static_cast<std::ptrdiff_t>((end + 7) / 8)), end});
  return true;
}

void RestingThreads::hand_out(const Waiting& waiting, const SampleSource::Handler& use) {
  if (events_.empty()) return;
  std::unordered_set<std::uint64_t> still;
  waiting([&](const SampleSource::Waiting& wait) { still.insert(wait.key.hash); });
  for (Event& kept : std::exchange(events_, {})) {
    auto& event = *reinterpret_cast<wl_raw_event*>(kept.words.data());
    if (!still.contains(event.hash)) {
      kept.size -= event.stack_size + event.second_size;
      event.stack_size = event.second_size = 0;
      event.stack_pages = event.second_pages = 0;
    }
    use(event.head, kept.size);
  }
}

}  // namespace windlass::profiler
