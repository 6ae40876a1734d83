#!/usr/bin/env python3
"""browser.py PAGE STEPCAST [--times] [--pictures DIR]: the page, opened from disk in a headless Chromium without a network.

It opens on a plan that fits and shows the executable's step to the last digit for every workload; every plan and every fix is
applied as it was shown; it refuses as the executable does, answers to every pasted text, draws the timeline and the placement,
sets forecasts side by side, can be used by keyboard alone, and writes no error to the console.
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
            expect(all(w in shown for w in expected["warnings"] if expected["fits"]), f"{name}: the page warns {shown}, the executable {expected['warnings']}")
            plan = dict(s.split("=", 1) for s in expected.get("set", []))
            given = show(browser, keys | plan) if times and plan else data
            slow.append((float(data["milliseconds"]), float(given["milliseconds"]) if isinstance(given, dict) else None, name))
    if times:
        for chosen, given, name in sorted(slow):
            print(f"{name}: {chosen:.0f} ms, with its plan given {'refused' if given is None else f'{given:.0f} ms'}")


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
      [...document.querySelectorAll('button')].find(b => b.textContent === 'use this text').click()""", document if isinstance(document, str) else json.dumps(document))
    browser.wait("['drawn', 'refused', 'broken'].includes(document.body.dataset.state)")
    return browser.run("return document.body.dataset.state === 'drawn' ? Number(document.body.dataset.step) : document.getElementById('told').textContent")


def click(browser, text, number=0):
    """Presses a button and waits for the forecast that it asks for."""
    browser.run("""document.body.dataset.state = 'asked';
      [...document.querySelectorAll('button')].filter(b => b.textContent === arguments[0])[arguments[1]].click()""", text, number)
    browser.wait("['drawn', 'refused', 'broken'].includes(document.body.dataset.state)")
    return browser.run("return document.body.dataset.state === 'drawn' ? Number(document.body.dataset.step) : document.getElementById('status').textContent")


def same_step(found, shown):
    return isinstance(found, (int, float)) and abs(found / shown - 1) < 1e-9


def check_first(browser):
    """Who opens the page sees a forecast that fits."""
    browser.run("history.replaceState(null, '', location.pathname)")
    browser.run("document.body.dataset.state = 'asked'; dispatchEvent(new Event('hashchange'))")
    browser.wait("document.body.dataset.state === 'drawn'")
    expect(not browser.run("return document.querySelector('.fact.bad')?.textContent"), "the page opens on a plan that fits")
    picture(browser, "web-forecast")


def check_fixes(browser):
    """Every fix of a job that does not fit, pressed, gives the step that stands beside it."""
    for keys in [{"workload": "llama3-8b", "system": "dgx-h100", "devices": 64, "parallel.zero": 0}, {"workload": "llama3-70b", "system": "dgx-h100", "devices": 64, "parallel.tensor": 4}]:
        expected = predicted(keys)
        fixes = expected.get("fixes", [])
        expect(fixes, f"{keys}: a fix is known: {expected.get('warnings')}")
        for number, fix in enumerate(fixes):
            show(browser, keys)
            browser.wait("document.querySelectorAll('.fix button').length > 0")
            label = browser.run("return [...document.querySelectorAll('.fix button')][arguments[0]].textContent", number)
            found = click(browser, label)
            expect(same_step(found, fix["step_s"]), f"{keys}: {label}: {found} s, promised {fix['step_s']}")


