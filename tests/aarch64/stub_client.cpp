#include "aarch64/stub_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace windlass::aarch64_judge {
namespace {

constexpr int kPatienceMs = 30000;
// qemu's stub takes what it reads at once, at most so many bytes, before the instruction that a step asks for is run.
constexpr std::size_t kStubReads = 256;
constexpr unsigned kFirstSavedVector = 34 + 8;  // 33 core registers and cpsr come before v0

std::string packet_of(std::string_view payload) {
  unsigned sum = 0;
  for (const char c : payload) sum += static_cast<unsigned char>(c);
  constexpr char kDigits[] = "0123456789abcdef";
  return "$" + std::string(payload) + "#" + kDigits[sum >> 4 & 15] + kDigits[sum & 15];
}

// A request that ends where the stub's read ends, and the acknowledgement of its reply. So several can be sent at once,
// and the stub handles each only after the one before.
std::string block_of(std::string_view payload) {
  const std::string packet = packet_of(payload);
  return std::string(kStubReads - packet.size(), '+') + packet + "+";
}

int digit(char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

std::uint64_t little_endian(const std::string& hex, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value |= static_cast<std::uint64_t>(digit(hex[at + 2 * i]) << 4 | digit(hex[at + 2 * i + 1])) << 8 * i;
  return value;
}

}  // namespace

StubClient::~StubClient() {
  if (socket_ >= 0) close(socket_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (!directory_.empty()) {
    unlink((directory_ + "/stub").c_str());
    rmdir(directory_.c_str());
  }
}

bool StubClient::start(const std::string& sysroot, const std::string& cpu, const std::vector<std::string>& command,
                       bool bind_now) {
  const char* const temporary = std::getenv("TMPDIR");
  std::string pattern = std::string(temporary != nullptr ? temporary : "/tmp") + "/windlass-aarch64-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    problem_ = "no temporary folder for the stub's socket";
    return false;
  }
  directory_ = pattern;
  const std::string path = directory_ + "/stub";
  std::vector<std::string> words = {"qemu-aarch64", "-g", path, "-cpu", cpu, "-L", sysroot};
  if (bind_now) words.insert(words.end(), {"-E", "LD_BIND_NOW=1"});
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  std::string reply;
  if (!connect_to(path)) return false;
  // Reading the description makes the stub answer `p`.
  if (!ask("qXfer:features:read:target.xml:0,ffb", reply) || !ask("?", reply)) return false;
  if (!ask("qXfer:auxv:read::0,ffb", reply)) return false;
  for (std::size_t at = 1; at + 16 <= reply.size(); at += 16) {
    std::uint64_t pair[2];
    std::memcpy(pair, reply.data() + at, sizeof pair);
    if (pair[0] == 9) entry_point_ = pair[1];
  }
  return ask("g", reply) && parse_general(reply) && read_vectors();
}

bool StubClient::connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  for (int waited_ms = 0; waited_ms < kPatienceMs; waited_ms += 10) {
    socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return true;
    close(socket_);
    socket_ = -1;
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      problem_ = "qemu-aarch64 ended at once";
      return false;
    }
    usleep(10000);
  }
  problem_ = "no connection to qemu's stub";
  return false;
}

bool StubClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      problem_ = "qemu's stub closed the connection";
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool StubClient::receive(std::string& packet) {
  for (;;) {
    const std::size_t begin = received_.find('$');
    const std::size_t end = begin == std::string::npos ? begin : received_.find('#', begin);
    if (end != std::string::npos && end + 2 < received_.size()) {
      packet.clear();
      for (std::size_t i = begin + 1; i < end; ++i)
        packet += received_[i] == '}' && i + 1 < end ? static_cast<char>(received_[++i] ^ 0x20) : received_[i];
      received_.erase(0, end + 3);
      return true;
    }
    pollfd ready{socket_, POLLIN, 0};
    if (poll(&ready, 1, kPatienceMs) <= 0) {
      problem_ = "qemu's stub does not answer";
      return false;
    }
    char bytes[8192];
    const ssize_t got = recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0) {
      problem_ = "qemu's stub closed the connection";
      return false;
    }
    received_.append(bytes, static_cast<std::size_t>(got));
  }
}

bool StubClient::ask(std::string_view request, std::string& reply) { return send(block_of(request)) && receive(reply); }

bool StubClient::parse_general(const std::string& packet) {
  if (packet.size() < 33 * 16) {
    problem_ = "registers in an unknown form: " + packet;
    return false;
  }
  for (unsigned i = 0; i < 31; ++i) state_.x[i] = little_endian(packet, i * 16, 8);
  state_.sp = little_endian(packet, 31 * 16, 8);
  state_.pc = little_endian(packet, 32 * 16, 8);
  return true;
}

bool StubClient::read_vectors() {
  std::string requests;
  for (unsigned i = 0; i < 8; ++i) {
    char request[8];
    requests +=
        block_of({request, static_cast<std::size_t>(snprintf(request, sizeof request, "p%x", kFirstSavedVector + i))});
  }
  if (!send(requests)) return false;
  std::string reply;
  for (std::uint64_t& d : state_.d) {
    if (!receive(reply)) return false;
    if (reply.size() < 16) {
      problem_ = "vector register in an unknown form: " + reply;
      return false;
    }
    d = little_endian(reply, 0, 8);
  }
  return true;
}

Stop StubClient::broken(std::string what) {
  if (problem_.empty()) problem_ = std::move(what);
  return {};
}

Stop StubClient::parse_stop(const std::string& packet) {
  if (packet.size() >= 3 && packet[0] == 'T') {
    const int signal = digit(packet[1]) << 4 | digit(packet[2]);
    return {signal == SIGTRAP ? Stop::kTrap : Stop::kSignal, signal};
  }
  if (!packet.empty() && (packet[0] == 'W' || packet[0] == 'X')) return {Stop::kExited, 0};
  return broken("stop in an unknown form: " + packet);
}

Stop StubClient::step(bool vectors) {
  std::string reply;
  static const std::string request = block_of("s") + block_of("g");
  if (!send(request) || !receive(reply)) return {};
  const Stop stop = parse_stop(reply);
  if (stop.kind == Stop::kExited || stop.kind == Stop::kBroken) return stop;
  if (!receive(reply) || !parse_general(reply) || (vectors && !read_vectors())) return {};
  return stop;
}

Stop StubClient::run_to(std::span<const std::uint64_t> addresses, int signal) {
  char text[64];
  std::string reply;
  for (const std::uint64_t address : addresses) {
    snprintf(text, sizeof text, "Z0,%llx,4", static_cast<unsigned long long>(address));
    if (!ask(text, reply) || reply != "OK") return broken("no breakpoint: " + reply);
  }
  snprintf(text, sizeof text, signal != 0 ? "vCont;C%02x" : "vCont;c", static_cast<unsigned>(signal));
  if (!ask(text, reply)) return {};
  const Stop stop = parse_stop(reply);
  if (stop.kind == Stop::kExited || stop.kind == Stop::kBroken) return stop;
  for (const std::uint64_t address : addresses) {
    snprintf(text, sizeof text, "z0,%llx,4", static_cast<unsigned long long>(address));
    if (!ask(text, reply)) return {};
  }
  if (!ask("g", reply) || !parse_general(reply) || !read_vectors()) return {};
  return stop;
}

bool StubClient::read(std::uint64_t address, void* to, std::size_t size) const {
  iovec here{to, size};
  iovec there{reinterpret_cast<void*>(address), size};
  return process_vm_readv(pid_, &here, 1, &there, 1, 0) == static_cast<ssize_t>(size);
}

}  // namespace windlass::aarch64_judge
