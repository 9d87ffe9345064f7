#!/usr/bin/python3
"""Searches the site as a reader does.  check_search.py OUT

OUT/html is the site that check_site.py has made. A server of this script offers it to headless Chromium. At a wide and at a
narrow window the script clicks at the search, types a word, and follows the first result. For example, "registrar" must lead
to a page on which that word is marked. Fails if a word finds nothing, if nonsense finds something, if a result cannot be
clicked, or if the site asks the server for a file that is not there.
"""
import contextlib
import functools
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WINDOWS = {"wide": (1280, 800), "narrow": (390, 844)}
WORDS = ("registrar", "truncated", "safepoint")  # of the C++ interface, of profiles, of runtimes
NONSENSE = "xyzzyplugh"
PATIENCE = 20  # seconds for one condition
ATTEMPTS = 3  # loads of a page


class Server(http.server.SimpleHTTPRequestHandler):
    missing = []

    def log_message(self, *arguments):
        pass

    def send_error(self, code, *arguments, **more):
        self.missing.append(f"{self.path}: {code}")
        super().send_error(code, *arguments, **more)


class Browser:
    """Chromium by its debugging pipe: a message of JSON ends with a NUL (--remote-debugging-pipe)."""

    def __init__(self, program, profile):
        to_browser, self.to = os.pipe()
        self.back, from_browser = os.pipe()

        def give_pipes():  # the browser reads descriptor 3 and writes descriptor 4
            lower, upper = os.dup(to_browser), os.dup(from_browser)
            os.dup2(lower, 3)
            os.dup2(upper, 4)

        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                   "--disable-component-update", "--disable-sync", f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(command, close_fds=False, preexec_fn=give_pipes, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.rest, self.session = 0, b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                piece = os.read(self.back, 1 << 16)
                if not piece:
                    sys.exit("the browser has ended")
                self.rest += piece
            answer, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise LookupError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, what, expression):
        """The first value that is not empty."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(LookupError):  # for example, the page is left for another one at this moment
                if value := self.value(expression):
                    return value
            time.sleep(0.05)
        raise LookupError(what)

    def open(self, url, size):
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call("Page.navigate", url=url)
        self.wait(f"{url} does not load", f"document.readyState == 'complete' && location.href == '{url}'")

    def click(self, selector):
        """Where a reader would: on the middle of what is in sight there."""
        self.wait(f"{selector} is not in sight", f"""(() => {{
            const box = document.querySelector('{selector}')?.getBoundingClientRect();
            const now = box && JSON.stringify([box.x, box.y]), rests = window.last == now;
            window.last = now;
            const at = box && rests && document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
            return at && at.closest('{selector}') && (window.place = [box.x + box.width / 2, box.y + box.height / 2]);
        }})()""")
        x, y = self.value("window.place")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text):
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", key=letter, text=letter)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def end(self):
        os.close(self.to)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def search(browser, site, window, size, word):
    """How many results there are."""
    browser.open(f"{site}/index.html?{window}={word}", size)
    # A letter that is typed in the moment in which the index arrives takes its place in mkdocs-material 8.2.5, for good.
    browser.wait("the index does not load",
                 "performance.getEntriesByType('resource').some(e => e.name.includes('search_index') && e.responseEnd)")
    if window == "narrow":
        browser.click('label.md-header__button[for="__search"]')
    browser.click("input.md-search__input")
    browser.type(word)
    if word == NONSENSE:
        browser.wait("the search does not say that it finds nothing",
                     "/^No match/.test(document.querySelector('.md-search-result__meta')?.textContent.trim())")
        return 0
    count = browser.wait("nothing is found", f"""(() => {{  // by the word, or by most of its letters on a busy machine
        const links = document.querySelectorAll('.md-search-result__link');
        const by = links.length ? new URL(links[0].href).searchParams.get('h') ?? '' : '';
        return (by.includes('{word}') || (by.length > 3 && '{word}'.startsWith(by))) && links.length;
    }})()""")
    browser.click(".md-search-result__link")
    browser.wait("the first result cannot be followed", "new URL(location).searchParams.has('h')")
    browser.wait("the word is not marked on the page of the first result",
                 f"[...document.querySelectorAll('mark')].some(m => '{word}'.startsWith(m.textContent.toLowerCase()))")
    return count


def search_all(browser, site):
    errors = []
    for window, size in WINDOWS.items():
        for word in (*WORDS, NONSENSE):
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    print(f"{window}: {word}: {search(browser, site, window, size, word)} results", flush=True)
                    break
                except LookupError as error:
                    print(f"{window}: {word}: {error}", flush=True)
                    if attempt == ATTEMPTS:
                        errors.append(f"{window}: {word} cannot be searched")
    return errors


def main(out):
    folder = out / "html"
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if not browser or not (folder / "search/search_index.json").is_file():
        print("SKIPPED: " + ("there is no chromium" if not browser else f"{folder} has not been made"))
        return 0
    handler = functools.partial(Server, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory(prefix="windlass-search-", ignore_cleanup_errors=True) as profile:
        browser = Browser(browser, profile)
        try:
            errors = search_all(browser, site)
        finally:
            browser.end()
    server.shutdown()
    errors += [f"the site asked for {path}" for path in sorted(set(Server.missing))]
    for error in errors:
        print(error)
    print(f"{len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