def check_paste(browser):
    job = {"workload": "llama2-7b", "system": "dgx-a100-80gb", "devices": 16, "parallel": {"tensor": 2}}
    expected = predicted({"workload": "llama2-7b", "system": "dgx-a100-80gb", "devices": 16, "parallel.tensor": 2})["iteration_time_s"]
    for document in [job, {"kind": "parallel", "job": job}]:
        found = paste(browser, document)
        expect(found == expected, f"a pasted job or plan: {found}, the executable {expected}")
        expect("--tp 2" in browser.run("return document.getElementById('command').textContent"), "the command line of a pasted job")
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 131072, "hidden_act": "silu", "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "rope_theta": 10000, "torch_dtype": "bfloat16"}
    system = {"name": "mine", "device": "h100-sxm-80gb", "fabric": [{"name": "nvlink", "size": 8, "bandwidth": "450 GB/s", "latency": "2 us"}, {"name": "ethernet", "size": 512, "bandwidth": "25 GB/s", "latency": "8 us"}], "host": {"devices": 8, "cores": 96}, "source": "data sheet"}
    arguments = "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 2 --vocab-size 32000 --bf16"
    for text, said in [(json.dumps(config), "sequences of 8,192 tokens (the model reads up to 131,072)"), (json.dumps(system), "Taken as a system (mine)"), (arguments, "Taken as arguments of Megatron-LM"),
                       ("https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main/config.json", "llama3-8b"), ("name,rows,dim,pooling\nuser,4000000,128,1\n", "a list of 1 embedding tables")]:
        found = paste(browser, text)
        told = browser.run("return document.getElementById('told').textContent")
        expect(isinstance(found, (int, float)) and said in told, f"pasted {text[:40]}: {found}; {told}")
    for text, said in [('{"a": 1,\n "b": ', "broken at line 2"), ("hello world", "none of"), ("https://huggingface.co/nobody/none", "fetches nothing"), ('{"answer": 42}', "answer")]:
        found = paste(browser, text)
        expect(isinstance(found, str) and said in found, f"pasted {text}: {found}")
    browser.run("document.getElementById('told').hidden = true")
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
    zoomed = browser.run("""const press = (key) => document.querySelector('svg.timeline').dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
      for (let i = 0; i < 12; i++) press('w');
      return [...document.querySelectorAll('svg.timeline > text.axis')].map(e => e.textContent).filter(t => / (s|ms|µs|ns)$/.test(t))""")
    expect(len(zoomed) > 1 and len(set(zoomed)) == len(zoomed), f"labels of the zoomed timeline differ: {zoomed}")
    browser.run("document.querySelector('svg.timeline').dispatchEvent(new KeyboardEvent('keydown', {key: '0', bubbles: true}))")
    browser.run("document.querySelector('svg.timeline').dispatchEvent(new KeyboardEvent('keydown', {key: '.', bubbles: true}))")
    expect("takes" in browser.run("return document.querySelector('.details').textContent"), "a block that is stepped to has its details")
    browser.run("document.querySelector('svg.timeline').dispatchEvent(new KeyboardEvent('keydown', {key: '0', bubbles: true}))")
    picture(browser, "web-timeline", height=620, scroll="Timeline")
    sent = browser.later("""const done = arguments[0], open = window.open;
      window.open = () => ({ postMessage(m) {
        if (m === 'PING') return dispatchEvent(new MessageEvent('message', { data: 'PONG', origin: 'https://ui.perfetto.dev' }));
        window.open = open;
        done(new TextDecoder().decode(m.perfetto.buffer));
      } });
      [...document.querySelectorAll('button')].find(b => b.textContent === 'open in Perfetto').click();""")
    expect(len(json.loads(sent)["traceEvents"]) > 100, "Perfetto gets the trace")


