// The laboratory: systems and attention heads computed in the page, and the views that show them.
//
// It needs nothing but the browser, and it works for a page opened from a file. Its only global is Lab.
//
//   1. Matrices       products, the singular value decomposition, a linear solver
//   2. Systems        poles -> A, lag operators, impulse and frequency response
//   3. Heads          spectrum, floor, best heads, and how many heads a system takes
//   4. Attention      weights of softmax, linear, gated and SSD heads, and their gradients
//   5. Experiments    what a reader can set: checked, kept in the address, computed, written as Python
//   6. Drawing        SVG whose colors are CSS variables
//   7. Panels         one view of an experiment each
//   8. The page       controls, panels and what links them
//   9. Chapters       the sliders of the chapters with continuous values
//
// A matrix is an array of rows. Lag operators are flat, row by row. Parts 1 to 4 agree with the Python library
// ssmbook to 1e-12 of the largest number; tests/browser/test_lab.py compares them.
(function (root) {
  "use strict";
  if (root.Lab) return;

  // 1. Matrices ----------------------------------------------------------------------------------------------

  const range = (n) => Array.from({ length: n }, (_, i) => i);
  const zeros = (m, n) => range(m).map(() => new Array(n).fill(0));
  const eye = (m, n = m) => range(m).map((i) => range(n).map((j) => (i === j ? 1 : 0)));
  const transpose = (X) => X[0].map((_, j) => X.map((row) => row[j]));
  const scaled = (X, factor) => X.map((row) => row.map((value) => factor * value));
  const reshape = (flat, width) => range(flat.length / width).map((i) => flat.slice(i * width, (i + 1) * width));
  const sum = (values) => values.reduce((total, value) => total + value, 0);

  function dot(x, y) {
    let total = 0;
    for (let i = 0; i < x.length; i++) total += x[i] * y[i];
    return total;
  }

  /** The Euclidean length of a vector; tiny and huge entries do not vanish or overflow on the way. */
  function norm(x) {
    const largest = x.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (largest === 0 || !isFinite(largest)) return largest;
    let total = 0;
    for (const value of x) total += (value / largest) ** 2;
    return largest * Math.sqrt(total);
  }

  function multiply(X, Y) {
    return X.map((row) => {
      const out = new Array(Y[0].length).fill(0);
      for (let k = 0; k < Y.length; k++) for (let j = 0; j < out.length; j++) out[j] += row[k] * Y[k][j];
      return out;
    });
  }

  /**
   * The singular value decomposition of a matrix X: {sigma, V} with sigma descending and the right singular
   * vectors as rows of V; there are as many of both as X has columns.
   *
   * One-sided Jacobi: each rotation makes two columns of X orthogonal. When all pairs are, the lengths of the
   * columns are the singular values, and the product of the rotations has the right singular vectors as columns.
   */
  function svd(X) {
    const columns = transpose(X), q = columns.length, V = eye(q);
    const close = 1e-15, mostSweeps = 60; // about ten sweeps are enough
    const rotate = (vectors, j, k, cosine, sine) => {
      const x = vectors[j], y = vectors[k];
      for (let i = 0; i < x.length; i++) {
        const [a, b] = [x[i], y[i]];
        x[i] = cosine * a - sine * b;
        y[i] = sine * a + cosine * b;
      }
    };
    for (let sweep = 0, moved = true; moved && sweep < mostSweeps; sweep++) {
      moved = false;
      for (let j = 0; j < q - 1; j++) {
        for (let k = j + 1; k < q; k++) {
          const [xx, yy, xy] = [dot(columns[j], columns[j]), dot(columns[k], columns[k]), dot(columns[j], columns[k])];
          if (xy === 0 || Math.abs(xy) <= close * Math.sqrt(xx * yy)) continue;
          // The tangent t of the angle solves t^2 + 2 zeta t = 1; the smaller root is the stable one.
          const zeta = (yy - xx) / (2 * xy);
          const t = (zeta < 0 ? -1 : 1) / (Math.abs(zeta) + Math.hypot(1, zeta));
          const cosine = 1 / Math.hypot(1, t);
          rotate(columns, j, k, cosine, cosine * t);
          rotate(V, j, k, cosine, cosine * t);
          moved = true;
        }
      }
    }
    const lengths = columns.map(norm);
    const order = range(q).sort((a, b) => lengths[b] - lengths[a]);
    return { sigma: order.map((i) => lengths[i]), V: order.map((i) => V[i]) };
  }

  /** The largest singular value of a matrix. */
  const spectralNorm = (X) => (X.length && X[0].length ? svd(X).sigma[0] : 0);

  /** Solve P X = Q for a square P by elimination with pivots; null where P is singular. */
  function solve(P, Q) {
    const rows = P.map((row, i) => [...row, ...Q[i]]), n = P.length;
    for (let j = 0; j < n; j++) {
      let best = j;
      for (let i = j + 1; i < n; i++) if (Math.abs(rows[i][j]) > Math.abs(rows[best][j])) best = i;
      if (!rows[best][j]) return null;
      [rows[j], rows[best]] = [rows[best], rows[j]];
      for (let i = 0; i < n; i++) {
        const factor = i === j ? 0 : rows[i][j] / rows[j][j];
        if (factor) for (let k = j; k < rows[i].length; k++) rows[i][k] -= factor * rows[j][k];
      }
    }
    return rows.map((row, i) => row.slice(n).map((value) => value / row[i]));
  }

  // 2. Systems -----------------------------------------------------------------------------------------------
  //
  // A system is {A, B, C, D} with h_t = A h_(t-1) + B x_t and y_t = C h_t + D x_t; D may be missing. A reader
  // gives A by its poles: {radius, angle, size} with an angle from 0 to pi. An angle strictly between them
  // stands for a pair of conjugate poles and fills two states; size m > 1 makes a Jordan block of m of them.

  const isPair = (pole) => pole.angle > 0 && pole.angle < Math.PI;
  const statesOf = (pole) => pole.size * (isPair(pole) ? 2 : 1);

  /** The block of one pole: radius times the rotation by its angle, or the real number that this is. */
  function core({ radius, angle }) {
    if (angle === 0) return [[radius]];
    if (angle === Math.PI) return [[-radius]];
    const [c, s] = [radius * Math.cos(angle), radius * Math.sin(angle)];
    return [[c, -s], [s, c]];
  }

  /** The block-diagonal A with the given poles, in real Jordan form. */
  function matrixOf(poles) {
    const A = zeros(sum(poles.map(statesOf)), sum(poles.map(statesOf)));
    let at = 0;
    for (const pole of poles) {
      const block = core(pole), width = block.length;
      for (let m = 0; m < pole.size; m++, at += width) {
        block.forEach((row, i) => row.forEach((value, j) => { A[at + i][at + j] = value; }));
        if (m + 1 < pole.size) for (let i = 0; i < width; i++) A[at + i][at + width + i] = 1;
      }
    }
    return A;
  }

  /** The lag operators M_tau = C A^tau B for tau < n, each one flat; the skip D belongs to M_0. */
  function lags({ A, B, C, D }, n) {
    const M = [];
    for (let tau = 0, power = B; tau < n; tau++) {
      M.push(multiply(C, power).flat());
      power = multiply(A, power);
    }
    if (D && n) M[0] = M[0].map((value, i) => value + D.flat()[i]);
    return M;
  }

  /** sum_tau M_tau e^(-i omega tau) as {re, im}, p x d each; null at a pole on the unit circle. */
  function frequencyResponse({ A, B, C, D }, omega) {
    const N = A.length, [c, s] = [Math.cos(omega), Math.sin(omega)];
    // (I - A e^(-i omega)) X = B as one real system for the real and the imaginary part of X.
    const P = zeros(2 * N, 2 * N);
    for (let i = 0; i < N; i++) {
      for (let j = 0; j < N; j++) {
        P[i][j] = P[N + i][N + j] = (i === j ? 1 : 0) - A[i][j] * c;
        P[N + i][j] = A[i][j] * s;
        P[i][N + j] = -A[i][j] * s;
      }
    }
    const X = solve(P, [...B, ...zeros(N, B[0].length)]);
    if (!X) return null;
    const re = multiply(C, X.slice(0, N)), im = multiply(C, X.slice(N));
    if (D) D.forEach((row, i) => row.forEach((value, j) => { re[i][j] += value; }));
    return { re, im };
  }

  /** The largest singular value of a complex matrix, through the real matrix [[re, -im], [im, re]]. */
  function gain({ re, im }) {
    const upper = re.map((row, i) => [...row, ...im[i].map((value) => -value)]);
    return spectralNorm([...upper, ...im.map((row, i) => [...row, ...re[i]])]);
  }

  // 3. Heads -------------------------------------------------------------------------------------------------
  //
  // Blocks W_ij written as rows form a matrix whose rank is the number of heads. In a system lag tau fills
  // n - tau blocks, so the n rows sqrt(n - tau) vec M_tau have the same singular values as all n^2 blocks.

  const RTOL = 1e-10; // smaller singular values, relative to the largest, count as zero
  const CLOSE = 100; // within this factor of the tolerance a call is too close
  const ROUNDING = 1e-14;

  const lagRows = (M) => M.map((block, tau) => block.map((value) => value * Math.sqrt(M.length - tau)));

  /** Singular values and vectors of rows, and floor[H], the relative squared error of the best H heads. */
  function spectrum(rows) {
    const { sigma, V } = svd(rows), tails = new Array(sigma.length + 1).fill(0);
    // The sum starts at the smallest singular value, so that no digits cancel.
    for (let h = sigma.length - 1; h >= 0; h--) tails[h] = tails[h + 1] + sigma[h] ** 2;
    return { sigma, V, floor: tails.map((tail) => (tails[0] > 0 ? tail / tails[0] : 0)) };
  }

  /**
   * The H heads closest to blocks with these right singular vectors: value maps V (flat, of norm 1, the first
   * large entry positive) and coefficients[h][r], the coefficient of head h in block r.
   */
  function bestHeads(blocks, vectors, H) {
    const V = vectors.slice(0, H).map((vector) => {
      const half = 0.5 * Math.max(...vector.map(Math.abs)), lead = vector.find((value) => Math.abs(value) >= half);
      return vector.map((value) => (lead < 0 ? -value : value));
    });
    return { V, coefficients: V.map((map) => blocks.map((block) => dot(map, block))) };
  }

  /** The number of singular values above the tolerance, and whether one of them is too close to call. */
  function rankOf(rows) {
    if (!rows.length) return { rank: 0, decided: true };
    const { sigma } = svd(rows);
    const top = sigma[0] || 1, rank = sigma.filter((value) => value > RTOL * top).length;
    const kept = sigma[rank - 1] / top, dropped = (sigma[rank] || 0) / top;
    return { rank, decided: !(kept < CLOSE * RTOL) && !(dropped > RTOL / CLOSE) };
  }

  /**
   * What each distinct pole contributes to the lags: C N^m B for the nilpotent part N of its Jordan blocks, and
   * for a pair also C N^m J B, where J rotates each pair of states by a quarter turn. Flat rows.
   */
  function residues(poles, B, C) {
    const found = new Map(), [p, d] = [C.length, B[0].length];
    let at = 0;
    for (const pole of poles) {
      const width = isPair(pole) ? 2 : 1, turns = pole.radius ? width : 1; // zero does not rotate
      const key = pole.radius ? `${pole.radius} ${pole.angle}` : "0";
      if (!found.has(key)) found.set(key, []);
      const terms = found.get(key);
      for (let m = 0; m < pole.size; m++) {
        for (let turn = 0; turn < turns; turn++) {
          const term = (terms[m * turns + turn] ||= new Array(p * d).fill(0));
          for (let i = 0; i < (pole.size - m) * width; i++) {
            const partner = turn ? (i % 2 ? i - 1 : i + 1) : i, sign = turn && i % 2 === 0 ? -1 : 1;
            const [column, row] = [at + i, at + partner + m * width];
            for (let a = 0; a < p; a++) for (let b = 0; b < d; b++) term[a * d + b] += C[a][column] * sign * B[row][b];
          }
        }
      }
      at += pole.size * width;
    }
    return [...found.values()];
  }

  /**
   * k, how many heads with fixed coefficients a system takes: {rank, decided}.
   *
   * The lags of many tokens have the span of the residues; of fewer tokens than the system has modes, the lags
   * themselves are counted. Lags are no good rows for many tokens, because fast modes soon are rounding errors.
   */
  function headCount({ poles, B, C, D }, n) {
    const A = matrixOf(poles);
    if (n === 0) return { rank: 0, decided: true };
    // With a skip M_0 is special, and the lags from 1 on are those of the system (A, A B, C).
    const later = residues(poles, D ? multiply(A, B) : B, C);
    const top = Math.max(...later.flat().map(norm), D ? norm(D.flat()) : 0);
    const degree = sum(later.map((terms) => (terms.some((term) => norm(term) > RTOL * top) ? terms.length : 0)));
    const M = lags({ A, B, C, D }, Math.min(n, degree + 1));
    const first = D ? [M[0]] : [];
    if (n - first.length >= degree) return rankOf([...first, ...later.flat()]);
    return rankOf(M.map((block) => block.map((value) => value / (norm(block) || 1))));
  }

  const MARGIN = 1e-9; // a smaller margin is not told from rounding

  /**
   * How many softmax heads with a sink a system with the lags M takes: {low, high, reason}.
   *
   * Weights are positive, so every lag must lie inside the cone of the value maps. k maps have such a cone if
   * some direction U has a positive product with every lag; otherwise it takes k + 1. For k <= 3 this is decided
   * in coordinates of the span: by signs on a line, by the largest gap between angles in a plane, and in space
   * by the planes through two lags that have all others on one side.
   */
  function softmaxCount(system, n, k) {
    const exact = (count, reason) => ({ low: count, high: count, reason });
    if (k === 0) return exact(0, "every lag is zero");
    const M = lags(system, n), zero = zeroLag(system, M);
    if (zero >= 0) return exact(k + 1, `lag ${zero} is zero, which positive weights cannot make`);
    const open = (reason) => ({ low: k, high: k + 1, reason });
    if (k > 3) return open("the laboratory decides up to k = 3");
    const unit = M.map((block) => block.map((value) => value / norm(block)));
    const { V } = svd(unit);
    const Z = unit.map((row) => V.slice(0, k).map((axis) => dot(axis, row)));
    if (Z.some((z) => Math.abs(norm(z) - 1) > 1e-12)) return open("the lags are too close to fewer dimensions");
    const side = [, sideOfLine, sideOfPlane, sideOfSpace][k](Z);
    if (side > 0) return exact(k, "one direction has a positive product with every lag");
    if (side < 0) return exact(k + 1, "the lags point in all directions, and positive weights cannot cancel");
    return open("the lags fill a half-space up to rounding");
  }

  /** The first lag that is zero, up to rounding of the terms that it sums; -1 if there is none. */
  function zeroLag({ A, B, C, D }, M) {
    const absolute = (X) => X.map((row) => row.map(Math.abs));
    let power = B;
    for (let tau = 0; tau < M.length; tau++) {
      const skip = D && !tau ? absolute(D).flat() : [];
      const terms = Math.max(...multiply(absolute(C), absolute(power)).flat(), ...skip);
      if (Math.max(...M[tau].map(Math.abs)) <= 1e-12 * terms) return tau;
      power = multiply(A, power);
    }
    return -1;
  }

  // Each returns 1 if all unit vectors lie strictly on one side of the origin, -1 if they do not, 0 if it is close.

  const sideOfLine = (Z) => (Z.every(([z]) => z > 0) || Z.every(([z]) => z < 0) ? 1 : -1);

  function sideOfPlane(Z) {
    const angles = Z.map(([x, y]) => Math.atan2(y, x)).sort((a, b) => a - b);
    const gaps = angles.map((angle, i) => (i + 1 < angles.length ? angles[i + 1] : angles[0] + 2 * Math.PI) - angle);
    const beyond = Math.max(...gaps) - Math.PI;
    return Math.abs(beyond) < MARGIN ? 0 : Math.sign(beyond);
  }

  function sideOfSpace(Z) {
    const cross = ([a, b, c], [x, y, z]) => [b * z - c * y, c * x - a * z, a * y - b * x];
    const U = [0, 0, 0];
    let faces = 0;
    for (let i = 0; i < Z.length; i++) {
      for (let j = 0; j < i; j++) {
        const normal = cross(Z[i], Z[j]), size = norm(normal);
        if (size < MARGIN) continue;
        for (const sign of [1 / size, -1 / size]) {
          if (Z.every((z) => sign * dot(normal, z) > -MARGIN)) {
            faces++;
            for (let c = 0; c < 3; c++) U[c] += sign * normal[c];
          }
        }
      }
    }
    if (!faces) return -1;
    const size = norm(U);
    return size > MARGIN && Z.every((z) => dot(U, z) > MARGIN * size) ? 1 : 0;
  }

  /** The largest difference between row sums M_0 + ... + M_i: without a sink, softmax needs it to be zero. */
  function rowSumSpread(M) {
    const total = new Array(M[0].length).fill(0);
    const sums = M.map((block) => block.map((value, i) => (total[i] += value)));
    return Math.max(...sums.map((row) => norm(row.map((value, i) => value - sums[0][i]))));
  }

  // 4. Attention ---------------------------------------------------------------------------------------------
  //
  // Queries q and keys k are n x width, weights are n x n and zero above the diagonal.

  const products = (q, k) => q.map((query) => k.map((key) => dot(query, key)));
  const causal = (n, value) => range(n).map((i) => range(n).map((j) => (j <= i ? value(i, j) : 0)));

  /** Softmax weights of logits; a sink is one more key with logit 0 and value 0. */
  function softmaxWeights(logits, sink = false) {
    return logits.map((row, i) => {
      const seen = row.slice(0, i + 1), top = Math.max(...seen, ...(sink ? [0] : []));
      const powers = seen.map((logit) => Math.exp(logit - top));
      const total = sum(powers) + (sink ? Math.exp(-top) : 0);
      return row.map((_, j) => (j <= i ? powers[j] / total : 0));
    });
  }

  const FEATURES = { identity: (z) => z, "elu+1": (z) => (z > 0 ? z + 1 : Math.exp(z)) };

  /** Weights <phi(q_i), phi(k_j)> of linear attention, divided by their row sums if normalized. */
  function linearWeights(q, k, { features = "identity", normalized = false } = {}) {
    const phi = (X) => X.map((row) => row.map(FEATURES[features])), scores = products(phi(q), phi(k));
    const alpha = causal(q.length, (i, j) => scores[i][j]);
    return normalized ? alpha.map((row) => row.map((value) => value / (sum(row) || 1))) : alpha;
  }

  /** Weights <q_i, a_(j+1) ... a_i k_j> of a gated head; logA is n x width, or n x 1 for one decay per token. */
  function gatedWeights(q, k, logA) {
    const n = q.length, width = logA[0].length, alpha = zeros(n, n);
    for (let j = 0; j < n; j++) {
      const passed = new Array(width).fill(0); // log a_(j+1) + ... + log a_i
      for (let i = j; i < n; i++) {
        if (i > j) for (let c = 0; c < width; c++) passed[c] += logA[i][c];
        alpha[i][j] = sum(q[i].map((value, c) => value * k[j][c] * Math.exp(passed[width === 1 ? 0 : c])));
      }
    }
    return alpha;
  }

  /** Weights C_i . B_j exp(A (Delta_(j+1) + ... + Delta_i)) Delta_j of an SSD head, A a negative number. */
  function ssdWeights(B, C, delta, A) {
    return gatedWeights(C, B.map((row, j) => row.map((value) => value * delta[j])), delta.map((step) => [A * step]));
  }

  /** The blocks sum_h alpha^h_ij V_h of heads {alpha, V}, flat, for the pairs j <= i in the order of reading. */
  function headBlocks(heads) {
    const blocks = [];
    for (let i = 0; i < heads[0].alpha.length; i++) {
      for (let j = 0; j <= i; j++) {
        blocks.push(heads[0].V.flat().map((_, c) => sum(heads.map(({ alpha, V }) => alpha[i][j] * V.flat()[c]))));
      }
    }
    return blocks;
  }

  /**
   * The blocks dy_i/dx_j of the last output of a softmax head with logits x_i^T G x_j + bias_ij, for every j.
   *
   * For j < i it is alpha_ij (V + (v_j - y_i) (G^T x_i)^T) with v_j = V x_j; j = i adds the path of the query.
   */
  function softmaxGradient(x, alpha, G, V) {
    const n = x.length, i = n - 1, row = alpha[i], values = products(x, V);
    const y = V.map((_, a) => sum(row.map((weight, j) => weight * values[j][a])));
    const g = multiply([x[i]], G)[0];
    const change = (j, a, b) => (values[j][a] - y[a]) * g[b];
    const blocks = row.map((weight, j) => V.map((line, a) => line.map((v, b) => weight * (v + change(j, a, b)))));
    const keys = products(x, G); // G x_j
    blocks[i] = blocks[i].map((line, a) => line.map((value, b) =>
      value + sum(row.map((weight, j) => weight * (values[j][a] - y[a]) * keys[j][b]))));
    return blocks;
  }

  /**
   * The same for a gated head with weights x_i^T G x_j a_(j+1) ... a_i, where slopes[l] is the gradient of
   * log a_l with respect to x_l: a token acts as key, as value and as a gate on everything before it.
   */
  function gatedGradient(x, alpha, G, V, logA, slopes) {
    const n = x.length, i = n - 1, row = alpha[i], values = products(x, V);
    const query = multiply([x[i]], G)[0], keys = products(x, G);
    let passed = sum(logA.slice(1).map(([value]) => value)); // log a_(j+1) + ... + log a_i at j = 0
    const before = V.map(() => 0); // sum over the tokens before j of their share in the output
    const blocks = [];
    for (let j = 0; j < n; j++) {
      const decay = Math.exp(passed);
      blocks.push(V.map((line, a) => line.map((v, b) =>
        row[j] * v + values[j][a] * decay * query[b] + before[a] * slopes[j][b])));
      V.forEach((_, a) => { before[a] += row[j] * values[j][a]; });
      if (j + 1 < n) passed -= logA[j + 1][0];
      else passed = 0;
    }
    // The last token is also the query of every pair; its own gate does not act on itself.
    for (let j = 0; j < n; j++) {
      const decay = Math.exp(sum(logA.slice(j + 1).map(([value]) => value)));
      blocks[i].forEach((line, a) => line.forEach((_, b) => { line[b] += values[j][a] * decay * keys[j][b]; }));
    }
    return blocks;
  }

  /** Norms of the blocks dy_n/dx_j by distance: entry tau belongs to j = n - 1 - tau. */
  const gradientByDistance = (blocks) => blocks.map(spectralNorm).reverse();

  root.Lab = {
    multiply, svd, solve, spectralNorm, matrixOf, lags, frequencyResponse, gain, lagRows, spectrum, bestHeads,
    headCount, softmaxCount, rowSumSpread, softmaxWeights, linearWeights, gatedWeights, ssdWeights, headBlocks,
    softmaxGradient, gatedGradient, gradientByDistance,
  };
})(typeof window === "undefined" ? globalThis : window);
