// One forecast: what the documents of predict say, as numbers, bars and a table.

const kParts = { compute: "compute", exposed_communication: "exposed communication", bubble: "pipeline bubble", host: "host", other: "other" };
const words = (key) => kParts[key] ?? key.replaceAll("_", " ");

function fact(title, value, note, exact) {
  return element("div", { class: "fact" }, element("dt", {}, title), element("dd", { title: exact }, value, note ? element("small", {}, note) : null));
}

function headline(p) {
  const step = p.iteration_time_s;
  const between = p.interval_s ? `nine of ten: ${seconds(p.interval_s.p5)} to ${seconds(p.interval_s.p95)}` : "no interval is known";
  const { total, capacity } = p.memory_bytes;
  return element("dl", { class: "facts-row" },
    fact("step", seconds(step), between, `${step} s`),
    p.throughput.tokens_per_s > 0
      ? fact("tokens/s", count(p.throughput.tokens_per_s), `${count(p.throughput.samples_per_s)} samples/s`, p.throughput.tokens_per_s)
      : fact("samples/s", count(p.throughput.samples_per_s), null, p.throughput.samples_per_s),
    fact("MFU", percent(p.mfu), `of ${p.flops.peak_format} peak`, p.mfu),
    fact("memory", p.fit === "likely" ? "likely fits" : p.fits ? percent(total / capacity) : "does not fit", `${bytes(total)} of ${bytes(capacity)}`, `${total} B`));
}

function pace(p) {
  const stack = p.framework_implied ? ` No framework is named: as ${p.framework} runs it.` : "";
  if (!p.efficiency) return `At the hardware's pace.${stack}`;
  return `${seconds(p.kernels_only_s)} at the hardware's pace, times ${three(p.efficiency.factor)} as measured with ${p.efficiency.measured}.${stack}`;
}

// A job without stages has no pipeline bubble: its ranks wait for each other at exchanges.
const partOf = (p) => (key) => (key === "bubble" && !(p.job.parallel?.pipeline > 1) ? "waits for other ranks" : words(key));

const parts = (object, text, whole, name = words) =>
  Object.entries(object).map(([key, value], i) => ({ name: name(key), value, colour: colour(i), text: whole ? `${text(value)} (${percent(value / whole)})` : text(value) }));

function opTable(p) {
  const whole = p.iteration_time_s;
  return sortableTable(
    [
      { title: "op", of: (o) => o.name },
      { title: "kind", of: (o) => o.kind },
      { title: "times", of: (o) => count(o.executions), sort: (o) => o.executions, number: true },
      { title: "time", of: (o) => seconds(o.time_s), sort: (o) => o.time_s, exact: (o) => `${o.time_s} s`, number: true },
      { title: "of the step", of: (o) => percent(o.time_s / whole), sort: (o) => o.time_s, number: true },
      { title: "wait", of: (o) => (o.wait_s > 0 ? seconds(o.wait_s) : ""), sort: (o) => o.wait_s, number: true },
      { title: "bound by", of: (o) => o.bound },
      { title: "model", of: (o) => o.model },
      { title: "in range", of: (o) => (o.in_calibrated_range ? "yes" : "no"), sort: (o) => Number(o.in_calibrated_range) },
    ],
    p.ops,
    `Ops of rank ${p.critical_rank}, longest first`,
  );
}

function forecast(p) {
  const ledger = Object.entries(p.memory_bytes).filter(([key]) => !["total", "capacity", "free"].includes(key)).sort((a, b) => b[1] - a[1]);
  const time = p.time_s;
  const goes = p.last_rank ? `Where the step goes (critical rank ${p.critical_rank})` : "Where the step goes";
  return [
    headline(p),
    element("p", { class: "facts" }, pace(p)),
    p.warnings.length > 0 ? element("ul", { class: p.fits ? "warnings" : "warnings misfit" }, p.warnings.map((w) => element("li", {}, w))) : null,
    element("section", {}, element("h2", {}, goes), stackedBar(parts(time, seconds, p.iteration_time_s, partOf(p)), p.iteration_time_s, "Time of a step")),
    element("section", {}, element("h2", {}, `Memory of the fullest device (rank ${p.fullest_rank})`),
      stackedBar(parts(Object.fromEntries(ledger), bytes), p.memory_bytes.capacity, `Memory, ${bytes(p.memory_bytes.capacity)} there are`, p.memory_bytes.capacity),
      element("p", { class: "facts" }, p.fit === "likely" ? `${bytes(p.memory_bytes.total)} are needed, ${bytes(p.memory_bytes.capacity)} are there: within the ${percent(p.memory_margin)} that the method errs by.` : p.fits ? `${bytes(p.memory_bytes.capacity - p.memory_bytes.total)} of ${bytes(p.memory_bytes.capacity)} stay free.` : `${bytes(p.memory_bytes.total)} are needed, ${bytes(p.memory_bytes.capacity)} are there; the remedy stands above.`)),
  ];
}
