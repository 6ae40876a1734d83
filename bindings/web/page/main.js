// The page: every change of the choices asks the engine again; the answer before stays until the new one is there.

async function start() {
  const status = document.getElementById("status");
  const results = document.getElementById("results");
  const fresh = document.getElementById("forecast");
  const engine = new Engine();
  const began = performance.now();
  const ask = async (args) => JSON.parse((await engine.ask("run", args)).output);
  const [workloads, systems, schema] = await Promise.all([ask(["list", "workloads", "--format", "json"]), ask(["list", "systems", "--format", "json"]), ask(["list", "schema"])]);
  const opened = performance.now() - began;

  let state = stateOf(location.hash);
  let shown = null; // the state that is drawn
  let pinned = null;
  const keys = keysOfSchema(schema);
  const form = controls({ workloads, systems, keys }, change);
  document.getElementById("choices").append(form);

  const timelineBox = element("div");
  const placementBox = element("div");
  const compareBox = element("div");
  const opsBox = element("div");
  const panel = planPanel(() => state, (changes, files) => change(changes, null, files));
  const sweeps = sweepPanel(() => state, keys, (changes) => change(changes));
  const pin = element("button", { type: "button", onclick: togglePin }, "pin this forecast");
  const section = (title, ...children) => element("section", {}, element("h2", {}, title), children);
  const placementSection = section("Placement of the tables", placementBox);
  placementSection.hidden = true;
  const compareSection = section("Against the pinned forecast", compareBox);
  compareSection.hidden = true;
  const command = element("code", { id: "command" });
  results.append(
    compareSection,
    section("Timeline of the step", timelineBox),
    placementSection,
    section("Ops", opsBox),
    section("Plans", panel),
    section("Sweep", sweeps),
    section("Take it with you", element("p", {}, "The same on a command line:"), element("pre", { tabindex: 0 }, command),
      element("div", { class: "row downloads" },
        downloadButton("job.json", () => download("job.json", jobText(state), "application/json")),
        downloadButton("CSV", async () => download("ops.csv", (await engine.ask("run", ["predict", ...overridesOf(state), "--format", "csv"], state.files)).output, "text/csv")),
        downloadButton("JSON", async () => download("forecast.json", (await engine.ask("run", ["predict", ...overridesOf(state), "--format", "json"], state.files)).output, "application/json")),
        downloadButton("SVG of the timeline", () => download("timeline.svg", standaloneSvg(timelineBox.querySelector("svg.timeline")), "image/svg+xml")),
        downloadButton("Perfetto trace", async () => download("timeline.json", (await engine.ask("run", ["predict", ...overridesOf(state), "--timeline", "timeline.json"], state.files)).written["timeline.json"], "application/json")),
        downloadButton("link", async (button) => {
          await navigator.clipboard.writeText(location.href);
          button.textContent = "link copied";
        }))),
  );
  document.getElementById("pin").append(pin);

  function downloadButton(text, act) {
    const button = element("button", { type: "button", onclick: () => act(button) }, text);
    return button;
  }

  /** `changes`: keys to set, "" to forget; or a text that the user pasted. */
  function change(changes, text, files) {
    if (text) state = pasted(text, state);
    else {
      const before = state.keys.workload;
      state = structuredClone(state);
      for (const [key, value] of Object.entries(changes)) {
        if (value === "") delete state.keys[key];
        else state.keys[key] = value;
      }
      Object.assign(state.files, files);
      if (state.keys.workload !== before) forgetWhatDoesNotApply();
      const named = Object.values(state.keys).join(" ");
      for (const name of Object.keys(state.files)) if (!named.includes(name)) delete state.files[name];
    }
    history.replaceState(null, "", hashOf(state));
    update();
  }

  /** Another workload has another batch and other tables; keys of its kind of model stay. */
  function forgetWhatDoesNotApply() {
    const facts = workloads.find((w) => w.name === state.keys.workload)?.facts ?? "";
    for (const key of keys) {
      if (key.group === "batch" || key.path === "embedding.plan" || !applies(key, facts)) delete state.keys[key.path];
    }
  }

  const forecastOf = latestOnly(async (asked, last) => {
    try {
      await drawForecast(asked, last);
    } catch (e) {  // mostly for want of memory
      document.body.dataset.state = "broken";
      status.className = "status refused";
      status.textContent = `the forecast or its pictures ended with an error (${e.message}); pictures below may be of the choices before; try fewer micro-batches`;
      results.classList.add("old");
    }
  });

  async function drawForecast(asked, last) {
    const answer = await engine.ask("forecast", overridesOf(asked), asked.files);
    if (answer.output === "") {
      document.body.dataset.state = "refused";
      status.className = "status refused";
      status.textContent = answer.error;
      results.classList.add("old");
      return;
    }
    const prediction = JSON.parse(answer.output);
    shown = asked;
    fresh.replaceChildren(...forecast(prediction).filter(Boolean));
    form.resolved(prediction.job);
    opsBox.replaceChildren(opTable(prediction));
    results.classList.remove("old");
    status.className = "status";
    status.textContent = `forecast in ${Math.round(answer.milliseconds)} ms; opened in ${seconds(opened / 1000)}`;
    Object.assign(document.body.dataset, { state: "shown", hash: hashOf(asked), step: prediction.iteration_time_s, milliseconds: answer.milliseconds, opened });
    if (!prediction.fits && last()) await offerRemedy(asked);
    if (!last()) return;
    await drawStep(asked, prediction);
    if (last()) await drawComparison();
    document.body.dataset.state = "drawn";
  }

  /** What would fit: the longer search, once the forecast is there. */
  async function offerRemedy(asked) {
    const answer = await engine.ask("run", ["predict", ...overridesOf(asked), "--format", "json"], asked.files);
    const p = JSON.parse(answer.output);
    fresh.replaceChildren(...forecast(p).filter(Boolean));
    const remedies = p.warnings.flatMap((w) => w.match(/\b[a-z_]+(?:\.[a-z_]+)+=[\w.]+/g) ?? []);
    if (remedies.length === 0) return;
    fresh.querySelector(".warnings").after(element("button", { type: "button", onclick: () => change(Object.fromEntries(remedies.map((r) => r.split("=")))) }, `try ${remedies.join(" ")}`));
  }

  async function drawStep(asked, prediction) {
    const answer = await engine.ask("timeline", overridesOf(asked), asked.files);
    if (answer.output === "") return;
    const t = JSON.parse(answer.output);
    timelineBox.replaceChildren(timelinePicture(t, prediction));
    placementSection.hidden = !t.placement;
    if (t.placement) placementBox.replaceChildren(placementPicture(t.placement), element("h3", {}, "Busy time of each rank, by kind of op"), ...loadPicture(t.placement));
  }

  function togglePin() {
    pinned = pinned ? null : shown && structuredClone(shown);
    pin.textContent = pinned ? "forget the pinned forecast" : "pin this forecast";
    pin.setAttribute("aria-pressed", String(Boolean(pinned)));
    drawComparison();
  }

  async function drawComparison() {
    compareSection.hidden = !pinned;
    if (!pinned || !shown) return;
    if (same(pinned, shown)) {
      compareBox.replaceChildren(element("p", { class: "facts" }, "Pinned. Change something: what that does to the step appears here."));
      return;
    }
    const answer = await engine.ask("run", ["explain", "pinned.json", "now.json", "--format", "json"], twoJobs(pinned, shown));
    compareBox.replaceChildren(...(answer.output === "" ? [element("p", { class: "facts" }, answer.error)] : comparison(JSON.parse(answer.output)).filter(Boolean)));
  }

  function update() {
    form.show(state);
    panel.facts = workloads.find((w) => w.name === state.keys.workload)?.facts ?? "";
    command.textContent = commandLine("predict", state);
    document.body.dataset.state = "asked";
    forecastOf(structuredClone(state));
  }

  addEventListener("hashchange", () => {
    state = stateOf(location.hash);
    update();
  });
  document.getElementById("load").remove();
  document.getElementById("page").hidden = false;
  update();
}

function themeButton() {
  const button = document.getElementById("theme");
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.style.colorScheme ? root.style.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.style.colorScheme = dark ? "light" : "dark";
  });
}

themeButton();
start().catch((e) => {
  document.body.dataset.state = "broken";
  document.getElementById("load").textContent = `stepcast cannot start in this browser: ${e.message}. It needs WebAssembly with exceptions and DecompressionStream: Chromium 95, Firefox 113, Safari 16.4 or newer.`;
});
