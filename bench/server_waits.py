#!/usr/bin/env python3
"""Servers under load: do the time on the CPU and the time off it add up to the wall clock? Prints a Markdown table.

usage: bench/server_waits.py [SECONDS]      needs root, a release build, and those of nginx, ab, postgresql, pgbench,
                                            node, java (with javac) and go that are to be measured

Each server is recorded by `record -e cpu -e off-cpu -p` for SECONDS (10) while clients load it.
  threads    those that lived through the whole recording
  sum        their time on and off the CPU, by the profile, as a share of their number times the length of the recording
  worst      the thread that is furthest from 100%
  off-cpu, cpu   share of the time (of the samples) with whole stacks
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WINDLASS = os.environ.get("WINDLASS", str(ROOT / "build/release/src/cli/windlass"))
HZ = "1999"

NODE = """
const http = require('http');
http.createServer((request, response) => {
  let sum = 0;
  for (let i = 0; i < 20000; ++i) sum += i % 7;
  setTimeout(() => response.end(String(sum)), 2);
}).listen(PORT, '127.0.0.1');
"""
JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
public class Server {
  public static void main(String[] arguments) throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", PORT), 64);
    server.createContext("/", exchange -> {
      long sum = 0;
      for (int i = 0; i < 20000; ++i) sum += i % 7;
      try { Thread.sleep(1); } catch (InterruptedException e) { }
      byte[] text = Long.toString(sum).getBytes();
      exchange.sendResponseHeaders(200, text.length);
      exchange.getResponseBody().write(text);
      exchange.close();
    });
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.start();
  }
}
"""
GO = """
package main
import ("fmt"; "net/http"; "time")
func main() {
  http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
    sum := 0
    for i := 0; i < 20000; i++ { sum += i % 7 }
    time.Sleep(time.Millisecond)
    fmt.Fprint(w, sum)
  })
  http.ListenAndServe("127.0.0.1:PORT", nil)
}
"""
NGINX = """
worker_processes 2; daemon off; error_log /dev/null; pid DIR/pid;
events { worker_connections 256; }
http { access_log off; server { listen 127.0.0.1:PORT; location / { return 200 "hello"; } } }
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    sys.exit(f"nobody listens at port {port}")


def write(folder, name, text, port):
    path = pathlib.Path(folder) / name
    path.write_text(text.replace("PORT", str(port)).replace("DIR", str(folder)))
    return str(path)


def http_load(port):
    return ["ab", "-q", "-k", "-c", "8", "-t", "600", "-n", "100000000", f"http://127.0.0.1:{port}/"]


def prepare(name, folder, port):
    """The commands of a server and of its load."""
    if name == "nginx":
        return ["nginx", "-p", folder, "-c", write(folder, "nginx.conf", NGINX, port)], http_load(port)
    if name == "node":
        return ["node", write(folder, "server.js", NODE, port)], http_load(port)
    if name == "java":
        subprocess.run(["javac", "-d", folder, write(folder, "Server.java", JAVA, port)], check=True)
        return ["java", "-cp", folder, "Server"], http_load(port)
    if name == "go":
        source, program = write(folder, "server.go", GO, port), f"{folder}/server"
        subprocess.run(["go", "build", "-o", program, source], check=True,
                       env={**os.environ, "GOCACHE": f"{folder}/cache", "GOFLAGS": "", "HOME": folder})
        return [program], http_load(port)
    data, user = f"{folder}/data", ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    bin_folder = os.path.dirname(os.path.realpath(shutil.which("postgres")))
    shutil.chown(folder, "postgres")
    os.chmod(folder, 0o755)
    subprocess.run([*user, f"{bin_folder}/initdb", "-D", data, "-A", "trust", "-U", "postgres"], check=True,
                   stdout=subprocess.DEVNULL)
    server = [*user, f"{bin_folder}/postgres", "-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1"]
    at = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]
    load = ["sh", "-c", f"pgbench -q -i -s 2 {' '.join(at)} && exec pgbench -n -c 4 -T 600 {' '.join(at)}"]
    return server, load


NEEDED = {"nginx": ["nginx", "ab"], "postgres": ["postgres", "pgbench"], "node": ["node", "ab"],
          "java": ["java", "javac", "ab"], "go": ["go", "ab"]}


def processes_of(pid):
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [pid] + [one for child in children for one in processes_of(int(child))]


def threads_of(pids):
    threads = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            threads |= {int(thread) for thread in os.listdir(f"/proc/{pid}/task")}
    return threads


def record(pids, seconds, profile):
    before = os.times()
    subprocess.run([WINDLASS, "record", "-F", HZ, "-e", "cpu", "-e", "off-cpu", "--duration", str(seconds), "-o", profile,
                    "-p", ",".join(map(str, pids))], check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def sums(profile, threads):
    """Of a profile: its length, the time of each thread, and counts and whole ones of each event."""
    length, times, counts = 0, dict.fromkeys(threads, 0), {"cpu": [0, 0], "off-cpu": [0, 0]}
    waits = 0
    lines = subprocess.run([WINDLASS, "report", "--json", profile], check=True, capture_output=True, text=True).stdout
    for one in map(json.loads, lines.splitlines()):
        if one["type"] == "profile":
            length = one["duration_ns"]
        if one["type"] != "sample":
            continue
        if one["tid"] in times:
            times[one["tid"]] += one["value"]
        counts[one["event"]][0] += one["value"]
        counts[one["event"]][1] += one["value"] * (not one["truncated"])
        waits += one["count"] * (one["event"] == "off-cpu")
    return length, times, counts, waits


def measure(name, seconds):
    folder, port = tempfile.mkdtemp(), free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    running = []
    try:
        server, load = prepare(name, folder, port)
        running.append(subprocess.Popen(server, **quiet))
        wait_for(port)
        running.append(subprocess.Popen(load, **quiet))
        time.sleep(5)
        pids, profile = processes_of(running[0].pid), f"{folder}/p.pb.gz"
        threads = threads_of(pids)
        cpu = record(pids, seconds, profile)
        length, times, counts, waits = sums(profile, threads & threads_of(pids))
        shares = [100 * spent / length for spent in times.values()]
        whole = {event: 100 * good / every if every else 100 for event, (every, good) in counts.items()}
        worst = max(shares, key=lambda share: abs(share - 100))
        print(f"| {name} | {len(shares)} | {sum(shares) / len(shares):.2f}% | {worst:.2f}% | {whole['off-cpu']:.2f}% | "
              f"{whole['cpu']:.2f}% | {waits / (length / 1e9):,.0f} | {100 * cpu / (length / 1e9):.1f}% |", flush=True)
    finally:
        for one in reversed(running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL if one is not running[0] else signal.SIGTERM)
            one.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    load = open("/proc/loadavg").read().split()[0]
    print(f"Machine: `{os.cpu_count()} CPUs, Linux {os.uname().release}, {time.strftime('%F', time.gmtime())}, load {load}`\n")
    print("| server | threads | sum | worst | off-cpu | cpu | waits a second | recorder, of a CPU |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, programs in NEEDED.items():
        missing = [one for one in programs if not shutil.which(one)]
        if missing:
            print(f"{name}: not measured, there is no {', '.join(missing)}", file=sys.stderr)
        else:
            measure(name, seconds)


main()
