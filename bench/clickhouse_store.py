#!/usr/bin/python3
"""Measures a store in ClickHouse: bytes a sample, inserts a CPU second, what the questions of `windlass serve` take.

    bench/clickhouse_store.py STORE --schema SQL [--server URL --pid PID | --chdb libchdb.so] [--samples N] [--hours H]
        [--windlass COMMAND] [--parts] [--again]

STORE is a file that `windlass agent --store STORE` wrote: its stacks, with their names, are the material. SQL is a file
with the statements of the tables: clickhouse_schema VERSION, of the build folder. Each of 50 services gets 20,000 stacks: a real
stack, of which a part is replaced by that of another real stack through the same function, or by functions that only
this service has. 10,000 hosts run ten of the services each. A host writes intervals of ten seconds and about 190 samples
(19 Hz, one busy CPU), and only so many intervals as the samples suffice for. Services have two releases.

With --parts samples and rollup are also written into databases of their own, to see what each takes. With --windlass the
command serves the store, and answers are timed. Every figure is printed as it was measured; nothing is computed from
other figures but the ratios.
"""
import argparse, bisect, ctypes, hashlib, http.server, itertools, json, os, random, re, resource, sqlite3, struct, subprocess
import threading, time, urllib.error, urllib.parse, urllib.request
import numpy as np

from leb128 import uleb128

SERVICES, STACKS, HOSTS, THREADS, OF_A_HOST, OF_AN_INTERVAL = 50, 20_000, 10_000, 4, 10, 190
CLASSES = SERVICES // OF_A_HOST  # service s runs on the hosts h with h % CLASSES == s % CLASSES
EVENT, RECORDING = 0x1234567812345678, 77
MASK = (1 << 64) - 1
START = 1_790_000_000 // 604_800 * 604_800
PERIOD_NS = 52_631_578  # of 19 Hz
DTYPE = np.dtype([("level", "u1"), ("event", "<u8"), ("service", "<u8"), ("hour", "<u4"), ("labels", "<u8"),
                  ("stack", "<u8"), ("second", "<u2"), ("end", "u1"), ("certainty", "u1"), ("count", "<u8"),
                  ("value", "<u8")])
TYPES = {"u1": "UInt8", "<u2": "UInt16", "<u4": "UInt32", "<u8": "UInt64"}


def text(s):
    data = s if isinstance(s, bytes) else s.encode()
    return uleb128(len(data)) + data


def native(rows):
    """A block of the format Native."""
    out = [uleb128(len(rows.dtype.names)), uleb128(len(rows))]
    for name in rows.dtype.names:
        kind = rows.dtype[name].str.replace("|", "")
        out += [text(name), text(TYPES[kind]), np.ascontiguousarray(rows[name]).tobytes()]
    return b"".join(out)


