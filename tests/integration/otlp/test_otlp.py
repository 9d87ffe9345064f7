#!/usr/bin/python3
"""Profiles of OpenTelemetry: each field of a request beside the pprof, and an agent that sends to servers with faults.

test_otlp.py COMMAND [STATIC_COMMAND [TEST]]

Agents wait most of their time. So each test runs in a process of its own, some at a time.
"""
import collections
import concurrent.futures
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

try:
    import grpc
except ImportError:
    print("SKIPPED: python3-grpcio is not installed")
    sys.exit(0)

from formats import otlp, pprof, rows_of_otlp, rows_of_pprof
from raw_grpc import RawGrpcReceiver
from receivers import GrpcReceiver, HttpReceiver, PATH

COMMAND, STATIC = sys.argv[1], next(iter(sys.argv[2:]), "") or None
AT_A_TIME = 4
# These use the number of a port that was closed, which a server of another test might get.
ALONE = ("test_a_server_that_is_away_and_comes_back", "test_a_spool_without_room_is_said")
BUSY = "while :; do :; done"
KINDS = {"http": HttpReceiver, "grpc": GrpcReceiver}
PERIOD = 1000003


def made_profile():
    """All that a profile can have: two events, times, labels of containers and traces, kernel, Windows, interpreted and unnamed code."""
    profile, strings = pprof.Profile(), [b""]

    def string(one):
        one = one if isinstance(one, bytes) else one.encode()
        if one not in strings:
            strings.append(one)
        return strings.index(one)

    for kind, unit in (("samples", "count"), ("cpu", "nanoseconds"), ("waits", "count"), ("off-cpu", "nanoseconds")):
        profile.sample_type.add(type=string(kind), unit=string(unit))
    modules = [("[kernel]", "ab" * 20, 0, 0, 0), ("/usr/bin/app", "cd" * 20, 0x1000, 0x9000, 0x1000),
               ("C:\\app.DLL", "0123", 0x140001000, 0x140009000, 0), ("[anon]", "", 0, 0, 0), (b"/tmp/\xff", "", 0x5000, 0x6000, 0)]
    for i, (path, build_id, begin, end, offset) in enumerate(modules, 1):
        profile.mapping.add(id=i, memory_start=begin, memory_limit=end, file_offset=offset, filename=string(path),
                            build_id=string(build_id), has_functions=True)
    functions = [("schedule", "schedule", "core.c", 0), ("main", "main", "app.cc", 7), ("f(int)", "_Z1fi", "app.cc", 9),
                 ("handler", "handler", "/srv/app.py", 3), ("Window::draw", "?draw@Window", "w.cpp", 1), (b"\x1b[1m\xff", b"\xff", b"\xff.c", 2),
                 ("jitted", "jitted", "", 0), ("serve", "serve", "main.go", 5), ("run", "run", "App.java", 5)]
    for i, (name, system_name, file, line) in enumerate(functions, 1):
        profile.function.add(id=i, name=string(name), system_name=string(system_name), filename=string(file), start_line=line)
    locations = [(1, 0xffffffff81000010, [(1, 12)]), (2, 0x1010, [(3, 10), (2, 8)]), (2, 0x1020, [(4, 4), (2, 8)]), (3, 0x140001010, [(5, 2)]),
                 (5, 0x5010, [(6, 3)]), (4, 0x7f0000001000, [(7, 0)]), (2, 0x2000, [(8, 6)]), (4, 0x7f0000002000, [(9, 6)])]
    for i, (mapping, address, lines) in enumerate(locations, 1):
        one = profile.location.add(id=i, mapping_id=mapping, address=address)
        for function, line in lines:
            one.line.add(function_id=function, line=line)
    profile.location.add(id=9, mapping_id=2, address=0x3000)  # without a name

    def sample(ids, values, labels, times=(), lasted=()):
        one = profile.sample.add(location_id=ids, value=values, times=times, lasted=lasted)
        for key, value in labels:
            if isinstance(value, int):
                one.label.add(key=string(key), num=value)
            else:
                one.label.add(key=string(key), str=string(value))

    def thread(pid, tid, comm):
        return [("pid", pid), ("tid", tid), ("comm", comm)]

    box = [("container.id", "f" * 64), ("container.name", "box"), ("k8s.pod.name", "pod-1"), ("k8s.container.name", "app")]
    trace = [("trace_id", "0123456789abcdef0123456789abcdef"), ("span_id", "0011223344556677")]
    sample([2, 9], [3, 3 * PERIOD, 0, 0], thread(10, 11, "worker") + [("http.route", "/cart")], [5, 10, 20])
    sample([1, 2], [1, PERIOD, 0, 0], thread(10, 10, "app") + box, [7])
    sample([3, 6, 8], [2, 2 * PERIOD, 0, 0], thread(12, 12, "py") + box + trace, [1, 1])
    sample([3, 6, 8], [1, PERIOD, 0, 0], thread(12, 12, "py") + [("trace_id", "no id"), ("span_id", "0011223344556677")], [9])
    sample([4], [1, PERIOD, 0, 0], thread(13, 13, b"\xff\n") + [("truncated", "end of stack not proven")], [30])
    sample([5, 7], [1, PERIOD, 0, 0], thread(13, 14, "x") + [("reason", "b"), ("reason", "a"), ("certainty", "guessed")], [31])
    sample([], [1, PERIOD, 0, 0], thread(14, 14, "nothing"), [32])
    sample([1, 2], [0, 0, 2, 5000], thread(10, 11, "worker") + [("reason", "futex"), ("end", "chained")], [40, 60], [2000, 3000])
    sample([1], [0, 0, 1, 0], thread(10, 11, "worker") + [("reason", "futex"), ("end", "kernel thread")], [50], [0])
    cpu = pprof.ValueType(type=string("cpu"), unit=string("nanoseconds"))
    profile.period_type.CopyFrom(cpu)
    profile.time_nanos, profile.duration_nanos, profile.period = 1_800_000_000_123_456_789, 10**10, PERIOD
    profile.comment.extend([string("made by a test"), string("second"), string("windlass: lost samples 17")])
    profile.default_sample_type = string("cpu")
    profile.counts_of_times.extend([1, 1])
    profile.string_table.extend(strings)
    return gzip.compress(profile.SerializeToString())


