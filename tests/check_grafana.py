#!/usr/bin/env python3
"""Each counter that a dashboard asks for is one that the agent serves.

usage: check_grafana.py SOURCE_DIR
"""
import json
import pathlib
import re
import sys


def main():
    source = pathlib.Path(sys.argv[1])
    code = (source / "src/cli/agent_metrics.cpp").read_text()
    served = {f"windlass_agent_{name}" for name in re.findall(r'\.(?:family|single)\("(\w+)"', code)}
    for path in sorted((source / "packaging/grafana").glob("*.json")):
        ids = [panel["id"] for panel in json.loads(path.read_text())["panels"]]
        if len(ids) != len(set(ids)):
            sys.exit(f"{path.name}: two panels have one id")
    dashboard = json.loads((source / "packaging/grafana/agents.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [one["query"] for one in dashboard["templating"]["list"]]
    names = {name for text in asked for name in re.findall(r"windlass_agent_\w+", text)}
    wrong = names - served
    if wrong or len(names) < 10:
        sys.exit(f"the dashboard asks for counters that the agent does not serve: {sorted(wrong)}, of {len(names)}")
    print(f"{len(names)} counters in {len(dashboard['panels'])} panels")


main()
