"""Real profiles of several kinds, for tests of outputs."""
import subprocess

WORK = "for i in 1 2 3; do seq 1 20000 | sort -n | md5sum; done; python3 -c 'import json; json.dumps([list(range(50000))] * 8)'; sleep 0.2"
KINDS = {"cpu": ["--timeline"], "waits": ["--off-cpu"], "faults": ["-e", "page-faults"], "labels": ["--label", "stage=one", "-F", "499"],
         "allocations": ["--alloc"]}


def record(command, folder):
    """({kind: file}, why there are none)."""
    files = {}
    for kind, options in KINDS.items():
        files[kind] = str(folder / f"{kind}.pb.gz")
        done = subprocess.run([command, "record", *options, "-o", files[kind], "--", "sh", "-c", WORK], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=120)
        if done.returncode:
            return {}, f"{' '.join(options)}: {done.stderr.strip()}"
    return files, ""
