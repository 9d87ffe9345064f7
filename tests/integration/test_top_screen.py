#!/usr/bin/python3
"""Does `windlass top` show what runs?  test_top_screen.py COMMAND WORKLOAD

On a terminal of its own (pyte draws it), and as text. The workload computes in functions that are known. Where sampling is not
allowed, or pyte is not there, the rest counts as skipped.
"""
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

command, workload = sys.argv[1:3]
errors = []


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(0)


try:
    import pyte
except ImportError:
    skip("there is no pyte")


def expect(fits, text):
    if not fits:
        errors.append(text)


class Top:
    """windlass top on a terminal of so many columns and lines."""

    def __init__(self, *words, columns=80, lines=24, environment=None):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.written = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(environment or {})})
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.execv(command, [command, "top", *words])

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.terminal], [], [], left)[0]:
                continue
            try:
                data = os.read(self.terminal, 65536)
            except OSError:
                return
            self.written += data
            self.stream.feed(data)

    def text(self):
        return "\n".join(self.screen.display)

    def wait_for(self, what, seconds=30):
        """Until the screen has it, an expression; the screen is an error if it does not come."""
        end = time.monotonic() + seconds
        while not re.search(what, self.text()):
            if time.monotonic() > end:
                errors.append(f"no {what!r} on the screen:\n{self.text()}")
                return False
            self.read(0.2)
        return True

    def press(self, keys):
        os.write(self.terminal, keys.encode())

    def resize(self, columns, lines):
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self, keys="q"):
        """The exit status, once the command has left."""
        if keys:
            self.press(keys)
        end = time.monotonic() + 20
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.read(0.2)
                os.close(self.terminal)
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                os.kill(self.pid, 9)
                errors.append("it does not end")
            self.read(0.1)


def batch(*words, **more):
    return subprocess.run([command, "top", *words], text=True, capture_output=True, timeout=100, **more)


def check_text(pid):
    done = batch("--batch", "3", "--rows", "5", "-p", pid)
    pages = done.stdout.split("\n\n")
    expect(done.returncode == 0 and len(pages) == 3, f"three pages: {done.returncode} {done.stdout} {done.stderr}")
    expect(all(re.search(r"^cpu +[\d.]+ samples/s +", page) for page in pages), f"a line of sums: {done.stdout}")
    expect(" whole  " in pages[-1], f"the share of whole stacks: {done.stdout}")
    expect(re.search(r"^ *\d+\.\d\d% .*  burn .* busy", pages[-1], re.M), f"the function that works: {pages[-1]}")
    expect("\x1b" not in done.stdout, "no colours in text")
    done = batch("--batch", "2", "-p", pid, "--filter", "MIDD")
    expect(re.search(r"^  0\.00% .*  middle", done.stdout, re.M), f"the filter keeps middle: {done.stdout}")
    expect("burn" not in done.stdout, "the filter leaves burn out")
    done = batch("--batch", "2", "-p", pid, "--view", "tree")
    expect(re.search(r"- busy\n.*\n(.*\n)*.*- middle\n.* burn", done.stdout), f"the tree: {done.stdout}")
    done = batch("--batch", "2", "-p", pid, "--view", "labels", "--label", "stage=first")
    expect(re.search(r"100\.00%  stage +first", done.stdout), f"the label: {done.stdout}")
    done = batch("--window", "2", "--rows", "3", "--", workload, "3")  # not a terminal: until the command's end
    expect(re.search(r"^ *\d\d\d?\.\d\d% .*  burn", done.stdout, re.M), f"a command: {done.stdout} {done.stderr}")
    expect("burnt" not in done.stdout, "the command's output is not shown")
    expect(" 2 s " in done.stdout and " 3 s " not in done.stdout, f"the window: {done.stdout}")


