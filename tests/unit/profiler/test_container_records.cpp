#include "profiler/processes/container_records.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "os/descriptor.h"
#include "profiler/processes/json_strings.h"
#include "profiler/processes/user_names.h"

namespace windlass::profiler {
namespace {

namespace fs = std::filesystem;

const std::string kId = "7be7ca56452ce0f69575654683e3b8cdc61d8898d06caf92fbf5ffffcd856bd7";
const std::string kOther = "438e2ba9d5970597608a7df68ae72f6085a1460f976f964ed5f369c793eaa4fe";

// docker 20.10, /var/lib/docker/containers/ID/config.v2.json, shortened.
std::string docker_config(const std::string& name, const std::string& labels = "") {
  return fmt::format(
      R"({{"StreamConfig":{{}},"State":{{"Running":true,"Pid":12258,"Error":""}},"ID":"{}","Path":"/bin/sleep",)"
      R"("Args":["3000"],"Config":{{"Hostname":"78f86f22d8a2","Env":["PATH=/bin"],"Labels":{{{}}}}},)"
      R"("NetworkSettings":{{"Name":"not this"}},"Name":"{}","RestartCount":0}})",
      kId, labels, name);
}

// containers/storage, vfs-containers/containers.json as podman 4.3 writes it, shortened.
std::string storage(const std::string& id, const std::string& names) {
  return fmt::format(
      R"([{{"id":"{}","names":["none of this"],"image":"e012"}},)"
      R"({{"id":"{}","names":[{}],"image":"e012","metadata":"{{\"name\":\"x\"}}","flags":{{"MountLabel":""}}}}])",
      std::string(64, '0'), id, names);
}

// containerd 1.6, /run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json, shortened: the post "Leveraging
// OCI runtime annotations" of Inspektor Gadget.
const std::string kContainerd = R"({"ociVersion":"1.0.2","process":{"args":["/coredns"]},"annotations":{
  "io.kubernetes.cri.container-name": "coredns",
  "io.kubernetes.cri.container-type": "container",
  "io.kubernetes.cri.image-name": "k8s.gcr.io/coredns/coredns:v1.8.6",
  "io.kubernetes.cri.sandbox-name": "coredns-6d4b75cb6d-w4b72",
  "io.kubernetes.cri.sandbox-namespace": "kube-system",
  "io.kubernetes.cri.sandbox-uid": "01b4b887-7635-4346-9c20-58a294bbb034"}})";

// CRI-O 1.25, /run/containers/storage/overlay-containers/ID/userdata/config.json, of the same source.
const std::string kCrio = R"({"annotations":{
  "io.container.manager": "cri-o",
  "io.kubernetes.container.name": "coredns",
  "io.kubernetes.cri-o.ContainerType": "container",
  "io.kubernetes.pod.name": "coredns-6d4b75cb6d-4mtdm",
  "io.kubernetes.pod.namespace": "kube-system",
  "io.kubernetes.pod.uid": "5b5e07db-f1b9-4530-81ef-b7d04d66b83e"}})";

// Kubernetes API, core/v1, PodList.
std::string pod_list(const std::string& status) {
  return R"({"kind":"PodList","items":[{"metadata":{"name":"other","namespace":"default","uid":"u0","labels":{"name":"no"}},
    "spec":{"containers":[{"name":"app"}]},"status":{}},{"status":{)" +
         status +
         R"(,"podIPs":[{"ip":"10.0.0.1"}]},"metadata":{"name":"web-1","namespace":"shop","uid":"u1","ownerReferences":[{"name":"web"}]}}]})";
}
std::string status_of(const std::string& list, const std::string& name, const std::string& id) {
  return fmt::format(
      R"("{}":[{{"name":"{}","state":{{}},"lastState":{{"terminated":{{"containerID":"containerd://old"}}}},)"
      R"("containerID":"containerd://{}"}}])",
      list, name, id);
}

std::string shown(const ContainerRecord& r) {
  return fmt::format("{}|{}|{}|{}|{}|{}", r.name, r.runtime, r.pod, r.pod_namespace, r.pod_uid, r.pod_container);
}