def report(*arguments):
    return subprocess.run([COMMAND, "report", *arguments], stdout=subprocess.PIPE, check=True).stdout


class Fields(unittest.TestCase):
    maxDiff = None

    def compare(self, path, resources):
        expected, head = rows_of_pprof(report("--pprof", path))
        found, heads = rows_of_otlp(otlp.Request.FromString(report("--otlp", path)))
        for kind, rows in found.items():
            self.assertEqual(rows, expected[kind], kind)
        # How often is left out where an event has a period: the value has it.
        left_out = set(expected) - set(found)
        self.assertLessEqual(left_out, {("samples", "count")})
        self.assertEqual(len({str(sorted(one["resource"].items())) for one in heads}), resources)
        comments = [one for one in head["comments"] if not one.startswith("windlass: lost samples")]
        lost = [int(one.split()[-1]) for one in head["comments"] if one.startswith("windlass: lost samples")]
        self.assertEqual([one["attributes"]["windlass.lost_samples"] for one in heads if "windlass.lost_samples" in one["attributes"]],
                         lost)
        for one in heads:
            self.assertEqual((one["start"], one["duration"]), (head["start"], head["duration"]))
            self.assertEqual(list(one["attributes"].get("pprof.profile.comment", ())), comments)
            if one["kind"] == ("cpu", "nanoseconds"):
                self.assertEqual((one["period"], one["period_type"]), (head["period"], head["period_type"]))
            for when in one["times"]:
                self.assertTrue(one["start"] <= when <= one["start"] + one["duration"])
        return found, heads

    def test_a_made_profile(self):
        with tempfile.NamedTemporaryFile(suffix=".pb.gz") as file:
            file.write(made_profile())
            file.flush()
            found, heads = self.compare(file.name, 2)
        self.assertEqual(set(found), {("cpu", "nanoseconds"), ("off-cpu", "nanoseconds"), ("waits", "count")})
        times = collections.Counter()
        for one in heads:
            times[one["kind"]] += len(one["times"])
        self.assertEqual(times, {("cpu", "nanoseconds"): 10, ("off-cpu", "nanoseconds"): 3, ("waits", "count"): 3})
        self.assertEqual(heads[0]["resource"], {"service.name": "unknown_service"})
        box = [one["resource"] for one in heads if "container.id" in one["resource"]][0]
        self.assertEqual(box["service.name"], "app")

    def test_a_recording(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/a.pb.gz"
            subprocess.run([COMMAND, "record", "--off-cpu", "-F", "997", "-o", path, "--", "sh", "-c",
                            "sleep 0.1; for i in $(seq 50000); do :; done; ls -R /usr/lib > /dev/null"],
                           stderr=subprocess.DEVNULL, check=True)
            found, _ = self.compare(path, 1)
        self.assertGreater(sum(found["cpu", "nanoseconds"].values()), 0)


class Agent:
    """An agent that has ended, or runs."""

    def __init__(self, folder, url, *options, seconds=3, command=None, wait=True, environment=None, rate=97,
                 interval=1, busy=BUSY):
        self.process = subprocess.Popen(
            [command or COMMAND, "agent", *(("--otlp", url) if url else ()), "--otlp-spool", folder + "/spool", "--interval", str(interval), "-F", str(rate),
             "--duration", str(seconds), *options, "--", "sh", "-c", busy], stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})})
        if wait:
            self.end()

    def end(self):
        self.text = self.process.communicate(timeout=600)[1]
        self.status = self.process.returncode
        sent = re.search(r"(\d+) of (\d+) samples were sent to \S+, in (\d+) batches", self.text)
        self.sent, self.all, self.batches = (int(one) for one in sent.groups()) if sent else (None, None, None)


