// A file system with one file, /file, whose server stops answering when it is told to: as a network file system's does.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace windlass::test {

class SilentMount {
 public:
  // The file has the content of `file`; the folder must be there. problem() says why there is no mount.
  SilentMount(std::string folder, const std::string& file) : folder_(std::move(folder)) {
    std::ifstream from(file, std::ios::binary);
    content_.assign(std::istreambuf_iterator<char>(from), {});
    const int device = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0) {
      problem_ = fmt::format("/dev/fuse: {}", std::strerror(errno));
      return;
    }
    const std::string options = fmt::format("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (::mount("test", folder_.c_str(), "fuse.test", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
      problem_ = fmt::format("mount: {}", std::strerror(errno));
      ::close(device);
      return;
    }
    server_ = ::fork();
    if (server_ == 0) serve(device);
    ::close(device);
  }
  // Whoever waits for the server goes on with an error.
  ~SilentMount() {
    if (server_ <= 0) return;
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
    ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SilentMount(const SilentMount&) = delete;
  SilentMount& operator=(const SilentMount&) = delete;

  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] std::string path() const { return folder_ + "/file"; }
  void stop_answering() const { ::kill(server_, SIGSTOP); }
  void answer_again() const { ::kill(server_, SIGCONT); }

 private:
  static constexpr std::uint64_t kFile = 2;
  static constexpr std::size_t kLargestMessage = 1 << 18;

  [[noreturn]] void serve(int device) const {
    std::vector<std::byte> request(kLargestMessage);
    for (;;) {
      const ssize_t got = ::read(device, request.data(), request.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) _exit(0);
      const auto& head = *reinterpret_cast<const fuse_in_header*>(request.data());
      if (head.opcode != FUSE_FORGET && head.opcode != FUSE_BATCH_FORGET) answer(device, head);
    }
  }

  template <typename T>
  static void reply(int device, const fuse_in_header& head, const T& what) {
    reply_bytes(device, head, 0, std::as_bytes(std::span(&what, 1)));
  }
  static void reply_bytes(int device, const fuse_in_header& head, int error, std::span<const std::byte> bytes) {
    fuse_out_header out{static_cast<std::uint32_t>(sizeof(fuse_out_header) + bytes.size()), error, head.unique};
    std::vector<std::byte> all(out.len);
    std::memcpy(all.data(), &out, sizeof out);
    std::copy(bytes.begin(), bytes.end(), all.begin() + sizeof out);
    if (::write(device, all.data(), all.size()) < 0 && errno != ENOENT) _exit(1);
  }

  [[nodiscard]] fuse_attr attributes(std::uint64_t node) const {
    fuse_attr attributes{};
    attributes.ino = node;
    attributes.mode = node == kFile ? S_IFREG | 0755 : S_IFDIR | 0755;
    attributes.nlink = 1;
    attributes.size = node == kFile ? content_.size() : 0;
    attributes.blksize = 4096;
    return attributes;
  }

  // What it knows is kept for an hour: a program that runs from here goes on without the server.
  void answer(int device, const fuse_in_header& head) const {
    constexpr std::uint64_t kHour = 3600;
    switch (head.opcode) {
      case FUSE_INIT: {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = 31;
        out.max_readahead = 1 << 17;
        out.max_write = 4096;
        return reply(device, head, out);
      }
      case FUSE_LOOKUP: {
        if (std::strcmp(reinterpret_cast<const char*>(&head + 1), "file") != 0)
          return reply_bytes(device, head, -ENOENT, {});
        fuse_entry_out out{};
        out.nodeid = kFile;
        out.entry_valid = out.attr_valid = kHour;
        out.attr = attributes(kFile);
        return reply(device, head, out);
      }
      case FUSE_GETATTR: {
        fuse_attr_out out{};
        out.attr_valid = kHour;
        out.attr = attributes(head.nodeid);
        return reply(device, head, out);
      }
      case FUSE_OPEN: {
        fuse_open_out out{};
        out.open_flags = FOPEN_KEEP_CACHE;
        return reply(device, head, out);
      }
      case FUSE_READ: {
        const auto& in = *reinterpret_cast<const fuse_read_in*>(&head + 1);
        const std::size_t at = std::min<std::size_t>(in.offset, content_.size());
        const std::size_t size = std::min<std::size_t>(in.size, content_.size() - at);
        return reply_bytes(device, head, 0, std::as_bytes(std::span(content_)).subspan(at, size));
      }
      case FUSE_RELEASE:
      case FUSE_FLUSH: return reply_bytes(device, head, 0, {});
      default: return reply_bytes(device, head, -ENOSYS, {});
    }
  }

  std::string folder_;
  std::string content_;
  std::string problem_;
  pid_t server_ = -1;
};

}  // namespace windlass::test