TEST(JsonStrings, PathsAndEnds) {
  std::string seen;
  const JsonSink sink = {
      .string =
          [&](const JsonPath& path, const std::string& value) {
            for (const std::string& key : path) seen += key + "/";
            seen += value + " ";
          },
      .end_of_object = [&](const JsonPath& path) { seen += "end" + std::to_string(path.size()) + " "; }};
  EXPECT_TRUE(read_json_strings(R"({"a":"1","b":[{"c":"2"},"3",[["4"]]],"d":{"e":null,"f":5,"g":"6"}})", sink));
  EXPECT_EQ(seen, "a/1 b/[]/c/2 end2 b/[]/3 b/[]/[]/[]/4 d/g/6 end1 end0 ");
}

TEST(JsonStrings, WhatIsNone) {
  const JsonSink sink = {.string = [](const JsonPath&, const std::string&) {}};
  EXPECT_TRUE(read_json_strings(std::string(64, '[') + std::string(64, ']'), sink));
  EXPECT_FALSE(read_json_strings(std::string(65, '[') + std::string(65, ']'), sink));
  EXPECT_FALSE(read_json_strings(std::string(1 << 20, '['), sink));
  EXPECT_FALSE(read_json_strings(R"({"a":"1")", sink));
  EXPECT_FALSE(read_json_strings("{\"a\":\"\xff\"}", sink));
  EXPECT_FALSE(read_json_strings("", sink));
}

TEST(ContainerRecords, DockerConfig) {
  EXPECT_EQ(shown(parse_docker_config(docker_config("/my-dock")).value()), "my-dock|docker||||");
  EXPECT_EQ(shown(parse_docker_config(docker_config("/k8s_web", R"("io.kubernetes.pod.name":"web-1",)"
                                                                R"("io.kubernetes.pod.namespace":"shop",)"
                                                                R"("io.kubernetes.container.name":"web",)"
                                                                R"("io.kubernetes.pod.uid":"u1","Name":"x")"))
                      .value()),
            "k8s_web|docker|web-1|shop|u1|web");
  for (const char* text : {"", "{}", "[]", R"({"Name":5})", R"({"Config":{"Name":"x"}})", R"({"Name":"/a")"})
    EXPECT_FALSE(parse_docker_config(text)) << text;
}

TEST(ContainerRecords, Bundles) {
  EXPECT_EQ(shown(parse_bundle(kContainerd).value()),
            "|containerd|coredns-6d4b75cb6d-w4b72|kube-system|01b4b887-7635-4346-9c20-58a294bbb034|coredns");
  EXPECT_EQ(shown(parse_bundle(kCrio).value()),
            "|cri-o|coredns-6d4b75cb6d-4mtdm|kube-system|5b5e07db-f1b9-4530-81ef-b7d04d66b83e|coredns");
  EXPECT_EQ(shown(parse_bundle(R"({"annotations":{"nerdctl/name":"web"}})").value()), "web|containerd||||");
  // podman's own: annotations that name nothing.
  EXPECT_FALSE(parse_bundle(R"({"annotations":{"io.container.manager":"libpod","io.kubernetes.cri-o.TTY":"false"}})"));
  EXPECT_FALSE(parse_bundle(R"({"process":{"io.kubernetes.pod.name":"x"}})"));
}

TEST(ContainerRecords, Storage) {
  const auto names = parse_storage(storage(kId, R"("my-box","second")"));
  EXPECT_EQ(names.size(), 2u);
  EXPECT_EQ(names.at(kId), "my-box");
  EXPECT_EQ(parse_storage(R"([{"id":"a"},{"names":["x"]},{"id":"b","names":[]}])").size(), 0u);
  EXPECT_EQ(parse_storage(R"([{"id":"a","names":["x"]})").size(), 0u);
}

TEST(ContainerRecords, GraphRoot) {
  EXPECT_EQ(parse_graph_root("[storage]\ndriver = \"overlay\"\n  graphroot\t= \"/srv/pod man\" # here\n"),
            "/srv/pod man");
  EXPECT_EQ(parse_graph_root("# graphroot = \"/srv\"\nrootless_graphroot = \"/x\"\ngraphroot = 5\n"), "");
  EXPECT_EQ(parse_graph_root("graphroot=\"/unended"), "/unended");
  EXPECT_EQ(parse_graph_root("="), "");
}

