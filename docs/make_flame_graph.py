#!/usr/bin/python3
"""Makes docs/flame-graph.png, the picture of the README: the HTML page of a real recording, as Chromium shows it.

make_flame_graph.py [BUILD]     BUILD: a release build (build/release)

Records the workload standard_library for 4 s, which needs the rights of `windlass record`. Refuses a picture above 150 KB.
"""
import base64
import collections
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from check_search import Browser
PICTURE = ROOT / "docs/flame-graph.png"
WIDTH, HEIGHT = 1200, 640
MOST_BYTES = 150 * 1024
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def unfiltered(data, width, height, pixel):
    """The rows of an inflated PNG (PNG specification, 9.2)."""
    stride = width * pixel
    prior = bytearray(stride)
    for y in range(height):
        at = y * (stride + 1)
        kind, row = data[at], bytearray(data[at + 1 : at + 1 + stride])
        for i in range(stride):
            left = row[i - pixel] if i >= pixel else 0
            above = prior[i]
            corner = prior[i - pixel] if i >= pixel else 0
            if kind == 1:
                row[i] = (row[i] + left) & 255
            elif kind == 2:
                row[i] = (row[i] + above) & 255
            elif kind == 3:
                row[i] = (row[i] + (left + above) // 2) & 255
            elif kind == 4:
                guess = left + above - corner
                row[i] = (row[i] + min((left, above, corner), key=lambda value: abs(guess - value))) & 255
        yield row
        prior = row


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def with_palette(png):
    """The same picture in its 256 most frequent colours: a third of the bytes."""
    at, header, packed = 8, None, b""
    while at < len(png):
        size, name = struct.unpack(">I4s", png[at : at + 8])
        if name == b"IHDR":
            header = struct.unpack(">IIBBBBB", png[at + 8 : at + 8 + size])
        elif name == b"IDAT":
            packed += png[at + 8 : at + 8 + size]
        at += size + 12
    width, height, depth, kind, _, _, interlaced = header
    pixel = {2: 3, 6: 4}.get(kind)
    if depth != 8 or pixel is None or interlaced:
        sys.exit("the browser's PNG has another form than 8 bits of RGB or RGBA")
    rows = []
    for row in unfiltered(zlib.decompress(packed), width, height, pixel):
        rows.append([tuple(row[i : i + 3]) for i in range(0, len(row), pixel)])
    counts = collections.Counter(colour for row in rows for colour in row)
    palette = [colour for colour, _ in counts.most_common(256)]
    distance = lambda a, b: sum((x - y) ** 2 for x, y in zip(a, b))
    index = {colour: number for number, colour in enumerate(palette)}
    for colour in counts:
        if colour not in index:
            index[colour] = min(range(len(palette)), key=lambda number: distance(palette[number], colour))
    data = b"".join(b"\0" + bytes(index[colour] for colour in row) for row in rows)
    return (png[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
            + chunk(b"PLTE", bytes(value for colour in palette for value in colour))
            + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def main(arguments):
    build = pathlib.Path(arguments[0] if arguments else ROOT / "build/release").resolve()
    windlass, workload = build / "src/cli/windlass", build / "workloads/standard_library"
    browser = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if not browser or not windlass.exists() or not workload.exists():
        sys.exit(f"this needs Chromium, {windlass} and {workload}")
    with tempfile.TemporaryDirectory() as folder:
        here = dict(cwd=folder, check=True, env={**os.environ, "PATH": f"{workload.parent}:{os.environ['PATH']}"})
        subprocess.run([windlass, "record", "-F", "997", "-o", "profile.pb.gz", "--", workload.name, "4"], **here)
        page = pathlib.Path(folder) / "page.html"
        with page.open("wb") as out:
            subprocess.run([windlass, "report", "--html", "profile.pb.gz"], stdout=out, **here)
        shown = Browser(browser, f"{folder}/browser")
        shown.call("Emulation.setScrollbarsHidden", hidden=True)
        shown.open(f"file://{page}", (WIDTH, HEIGHT))
        shown.wait("the page does not draw", "document.querySelectorAll('.frame').length")
        png = with_palette(base64.b64decode(shown.call("Page.captureScreenshot")["data"]))
        shown.end()
    if len(png) > MOST_BYTES:
        sys.exit(f"the picture has {len(png)} bytes, more than {MOST_BYTES}")
    PICTURE.write_bytes(png)
    print(f"{PICTURE}: {len(png)} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
