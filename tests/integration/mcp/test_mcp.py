#!/usr/bin/python3
"""`windlass mcp` by a client without a library: what JSON-RPC demands of wrong lines, and the sums of a profile that is
known.  test_mcp.py COMMAND

Each answer is compared with the schema that tools/list has. Recording is tested where the machine allows it.
"""
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import jsonschema

import make_profile

command = sys.argv[1]
errors = []
PARSE, INVALID, METHOD, PARAMS = -32700, -32600, -32601, -32602


def expect(fits, text):
    if not fits:
        errors.append(text)


class Server:
    def __init__(self, *options, env=None):
        self.process = subprocess.Popen([command, "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=env)
        self.number = 0
        self.answers = b""

    def write(self, line):
        self.process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        self.process.stdin.flush()

    def read(self, seconds=60):
        while b"\n" not in self.answers:
            if not select.select([self.process.stdout], [], [], seconds)[0]:
                raise TimeoutError("no answer")
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                raise EOFError("the server has ended")
            self.answers += piece
        line, _, self.answers = self.answers.partition(b"\n")
        answer = json.loads(line)
        expect(answer["jsonrpc"] == "2.0" and ("result" in answer) != ("error" in answer), f"no response: {answer}")
        return answer

    def ask(self, method, **params):
        self.number += 1
        self.write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        answer = self.read()
        expect(answer["id"] == self.number, f"{method}: the answer to {answer['id']}, and not to {self.number}")
        return answer

    def start(self, revision="2025-06-18"):
        answer = self.ask("initialize", protocolVersion=revision, capabilities={}, clientInfo={"name": "t", "version": "1"})
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.schemas = {tool["name"]: tool for tool in self.ask("tools/list")["result"]["tools"]}
        for tool in self.schemas.values():
            for key in ("inputSchema", "outputSchema"):
                jsonschema.Draft202012Validator.check_schema(tool[key])
        return answer["result"]

    def call(self, name, **arguments):
        """What the tool answers; a text: why it does not."""
        result = self.ask("tools/call", name=name, arguments=arguments)["result"]
        if result["isError"]:
            expect("structuredContent" not in result, f"{name}: a failure with an answer")
            return result["content"][0]["text"]
        value = result["structuredContent"]
        expect(json.loads(result["content"][0]["text"]) == value, f"{name}: the text is another answer")
        for error in jsonschema.Draft202012Validator(self.schemas[name]["outputSchema"]).iter_errors(value):
            errors.append(f"{name}: {error.message}")
        return value

    def request(self, number, name, **arguments):
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}

    def cancel(self, number):
        return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}

    def write_at_once(self, *messages):
        self.write("\n".join(json.dumps(message) for message in messages).encode())

    def child(self):
        """The process that works for the server. Waits for one."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
                try:
                    if stat.read_text().rpartition(")")[2].split()[1] == str(self.process.pid):
                        return int(stat.parent.name)
                except OSError:
                    pass
        raise TimeoutError("no child")

    def end(self):
        """The exit status, and what came besides the answers."""
        self.process.stdin.close()
        rest = self.answers + self.process.stdout.read() + self.process.stderr.read()
        return self.process.wait(timeout=30), rest


def test_protocol():
    server = Server()
    expect(server.ask("ping")["result"] == {}, "no ping before initialize")
    expect(server.ask("tools/list")["error"]["code"] == INVALID, "tools/list before initialize")
    expect(server.ask("initialize")["error"]["code"] == PARAMS, "initialize without a version")
    for wanted, given in (("2025-06-18",) * 2, ("2025-11-25",) * 2, ("2024-11-05", "2025-11-25"), ("x", "2025-11-25")):
        expect(server.start(wanted)["protocolVersion"] == given, f"another version than {given} for {wanted}")
    request = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    for line, code, of in (
            (b"{", PARSE, None), (b"\xff\xfe", PARSE, None), (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE, None),
            (b"[" * 500000, PARSE, None),
            (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":' + b"[" * 200000 + b"]" * 200000 + b"}", PARSE, None),
            (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":' + b"[" * 64 + b"]" * 64 + b"}}", PARSE, None),
            (b"[]", INVALID, None), ([request], INVALID, None), (b"7", INVALID, None),
            ({**request, "jsonrpc": "1.0"}, INVALID, 7), ({**request, "jsonrpc": 2}, INVALID, 7), ({"jsonrpc": "2.0", "id": 7}, INVALID, 7),
            ({**request, "method": 1}, INVALID, 7), ({**request, "id": None}, INVALID, None), ({**request, "id": 1.5}, INVALID, None),
            ({**request, "id": {}}, INVALID, None), ({**request, "params": [1]}, PARAMS, 7),
            ({**request, "method": "resources/list"}, METHOD, 7), ({**request, "method": "tools/call"}, PARAMS, 7),
            ({**request, "method": "tools/call", "params": {"name": "record"}}, PARAMS, 7),
            ({**request, "method": "tools/call", "params": {"name": "walk", "arguments": []}}, PARAMS, 7),
            (b"a" * (1 << 20) + b"a", INVALID, None), (b'"' + b"a" * (3 << 20) + b'"', INVALID, None)):
        server.write(line)
        answer = server.read()
        shown = line[:40] if isinstance(line, bytes) else line
        expect(answer.get("error", {}).get("code") == code and answer["id"] == of, f"{shown}: {answer}")
    for quiet in (b"", b"\r", {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
                  {"jsonrpc": "2.0", "method": "no such"}, {"jsonrpc": "2.0", "id": 1, "result": {}}):
        server.write(quiet)
    expect(server.ask("ping")["result"] == {}, "an answer to a line that gets none")
    server.write({**request, "id": "a text"})
    expect(server.read()["id"] == "a text", "another id")
    server.write(json.dumps(request).encode() + b"\r")
    expect(server.read()["id"] == 7, "a line that ends with CR LF")
    expect(server.end() == (0, b""), "an end that is not quiet")
    half = Server()
    half.process.stdin.write(b'{"jsonrpc"')
    expect(half.end() == (0, b""), "half a line at the end")


def test_sums(folder):
    file, other = str(folder / "made.pb.gz"), str(folder / "other.pb.gz")
    make_profile.write(file)
    make_profile.write(other, [(stack, 10 * count if stack[0] == b"leaf" else count, *rest)
                               for stack, count, *rest in make_profile.SAMPLES])
    server = Server()
    server.start()
    expect("no profile is open" in server.call("top_functions"), "an answer without a profile")
    opened = server.call("open_profile", file=file)
    expect((opened["samples"], opened["processes"], opened["truncated"]) == (90, 2, 0), f"open_profile: {opened}")
    expect("request" in opened["labels"], "no label")

    def rows(answer, *keys, of):
        return [tuple(row[key] for key in keys) for row in answer[of]]

    def top(**more):
        return rows(server.call("top_functions", **more), "function", "self", "total", of="functions")

    hostile = make_profile.HOSTILE.decode(errors="replace")
    expect(top() == [("leaf", 60, 60), ("work(int)", 15, 75), (hostile, 10, 10), ("x" * 1000 + "...", 5, 5), ("main", 0, 90)],
           f"top_functions: {top()}")
    expect(top(sort="total", limit=1) == [("main", 0, 90)], "by total")
    expect(server.call("top_functions", limit=2)["more"] == 3, "how many more")
    expect(top(process=["11"], limit=1) == [(hostile, 10, 10)], "of a process")
    expect(top(thread=["b"], limit=1) == [("work(int)", 15, 15)], "of a thread")
    expect(top(only=["request=one"], limit=1) == [("leaf", 40, 40)], "of a label")
    expect(top(focus="^le", limit=1) == [("leaf", 60, 60)], "focus")
    expect(server.call("top_functions", value="cpu")["unit"] == "nanoseconds", "a value")
    expect("no times" in server.call("top_functions", **{"from": 0.5}), "a time of a profile without times")
    expect("KEY=VALUE" in server.call("top_functions", only=["x"]), "a label without a value")

    callers = server.call("callers", function="work")
    expect(rows(callers, "function", "total", of="callers") == [("main", 55), ("work(int)", 20)], f"callers: {callers}")
    callees = server.call("callees", function="work(int)")
    expect(rows(callees, "function", "total", of="callees") == [("leaf", 40), ("work(int)", 20)], f"callees: {callees}")
    expect(callees["total"] == 75, "the sum of a function")
    tree = server.call("call_tree")
    expect(rows(tree, "depth", "function", "self", "total", of="nodes")[:6] == [
        (0, "a", 0, 60), (1, "main", 0, 60), (2, "work(int)", 0, 60), (3, "leaf", 40, 40), (3, "work(int)", 0, 20),
        (4, "leaf", 20, 20)], f"call_tree: {tree}")
    expect((len(tree["nodes"]), tree["more"]) == (11, 0), "nodes of the tree")
    small = server.call("call_tree", limit=3)
    expect((len(small["nodes"]), small["more"]) == (3, 8), "a tree with a bound")
    expect([node["share"] >= 0.3 for node in server.call("call_tree", least_share=0.3)["nodes"]].count(False) == 0, "least_share")
    expect(rows(server.call("processes"), "pid", "sum", of="processes") == [(10, 75), (11, 15)], "processes")
    diff = server.call("diff", a=file, b=other, normalise="none", limit=1)
    leaf = diff["functions"][0]
    expect((leaf["name"], leaf["self"]["a"], leaf["self"]["b"], diff["more"]) == ("leaf", 60, 600, 4), f"diff: {diff}")
    annotated = server.call("annotate", function="leaf", file=file)
    expect(annotated["annotation"]["total"] == 60 and annotated["source_lines"][0]["line"] == 7, f"annotate: {annotated}")

    for more in ({"value": ""}, {"focus": ""}, {"ignore": "", "process": ["10"]}, {"value": "", "focus": "main"}):
        again = server.call("annotate", function="leaf", file=file, **more)
        expect(not isinstance(again, str) and again["annotation"]["total"] == 60, f"annotate {more}: {again}")
    expect(top(file=file, value="", focus="", process=[], limit=1) == [("leaf", 60, 60)], "texts that are empty")

    for problem, name, arguments in (
            ("schema", "annotate", {"function": ""}), ("schema", "callers", {"function": ""}), ("schema", "open_profile", {"file": ""}),
            ("schema", "processes", {"process": [""]}), ("NUL", "annotate", {"function": "le\0af"}),
            ("NUL", "top_functions", {"focus": "a\0b"}), ("NUL", "processes", {"only": ["a=\0"]}),
            ("NUL", "open_profile", {"file": file + "\0x"}), ("brackets", "top_functions", {"focus": "(" * 20000 + ")" * 20000}),
            ("repetitions", "top_functions", {"focus": "((a{1,255}){1,255}){1,20}"}),
            ("back references", "top_functions", {"ignore": r"(a)\1"}), ("No such file", "open_profile", {"file": str(folder / "none")}), ("not a regular file", "open_profile", {"file": "/dev/zero"}),
            ("of the kernel", "open_profile", {"file": "/proc/self/status"}), ("of the kernel", "open_profile", {"file": "/sys/kernel/notes"}),
            ("no profile", "open_profile", {"file": "-"}), ("ELF", "open_profile", {"file": "/bin/true"}), ("needs", "open_profile", {}),
            ("no argument nope", "processes", {"nope": 1}), ("schema", "processes", {"limit": "x"}), ("schema", "processes", {"limit": 0}),
            ("schema", "processes", {"limit": 1e300}), ("schema", "processes", {"limit": -1}), ("schema", "processes", {"process": "10"}),
            ("schema", "processes", {"process": [10]}), ("schema", "top_functions", {"sort": "x"}), ("schema", "walk", {"pid": 0}),
            ("no function", "callers", {"function": "--html"}), ("no sample", "annotate", {"function": "--html"}),
            ("no value", "processes", {"value": "nope"}),
            # A way out names arguments and tools, not options of a command line.
            ("Way out: focus takes", "callers", {"function": "nope"}), ("Way out: top_functions lists", "annotate", {"function": "nope"}),
            ("Way out: value takes", "processes", {"value": "nope"}), ("Way out: top_functions lists", "processes", {"module": ["nope"]}),
            ("regular expression", "top_functions", {"focus": "["})):
        answer = server.call(name, **arguments)
        expect(isinstance(answer, str) and problem in answer, f"{name} {arguments}: {answer}")
    sleeper = subprocess.Popen(["sleep", "600"])
    walked = server.call("walk", pid=sleeper.pid, frames=1, lines=True)
    expect([len(thread["frames"]) for thread in walked["threads"]] == [1] and walked["more_frames"] > 0, f"walk: {walked}")
    sleeper.kill()
    sleeper.wait()
    expect(isinstance(server.call("walk", pid=sleeper.pid), str), "a walk of a process that has ended")
    expect(server.end() == (0, b""), "an end that is not quiet")


def has_ended(pid, seconds=30):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def expect_cancelled(server, number, tool, file):
    """A tool whose process stands still leaves pings their answer, and ends when it is cancelled."""
    server.write(server.request(number, tool, file=file))
    child = server.child()
    os.kill(child, signal.SIGSTOP)
    expect(server.ask("ping")["result"] == {}, f"no ping during {tool}")
    server.write_at_once(server.cancel(number), {"jsonrpc": "2.0", "id": number + 1, "method": "ping"})
    expect(server.read()["id"] == number + 1 and has_ended(child), f"{tool} goes on when it is cancelled")


def test_cancelling(folder):
    file, large = str(folder / "made.pb.gz"), str(folder / "large.folded")
    make_profile.write(file)
    # Large enough for the test to stop the process that reads it.
    pathlib.Path(large).write_text("".join(f"main;f{n};" + ";".join(f"g{n % 1000}_{k}" for k in range(30)) + f" {n + 1}\n"
                                           for n in range(100000)))
    server = Server(file)
    server.start()
    server.write_at_once(server.request(50, "walk", pid=1), server.cancel(50), {"jsonrpc": "2.0", "id": 51, "method": "ping"})
    expect(server.read()["id"] == 51, "a request that was cancelled in the same piece is answered")
    server.write_at_once(*(server.request(60 + n, "processes") for n in range(4)), server.cancel(62), server.cancel(61))
    expect([server.read()["id"] for _ in range(2)] == [60, 63], "requests that were cancelled while they waited are answered")

    expect_cancelled(server, 70, "open_profile", large)
    server.write(server.request(80, "open_profile", file=large))
    reader = server.child()
    os.kill(reader, signal.SIGSTOP)
    os.kill(reader, signal.SIGKILL)
    answer = server.read()["result"]
    expect(answer["isError"] and "crashed" in answer["content"][0]["text"], f"a reader that crashed: {answer}")
    expect(server.call("top_functions")["samples"] == 90, "another profile after a reader that crashed")
    opened = server.call("open_profile", file=large)
    expect(opened["functions"] == 130000, f"a large file: {opened}")

    expect_cancelled(server, 85, "top_functions", large)

    # While the server is stopped, a walk of many threads fills the pipe and waits, with half of the answer written.
    threads = subprocess.Popen([sys.executable, "-c", "import threading\nfor n in range(500): threading.Thread(target="
                                "threading.Event().wait).start()\nprint(flush=True)"], stdout=subprocess.PIPE)
    threads.stdout.readline()
    server.write(server.request(90, "walk", pid=threads.pid))
    walker = server.child()
    os.kill(server.process.pid, signal.SIGSTOP)
    until = time.monotonic() + 30
    while time.monotonic() < until and "pipe_write" not in pathlib.Path(f"/proc/{walker}/wchan").read_text():
        time.sleep(0.05)
    os.kill(walker, signal.SIGKILL)
    os.kill(server.process.pid, signal.SIGCONT)
    threads.kill()
    threads.wait()
    answer = server.read()["result"]
    expect(answer["isError"] and "signal 9" in answer["content"][0]["text"], f"half an answer: {str(answer)[:300]}")
    expect(server.end() == (0, b""), "an end that is not quiet")

    piped = subprocess.run([command, "mcp"], capture_output=True, check=False, input="\n".join(json.dumps(message) for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        server.request(2, "open_profile", file=file))).encode() + b"\n")
    expect(b'"samples":90' in piped.stdout, f"a client that closes its end at once gets no profile: {piped}")
    for number in (signal.SIGTERM, signal.SIGKILL):
        server = Server()
        server.start()
        server.write(server.request(1, "open_profile", file=large))
        reader = server.child()
        time.sleep(0.1)  # for it to say that it ends with the server; it reads for longer than that
        os.kill(reader, signal.SIGSTOP)
        server.process.send_signal(number)
        expect(server.process.wait(timeout=30) == -number and has_ended(reader), f"a reader outlives a server that {number} ends")


def test_record():
    """What was tested."""
    server = Server("--allow-record")
    server.start()
    expect(not server.schemas["record"]["annotations"]["readOnlyHint"], "record is not read-only")
    expect("schema" in server.call("record", duration=61), "a recording without an end")
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        recorded = server.call("record", pid=busy.pid, duration=1, frequency=499)
        if isinstance(recorded, str):
            return f"no recording here: {recorded}"
        expect(recorded["samples"] > 0 and server.call("top_functions")["samples"] == recorded["samples"], f"record: {recorded}")
        server.write({"jsonrpc": "2.0", "id": "long", "method": "tools/call",
                      "params": {"name": "record", "arguments": {"pid": busy.pid, "duration": 60}}})
        time.sleep(1)
        expect(server.ask("ping")["result"] == {}, "no ping beside a recording")
        began = time.monotonic()
        server.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "no such"}})
        server.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long"}})
        expect(server.ask("tools/list")["id"] != "long" and time.monotonic() - began < 40, "a cancelled recording goes on")
        for number in (signal.SIGTERM, signal.SIGKILL):
            place = tempfile.mkdtemp()
            other = Server("--allow-record", env={**os.environ, "TMPDIR": place})
            other.start()
            other.write(other.request(1, "record", pid=busy.pid, duration=60))
            recorder = other.child()
            time.sleep(1)
            other.process.send_signal(number)
            expect(other.process.wait(timeout=30) == -number and has_ended(recorder),
                   f"a recording outlives a server that {number} ends")
            shutil.rmtree(place)
    finally:
        busy.kill()
        busy.wait()
    folder = pathlib.Path(recorded["file"]).parent
    expect(folder.stat().st_mode & 0o77 == 0, "a recording that others can read")
    expect(server.end() == (0, b""), "an end that is not quiet")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    return "recorded"


with tempfile.TemporaryDirectory() as place:
    test_protocol()
    test_sums(pathlib.Path(place))
    test_cancelling(pathlib.Path(place))
    bad = subprocess.run([command, "mcp", place + "/none"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    expect(bad.returncode == 1 and not bad.stdout and "none" in bad.stderr, f"a file that is not there: {bad}")
    seen = test_record()
print("\n".join([*errors, f"protocol, sums, cancelling, {seen}: {len(errors)} errors"]))
sys.exit(1 if errors else 0)