TEST(ContainerRecords, Pods) {
  for (const char* list : {"containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"}) {
    const auto pods = parse_pods(pod_list(status_of(list, "app", kId)));
    ASSERT_EQ(pods.size(), 1u) << list;
    EXPECT_EQ(shown(pods.at(kId)), "|containerd|web-1|shop|u1|app");
  }
  const std::string two = R"({"items":[{"metadata":{"name":"a"},"status":{)" +
                          status_of("containerStatuses", "x", kOther) + R"(}},{"metadata":{"name":"b"},"status":{)" +
                          status_of("containerStatuses", "y", kId) + "}}]}";
  const auto both = parse_pods(two);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(shown(both.at(kOther)), "|containerd|a|||x");
  EXPECT_EQ(shown(both.at(kId)), "|containerd|b|||y");
  EXPECT_EQ(parse_pods(pod_list(status_of("containers", "app", kId))).size(), 0u);
  EXPECT_EQ(parse_pods(pod_list(status_of("containerStatuses", "app", kId)).substr(1)).size(), 0u);
}

class Machine : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/windlass-records-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    root_ = folder;
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path, std::ios::binary) << text;
  }
  [[nodiscard]] std::string find(const std::string& id, const std::string& home = "") const {
    return shown(ContainerRecords({.root = root_, .stores = {}, .kubelet = {}}).find(id, home, true));
  }
  std::string root_;
};

TEST_F(Machine, EachRuntimesFile) {
  EXPECT_EQ(find(kId), "|||||");
  write("/var/lib/containers/storage/overlay-containers/containers.json", storage(kId, "\"box\""));
  EXPECT_EQ(find(kId), "box|||||");
  EXPECT_EQ(find(kOther), "|||||");
  write("/run/containers/storage/overlay-containers/" + kId + "/userdata/config.json", kCrio);
  EXPECT_EQ(find(kId), "box|cri-o|coredns-6d4b75cb6d-4mtdm|kube-system|5b5e07db-f1b9-4530-81ef-b7d04d66b83e|coredns");
  write("/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/" + kOther + "/config.json", kContainerd);
  EXPECT_EQ(find(kOther),
            "|containerd|coredns-6d4b75cb6d-w4b72|kube-system|01b4b887-7635-4346-9c20-58a294bbb034|coredns");
  write("/var/lib/docker/containers/" + kId + "/config.v2.json", docker_config("/my-dock"));
  EXPECT_EQ(find(kId), "my-dock|docker||||");
}

// An image brings labels along, so these alone make no pod, and no other runtime.
TEST_F(Machine, LabelsOfAnImage) {
  const std::string labels =
      R"("io.kubernetes.pod.name":"web-1","nerdctl/name":"x","io.kubernetes.cri.sandbox-name":"y")";
  write("/var/lib/docker/containers/" + kId + "/config.v2.json", docker_config("/box", labels));
  EXPECT_EQ(find(kId), "box|docker|web-1|||");
  ContainerRecords records({.root = root_, .stores = {}, .kubelet = {}});
  EXPECT_EQ(shown(records.find(kId, "", false)), "box|docker||||");
}

TEST_F(Machine, DockerElsewhere) {
  write("/etc/docker/daemon.json", R"({"log-opts":{"data-root":"/no"},"data-root":"/srv/docker"})");
  write("/srv/docker/containers/" + kId + "/config.v2.json", docker_config("/moved"));
  EXPECT_EQ(find(kId), "moved|docker||||");
  write("/home/u/.local/share/docker/containers/" + kOther + "/config.v2.json", docker_config("/own"));
  EXPECT_EQ(find(kOther), "|||||");
  EXPECT_EQ(find(kOther, "/home/u"), "own|docker||||");
  EXPECT_EQ(parse_data_root(R"({"data-root":"/x")"), "");
}

