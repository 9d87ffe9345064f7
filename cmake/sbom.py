#!/usr/bin/python3
"""What is the command made of, as SPDX 2.3 in JSON?  sbom.py COMMAND SOURCES VERSION > windlass.spdx.json

Lists the packages of the shared libraries that COMMAND needs, of the compiler's archives in it, and of the foreign headers that SOURCES
include. dpkg knows the packages; without it a library has its file's name and no version. The date is SOURCE_DATE_EPOCH, or else 0, so
that equal builds have equal files.
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

command, sources, version = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
# Licences as Debian's copyright files write them (DEP 5), and the names of SPDX.
LICENCES = {"Expat": "MIT", "BSD-2-clause": "BSD-2-Clause", "BSD-3-clause": "BSD-3-Clause", "Zlib": "Zlib", "ISC": "ISC", "Apache-2.0": "Apache-2.0",
            "BSD-3-clause or GPL-2": "BSD-3-Clause OR GPL-2.0-only", "BSD-2-Clause and Apache-2.0": "BSD-2-Clause AND Apache-2.0", "MIT": "MIT"}
INTERFACES = {"libc6-dev", "linux-libc-dev"}  # declarations, of which nothing is compiled in


def output_of(*words):
    try:
        return subprocess.run(words, text=True, capture_output=True).stdout.strip()
    except FileNotFoundError:
        return ""


def spellings(path):
    """The names under which dpkg may know a file, whose folder is /lib and /usr/lib."""
    real = os.path.realpath(path)
    return {path, real, real.removeprefix("/usr")}


def packages_of(paths):
    """Debian's packages of these files, by path: (name, version, licence as written there)."""
    owners = {}
    for line in output_of("dpkg", "-S", *sorted(set().union(*map(spellings, paths)))).split("\n"):
        owner, _, path = line.partition(": ")
        owners[path] = owner.split(",")[0]
    found = {}
    for path in paths:
        owner = next((owners[name] for name in spellings(path) if name in owners), None)
        if owner is None:
            found[path] = (os.path.basename(path), "", "")
            continue
        text = pathlib.Path(f"/usr/share/doc/{owner.split(':')[0]}/copyright")
        words = re.search(r"^Files: \*\n(?:.+\n)*?License: (.+)$", text.read_text(), re.M) if text.exists() else None
        found[path] = (owner.split(":")[0], output_of("dpkg-query", "-W", "-f", "${Version}", owner), words.group(1) if words else "")
    return found


def libraries():
    """By path: the names that the command needs."""
    paths = {}
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-d", "-W", command)):
        paths[output_of("cc", f"-print-file-name={name}")] = f"shared library {name}"
    return paths


def archives(needed):
    """By path: the archives of the compiler that are linked into the command."""
    pairs = (("libstdc++.so", "libstdc++.a"), ("libgcc_s.so", "libgcc_eh.a"))
    inside = [archive for library, archive in pairs if not any(library in comment for comment in needed.values())]
    return {output_of("c++", f"-print-file-name={name}"): f"archive {name}, linked in" for name in inside}


def headers():
    included = set()
    for path in sources.rglob("*"):
        if path.suffix in (".h", ".cpp"):
            included |= set(re.findall(r"^#include <(\w[\w.-]*/[^>]+)>", path.read_text(), re.M))
    machine = output_of("cc", "-print-multiarch")
    candidates = [f"{folder}/{header}" for header in sorted(included) for folder in ("/usr/include", f"/usr/include/{machine}")]
    return [path for path in candidates if os.path.exists(path)]


def identifier(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def entry(name, version, licence, comment, purpose):
    found = {"SPDXID": identifier(name), "name": name, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
             "licenseConcluded": "NOASSERTION", "licenseDeclared": LICENCES.get(licence, "NOASSERTION"), "copyrightText": "NOASSERTION",
             "comment": comment, "primaryPackagePurpose": purpose}
    if licence and licence not in LICENCES:
        found["licenseComments"] = f"Debian's copyright file: {licence}"
    return found | ({"versionInfo": version} if version else {})


packages, relations = {}, []


def add(found, comment, relation):
    name, version, licence = found
    if name in packages:
        if comment not in packages[name]["comment"]:
            packages[name]["comment"] += f", {comment}"
        return
    packages[name] = entry(name, version, licence, comment, "LIBRARY")
    this, that = identifier("windlass"), identifier(name)
    backwards = relation.endswith("_OF")
    relations.append({"spdxElementId": that if backwards else this, "relationshipType": relation, "relatedSpdxElement": this if backwards else that})


needed, included = libraries(), headers()
inside = archives(needed)
owners = packages_of([*needed, *inside, *included])
for path, comment in needed.items():
    add(owners[path], comment, "DYNAMIC_LINK")
for path, comment in inside.items():
    add(owners[path], comment, "STATIC_LINK")
for path in included:
    if owners[path][0] not in INTERFACES:
        add(owners[path], "headers, and what they define", "BUILD_DEPENDENCY_OF")
packages = {"windlass": entry("windlass", version, "MIT", "the command", "APPLICATION")} | packages
created = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"windlass-{version}",
            "creationInfo": {"created": f"{created:%Y-%m-%dT%H:%M:%SZ}", "creators": ["Tool: windlass-sbom.py"]},
            "documentDescribes": [identifier("windlass")], "packages": list(packages.values()), "relationships": relations}
digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
document["documentNamespace"] = f"urn:windlass:{version}:{digest[:32]}"
print(json.dumps(document, indent=1))
