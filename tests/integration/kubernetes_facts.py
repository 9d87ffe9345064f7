#!/usr/bin/env python3
"""What test_kubernetes.sh reads from manifests.

usage: kubernetes_facts.py json FILE              all documents as JSON
       kubernetes_facts.py same FILE OTHER        OTHER has the same documents, but for the namespace
       kubernetes_facts.py has FILE TEXT...       each text is a value, or a line of one
       kubernetes_facts.py arguments|options|podman FILE   of the agent's container
       kubernetes_facts.py seccomp FILE           podman's profile, with bpf for CAP_BPF, perf_event_open for CAP_PERFMON
"""
import json
import sys

import yaml


def documents(path):
    with open(path, encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


def texts(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return {text for one in value for text in texts(one)}
    return {str(value), *str(value).splitlines()}


def one(path, kind):
    (found,) = [document for document in documents(path) if document["kind"] == kind]
    return found


def podman(path):
    """The rights of the container as options of podman. What is not there is what podman leaves by itself."""
    pod = one(path, "DaemonSet")["spec"]["template"]["spec"]
    security = pod["containers"][0]["securityContext"]
    assert pod["hostPID"] and security["capabilities"]["drop"] == ["ALL"] and not security["privileged"]
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    options = ["--pid=host", "--cap-drop=ALL", f"--user={security['runAsUser']}"]
    options += [f"--cap-add={name}" for name in security["capabilities"]["add"]]
    if security["readOnlyRootFilesystem"]:
        options += ["--read-only", "--read-only-tmpfs=false"]
    if not security["allowPrivilegeEscalation"]:
        options.append("--security-opt=no-new-privileges")
    return options


def main():
    what, path, *more = sys.argv[1:]
    if what == "json":
        found = documents(path)
        print(json.dumps(found if len(found) != 1 else found[0]))
    elif what == "same":
        manifest = [document for document in documents(path) if document["kind"] != "Namespace"]
        if manifest != documents(more[0]):
            sys.exit(f"{path} and the chart differ:\n{manifest}\n{documents(more[0])}")
    elif what == "has":
        missing = set(more) - texts(documents(path))
        if missing:
            sys.exit(f"{path} has no {missing}")
    elif what == "options":
        print(one(path, "ConfigMap")["data"]["agent.conf"], end="")
    elif what == "arguments":
        print("\n".join(one(path, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["args"]))
    elif what == "podman":
        print("\n".join(podman(path)))
    elif what == "seccomp":
        with open(path, encoding="utf-8") as file:
            profile = json.load(file)
        # A rule that refuses bpf to all without CAP_SYS_ADMIN comes first otherwise.
        for rule in profile["syscalls"]:
            if rule["action"] != "SCMP_ACT_ALLOW":
                rule["names"] = [name for name in rule["names"] if name not in ("bpf", "perf_event_open")]
        profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
        for call, right in (("bpf", "CAP_BPF"), ("perf_event_open", "CAP_PERFMON")):
            profile["syscalls"].append({"names": [call], "action": "SCMP_ACT_ALLOW", "includes": {"caps": [right]}})
        print(json.dumps(profile))
    else:
        sys.exit(__doc__)


main()