// Who may not look at the first process cannot say that it has other mounts.
TEST(ContainerRecords, AnUnprivilegedUserHasNoOtherRoot) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 &&
        (::setresgid(kNobody, kNobody, kNobody) != 0 || ::setresuid(kNobody, kNobody, kNobody) != 0))
      ::_exit(2);
    ::_exit(machine_root().empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Text of others stays as it is.
TEST(ContainerRecords, HostileNames) {
  EXPECT_EQ(parse_docker_config(docker_config("/a\\u001b]0;x\\u0007\\u202e")).value().name,
            "a\x1b]0;x\x07\xe2\x80\xae");
}

TEST_F(Machine, AStoreElsewhere) {
  write("/etc/containers/storage.conf", "[storage]\ngraphroot = \"/srv/store\"\n");
  write("/srv/store/vfs-containers/containers.json", storage(kId, "\"box\""));
  EXPECT_EQ(find(kId), "box|||||");
  write("/home/u/.local/share/containers/storage/btrfs-containers/containers.json", storage(kOther, "\"own\""));
  EXPECT_EQ(find(kOther), "|||||");
  EXPECT_EQ(find(kOther, "/home/u"), "own|||||");
}

// An id is part of paths, and may be whatever a cgroup is called.
TEST_F(Machine, AnIdThatIsNone) {
  write("/var/lib/docker/containers/config.v2.json", docker_config("/here"));
  write("/var/lib/docker/config.v2.json", docker_config("/up"));
  EXPECT_EQ(find(".."), "|||||");
  EXPECT_EQ(find(""), "|||||");
}

TEST_F(Machine, FilesThatAreNone) {
  const std::string place = root_ + "/var/lib/docker/containers/" + kId + "/config.v2.json";
  fs::create_directories(fs::path(place).parent_path());
  ASSERT_EQ(::mkfifo(place.c_str(), 0600), 0);  // whose opening would wait
  EXPECT_EQ(find(kId), "|||||");
  fs::remove(place);
  fs::create_symlink("/dev/zero", place);
  EXPECT_EQ(find(kId), "|||||");
  fs::remove(place);
  std::ofstream(place) << docker_config("/large") << std::string(ContainerRecords::kMostBytes, ' ');
  EXPECT_EQ(find(kId), "|||||");
  std::ofstream(place) << docker_config("/small") << std::string(4096, ' ');
  EXPECT_EQ(find(kId), "small|docker||||");
}

TEST_F(Machine, WhatIsFoundIsKept) {
  ContainerRecords records({.root = root_, .stores = {}, .kubelet = {}});
  const std::string place = "/var/lib/docker/containers/" + kId + "/config.v2.json";
  write(place, docker_config("/my-dock"));
  EXPECT_EQ(records.find(kId, "", false).name, "my-dock");
  fs::remove(root_ + place);
  EXPECT_EQ(records.find(kId, "", false).name, "my-dock");
  EXPECT_EQ(records.find(kOther, "", false).name, "");
}

TEST(Users, Passwd) {
  const auto users = parse_passwd(
      "root:x:0:0:root:/root:/bin/bash\ndaemon:*:1:1::/usr/sbin:\ntoor:x:0:0::/:\n"
      "bad\n:x:5:5::/:\nlow:x:-1:1::/:\nhigh:x:4294967296:1::/:\nname:x:7z:7::/:\n"
      "+@nis::::::\nlast:x:4294967294:1:a:/home/last");
  ASSERT_EQ(users.size(), 3u);
  EXPECT_EQ(users.at(0).name, "root");
  EXPECT_EQ(users.at(1).home, "/usr/sbin");
  EXPECT_EQ(users.at(4294967294).home, "/home/last");
}

TEST_F(Machine, UsersOfAFile) {
  write("/etc/passwd", "a:x:1:1::/home/a:\n");
  UserNames users(root_ + "/etc/passwd");
  ASSERT_NE(users.find(1), nullptr);
  EXPECT_EQ(users.find(1)->home, "/home/a");
  EXPECT_EQ(users.find(2), nullptr);
  UserNames none(root_ + "/none");
  EXPECT_EQ(none.find(1), nullptr);
}

TEST(KubeletAddresses, Numeric) {
  const auto shown = [](std::string_view text) {
    const auto address = KubeletAddress::parse(text);
    return address ? fmt::format("{} {} {}", address->host, address->port, address->path) : address.error();
  };
  EXPECT_EQ(shown("http://127.0.0.1:10255"), "127.0.0.1 10255 /pods");
  EXPECT_EQ(shown("10.0.0.1:10255/"), "10.0.0.1 10255 /pods");
  EXPECT_EQ(shown("http://[::1]:8001/api/v1/nodes/n/proxy/pods"), "::1 8001 /api/v1/nodes/n/proxy/pods");
  const std::string tls = "the kubelet is asked without TLS. Way out: its read-only port, or kubectl proxy";
  const std::string other = "the kubelet's address is no numeric one. Way out: http://127.0.0.1:10255";
  EXPECT_EQ(shown("https://127.0.0.1:10250"), tls);
  for (const char* text : {"", "node:10255", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
                           "127.0.0.1:1x", "::1", "http://", "127.0.0.1:80/a b", "127.0.0.1:80/\r\nX: y"})
    EXPECT_EQ(shown(text), other) << text;
}

// Answers one request with `answer`; `hold`: it then waits until the other side ends the connection.
class Server {
 public:
  explicit Server(std::string answer, bool hold = false) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
    address_ = {"127.0.0.1", ntohs(place.sin_port), "/pods"};
    thread_ = std::thread([this, answer = std::move(answer), hold] {
      const os::Descriptor peer(::accept(listener_.get(), nullptr, nullptr));
      char request[4096];
      const ssize_t got = ::recv(peer.get(), request, sizeof request, 0);
      request_.assign(request, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      (void)::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);  // it may be cut off
      while (hold && ::recv(peer.get(), request, sizeof request, 0) > 0) continue;
    });
  }
  ~Server() {
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] const KubeletAddress& address() const { return address_; }
  [[nodiscard]] std::string request() {
    thread_.join();
    return request_;
  }

 private:
  os::Descriptor listener_;
  KubeletAddress address_;
  std::thread thread_;
  std::string request_;
};

