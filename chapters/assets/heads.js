// A small transformer in the page: its exact forward pass, and what may take the place of each of its heads.
//
//   1. Weights     8-bit rows with a scale each, in one base64 string; the vocabulary
//   2. Dense       products of matrices, the norm
//   3. Heads       attention weights, N states, an edit
//   4. The model   layer by layer, from the first layer that an edit changes
//   5. Serving     the questions of the page, answered in slices: in a worker, or beside the page
//
// It agrees with PageModel and edit_heads of headsandstates.experiments; tests/experiments/test_page_heads.py compares them in Node.
// An edit has the names it has there: {content, states}, {window}, {causal}, {cut} or {merge}; key = layer * 8 + head.
(function (root) {
  "use strict";

  function make(Eigen) {
    const MOST_READ = 30, MOST_WRITTEN = 15; // exponents of features end here, as in the library

    // 1. Weights ---------------------------------------------------------------------------------------------

    function load(given) {
      const text = atob(given.data), bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
      const model = { ...given, data: null, fixed: new Map() };
      for (const [name, { kind, at, shape, scales }] of Object.entries(given.tensors)) {
        const width = shape[shape.length - 1], size = shape.reduce((all, one) => all * one, 1);
        const view = new DataView(bytes.buffer, at), row = scales === undefined ? null : new DataView(bytes.buffer, scales);
        model[name] = Float64Array.from({ length: size }, (_, i) =>
          kind === "int8" ? view.getInt8(i) * row.getFloat32(4 * Math.floor(i / width), true) : half(view.getUint16(2 * i, true)));
      }
      return model;
    }

    /** A number of 16 bits: sign, five bits of exponent, ten of fraction. */
    function half(bits) {
      const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
      return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
    }

    /** The tokens of a text, at each place the longest piece that fits, and the characters that are in no piece. */
    function encode(pieces, text) {
      const numbers = new Map(pieces.map((piece, i) => [piece, i]));
      const longest = Math.max(...pieces.map((piece) => piece.length)), codes = [], unknown = new Set();
      numbers.delete(pieces[0]); // the start
      for (let at = 0; at < text.length;) {
        let size = Math.min(longest, text.length - at);
        while (size && !numbers.has(text.substr(at, size))) size--;
        if (size) codes.push(numbers.get(text.substr(at, size)));
        else unknown.add(String.fromCodePoint(text.codePointAt(at)));
        at += size || String.fromCodePoint(text.codePointAt(at)).length;
      }
      return { codes, unknown: [...unknown] };
    }

    // 2. Dense -----------------------------------------------------------------------------------------------

    /** x (n, p) by the rows of w (q, p), q even: (n, q). Four tokens by two outputs at a time stay in registers. */
    function product(x, w, n, p, q) {
      const y = new Float64Array(n * q);
      for (let i = 0; i < n; i += 4) {
        const many = Math.min(4, n - i), a = i * p;
        const b = a + (many > 1 ? p : 0), c = a + (many > 2 ? 2 * p : 0), d = a + (many > 3 ? 3 * p : 0);
        for (let j = 0; j < q; j += 2) {
          const r = j * p, s = r + p, o = i * q + j;
          let a0 = 0, b0 = 0, c0 = 0, d0 = 0, a1 = 0, b1 = 0, c1 = 0, d1 = 0;
          for (let k = 0; k < p; k++) {
            const v = w[r + k], u = w[s + k], e = x[a + k], f = x[b + k], g = x[c + k], h = x[d + k];
            a0 += e * v; b0 += f * v; c0 += g * v; d0 += h * v;
            a1 += e * u; b1 += f * u; c1 += g * u; d1 += h * u;
          }
          y[o] = a0; y[o + 1] = a1;
          if (many > 1) { y[o + q] = b0; y[o + q + 1] = b1; }
          if (many > 2) { y[o + 2 * q] = c0; y[o + 2 * q + 1] = c1; }
          if (many > 3) { y[o + 3 * q] = d0; y[o + 3 * q + 1] = d1; }
        }
      }
      return y;
    }

    /** Divide each of n rows of width d by its root mean square. */
    function norm(x, n, d) {
      const y = new Float64Array(n * d);
      for (let i = 0; i < n; i++) {
        let squares = 0;
        for (let k = i * d; k < (i + 1) * d; k++) squares += x[k] * x[k];
        const factor = 1 / Math.sqrt(squares / d + 1e-5);
        for (let k = i * d; k < (i + 1) * d; k++) y[k] = x[k] * factor;
      }
      return y;
    }

    const add = (x, more) => { for (let i = 0; i < x.length; i++) x[i] += more[i]; };
    const part = (model, name, layer, size) => model[name].subarray(layer * size, (layer + 1) * size);

    // 3. Heads -----------------------------------------------------------------------------------------------

    /** softmax(content * score + bias) of one head; a token sees itself, the first one and window - 1 before it. */
    function pattern(model, layer, head, q, k, n, content = 1, window = n) {
      const { heads, width, context, scale } = model, r = width / heads, alpha = new Float64Array(n * n);
      const bias = (layer * heads + head) * context;
      for (let i = 0; i < n; i++) {
        const row = i * n, mine = i * width + head * r;
        let most = -Infinity, total = 0;
        for (let j = 0; j <= i; j++) {
          if (j && i - j >= window) continue;
          let score = 0;
          if (content) for (let c = 0, its = j * width + head * r; c < r; c++) score += q[mine + c] * k[its + c];
          const logit = alpha[row + j] = content * scale * score + model.b[bias + i - j];
          if (logit > most) most = logit;
        }
        for (let j = 0; j <= i; j++) if (!j || i - j < window) total += alpha[row + j] = Math.exp(alpha[row + j] - most);
        for (let j = 0; j <= i; j++) alpha[row + j] /= total;
      }
      return alpha;
    }

    /**
     * The weights of causal states, which know nothing of what comes: the first token and the last ones are read exactly,
     * the others through features, each read and written with the exponent of a linear function. ``ends`` has what is
     * added to the exponents; beside its head a feature also sees the place, the query by the biases of its row.
     */
    function causal(model, layer, head, q, k, n) {
      const { heads, width, context, scale, near } = model, r = width / heads, alpha = new Float64Array(n * n);
      const key = layer * heads + head, N = model.tensors.read.shape[2], wide = r + context, bias = key * context;
      const reads = new Float64Array(n * N), writes = new Float64Array(n * N);
      for (let i = 0; i < n; i++) {
        for (let s = 0; s < N; s++) {
          const feature = key * N + s, row = feature * wide, mine = i * width + head * r;
          let a = model.ends[feature], c = model.ends[model.layers * heads * N + feature] + model.write[row + r + i];
          for (let at = 0; at < r; at++) {
            a += scale * q[mine + at] * model.read[row + at];
            c += k[mine + at] * model.write[row + at];
          }
          for (let j = 0; j < context; j++) a += model.b[bias + Math.max(0, i - j)] * model.read[row + r + j];
          reads[i * N + s] = a;
          writes[i * N + s] = Math.exp(Math.min(MOST_WRITTEN, c));
        }
      }
      for (let i = 0; i < n; i++) {
        const row = i * n, isNear = (j) => !j || i - j < near;
        let most = -Infinity, total = 0;
        for (let j = 0; j <= i; j++) {
          if (!isNear(j)) continue;
          let score = 0;
          for (let c = 0; c < r; c++) score += q[i * width + head * r + c] * k[j * width + head * r + c];
          alpha[row + j] = scale * score + model.b[bias + i - j];
          most = Math.max(most, alpha[row + j]);
        }
        const own = reads.subarray(i * N, (i + 1) * N).map((a) => Math.exp(Math.min(MOST_READ, a - most)));
        for (let j = 0; j <= i; j++) {
          if (isNear(j)) alpha[row + j] = Math.exp(alpha[row + j] - most);
          else for (let s = 0; s < N; s++) alpha[row + j] += own[s] * writes[j * N + s];
          total += alpha[row + j];
        }
        for (let j = 0; j <= i; j++) alpha[row + j] /= total;
      }
      return alpha;
    }

    /**
     * The coefficients alpha (n, n) carried by N states, as lens.truncate has them. After token t a row of states has at
     * j <= t what token j adds to a state, and at i > t what row i reads of it. A new token is one more state; the
     * direction that later rows read least is dropped.
     */
    function truncate(alpha, n, N) {
      const k = N + 1, part = n - k; // from there on there are no more rows than states
      if (part <= N) return alpha; // no cut has a larger rank
      const found = new Float64Array(n * n), gram = new Float64Array(k * k), mixed = new Float64Array(n);
      const states = Array.from({ length: k }, () => new Float64Array(n));
      const read = (i, many, before) => {
        for (let s = 0; s < many; s++) {
          const state = states[s], weight = state[i];
          if (weight) for (let j = 0; j < before; j++) found[i * n + j] += weight * state[j];
        }
      };
      for (let t = 0; t < part; t++) {
        const many = Math.min(t, N), own = states[many];
        read(t, many, t);
        found[t * n + t] = alpha[t * n + t];
        for (let s = 0; s < many; s++) states[s][t] = 0;
        own.fill(0, 0, t);
        own[t] = 1;
        for (let i = t + 1; i < n; i++) own[i] = alpha[i * n + t];
        if (many < N) continue;
        for (let a = 0; a < k; a++) {
          for (let b = 0; b <= a; b++) {
            const one = states[a], other = states[b];
            let total = 0;
            for (let i = t + 1; i < n; i++) total += one[i] * other[i];
            gram[a * k + b] = gram[b * k + a] = total;
          }
        }
        // A reflection I - u u^T turns the direction that is read least into the last state, which is left out.
        const u = Eigen.least(gram, k);
        u[N] += u[N] < 0 ? -1 : 1;
        const scale = Math.sqrt(Math.abs(u[N]));
        mixed.fill(0);
        for (let s = 0; s < k; s++) {
          const state = states[s], share = (u[s] /= scale);
          for (let i = 0; i < n; i++) mixed[i] += share * state[i];
        }
        for (let s = 0; s < N; s++) {
          const state = states[s], share = u[s];
          for (let i = 0; i < n; i++) state[i] -= share * mixed[i];
        }
      }
      for (let i = part; i < n; i++) {
        read(i, N, part);
        for (let j = part; j <= i; j++) found[i * n + j] = alpha[i * n + j];
      }
      return found;
    }

    const isGone = (edit) => Boolean(edit && (edit.cut || edit.merge));

    /** The attention weights of a layer's heads under their edits. */
    function patterns(model, layer, q, k, n, edits) {
      const { heads } = model, own = (head) => edits[layer * heads + head];
      const found = Array.from({ length: heads }, (_, head) => {
        const { content = 1, states = n, window = n } = own(head) || {};
        if (isGone(own(head))) return null;
        if (own(head)?.causal) return causal(model, layer, head, q, k, n);
        const key = content === 0 ? `${layer} ${head} ${n} ${states}` : ""; // without content all texts have the same
        if (key && model.fixed.has(key)) return model.fixed.get(key);
        const alpha = pattern(model, layer, head, q, k, n, content, window);
        const carried = states < n ? truncate(alpha, n, states) : alpha;
        if (key && model.fixed.size < 256) model.fixed.set(key, carried);
        return carried;
      });
      const stay = found.flatMap((alpha, head) => (alpha ? [head] : []));
      return found.map((alpha, head) => {
        if (alpha) return alpha;
        const mixed = new Float64Array(n * n);
        if (own(head).merge && stay.length) {
          shares(model.grams[layer][head], head, stay).forEach((share, g) => {
            const other = found[stay[g]];
            for (let i = 0; i < mixed.length; i++) mixed[i] += share * other[i];
          });
        }
        return mixed;
      });
    }

    /** How much of a head's value map each head that stays receives: least squares, with a small ridge. */
    function shares(gram, head, stay) {
      const trace = stay.reduce((total, g) => total + gram[g][g], 0);
      const normal = stay.map((g) => stay.map((h) => gram[g][h] + (g === h ? 1e-6 * trace : 0)));
      return Eigen.solve(normal, stay.map((g) => gram[g][head]));
    }

    // 4. The model -------------------------------------------------------------------------------------------

    const same = (one, other) => JSON.stringify(one || null) === JSON.stringify(other || null);

    /** The first layer whose edits are others than those that a state was computed with. */
    function firstChanged(model, edits, before) {
      const { layers, heads } = model;
      for (let key = 0; key < layers * heads; key++) if (!same(edits[key], before[key])) return Math.floor(key / heads);
      return layers;
    }

    /**
     * Run the model on tokens (n,), the first of them the start: {n, edits, inputs, patterns, logits}. A generator, which
     * stops after every layer. ``before``: a state of the same tokens, whose layers below the first change are kept.
     */
    function* forward(model, tokens, edits = {}, before = null) {
      const { layers, heads, width, hidden, context } = model, n = tokens.length, r = width / heads;
      if (n < 1 || n > context) throw new RangeError(`tokens must be 1 to ${context}; got ${n}`);
      const from = before ? firstChanged(model, edits, before.edits) : 0;
      if (before && from === layers) return before;
      const state = { n, edits, inputs: [], patterns: [] };
      let x = new Float64Array(n * width);
      if (before) {
        state.inputs = before.inputs.slice(0, from);
        state.patterns = before.patterns.slice(0, from);
        x.set(before.inputs[from]);
      } else {
        tokens.forEach((token, i) => x.set(model.E.subarray(token * width, (token + 1) * width), i * width));
        x = norm(x, n, width);
      }
      for (let layer = from; layer < layers; layer++) {
        state.inputs.push(x.slice());
        const square = width * width, h = norm(x, n, width);
        const [q, k, v] = ["Q", "K", "V"].map((name) => product(h, part(model, name, layer, square), n, width, width));
        const alphas = patterns(model, layer, norm(q, n * heads, r), norm(k, n * heads, r), n, edits);
        const mixed = new Float64Array(n * width);
        alphas.forEach((alpha, head) => {
          for (let i = 0; i < n; i++) {
            for (let j = 0, at = i * width + head * r; j <= i; j++) {
              const weight = alpha[i * n + j];
              if (weight) for (let c = 0, its = j * width + head * r; c < r; c++) mixed[at + c] += weight * v[its + c];
            }
          }
        });
        state.patterns.push(alphas);
        add(x, product(mixed, part(model, "O", layer, square), n, width, width));
        const wide = product(norm(x, n, width), part(model, "up", layer, hidden * width), n, width, hidden);
        for (let i = 0; i < wide.length; i++) wide[i] = wide[i] > 0 ? wide[i] * wide[i] : 0;
        add(x, product(wide, part(model, "down", layer, width * hidden), n, hidden, width));
        yield;
      }
      state.logits = product(norm(x, n, width), model.E, n, width, model.pieces.length);
      return state;
    }

    /** What a generator returns, without a stop. */
    function finish(steps) {
      for (let step = steps.next(); ; step = steps.next()) if (step.done) return step.value;
    }

    /** The probabilities (n, 512) of what comes next, and for each token after the start its bits and whether it led. */
    function guesses(model, tokens, logits) {
      const n = tokens.length, size = model.pieces.length, next = new Float32Array(n * size), bits = [], right = [];
      for (let i = 0; i < n; i++) {
        let best = 0, total = 0;
        for (let k = 1; k < size; k++) if (logits[i * size + k] > logits[i * size + best]) best = k;
        for (let k = 0; k < size; k++) total += next[i * size + k] = Math.exp(logits[i * size + k] - logits[i * size + best]);
        for (let k = 0; k < size; k++) next[i * size + k] /= total;
        if (i + 1 === n) continue;
        bits.push(Math.log2(total) - (logits[i * size + tokens[i + 1]] - logits[i * size + best]) / Math.LN2);
        right.push(best === tokens[i + 1]);
      }
      return { next, bits, right };
    }

    const mean = (values) => values.reduce((total, value) => total + value, 0) / Math.max(1, values.length);

    // 5. Serving ---------------------------------------------------------------------------------------------

    /**
     * Return what receives the page's messages; answers go to ``post``, the work goes on by ``later``. A message is
     * {tokens, edits, id}; answered are {id, before, now}, then {id, meters}, then {id, damage} as far as it is known. A new
     * message takes the place of what is unfinished.
     */
    function serve(given, post, later) {
      const model = load(given), cache = {}, periods = given.random.length;
      const random = [0, ...Array.from({ length: 4 * periods }, (_, i) => given.random[i % periods])];
      const sentence = [0, ...encode(given.pieces, given.sentence).codes].slice(0, given.context);
      let work = null, waiting = false;

      /** The state of some tokens as trained, and of the last edits. */
      function* both(name, tokens, edits) {
        if (!cache[name] || !same(cache[name].tokens, tokens)) {
          const plain = yield* forward(model, tokens);
          cache[name] = { tokens, plain, last: plain };
        }
        const held = cache[name];
        const nearer = firstChanged(model, edits, held.last.edits) > firstChanged(model, edits, held.plain.edits);
        return (held.last = yield* forward(model, tokens, edits, nearer ? held.last : held.plain));
      }
      const shown = (tokens, state) => ({ ...guesses(model, tokens, state.logits), patterns: state.patterns.flat().map((alpha) => Float32Array.from(alpha)) });
      function* meter(edits) {
        const values = {};
        for (const [name, tokens] of [["copying", random], ["sentence", sentence]]) {
          const now = yield* both(name, tokens, edits);
          values[name] = [cache[name].plain, now].map((state) => {
            const { bits, right } = guesses(model, tokens, state.logits);
            return name === "copying" ? mean(right.slice(periods).map(Number)) : mean(bits);
          });
        }
        return values;
      }
      function* answer({ tokens, edits, id }) {
        const started = Date.now(), now = yield* both("text", tokens, edits), { plain } = cache.text;
        const answered = { id, before: shown(tokens, plain), now: shown(tokens, now), ms: Date.now() - started };
        post(answered);
        yield;
        post({ id, meters: yield* meter(edits) });
        const known = (cache.text.damage ??= []);
        if (known.length) post({ id, damage: known }); // of a text that was asked before
        for (let key = known.length; key < model.layers * model.heads; key++) {
          const alone = yield* forward(model, tokens, { [key]: { content: 0 } }, plain);
          const { bits } = guesses(model, tokens, alone.logits);
          known.push(mean(bits) - mean(answered.before.bits));
          post({ id, damage: known });
          yield;
        }
      }
      function pump() {
        waiting = false;
        const step = work && work.next();
        if (step && step.done) work = null;
        if (work) {
          waiting = true;
          later(pump);
        }
      }
      return (message) => {
        work = answer(message);
        if (!waiting) pump();
      };
    }

    return { load, encode, pattern, truncate, forward, finish, guesses, serve };
  }

  root.Heads = Object.assign(make(root.Eigen), { source: make.toString() });
})(globalThis);
