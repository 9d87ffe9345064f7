#!/usr/bin/python3
"""Does the bill of materials list what the command is made of?  test_sbom.py COMMAND SBOM"""
import json
import pathlib
import re
import subprocess
import sys

command = sys.argv[1]
document = json.loads(pathlib.Path(sys.argv[2]).read_text())
packages = {package["name"]: package for package in document["packages"]}
names = {package["SPDXID"] for package in document["packages"]}
errors = []
if document["spdxVersion"] != "SPDX-2.3" or not document["documentNamespace"]:
    errors.append("no SPDX 2.3")

# ldd finds the libraries in another way than the script.
loaded = dict(re.findall(r"^\s*(\S+) => (/\S+)", subprocess.run(["ldd", command], text=True, capture_output=True, check=True).stdout, re.M))
needed = re.findall(r"\(NEEDED\).*\[(.+)\]", subprocess.run(["readelf", "-dW", command], text=True, capture_output=True, check=True).stdout)
for library in needed:
    listed = [package for package in packages.values() if library in package["comment"].replace(",", "").split(" ")]
    if len(listed) != 1 or not listed[0].get("versionInfo"):
        errors.append(f"{library} has no package with a version")
    elif library in loaded:
        path = loaded[library]
        owner = subprocess.run(["dpkg", "-S", path, "/usr" + path], text=True, capture_output=True).stdout
        if not owner.startswith(listed[0]["name"] + ":"):
            errors.append(f"{library} is not of {listed[0]['name']}: {owner.strip()}")
# What is linked in is in none of them, and its licence is to be known all the same.
for library, archive in (("libstdc++.so.6", "libstdc++.a"), ("libgcc_s.so.1", "libgcc_eh.a")):
    listed = [package for package in packages.values() if archive in package["comment"].replace(",", "").split(" ")]
    if len(listed) != (library not in needed) or not all(package.get("versionInfo") for package in listed):
        errors.append(f"{archive} is in {len(listed)} packages with a version")
if any(library.startswith(("libstdc++.so", "libfmt.so")) for library in needed):
    errors.append("the command loads libstdc++ or libfmt, whose symbols are a fifth of its start")
for relation in document["relationships"]:
    if not {relation["spdxElementId"], relation["relatedSpdxElement"]} <= names:
        errors.append(f"a relation with an unknown package: {relation}")

print("\n".join(errors) or f"{len(needed)} libraries and {len(packages)} packages")
sys.exit(1 if errors else 0)
