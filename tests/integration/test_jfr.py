#!/usr/bin/python3
"""Does `report` read a recording of JDK Flight Recorder?  test_jfr.py COMMAND

A Java program of our own is recorded by each JDK that is here. Stacks, lines, threads and times must be those of the text
that `jfr print` prints. Without the program `jfr`, and with damaged recordings, the error says what to do.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

command, errors = sys.argv[1], []
folder = pathlib.Path(tempfile.mkdtemp(prefix="windlass_jfr_"))
SOURCE = r"""
import java.util.*;
public class Work {
  static double burn(int n) { double s = 0; for (int i = 1; i < n; i++) s += Math.sin(i) * Math.sqrt(i); return s; }
  static int deep(int n) { return n == 0 ? (int) burn(20000) : deep(n - 1) + 1; }
  static int hash(int n) { Map<Integer, String> m = new HashMap<>(); for (int i = 0; i < n; i++) m.put(i * 31, "x" + i);
                           return m.size(); }
  public static void main(String[] a) throws Exception {
    long end = System.currentTimeMillis() + 2500;
    Thread other = new Thread(() -> { while (System.currentTimeMillis() < end) hash(2000); }, "hash \"er\"\u001b[31m\u00e9");
    other.start();
    while (System.currentTimeMillis() < end) deep(80);
    other.join();
  }
}
"""
EVENTS = "jdk.ExecutionSample,jdk.NativeMethodSample,jdk.CPUTimeSample"


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, timeout=300, **options)


def text_samples(jfr, recording):
    """(event, thread, time, frames as (method, line)) of each sample, by the text of jfr."""
    text = run(jfr, "print", "--stack-depth", "1024", "--events", EVENTS, recording).stdout.decode()
    for block in re.findall(r"^jdk\.(\w+) \{\n(.*?)^\}", text, re.M | re.S):
        event, body = block
        time = re.search(r"startTime = (\d+):(\d+):(\d+)\.(\d+)", body)
        seconds = (int(time[1]) * 60 + int(time[2])) * 60 + int(time[3]) + int(time[4]) / 1000
        thread = re.search(r'(?:sampledThread|eventThread) = "(.*)" \(', body, re.S)[1]
        stack = re.search(r"stackTrace = \[\n(.*?)^  \]", body, re.M | re.S)
        frames = re.findall(r"^    (\S.*?)\(.*\)(?:\s+line:\s*(\d+)?)?$", stack[1], re.M) if stack else []
        yield event, thread, seconds, tuple((name, int(line or 0)) for name, line in frames)


def our_samples(recording, event):
    done = run(command, "report", "--json", "--value", "cpu" if event == "CPUTimeSample" else event, recording)
    if done.returncode:
        errors.append(f"report {recording}: {done.returncode}: {done.stderr.decode()}")
        return
    functions, locations, start = {}, {}, 0
    for line in done.stdout.splitlines():
        one = json.loads(line)
        if one["type"] == "profile":
            start = one["start_unix_ns"]
        elif one["type"] == "function":
            functions[one["id"]] = one["name"]
        elif one["type"] == "location":
            locations[one["id"]] = [(functions.get(one["lines"][0]["function"]), one["lines"][0]["line"] or 0)]
        elif one["type"] == "sample" and one["event"] in (event, "cpu" if event == "CPUTimeSample" else event):
            frames = tuple(frame for place in one["locations"] for frame in locations[place])
            times = [start + time["begin"] for time in one.get("times", [])] or [None] * one["count"]
            if len(times) != one["count"]:
                errors.append(f"{len(times)} times of {one['count']} samples")
            for time in times:
                yield event, one["comm"], None if time is None else time / 1e9 % 86400, frames


def check(name, java, jfr):
    recording = folder / f"{name}.jfr"
    settings = f"-XX:StartFlightRecording=filename={recording},settings=profile"
    timed = ",jdk.CPUTimeSample#enabled=true,jdk.CPUTimeSample#throttle=5ms" if name != "17" else ""
    done = run(java, "-XX:FlightRecorderOptions=stackdepth=512", settings + timed, "Work.java", cwd=folder)
    if done.returncode:
        errors.append(f"{java}: {done.stderr.decode()}")
        return
    theirs = list(text_samples(jfr, recording))
    for event in sorted({one[0] for one in theirs}):
        ours = list(our_samples(recording, event))
        theirs_of = [one for one in theirs if one[0] == event]
        differ = collections.Counter((one[1], one[3]) for one in ours)
        differ.subtract((one[1], one[3]) for one in theirs_of)
        wrong = {key: number for key, number in differ.items() if number}
        if wrong:
            errors.append(f"JDK {name}, {event}: {sum(map(abs, wrong.values()))} samples differ, first {next(iter(wrong.items()))}")
        times = sorted(one[2] for one in ours if one[2] is not None)
        for mine, text in zip(times, sorted(one[2] for one in theirs_of)):
            if abs(mine - text) > 0.0011:  # the text is cut to milliseconds
                errors.append(f"JDK {name}, {event}: {mine} is not {text}")
                break
        print(f"JDK {name}, {event}: {len(ours)} samples as jfr's text, {len(times)} with times,"
              f" {len({one[3] for one in ours})} stacks")
    if not any(one[3][-1:] and len(one[3]) > 64 for one in theirs):
        print("(no deep stack was sampled)")
    return recording


def check_refusals(recording):
    bare = folder / "bare"
    bare.mkdir()
    cut, other = folder / "cut.jfr", folder / "renamed"
    cut.write_bytes(recording.read_bytes()[:200])
    shutil.copy(recording, other)
    done = run(command, "report", recording, env={**os.environ, "PATH": str(bare)})
    if done.returncode != 3 or b"PATH has no jfr. Way out: install openjdk-17-jdk-headless" not in done.stderr:
        errors.append(f"without jfr: {done.returncode}: {done.stderr}")
    done = run(command, "report", cut)
    if done.returncode != 1 or b"jfr cannot read the recording" not in done.stderr:
        errors.append(f"a damaged recording: {done.returncode}: {done.stderr}")
    whole = run(command, "report", recording).stdout
    if run(command, "report", other).stdout != whole or run(command, "report", "-", input=recording.read_bytes()).stdout != whole:
        errors.append("the name of the file changes what is reported")
    if b"\x1b[31m" in whole:
        errors.append("a thread's name drives the terminal")


def main():
    (folder / "Work.java").write_text(SOURCE)
    found = {path.resolve().parent for path in pathlib.Path("/usr/lib/jvm").glob("*/bin/jfr")}
    if not found or not shutil.which("jfr"):
        print("SKIPPED: jfr is not installed")
        return
    recording = None
    for place in sorted(found):
        number = re.search(r'"(\d+)', run(place / "java", "-version").stderr.decode())[1]
        recording = check(number, place / "java", place / "jfr") or recording
    if recording:
        check_refusals(recording)


main()
shutil.rmtree(folder, ignore_errors=True)
print("\n".join(errors))
sys.exit(bool(errors))
