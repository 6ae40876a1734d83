// The search of plans: in a worker of its own, with its progress; the front as a picture, a click takes a plan over.

const kPlanKeys = /^(parallel\.(tensor|context|expert|pipeline|data|virtual_stages|schedule|sequence_parallel|zero|recompute|pipeline_split)|batch\.micro|embedding\.plan)$/;
const written = (v) => (typeof v === "object" ? JSON.stringify(v) : String(v));

/** Keys of a point of the front. */
function keysOfPoint(p) {
  const keys = { devices: p.devices, "batch.micro": p.micro };
  for (const k of ["tensor", "context", "expert", "pipeline", "virtual_stages", "schedule", "sequence_parallel", "zero", "recompute", "pipeline_split"]) {
    if (k in p) keys["parallel." + k] = p[k];
  }
  return Object.fromEntries(Object.entries(keys).map(([k, v]) => [k, written(v)]));
}

const pointText = (p) => ["tensor", "context", "expert", "pipeline", "data"].filter((k) => p[k] > 1).map((k) => `${k} ${p[k]}`).concat(`micro ${p.micro}`, p.virtual_stages > 1 ? `${p.schedule}, ${p.virtual_stages} chunks` : p.schedule, written(p.recompute) === "none" ? [] : `recompute ${written(p.recompute)}`, written(p.zero) === "0" ? [] : `ZeRO ${written(p.zero)}`).join(", ");

function frontPicture(points, take) {
  const paint = (width) => {
    const height = 300;
    const [left, bottom] = [70, 44];
    const xs = points.map((p) => p.memory_bytes / 2 ** 30);
    const ys = points.map((p) => p.step_s);
    const [x0, x1] = [Math.min(...xs) * 0.95, Math.max(...xs) * 1.03];
    const [y0, y1] = [Math.log(Math.min(...ys) * 0.97), Math.log(Math.max(...ys) * 1.05)];
    const x = (v) => left + ((v - x0) / (x1 - x0)) * (width - left - 16);
    const y = (v) => height - bottom - ((Math.log(v) - y0) / (y1 - y0)) * (height - bottom - 12);
    const shapes = [];
    for (const v of ticks(x0, x1, Math.max(3, Math.floor(width / 110)))) shapes.push(svg("line", { x1: x(v), x2: x(v), y1: 8, y2: height - bottom, class: "grid" }), svg("text", { x: x(v), y: height - bottom + 16, "text-anchor": "middle", class: "axis" }, `${three(v)}`));
    let last = Infinity;
    for (const v of ticks(Math.exp(y0), Math.exp(y1), 6)) {
      if (last - y(v) < 16) continue;
      last = y(v);
      shapes.push(svg("line", { x1: left, x2: width - 12, y1: y(v), y2: y(v), class: "grid" }), svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end", class: "axis" }, seconds(v)));
    }
    shapes.push(svg("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle", class: "axis" }, "memory of the fullest device, GiB"));
    const line = [...points].sort((a, b) => a.step_s - b.step_s);
    shapes.push(svg("polyline", { points: line.map((p) => `${x(p.memory_bytes / 2 ** 30)},${y(p.step_s)}`).join(" "), class: "front" }));
    for (const p of line) {
      const label = `${seconds(p.step_s)}, ${bytes(p.memory_bytes)}: ${pointText(p)}`;
      const dot = svg("circle", { cx: x(p.memory_bytes / 2 ** 30), cy: y(p.step_s), r: 5, class: "dot", tabindex: 0, role: "button", "aria-label": label }, svg("title", {}, label));
      dot.addEventListener("click", () => take(p));
      dot.addEventListener("keydown", (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), take(p)));
      shapes.push(dot);
    }
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Plans than which none is both faster and smaller" }, shapes);
  };
  return responsive(paint);
}

function plansTable(answer, take) {
  const parallel = answer.plans[0].kind === "parallel";
  const columns = [
    { title: "step", of: (p) => seconds(p.predicted_step_s), sort: (p) => p.predicted_step_s, number: true, exact: (p) => `${p.predicted_step_s} s` },
    { title: "above the bound", of: (p) => (p.gap === null ? "" : percent(p.gap)), sort: (p) => p.gap ?? 9, number: true },
    ...(parallel
      ? [{ title: "MFU", of: (p) => percent(p.mfu), sort: (p) => p.mfu, number: true }, { title: "memory", of: (p) => bytes(p.memory_bytes.total), sort: (p) => p.memory_bytes.total, number: true }, { title: "plan", of: (p) => pointText(p.plan) }]
      : [{ title: "found by", of: (p) => p.planner }, { title: "tables by sharding", of: (p) => Object.entries(p.mix).map(([k, n]) => `${n} ${k}`).join(", ") }]),
    { title: "take over", of: (p) => element("button", { type: "button", onclick: () => take(p) }, "use"), sort: () => 0 },
  ];
  return sortableTable(columns, answer.plans, "Fastest plans");
}

/** The panel: `state()` what is chosen, `take(changes, files)` puts a plan into it. */
function planPanel(state, take) {
  const result = element("div");
  const keep = element("input", { type: "checkbox", id: "keep-keys" });
  function show(found, asked, answer) {
    result.replaceChildren();
    if (answer.code > 1) return answer.error;
    if (!found.plans?.length) return found.infeasible ?? found.reason ?? answer.error ?? "No plan fits.";
    const takePoint = (p) => take(keysOfPoint(p));
    const takePlan = (p) => p.kind === "parallel" ? takePoint(p.plan) : take({ "embedding.plan": "./plan.json" }, { "plan.json": JSON.stringify(p) });
    result.replaceChildren(
      plansTable(found, takePlan),
      ...(found.front?.length ? [element("h3", {}, "Pareto front of time and memory"), element("p", { class: "facts" }, "In closed form and at the hardware's pace; a click takes a plan over."), frontPicture(found.front, takePoint)] : []),
      element("p", { class: "row" }, element("button", { type: "button", onclick: () => download("plans.json", JSON.stringify(found, null, 2), "application/json") }, "download plans.json"), element("code", {}, asked.line)),
    );
    return `${count(found.search.space)} plans searched in ${seconds(answer.milliseconds / 1000)}${found.bound.proven ? "; the first is proven the fastest" : ""}.`;
  }
  const task = longTask({
    start: "search plans",
    running: "searching",
    stopped: "The search was stopped.",
    beside: [element("span", {}, keep, element("label", { for: "keep-keys" }, "keep the plan keys I set"))],
    args() {
      const asked = structuredClone(state());
      if (!keep.checked) for (const key of Object.keys(asked.keys)) if (kPlanKeys.test(key)) delete asked.keys[key];
      const parallel = !/ tables,/.test(panel.facts ?? "");
      result.replaceChildren();
      return { args: ["plan", ...overridesOf(asked), ...(parallel ? ["--front", "--same-devices", "--jobs", "1"] : []), "--format", "json"], files: asked.files, line: commandLine("plan", asked) };
    },
    show,
  });
  const panel = element("div", {}, task, result);
  return panel;
}
