// What a program and its reader processes say to each other (readers.h): a request, then its answer, on a stream
// socket. Bytes of variable length follow each. A descriptor comes with the first byte (SCM_RIGHTS).
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "os/descriptor.h"

namespace windlass::os {

enum class ReaderCall : std::uint32_t {
  kOpenRegular,  // a path: a descriptor that never blocks its readers, nor a mapping; where needed, that of a copy
  kOpenGrowing,  // the same, but the file itself; Answer::remote says that reads of it may block
  kOpen,         // a path: whatever it is (files and folders of /proc)
  kStatus,       // a path: what stat(2) says
  kText,         // a path, or a descriptor and nothing: all bytes up to `size`
  kMemory,       // ranges: bytes of the process `pid`
  kBytes,        // a descriptor: `size` bytes at `offset`
  kPages,        // a descriptor and numbers of pages: their bytes
  kFileStatus,   // a descriptor: what fstat(2) says
};

struct ReaderRequest {
  ReaderCall call{};
  pid_t pid = 0;
  std::uint64_t offset = 0, size = 0;
  std::uint32_t follows = 0;   // bytes: a path, relative to the descriptor if there is one, or iovecs of the process
  bool tells_reached = false;  // of kOpenRegular: that the file has been found, before it is opened
};

struct ReaderAnswer {
  bool working = false;  // not the answer yet: bytes are arriving, or it comes with the reader's process (a pidfd)
  bool reached = false;  // with `working`: the file has been found, what comes next is its file system's to answer
  bool remote = false;
  int error = 0;              // errno
  std::uint64_t follows = 0;  // bytes
  std::uint64_t pages = 0;    // of kPages: a bit for each that could be read
  struct stat status {};
};

constexpr std::size_t kReaderPage = 4096;
constexpr std::size_t kMostRequest = 64 * 1024;  // bytes that follow one

// Both parts, and the descriptor if there is one (-1: none). False: the other side has gone.
inline bool send_message(int socket, std::span<const std::byte> head, std::span<const std::byte> rest, int file) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
  iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                    {const_cast<std::byte*>(rest.data()), rest.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    auto left = static_cast<std::size_t>(sent);
    for (iovec& part : parts) {
      const std::size_t taken = left < part.iov_len ? left : part.iov_len;
      part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
    }
  }
  return true;
}

// As much as is there, at most `head` and then `rest`. recvmsg(2)'s result; blocks unless `flags` say otherwise.
inline ssize_t receive_some(int socket, std::span<std::byte> head, std::span<std::byte> rest, Descriptor& file,
                            int flags) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec parts[2] = {{head.data(), head.size()}, {rest.data(), rest.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = 0;
  do got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  while (got < 0 && errno == EINTR);
  if (got <= 0) return got;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len == CMSG_LEN(sizeof(int))) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(rights), sizeof received);
    file = Descriptor(received);
  }
  return got;
}

}  // namespace windlass::os
