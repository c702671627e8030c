// Code on stage: programs of four to ten lines that a deck runs, without a kernel, and a bet on what comes out.
//
// A slide shows a program in Python. Here is the same computation on the laboratory's engine; the first numbers of the
// program are fields. tests/book/test_stage.py runs both and compares what they return: values, and a line or null.
(function (root) {
  "use strict";
  const range = (n) => Array.from({ length: n }, (_, i) => i);
  const grid = (rows, columns, value) => range(rows).map((i) => range(columns).map((j) => value(i * columns + j)));
  const multiply = (X, Y) => Lab.multiply(X, Y), transpose = (X) => X[0].map((_, j) => X.map((row) => row[j]));
  const energy = (X) => X.flat().reduce((total, one) => total + one * one, 0);
  const identity = (n) => grid(n, n, (at) => (at % (n + 1) ? 0 : 1));
  const pole = (value) => ({ radius: Math.abs(value), angle: value < 0 ? Math.PI : 0, size: 1 });
  const rotating = (angle) => ({ poles: [{ radius: 1, angle, pair: true, size: 1 }], B: identity(2), C: identity(2) });
  const built = (system) => ({ ...system, A: Lab.matrixOf(system.poles) });

  /** N real poles, d inputs and d outputs whose B and C come from a formula that looks random. */
  function drawn(N, d, seed) {
    const noise = (k) => Math.cos(seed * (k + 1) ** 2);
    return built({ poles: range(N).map((k) => pole(Math.cos(k + 1))), B: grid(N, d, noise), C: grid(d, N, (k) => noise(N * d + k)) });
  }

  // Each has the function of the program's numbers, {values, line}; what was bet on, as a value or a place on the axis
  // (`at`), with its unit; and the axis: what its places are called, and its title.
  const PROGRAMS = {
    train: {
      run(theta, H) {
        const M = Lab.lagRows(Lab.lags(built(rotating(theta)), 20)), values = [];
        let alpha = grid(20, H, Math.cos), V = grid(4, H, Math.cos);
        for (let step = 0; step < 150; step++) {
          const made = multiply(alpha, transpose(V)), error = made.map((row, i) => row.map((one, j) => one - M[i][j]));
          values.push(energy(error) / energy(M));
          const down = (X, slope) => X.map((row, i) => row.map((one, j) => one - 0.04 * slope[i][j]));
          [alpha, V] = [down(alpha, multiply(error, V)), down(V, multiply(transpose(error), alpha))];
        }
        return { values, line: Lab.spectrum(M).floor[H] ?? 0 };
      },
      bet: ({ values }) => 100 * values[values.length - 1], unit: "%", scale: 100, title: "step of training", named: "theory",
    },
    channels: {
      run(N, widest) {
        const noise = (k) => Math.cos((k + 1) ** 2), poles = range(N).map((k) => pole(Math.cos(k + 1)));
        const values = range(widest).map((m) => Lab.headCount(
          { poles, B: grid(N, m + 1, noise), C: grid(m + 1, N, (k) => noise(N * (m + 1) + k)) }, 2 * N).rank);
        return { values, line: N };
      },
      bet: ({ values }) => values[2], unit: "heads", from: 1, title: "inputs and outputs", named: "order",
    },
    fade: {
      run(a, n) {
        const values = [];
        for (let i = 0, h = 0; i < n; i++) values.push((h = a * h + (1 - a) * (i ? 0 : 1)) / (1 - a));
        return { values, line: 0.01 };
      },
      bet: ({ values, line }) => values.findIndex((one) => one < line), at: true, unit: "steps", title: "steps", named: "1 %",
    },
    draw: {
      run(N, d, seed) {
        const { floor } = Lab.spectrum(Lab.lagRows(Lab.lags(drawn(N, d, seed), 128)));
        return { values: range(17).map((H) => floor[H] ?? 0), line: 0.01 };
      },
      bet: ({ values, line }) => values.findIndex((one) => one <= line), at: true, unit: "heads", title: "heads", named: "1 %",
    },
    turn: {
      run(turn, longest) {
        const system = built(rotating((2 * Math.PI) / turn));
        const count = (n) => Lab.softmaxCount(system, n, Lab.headCount(system, n).rank).high; // at exactly half a turn it takes one more
        return { values: range(longest).map((n) => count(n + 1)), line: 2 };
      },
      bet: ({ values, line }) => values.findIndex((one) => one > line) + 1, at: true, unit: "tokens", from: 1, title: "tokens", named: "k",
    },
    margin: {
      run(margin, n) {
        const weight = (length) => 1 / (1 + (length - 1) * Math.exp(-margin));
        return { values: [64, 16, 4, 1].map((part) => weight(Math.floor(n / part))), line: null };
      },
      bet: ({ values }) => 100 * values[3], unit: "%", scale: 100, title: "tokens", names: (margin, n) => [64, 16, 4, 1].map((part) => Math.floor(n / part)),
    },
    bag: {
      run(theta, n) {
        const lags = range(n).map((tau) => [0.95 ** tau * Math.cos(theta * tau), 0.95 ** tau * Math.sin(theta * tau)]), values = [0];
        for (let i = 1, missed = 0, all = 1; i < n; i++) {
          const past = lags.slice(1, i + 1), mean = [0, 1].map((c) => past.reduce((sum, one) => sum + one[c], 0) / i);
          missed += energy(past.map((one) => one.map((part, c) => part - mean[c])));
          values.push(missed / (all += energy(lags.slice(0, i + 1))));
        }
        return { values, line: null };
      },
      bet: ({ values }) => 100 * values[values.length - 1], unit: "%", scale: 100, from: 1, title: "tokens",
    },
    sink: {
      run(sink, H) {
        const own = (1 - sink) ** 2, all = H * (own + sink ** 2); // the energy of a token that one head reads, and of all
        return { values: range(H).map((at) => ((H - 1 - at) * own) / all), line: 0.1 };
      },
      bet: ({ values }) => 100 * values[0], unit: "%", scale: 100, from: 1, title: "heads", named: "10 %",
    },
  };

  root.Stage = { PROGRAMS, prepare };

  // In the page ------------------------------------------------------------------------------------------------

  const [WIDE, LEFT, RIGHT, TOP, LOW] = [640, 64, 90, 14, 56];

  function draw(tag, attributes, text = "") {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.textContent = text;
    return node;
  }

  /** The values as bars, or as a curve where they are many, up to the share `done`; and what was bet. */
  function picture(svg, program, found, numbers, bet, done) {
    const HIGH = Number(svg.getAttribute("height"));
    const { values, line } = found, { scale = 1, from = 0, at, unit, names } = program, many = values.length > 24;
    const top = 1.05 * Math.max(...values, line ?? 0, at || bet === null ? 0 : bet / scale), last = values.length - 1;
    const x = (place) => LEFT + ((place - from + (many ? 0 : 0.5)) / (many ? last : last + 1)) * (WIDE - LEFT - RIGHT);
    const y = (value) => HIGH - LOW - (value / top) * (HIGH - LOW - TOP), seen = values.slice(0, Math.ceil(done * values.length));
    const text = (words, left, below, more = {}) => draw("text", { x: left, y: below, "text-anchor": "middle", ...more }, words);
    const nodes = [draw("path", { d: `M${LEFT} ${TOP}V${HIGH - LOW}H${WIDE - RIGHT}`, class: "axis" })];
    if (line !== null) nodes.push(
      draw("path", { d: `M${LEFT} ${y(line)}H${WIDE - RIGHT}`, class: "line" }),
      text(program.named, WIDE - RIGHT + 8, y(line) + 7, { "text-anchor": "start" }));
    if (many) nodes.push(draw("path", { d: seen.map((one, i) => `${i ? "L" : "M"}${x(i + from)} ${y(one)}`).join(""), class: "curve" }));
    const hit = done < 1 ? null : program.bet(found);
    if (!many) seen.forEach((one, i) => nodes.push(draw("rect", { x: x(i + from) - 9, width: 18, y: y(one), height: HIGH - LOW - y(one), class: at && i + from === hit ? "hit" : "bar" })));
    const label = (i) => (names ? names(...numbers)[i] : i + from);
    const marked = many ? [0, last] : range(values.length).filter((i) => names || values.length < 12 || i % 4 === 0);
    for (const i of marked) nodes.push(text(label(i), x(i + from), HIGH - LOW + 22));
    nodes.push(text(program.title, (LEFT + WIDE - RIGHT) / 2, HIGH - 8), text(`${+(top / 1.05 * scale).toFixed(scale > 1 ? 0 : 2)}${scale > 1 ? " " + unit : ""}`, LEFT - 8, y(top / 1.05) + 7, { "text-anchor": "end" }), text("0", LEFT - 8, HIGH - LOW + 4, { "text-anchor": "end" }));
    if (bet !== null) {
      const place = at ? `M${Math.min(x(bet), WIDE - RIGHT)} ${TOP}V${HIGH - LOW}` : `M${LEFT} ${y(bet / scale)}H${WIDE - RIGHT}`;
      nodes.push(draw("path", { d: place, class: "bet" }));
    }
    svg.replaceChildren(...nodes);
    svg.setAttribute("aria-label", `${program.title}: ${seen.map((one) => +one.toPrecision(3)).join(", ")}`);
  }

  /** The numbers of a program: what its first line of numbers assigns, as fields. */
  function fields(code) {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    const line = /^[A-Za-z]\w*(, [A-Za-z]\w*)* = [\d., -]+$/m.exec(code.textContent), made = [];
    for (let at = 0, node = walker.nextNode(); node; at += node.length, node = walker.nextNode()) {
      const span = node.parentElement;
      if (at > line.index && at < line.index + line[0].length && /^m[fi]$/.test(span.className)) made.push(span);
    }
    return made.map((span) => {
      const field = document.createElement("input"), whole = span.className === "mi", value = Number(span.textContent);
      Object.assign(field, { type: "number", step: whole ? 1 : "any", value: span.textContent });
      if (whole) Object.assign(field, { min: 1, max: Math.max(10, 2 * value) });
      field.style.width = span.textContent.length + 2.5 + "ch";
      field.setAttribute("aria-label", "a number of the program");
      span.replaceChildren(field);
      return field;
    });
  }

  /** Make the programs under `node` run: at the next key, at their button, at Enter in a field; on paper at once. */
  function prepare(node, printed) {
    for (const stage of node.querySelectorAll(".run")) {
      const program = PROGRAMS[stage.dataset.run], code = stage.querySelector("pre"), lines = code.textContent.trim().split("\n").length;
      const numbers = fields(code), under = document.createElement("div"), words = document.createElement("div"), high = Math.min(320, 562 - 31 * lines);
      const svg = draw("svg", { viewBox: `0 0 ${WIDE} ${high}`, width: WIDE, height: high, role: "img" });
      const bet = document.createElement("input"), button = document.createElement("button"), said = document.createElement("output"), picked = document.createElement("label");
      under.className = "under";
      Object.assign(bet, { type: "number", step: "any" });
      picked.append("Your bet: ", bet, ` ${program.unit}`);
      button.textContent = "Run";
      said.textContent = "\u00a0";
      words.append(...Array.from(stage.querySelectorAll("p")), picked, " ", button, said);
      svg.classList.add("fragment");
      under.append(words, svg);
      stage.append(under);
      let frame = 0;
      const run = () => {
        cancelAnimationFrame(frame);
        const given = numbers.map((one) => (one.step === "1" ? Math.min(one.max, Math.max(1, Math.round(one.value))) : Number(one.value)));
        numbers.forEach((one, i) => { if (one.step === "1") one.value = given[i]; });
        const found = program.run(...given), answer = program.bet(found), guess = bet.value === "" ? null : Number(bet.value);
        svg.classList.add("visible");
        const tell = () => { said.textContent = !isFinite(answer) || answer < 0 ? "No such number comes out." : `It is ${+answer.toPrecision(3)} ${program.unit}.`; };
        const start = performance.now(), still = printed || matchMedia("(prefers-reduced-motion: reduce)").matches;
        const step = (now) => {
          const done = still ? 1 : Math.min(1, Math.max(0, now - start) / 1500);
          picture(svg, program, found, given, guess, done);
          if (done < 1) frame = requestAnimationFrame(step);
          else tell();
        };
        step(start);
      };
      stage.run = run;
      button.addEventListener("click", () => { button.blur(); run(); });
      stage.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.target.blur(); run(); } });
      picture(svg, program, { values: [1], line: null }, numbers.map((one) => Number(one.value)), null, 0);
      if (printed) run();
    }
  }
})(typeof window === "undefined" ? globalThis : window);
