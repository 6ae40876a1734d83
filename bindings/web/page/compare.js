// A pinned forecast beside the one that is shown: the difference, change by change and op by op (explain).

function waterfall(rows, first, last, label) {
  const paint = (width) => {
    const left = Math.min(300, width * 0.38);
    const height = 24;
    const all = [{ name: first.name, from: 0, to: first.value, total: true }];
    let at = first.value;
    for (const r of rows) {
      all.push({ name: r.name, from: at, to: at + r.delta, delta: r.delta });
      at += r.delta;
    }
    all.push({ name: last.name, from: 0, to: last.value, total: true });
    const values = all.flatMap((r) => (r.total ? [r.to] : [r.from, r.to]));
    const most = Math.max(...values);
    const least = Math.min(...values);
    const base = least > most * 0.4 ? least - (most - least) * 0.6 - most * 0.005 : 0; // a cut axis says so
    const x = (v) => left + 8 + ((Math.max(v, base) - base) / (most - base)) * (width - left - 90);
    const shapes = all.flatMap((r, i) => {
      const y = 4 + i * height;
      const [a, b] = r.total ? [base, r.to] : [Math.min(r.from, r.to), Math.max(r.from, r.to)];
      const fill = r.total ? "var(--c1)" : r.delta > 0 ? "var(--worse)" : "var(--better)";
      const characters = Math.floor((left - 4) / 6.4);
      const name = r.name.length > characters ? r.name.slice(0, characters - 1) + "…" : r.name;
      return [
        svg("text", { x: left, y: y + 15, "text-anchor": "end", class: "axis" }, name, svg("title", {}, r.name)),
        svg("rect", { x: x(a), y: y + 3, width: Math.max(1, x(b) - x(a)), height: height - 7, fill }),
        svg("text", { x: x(b) + 5, y: y + 15, class: "axis strong" }, r.total ? seconds(r.to) : signed(seconds(r.delta), r.delta)),
      ];
    });
    const total = 10 + all.length * height + (base > 0 ? 14 : 0);
    if (base > 0) shapes.push(svg("text", { x: left + 8, y: total - 4, class: "axis" }, `the axis begins at ${seconds(base)}`));
    return svg("svg", { width, height: total, viewBox: `0 0 ${width} ${total}`, role: "img", "aria-label": `${label}: ${rows.map((r) => `${r.name} ${signed(seconds(r.delta), r.delta)}`).join("; ")}` }, shapes);
  };
  return responsive(paint);
}

/** The files of two states with two jobs, whose names never clash. */
function twoJobs(a, b) {
  const files = {};
  for (const [name, state] of [["pinned", a], ["now", b]]) {
    let text = jobText(state);
    for (const [file, content] of Object.entries(state.files)) {
      files[`${name}-${file}`] = content;
      text = text.replaceAll(`"./${file}"`, `"./${name}-${file}"`);
    }
    files[name + ".json"] = text;
  }
  return files;
}

const kRows = 12;

function comparison(answer, pinned, now) {
  const [a, b] = answer.summary.map((s) => s.kernels_only_s);
  const [before, after] = answer.summary.map((s) => s.step_s);
  const biggest = answer.rows.slice(0, kRows);
  const rest = answer.rows.slice(kRows).reduce((sum, r) => sum + r.delta_s, 0);
  const rows = biggest.filter((r) => r.delta_s !== 0).map((r) => ({ name: r.op, delta: r.delta_s }));
  if (Math.abs(rest) > 0) rows.push({ name: `${answer.rows.length - kRows} more ops`, delta: rest });
  const paced = before !== a || after !== b;
  const ends = [{ name: "pinned", value: a }, { name: "now", value: b }];
  const change = after / before - 1;
  return [
    element("p", {}, element("b", {}, Math.abs(change) < 5e-5 ? "The step takes as long" : `The step takes ${percent(Math.abs(change))} ${change > 0 ? "longer" : "less"}`), ` than the pinned one: ${seconds(before)} before, ${seconds(after)} now.${paced ? " Below, steps are at the hardware's pace." : ""}`),
    answer.changes?.length ? [element("h3", {}, "Change by change"), waterfall(answer.changes.map((c) => ({ name: c.change, delta: c.delta_s })), ...ends, "From the pinned step to this one, change by change")] : null,
    rows.length ? [element("h3", {}, "Op by op"), waterfall(rows, ...ends, "From the pinned step to this one, op by op")] : null,
  ].flat();
}