def samples_in(requests):
    """Of all requests, and of those whose profiles are different ones."""
    count, distinct, ids = 0, 0, set()
    for request in requests:
        rows, heads = rows_of_otlp(request)
        value = sum(rows["cpu", "nanoseconds"].values())
        period = max(one["period"] for one in heads)
        samples = value // period
        assert samples * period == value
        count += samples
        key = tuple(one["id"] for one in heads)
        assert all(len(one["id"]) == 16 for one in heads)
        if key not in ids:
            ids.add(key)
            distinct += samples
    return count, distinct


class Faults(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.folder = self.place.name
        self.addCleanup(self.place.cleanup)

    def receive(self, kind, script=(), **more):
        receiver = KINDS[kind](script, **more)
        self.addCleanup(receiver.close)
        return receiver

    def all_sent_once(self, agent, receiver):
        self.assertEqual(agent.status, 0, agent.text)
        self.assertEqual(agent.sent, agent.all, agent.text)
        self.assertGreater(agent.all, 0)
        self.assertEqual(samples_in(receiver.taken), (agent.all, agent.all), agent.text)
        self.assertEqual(len(receiver.taken), agent.batches)

    def test_each_way_and_each_compression(self):
        for kind, compression in (("http", "none"), ("http", "gzip"), ("http", "zstd"), ("grpc", "none"), ("grpc", "gzip")):
            with self.subTest(kind=kind, compression=compression):
                receiver = self.receive(kind)
                agent = Agent(self.folder, receiver.url(), "--otlp-compression", compression, "--otlp-header", "x-tenant=a b", seconds=2)
                self.all_sent_once(agent, receiver)
                path, headers, _ = receiver.headers[0]
                headers = {key.lower(): value for key, value in headers.items()}
                self.assertEqual(headers["x-tenant"], "a b")
                self.assertTrue(headers["user-agent"].startswith("windlass/"))
                if kind == "http":
                    self.assertEqual((path, headers["content-type"]), (PATH, "application/x-protobuf"))
                    self.assertEqual(headers.get("content-encoding"), None if compression == "none" else compression)
                resource = rows_of_otlp(receiver.taken[0])[1][0]["resource"]
                self.assertEqual((resource["host.name"], resource["os.type"]), (os.uname().nodename, "linux"))

    def test_the_store_has_the_same(self):
        receiver = self.receive("grpc")
        agent = Agent(self.folder, receiver.url(), "--store", self.folder + "/p.db", "--label", "team=blue")
        self.all_sent_once(agent, receiver)
        stored, _ = rows_of_pprof(report("--pprof", self.folder + "/p.db@-1h"))
        sent = collections.Counter()
        for request in receiver.taken:
            sent += rows_of_otlp(request)[0]["cpu", "nanoseconds"]

        def by_stack(rows):
            sums = collections.Counter()
            for (labels, stack), value in rows.items():
                labels = dict(labels)
                key = labels["pid"], labels["tid"], labels["comm"], labels.get("truncated"), labels["team"]
                sums[key, stack] += value
            return sums
        self.assertEqual(by_stack(sent), by_stack(stored["cpu", "nanoseconds"]))

    def test_statuses_that_are_tried_again(self):
        code = grpc.StatusCode
        scripts = {"http": [("status", 429, {"Retry-After": "1"}), ("status", 503, {})],
                   "grpc": [("status", code.UNAVAILABLE, None), ("status", code.RESOURCE_EXHAUSTED, 0.5)]}
        for kind, script in scripts.items():
            with self.subTest(kind=kind):
                receiver = self.receive(kind, script)
                agent = Agent(self.folder, receiver.url())
                self.all_sent_once(agent, receiver)
                self.assertEqual(len(receiver.seen), len(receiver.taken) + 2)
                self.assertIn("not now" if kind == "grpc" else "429", agent.text)
                self.assertNotIn("had no answer", agent.text)

    def test_what_is_refused_is_dropped_and_said(self):
        scripts = {"http": ("status", 400, {}), "grpc": ("status", grpc.StatusCode.INVALID_ARGUMENT, None)}
        for kind, act in scripts.items():
            with self.subTest(kind=kind):
                receiver = self.receive(kind, [act])
                agent = Agent(self.folder, receiver.url())
                self.assertEqual(agent.status, 3, agent.text)
                dropped = int(re.search(r"(\d+) samples of 1 batches were dropped", agent.text).group(1))
                self.assertEqual(agent.sent + dropped, agent.all)
                self.assertEqual(samples_in(receiver.taken)[0], agent.sent)
                self.assertIn("not now", agent.text)

    def test_samples_of_every_hundredth_event_count_once(self):
        code = 'open my $f, "+<", "/dev/zero"; my $end = time + 2; while (time < $end) { my $x = "x" x 4e6; undef $x }'
        faults = ("-e", "page-faults@100"), f"while :; do perl -e '{code}'; done"
        receiver = self.receive("http", [("status", 400, {})])
        agent = Agent(self.folder, receiver.url(), *faults[0], busy=faults[1])
        self.assertGreater(agent.sent, 0, agent.text)
        dropped = int(re.search(r"(\d+) samples of 1 batches were dropped", agent.text).group(1))
        self.assertGreater(dropped, 0)
        self.assertEqual(agent.sent + dropped, agent.all, agent.text)

    def test_a_batch_that_is_too_large_is_sent_in_parts(self):
        # Many programs with long names make requests beyond what is never halved.
        for i in range(20):
            shutil.copy("/bin/sh", f"{self.folder}/{i:0200}")
        options = "--otlp-compression", "none"
        many = {"rate": 997, "interval": 3, "busy": f"cd {self.folder}; for i in 0*; do timeout 9 ./$i -c '{BUSY}' 2>/dev/null & done; {BUSY}"}
        for kind in KINDS:
            with self.subTest(kind=kind):
                free = self.receive(kind)
                whole = Agent(self.folder, free.url(), *options, **many)
                self.all_sent_once(whole, free)
                largest = max(one[2] for one in free.headers)
                self.assertGreater(largest, 10000)
                receiver = self.receive(kind, limit=largest // 2)
                agent = Agent(self.folder, receiver.url(), *options, **many)
                self.assertEqual((agent.status, agent.sent), (0, agent.all), agent.text)
                self.assertEqual(samples_in(receiver.taken), (agent.all, agent.all), agent.text)
                self.assertGreater(len(receiver.taken), agent.batches)
                self.assertLessEqual(max(one[2] for one in receiver.headers), largest // 2)

    def test_what_is_too_large_in_parts_is_dropped_and_said(self):
        says = {"http": "the server answers 413", "grpc": "the server answers RESOURCE_EXHAUSTED"}
        for kind in KINDS:
            with self.subTest(kind=kind):
                receiver = self.receive(kind, limit=50)  # a batch without samples is too large, too
                agent = Agent(self.folder, receiver.url(), seconds=2)
                self.assertEqual((agent.status, agent.sent), (3, 0), agent.text)
                dropped = int(re.search(r"(\d+) samples of \d+ batches were dropped", agent.text).group(1))
                self.assertEqual(dropped, agent.all, agent.text)
                self.assertIn(says[kind], agent.text)
                self.assertEqual(receiver.taken, [])

    def test_partial_success_is_counted(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                receiver = self.receive(kind, [("reject", 2, "too \x1b old"), ("reject", 0, "a warning")])
                agent = Agent(self.folder, receiver.url())
                self.assertEqual(agent.sent, agent.all)
                self.assertEqual(agent.status, 3, agent.text)
                self.assertIn("the server rejects 2 of the profiles that it was sent: too \\x1b old", agent.text)
                self.assertIn("a warning", agent.text)
                self.assertIn("the server rejected 2 profiles", agent.text)
                self.assertEqual(len(receiver.seen), len(receiver.taken))

    def test_no_answer_is_said(self):
        # On a busy machine an answer takes long, too. So others than the first may be late.
        for act in (("slow", 12), "close"):
            with self.subTest(act=act):
                receiver = self.receive("http", [act])
                agent = Agent(self.folder, receiver.url(), "--otlp-timeout", "5")
                self.assertEqual(agent.sent, agent.all, agent.text)
                self.assertRegex(agent.text, "[1-9][0-9]* requests had no answer, so that the server may have batches twice")
                count, distinct = samples_in(receiver.taken)
                self.assertEqual(distinct, agent.all)  # by the ids of the profiles
                self.assertGreater(count, distinct)

    def test_a_connection_that_ends_within_a_batch(self):
        receiver = self.receive("http", ["cut"])
        agent = Agent(self.folder, receiver.url())
        self.all_sent_once(agent, receiver)

    def test_garbage_is_no_receipt(self):
        receiver = self.receive("http", [("bytes", b"<html>Welcome</html>"), ("bytes", b"\x0a\xff\xff")])
        agent = Agent(self.folder, receiver.url())
        self.all_sent_once(agent, receiver)
        self.assertEqual(len(receiver.seen), len(receiver.taken) + 2)
        self.assertIn("the server's answer is none of OTLP", agent.text)

    def test_grpc_that_is_broken_is_no_receipt(self):
        # The words that say what is wrong, and whether the server may have taken the batch. A refused stream is sent again by libcurl.
        acts = {"no trailers": ("none of OTLP", False), "no status": ("none of OTLP", False), "garbage": ("none of OTLP", False),
                "cut message": ("none of OTLP", False), "reset": ("libcurl", True), "refused": ("", None),
                "goaway": ("libcurl", True), "half": ("libcurl", True), "no http2": ("libcurl", None)}
        for command in filter(None, (COMMAND, STATIC)):
            for act, (words, is_unsure) in acts.items():
                with self.subTest(act=act, command=command):
                    receiver = RawGrpcReceiver([act])
                    self.addCleanup(receiver.close)
                    agent = Agent(self.folder, receiver.url(), seconds=2, command=command)
                    self.all_sent_once(agent, receiver)
                    self.assertEqual(receiver.seen.count(act), 1)
                    self.assertIn(words, agent.text)
                    if is_unsure is not None:
                        self.assertEqual("1 requests had no answer" in agent.text, is_unsure, agent.text)

    def test_a_grpc_server_that_is_slow(self):
        receiver = self.receive("grpc", [("slow", 4)])
        agent = Agent(self.folder, receiver.url(), "--otlp-timeout", "1")
        self.assertEqual(agent.sent, agent.all, agent.text)
        self.assertEqual(samples_in(receiver.taken)[1], agent.all)

    def test_headers_of_a_file_and_of_the_environment(self):
        headers = self.folder + "/headers"
        with open(headers, "w") as file:
            file.write("# of a test\nx-of-file=f=1\nX-Both = \n")
        for kind, protocol in (("http", "http/protobuf"), ("grpc", "grpc")):
            with self.subTest(kind=kind):
                receiver = self.receive(kind)
                place = f"http://127.0.0.1:{receiver.port}" + ("/" if kind == "http" else "")
                agent = Agent(self.folder, None, "--otlp-header-file", headers, seconds=2, environment={
                    "OTEL_EXPORTER_OTLP_ENDPOINT": place, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                    "OTEL_EXPORTER_OTLP_HEADERS": "x-of-environment=a%20b, x-both=2,"})
                self.all_sent_once(agent, receiver)
                path, got, _ = receiver.headers[0]
                got = {key.lower(): value for key, value in got.items()}
                self.assertEqual((got["x-of-file"], got["x-of-environment"], got["x-both"].strip()), ("f=1", "a b", ""))
                if kind == "http":
                    self.assertEqual(path, PATH)

    def test_the_environment_that_is_wrong_is_said(self):
        wrong = {"OTEL_EXPORTER_OTLP_HEADERS": "nothing", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}
        for name, value in wrong.items():
            with self.subTest(name=name):
                agent = Agent(self.folder, None, environment={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", name: value})
                self.assertEqual(agent.status, 2, agent.text)
                self.assertIn(name, agent.text)

    def test_a_store_alone_sends_nothing(self):
        receiver = self.receive("http")
        agent = Agent(self.folder, None, "--store", self.folder + "/p.db", seconds=1,
                      environment={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url()})
        self.assertEqual(agent.status, 0, agent.text)
        self.assertEqual(receiver.seen, [])

    def test_a_server_that_is_away_and_comes_back(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                before = self.receive(kind)
                port = before.port
                before.close()
                away = Agent(self.folder, f"{before.scheme}://127.0.0.1:{port}", seconds=2)
                self.assertEqual(away.sent, 0, away.text)
                self.assertIn("batches wait in", away.text)
                self.assertEqual(away.status, 0)
                receiver = self.receive(kind, port=port)
                back = Agent(self.folder, receiver.url(), seconds=2)
                self.assertEqual(samples_in(receiver.taken), (away.all + back.all, away.all + back.all), back.text)
                self.assertEqual(back.sent, back.all, back.text)
                earlier = re.search(r"(\d+) samples of an earlier agent were sent, too, in (\d+) batches", back.text)
                self.assertEqual(int(earlier.group(1)), away.all, back.text)
                self.assertEqual(int(earlier.group(2)) + back.batches, len(receiver.taken))

    def test_an_agent_that_is_killed_within_a_batch(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                receiver = self.receive(kind, [("slow", 60)])
                first = Agent(self.folder, receiver.url(), "--otlp-timeout", "600", seconds=600, wait=False,
                              busy=f"exec timeout 30 sh -c '{BUSY}' 2>/dev/null")
                for _ in range(3000):
                    if receiver.seen:
                        break
                    time.sleep(0.1)
                first.process.kill()
                first.process.stderr.close()
                first.process.wait()
                second = Agent(self.folder, receiver.url(), seconds=2)
                self.assertEqual((second.status, second.sent), (0, second.all), second.text)
                earlier = int(re.search(r"(\d+) samples of an earlier agent were sent, too", second.text).group(1))
                count, distinct = samples_in(receiver.taken)
                self.assertEqual(distinct, second.all + earlier, second.text)
                self.assertEqual(count - distinct, samples_in(receiver.taken[:1])[0])  # the batch that had no answer

    def test_a_spool_without_room_is_said(self):
        free = self.receive("http")
        free.close()
        agent = Agent(self.folder, f"http://127.0.0.1:{free.port}", "--otlp-spool-size", "4096")
        self.assertEqual(agent.status, 3, agent.text)
        self.assertIn("samples of", agent.text)
        dropped = int(re.search(r"(\d+) samples of \d+ batches were dropped", agent.text).group(1))
        self.assertGreater(dropped, 0)
        self.assertLessEqual(dropped, agent.all)

    def test_counters(self):
        receiver = self.receive("http", [("status", 503, {})])
        agent = Agent(self.folder, receiver.url(), "--metrics", "127.0.0.1:0", seconds=60, wait=False)
        address = re.search(r"http://\S+", agent.process.stderr.readline()).group()
        for _ in range(3000):
            text = urllib.request.urlopen(address).read().decode()
            numbers = dict(re.findall(r"^windlass_agent_(otlp_\w+) (\d+)", text, re.M))
            if int(numbers.get("otlp_sent_batches_total", 0)) > 0:
                break
            time.sleep(0.1)
        agent.process.send_signal(2)
        agent.end()
        self.assertGreater(int(numbers["otlp_sent_batches_total"]), 0, text)
        self.assertEqual(numbers["otlp_retries_total"], "1")
        self.assertIn('windlass_agent_bound_limit{bound="otlp_spool_bytes"} 268435456', text)
        self.assertIn('windlass_agent_lost_samples_total{reason="not_sent"} 0', text)
        self.assertNotIn("store_bytes", text)

    def make_certificates(self):
        def run(*command):
            subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj",
            "/CN=test CA")
        for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
            run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            with open(f"{self.folder}/{name}.ext", "w") as file:
                file.write(extension + "\n")
            run("openssl", "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out",
                f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext")
        return {name: f"{self.folder}/{name}" for name in ("ca.pem", "server.pem", "server.key")}

    def test_tls_with_certificates_on_both_sides(self):
        tls = self.make_certificates()
        token = self.folder + "/token"
        with open(token, "w") as file:
            file.write("s3cret\n")
        mine = ("--otlp-certificate", self.folder + "/client.pem", "--otlp-key", self.folder + "/client.key")
        for kind in KINDS:
            with self.subTest(kind=kind):
                receiver = self.receive(kind, tls=tls)
                agent = Agent(self.folder, receiver.url(), "--otlp-ca", tls["ca.pem"], *mine, "--otlp-token-file", token, seconds=2)
                self.all_sent_once(agent, receiver)
                headers = {key.lower(): value for key, value in receiver.headers[0][1].items()}
                self.assertEqual(headers["authorization"], "Bearer s3cret")
                self.assertNotIn("s3cret", agent.text)
                other = f"{self.folder}/{kind}"  # with a spool of its own
                os.mkdir(other)
                unknown = Agent(other, receiver.url(), *mine, seconds=1)
                self.assertEqual(unknown.sent, 0)
                self.assertIn("certificate is not trusted", unknown.text)

    def test_the_static_command_sends_by_curl(self):
        if STATIC is None:
            self.skipTest("no static command")
        for kind in KINDS:
            with self.subTest(kind=kind):
                receiver = self.receive(kind, [("status", 503, {}) if kind == "http" else ("status", grpc.StatusCode.UNAVAILABLE, None)])
                agent = Agent(self.folder, receiver.url().replace("//", "//user:pass@"), command=STATIC)
                self.all_sent_once(agent, receiver)
                self.assertNotIn("pass@", agent.text)


def run_part(name):
    done = subprocess.run([sys.executable, *sys.argv[:2], STATIC or "", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def run_parts():
    """The numbers of tests that passed and failed."""
    names = [f"{case}.{test}" for case in ("Fields", "Faults") for test in unittest.defaultTestLoader.getTestCaseNames(globals()[case])]
    alone = [name for name in names if name.endswith(ALONE)]
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(run_part, [name for name in names if name not in alone]))
    results += map(run_part, alone)
    for _, text in results:
        print(text, end="")
    failed = sum(status != 0 for status, _ in results)
    return len(results) - failed, failed


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit(not unittest.main(argv=[sys.argv[0], sys.argv[3]], verbosity=2, exit=False).result.wasSuccessful())
    probe = subprocess.run([COMMAND, "record", "--duration", "0.1", "-o", "/dev/null", "--", "true"], stderr=subprocess.PIPE, text=True)
    if probe.returncode != 0 and "rivilege" in probe.stderr:
        print("SKIPPED: no privilege to sample")
        sys.exit(0)
    passed, failed = run_parts()
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)
