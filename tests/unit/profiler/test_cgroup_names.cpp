#include "profiler/processes/cgroup_names.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include <fmt/format.h>

#include "support/hostile_text.h"

namespace windlass::profiler {
namespace {

const std::string kId = "8ae5d36793164a2374bd9b4ceb81c6ca57a9152bdc69eafa9ce7919d22efff0d";
const std::string kOther = "90b200f66e7a7c6d3ee264d905001c37b7dd9d08e2d35aa669c2a8b092fe1a64";
const std::string kPod = "a9c80282-3f6b-4d5b-84d5-a137a6668011";
const std::string kPodOfUnits = "a9c80282_3f6b_4d5b_84d5_a137a6668011";

struct Case {
  std::string source, text;
  CgroupNames names;
};

std::string shown(const CgroupNames& names) {
  return fmt::format("path {} id {} name {} runtime {} pod {} unit {} user unit {} user {}", names.path,
                     names.container_id, names.container_name, names.runtime, names.pod_uid, names.unit,
                     names.user_unit, names.user ? std::to_string(*names.user) : "none");
}

void expect(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(shown(parse_cgroup(c.text)), shown(c.names)) << c.source << ":\n" << c.text;
}

// As `tail -n 3` of the file, for hierarchies of v1 and the unified one.
std::string hybrid(const std::string& path) {
  return fmt::format("2:cpu,cpuacct:{0}\n1:name=systemd:{0}\n0::{0}\n", path);
}

TEST(CgroupNames, Docker) {
  expect({
      {"docker 20.10, cgroupfs driver, hybrid: read off a container",
       hybrid("/docker/" + kId),
       {.path = "/docker/" + kId, .container_id = kId, .runtime = "docker"}},
      {"docker 20.10, v1: OpenTelemetry's profiler, testdata/cgroupv1docker",
       fmt::format("3:rdma:/\n2:devices:/docker/{}\n1:name=systemd:/docker/{}\n0::/system.slice/containerd.service\n",
                   kId, kId),
       {.path = "/system.slice/containerd.service",
        .container_id = kId,
        .runtime = "docker",
        .unit = "containerd.service"}},
      {"systemd driver, v2: testdata/cgroupv2docker",
       "0::/system.slice/docker-" + kId + ".scope\n",
       {.path = "/system.slice/docker-" + kId + ".scope",
        .container_id = kId,
        .runtime = "docker",
        .unit = "docker-" + kId + ".scope"}},
      {"docker of Debian 7, v1", "2:cpu:/" + kId + "\n", {.path = "/" + kId, .container_id = kId}},
      {"buildkit: testdata/buildkit",
       "0::/docker/buildkit/vy53ljgivqn5q9axwrx1mf40l\n",
       {.path = "/docker/buildkit/vy53ljgivqn5q9axwrx1mf40l",
        .container_id = "vy53ljgivqn5q9axwrx1mf40l",
        .runtime = "buildkit"}},
  });
}

TEST(CgroupNames, Podman) {
  const std::string rootless = "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + kId + ".scope";
  expect({
      {"podman 4.3, cgroupfs, hybrid: read off a container",
       hybrid("/libpod_parent/libpod-" + kId),
       {.path = "/libpod_parent/libpod-" + kId, .container_id = kId, .runtime = "podman"}},
      {"systemd, v2, crun (podman-run(1))",
       "0::/machine.slice/libpod-" + kId + ".scope/container\n",
       {.path = "/machine.slice/libpod-" + kId + ".scope/container",
        .container_id = kId,
        .runtime = "podman",
        .unit = "libpod-" + kId + ".scope"}},
      {"rootless",
       "0::" + rootless + "/container\n",
       {.path = rootless + "/container",
        .container_id = kId,
        .runtime = "podman",
        .unit = "user@1000.service",
        .user_unit = "libpod-" + kId + ".scope",
        .user = 1000}},
      {"the monitor is not in it",
       "0::/machine.slice/libpod-conmon-" + kId + ".scope\n",
       {.path = "/machine.slice/libpod-conmon-" + kId + ".scope", .unit = "libpod-conmon-" + kId + ".scope"}},
      {"an own systemd in it",
       "0::/machine.slice/libpod-" + kId + ".scope/system.slice/nginx.service\n",
       {.path = "/machine.slice/libpod-" + kId + ".scope/system.slice/nginx.service",
        .container_id = kId,
        .runtime = "podman",
        .unit = "libpod-" + kId + ".scope"}},
  });
}

TEST(CgroupNames, Kubernetes) {
  const std::string slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + kPodOfUnits + ".slice";
  const std::string kind =
      "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
      "kubelet-kubepods-besteffort-pod" +
      kPodOfUnits + ".slice/cri-containerd-" + kId + ".scope";
  const auto in_pod = [](std::string path, std::string runtime, std::string unit = {}) {
    return CgroupNames{.path = std::move(path),
                       .container_id = kId,
                       .runtime = std::move(runtime),
                       .pod_uid = kPod,
                       .unit = std::move(unit)};
  };
  const std::string containerd = slice + "/cri-containerd-" + kId + ".scope";
  const std::string crio = slice + "/crio-" + kId + ".scope/container";
  const std::string plain = "/kubepods/besteffort/pod" + kPod + "/" + kId;
  const std::string guaranteed = "/kubepods/pod" + kPod + "/" + kId;
  const std::string colons =
      "/system.slice/containerd.service/kubepods-burstable-pod" + kPodOfUnits + ".slice:cri-containerd:" + kId;
  const std::string docker = slice + "/docker-" + kId + ".scope";
  const std::string minikube = "/system.slice/docker-" + kOther + ".scope" + docker;
  expect({
      {"containerd, systemd: testdata/cgroupv1crikubernetes3", hybrid(containerd),
       in_pod(containerd, "containerd", "cri-containerd-" + kId + ".scope")},
      {"CRI-O with crun: cri-o, internal/config/cgmgr", "0::" + crio + "\n",
       in_pod(crio, "cri-o", "crio-" + kId + ".scope")},
      {"CRI-O's monitor: SPIRE's tests",
       "0::" + slice + "/crio-conmon-" + kId + ".scope\n",
       {.path = slice + "/crio-conmon-" + kId + ".scope", .pod_uid = kPod, .unit = "crio-conmon-" + kId + ".scope"}},
      {"cgroupfs: testdata/cgroupv2kubernetes", "0::" + plain + "\n", in_pod(plain, "")},
      {"cgroupfs, guaranteed", "0::" + guaranteed + "\n", in_pod(guaranteed, "")},
      {"containerd without SystemdCgroup: SkyWalking's and OpenTelemetry's tests", "11:devices:" + colons + "\n",
       in_pod(colons, "containerd", "containerd.service")},
      {"docker in a pod: testdata/cgroupv1dockerpods",
       fmt::format("1:name=systemd:/docker/pod{}/{}\n0::/\n", kPod, kId), in_pod("/docker/pod" + kPod + "/" + kId, "")},
      {"kind", "0::" + kind + "\n", in_pod(kind, "containerd", "cri-containerd-" + kId + ".scope")},
      {"minikube in docker, the innermost counts: testdata/cgroupv2minikube-docker", "0::" + minikube + "\n",
       in_pod(minikube, "docker", "docker-" + kOther + ".scope")},
      {"a static pod, whose UID is a hash",
       "0::/kubepods/burstable/pod3d6beaa3004913efb68ce073d73494b0/" + kId + "\n",
       {.path = "/kubepods/burstable/pod3d6beaa3004913efb68ce073d73494b0/" + kId,
        .container_id = kId,
        .pod_uid = "3d6beaa3004913efb68ce073d73494b0"}},
  });
}

TEST(CgroupNames, OtherRuntimes) {
  const std::string task = "5a0d5ceddf6c44c1928d367a815d890f";
  expect({
      {"LXC 4: testdata/lxcpayload",
       "0::/lxc.payload.hermes/system.slice/postfix.service\n",
       {.path = "/lxc.payload.hermes/system.slice/postfix.service", .container_name = "hermes", .runtime = "lxc"}},
      {"LXC 3, Proxmox",
       "0::/lxc/100/ns/init.scope\n",
       {.path = "/lxc/100/ns/init.scope", .container_name = "100", .runtime = "lxc"}},
      {"docker in LXC",
       "0::/lxc.payload.hermes/docker/" + kId + "\n",
       {.path = "/lxc.payload.hermes/docker/" + kId, .container_id = kId, .runtime = "docker"}},
      {"ECS on EC2: Datadog's tests",
       fmt::format("9:perf_event:/ecs/classic/{}/{}\n", task, kId),
       {.path = fmt::format("/ecs/classic/{}/{}", task, kId), .container_id = kId}},
      {"ECS on Fargate 1.4",
       fmt::format("9:perf_event:/ecs/{0}/{0}-2220258498\n", task),
       {.path = fmt::format("/ecs/{0}/{0}-2220258498", task), .container_id = task + "-2220258498"}},
      {"nerdctl, systemd",
       "0::/system.slice/nerdctl-" + kId + ".scope\n",
       {.path = "/system.slice/nerdctl-" + kId + ".scope",
        .container_id = kId,
        .runtime = "containerd",
        .unit = "nerdctl-" + kId + ".scope"}},
  });
}

// cgroups(7), systemd.slice(5); of systemd: src/test/test-cgroup-util.c.
TEST(CgroupNames, Units) {
  const std::string app = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-3421.scope";
  expect({
      {"a service",
       "0::/system.slice/nginx.service\n",
       {.path = "/system.slice/nginx.service", .unit = "nginx.service"}},
      {"a service in slices",
       "0::/a.slice/a-b.slice/x@1.service/sub/group\n",
       {.path = "/a.slice/a-b.slice/x@1.service/sub/group", .unit = "x@1.service"}},
      {"a session",
       "0::/user.slice/user-1000.slice/session-3.scope\n",
       {.path = "/user.slice/user-1000.slice/session-3.scope", .unit = "session-3.scope", .user = 1000}},
      {"a program of the desktop",
       "0::" + app + "\n",
       {.path = app, .unit = "user@1000.service", .user_unit = "app-gnome-firefox-3421.scope", .user = 1000}},
      {"the init process", "0::/init.scope\n", {.path = "/init.scope", .unit = "init.scope"}},
      {"an escaped name",
       "0::/system.slice/_cpu.service\n",
       {.path = "/system.slice/_cpu.service", .unit = "cpu.service"}},
      {"a slice alone is none", "0::/system.slice\n", {.path = "/system.slice"}},
      {"no unit at first", "0::/foo/nginx.service\n", {.path = "/foo/nginx.service"}},
      {"a group that is gone",
       "0::/system.slice/nginx.service (deleted)\n",
       {.path = "/system.slice/nginx.service", .unit = "nginx.service"}},
      {"v1 of systemd beside an empty unified hierarchy",
       "5:memory:/system.slice\n1:name=systemd:/system.slice/nginx.service\n0::/\n",
       {.path = "/system.slice/nginx.service", .unit = "nginx.service"}},
  });
}

// cgroup_namespaces(7): read from a namespace that the process is not in.
TEST(CgroupNames, AnotherNamespace) {
  expect({
      {"a sibling", "0::/../nginx.service\n", {.path = "/../nginx.service", .unit = "nginx.service"}},
      {"a container",
       "0::/../../docker/" + kId + "\n",
       {.path = "/../../docker/" + kId, .container_id = kId, .runtime = "docker"}},
      {"a root far above, and another hierarchy", "1:cpu:/group\n0::/../..\n", {.path = "/group"}},
      {"roots alone", "1:cpu:/\n0::/../..\n", {.path = "/../.."}},
      {"the own one's root", "1:cpu:/\n0::/\n", {.path = "/"}},
  });
}

TEST(CgroupNames, WhatIsNoId) {
  const std::string short_id = kId.substr(1);
  expect({
      {"nothing", "", {}},
      {"no file of cgroups", "a\n1:b\n:c:/d\nx::/system.slice/a.service\n\n", {}},
      {"63 digits", "0::/docker/" + short_id + "\n", {.path = "/docker/" + short_id}},
      {"65 digits", "0::/docker/0" + kId + "\n", {.path = "/docker/0" + kId}},
      {"capitals", "0::/docker/" + std::string(64, 'A') + "\n", {.path = "/docker/" + std::string(64, 'A')}},
      {"no pod", "0::/kubepods/poda9c80282-3f6b\n", {.path = "/kubepods/poda9c80282-3f6b"}},
      {"a user too large", "0::/user-99999999999.slice\n", {.path = "/user-99999999999.slice"}},
      {"a unit's name too long",
       "0::/" + std::string(300, 'a') + ".service\n",
       {.path = "/" + std::string(300, 'a') + ".service"}},
  });
}

// Names of groups are chosen by whoever may make one. They stay data.
TEST(CgroupNames, HostileNames) {
  for (std::string name : test::hostile_names()) {
    std::erase(name, '\n');  // the kernel takes no such name (cgroup_mkdir())
    const CgroupNames names = parse_cgroup("0::/" + name + "/docker-" + kId + ".scope\n");
    EXPECT_EQ(names.path, "/" + name + "/docker-" + kId + ".scope");
    EXPECT_EQ(names.container_id, kId);
    EXPECT_EQ(names.unit, "");
  }
}

TEST(CgroupNames, AnyBytes) {
  std::mt19937 random(1);
  const std::string pieces[] = {":",   "/",      "\n", "..", "-",      ".scope", ".slice",
                                "pod", "docker", kId,  "0",  "conmon", "_"};
  for (int round = 0; round < 20000; ++round) {
    std::string text = "0::";
    for (unsigned i = random() % 12; i > 0; --i) text += pieces[random() % std::size(pieces)];
    const CgroupNames names = parse_cgroup(text);
    EXPECT_TRUE(names.container_id.empty() || text.find(names.container_id) != std::string::npos) << text;
    EXPECT_TRUE(names.path.empty() || text.find(names.path) != std::string::npos) << text;
    EXPECT_EQ(names.container_id.find('/'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace windlass::profiler
