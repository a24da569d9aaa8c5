// The page of `wager serve`: chat with coloured tokens, and decisions with the law behind them. No build, no outside host.

const $ = (id) => document.getElementById(id);
const messages = [];
let running = null; // AbortController of the request in flight

// -- the server --------------------------------------------------------------------------------------------------

function headers() {
  const key = $("key").value;
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

async function call(path, body, signal) {
  const answer = await fetch(path, body ? { method: "POST", headers: headers(), body: JSON.stringify(body), signal } : { headers: headers() });
  if (answer.ok) return answer;
  if (answer.status === 401) $("key-label").hidden = false;
  const said = await answer.json().catch(() => null);
  throw new Error(said?.error?.message ?? `the server answered ${answer.status}`);
}

async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

// -- chat --------------------------------------------------------------------------------------------------------

function turn(role) {
  const box = document.createElement("div");
  box.className = `turn ${role}`;
  const who = document.createElement("span");
  who.className = "who";
  who.textContent = role === "user" ? "You" : "Model";
  box.append(who);
  $("turns").append(box);
  box.scrollIntoView({ block: "nearest" });
  return box;
}

// Tokens as spans: a character of several tokens appears with the one that completes it.
class Shown {
  constructor(box) {
    this.box = box;
    this.decoder = new TextDecoder();
    this.text = "";
  }
  push(tokens) {
    for (const token of tokens) {
      const text = this.decoder.decode(new Uint8Array(token.bytes), { stream: true });
      if (!text) continue;
      const span = document.createElement("span");
      span.className = `token ${token.drafted ? "drafted" : "own"}`;
      span.textContent = text;
      this.box.append(span);
      this.text += text;
    }
  }
  trimTo(text) { // what a stop string or the end of a character took away
    while (this.text.length > text.length && this.box.lastChild?.classList.contains("token")) {
      const last = this.box.lastChild;
      const extra = Math.min(this.text.length - text.length, last.textContent.length);
      last.textContent = last.textContent.slice(0, last.textContent.length - extra);
      this.text = this.text.slice(0, this.text.length - extra);
      if (!last.textContent) last.remove();
    }
  }
}

function request(speculate, seed) {
  const body = {
    messages, stream: true, stream_options: { include_usage: true, include_tokens: true },
    temperature: Number($("temperature").value), max_tokens: Number($("max-tokens").value),
  };
  if (seed !== undefined) body.seed = seed;
  else if ($("seed").value) body.seed = Number($("seed").value);
  body.drafter = speculate ? $("drafter").value : "none";
  return body;
}

async function answer(box, body, signal, live) {
  const shown = new Shown(box);
  let text = "", last = null, first = 0, count = 0, forwards = 0, drafted = 0;
  for await (const event of events(await call("v1/chat/completions", body, signal))) {
    if (event.error) throw new Error(event.error.message);
    if (!event.choices.length) { last = event; continue; }
    const choice = event.choices[0];
    text += choice.delta.content ?? "";
    if (!choice.tokens) continue;
    first ||= performance.now();
    shown.push(choice.tokens);
    count += choice.tokens.length;
    forwards += 1;
    drafted += choice.tokens.filter((t) => t.drafted).length;
    if (live) {
      $("per-forward").textContent = (count / forwards).toFixed(2);
      const seconds = (performance.now() - first) / 1000;
      if (seconds > 0.2) $("speed").textContent = (count / seconds).toFixed(0);
    }
  }
  shown.trimTo(text);
  return { text, metrics: last?.metrics, usage: last?.usage };
}

function speedOf(done) {
  const seconds = done.metrics.total_s - done.metrics.first_token_s;
  return seconds > 0 ? (done.usage.completion_tokens - 1) / seconds : 0;
}

function tell(done) {
  const m = done.metrics.speculative_decoding;
  $("per-forward").textContent = m.tokens_per_forward.toFixed(2);
  $("speed").textContent = speedOf(done).toFixed(0);
  $("accepted").textContent = m.num_draft_tokens ? `${m.num_accepted_tokens} of ${m.num_draft_tokens}` : "nothing drafted";
  bars($("depths"), m.accepted_by_depth.slice(0, 12).map(([a, d], i) => [`${i + 1}`, a / d, `${a}/${d}`]));
}

function bars(box, rows) {
  box.replaceChildren(...rows.map(([name, share, said]) => {
    const row = document.createElement("div");
    row.className = "bar";
    const label = document.createElement("span"), middle = document.createElement("span"), bar = document.createElement("i"), value = document.createElement("span");
    label.textContent = name;
    bar.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    middle.append(bar);
    value.textContent = said;
    row.append(label, middle, value);
    return row;
  }));
  box.setAttribute("aria-label", rows.map(([name, , said]) => `${name}: ${said}`).join(", "));
}

async function send(event) {
  event.preventDefault();
  const prompt = $("prompt").value;
  if (running || !prompt.trim()) return;
  running = new AbortController();
  $("send").disabled = true;
  $("stop").disabled = false;
  $("trouble").textContent = "";
  $("against").textContent = "–";
  messages.push({ role: "user", content: prompt });
  turn("user").append(prompt);
  $("prompt").value = "";
  const box = turn("assistant");
  try {
    const done = await answer(box, request(true), running.signal, true);
    tell(done);
    if ($("compare").checked) {
      $("against").textContent = "writing the same plainly …";
      const plain = await answer(document.createElement("div"), request(false, done.metrics.seed), running.signal, false);
      const same = plain.text === done.text ? "same text" : "OTHER TEXT";
      $("against").textContent = `${(speedOf(done) / speedOf(plain)).toFixed(2)} ×, ${same}`;
    }
    messages.push({ role: "assistant", content: done.text });
  } catch (error) {
    const text = [...box.querySelectorAll(".token")].map((span) => span.textContent).join("");
    if (text && messages.at(-1).role === "user") messages.push({ role: "assistant", content: text });
    else if (!text) { messages.pop(); box.remove(); }
    if (error.name === "AbortError") box.append(Object.assign(document.createElement("em"), { textContent: " (stopped)" }));
    else $("trouble").textContent = error.message;
  } finally {
    running = null;
    $("send").disabled = false;
    $("stop").disabled = true;
    $("prompt").focus();
  }
}

// -- decide ------------------------------------------------------------------------------------------------------

const percent = (share) => `${(100 * share).toFixed(1)} %`;

function said(value) { // a number, a label, or a law where that is what the metric asks for
  if (Array.isArray(value)) return value.map((part) => `${part.value}: ${percent(part.weight)}`).join(", ");
  return typeof value === "number" ? value.toFixed(3).replace(/\.?0+$/, "") : String(value);
}

async function decide(event) {
  event.preventDefault();
  $("trouble").textContent = "";
  const metrics = [...$("metrics").querySelectorAll("input:checked")].map((box) => box.value);
  try {
    const found = await (await call("v1/decide", { prompt: $("question").value, labels: $("labels").value, metrics })).json();
    bars($("law"), found.law.map(({ value, weight }) => [String(value), weight, percent(weight)]));
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const name of ["judged by", "best answer"]) head.append(Object.assign(document.createElement("th"), { textContent: name, scope: "col" }));
    const body = table.createTBody();
    for (const [name, value] of Object.entries(found.predictions)) {
      const row = body.insertRow();
      row.append(Object.assign(document.createElement("th"), { textContent: name, scope: "row" }));
      row.insertCell().textContent = said(value);
    }
    const covered = document.createElement("p");
    covered.textContent = `These answers hold ${percent(found.covered)} of the model's probability.`;
    $("verdict").replaceChildren(table, covered);
  } catch (error) {
    $("trouble").textContent = error.message;
  }
}

