#!/usr/bin/python3
"""Lines of JSON of real and made profiles against their schemas.  test_json_schemas.py ROOT COMMAND"""
import pathlib
import subprocess
import sys
import tempfile

import five_profiles

root, command = pathlib.Path(sys.argv[1]), sys.argv[2]
with tempfile.TemporaryDirectory() as place:
    made = place + "/made.pb.gz"
    subprocess.run([root / "tests/integration/mcp/make_profile.py", made], check=True)
    files, why = five_profiles.record(command, pathlib.Path(place))
    if why:
        print(f"SKIPPED: no recording here: {why}")
        sys.exit(0)
    sys.exit(subprocess.run([root / "tests/json_schemas.py", "printed", root, command, *files.values(), made]).returncode)
