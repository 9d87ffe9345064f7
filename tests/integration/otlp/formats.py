"""Profiles of pprof and OTLP as plain rows, so that both can be compared."""
import collections
import gzip
import os
import subprocess
import sys
import tempfile

folder = os.path.dirname(os.path.abspath(__file__))
generated = tempfile.TemporaryDirectory()
subprocess.run(["protoc", f"-I{folder}", f"--python_out={generated.name}", f"{folder}/otlp.proto", f"{folder}/pprof.proto"],
               check=True)
sys.path.insert(0, generated.name)
import otlp_pb2 as otlp  # noqa: E402
import pprof_pb2 as pprof  # noqa: E402

KERNEL = "[kernel]"
SOURCES = {".py": "cpython", ".rb": "ruby", ".go": "go", ".java": "jvm", ".js": "v8js", ".cs": "dotnet", ".rs": "rust"}


def text(raw):
    return raw.decode("utf-8", "replace")


def rows_of_pprof(data):
    """{type: Counter of rows}, and the head. A row: labels, frames, each with mapping, address and lines; times."""
    profile = pprof.Profile.FromString(gzip.decompress(data))
    strings = [text(one) for one in profile.string_table]
    mappings = {one.id: (strings[one.filename], strings[one.build_id], one.memory_start, one.memory_limit, one.file_offset)
                for one in profile.mapping}
    functions = {one.id: (strings[one.name], strings[one.system_name], strings[one.filename], one.start_line)
                 for one in profile.function}
    frames = {}
    for one in profile.location:
        lines = [(functions[line.function_id], line.line) for line in one.line]
        if len(lines) == 1 and lines[0][0][1] == "":  # the name that stands in for one that is not known
            lines = []
        frames[one.id] = (mappings.get(one.mapping_id), one.address, tuple(lines))
    rows = collections.defaultdict(collections.Counter)
    for sample in profile.sample:
        labels = collections.defaultdict(list)
        for label in sample.label:
            labels[strings[label.key]].append(strings[label.str] if label.str else label.num)
        labels = tuple(sorted((key, tuple(sorted(values))) for key, values in labels.items()))
        stack = tuple(frames[one] for one in sample.location_id)
        for kind, value in zip(profile.sample_type, sample.value):
            if value != 0:
                rows[strings[kind.type], strings[kind.unit]][labels, stack] += value
    head = {"start": profile.time_nanos, "duration": profile.duration_nanos, "period": profile.period,
            "period_type": (strings[profile.period_type.type], strings[profile.period_type.unit]),
            "comments": [strings[one] for one in profile.comment]}
    return rows, head


def plain(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(plain(one) for one in value.array_value.values)
    return None if kind is None else getattr(value, kind)


def check_dictionary(dictionary):
    """What the format demands of the tables."""
    zeroes = {"mapping_table": otlp.Mapping(), "location_table": otlp.Location(), "function_table": otlp.Function(),
              "link_table": otlp.Link(trace_id=bytes(16), span_id=bytes(8)), "string_table": "",
              "attribute_table": otlp.Attribute(), "stack_table": otlp.Stack()}
    for name, zero in zeroes.items():
        table = getattr(dictionary, name)
        assert len(table) > 0 and table[0] == zero, f"entry 0 of {name}"
        keys = [one if isinstance(one, str) else one.SerializeToString(deterministic=True) for one in table]
        assert len(set(keys)) == len(keys), f"{name} has an entry twice"


# Labels that the pprof has under other names.
NAMES = {"process.pid": "pid", "thread.id": "tid", "thread.name": "comm", "windlass.stack.truncated": "truncated",
         "windlass.stack.end": "end", "windlass.stack.certainty": "certainty"}


def rows_of_otlp(request):
    """As rows_of_pprof(), and a list of heads. Checks the frame types and what mappings say."""
    dictionary = request.dictionary
    check_dictionary(dictionary)
    strings = dictionary.string_table
    used = collections.defaultdict(set)

    def at(table, index):
        used[table].add(index)
        return getattr(dictionary, table)[index]

    def attributes(indices):
        found = {}
        for index in indices:
            one = at("attribute_table", index)
            key = at("string_table", one.key_strindex)
            assert index != 0 and key not in found, f"{key} twice"
            found[key] = plain(one.value)
        return found

    def frame(index):
        location = at("location_table", index)
        mapping = None
        if location.mapping_index:
            one = at("mapping_table", location.mapping_index)
            said = attributes(one.attribute_indices)
            mapping = (at("string_table", one.filename_strindex),
                       said.get("process.executable.build_id.gnu", said.get("windlass.build_id.pe", "")),
                       one.memory_start, one.memory_limit, one.file_offset)
        lines = []
        for line in location.lines:
            one = at("function_table", line.function_index)
            lines.append(((at("string_table", one.name_strindex), at("string_table", one.system_name_strindex),
                           at("string_table", one.filename_strindex), one.start_line), line.line))
        kind = attributes(location.attribute_indices).get("profile.frame.type")
        by_source = SOURCES.get(os.path.splitext(lines[0][0][2])[1]) if lines else None
        if mapping is not None and mapping[0] == KERNEL:
            assert kind == "kernel", (mapping, kind)
        elif by_source:
            assert kind == by_source, (lines, kind)
        else:
            assert kind in (None, "native"), (mapping, lines, kind)
        return mapping, location.address, tuple(lines)

    rows, heads = collections.defaultdict(collections.Counter), []
    for resource_profiles in request.resource_profiles:
        resource = {one.key: plain(one.value) for one in resource_profiles.resource.attributes}
        assert len(resource) == len(resource_profiles.resource.attributes), "a key of the resource stands twice"
        for scope_profiles in resource_profiles.scope_profiles:
            assert scope_profiles.scope.name == "windlass" and scope_profiles.scope.version
            for profile in scope_profiles.profiles:
                kind = (at("string_table", profile.sample_type.type_strindex),
                        at("string_table", profile.sample_type.unit_strindex))
                heads.append({"kind": kind, "start": profile.time_unix_nano, "duration": profile.duration_nano,
                              "period": profile.period, "id": profile.profile_id, "resource": resource,
                              "period_type": (at("string_table", profile.period_type.type_strindex),
                                              at("string_table", profile.period_type.unit_strindex)),
                              "attributes": attributes(profile.attribute_indices), "times": []})
                for sample in profile.samples:
                    labels = {NAMES.get(key, key): value if isinstance(value, tuple) else (value,)
                              for key, value in attributes(sample.attribute_indices).items()}
                    for key, value in resource.items():  # those of the container
                        if key.startswith(("container.", "k8s.")):
                            labels[key] = (value,)
                    link = at("link_table", sample.link_index)
                    if sample.link_index:
                        labels["trace_id"], labels["span_id"] = (link.trace_id.hex(),), (link.span_id.hex(),)
                    labels = tuple(sorted((key, tuple(sorted(values))) for key, values in labels.items()))
                    stack = tuple(frame(index) for index in at("stack_table", sample.stack_index).location_indices)
                    if sample.timestamps_unix_nano:
                        assert len(sample.timestamps_unix_nano) == len(sample.values)
                        heads[-1]["times"] += sample.timestamps_unix_nano
                    rows[kind][labels, stack] += sum(sample.values)
    for name in ("mapping_table", "location_table", "function_table", "link_table", "attribute_table", "stack_table"):
        unused = set(range(1, len(getattr(dictionary, name)))) - used[name]
        assert not unused, f"entries of {name} that nobody uses: {unused}"
    return rows, heads
