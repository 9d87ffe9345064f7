#!/usr/bin/python3
"""Measures a store in ClickHouse: bytes a sample, inserts a CPU second, flame graphs of an hour and of a week.

    bench/clickhouse_store.py [STORE] --schema SQL [--server URL | --chdb libchdb.so] [--samples N] [--hours H]

STORE is a file that `windlass agent --store STORE` wrote: its stacks, with their names, are the material. Without STORE
the tables `stacks` and `frames` stay empty, and ids of stacks are random; ids of real stacks are hashes. SQL is a file
with the statements of the tables: clickhouse_schema VERSION, of the build folder. Each of 50 services gets 20,000 stacks: a real
stack, of which a part is replaced by that of another real stack through the same function, or by functions that only
this service has. Samples are spread over 10,000 hosts. Every figure is printed as it was measured; nothing is computed
from other figures but the ratios.
"""
import argparse, bisect, ctypes, itertools, os, random, resource, sqlite3, struct, sys, time, urllib.parse, urllib.request
import numpy as np

from leb128 import uleb128

SERVICES, STACKS, HOSTS, THREADS = 50, 20_000, 10_000, 4
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


def hash64(*parts):
    import hashlib
    return struct.unpack("<Q", hashlib.blake2b(repr(parts).encode(), digest_size=8).digest())[0]


def grouped(group, rest):
    return (group & 0xFFF) << 52 | rest & (1 << 52) - 1


def write_contents(engine, database, material):
    """stacks and frames of all services; the ids of the stacks of each."""
    ids, known, all_stacks, frames_sum = [], {}, 0, 0
    for service in range(SERVICES):
        own, stack_ids, stack_ends, stack_frames = service_id(service), [], [], []
        fresh = []
        for frames in material.vary(service, STACKS):
            for pair in frames:
                if pair not in known:
                    known[pair] = grouped(hash64(material.frames[pair[0]][0]), hash64(pair))
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
    print(f"stacks: {all_stacks}, of {frames_sum / all_stacks:.1f} frames; distinct frames: {len(known)}")
    return ids


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
        column("path", "String", b"".join(text(row[0][0]) for row in rows)),
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


def service_id(service):
    return hash64("service", service)


