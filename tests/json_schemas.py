#!/usr/bin/python3
"""Are docs/schema/*.json the schemas of the command's JSON?

json_schemas.py sources ROOT: a schema has each key of its section of src/cli/json_keys.tsv and no other, with the type and
the meaning that the table has.
json_schemas.py fill ROOT: writes the meanings of the table into the schemas.
json_schemas.py printed ROOT COMMAND PROFILE...: each line that COMMAND prints of the profiles and of a live process is as
its schema says.
"""
import json
import pathlib
import subprocess
import sys

from json_keys import table_of

SCHEMAS = {"report": "report", "report-diff": "report of --diff", "report-annotate": "report of --annotate", "walk": "walk"}
TYPES = {"number": {"integer", "number"}, "text": {"string"}, "array": {"array"}, "object": {"object"}, "null": {"null"},
         "true": {"boolean"}, "false": {"boolean"}}


def properties_of(schema):
    """(key, its schema), and of those inside."""
    if isinstance(schema, dict):
        for key, inner in schema.get("properties", {}).items():
            yield key, inner
            yield from properties_of(inner)
        for key in ("items", "additionalProperties"):
            yield from properties_of(schema.get(key))
        for inner in schema.get("$defs", {}).values():
            yield from properties_of(inner)


def types_of(schema):
    if "type" in schema:
        return set([schema["type"]] if isinstance(schema["type"], str) else schema["type"])
    values = [schema["const"]] if "const" in schema else schema["enum"]
    return {{bool: "boolean", int: "integer", str: "string"}[type(value)] for value in values}


def filled(schema, keys):
    for key, inner in properties_of(schema):
        if key in keys:
            inner["description"] = keys[key][1]
    return json.dumps(schema, indent=1) + "\n"


def check_sources(root):
    rows, wrong = table_of(root)
    files = {path.stem for path in (root / "docs/schema").glob("*.json")}
    wrong += [f"docs/schema/{name}.json: a schema of no section" for name in sorted(files - set(SCHEMAS))]
    count = 0
    for name, section in SCHEMAS.items():
        path = root / f"docs/schema/{name}.json"
        text = path.read_text()
        schema, keys = json.loads(text), {key: (value, meaning) for of, key, value, meaning in rows if of == section}
        found, seen = list(properties_of(schema)), {}
        for key, inner in found:
            seen.setdefault(key, set()).update(types_of(inner))
        wrong += [f"{path}: {key} is in no row of {section}" for key in sorted(set(seen) - set(keys))]
        wrong += [f"{path}: {key} of {section} is not in the schema" for key in sorted(set(keys) - set(seen))]
        for key in sorted(set(keys) & set(seen)):
            words = ["text" if word.startswith("`") else word for word in keys[key][0].split(", ")]
            allowed = set().union(*(TYPES[word] for word in words))
            if not seen[key] <= allowed:
                wrong.append(f"{path}: {key} is {sorted(seen[key])}, and {keys[key][0]} in the table")
        if not wrong and text != filled(schema, keys):
            wrong.append(f"{path} has other meanings than the table: tests/json_schemas.py fill .")
        count += len(found)
    return wrong, f"{count} properties in {len(SCHEMAS)} schemas"


def check_printed(root, command, profiles):
    import jsonschema
    checks = {}
    for name in SCHEMAS:
        schema = json.loads((root / f"docs/schema/{name}.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        checks[name] = jsonschema.Draft202012Validator(schema)

    def lines_of(*arguments):
        done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=300)
        return [json.loads(line) for line in done.stdout.splitlines()]

    wrong, counts = [], dict.fromkeys(SCHEMAS, 0)

    def check(name, lines):
        counts[name] += len(lines)
        for line in lines:
            for error in checks[name].iter_errors(line):
                wrong.append(f"{name}: {error.message[:200]}")
        for line in lines[:1]:  # a key that the schema does not have is an error
            if checks[name].is_valid({**line, "no_such_key": 1}):
                wrong.append(f"{name}: any key is allowed")

    for profile in profiles:
        lines = lines_of("report", "--json", profile)
        check("report", lines)
        check("report-diff", lines_of("report", "--diff", "--json", profile, profiles[0]))
        for function in [line["name"] for line in lines if line["type"] == "function" and line["total"]][:3]:
            check("report-annotate", lines_of("report", "--json", "--annotate", function, profile))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as sleeper:
        for options in ([], ["-l", "-i", "-vv", "--arguments"], ["--repeat", "2", "--interval", "10ms"], ["--max-frames", "1"]):
            check("walk", lines_of("walk", "--json", *options, str(sleeper.pid)))
        sleeper.kill()
    wrong += [f"{name}: nothing was printed" for name, count in counts.items() if not count]
    return wrong, ", ".join(f"{count} lines of {name}" for name, count in counts.items())


def main():
    what, root = sys.argv[1], pathlib.Path(sys.argv[2])
    if what == "fill":
        rows = table_of(root)[0]
        for name, section in SCHEMAS.items():
            path = root / f"docs/schema/{name}.json"
            keys = {key: (value, meaning) for of, key, value, meaning in rows if of == section}
            path.write_text(filled(json.loads(path.read_text()), keys))
        return 0
    wrong, seen = check_sources(root) if what == "sources" else check_printed(root, sys.argv[3], sys.argv[4:])
    print("\n".join([*wrong[:50], f"{seen}, {len(wrong)} errors"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