def check_pin(browser):
    keys = {"workload": "llama3-8b", "system": "dgx-h100", "devices": 16, "parallel.tensor": 2}
    show(browser, keys)
    browser.run("document.getElementById('pin-now').click()")
    show(browser, {**keys, "parallel.recompute": "full"})
    browser.run("document.getElementById('pin-now').click()")
    show(browser, {**keys, "devices": 32})
    browser.run("for (const [id, name] of [['compare-a', 'A'], ['compare-b', 'B']]) { const s = document.getElementById(id); s.value = name; s.dispatchEvent(new Event('change')); }")
    browser.wait("[...document.querySelectorAll('h3')].some(h => h.textContent === 'Change by change')")
    rows = browser.run("return [...document.querySelectorAll('table.sides tbody tr')].map(r => [...r.cells].map(c => c.textContent))")
    expect({"step", "memory", "tokens/s/GPU"} <= {r[0] for r in rows} and any(r[0].startswith("run of") for r in rows), f"figures side by side: {rows}")
    expect(rows[0][3].startswith("+"), f"recomputing takes longer: {rows[0]}")
    noise = browser.run("return [...document.querySelectorAll('text')].map(t => t.textContent).filter(t => / [pf]s$/.test(t))")
    expect(not noise, f"no float noise: {noise}")
    picture(browser, "web-what-if", height=900, scroll="Compare")
    for _ in range(2):
        browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'remove').click()")


def check_search(browser):
    large = {"workload": "gpt3-175b", "system": "dgx-a100-80gb", "devices": 64}
    show(browser, large if times or pictures else {"workload": "llama3-8b", "system": "dgx-h100", "devices": 8})
    begin = time.time()
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'search plans').click()")
    browser.wait("[...document.querySelectorAll('button')].some(b => b.textContent === 'use')", 900)
    if times:
        print(f"plans of gpt3-175b on 64 devices: {time.time() - begin:.1f} s; " + browser.run("return [...document.querySelectorAll('p')].find(p => p.textContent.includes('plans searched')).textContent"))
    browser.wait("document.querySelectorAll('circle.dot').length > 1", 900)  # the front
    promised = browser.run("return [...document.querySelectorAll('button')].filter(b => b.textContent === 'use').map(b => parseFloat(b.closest('tr').cells[0].title))")
    for number, step in enumerate(promised):
        found = click(browser, "use", number)
        expect(same_step(found, step), f"plan {number + 1} takes {found} s once it is used, shown were {step}")
    picture(browser, "web-plans", height=860, scroll="Plans")
    browser.run("document.body.dataset.state = 'asked'; document.querySelector('circle.dot').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    browser.wait("document.body.dataset.state === 'drawn'")
    expect("parallel.pipeline=" in browser.run("return location.hash"), "a click on the front applies the plan")


def check_sweep(browser):
    keys = {"workload": "llama3-8b", "system": "dgx-h100", "parallel.zero": 3}
    show(browser, {**keys, "devices": 8})
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'sweep').click()")
    said = browser.wait("[...document.querySelectorAll('p')].find(p => p.textContent.includes('forecasts in'))?.textContent")
    expect(said.startswith("4 forecasts"), f"a sweep of four points: {said}")
    expected = predicted({**keys, "devices": 16})["iteration_time_s"]
    shown = browser.run("return [...document.querySelectorAll('td')].find(td => td.textContent === 'devices=16').parentElement.children[2].textContent")
    expect(abs(float(shown.split()[0]) / expected - 1) < 0.01, f"16 devices take {expected} s, the sweep shows {shown}")
    expect(browser.run("return [...document.querySelectorAll('section')].find(s => s.firstChild.textContent === 'Sweep').querySelectorAll('circle').length") == 4, "a dot for each point")
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
    plans = json.loads(subprocess.run([executable, "plan", "rm1", "-n", "8", "--json"], capture_output=True, text=True, check=True).stdout)
    shown = browser.run("return [...document.querySelectorAll('th')].find(h => h.textContent === 'found by').closest('section').textContent")
    expect(plans["warnings"] and all(w in shown for w in plans["warnings"]), f"what is warned of plan 1: {plans['warnings']}")
    browser.run("""document.body.dataset.state = 'asked';
      [...document.querySelectorAll('button')].find(b => b.textContent === 'use').click()""")
    browser.wait("['drawn', 'refused', 'broken'].includes(document.body.dataset.state)")
    expect(browser.run("return document.body.dataset.state") == "drawn", "a plan of tables is taken over: " + browser.run("return document.getElementById('status').textContent"))
    expect("embedding.plan=" in browser.run("return location.hash"), "a plan of tables stands in the address")


