#!/usr/bin/env python3
"""browser.py PAGE STEPCAST [--times] [--pictures DIR]: the page, opened from disk in a headless Chromium without a network.

It shows the executable's step to the last digit for every workload, refuses as the executable does, draws the timeline and
the placement, compares with a pinned forecast, searches plans and takes one over, and writes no error to the console.
"""
import base64
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

page, executable = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
times = "--times" in sys.argv
pictures = pathlib.Path(sys.argv[sys.argv.index("--pictures") + 1]) if "--pictures" in sys.argv else None
driver_program = shutil.which("chromedriver")
for missing, found in [(f"no {page}; scripts/web builds it", page.exists()), ("no chromedriver (Debian: chromium-driver)", driver_program)]:
    if not found:
        print("skipped:", missing)
        sys.exit(77)


class Browser:
    def __init__(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.process = subprocess.Popen([driver_program, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                urllib.request.urlopen(self.url + "/status", timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1400,1000"]}
        answer = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.url += "/session/" + answer["sessionId"]

    def ask(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
        try:
            return json.load(urllib.request.urlopen(request, timeout=900))["value"]
        except urllib.error.HTTPError as e:
            raise RuntimeError(e.read().decode()[:600]) from None

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *args):
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def later(self, script):
        """What the script hands to arguments[0]."""
        return self.ask("POST", "/execute/async", {"script": script, "args": []})

    def devtools(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def wait(self, script, seconds=240):
        end = time.time() + seconds
        while time.time() < end:
            value = self.run("return " + script)
            if value:
                return value
            time.sleep(0.05)
        raise RuntimeError(f"after {seconds} s still not: {script}; the page says: {self.run('return document.body.dataset.state + document.getElementById(`status`)?.textContent')}")

    def close(self):
        try:
            self.ask("DELETE", "")
        finally:
            self.process.terminate()
            self.process.wait()


failures = []


def expect(good, what):
    if not good:
        failures.append(what)
        print("FAILED:", what)


def predicted(keys):
    sets = [x for k, v in keys.items() for x in ("--set", f"{k}={v}")]
    run = subprocess.run([executable, "predict", *sets, "--format", "json"], capture_output=True, text=True)
    return json.loads(run.stdout) if run.stdout else run.stderr


def hash_of(keys):
    return "#" + urllib.parse.urlencode(keys)


def show(browser, keys):
    """The step that the page shows for the keys, or what it says against them."""
    browser.run("document.body.dataset.state = 'asked'; location.hash = arguments[0]", hash_of(keys))
    browser.wait("['drawn', 'refused', 'broken'].includes(document.body.dataset.state)")
    data = browser.run("return {...document.body.dataset}")
    return data if data["state"] == "drawn" else browser.run("return document.getElementById('status').textContent")


def picture(browser, name, width=1280, height=860, dark=False, scroll=None):
    if pictures is None:
        return
    browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
    browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
    time.sleep(0.5)
    browser.run("scrollTo(0, 0)")
    if scroll:
        browser.run("[...document.querySelectorAll('h2')].find(h => h.textContent.startsWith(arguments[0])).parentElement.scrollIntoView()", scroll)
    time.sleep(0.4)
    (pictures / f"{name}.png").write_bytes(base64.b64decode(browser.ask("GET", "/screenshot")))


def check_workloads(browser):
    names = [e["name"] for e in json.loads(subprocess.run([executable, "list", "workloads", "--format", "json"], capture_output=True, text=True, check=True).stdout)]
    expect(len(names) >= 40, "the executable lists the zoo")
    slow = []
    for name in names:
        keys = {"workload": name, "system": "dgx-h100", "devices": 8}
        expected, data = predicted(keys), show(browser, keys)
        if isinstance(expected, str):
            expect(isinstance(data, str) and data.strip() in expected, f"{name}: the page says {data}, the executable {expected}")
            continue
        expect(isinstance(data, dict) and float(data["step"]) == expected["iteration_time_s"], f"{name}: the page shows {data}, the executable {expected['iteration_time_s']}")
        if isinstance(data, dict):
            shown = browser.run("return document.getElementById('forecast').textContent")
            expect(all(w in shown for w in expected["warnings"]), f"{name}: the page warns {shown}, the executable {expected['warnings']}")
            slow.append((float(data["milliseconds"]), name))
    if times:
        for ms, name in sorted(slow):
            print(f"{name}: {ms:.0f} ms")


def check_refusal(browser):
    keys = {"workload": "llama3-8b", "system": "dgx-h100", "devices": 8, "parallel.tensor": 3}
    said = show(browser, keys)
    expect(isinstance(said, str) and said.strip() in predicted(keys), f"a job that cannot be: {said}")


def check_broken(browser):
    """An engine that breaks off is told and opened anew."""
    keys = {"workload": "rm1", "system": "dgx-h100", "devices": 8}
    browser.run("""const post = Worker.prototype.postMessage;
      Worker.prototype.postMessage = function ({ id }) {
        Worker.prototype.postMessage = post;
        this.onmessage({ data: { id, broken: "no memory" } });
      };""")
    said = show(browser, keys)
    expect(isinstance(said, str) and "no memory" in said, f"an engine that broke off: {said}")
    found = show(browser, {**keys, "devices": 16})
    expect(isinstance(found, dict), f"the engine after one that broke off: {found}")


def paste(browser, document):
    browser.run("""document.querySelector('#paste').value = arguments[0];
      document.body.dataset.state = 'asked';
      [...document.querySelectorAll('button')].find(b => b.textContent === 'use this text').click()""", json.dumps(document))
    browser.wait("['drawn', 'refused', 'broken'].includes(document.body.dataset.state)")
    return browser.run("return document.body.dataset.state === 'drawn' ? Number(document.body.dataset.step) : document.getElementById('status').textContent")


def check_paste(browser):
    job = {"workload": "llama2-7b", "system": "dgx-a100-80gb", "devices": 16, "parallel": {"tensor": 2}}
    expected = predicted({"workload": "llama2-7b", "system": "dgx-a100-80gb", "devices": 16, "parallel.tensor": 2})["iteration_time_s"]
    for document in [job, {"kind": "parallel", "job": job}]:
        found = paste(browser, document)
        expect(found == expected, f"a pasted job or plan: {found}, the executable {expected}")
        expect("parallel.tensor=2" in browser.run("return document.getElementById('command').textContent"), "the command line of a pasted job")
    keys = {"workload": "rm1", "system": "dgx-h100", "devices": 8}
    sets = [x for k, v in keys.items() for x in ("--set", f"{k}={v}")]
    plans = json.loads(subprocess.run([executable, "plan", *sets, "--top", "1", "--effort", "quick", "--format", "json"], capture_output=True, text=True, check=True).stdout)
    found = paste(browser, plans["plans"][0])
    expect(found == plans["plans"][0]["predicted_step_s"], f"a pasted embedding plan: {found}, as planned {plans['plans'][0]['predicted_step_s']}")


def check_pipeline(browser):
    show(browser, {"workload": "llama3-8b", "system": "dgx-h100", "devices": 16, "parallel.pipeline": 4, "parallel.tensor": 2, "batch.global": 64})
    lanes = browser.run("return document.querySelectorAll('svg.timeline > text.axis').length")
    expect(lanes >= 4, f"a lane for each stage, found {lanes} texts")
    before = browser.run("return document.querySelector('svg.timeline').innerHTML")
    browser.run("document.querySelector('svg.timeline').dispatchEvent(new KeyboardEvent('keydown', {key: '+', bubbles: true}))")
    expect(before != browser.run("return document.querySelector('svg.timeline').innerHTML"), "the plus key zooms the timeline")
    browser.run("document.querySelector('svg.timeline').dispatchEvent(new KeyboardEvent('keydown', {key: '0', bubbles: true}))")
    picture(browser, "web-timeline", height=620, scroll="Timeline")


def check_pin(browser):
    keys = {"workload": "llama3-8b", "system": "dgx-h100", "devices": 16, "parallel.tensor": 2}
    show(browser, keys)
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'pin this forecast').click()")
    show(browser, {**keys, "parallel.recompute": "full"})
    browser.wait("[...document.querySelectorAll('h3')].some(h => h.textContent === 'Change by change')")
    said = browser.run("return [...document.querySelectorAll('section')].find(s => s.textContent.startsWith('Against')).textContent")
    expect("longer" in said, f"recomputing takes longer: {said[:200]}")
    picture(browser, "web-what-if", height=760, scroll="Against")
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'forget the pinned forecast').click()")


def check_search(browser):
    large = {"workload": "gpt3-175b", "system": "dgx-a100-80gb", "devices": 64}
    show(browser, large if times or pictures else {"workload": "llama3-8b", "system": "dgx-h100", "devices": 8})
    begin = time.time()
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'search plans').click()")
    browser.wait("[...document.querySelectorAll('button')].some(b => b.textContent === 'use')", 900)
    if times:
        print(f"plans of gpt3-175b on 64 devices: {time.time() - begin:.1f} s; " + browser.run("return [...document.querySelectorAll('p')].find(p => p.textContent.includes('plans searched')).textContent"))
    expect(browser.run("return document.querySelectorAll('circle.dot').length") > 1, "the front is drawn")
    picture(browser, "web-plans", height=860, scroll="Plans")
    browser.run("document.body.dataset.state = 'asked'; document.querySelector('circle.dot').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    browser.wait("document.body.dataset.state === 'drawn'")
    expect("parallel.pipeline=" in browser.run("return location.hash"), "a click on the front takes the plan over")


def check_sweep(browser):
    keys = {"workload": "llama3-8b", "system": "dgx-h100", "parallel.zero": 3}
    show(browser, {**keys, "devices": 8})
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'sweep').click()")
    said = browser.wait("[...document.querySelectorAll('p')].find(p => p.textContent.includes('forecasts in'))?.textContent")
    expect(said.startswith("4 forecasts"), f"a sweep of four points: {said}")
    expected = predicted({**keys, "devices": 16})["iteration_time_s"]
    shown = browser.run("return [...document.querySelectorAll('td')].find(td => td.textContent === 'devices=16').parentElement.children[2].textContent")
    expect(abs(float(shown.split()[0]) / expected - 1) < 0.01, f"16 devices take {expected} s, the sweep shows {shown}")
    expect(browser.run("return document.querySelectorAll('section svg circle[r=\"4.5\"]').length") == 4, "a dot for each point")
    picture(browser, "web-sweep", height=700, scroll="Sweep")
    browser.run("""document.body.dataset.state = 'asked';
      [...document.querySelectorAll('td')].find(td => td.textContent === 'devices=32').parentElement.querySelector('button').click()""")
    browser.wait("document.body.dataset.state === 'drawn'")
    expect("devices=32" in browser.run("return location.hash"), "a point of the sweep is taken over")


def check_axe(browser):
    """axe-core (scripts/setup --web) finds no serious fault, light and dark, wide and on a phone."""
    axe = pathlib.Path(__file__).resolve().parents[2] / "build" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.exists():
        print("axe-core is not installed: its rules were not checked")
        return
    show(browser, {"workload": "mlperf-dlrm-v2", "system": "dgx-h100", "devices": 8})
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.run(axe.read_text())
    for dark, width in [(False, 1280), (True, 1280), (False, 390)]:
        browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        time.sleep(0.5)  # pictures are drawn anew
        faults = browser.later("axe.run().then(r => arguments[0](r.violations.map(v => [v.impact, v.id, v.nodes.length, v.nodes[0].html.slice(0, 160)])))")
        rules = browser.run("return axe.version")
        serious = [f for f in faults if f[0] in ("serious", "critical")]
        expect(not serious, f"axe-core {rules}, {'dark' if dark else 'light'}, {width} wide: {serious}")
    browser.devtools("Emulation.setEmulatedMedia", features=[])
    browser.devtools("Emulation.clearDeviceMetricsOverride")


def check_placement(browser):
    show(browser, {"workload": "mlperf-dlrm-v2", "system": "dgx-h100", "devices": 8, "embedding.plan": "search"})
    expect(browser.run("return document.querySelectorAll('section:not([hidden]) rect[fill-opacity]').length") >= 26, "every table has a cell in the heat map")
    picture(browser, "web-placement", height=900, scroll="Placement")


def check_table_plan(browser):
    show(browser, {"workload": "rm1", "system": "dgx-h100", "devices": 8})
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'search plans').click()")
    browser.wait("[...document.querySelectorAll('th')].some(h => h.textContent === 'found by')")
    browser.run("""document.body.dataset.state = 'asked';
      [...document.querySelectorAll('button')].find(b => b.textContent === 'use').click()""")
    browser.wait("['drawn', 'refused', 'broken'].includes(document.body.dataset.state)")
    expect(browser.run("return document.body.dataset.state") == "drawn", "a plan of tables is taken over: " + browser.run("return document.getElementById('status').textContent"))
    expect("embedding.plan=" in browser.run("return location.hash"), "a plan of tables stands in the address")


def check_names(browser):
    """What a screen reader says: every control has a name."""
    nameless = browser.run("""return [...document.querySelectorAll('button, select, input, textarea, a, [role=button], svg[role]')]
      .filter(e => !e.closest('[hidden]') && !e.getAttribute('aria-label') && !e.textContent.trim() && !(e.labels && e.labels.length))
      .map(e => e.outerHTML.slice(0, 120))""")
    expect(not nameless, f"controls without a name: {nameless}")
    twice = browser.run("const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.filter((id, i) => ids.indexOf(id) !== i)")
    expect(not twice, f"ids that stand twice: {twice}")


def check_narrow(browser):
    show(browser, {"workload": "llama3-70b", "system": "dgx-h100", "devices": 64})
    browser.devtools("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    time.sleep(0.5)
    expect(browser.run("return document.documentElement.scrollWidth <= innerWidth"), "no sideways scrolling on a phone")
    browser.devtools("Emulation.clearDeviceMetricsOverride")


browser = Browser()
try:
    begin = time.time()
    browser.open(page.as_uri())
    browser.wait("document.body.dataset.state === 'drawn'")
    if times:
        print(f"from nothing to the first forecast drawn: {time.time() - begin:.2f} s; module, data and lists: {float(browser.run('return document.body.dataset.opened')) / 1000:.2f} s; "
              + browser.run("const m = performance.getEntriesByType('navigation')[0]; return `page parsed after ${Math.round(m.domContentLoadedEventEnd)} ms`"))
    checks = [check_workloads, check_refusal, check_broken, check_paste, check_pipeline, check_pin, check_search, check_sweep, check_placement, check_table_plan, check_names, check_axe, check_narrow]
    for check in checks:
        check(browser)
    if pictures:
        browser.run("location.reload()")  # nothing pasted
        browser.wait("document.body.dataset.state === 'drawn'")
        for devices in (256, 512):
            show(browser, {"workload": "llama3-70b", "system": "dgx-h100", "devices": devices, "parallel.tensor": 8, "parallel.pipeline": 4})
        picture(browser, "web-forecast")
        picture(browser, "web-dark", dark=True)
        browser.devtools("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
        browser.run("location.reload()")
        browser.wait("document.body.dataset.state === 'drawn'")
        picture(browser, "web-phone", width=390, height=1100)
    errors = [entry["message"] for entry in browser.ask("POST", "/se/log", {"type": "browser"}) if entry["level"] == "SEVERE"]
    expect(not errors, f"errors on the console: {errors[:5]}")
finally:
    browser.close()
print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
