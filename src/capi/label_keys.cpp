#include "capi/label_keys.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif
#ifndef PR_SET_VMA_ANON_NAME
#define PR_SET_VMA_ANON_NAME 0
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace windlass::capi {
namespace {

constexpr const char kName[] = "OTEL_CTX";
constexpr std::size_t kMappingBytes = 16384;

struct Header {
  char signature[8];
  std::uint32_t version;
  std::uint32_t size;
  std::uint64_t published;  // 0: it is being written
  std::uint64_t payload;
};

// A message of Protocol Buffers, written from its end to its begin: so the length of a message is known when it is
// written. No allocation, since a child of fork() writes one.
class BackwardWriter {
 public:
  void text(std::string_view bytes) {
    at_ -= bytes.size();
    std::memcpy(buffer_.data() + at_, bytes.data(), bytes.size());
  }
  // What has been written since `end` becomes a field.
  void close(unsigned field, std::size_t end) {
    varint(end - at_);
    varint(field << 3 | 2);
  }
  void text_field(unsigned field, std::string_view bytes) {
    const std::size_t end = at_;
    text(bytes);
    close(field, end);
  }
  [[nodiscard]] std::size_t position() const { return at_; }
  [[nodiscard]] std::string_view message() const { return {buffer_.data() + at_, buffer_.size() - at_}; }

 private:
  void varint(std::size_t value) {
    char bytes[10];
    std::size_t size = 0;
    do {
      bytes[size++] = static_cast<char>((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    } while ((value >>= 7) != 0);
    text({bytes, size});
  }
  // The names, and less than 32 bytes around each.
  std::array<char, WINDLASS_MAX_LABEL_KEYS*(WINDLASS_MAX_LABEL_NAME + 32) + 256> buffer_;
  std::size_t at_ = buffer_.size();
};

class Keys {
 public:
  windlass_status add(std::string_view name, std::uint32_t& key) {
    const std::lock_guard hold(lock_);
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    for (key = 0; key < count; ++key)
      if (name == names_[key].data()) return WINDLASS_OK;
    if (count == WINDLASS_MAX_LABEL_KEYS || name.size() > WINDLASS_MAX_LABEL_NAME) return WINDLASS_LIMIT;
    if (header_ == nullptr) {
      if (is_published()) return WINDLASS_UNSUPPORTED;
      if (!map()) return WINDLASS_SYSTEM;
      if (!std::exchange(follows_forks_, true))
        ::pthread_atfork([] { keys().lock_.lock(); }, [] { keys().lock_.unlock(); }, [] { keys().on_child(); });
    }
    name.copy(names_[count].data(), name.size());
    publish(count + 1);
    count_.store(count + 1, std::memory_order_release);
    return WINDLASS_OK;
  }
  [[nodiscard]] std::uint32_t count() const { return count_.load(std::memory_order_acquire); }

  static Keys& keys() {
    static auto* const keys = new Keys;  // threads may set labels when the program ends
    return *keys;
  }

 private:
  // By another library. There is one context in a process.
  static bool is_published() {
    std::FILE* maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr) return false;
    bool found = false;
    char line[512];
    while (!found && std::fgets(line, sizeof line, maps) != nullptr)
      found = std::strstr(line, "[anon_shmem:OTEL_CTX]") != nullptr ||
              std::strstr(line, "[anon:OTEL_CTX]") != nullptr || std::strstr(line, "/memfd:OTEL_CTX") != nullptr;
    std::fclose(maps);
    return found;
  }

  // OTEP 4719, "Publication Protocol". No allocation.
  bool map() {
    int file = ::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (file < 0) file = ::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool sized = file >= 0 && ::ftruncate(file, kMappingBytes) == 0;
    void* at = ::mmap(nullptr, kMappingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | (sized ? 0 : MAP_ANONYMOUS),
                      sized ? file : -1, 0);
    if (file >= 0) ::close(file);
    if (at == MAP_FAILED) return false;
    const bool named = name(at);
    if (::madvise(at, kMappingBytes, MADV_DONTFORK) != 0 || (!sized && !named)) {
      ::munmap(at, kMappingBytes);
      return false;
    }
    header_ = static_cast<Header*>(at);
    return true;
  }
  static bool name(void* at) { return ::prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, kMappingBytes, kName) == 0; }

  // The first `count` names. No allocation.
  void publish(std::uint32_t count) {
    BackwardWriter writer;
    std::size_t end = writer.position();  // of a KeyValue
    std::size_t any = end;                // of its AnyValue, which is an ArrayValue of AnyValues
    for (std::uint32_t key = count; key-- > 0;) {
      const std::size_t value = writer.position();
      writer.text_field(1, names_[key].data());
      writer.close(1, value);
    }
    writer.close(5, any);
    writer.close(2, any);
    writer.text_field(1, "threadlocal.attribute_key_map");
    writer.close(2, end);
    end = any = writer.position();
    writer.text_field(1, "tlsdesc_v1_dev");
    writer.close(2, any);
    writer.text_field(1, "threadlocal.schema_version");
    writer.close(2, end);

    const std::string_view message = writer.message();
    std::atomic_ref published(header_->published);
    published.store(0);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::memcpy(header_->signature, kName, sizeof header_->signature);
    header_->version = 2;
    header_->size = static_cast<std::uint32_t>(message.size());
    header_->payload = reinterpret_cast<std::uint64_t>(header_ + 1);
    std::memcpy(header_ + 1, message.data(), message.size());
    std::atomic_thread_fence(std::memory_order_seq_cst);
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    const auto time = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
    last_ = time > last_ ? time : last_ + 1;
    published.store(last_);
    (void)name(header_);
  }

  // The mapping is the parent's alone.
  void on_child() {
    header_ = nullptr;
    if (map()) publish(count_.load(std::memory_order_relaxed));
    lock_.unlock();
  }

  std::mutex lock_;
  Header* header_ = nullptr;  // null, too, in a child of fork() that got no memory for it
  bool follows_forks_ = false;
  std::uint64_t last_ = 0;
  std::atomic<std::uint32_t> count_ = 0;
  std::array<std::array<char, WINDLASS_MAX_LABEL_NAME + 1>, WINDLASS_MAX_LABEL_KEYS> names_{};
};

std::atomic<const Keys*> g_keys = nullptr;

}  // namespace

windlass_status add_label_key(std::string_view name, std::uint32_t& key) {
  Keys& keys = Keys::keys();
  g_keys.store(&keys, std::memory_order_release);
  return keys.add(name, key);
}

std::uint32_t label_key_count() {
  const Keys* keys = g_keys.load(std::memory_order_acquire);
  return keys != nullptr ? keys->count() : 0;
}

}  // namespace windlass::capi
