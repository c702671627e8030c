// Swap a head: a language model in the page, each of whose heads can be exchanged.
//
// heads.js computes, in a worker where the browser gives one, else in slices beside the page. This script keeps what a
// reader set (text, edits, the head that is open), its history and its address, and draws what came of it.
(function () {
  "use strict";

  const LAYERS = 4, HEADS = 8, KEYS = LAYERS * HEADS, CONTEXT = 128, MOST = 32, BARS = 7, GESTURE = 1000; // milliseconds between two keys of one gesture
  const WORDS = "Emma never Fanny without friend should Harriet little other nothing Weston first such Crawford about good thought every Miss ";
  const TEXTS = {
    "words, three times": WORDS.repeat(3).trim(),
    "an invented name": "\"My dear Miss Quibblen,\" said Mrs. Frombley, \"how very glad I am to see you!\" Miss Quibblen was silent; Mrs. Frombley took the hand of Miss Quibblen, and Mrs. From",
    "a famous sentence": "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.",
  };
  const KINDS = { trained: "as trained", states: "content and states", window: "window + first", causal: "causal states", cut: "nothing", merge: "merged into the others" };
  const GROUPS = { layer: "its layer", all: "all heads", rest: "all but the copy heads", copy: "the copy heads", others: "all but this head" };
  const folder = document.currentScript.src.replace(/[^/]*$/, "");

  const range = (n) => Array.from({ length: n }, (_, i) => i);
  const FIXED = { cut: "A head that is cut has no content and no states.", merge: "Its value map is with the heads that stay.", causal: "The first token, the last eight, twelve sums: nothing to set." };
  const RESTS = { window: "others: 16 tokens", states: "others: 16 states", causal: "others: 16 tokens or causal states" };
  const NO_PLAN = { whole: range(KEYS), window: 15, share: 1 / 8, nearer: [] }; // until the model is there
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  const percent = (share) => `${Math.round(100 * share)} %`;
  const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  const headName = (key) => `layer ${Math.floor(key / HEADS) + 1}, head ${(key % HEADS) + 1}`;
  const mean = (values) => values.reduce((total, value) => total + value, 0) / Math.max(1, values.length);
  const count = (flags) => flags.filter(Boolean).length;
  const HERE = "#on-the-whole-screen", OURS = /^#(on-the-whole-screen$|full|text=|edits=|step=|open=)/; // addresses of the board
  const visible = (piece) => piece.replace(/^\0$/, "start").replace(/ /g, "␣").replace(/\n/g, "¶");

  /** An element with attributes, listeners (on…) and children. */
  function el(tag, given = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(given)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  }

  // 1. Edits as text: 2.7:n4 (layer and head from 0), c for content in percent, w window, f causal states, x nothing, m merged -------

  const written = (edit) => !edit ? "" : edit.cut ? "x" : edit.merge ? "m" : edit.causal ? "f" : edit.window ? `w${edit.window}`
    : (edit.content === undefined ? "" : `c${Math.round(100 * edit.content)}`) + (edit.states ? `n${edit.states}` : "");

  function readEdit(text) {
    const found = /^(?:(x)|(m)|(f)|w(\d+)|(?:c(\d+))?(?:n(\d+))?)$/.exec(text);
    if (!text || !found) throw new Error(`the edit "${text}"`);
    const [, cut, merge, causal, window, content, states] = found;
    const within = (value, low, high) => {
      if (+value < low || +value > high) throw new Error(`the number ${value} in "${text}"`);
      return +value;
    };
    if (cut || merge) return cut ? { cut: true } : { merge: true };
    if (causal) return { causal: true };
    if (window) return { window: within(window, 1, MOST) };
    return { ...(content && { content: within(content, 0, 100) / 100 }), ...(states && { states: within(states, 1, MOST) }) };
  }

  function address(state) {
    const edits = Object.entries(state.edits).map(([key, edit]) => `${Math.floor(key / HEADS)}.${key % HEADS}:${written(edit)}`);
    const fields = { full: "", text: state.text, step: state.step, open: state.open, edits: edits.join(",") };
    return "#" + Object.entries(fields).map(([name, value]) => name + (value === "" ? "" : "=" + encodeURIComponent(value))).join("&");
  }

  /** The state that an address describes; an Error that says what is wrong with it. */
  function readAddress(hash) {
    const state = start(), fields = hash.replace(/^#/, "").split("&").filter(Boolean).map((part) => part.split("="));
    for (const [name, value = ""] of fields) {
      const given = decodeURIComponent(value);
      if (name === "text") state.text = given;
      else if (name === "step") state.step = clamp(Math.round(+given) || 0, 0, 4);
      else if (name === "open" && +given >= 0 && +given < KEYS) state.open = Math.round(+given);
      else if (name === "edits") {
        for (const one of given.split(",").filter(Boolean)) {
          const found = /^([0-3])\.([0-7]):(.*)$/.exec(one);
          if (!found) throw new Error(`the head in "${one}"`);
          state.edits[HEADS * found[1] + +found[2]] = readEdit(found[3]);
        }
      }
    }
    return state;
  }

  const start = () => ({ text: TEXTS["words, three times"], edits: {}, step: 1, open: 23 });

  /** The lines that give the same numbers with the library. */
  function python(state) {
    const layers = {};
    for (const [key, edit] of Object.entries(state.edits)) (layers[Math.floor(key / HEADS)] ??= []).push(`${key % HEADS}: ${JSON.stringify(edit).replace(/true/g, "True").replace(/([:,])/g, "$1 ")}`);
    const lines = Object.entries(layers).map(([layer, heads]) => `    ${layer}: {${heads.join(", ")}},`);
    return [
      "import torch", "", "from headsandstates.experiments import page_heads, page_model", "from ssmbook import lens", "",
      `model, tokens = page_model.load_trained(), page_heads.read(${JSON.stringify(state.text)})`,
      "edits = {  # layer: {head: what becomes of it}", ...lines, "}",
      "changes = {layer: page_heads.edit_heads(model, layer, heads) for layer, heads in edits.items()}",
      "with torch.no_grad(), lens.replace(model, changes):", "    chances, found = model(tokens)[0, -1].softmax(-1).topk(7)",
      "for chance, token in zip(chances, found):", "    print(f\"{chance:.3f} {page_heads.pieces()[token]!r}\")", "",
    ].join("\n");
  }

  // 2. The engine: a worker whose program is the source of the engine, so that it also starts from a file -------------

  function engine(given, answered) {
    const pump = "const channel = new MessageChannel(); let next = null; channel.port1.onmessage = () => next();"
      + "const later = (work) => { next = work; channel.port2.postMessage(0); };";
    const program = `const Eigen = (${Eigen.source})(), Heads = (${Heads.source})(Eigen); ${pump} let ask = null;`
      + "onmessage = ({ data }) => { if (ask) ask(data); else ask = Heads.serve(data, postMessage, later); };";
    const slices = () => Heads.serve(given, answered, (work) => setTimeout(work, 0));
    let worker = null, ask = null, last = null;
    try {
      worker = new Worker(URL.createObjectURL(new Blob([program], { type: "text/javascript" })));
      worker.onmessage = ({ data }) => answered(data);
      worker.onerror = () => {
        worker = null;
        ask = slices();
        if (last) ask(last);
      };
      worker.postMessage(given);
    } catch {
      worker = null;
      ask = slices();
    }
    return { ask: (message) => { last = message; if (worker) worker.postMessage(message); else ask(message); }, alone: () => !worker };
  }

  // 3. The board -----------------------------------------------------------------------------------------------------

  function board(place) {
    const where = place.dataset.swap, alone = where === "heads"; // else a figure of a chapter or of a slide, whose keys are the deck's
    let state = { ...start(), step: +place.dataset.step || 1 }, line = [], now = 0, first = 0, hand = {}, plan = {}, model = null, run = null, id = 0, busy = false, wanted = false, given = false, colors = null;
    let drawn = null, tokens = [0], shown = null, meters = null, damage = [], hover = -1, problem = "", note = "", done = "", spoken = 0;
    const ui = {}, link = alone && document.querySelector(`p > a[href="${HERE}"]`); // it leads to what is set

    const button = (name, text, act, more = {}) => (ui[name] = el("button", { type: "button", onclick: act, ...more }, text));
    const slider = (name, label, low, high, act) => {
      ui[name] = el("input", { type: "range", min: low, max: high, oninput: act, onchange: commit });
      ui[`${name} said`] = el("output");
      return (ui[`${name} label`] = el("label", {}, el("span", {}, label), ui[name], ui[`${name} said`]));
    };
    const choice = (name, label, entries, act) => (ui[name] = el("select", { "aria-label": label, onchange: act }, ...Object.entries(entries).map(([value, text]) => el("option", { value }, text))));
    const steps = [
      ["Repeat any words.", "The second time, the model knows what comes."],
      ["Squeeze the heads.", "Few states carry all but five of them. Then pull the slider of these five."],
      ["Remove a head:", "cut it, or merge it into the others."],
      ["Spend a budget:", "which heads keep their whole cache?"],
    ];
    ui.steps = steps.map(([bold, text], i) => el("button", { type: "button", onclick: () => story(i + 1) }, el("b", {}, `${i + 1}`), el("strong", {}, bold), ` ${text}`));
    ui.text = el("textarea", { "aria-label": "Your text", spellcheck: "false", rows: 2, oninput: () => { state.text = ui.text.value; reread(); }, onchange: () => commit() });
    ui.tokens = el("div", { class: "swap-tokens", tabindex: 0, role: "group", "aria-label": "Tokens; the arrow keys choose one", onkeydown: walk });
    ui.tokens.addEventListener("pointerover", ({ target }) => target.dataset.at && point(+target.dataset.at));
    ui.tokens.addEventListener("pointerleave", leave);
    ui.say = el("p", { class: "swap-say" });
    ui.live = el("p", { class: "swap-heard", role: "status" });
    ui.problem = el("p", { class: "swap-problem", hidden: true });
    ui.meters = ["your text: right first guesses", "copying 24 random tokens", `one unseen text, bits per token${where === "slide" ? "" : " (less is better)"}`].map((label) => {
      const value = el("strong", {}, "–");
      return { value, node: el("div", { class: "swap-meter" }, value, label) };
    });
    ui.cells = range(KEYS).map((key) => el("button", { type: "button", "aria-label": headName(key), "aria-pressed": "false", onclick: () => choose(key) }, el("canvas", { width: 1, height: 1 }), el("span")));
    ui.cells.forEach((cell) => cell.addEventListener("keydown", steer));
    ui.big = el("canvas", { width: 512, height: 512, tabindex: 0, role: "img", onkeydown: walk });
    ui.big.addEventListener("pointermove", look);
    ui.big.addEventListener("pointerdown", look);
    ui.big.addEventListener("pointerleave", leave);
    ui.small = el("canvas", { width: 1, height: 1, "aria-hidden": "true" });
    ui.title = el("h3");
    ui.bars = el("div", { class: "swap-bars" });
    ui.after = el("h3");
    ui.readout = el("p", { class: "swap-readout" });
    ui.fixed = el("small");
    ui.history = el("select", { "aria-label": "History", onchange: () => travel(+ui.history.value) });
    const merge = el("span", { class: "swap-merge" }, button("cut", "cut", () => removed("cut")), button("merge", "merge", () => removed("merge")));
    ui.squeeze = el("span", { class: "swap-squeeze" }, slider("few", "states per copy head", 1, MOST + 1, squeezed));
    const spend = el("span", { class: "swap-spend" }, slider("whole", "heads with a whole cache", 0, KEYS - 1, spent),
      choice("rest", "What the other heads keep", RESTS, () => { spent(); commit(); }));
    const heads = el("div", { class: "swap-heads", role: "group", "aria-label": "The 32 heads; the arrow keys walk" }, ...range(LAYERS).flatMap((layer) => [el("span", {}, `layer ${layer + 1}`), ...ui.cells.slice(layer * HEADS, (layer + 1) * HEADS)]));
    const gauges = el("div", { class: "swap-meters" }, ...ui.meters.map(({ node }) => node));
    const whole = [
      el("div", { class: "swap-bar" }, el("h2", {}, "Swap a head"), el("p", {}, "A head looks back at all earlier words; a state is a small memory, passed on from word to word. This model has 32 heads. All of it runs in your browser."),
        el("span", { class: "swap-tools" }, button("undo", "Undo", () => travel(now - 1)), button("redo", "Redo", () => travel(now + 1)), ui.history,
          button("python", "Copy as Python", () => copy(python(state), "The Python lines are copied.")), button("link", "Copy link", () => copy(location.href.split("#")[0] + address(state), "The link is copied.")),
          button("picture", "Picture", picture), button("film", "Film", film), button("full", "Full screen", () => full(!place.classList.contains("swap-full"), "pushState")))),
      el("div", { class: "swap-steps", role: "group", "aria-label": "Four steps" }, ...ui.steps),
      ui.problem,
      el("div", { class: "swap-main" },
        el("div", { class: "swap-write" }, el("span", { class: "swap-texts" }, "Text: ", ...Object.keys(TEXTS).map((name) => el("button", { type: "button", onclick: () => { state.text = TEXTS[name]; reread(); commit(); } }, name)), " or your own"), ui.text),
        el("div", { class: "swap-stage" }, el("div", { class: "swap-small" }, ui.small, button("back", "Undo", () => travel(now - 1))), ui.tokens, el("div", { class: "swap-gesture" }, ui.squeeze, spend, merge, ui.say)),
        gauges,
        heads,
        el("p", { class: "swap-legend" }, "Each square is a head: which token (row) looks at which (column). The more orange its frame, the more your text loses when this head alone has no content left, so that it looks by distance and not at words. n4: four states · c0: no content · w15: first + last 15 · f: causal states · ∅: nothing · +: merged · dot: a head that copies."),
        el("div", { class: "swap-right" },
          el("div", { class: "swap-next" }, ui.after, ui.bars),
          el("div", { class: "swap-open" },
            el("div", { class: "swap-title" }, ui.title, choice("kind", "What takes its place", KINDS, () => { edited(); commit(); })),
            el("div", { class: "swap-axes" }, el("span", {}, "what it looks at →"), el("span", {}, "← the token that looks"), ui.big), ui.readout,
            el("div", { class: "swap-controls" }, slider("content", "content", 0, 100, edited), slider("states", "states", 1, MOST + 1, edited), ui.fixed,
              el("label", {}, "the same for ", choice("group", "the same for", GROUPS, () => controls())), button("apply", "Apply", () => { apply(); commit(); }), button("reset", "Reset all", () => { state.edits = {}; state.step = 0; send(); commit(); }))))),
      ui.live,
    ];
    if (alone) place.replaceChildren(...whole);
    else place.replaceChildren(ui.problem, el("div", { class: "swap-main" }, el("div", { class: "swap-stage" }, ui.tokens, el("div", { class: "swap-gesture" }, ...[[], [], [ui.squeeze], [merge], [spend]][state.step], ui.say)), gauges, heads), ui.live);

    // 3a. What a reader does ------------------------------------------------------------------------------------------

    function story(step) {
      if (!model) given = false; // it is told again when the model is there
      const { copy, remove, plan } = model || { copy: [23], remove: 0, plan: NO_PLAN };
      state.step = step;
      state.edits = [{}, {}, squeeze(MOST + 1), { [remove]: { cut: true } }, planned(8, "window")][step];
      state.open = [copy[0], copy[0], copy[0], remove, plan.whole[0]][step];
      const own = state.text.trim() && !Object.values(TEXTS).includes(state.text); // what a reader typed stays
      if (!own && (step === 1 || !shown || count(shown.before.right) < 10)) state.text = TEXTS["words, three times"];
      reread();
      commit({ target: step });
    }
    /** Tell the step of an address, or one that was pressed before the model was there: no gesture of its own. */
    function tellStep() {
      if (!model || state.step < 2 || given) return reread();
      hand = { target: state.step, at: Infinity };
      story(state.step);
    }
    const squeeze = (N) => Object.fromEntries(range(KEYS).flatMap((key) => {
      const copies = model && model.copy.includes(key);
      return copies ? (N > MOST ? [] : [[key, { states: N }]]) : [[key, { states: model ? model.few : 4 }]];
    }));
    /** What the plan leaves whole if its budget suffices for K heads; the others keep a window, or as many states. */
    function planned(K, rest) {
      const { whole, window, nearer } = model ? model.plan : NO_PLAN;
      const kept = (key) => rest === "states" ? { states: window + 1 } : rest === "causal" && nearer.includes(key) ? { causal: true } : { window };
      return Object.fromEntries(whole.slice(K).map((key) => [key, kept(key)]));
    }
    /** What the step can give the heads: an entry for each place of its slider, its menu or its buttons. */
    function plans() {
      const { step } = state, among = (name, some, edits) => some.map((value) => ({ step, [name]: value, edits: edits(value) }));
      if (step === 2) return among("few", range(MOST + 2).slice(1), squeeze);
      if (step === 3) return among("how", ["cut", "merge"], (how) => ({ [model ? model.remove : 0]: { [how]: true } }));
      if (step === 4) return Object.keys(RESTS).flatMap((rest) => among("whole", range(KEYS), (K) => planned(K, rest)).map((one) => ({ ...one, rest })));
      return [{ step, edits: {} }];
    }
    const byHand = ({ edits }) => range(KEYS).filter((key) => written(edits[key]) !== written(state.edits[key]));
    /** Give the heads what the step has at another place. Those that were set by hand stay as they are. */
    function pull(to) {
      const own = byHand(plan), next = { ...plan, ...to };
      plan = plans().find((one) => ["few", "how", "whole", "rest"].every((name) => one[name] === next[name]));
      range(KEYS).filter((key) => !own.includes(key)).forEach((key) => set(key, plan.edits[key]));
      send();
    }
    function spent() {
      pull({ whole: +ui.whole.value, rest: ui.rest.value });
    }
    function squeezed() {
      pull({ few: +ui.few.value });
    }
    function removed(how) {
      pull({ how });
      commit();
    }
    function choose(key) {
      state.open = key;
      draw();
      if (!ui.film.disabled) commit(); // else the heads are not the reader's
    }
    function wantedEdit() {
      const kind = ui.kind.value, states = +ui.states.value, content = +ui.content.value / 100;
      if (["cut", "merge", "causal"].includes(kind)) return { [kind]: true };
      if (kind === "window") return { window: Math.min(states, MOST) };
      const edit = { ...(content < 1 && { content }), ...(states <= MOST && { states }) };
      return kind === "states" && Object.keys(edit).length ? edit : null;
    }
    function set(key, edit) {
      if (edit) state.edits[key] = edit;
      else delete state.edits[key];
    }
    function edited(event) {
      const moved = event && event.target; // a slider; without one it was the menu
      if (moved && ui.kind.value !== "window") ui.kind.value = "states";
      if (!moved && ["states", "window"].includes(ui.kind.value) && +ui.content.value === 100 && +ui.states.value > MOST) ui.states.value = 4;
      set(state.open, wantedEdit());
      if (state.step === 1) state.step = 0; // in the others the step's slider stays
      send();
    }
    /** The heads of the menu that are not like the open one. */
    function others() {
      const edit = written(state.edits[state.open]), layer = Math.floor(state.open / HEADS), copies = (key) => model && model.copy.includes(key);
      const chosen = { layer: (key) => Math.floor(key / HEADS) === layer, all: () => true, rest: (key) => !copies(key), copy: copies, others: () => true };
      return range(KEYS).filter((key) => chosen[ui.group.value](key) && written(state.edits[key]) !== edit);
    }
    function apply() {
      others().forEach((key) => set(key, state.edits[state.open]));
      state.step = 0;
      send();
    }

    // 3b. History and address -----------------------------------------------------------------------------------------

    const frozen = () => JSON.parse(JSON.stringify(state)), isFull = () => place.classList.contains("swap-full");
    const label = ({ edits, text }) => `${model ? inWords(edits) : plural(Object.keys(edits).length, "head")}, “${text.slice(0, 18)}…”`;
    /** Keep what a gesture made: an entry of the history, on the whole screen of the browser's, too. Which head is open is none. */
    function commit(event) {
      if (JSON.stringify({ ...line[now], open: 0 }) === JSON.stringify({ ...state, open: 0 })) {
        line[now].open = state.open;
        return remember();
      }
      const goesOn = event && event.target === hand.target && Date.now() - hand.at < GESTURE;
      hand = event ? { target: event.target, at: Date.now() } : {};
      if (!goesOn) now++;
      line.splice(now, line.length, frozen());
      remember(goesOn ? "replaceState" : "pushState");
    }
    function restore(index) {
      const how = index > now ? "pushState" : "replaceState";
      now = index;
      hand = {};
      state = JSON.parse(JSON.stringify(line[now]));
      remember(how);
      reread();
    }
    function travel(index) {
      if (!line[index]) return;
      if (isFull() && first <= index && index < now) history.go(index - now); // arrive() restores
      else restore(index);
      first = Math.min(first, index);
    }
    function remember(how = "replaceState") {
      ui.undo.disabled = ui.back.disabled = !now;
      ui.redo.disabled = now + 1 === line.length;
      ui.history.replaceChildren(el("option", { value: "-1" }, "History"), ...line.slice(0, now).map((one, i) => el("option", { value: i }, label(one))).reverse());
      if (link) link.href = address(state);
      if (isFull()) history[how]({ swap: now, first }, "", address(state));
    }
    /** Take the whole screen, or give it back: by hand this is a gesture, which Back undoes; `from` is the first that Undo shares with Back. */
    function full(on, how = "replaceState", from = now) {
      place.classList.toggle("swap-full", on);
      document.documentElement.classList.toggle("swap-over", on);
      for (let node = place; node !== document.body; node = node.parentElement) for (const other of node.parentElement.children) if (other !== node) other.inert = on;
      ui.full.textContent = on ? "Close" : "Full screen";
      ui.full.setAttribute("aria-label", on ? "Close the full screen; the page is below it" : "Full screen");
      if (on) first = from;
      if (on) remember(how);
      else if (OURS.test(location.hash)) history.pushState(null, "", location.pathname + location.search);
      draw();
    }
    function copy(text, words) {
      const failed = () => window.prompt("Copy:", text);
      const copied = () => {
        done = words;
        controls();
        speak(words);
      };
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(copied, failed);
      else failed();
    }
    function picture() {
      const out = el("canvas", { width: 1200, height: 720 }), pen = out.getContext("2d"), ink = colors.ink;
      pen.fillStyle = colors.paper;
      pen.fillRect(0, 0, 1200, 720);
      pen.imageSmoothingEnabled = false;
      ui.cells.forEach((cell, key) => pen.drawImage(cell.firstChild, 24 + 145 * (key % HEADS), 24 + 135 * Math.floor(key / HEADS), 137, 127));
      pen.fillStyle = ink;
      pen.font = "26px Georgia, serif";
      [ui.say.textContent, ui.meters.map(({ node }) => node.textContent).join("   "), "Swap a head · Heads and States"].forEach((line, i) => pen.fillText(line, 24, 610 + 38 * i, 1150));
      el("a", { href: out.toDataURL("image/png"), download: "swap-a-head.png" }).click();
    }

    /** What some edits do, in a few words. */
    function inWords(edits) {
      const kinds = {}, own = (key) => (model.copy.includes(key) ? "copy head" : "other head");
      const of = ({ cut, merge, causal, window, content = 1, states }) => cut ? "cut" : merge ? "merged" : causal ? "causal states"
        : window ? `first + last ${window}` : [content < 1 && `${percent(content)} of the content`, states && plural(states, "state")].filter(Boolean).join(", ");
      for (const [key, edit] of Object.entries(edits)) (kinds[`${own(+key)}: ${of(edit)}`] ??= []).push(key);
      return Object.entries(kinds).map(([words, keys]) => `${keys.length} ${words.replace(":", keys.length > 1 ? "s:" : ":")}`).join(" · ") || "As trained";
    }

    /** From the heads as they were trained to the present ones: the others first, in five steps, then the copy heads. */
    function takes() {
      const wanted = Object.keys(state.edits).length ? state.edits : squeeze(4), keys = Object.keys(wanted).map(Number);
      const [copies, others] = [true, false].map((yes) => keys.filter((key) => model.copy.includes(key) === yes));
      const part = (some) => Object.fromEntries(some.map((key) => [key, wanted[key]])), each = Math.ceil(others.length / 5);
      const found = [{}, ...range(Math.ceil(others.length / each) || 0).map((i) => part(others.slice(0, (i + 1) * each)))];
      const [N] = copies.map((key) => wanted[key].states), alike = copies.every((key) => wanted[key].states === N);
      if (N && alike) for (const M of [24, 20, 16, 12, 8, 4, 2].filter((one) => one > N)) found.push({ ...part(others), ...Object.fromEntries(copies.map((key) => [key, { ...wanted[key], states: M }])) });
      else copies.slice(1).forEach((_, i) => found.push({ ...part(others), ...part(copies.slice(0, i + 1)) }));
      return copies.length ? [...found, wanted] : found;
    }

    /** Ten seconds from the heads as trained to the present ones, recorded by the browser. */
    async function film() {
      const was = frozen(), shots = [], say = (text) => { note = text; controls(); };
      if (!model || ui.film.disabled) return;
      if (!Film.kind()) return Film.save({ say });
      ui.film.disabled = true;
      say("The pictures of the film are computed.");
      for (const edits of takes()) {
        state.edits = edits;
        const seen = await new Promise((done) => {
          drawn = done;
          send();
        });
        shots.push({ ...seen, words: inWords(edits), mosaics: seen.now.patterns.map((alpha) => mosaic(alpha, seen.tokens.length)) });
      }
      await Film.save({ name: "swap-a-head", draw: (pen, share) => scene(pen, shots, share), say });
      ui.film.disabled = false;
      state = was;
      send();
    }

    /** One frame: the first and the last shot stay for a second, and each melts into the next. */
    function scene(pen, shots, share) {
      const { head, ink, ground, minus, paper, plus } = colors, at = clamp((10 * share - 1) / 8, 0, 1) * (shots.length - 1);
      const i = Math.min(shots.length - 1, Math.floor(at)), melt = clamp(2 * (at - i) - 1, 0, 1), next = shots[Math.min(i + 1, shots.length - 1)];
      const shot = melt > 0.5 ? next : shots[i], rgb = (color) => `rgb(${color})`, right = shot.now.right;
      pen.fillStyle = paper;
      pen.fillRect(0, 0, Film.WIDTH, Film.HEIGHT);
      pen.imageSmoothingEnabled = shot.tokens.length > 94; // a small one is enlarged square by square
      range(KEYS).forEach((key) => {
        const place = [30 + 100 * (key % HEADS), 90 + 100 * Math.floor(key / HEADS), 94, 94];
        pen.drawImage(shots[i].mosaics[key], ...place);
        pen.globalAlpha = melt;
        pen.drawImage(next.mosaics[key], ...place);
        pen.globalAlpha = 1;
        pen.strokeStyle = model.copy.includes(key) ? head : rgb(colors.later);
        pen.lineWidth = 3;
        pen.strokeRect(...place);
      });
      const write = (text, x, y, font, color = ink) => {
        pen.font = font;
        pen.fillStyle = color;
        pen.fillText(text, x, y, Film.WIDTH - x - 20);
      };
      write(shot.words, 30, 56, "600 30px Georgia, serif");
      write(String(count(right)), 870, 190, "600 110px Georgia, serif", count(right) < 0.9 * count(shot.before.right) ? rgb(minus) : ink);
      ["right first guesses", `of ${right.length} tokens`].forEach((text, line) => write(text, 870, 240 + 36 * line, "28px Georgia, serif"));
      ["Framed: the heads that copy.", "Underlined: guessed right.", "Orange: known before, lost."].forEach((text, line) => write(text, 870, 370 + 34 * line, "24px Georgia, serif"));
      write("Swap a head · Heads and States", 870, 484, "20px Georgia, serif", head);
      pen.font = "24px Georgia, serif";
      let [x, y] = [30, 540];
      shot.tokens.slice(1).forEach((token, t) => {
        const piece = model.pieces[token], wide = pen.measureText(piece).width;
        if (x + wide > Film.WIDTH - 30 || piece === "\n") [x, y] = [30, y + 38];
        if (y > Film.HEIGHT - 10) return;
        if (shot.before.right[t] && !right[t]) {
          pen.fillStyle = rgb(mixed(ground, minus, 0.45));
          pen.fillRect(x, y - 24, wide, 32);
        }
        pen.fillStyle = right[t] ? rgb(plus) : paper;
        if (right[t]) pen.fillRect(x, y + 7, wide, 3);
        pen.fillStyle = ink;
        pen.fillText(piece, x, y);
        x += wide;
      });
    }

    // 3c. Asking and hearing ------------------------------------------------------------------------------------------

    function reread() {
      if (ui.text.value !== state.text) ui.text.value = state.text;
      if (!model) return;
      const { codes, unknown } = Heads.encode(model.pieces, state.text), gone = codes.length - (CONTEXT - 1);
      tokens = [0, ...codes.slice(-(CONTEXT - 1))];
      const notes = [];
      if (!codes.length) notes.push("There is no text: the bars show how the model begins one.");
      if (gone > 0) notes.push(`The model sees ${CONTEXT - 1} tokens; the first ${gone} of yours are left out.`);
      if (unknown.length) notes.push(`It does not know ${unknown.slice(0, 5).join(" ")}${unknown.length > 5 ? " and more" : ""}: left out.`);
      note = notes.join(" ");
      hover = -1;
      damage = [];
      send();
    }
    function send() {
      clearTimeout(spoken); // what was to be said is no longer so
      done = "";
      if (!run) return controls();
      if (busy) wanted = true;
      else {
        busy = true;
        wanted = false;
        run.ask({ id: ++id, tokens, edits: JSON.parse(JSON.stringify(state.edits)) });
      }
      controls();
    }
    function answered(answer) {
      if (answer.before) {
        busy = false;
        shown = { ...answer, tokens: wanted ? shown && shown.tokens : tokens };
        if (answer.now.bits.length === tokens.length - 1) shown.tokens = tokens;
        if (shown.tokens) draw();
        place.dataset.ms = answer.ms;
        if (wanted) return send();
        if (drawn && shown.tokens) drawn(shown);
        drawn = null;
        clearTimeout(spoken);
        spoken = setTimeout(() => speak(summary()), 600);
      } else if (answer.id !== id) return;
      else if (answer.meters) {
        meters = answer.meters;
        place.dataset.settled = id;
        drawMeters();
      } else {
        damage = answer.damage;
        frames();
      }
    }
    function speak(text) {
      clearTimeout(spoken);
      ui.live.textContent = text;
    }

    // 3d. Drawing -----------------------------------------------------------------------------------------------------

    function readColors() {
      const style = getComputedStyle(place), of = (name) => style.getPropertyValue(name).trim();
      const rgb = (name) => [1, 3, 5].map((i) => parseInt(of(name).slice(i, i + 2), 16));
      const [plus, minus, ground, later] = ["--plus", "--minus", "--swap-ground", "--swap-later"].map(rgb);
      const ramp = (end) => range(256).map((level) => mixed(ground, end, level / 255));
      colors = { plus, minus, ground, later, ramps: [ramp(plus), ramp(minus)], paper: of("--swap-ground"), ink: of("--swap-ink"), head: of("--head") };
    }
    const mixed = (from, to, share) => from.map((value, i) => Math.round(value + share * (to[i] - value)));

    /** Attention weights as a mosaic: from the ground to plus or minus by the root of the size. */
    function mosaic(alpha, n) {
      const small = el("canvas", { width: n, height: n }), pen = small.getContext("2d"), image = pen.createImageData(n, n), { data } = image;
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < n; j++) {
          const value = alpha[i * n + j], at = 4 * (i * n + j);
          const color = j > i ? colors.later : colors.ramps[value < 0 ? 1 : 0][Math.round(255 * Math.sqrt(Math.min(1, Math.abs(value))))];
          data[at] = color[0]; data[at + 1] = color[1]; data[at + 2] = color[2]; data[at + 3] = 255;
        }
      }
      pen.putImageData(image, 0, 0);
      return small;
    }
    function paint(canvas, picture, size) {
      canvas.width = canvas.height = size;
      const pen = canvas.getContext("2d"), n = picture.width;
      pen.imageSmoothingEnabled = n > size; // a small one is enlarged square by square
      pen.drawImage(picture, 0, 0, size, size);
      if (canvas !== ui.big || hover < 0) return;
      pen.strokeStyle = colors.head;
      pen.lineWidth = 2;
      pen.strokeRect(1, (hover * size) / n, (hover + 1) * (size / n), size / n); // the row of the token that is pointed at
    }

    function summary() {
      if (!shown || !shown.tokens) return "";
      const { before, now } = shown, n = before.bits.length, edits = Object.keys(state.edits).length;
      const right = `${edits ? `${count(before.right)} → ` : ""}${count(now.right)} of ${n} first guesses are right`;
      return `${edits ? `${plural(edits, "head")} changed: ` : ""}${right}. ${note}`.trim();
    }
    function sentence() {
      const few = model ? model.few : 4, N = plan.few, total = 32 - (model ? model.copy.length : 5);
      if (state.step === 1) return "Underlined: the model’s first guess was right.";
      if (state.step === 2) return `${total} heads: ${plural(few, "state")} each. The five that copy: ${N > MOST ? "as trained; pull the slider." : `${plural(N, "state")}, the best for this text, chosen knowing all of it. ${where === "slide" ? "" : "A head can look up any earlier token; states pass on only what they kept. "}Orange: known before, lost now.`}`;
      if (state.step === 4) {
        const K = plan.whole, { window, share } = model ? model.plan : NO_PLAN, how = plan.rest, states = how === "states";
        const kept = (K + (KEYS - K) * (states ? share / 2 : share)) / KEYS; // a state is as wide as a value; a token has a key, too
        return `The plan takes ${percent(kept)} of the cache, the memory of 128 tokens: ${plural(K, "head")} whole, the others ${states ? `${window + 1} states, chosen knowing all of the text` : `the first token and the last ${window}`}${how === "causal" ? `, or causal states of that size in the ${plural(count(Object.values(plan.edits).map(({ causal }) => causal)), "head")} where these were nearer` : ""}. It keeps what copying needs most.`;
      }
      if (state.step === 3) return plan.how === "merge" ? "The first head is gone. Its value map is added to those of its neighbors, which do its work." : "The first head is gone, and so is what it passed on.";
      const edit = state.edits[state.open] || {};
      const how = edit.states ? `Its states are the best ${edit.states} for this text, chosen knowing all of it. `
        : edit.causal ? "Its causal states know nothing of what comes: the first token, the last eight, and twelve running sums. "
          : edit.window ? `It reads the first token and the last ${edit.window}. ` : "";
      return Object.keys(state.edits).length ? `${how}Orange: known before, lost now.` : "Underlined: the model’s first guess was right. Click a word to see what comes after it.";
    }

    function draw() {
      controls();
      if (!shown || !shown.tokens) return;
      if (!colors) readColors();
      const { before, now } = shown, n = shown.tokens.length, open = now.patterns[state.open];
      const at = hover < 0 ? n - 1 : Math.min(hover, n - 1);
      if (ui.tokens.children.length !== n - 1 || ui.tokens.read !== shown.tokens) {
        ui.tokens.replaceChildren(...shown.tokens.slice(1).map((token, i) => el("span", { "data-at": i + 1 }, model.pieces[token])));
        ui.tokens.read = shown.tokens;
      }
      [...ui.tokens.children].forEach((span, i) => {
        const looks = hover > 0 && i + 1 <= hover ? open[hover * n + i + 1] : 0;
        span.className = [now.right[i] && "right", before.right[i] && !now.right[i] && "lost", i + 1 === hover && "on"].filter(Boolean).join(" ");
        span.style.background = looks > 0.02 ? `rgb(${mixed(colors.ground, colors.plus, 0.55 * Math.min(1, looks))})` : "";
      });
      drawBars(at);
      drawMeters();
      ui.title.textContent = headName(state.open).replace(/^l/, "L");
      ui.big.setAttribute("aria-label", `Attention weights of ${headName(state.open)}; the arrow keys choose a token`);
      const large = mosaic(open, n);
      paint(ui.big, large, 512);
      paint(ui.small, large, 128);
      ui.cells.forEach((cell, key) => {
        if (cell.drawn !== now) paint(cell.firstChild, mosaic(now.patterns[key], n), 96);
        cell.drawn = now;
        cell.setAttribute("aria-pressed", key === state.open);
        cell.lastChild.textContent = state.edits[key] ? written(state.edits[key]).replace("x", "∅").replace("m", "+") : "";
        cell.classList.toggle("swap-copies", model.copy.includes(key));
        cell.setAttribute("aria-label", headName(key) + (model.copy.includes(key) ? ", copies" : "") + (state.edits[key] ? ", changed" : ""));
      });
      frames();
      tell(at, n, open);
    }
    function tell(at, n, open) {
      if (state.edits[state.open]?.cut) return (ui.readout.textContent = "This head is cut: it passes nothing on.");
      const row = range(at + 1).sort((a, b) => open[at * n + b] - open[at * n + a]).slice(0, 2);
      const seen = row.map((j) => `“${visible(model.pieces[shown.tokens[j]])}” ${open[at * n + j].toFixed(2)}`);
      ui.readout.textContent = `“${visible(model.pieces[shown.tokens[at]])}” looks at ${seen.join(", ")}`;
    }
    function drawBars(at) {
      const { before, now } = shown, size = model.pieces.length, of = (what, k) => what.next[at * size + k];
      const top = range(size).sort((a, b) => Math.max(of(before, b), of(now, b)) - Math.max(of(before, a), of(now, a))).slice(0, BARS);
      ui.after.replaceChildren("What comes after ", el("q", {}, visible(model.pieces[shown.tokens[at]])), el("small", {}, " outline: before"));
      ui.bars.replaceChildren(...top.map((k) => el("div", {}, el("i", {}, visible(model.pieces[k])),
        el("span", { class: "swap-track" }, el("em", { style: `width:${100 * of(now, k)}%` }), el("u", { style: `width:${100 * of(before, k)}%` })),
        el("span", {}, `${(100 * of(now, k)).toFixed(of(now, k) < 0.1 ? 1 : 0)} %`))));
    }
    function drawMeters() {
      if (!shown || !shown.tokens) return;
      const any = Object.keys(state.edits).length, { before, now } = shown;
      const put = (i, old, value, text, worse) => {
        ui.meters[i].value.textContent = (any && text(old) !== text(value) ? `${text(old)} → ` : "") + text(value);
        ui.meters[i].value.className = worse ? "worse" : "";
      };
      const [was, is] = [before, now].map(({ right }) => count(right));
      put(0, was, is, String, is < 0.9 * was);
      ui.meters[0].value.append(` of ${now.bits.length}`);
      if (!meters) return;
      put(1, ...meters.copying, percent, meters.copying[1] < meters.copying[0] - 0.05);
      put(2, ...meters.sentence, (bits) => bits.toFixed(2), meters.sentence[1] > meters.sentence[0] + 0.2);
    }
    function frames() {
      if (!colors) return;
      const most = Math.max(0.1, ...damage);
      ui.cells.forEach((cell, key) => { cell.style.borderColor = `rgb(${mixed(colors.later, colors.minus, clamp((damage[key] || 0) / most, 0, 1))})`; });
    }
    function controls() {
      const edit = state.edits[state.open] || {}, kind = edit.cut ? "cut" : edit.merge ? "merge" : edit.causal ? "causal" : edit.window ? "window" : Object.keys(edit).length ? "states" : "trained";
      ui.kind.value = kind;
      ui.content.value = Math.round(100 * (edit.content ?? 1));
      ui.states.value = edit.window || edit.states || MOST + 1;
      if (plan.step !== state.step || byHand(plan).length) { // where the step's slider is: the place that most heads agree with
        plan = [plan, ...plans()].filter(({ step }) => step === state.step).reduce((best, one) => byHand(one).length < byHand(best).length ? one : best);
      }
      ui.few.value = plan.few ?? MOST + 1;
      ui.whole.value = plan.whole ?? 0;
      if (plan.rest) ui.rest.value = plan.rest;
      ui["whole said"].textContent = ui.whole.value;
      ui.whole.setAttribute("aria-valuetext", `${plural(+ui.whole.value, "head")} whole`);
      ui["content said"].textContent = `${ui.content.value} %`;
      ui["content label"].hidden = Boolean(FIXED[kind]) || kind === "window";
      ui["states label"].hidden = Boolean(FIXED[kind]);
      ui["states label"].firstChild.textContent = kind === "window" ? "last tokens" : "states";
      ui.fixed.textContent = FIXED[kind] || "";
      ui.apply.disabled = !others().length;
      for (const name of ["states", "few"]) {
        const all = +ui[name].value > MOST;
        ui[`${name} said`].textContent = all ? "all" : ui[name].value;
        ui[name].setAttribute("aria-valuetext", all ? "as many as there are" : plural(+ui[name].value, name === "states" && kind === "window" ? "token" : "state"));
      }
      place.dataset.step = state.step;
      place.dataset.kind = kind;
      ui.steps.forEach((one, i) => one.setAttribute("aria-pressed", state.step === i + 1));
      for (const how of ["cut", "merge"]) ui[how].setAttribute("aria-pressed", plan.how === how);
      const own = state.step > 1 ? byHand(plan).length : 0;
      ui.say.textContent = [sentence(), own ? `${plural(own, "head")} ${own > 1 ? "are as you set them" : "is as you set it"}.` : "", note, done].filter(Boolean).join(" ");
      ui.problem.textContent = problem;
      ui.problem.hidden = !problem;
    }

    // 3e. Pointing ----------------------------------------------------------------------------------------------------

    function point(at) {
      if (at === hover) return;
      hover = at;
      requestAnimationFrame(draw);
    }
    function leave({ pointerType }) {
      if (pointerType === "mouse") point(-1);
    }
    function look(event) {
      if (!shown || !shown.tokens) return;
      const box = ui.big.getBoundingClientRect(), n = shown.tokens.length;
      const [i, j] = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width].map((share) => clamp(Math.floor(share * n), 0, n - 1));
      point(i);
      if (j > i || state.edits[state.open]?.cut) return;
      const [looks, seen] = [i, j].map((place) => visible(model.pieces[shown.tokens[place]]));
      requestAnimationFrame(() => { ui.readout.textContent = `“${looks}” looks at “${seen}” with weight ${shown.now.patterns[state.open][i * n + j].toFixed(3)}`; });
    }
    function walk(event) {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!by || where === "slide" || !shown || !shown.tokens) return;
      event.preventDefault();
      const last = shown.tokens.length - 1;
      point(clamp((hover < 0 ? last : hover) + by, 0, last));
      requestAnimationFrame(() => speak(`${ui.readout.textContent}. Next: ${[...ui.bars.children].slice(0, 3).map((bar) => bar.textContent).join(", ")}`));
    }
    function steer(event) {
      const by = { ArrowRight: 1, ArrowDown: HEADS, ArrowLeft: -1, ArrowUp: -HEADS }[event.key], next = ui.cells.indexOf(event.currentTarget) + by;
      if (!by || where === "slide" || !ui.cells[next]) return;
      event.preventDefault();
      ui.cells[next].focus();
      choose(next);
    }
    document.addEventListener("keydown", ({ key, ctrlKey, metaKey, shiftKey, target }) => {
      if (key === "Escape" && isFull()) full(false);
      if (key.toLowerCase() === "z" && (ctrlKey || metaKey) && target !== ui.text && (isFull() || place.contains(target))) travel(now + (shiftKey ? 1 : -1));
    });

    // 3f. Beginning ---------------------------------------------------------------------------------------------------

    function arrive() {
      const { swap: was, first: from } = history.state || {};
      if (!OURS.test(location.hash)) return isFull() && full(false);
      if (line[was] && address(line[was]) === location.hash) { // Back or Forward
        now = was;
        restore(now);
        return isFull() || full(true, "replaceState", from);
      }
      if (line.length && [HERE, address(state)].includes(location.hash)) return full(true); // the page's own links
      try {
        state = readAddress(location.hash);
        given = Object.keys(state.edits).length > 0;
        problem = "";
      } catch (error) {
        problem = `This address has a part that does not fit: ${error.message}. The page begins anew.`;
        state = start();
      }
      line.splice(now += line.length ? 1 : 0, line.length, frozen());
      full(true);
      tellStep();
    }
    if (alone) addEventListener("popstate", arrive); // not "hashchange": two gestures may have one address
    const repaint = () => {
      colors = null;
      ui.cells.forEach((cell) => { cell.drawn = null; });
      draw();
    };
    new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    if (alone) arrive();
    if (!line.length) line.push(frozen());
    remember();
    reread();
    const script = el("script", { src: `${folder}page-model.js` });
    script.onload = () => {
      model = { pieces: PageModel.pieces, copy: PageModel.copy_heads, few: PageModel.few, remove: PageModel.remove, plan: { ...PageModel.plan, ...PageModel.features } };
      run = engine(PageModel, answered);
      place.dataset.engine = run.alone() ? "slices" : "worker";
      tellStep();
    };
    script.onerror = () => { problem = "The weights of the model did not load: reload the page."; controls(); };
    new IntersectionObserver((seen, watch) => { // not before it is nearly seen
      if (!seen.some((one) => one.isIntersecting)) return;
      watch.disconnect();
      requestAnimationFrame(() => setTimeout(() => document.head.append(script), 0));
    }, { rootMargin: "50%" }).observe(place);
  }

  if (folder) globalThis.Swap = { board }; // for decks; one that is a single file keeps its picture
  const begin = () => document.querySelectorAll("[data-swap]").forEach(board);
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin);
  else begin();
})();