class Server:
    """A server, by HTTP. CPU time is that of its process, merges included."""

    def __init__(self, url, pid):
        self.url, self.pid = url, pid

    def query(self, sql, database="", data=None):
        parts = {"database": database} if database else {}
        if data is not None:
            parts["query"] = sql
        parts["wait_end_of_query"] = "1"
        parts["max_query_size"] = "1000000000"  # as the store asks for: ids stand in the query
        request = urllib.request.Request(self.url + "?" + urllib.parse.urlencode(parts),
                                         data=sql.encode() if data is None else data)
        try:
            return urllib.request.urlopen(request, timeout=3600).read()
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{sql[:200]}: {error.read().decode(errors='replace')[:500]}")

    def close(self):
        pass

    def serve(self):
        return self.url.replace("http:", "clickhouse:").rstrip("/")

    def insert(self, database, table, block):
        self.query(f"INSERT INTO {table} FORMAT Native", database, block)

    def cpu(self):
        fields = open(f"/proc/{self.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Embedded:
    """The engine in this process (libchdb.so). Blocks are read from a file in memory."""

    def __init__(self, library, folder):
        self.lib = ctypes.CDLL(library)
        self.lib.chdb_connect.restype = ctypes.POINTER(ctypes.c_void_p)
        self.lib.chdb_query_n.restype = ctypes.c_void_p
        self.lib.chdb_query_n.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                          ctypes.c_size_t]
        for name, kind in (("buffer", ctypes.c_void_p), ("length", ctypes.c_size_t), ("error", ctypes.c_char_p)):
            function = getattr(self.lib, "chdb_result_" + name)
            function.restype, function.argtypes = kind, [ctypes.c_void_p]
        self.lib.chdb_destroy_query_result.argtypes = [ctypes.c_void_p]
        arguments = [b"clickhouse", b"--path=" + folder.encode()]
        self.connection = self.lib.chdb_connect(len(arguments), (ctypes.c_char_p * len(arguments))(*arguments))
        self.query("SET max_query_size = 1000000000")  # as the store asks for: ids stand in the query
        self.block = f"/dev/shm/windlass-bench-{os.getpid()}.native"

    def query(self, sql, database=""):
        if database:
            self.query(f"USE {database}")
        form = b"TabSeparated"
        if " FORMAT " in sql:
            sql, form = sql.rsplit(" FORMAT ", 1)
            form = form.encode()
        data = sql.encode()
        result = self.lib.chdb_query_n(self.connection.contents, data, len(data), form, len(form))
        error = self.lib.chdb_result_error(result)
        if error:
            raise SystemExit(f"{sql[:200]}: {error.decode(errors='replace')[:500]}")
        size = self.lib.chdb_result_length(result)
        answer = ctypes.string_at(self.lib.chdb_result_buffer(result), size) if size else b""
        self.lib.chdb_destroy_query_result(result)
        return answer

    def close(self):
        self.lib.chdb_close_conn(self.connection)

    def serve(self):
        """The address of a server over this engine, as far as the store needs one."""
        engine, lock = self, threading.Lock()

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                parts = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)
                with lock:
                    answer = engine.query(body.decode(), parts.get("database", [""])[0])
                self.send_response(200)
                self.send_header("X-ClickHouse-Server-Display-Name", "chdb")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"clickhouse://127.0.0.1:{server.server_port}"

    def insert(self, database, table, block):
        with open(self.block, "wb") as file:
            file.write(block)
        self.query(f"INSERT INTO {database}.{table} SELECT * FROM file('{self.block}', 'Native')")
        os.unlink(self.block)

    def cpu(self):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime


def numbers(data):
    """Of a LEB128 list."""
    out, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            out.append(value)
            value = shift = 0
    return out


class Material:
    """Real stacks, and how often each was seen."""

    def __init__(self, path):
        db = sqlite3.connect(path)
        seen = dict(db.execute("SELECT stack, sum(count) FROM samples GROUP BY stack"))
        self.stacks, self.weights = [], []
        for stack, frames in db.execute("SELECT id, frames FROM stacks"):
            frames = numbers(frames)
            if frames:
                self.stacks.append(frames)
                self.weights.append(seen.get(stack, 1))
        functions = {row[0]: row[1:] for row in db.execute("SELECT id, name, system_name, file, start_line FROM functions")}
        modules = {row[0]: row[1:] for row in db.execute("SELECT id, path, build_id, first, behind, file_offset FROM modules")}
        self.frames = {}
        for frame, module, address, begin, lines in db.execute(
                "SELECT id, module, address, function_begin, lines FROM frames"):
            pairs = numbers(lines)
            named = [functions[f] + (line,) for f, line in zip(pairs[::2], pairs[1::2]) if f in functions]
            self.frames[frame] = (modules.get(module, ("", "", 0, 0, 0)), address & (1 << 64) - 1, begin, named)
        self.sums = list(itertools.accumulate(self.weights))
        self.by_frame = {}
        for index, frames in enumerate(self.stacks):
            for depth, frame in enumerate(frames):
                self.by_frame.setdefault(frame, []).append((index, depth))

    def vary(self, service, count):
        """Stacks of a service: lists of (frame, variant); variant 0 is the frame as recorded."""
        rng, made = random.Random(service), set()
        while len(made) < count:
            index = bisect.bisect(self.sums, rng.random() * self.sums[-1])
            frames = [(frame, 0) for frame in self.stacks[index]]
            depth = rng.randrange(len(frames))
            other, at = rng.choice(self.by_frame[frames[depth][0]])
            frames = [(frame, 0) for frame in self.stacks[other][:at]] + frames[depth:]
            first = rng.randrange(len(frames))
            for i in range(first, min(first + rng.randrange(1, 5), len(frames))):  # what only this service has
                frames[i] = (frames[i][0], service * 200 + rng.randrange(1, 200))
            made.add(tuple(frames))
        return list(made)