def check_terminal(pid, folder):
    top = Top("-p", pid)
    if top.wait_for(r"\d\d\.\d\d% .*  burn +busy"):
        top.press("2")
        top.wait_for(rf"100\.00% +{pid}  busy")
        top.press("3")
        top.wait_for(r"- middle")
        top.press("/burn\r")
        top.wait_for(r"/burn")
        top.press("\x1b")
        top.read(0.3)
        top.press("1s")
        top.wait_for(r"\[functions\].*by total\s")
        top.press("p")
        top.wait_for(r"PAUSED")
        top.press("pt")
        top.wait_for(r"since start")
        top.press("?")
        top.wait_for(r"any key leaves this page")
        top.press(" ")
        top.resize(50, 12)
        top.wait_for(r"cpu  [\d.]+ samples/s  \S+% whole  \d+ s since start")
        top.wait_for(r"\d\d\.\d\d% .*  burn")
        expect(len(top.screen.display) == 12, "twelve lines")
        file = folder / "top.pb.gz"
        top.press("w" + "\x7f" * 40 + f"{file}\r")
        top.wait_for(r"wrote ")
        report = subprocess.run([command, "report", str(file)], text=True, capture_output=True, timeout=60)
        expect("burn" in report.stdout, f"the profile: {report.stdout} {report.stderr}")
        expect(b"\x1b[31m" in top.written, "shares are red")
    expect(top.end() == 0, "q ends it")
    expect(top.written.rstrip().endswith(b"\x1b[?1l\x1b>") or b"\x1b[?1049l" in top.written, "the terminal is given back")


def check_end(pid):
    top = Top("-p", pid, environment={"NO_COLOR": "1"})
    top.wait_for(r"burn")
    expect(not re.search(rb"\x1b\[3\dm", top.written), "no colours with NO_COLOR")
    os.kill(top.pid, 2)
    expect(top.end(keys="") == 0, "a signal ends it")
    top = Top("--", workload, "1")
    top.wait_for(r"the recording has ended")
    expect("burnt" not in top.text(), "the command's output is not shown")
    expect(top.end() == 0, "q ends it")
    top = Top("-p", pid, environment={"TERM": "no-such-terminal"})  # by the description that the command has itself
    top.wait_for(r"\d\d\.\d\d% .*  burn +busy")
    top.press("\x1b[B")
    top.press("2")
    top.wait_for(rf"100\.00% +{pid}  busy")
    expect(b"\x1b[31m" in top.written, "colours on an unknown terminal")
    expect(top.end() == 0, "q ends it")
    top = Top("-p", pid, environment={"TERM": "vt100"})
    top.wait_for(r"burn")
    expect(not re.search(rb"\x1b\[3\dm", top.written), "no colours on a terminal without")
    expect(top.end() == 0, "q ends it")
    top = Top("--", workload, "100", environment={"TERM": "dumb"})
    expect(top.end(keys="") == 3, "a terminal that cannot place text is refused")
    expect(b"the terminal 'dumb' (TERM) cannot place text" in top.written, "the message names the terminal")


def check_names(folder):
    """Of threads: one that takes two columns a character, and one that would drive the terminal."""
    for name, seen in (("\u8a08\u7b97", "\u8a08\u7b97"), ("a\x1b[31mb", "a\\x1b[31mb")):
        program = folder / "named"
        shutil.copy(workload, program)
        child = subprocess.Popen([program, "60", name], stdout=subprocess.DEVNULL)
        top = Top("-p", str(child.pid), columns=60, environment={"NO_COLOR": "1"})
        top.press("2")
        top.wait_for(r"100\.00% +\d+  \S")
        # pyte puts an empty cell behind a wide character
        expect(seen in top.text().replace(seen[0] + " ", seen[0]), f"{seen!r}:\n{top.text()}")
        expect(b"\x1b[31m" not in top.written, f"{name!r} drives the terminal")
        top.end()
        child.kill()
        child.wait()


probe = batch("--batch", "1", "--", "true")
if probe.returncode == 3:
    skip(f"no privilege to sample: {probe.stderr.strip()}")
with tempfile.TemporaryDirectory() as name:
    scratch = pathlib.Path(name)
    busy = subprocess.Popen([workload, "300"], stdout=subprocess.DEVNULL)
    try:
        check_text(str(busy.pid))
        check_terminal(str(busy.pid), scratch)
        check_end(str(busy.pid))
        check_names(scratch)
    finally:
        busy.kill()

print("\n".join(errors) or "functions, processes, tree and labels, on a terminal and as text")
sys.exit(1 if errors else 0)
