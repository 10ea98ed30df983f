"use strict";
// The token comes behind the # of the address, which no browser sends, and is not left there.
const token = decodeURIComponent(location.hash.slice(1));
history.replaceState(null, "", location.pathname);
const [form, results, save, sure] = ["check", "results", "save", "sure"].map((id) => document.getElementById(id));
const added = [];
let running = new AbortController(), id = "";

const value = (name) => document.getElementById(name).value;
const say = (name, text) => { document.getElementById(name).textContent = text; };

async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal })
    .catch((error) => { throw error.name === "AbortError" ? error : new Error("the server does not answer"); });
  if (answer.ok) return answer;
  const { detail } = await answer.json().catch(() => ({}));
  if (answer.status === 401) throw new Error("it needs the server's token: open the address that factrl serve --page printed");
  throw new Error(detail?.[0]?.msg ?? detail ?? `the server answered ${answer.status}`);
}

async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => { if (error.name === "AbortError") throw error; return { done: true }; });
    if (done) return;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    yield* whole.map((line) => JSON.parse(line));
  }
}

async function packed(file) {
  const reader = new FileReader();
  const read = new Promise((done, failed) => { reader.onload = done; reader.onerror = () => failed(new Error(`${file.name} cannot be read`)); });
  reader.readAsDataURL(file);
  await read;
  return { name: file.name, data: reader.result.slice(reader.result.indexOf(",") + 1) };
}

function show(html) {
  results.innerHTML = html; // made and escaped by the server; the page's policy runs nothing in it
}

function showWhole(line) {
  show(line.html);
  results.className = "";
  URL.revokeObjectURL(save.href);
  save.href = URL.createObjectURL(new Blob([line.page], { type: "text/html" }));
  save.hidden = false;
  say("status", line.summary);
}

function comeIntoView() { // on a small screen the form fills it
  const status = document.getElementById("status");
  if (status.getBoundingClientRect().top > innerHeight * 0.8) status.scrollIntoView({ block: "start" });
}

// One thing at a time: what begins ends what was under way.
async function attempt(work) {
  running.abort();
  running = new AbortController();
  say("problem", "");
  try {
    await work(running.signal);
  } catch (error) {
    if (error.name !== "AbortError") {
      say("status", "");
      say("problem", `The text could not be checked: ${error.message}`);
    }
  }
}

async function check(signal) {
  id = "";
  save.hidden = true;
  results.replaceChildren();
  results.className = "partial";
  say("status", "Finding the claims…");
  const pasted = value("pasted").trim() ? [new File([value("pasted")], "pasted.txt")] : [];
  const files = [...pasted, ...added];
  if (files.reduce((sum, file) => sum + file.size, 0) > Number(results.dataset.most)) {
    throw new Error("the documents are too large together; build an index of them with factrl index, and give verifier.index=FOLDER");
  }
  const documents = await Promise.all(files.map(packed));
  const body = { text: value("text"), question: value("question"), documents, sure: Number(sure.value) };
  for await (const line of lines(await ask("/page/check", body, signal))) {
    if (line.total) {
      say("status", `${line.done} of ${line.total} claims have a verdict.`);
      if (!results.contains(document.activeElement)) show(line.html); // whoever reads there is not interrupted
    } else {
      id = line.id ?? "";
      if (id) { showWhole(line); comeIntoView(); }
      else say("status", "");
      if (Number(sure.value) !== body.sure) await change(signal); // it was moved meanwhile
      if (line.problem) say("problem", line.problem);
      return;
    }
  }
  throw new Error("the server broke off before the last verdict");
}

async function change(signal) {
  if (id) showWhole(await (await ask("/page/report", { id, sure: Number(sure.value) }, signal)).json());
}

function add(files) {
  for (const file of files) {
    added.push(file);
    const row = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = "Remove";
    button.setAttribute("aria-label", `Remove ${file.name}`);
    button.addEventListener("click", () => { added.splice(added.indexOf(file), 1); row.remove(); document.getElementById("files").focus(); });
    row.append(Object.assign(document.createElement("span"), { textContent: file.name, dir: "auto" }), " ", button);
    document.getElementById("documents").append(row);
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); attempt(check); });
sure.addEventListener("input", () => say("level", Number(sure.value).toFixed(2)));
sure.addEventListener("change", () => { if (id) attempt(change); });
document.getElementById("files").addEventListener("change", (event) => { add(event.target.files); event.target.value = ""; });
document.getElementById("pasted").addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) { event.preventDefault(); add(event.clipboardData.files); }
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { // anywhere: a browser would open the file instead of the page
  if (event.dataTransfer.files.length) { event.preventDefault(); add(event.dataTransfer.files); }
});