def press(browser, *keys):
    for key in keys:
        named = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40}
        code = {"key": key, "windowsVirtualKeyCode": named.get(key, ord(key[0].upper()))} | ({} if key in named else {"text": key})
        if key == "Enter":
            code["text"] = "\r"
        browser.devtools("Input.dispatchKeyEvent", type="keyDown", **code)
        browser.devtools("Input.dispatchKeyEvent", type="keyUp", **{k: v for k, v in code.items() if k != "text"})


def reach(browser, test, most=200):
    """Presses Tab until what has the focus passes the test."""
    for _ in range(most):
        press(browser, "Tab")
        if browser.run(f"const e = document.activeElement; return {test}"):
            return True
    return False


def check_keyboard(browser):
    """From the skip link to a plan, a pin and the details of a block, by keys alone."""
    show(browser, {"workload": "llama3-8b", "system": "dgx-h100", "devices": 16, "batch.global": 64, "parallel.zero": 2})
    browser.run("document.body.dataset.state = 'asked'; location.reload()")
    browser.wait("document.body.dataset.state === 'drawn'")
    before = browser.run("return document.body.dataset.step")
    expect(reach(browser, "e.className === 'skip'", 3), "the first stop is the skip link")
    expect(reach(browser, "e.id === 'devices'"), "Tab reaches the number of GPUs")
    browser.run("document.body.dataset.state = 'asked'; document.activeElement.select()")
    press(browser, "3", "2")
    browser.wait("document.body.dataset.state === 'drawn' && location.hash.includes('devices=32')")
    expect(browser.run("return document.body.dataset.step") != before, "another number of GPUs, another step")
    expect(reach(browser, "e.id === 'pin-now'"), "Tab reaches the pin")
    press(browser, "Enter")
    expect(browser.run("return document.querySelectorAll('.pins li').length") == 1, "Enter pins")
    expect(reach(browser, "e.classList.contains('timeline')"), "Tab reaches the timeline")
    press(browser, "w", "w", ".", ".")
    expect("takes" in browser.run("return document.querySelector('.details').textContent"), "a full stop steps through the blocks")
    press(browser, "/")
    expect(browser.run("return document.activeElement.type") == "search", "a slash searches")
    press(browser, *"mlp", "Enter")
    expect("found" in browser.run("return document.activeElement.nextSibling.textContent") and "mlp" in browser.run("return document.querySelector('.details b').textContent"), "Enter goes to what was found")
    expect(reach(browser, "e.textContent === 'search plans'"), "Tab reaches the search of plans")
    press(browser, "Enter")
    browser.wait("[...document.querySelectorAll('button')].some(b => b.textContent === 'use')", 300)
    expect(reach(browser, "e.textContent === 'use'"), "Tab reaches a plan")
    shown = browser.run("document.body.dataset.state = 'asked'; return parseFloat(document.activeElement.closest('tr').cells[0].title)")
    press(browser, "Enter")
    browser.wait("document.body.dataset.state === 'drawn'")
    expect(same_step(float(browser.run("return document.body.dataset.step")), shown), "Enter applies the plan as shown")
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'remove').click()")


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
    checks = [check_first, check_workloads, check_refusal, check_broken, check_paste, check_fixes, check_pipeline, check_pin, check_search, check_sweep, check_placement, check_table_plan, check_keyboard, check_names, check_axe, check_narrow]
    for check in checks:
        check(browser)
    if pictures:
        browser.run("location.reload()")  # nothing pasted
        browser.wait("document.body.dataset.state === 'drawn'")
        for devices in (256, 512):
            show(browser, {"workload": "llama3-70b", "system": "dgx-h100", "devices": devices, "parallel.tensor": 8, "parallel.pipeline": 4})
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