def mixed(value):
    value = (value ^ value >> 33) * 0xff51afd7ed558ccd & MASK
    value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53 & MASK
    return value ^ value >> 33


def id_of(text):
    """The store's own hash of a text (content_hash.cpp): its queries look for services and hosts by it."""
    low, high = 0x243f6a8885a308d3, 0x13198a2e03707344
    data = text.encode()
    for number in [len(data)] + [int.from_bytes(data[at:at + 8], "little") for at in range(0, len(data), 8)]:
        low = mixed(low ^ number) + high & MASK
        turned = high ^ number * 0x9e3779b97f4a7c15 & MASK
        turned = (turned << 29 | turned >> 35) & MASK
        high = turned * 0xc2b2ae3d27d4eb4f + low & MASK
    return mixed(low ^ (high << 32 | high >> 32) & MASK)


def hash64(*parts):
    return struct.unpack("<Q", hashlib.blake2b(repr(parts).encode(), digest_size=8).digest())[0]


def grouped(group, rest):
    return (group & 0xFFF) << 52 | rest & (1 << 52) - 1


def module_of(material, frame, variant):
    """What only a service has lies in a program of the service."""
    path = material.frames[frame][0][0]
    return f"{path}-{variant // 200}" if variant else path


def write_contents(engine, database, material):
    """stacks and frames of all services; the ids of the stacks of each."""
    ids, all_stacks, frames_sum, all_frames = [], 0, 0, 0
    for service in range(SERVICES):
        own, stack_ids, stack_ends, stack_frames = service_id(service), [], [], []
        known, fresh = {}, []  # ids of frames begin with the service, as those of stacks
        for frames in material.vary(service, STACKS):
            for pair in frames:
                if pair not in known:
                    known[pair] = grouped(own, hash64(pair))
                    fresh.append(pair)
                stack_frames.append(known[pair])
            stack_ids.append(grouped(own, hash64(frames)))
            stack_ends.append(len(stack_frames))
        ids.append(np.array(stack_ids, "<u8"))
        all_stacks += len(stack_ids)
        frames_sum += len(stack_frames)
        n = len(stack_ids)
        engine.insert(database, "stacks", b"".join([
            uleb128(3), uleb128(n), text("stack"), text("UInt64"), np.array(stack_ids, "<u8").tobytes(),
            text("period"), text("UInt32"), np.full(n, START // 2592000, "<u4").tobytes(),
            text("frames"), text("Array(UInt64)"), np.array(stack_ends, "<u8").tobytes(),
            np.array(stack_frames, "<u8").tobytes()]))
        if fresh:
            engine.insert(database, "frames", frames_block(material, fresh, known))
            all_frames += len(fresh)
    print(f"stacks: {all_stacks}, of {frames_sum / all_stacks:.1f} frames; frames of services: {all_frames}")
    return ids


def ids_of_contents(engine, database):
    answer = engine.query(f"SELECT stack FROM {database}.stacks FORMAT RowBinary")
    ids, of = np.frombuffer(answer, "<u8"), [service_id(service) & 0xFFF for service in range(SERVICES)]
    return [ids[ids >> np.uint64(52) == np.uint64(group)] for group in of]


def frames_block(material, pairs, known):
    n = len(pairs)
    rows = [material.frames[frame] for frame, _ in pairs]
    variants = [variant for _, variant in pairs]

    def column(name, kind, data):
        return text(name) + text(kind) + data

    def fixed(name, kind, values, dtype):
        return column(name, kind, np.array(values, dtype).tobytes())

    def arrays(name, kind, each, encode):
        ends, data, at = [], [], 0
        for values in each:
            at += len(values)
            ends.append(at)
            data += [encode(value) for value in values]
        return column(name, f"Array({kind})", np.array(ends, "<u8").tobytes() + b"".join(data))

    def named(row, variant, part):
        return [line[part] if variant == 0 or part > 1 else f"{line[part]}#{variant}" for line in row[3]]

    u32 = lambda value: struct.pack("<I", value & 0xFFFFFFFF)
    lines = list(zip(rows, variants))
    return b"".join([
        uleb128(20), uleb128(n), fixed("frame", "UInt64", [known[pair] for pair in pairs], "<u8"),
        fixed("period", "UInt32", [START // 2592000] * n, "<u4"), fixed("ver", "UInt64", [0] * n, "<u8"),
        fixed("has_module", "UInt8", [1] * n, "u1"),
        column("path", "String", b"".join(text(module_of(material, *pair)) for pair in pairs)),
        column("build_id", "String", b"".join(text(row[0][1]) for row in rows)),
        fixed("begin", "UInt64", [row[0][2] & (1 << 64) - 1 for row in rows], "<u8"),
        fixed("end", "UInt64", [row[0][3] & (1 << 64) - 1 for row in rows], "<u8"),
        fixed("file_offset", "UInt64", [row[0][4] for row in rows], "<u8"),
        fixed("pid", "UInt32", [0] * n, "<u4"), fixed("is_kernel", "UInt8", [0] * n, "u1"),
        fixed("address", "UInt64", [row[1] + variant * 16 & (1 << 64) - 1 for row, variant in lines], "<u8"),
        fixed("function_begin", "UInt64", [row[2] & (1 << 64) - 1 for row in rows], "<u8"),
        fixed("interpreted", "UInt8", [0] * n, "u1"),
        arrays("functions", "String", (named(row, v, 0) for row, v in lines), text),
        arrays("system_names", "String", (named(row, v, 1) for row, v in lines), text),
        arrays("files", "String", (named(row, v, 2) for row, v in lines), text),
        arrays("start_lines", "UInt32", (named(row, v, 3) for row, v in lines), u32),
        arrays("lines", "UInt32", (named(row, v, 4) for row, v in lines), u32),
        arrays("has_function", "UInt8", ([1] * len(row[3]) for row in rows), lambda one: struct.pack("B", one))])


def service_name(service):
    return f"service-{service:02}"


def service_id(service):
    return id_of(service_name(service))


def write_names(engine, database, labels):
    """What the samples and the intervals are of."""
    engine.insert(database, "events", b"".join([
        uleb128(5), uleb128(1), text("event"), text("UInt64"), struct.pack("<Q", EVENT), text("name"), text("String"),
        text("cpu"), text("unit"), text("String"), text("nanoseconds"), text("counted"), text("String"), text("samples"),
        text("per_sample"), text("UInt64"), struct.pack("<Q", PERIOD_NS)]))
    engine.insert(database, "recordings", b"".join([
        uleb128(6), uleb128(1), text("recording"), text("UInt64"), struct.pack("<Q", RECORDING), text("period"),
        text("UInt32"), struct.pack("<I", START // 2592000), text("events"), text("Array(UInt64)"),
        struct.pack("<QQ", 1, EVENT), text("shown"), text("UInt64"), struct.pack("<Q", EVENT), text("ends_known"),
        text("UInt8"), b"\1", text("comments"), text("Array(String)"), struct.pack("<Q", 0)]))
    for service in range(SERVICES):
        hosts = [host for host in range(HOSTS) if host % CLASSES == service % CLASSES]
        rows = [(host, thread) for host in hosts for thread in range(THREADS)]
        n = len(rows)
        column = lambda name, kind, data: text(name) + text(kind) + data
        engine.insert(database, "label_sets", b"".join([
            uleb128(10), uleb128(n),
            column("labels", "UInt64", np.ascontiguousarray(labels[hosts, service]).tobytes()),
            column("period", "UInt32", np.full(n, START // 2592000, "<u4").tobytes()),
            column("host", "String", b"".join(text(f"host-{host:04}") for host, _ in rows)),
            column("process", "String", text(service_name(service)) * n),
            column("has_thread", "UInt8", b"\1" * n),
            column("thread", "String", b"".join(text(f"worker-{thread}") for _, thread in rows)),
            column("pid", "UInt32", np.array([1000 + service for _ in rows], "<u4").tobytes()),
            column("tid", "UInt32", np.array([1000 + service + thread for _, thread in rows], "<u4").tobytes()),
            column("keys", "Array(String)", np.arange(1, n + 1, dtype="<u8").tobytes() + text("release") * n),
            column("values", "Array(String)", np.arange(1, n + 1, dtype="<u8").tobytes() + b"".join(
                text(f"{service_name(service)} 1.{host // CLASSES % 2}") for host, _ in rows))]))


class Fleet:
    """Samples, in the order of time. Services and stacks have popularities of 1/rank."""

    def __init__(self, stack_ids, hours, samples, seed=1):
        self.rng = np.random.default_rng(seed)
        self.stack_ids, self.slots = np.array(stack_ids), hours * 360
        self.samples = samples
        rank = 1 / np.arange(1, SERVICES + 1)
        services = rank / rank.sum()
        self.classes = np.array([services[c::CLASSES].sum() for c in range(CLASSES)])
        self.services = np.array([np.cumsum(services[c::CLASSES] / self.classes[c]) for c in range(CLASSES)])
        popular = 1 / np.arange(1, STACKS + 1)
        self.popular = np.cumsum(popular / popular.sum())
        self.service_ids = np.array([service_id(s) for s in range(SERVICES)], "<u8")
        self.host_ids = np.array([id_of(f"host-{h:04}") for h in range(HOSTS)], "<u8")
        self.labels = self.rng.integers(1, 1 << 63, (HOSTS, SERVICES, THREADS), "<u8")

    def rows(self, n):
        rows = np.zeros(n, DTYPE)
        rows["event"], rows["count"], rows["value"] = EVENT, 1, PERIOD_NS
        return rows

    def blocks(self, size):
        """What the agents write in a stretch of time: samples, rollup, intervals."""
        done = 0
        for begin in range(0, self.samples, size):
            n = min(size, self.samples - begin)
            first, last = self.slots * begin // self.samples, max(self.slots * (begin + n) // self.samples, 1)
            count = max(n // OF_AN_INTERVAL, 1)
            # Each interval has a slot of time and a host.
            slots = np.sort(self.rng.integers(first, max(last, first + 1), count))
            of_class = self.rng.choice(CLASSES, count, p=self.classes)
            hosts = self.rng.integers(0, HOSTS // CLASSES, count) * CLASSES + of_class
            at_interval = START + slots * 10 + hosts % 10  # hosts begin at different seconds
            which = self.rng.integers(0, count, n)
            host, at = hosts[which], at_interval[which]
            part = self.rng.random(n)
            place = (part[:, None] > self.services[host % CLASSES]).sum(axis=1).clip(0, OF_A_HOST - 1)
            service = place * CLASSES + host % CLASSES
            rows = self.rows(n)
            rank = np.searchsorted(self.popular, self.rng.random(n)).clip(0, STACKS - 1)
            rows["stack"] = self.stack_ids[service, rank]
            rows["service"] = self.service_ids[service]
            rows["hour"] = at // 3600 * 3600
            rows["second"] = at % 3600
            rows["labels"] = self.labels[host, service, self.rng.integers(0, THREADS, n)]
            rollup = rows.copy()
            rollup["level"] = 1
            rollup["labels"] = 0
            rollup["second"] = rows["second"] // 60 * 60
            intervals = self.rows(2 * count)
            intervals["level"][:count], intervals["level"][count:] = 2, 3
            intervals["event"], intervals["labels"] = 0, RECORDING
            for name, values in (("service", self.host_ids[hosts]), ("hour", at_interval // 3600 * 3600),
                                 ("second", at_interval % 3600), ("stack", self.rng.integers(1, 1 << 63, count, "<u8"))):
                intervals[name] = np.concatenate([values, values])
            intervals["value"][:count] = 0
            intervals["count"][count:] = intervals["value"][count:] = 10_000_000_000
            done += count
            yield rows, rollup, intervals


def size_of(engine, database, table):
    answer = engine.query("SELECT sum(bytes_on_disk), sum(rows) FROM system.parts WHERE active AND database = "
                          f"'{database}' AND table = '{table}' FORMAT TabSeparated")
    return tuple(int(value) for value in answer.split())


def columns_of(engine, database, samples):
    """Bytes a sample of each column of the table `samples`."""
    answer = engine.query("SELECT name, data_compressed_bytes FROM system.columns WHERE database = "
                          f"'{database}' AND table = 'samples' ORDER BY data_compressed_bytes DESC FORMAT TabSeparated")
    rows = (row.split("\t") for row in answer.decode().splitlines())
    return ", ".join(f"{name} {int(size) / samples:.2f}" for name, size in rows)


def timed(engine, database, sql, times=5):
    engine.query(sql, database)
    took = []
    for _ in range(times):
        begin = time.monotonic()
        answer = engine.query(sql, database)
        took.append(time.monotonic() - begin)
    return sorted(took)[len(took) // 2] * 1000, answer


def make_tables(engine, statements, database):
    engine.query(f"DROP DATABASE IF EXISTS {database}")
    for statement in statements.split(";\n"):
        if statement.strip():
            engine.query(statement.replace("BENCH", database))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--schema", required=True)
    parser.add_argument("--server", default="http://127.0.0.1:8123/")
    parser.add_argument("--pid", type=int, help="of the server")
    parser.add_argument("--chdb", help="libchdb.so: the engine in this process")
    parser.add_argument("--folder", default="/tmp/windlass-bench-chdb")
    parser.add_argument("--samples", type=int, default=20_000_000)
    parser.add_argument("--hours", type=int, default=1)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--again", action="store_true", help="with the stacks of an earlier run")
    parser.add_argument("--windlass", help="the command")
    arguments = parser.parse_args()
    engine = Embedded(arguments.chdb, arguments.folder) if arguments.chdb else Server(arguments.server, arguments.pid)
    print("engine:", engine.query("SELECT version() FORMAT TabSeparated").decode().strip())
    statements = open(arguments.schema).read()
    databases = ("windlass_raw", "windlass_minute", "windlass_all") if arguments.parts else ("windlass_all",)
    if arguments.again:
        engine.query("TRUNCATE TABLE windlass_all.samples")
        fleet = Fleet(ids_of_contents(engine, "windlass_all"), arguments.hours, arguments.samples)
    else:
        for database in databases:
            make_tables(engine, statements, database)
        fleet = Fleet(write_contents(engine, "windlass_all", Material(arguments.store)), arguments.hours, arguments.samples)
        write_names(engine, "windlass_all", fleet.labels)
    for table in ("stacks", "frames", "label_sets"):
        engine.query(f"OPTIMIZE TABLE windlass_all.{table} FINAL")
        size, rows = size_of(engine, "windlass_all", table)
        print(f"{table}: {size} bytes, {rows} rows, {size / rows:.1f} bytes a row", flush=True)
    write_samples(engine, fleet, arguments.parts)
    for database in databases:
        cpu_before = engine.cpu()
        engine.query(f"OPTIMIZE TABLE {database}.samples FINAL")
        size, rows = size_of(engine, database, "samples")
        print(f"{database}: {size} bytes, {rows} rows, {size / arguments.samples:.2f} bytes a sample, merged in "
              f"{engine.cpu() - cpu_before:.1f} CPU seconds", flush=True)
        print(f"{database}, columns: {columns_of(engine, database, arguments.samples)}")
    print("rows of each level:", engine.query("SELECT level, count() FROM windlass_all.samples GROUP BY level ORDER BY level "
                                              "FORMAT TabSeparated").decode().split())
    if arguments.windlass:
        ask_command(arguments.windlass, engine, arguments.hours)
    engine.close()


def write_samples(engine, fleet, parts):
    cpu = wall = 0.0
    order = ["second", "stack", "labels", "hour", "service", "level"]  # the last is the first key
    for rows, rollup, intervals in fleet.blocks(1_000_000):
        all_rows = np.concatenate([rows, rollup, intervals])
        block = native(all_rows[np.lexsort([all_rows[name] for name in order])])
        cpu_before, before = engine.cpu(), time.monotonic()
        engine.insert("windlass_all", "samples", block)
        wall += time.monotonic() - before
        cpu += engine.cpu() - cpu_before
        if parts:
            engine.insert("windlass_raw", "samples", native(rows))
            engine.insert("windlass_minute", "samples", native(rollup))
    n = fleet.samples
    print(f"insert, samples and rollup: {n / cpu / 1e6:.2f} M samples a CPU second, {n / wall / 1e6:.2f} M a second",
          flush=True)


def ask_command(command, engine, hours):
    """Answers of `windlass serve`, as the page asks for them."""
    serve = subprocess.Popen([command, "serve", engine.serve() + "/windlass_all", "--listen", "127.0.0.1:0"],
                             stderr=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+/", serve.stderr.readline()).group(0) + "api/"
    end = (START + hours * 3600) * 1000

    def ask(name, path, spans):
        for span_name, span in spans:
            if span > hours:
                continue
            url = address + path.format(range=f"from={end - span * 3600_000}&to={end}", step=max(span * 3600_000 // 200 // 60_000, 1) * 60_000,
                                        before=f"before_from={end - span * 3600_000}&before_to={end}")
            took, size = [], 0
            for _ in range(4):
                cpu, begin = engine.cpu(), time.monotonic()
                try:
                    size = len(urllib.request.urlopen(url, timeout=100).read())
                except urllib.error.HTTPError as error:
                    print(f"{name}, {span_name}: {error.read().decode()[:200]}", flush=True)
                    break
                took.append((time.monotonic() - begin, engine.cpu() - cpu))
            else:
                best = min(took[1:])
                print(f"{name}, {span_name}: {best[0] * 1000:.0f} ms, of it the engine's CPU time {best[1] * 1000:.0f} ms; "
                      f"the first time {took[0][0] * 1000:.0f} ms; {size} bytes", flush=True)

    spans = (("an hour", 1), ("a day", 24), ("a week", 168))
    busiest = urllib.parse.quote(service_name(0))
    ask("labels", "labels", (("all", 1),))
    ask("services", "values?label=process&event=cpu&{range}", spans)
    ask("time line of all", "series?step={step}&{range}", spans)
    ask("time line of the busiest service", f"series?label=process&value={busiest}&step={{step}}&{{range}}", spans)
    ask("flame graph of the busiest service", f"page?event=cpu&label=process&value={busiest}&{{range}}", spans)
    ask("flame graph of the quietest service", f"page?event=cpu&label=process&value={service_name(SERVICES - 1)}&{{range}}", spans)
    releases = [urllib.parse.quote(f"{service_name(0)} 1.{i}") for i in (0, 1)]
    ask("two releases of the busiest service", f"page?event=cpu&label=release&value={releases[1]}&before_label=release"
        f"&before_value={releases[0]}&{{range}}&{{before}}", spans)
    ask("flame graph of all services", "page?event=cpu&{range}", spans)
    serve.terminate()
    serve.wait()


if __name__ == "__main__":
    main()
