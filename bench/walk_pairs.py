#!/usr/bin/python3
"""walk_pairs.py [RUNS] [TARGET...]: `windlass walk` beside eu-stack, wall and CPU time, run by run in turns.

Targets: sleep, bash, python3, threads (1,000 of them), node, java, debug (`windlass mcp`, with debug information). Prints
a Markdown table. Each run of windlass has a run of eu-stack beside it, so that both meet the same load.

  ms, eu-stack   the median wall time of RUNS runs (20)
  wall, CPU      the median of windlass's time as a share of eu-stack's, of the pairs
Needs eu-stack, g++, javac and the rights to trace. WINDLASS: another command to measure.
"""
import ctypes
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILT = f"{ROOT}/build/release/src/cli/windlass"
WINDLASS = os.environ.get("WINDLASS", BUILT)
PR_SET_CHILD_SUBREAPER = 36

PYTHON = """
import threading, time
def deep(n):
    time.sleep(100000) if n == 0 else deep(n - 1)
for n in (5, 20): threading.Thread(target=deep, args=(n,), daemon=True).start()
sorted([2, 1], key=lambda _: deep(10))
"""
THREADS = """
#include <thread>
#include <vector>
#include <unistd.h>
[[gnu::noinline]] void deep(int n) { if (n == 0) for (;;) pause(); deep(n - 1); asm volatile(""); }
int main() { std::vector<std::thread> t; for (int i = 1; i < 1000; ++i) t.emplace_back(deep, i % 8); deep(3); }
"""
JAVA = """
public class Deep {
  static void deep(int n) throws Exception { if (n == 0) Thread.sleep(1000000000L); else deep(n - 1); }
  static void run(int n) { try { deep(n); } catch (Exception e) { } }
  public static void main(String[] a) {
    for (int i = 0; i < 20; ++i) { int n = i; new Thread(() -> run(n)).start(); }
    run(10);
  }
}
"""


def java_program(folder):
    with open(f"{folder}/Deep.java", "w") as source:
        source.write(JAVA)
    subprocess.run(["javac", "-d", folder, f"{folder}/Deep.java"], check=True)
    return ["java", "-cp", folder, "Deep"]


def threads_program(folder):
    subprocess.run(["g++", "-O2", "-g1", "-pthread", "-x", "c++", "-", "-o", f"{folder}/threads"],
                   input=THREADS.encode(), check=True)
    return [f"{folder}/threads"]


TARGETS = {
    "sleep": lambda _: ["sleep", "100000"],
    "bash": lambda _: ["bash", "-c", "read line"],
    "python3": lambda _: ["/usr/bin/python3", "-c", PYTHON],
    "threads": threads_program,
    "node": lambda _: ["node", "-e", "setInterval(() => {}, 1e6)"],
    "java": java_program,
    "debug": lambda _: [BUILT, "mcp"],
}


def run(command):
    """Wall and CPU seconds of a command, with the processes that it leaves behind."""
    begin = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ,
                           file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                                         (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)])
    wall = cpu = None
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == child:
            wall = time.perf_counter() - begin
            if status != 0:
                raise SystemExit(f"walk_pairs: {' '.join(command)}: status {status}")
        cpu = (cpu or 0) + usage.ru_utime + usage.ru_stime
        if wall is not None and not has_more():
            return wall, cpu


def has_more():
    """Is there a child but the target?"""
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    return any(int(child) != target.pid for child in children)


arguments = sys.argv[1:]
runs = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 20
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
peer = shutil.which("eu-stack") or sys.exit("walk_pairs: no eu-stack. Way out: install elfutils")
print("| target, live | ms | eu-stack | wall | CPU ms | eu-stack | CPU |")
print("|---|---|---|---|---|---|---|")
for name in arguments or TARGETS:
    with tempfile.TemporaryDirectory() as folder:
        target = subprocess.Popen(TARGETS[name](folder), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        time.sleep(2)
        pairs = []
        for i in range(runs + 1):
            commands = [[WINDLASS, "walk", str(target.pid)], [peer, "-p", str(target.pid)]]
            results = [run(one) for one in (commands if i % 2 else commands[::-1])]
            pairs.append(results if i % 2 else results[::-1])
        target.send_signal(signal.SIGKILL)
        target.wait()
    pairs = pairs[1:]  # the first one warms up
    cells = [name]
    for what in (0, 1):
        cells += [f"{1000 * statistics.median(pair[who][what] for pair in pairs):.1f}" for who in (0, 1)]
        cells.append(f"{statistics.median(pair[0][what] / pair[1][what] for pair in pairs):.2f}")
    print("| " + " | ".join(cells) + " |", flush=True)