// -- the page ----------------------------------------------------------------------------------------------------

function select(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !on;
    if (on) tab.focus();
  }
}

function metricBox(name) {
  const label = Object.assign(document.createElement("label"), { className: "check" });
  const box = Object.assign(document.createElement("input"), { type: "checkbox", value: name, checked: ["rmse", "mae", "accuracy"].includes(name) });
  label.append(box, name);
  return label;
}

async function start() {
  try {
    const served = await (await call("v1/models")).json();
    const { id, wager } = served.data[0];
    $("served").textContent = `${id}, drafting with ${wager.drafter}: text is ${wager.exactness}`;
    $("drafter").replaceChildren(...wager.drafters.map((name) => new Option(name === "none" ? "none (plain)" : name, name, false, name === wager.drafter)));
    $("profile").replaceChildren(new Option(wager.profile));
    $("metrics").replaceChildren($("metrics").firstElementChild, ...wager.metrics.map(metricBox));
    $("tab-decide").hidden = !wager.metrics.length;
  } catch (error) {
    $("trouble").textContent = error.message;
  }
}

$("ask").addEventListener("submit", send);
$("judge").addEventListener("submit", decide);
$("stop").addEventListener("click", () => running?.abort());
$("clear").addEventListener("click", () => { running?.abort(); messages.length = 0; $("turns").replaceChildren(); $("prompt").focus(); });
$("key").addEventListener("change", start);
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); $("ask").requestSubmit(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.addEventListener("click", () => select(tab.id.slice(4)));
  tab.addEventListener("keydown", (event) => {
    if (["ArrowLeft", "ArrowRight"].includes(event.key)) select(tab.id === "tab-chat" ? "decide" : "chat");
  });
}
start();
