// A server of ClickHouse on loopback, of Debian's package clickhouse-server. The package itself would start a service,
// so that only the library it needs is installed (packages.txt), and the program is taken out of the package.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace windlass::testing {

// Empty: there is none, and no package to take it from.
inline const std::string& clickhouse_program() {
  static const std::string program = [] {
    namespace fs = std::filesystem;
    const std::string installed = "/usr/sbin/clickhouse-server";
    if (access(installed.c_str(), X_OK) == 0) return installed;
    const fs::path folder = fs::temp_directory_path() / fmt::format("windlass-clickhouse-{}", getuid());
    const std::string taken = folder / "usr/sbin/clickhouse-server";
    if (access(taken.c_str(), X_OK) == 0) return taken;
    // Under another name until all is there: other tests may be at the same.
    const std::string part = fmt::format("{}.{}", folder.string(), getpid());
    const std::string take = fmt::format(
        "mkdir -p {0} && cd {0} && apt-get -qq download clickhouse-server >&2 && dpkg-deb -x clickhouse-server_*.deb . "
        "&& chmod 700 . && mv -T {0} {1} 2>/dev/null || rm -rf {0}",
        part, folder.string());
    (void)std::system(take.c_str());
    return access(taken.c_str(), X_OK) == 0 ? taken : std::string();
  }();
  return program;
}

inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof place;
  (void)::bind(socket, reinterpret_cast<sockaddr*>(&place), sizeof place);
  (void)::getsockname(socket, reinterpret_cast<sockaddr*>(&place), &size);
  ::close(socket);
  return ntohs(place.sin_port);
}

class ClickhouseProcess {
 public:
  // `folder` is the server's; its data survive a restart.
  explicit ClickhouseProcess(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_ / "data");
    port_ = free_port();
    std::ofstream(folder_ / "users.xml")
        << "<yandex><profiles><default></default></profiles><users><default><password></password><networks>"
           "<ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>"
           "<quotas><default></default></quotas></yandex>";
    std::ofstream(folder_ / "config.xml") << fmt::format(
        "<yandex><logger><level>error</level><log>{0}/log</log><errorlog>{0}/errors</errorlog></logger>"
        "<http_port>{1}</http_port><tcp_port>{2}</tcp_port><listen_host>127.0.0.1</listen_host>"
        "<path>{0}/data/</path><tmp_path>{0}/tmp/</tmp_path><users_config>{0}/users.xml</users_config>"
        "<default_profile>default</default_profile><default_database>default</default_database>"
        "<mark_cache_size>100000000</mark_cache_size></yandex>",
        folder_.string(), port_, free_port());
  }
  ClickhouseProcess(const ClickhouseProcess&) = delete;
  ClickhouseProcess& operator=(const ClickhouseProcess&) = delete;
  ~ClickhouseProcess() {
    stop(SIGKILL);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // `most_file_bytes`: larger files cannot be written; 0: no bound. False: the server does not answer.
  bool start(std::uint64_t most_file_bytes = 0) {
    const std::string config = "--config-file=" + (folder_ / "config.xml").string();
    const std::string output = folder_ / "output";
    child_ = fork();
    if (child_ == 0) {
      const int to = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(to, 1);
      dup2(to, 2);
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves none behind
      if (most_file_bytes != 0) {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{most_file_bytes, most_file_bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
      }
      execl(clickhouse_program().c_str(), "clickhouse-server", config.c_str(), nullptr);
      _exit(127);
    }
    for (int tries = 0; tries < 6000 && waitpid(child_, nullptr, WNOHANG) == 0; ++tries) {
      if (answers()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  void stop(int signal) {
    if (child_ <= 0) return;
    kill(child_, signal);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] std::string url(const std::string& database, int port = 0) const {
    return fmt::format("clickhouse://127.0.0.1:{}/{}", port != 0 ? port : port_, database);
  }

 private:
  [[nodiscard]] bool answers() const {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in place{.sin_family = AF_INET,
                            .sin_port = htons(static_cast<std::uint16_t>(port_)),
                            .sin_addr = {htonl(INADDR_LOOPBACK)},
                            .sin_zero = {}};
    const bool connected = ::connect(socket, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0;
    ::close(socket);
    return connected;
  }

  std::filesystem::path folder_;
  int port_ = 0;
  pid_t child_ = 0;
};

}  // namespace windlass::testing
