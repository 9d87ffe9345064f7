// The least of io_uring: reads that its workers do, which are threads of the process that never run user code.
#pragma once

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace windlass::test {

class IoUring {
 public:
  IoUring() {
    file_ = static_cast<int>(::syscall(SYS_io_uring_setup, 8, &set_up_));
    if (file_ < 0) return;
    submitted_ = map(set_up_.sq_off.array + set_up_.sq_entries * sizeof(std::uint32_t), IORING_OFF_SQ_RING);
    completed_ = map(set_up_.cq_off.cqes + set_up_.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
    entries_ = reinterpret_cast<io_uring_sqe*>(map(set_up_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
  }
  // False: this kernel, or who has set it up, has none.
  [[nodiscard]] bool is_there() const { return file_ >= 0; }

  // Has a worker read, and waits for `complete` reads to be over.
  void read(int file, void* to, std::uint32_t size, unsigned complete) {
    const std::uint32_t tail = *word(submitted_, set_up_.sq_off.tail);
    const std::uint32_t slot = tail & *word(submitted_, set_up_.sq_off.ring_mask);
    entries_[slot] = {};
    entries_[slot].opcode = IORING_OP_READ;
    entries_[slot].flags = IOSQE_ASYNC;
    entries_[slot].fd = file;
    entries_[slot].addr = reinterpret_cast<std::uint64_t>(to);
    entries_[slot].len = size;
    word(submitted_, set_up_.sq_off.array)[slot] = slot;
    std::atomic_ref(*word(submitted_, set_up_.sq_off.tail)).store(tail + 1, std::memory_order_release);
    ::syscall(SYS_io_uring_enter, file_, 1, complete, complete != 0 ? IORING_ENTER_GETEVENTS : 0, nullptr, 0);
    const std::uint32_t done = std::atomic_ref(*word(completed_, set_up_.cq_off.tail)).load(std::memory_order_acquire);
    std::atomic_ref(*word(completed_, set_up_.cq_off.head)).store(done, std::memory_order_release);
  }

 private:
  [[nodiscard]] char* map(std::size_t size, std::uint64_t what) const {
    return static_cast<char*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, static_cast<off_t>(what)));
  }
  static std::uint32_t* word(char* ring, std::uint32_t offset) {
    return reinterpret_cast<std::uint32_t*>(ring + offset);
  }

  io_uring_params set_up_{};
  int file_ = -1;
  char *submitted_ = nullptr, *completed_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
};

}  // namespace windlass::test
