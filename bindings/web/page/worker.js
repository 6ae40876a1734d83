// One engine: the module, its data files, one question at a time. Runs in a worker and, for the test, under Node.

/** Opens the module. `wasm`: bytes; `data`: the library's lines, and files {path: numbers of lines}; `onProgress(share, note)`. */
async function openEngine(stepcastModule, wasm, data, onProgress) {
  let told = [];
  const module = await stepcastModule({
    wasmBinary: wasm,
    printErr: (line) => told.push(line),
    onProgress,
  });
  const write = (path, text) => {
    module.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
    module.FS.writeFile(path, text);
  };
  for (const [path, numbers] of Object.entries(data.files)) write("/stepcast/" + path, numbers.map((n) => data.lines[n]).join("\n"));
  module.FS.mkdirTree("/job");
  module.FS.chdir("/job");
  /** Calls a command with arguments as after the executable's name; `files`: {name: text} beside the job. */
  return function call(args, files = {}) {
    told = [];
    for (const name of module.FS.readdir("/job")) {
      if (name !== "." && name !== "..") module.FS.unlink("/job/" + name);
    }
    for (const [name, text] of Object.entries(files)) write("/job/" + name, text);
    const begin = performance.now();
    const answer = module.ccall("stepcast_run", "string", ["string"], [JSON.stringify(args)]);
    const cut = answer.indexOf("\n");
    const written = {};
    for (const name of module.FS.readdir("/job")) {
      if (name !== "." && name !== ".." && !(name in files)) written[name] = module.FS.readFile("/job/" + name, { encoding: "utf8" });
    }
    return {
      code: Number(answer.slice(0, cut)),
      output: answer.slice(cut + 1),
      error: told.join("\n").replace(/^stepcast: /gm, "").trim(),
      written,
      milliseconds: performance.now() - begin,
    };
  };
}

/** The worker's side: {open: {wasm, data}} first, then {id, args, files}. */
function serve(stepcastModule) {
  let engine;
  let asked;
  onmessage = async ({ data: message }) => {
    try {
      if (message.open) {
        engine = await openEngine(stepcastModule, message.open.wasm, message.open.data, (share, note) => postMessage({ id: asked, progress: share, note }));
        postMessage({ opened: true });
        return;
      }
      asked = message.id;
      postMessage({ id: message.id, answer: engine(message.args, message.files) });
    } catch (e) {
      postMessage({ id: message.id, broken: String(e) });
    }
  };
}