class Fleet:
    """Samples, in the order of time. Services and stacks have popularities of 1/rank; a host has two services."""

    def __init__(self, stack_ids, hours, samples, seed=1):
        self.rng = np.random.default_rng(seed)
        self.stack_ids, self.seconds = stack_ids, hours * 3600
        self.samples = samples
        rank = 1 / np.arange(1, SERVICES + 1)
        self.services = rank / rank.sum()
        popular = 1 / np.arange(1, STACKS + 1)
        self.popular = np.cumsum(popular / popular.sum())
        self.service_ids = np.array([service_id(s) for s in range(SERVICES)], "<u8")
        self.labels = self.rng.integers(1, 1 << 63, (HOSTS, SERVICES, THREADS), "<u8")

    def blocks(self, size):
        """What the agents write in a stretch of time: each sample in an interval of 10 s of its host."""
        for begin in range(0, self.samples, size):
            n = min(size, self.samples - begin)
            service = self.rng.choice(SERVICES, n, p=self.services)
            host = self.rng.integers(0, HOSTS // 5, n) * 5 + service % 5  # a service runs on a fifth of the hosts
            thread = self.rng.integers(0, THREADS, n)
            span = self.seconds / self.samples
            at = ((begin + self.rng.random(n) * n) * span).astype("<u4") // 10 * 10
            at = at + host % 10  # hosts begin at different seconds
            rows = np.zeros(n, DTYPE)
            rank = np.searchsorted(self.popular, self.rng.random(n)).clip(0, STACKS - 1)
            rows["stack"] = np.array(self.stack_ids)[service, rank]
            rows["event"] = 0x1234567812345678
            rows["service"] = self.service_ids[service]
            rows["hour"] = START + at // 3600 * 3600
            rows["second"] = at % 3600
            rows["labels"] = self.labels[host, service, thread]
            rows["count"] = 1
            rows["value"] = PERIOD_NS
            rollup = rows.copy()
            rollup["level"] = 1
            rollup["labels"] = 0
            rollup["second"] = rows["second"] // 60 * 60
            yield rows, rollup


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
    parser.add_argument("store", nargs="?", help="without: samples alone, with random ids of stacks")
    parser.add_argument("--schema", required=True)
    parser.add_argument("--server", default="http://127.0.0.1:8123/")
    parser.add_argument("--pid", type=int, help="of the server")
    parser.add_argument("--chdb", help="libchdb.so: the engine in this process")
    parser.add_argument("--folder", default="/tmp/windlass-bench-chdb")
    parser.add_argument("--samples", type=int, default=20_000_000)
    parser.add_argument("--hours", type=int, default=1)
    arguments = parser.parse_args()
    engine = Embedded(arguments.chdb, arguments.folder) if arguments.chdb else Server(arguments.server, arguments.pid)
    print("engine:", engine.query("SELECT version() FORMAT TabSeparated").decode().strip())
    statements = open(arguments.schema).read()
    for database in ("windlass_all", "windlass_raw", "windlass_minute"):
        make_tables(engine, statements, database)
    if arguments.store:
        ids = write_contents(engine, "windlass_all", Material(arguments.store))
    else:
        rng = np.random.default_rng(2)
        ids = [rng.integers(0, 1 << 52, STACKS, "<u8") | np.uint64((service_id(service) & 0xFFF) << 52)
               for service in range(SERVICES)]
    for table in ("stacks", "frames") if arguments.store else ():
        engine.query(f"OPTIMIZE TABLE windlass_all.{table} FINAL")
        size, rows = size_of(engine, "windlass_all", table)
        print(f"{table}: {size} bytes, {rows} rows, {size / rows:.1f} bytes a row")
    fleet = Fleet(ids, arguments.hours, arguments.samples)
    cpu = wall = 0.0
    for rows, rollup in fleet.blocks(1_000_000):
        both = np.sort(np.concatenate([rows, rollup]), order=["level", "service", "hour", "labels", "stack", "second"])
        block = native(both)
        cpu_before, before = engine.cpu(), time.monotonic()
        engine.insert("windlass_all", "samples", block)
        wall += time.monotonic() - before
        cpu += engine.cpu() - cpu_before
        engine.insert("windlass_raw", "samples", native(rows))
        engine.insert("windlass_minute", "samples", native(rollup))
    n = arguments.samples
    print(f"insert, samples and rollup: {n / cpu / 1e6:.2f} M samples a CPU second, {n / wall / 1e6:.2f} M a second",
          flush=True)
    for database in ("windlass_raw", "windlass_minute", "windlass_all"):
        cpu_before = engine.cpu()
        engine.query(f"OPTIMIZE TABLE {database}.samples FINAL")
        size, rows = size_of(engine, database, "samples")
        print(f"{database}: {size} bytes, {rows} rows, {size / n:.2f} bytes a sample, merged in "
              f"{engine.cpu() - cpu_before:.1f} CPU seconds", flush=True)
        print(f"{database}, columns: {columns_of(engine, database, n)}")
    busiest = int(fleet.service_ids[0])
    end = START + arguments.hours * 3600
    sums = "sum(bitShiftRight(value, 32)), sum(bitAnd(value, 0xffffffff))"
    whole = f"event = {0x1234567812345678} AND service = {busiest} AND hour >= {START} AND hour < {end}"
    for level, name in ((1, "rollup"), (0, "samples")):
        took, answer = timed(engine, "windlass_all", f"SELECT event, stack, end, certainty, sum(count), {sums} FROM samples "
                             f"WHERE level = {level} AND {whole} GROUP BY event, stack, end, certainty FORMAT RowBinary")
        print(f"busiest service, {arguments.hours} h, stacks from the {name}: {took:.0f} ms, {len(answer)} bytes",
              flush=True)
    print("samples of it:", engine.query(f"SELECT sum(count) FROM windlass_all.samples WHERE level = 0 AND {whole} "
                                         "FORMAT TabSeparated").decode().strip())
    if not arguments.store:
        return
    listed = "arrayMap(x -> toUInt64(x), splitByChar(',', '{}'))"
    wanted = ",".join(str(value) for value in ids[0])
    took, answer = timed(engine, "windlass_all", "SELECT stack, frames FROM stacks WHERE stack IN (SELECT arrayJoin("
                         + listed.format(wanted) + ")) FORMAT RowBinary", 3)
    print(f"its {STACKS} stacks: {took:.0f} ms, {len(answer)} bytes")
    frames = engine.query("SELECT DISTINCT arrayJoin(frames) FROM windlass_all.stacks WHERE stack IN (SELECT arrayJoin("
                          + listed.format(wanted) + ")) FORMAT TabSeparated").decode().split()
    took, answer = timed(engine, "windlass_all", "SELECT frame, path, build_id, address, functions, files, lines FROM frames "
                         "WHERE frame IN (SELECT arrayJoin(" + listed.format(",".join(frames)) +
                         ")) ORDER BY frame, ver DESC LIMIT 1 BY frame FORMAT RowBinary", 3)
    print(f"their {len(frames)} frames: {took:.0f} ms, {len(answer)} bytes")


if __name__ == "__main__":
    main()
