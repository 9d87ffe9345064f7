#!/usr/bin/env bash
# The manifest and the chart of the agent: both say the same, all of it is known to Kubernetes' schemas, and a container
# with the rights that the manifest gives records this machine. Helm itself is not here: the chart is rendered by the
# engine that Helm uses (render_chart.go).
# usage: test_kubernetes.sh SOURCE_DIR COMMAND
set -euo pipefail
source=$1 command=$2 here=$1/tests/integration
skip() { echo "SKIPPED: $*"; exit 0; }
fail() { echo "$*"; exit 1; }
for program in go node python3; do command -v $program > /dev/null || skip "$program is not installed"; done
python3 -c 'import yaml' 2> /dev/null || skip "python3-yaml is not installed"
[ -n "${WINDLASS_OWN_MOUNTS:-}" ] || WINDLASS_OWN_MOUNTS=1 exec unshare --mount "$0" "$@"
work=$(mktemp -d)
host='' container=''
clean() {
  [ -z "$container" ] || podman rm -f "$container" > /dev/null 2>&1 || true
  [ -z "$host" ] || kill "$host" 2> /dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean EXIT
manifest=$source/packaging/kubernetes/windlass-agent.yaml chart=$source/packaging/helm/windlass
python3 "$here/kubernetes_facts.py" json "$chart/values.yaml" > "$work/values.json"
render() { GO111MODULE=off GOCACHE=$work/go GOFLAGS= go run "$here/render_chart.go" "$chart/templates/agent.yaml" "$1" windlass; }
render "$work/values.json" > "$work/rendered.yaml"
python3 "$here/kubernetes_facts.py" same "$manifest" "$work/rendered.yaml"
# Other values reach the manifest, and an unknown one is an error.
sed 's|"storeFolder": "/var/lib/windlass"|"storeFolder": "/srv/a: \\"b\\""|; s|keep = 3d|keep = 9d|' "$work/values.json" > "$work/other.json"
render "$work/other.json" > "$work/other.yaml"
python3 "$here/kubernetes_facts.py" has "$work/other.yaml" '/srv/a: "b"' 'keep = 9d'
echo '{}' > "$work/none.json"
if render "$work/none.json" > /dev/null 2>&1; then fail "a chart without its values was rendered"; fi

# Kubernetes' own schemas, as compiled by a package of npm.
fetch() {
  "$source/cmake/fetch_npm_package.sh" "$1" "$2" "$3" "$work/node_modules/$1" > "$work/fetched" 2>&1 && return
  [ $? -eq 1 ] || fail "$(cat "$work/fetched")"
  return 1
}
schemas=yes
fetch kubernetes-models 5.1.0 sha512-ym4Kiyr8BzGIWj4f853ytVYES1B8C1BdONRP5zodItPD1o//OEKuTwC5nFV3ZJtFGeMqOFbIYkpunSVXSlHS8g== &&
  fetch @kubernetes-models/apimachinery 3.0.2 sha512-6Vbzr/tinxPBGGdfYjXiV9WPj8PEhyiqGJiWhXrsihK7h6glPj4HKUxZ0YwYXH/5uucm/NVef/xY3vZ4Crj1Fg== &&
  fetch @kubernetes-models/validate 5.0.2 sha512-EzfxB8mu2VPlFYSwsMlZdgTeeqJGI2R58irUrZJWHxJqOqOhnau/oS9KNCZKXjdC2vFubU6v81m2CrIoU+/pxQ== &&
  fetch ajv-formats 3.0.1 sha512-8iUql50EUR+uUcdRQ3HDqa6EVyo3docL8g5WJ3FNcWmu62IbkGUue/pEyLBW8VGKKucTPgqeks4fIU1DA4yowQ== || schemas=''
if [ -n "$schemas" ]; then
  # The schemas take nothing but formats from the package, whose messages in other languages need further packages. No
  # field of these manifests has a format of CIDR or of later drafts of JSON Schema.
  echo 'export { formats } from "./formats.js";' > "$work/node_modules/@kubernetes-models/validate/dist/index.js"
  for name in is-cidr/index.js ajv-formats-draft2019/formats/index.js; do
    mkdir -p "$work/node_modules/$(dirname $name)"
    echo 'module.exports = {};' > "$work/node_modules/$name"
  done
  cp "$here/check_kubernetes.mjs" "$work/"
  check() { python3 "$here/kubernetes_facts.py" json "$1" > "$work/manifest.json" && node "$work/check_kubernetes.mjs" "$work/manifest.json"; }
  check "$manifest" || fail "the manifest is not what the schemas say"
  # Faults are found: a wrong type, an unknown field, a word that no list has, a missing field.
  for fault in 's|runAsUser: 0|runAsUser: root|' 's|readOnlyRootFilesystem|readonlyRootFilesystem|' \
    's|type: RuntimeDefault|type: Default|' 's|containerPort: 9309|hostPort: 9309|' 's|kind: DaemonSet|kind: DaemonSets|'; do
    sed "$fault" "$manifest" > "$work/wrong.yaml"
    ! cmp -s "$manifest" "$work/wrong.yaml" || fail "no change: $fault"
    if check "$work/wrong.yaml" > "$work/found" 2>&1; then fail "not found: $fault"; fi
    grep -q '^wrong: ' "$work/found" || { cat "$work/found"; fail "the check failed for another reason: $fault"; }
  done
fi

# The container, with the rights of the manifest.
for program in podman runc; do command -v $program > /dev/null || skip "podman or runc is not installed"; done
[ "$(id -u)" -eq 0 ] && "$command" doctor | tail -n 1 | grep -q works || skip "no privilege to sample"
podman() { command podman --root "$work/store" --runroot "$work/run" --storage-driver vfs --cgroup-manager cgroupfs --runtime runc "$@"; }
"$source/packaging/agent_root.sh" "$command" "$work/root"
podman build -q -t windlass-agent -f "$source/packaging/Containerfile.agent" "$work/root" > "$work/log" 2>&1 || { cat "$work/log"; fail "podman build failed"; }
cat > "$work/busy.c" <<'C'
volatile unsigned long turns;
__attribute__((noinline)) void busy_on_the_node(void) { for (;;) ++turns; }
int main(void) { busy_on_the_node(); return 0; }
C
cc -O1 -o "$work/busy_node" "$work/busy.c"
"$work/busy_node" & host=$!
mkdir "$work/node" "$work/options"
python3 "$here/kubernetes_facts.py" options "$manifest" > "$work/options/agent.conf"
# Arguments and capabilities are read from the manifest; $(NODE_NAME) is the kubelet's to fill in.
mapfile -t arguments < <(python3 "$here/kubernetes_facts.py" arguments "$manifest" | sed 's|$(NODE_NAME)|node-7|')
mapfile -t rights < <(python3 "$here/kubernetes_facts.py" podman "$manifest")
# The default profile of today's runtimes allows bpf and perf_event_open to those who have CAP_BPF and CAP_PERFMON. That of
# Debian 12's podman wants CAP_SYS_ADMIN, so both rules are added.
profile=/usr/share/containers/seccomp.json
[ -r $profile ] || skip "podman has no default seccomp profile in $profile"
python3 "$here/kubernetes_facts.py" seccomp $profile > "$work/seccomp.json"
rights+=("--security-opt=seccomp=$work/seccomp.json")
container=$(podman run -d --network none --log-driver k8s-file --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "${rights[@]}" \
  -v "$work/node:/var/lib/windlass" -v "$work/options:/etc/windlass:ro" --tmpfs /tmp:size=64m windlass-agent "${arguments[@]}")
agent=$(podman inspect --format '{{.State.Pid}}' "$container")
metrics() { nsenter --net --target "$agent" python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:9309/metrics", timeout=20).read().decode())'; }
for ((turn = 0; turn < 120; ++turn)); do
  metrics > "$work/metrics" 2> /dev/null && grep -q '^windlass_agent_stored_intervals_total [1-9]' "$work/metrics" && break
  [ "$(podman inspect --format '{{.State.Running}}' "$container")" = true ] || { podman logs "$container"; fail "the agent has ended"; }
  sleep 1
done
grep -q '^windlass_agent_stored_intervals_total [1-9]' "$work/metrics" || { podman logs "$container"; fail "no interval in two minutes"; }
grep '^Cap\(Eff\|Bnd\)\|^NoNewPrivs\|^Seccomp:' "/proc/$agent/status"
podman stop -t 60 "$container" > /dev/null
"$command" report "$work/node/profiles.db" --only host=node-7 > "$work/report"
grep -q busy_on_the_node "$work/report" || { cat "$work/report"; podman logs "$container"; fail "no sample of the node's process"; }
[ -n "$schemas" ] || skip "the schemas cannot be fetched: $(cat "$work/fetched")"
echo "the manifest, the chart and the container agree"