constexpr std::chrono::milliseconds kLong = std::chrono::seconds(20), kShort = std::chrono::milliseconds(20);

TEST(Kubelets, AnAnswer) {
  Server server("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}\r\n\r\n");
  EXPECT_EQ(get_pods(server.address(), kLong, 1000), "{}\r\n\r\n");
  EXPECT_TRUE(server.request().starts_with("GET /pods HTTP/1.0\r\nHost: 127.0.0.1\r\n"));
}

TEST(Kubelets, WhatIsNoAnswer) {
  for (const char* answer :
       {"", "HTTP/1.", "HTTP/1.0 403 Forbidden\r\n\r\n{}", "HTTP/1.0 200 OK\r\n{}", "{}\r\n\r\n200"}) {
    Server server(answer);
    EXPECT_EQ(get_pods(server.address(), kLong, 1000), "") << answer;
  }
  {
    Server server("HTTP/1.0 200 OK\r\n\r\n" + std::string(2000, ' '));
    EXPECT_EQ(get_pods(server.address(), kLong, 1000), "");
  }
  {
    Server server("HTTP/1.0 200 OK\r\n\r\n{}", true);  // and no end
    EXPECT_EQ(get_pods(server.address(), kShort, 1000), "");
  }
  EXPECT_EQ(get_pods({"127.0.0.1", 1, "/pods"}, kLong, 1000), "");  // nobody listens
}

TEST_F(Machine, ThePodOfTheKubelet) {
  Server server("HTTP/1.0 200 OK\r\n\r\n" + pod_list(status_of("containerStatuses", "app", kId)));
  const std::string address = fmt::format("127.0.0.1:{}", server.address().port);
  ContainerRecords records({.root = root_, .stores = {}, .kubelet = address});
  EXPECT_EQ(records.find(kOther, "", false).pod, "");  // is not asked for
  EXPECT_EQ(shown(records.find(kId, "", true)), "|containerd|web-1|shop|u1|app");
}

}  // namespace
}  // namespace windlass::profiler
