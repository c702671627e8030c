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
//   9. Chapters       the sliders and menus of the chapters
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
   * A tall X is first replaced by its triangular factor, which has the same singular values and vectors. Where only
   * the singular values are wanted, the vectors are left out.
   */
  function svd(X, vectors = true) {
    const columns = transpose(X), q = columns.length, V = vectors ? eye(q) : range(q).map(() => []);
    if (X.length > q) triangulate(columns);
    const close = 1e-15, mostSweeps = 60; // about ten sweeps are enough
    const nothing = 1e-33 * sum(columns.map((column) => dot(column, column))); // such a product is rounding only
    const rotate = (x, y, cosine, sine) => {
      for (let i = 0; i < x.length; i++) {
        const a = x[i], b = y[i];
        x[i] = cosine * a - sine * b;
        y[i] = sine * a + cosine * b;
      }
    };
    for (let sweep = 0, moved = true; moved && sweep < mostSweeps; sweep++) {
      moved = false;
      for (let j = 0; j < q - 1; j++) {
        for (let k = j + 1; k < q; k++) {
          const x = columns[j], y = columns[k], xx = dot(x, x), yy = dot(y, y), xy = dot(x, y);
          if (Math.abs(xy) <= nothing || Math.abs(xy) <= close * Math.sqrt(xx * yy)) continue;
          // The tangent t of the angle solves t^2 + 2 zeta t = 1; the smaller root is the stable one.
          const zeta = (yy - xx) / (2 * xy);
          const t = (zeta < 0 ? -1 : 1) / (Math.abs(zeta) + Math.hypot(1, zeta));
          const cosine = 1 / Math.hypot(1, t);
          rotate(x, y, cosine, cosine * t);
          rotate(V[j], V[k], cosine, cosine * t);
          moved = true;
        }
      }
    }
    const lengths = columns.map(norm);
    const order = range(q).sort((a, b) => lengths[b] - lengths[a]);
    return { sigma: order.map((i) => lengths[i]), V: order.map((i) => V[i]) };
  }

  /** Reflect columns, each longer than there are of them, onto those of a triangular matrix, and cut them there. */
  function triangulate(columns) {
    const q = columns.length;
    columns.forEach((pivot, j) => {
      const length = norm(pivot.slice(j));
      if (length) {
        const mirror = pivot.slice(j);
        mirror[0] += pivot[j] < 0 ? -length : length;
        const half = dot(mirror, mirror) / 2;
        for (const column of columns.slice(j)) {
          let share = 0;
          for (let i = 0; i < mirror.length; i++) share += mirror[i] * column[j + i];
          share /= half;
          for (let i = 0; i < mirror.length; i++) column[j + i] -= share * mirror[i];
        }
      }
    });
    for (const column of columns) column.length = q;
  }

  /** The largest singular value of a matrix. */
  const spectralNorm = (X) => (X.length && X[0].length ? svd(X, false).sigma[0] : 0);

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
  // gives A by its poles: {radius, angle, pair, size}. A pair is two conjugate poles at plus and minus an angle
  // from 0 to pi and fills two states; a single pole is real, so its angle is 0 or pi. A size m > 1 makes a
  // Jordan block of m of them.

  const turns = ({ radius, angle }) => radius > 0 && angle > 0 && angle < Math.PI;
  const widthOf = (pole) => (pole.pair ? 2 : 1);
  const statesOf = (pole) => pole.size * widthOf(pole);

  /** The block of one pole for one step: the radius times the rotation by the angle, or a real number. */
  function core({ radius, angle, pair }) {
    const [c, s] = [radius * Math.cos(angle), turns({ radius, angle }) ? radius * Math.sin(angle) : 0];
    return pair ? [[c, 0 - s], [s, c]] : [[c]];
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

  /** The discrete {A, B, C} of a continuous system for steps of length delta: "zoh", "euler", "bilinear" or "mixed". */
  function discretize({ A, B, C }, delta, discretization) {
    const Z = scaled(A, delta), b = scaled(B, delta), N = A.length;
    const plus = (X, Y, factor) => X.map((row, i) => row.map((value, j) => value + factor * Y[i][j]));
    if (discretization === "euler") return { A: plus(eye(N), Z, 1), B: b, C };
    if (discretization === "bilinear") {
      const right = plus(eye(N), Z, 0.5).map((row, i) => [...row, ...b[i]]), X = solve(plus(eye(N), Z, -0.5), right);
      return { A: X.map((row) => row.slice(0, N)), B: X.map((row) => row.slice(N)), C };
    }
    // The exponential of [Z b; 0 0] by its series for a part of the step, which is then doubled.
    const doublings = Math.max(0, Math.ceil(Math.log2(highest([...Z, ...b]) + 1e-300)) + 3);
    const whole = [...Z.map((row, i) => [...row, ...b[i]]), ...zeros(b[0].length, N + b[0].length)];
    const part = scaled(whole, 2 ** -doublings);
    let E = eye(whole.length);
    for (let k = 16; k > 0; k--) E = plus(eye(whole.length), multiply(part, E), 1 / k);
    for (let k = 0; k < doublings; k++) E = multiply(E, E);
    const held = E.slice(0, N);
    const B_bar = discretization === "mixed" ? b : held.map((row) => row.slice(N));
    return { A: held.map((row) => row.slice(0, N)), B: B_bar, C };
  }

  /** The two eigenvalues of a 2 x 2 matrix as [real, imaginary]; of real ones the smaller comes first. */
  function eigenvalues([[a, b], [c, d]]) {
    const middle = (a + d) / 2, square = middle ** 2 - (a * d - b * c), root = Math.sqrt(Math.abs(square));
    return square < 0 ? [[middle, root], [middle, -root]] : [[middle - root, 0], [middle + root, 0]];
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
    const { sigma } = svd(rows.length < rows[0].length ? transpose(rows) : rows, false);
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
      const width = widthOf(pole), parts = turns(pole) ? 2 : 1;
      const key = pole.radius ? `${pole.radius} ${pole.angle}` : "0";
      if (!found.has(key)) found.set(key, []);
      const terms = found.get(key);
      for (let m = 0; m < pole.size; m++) {
        for (let turn = 0; turn < parts; turn++) {
          const term = (terms[m * parts + turn] ||= new Array(p * d).fill(0));
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
  function softmaxCount(system, n, k, M = lags(system, n)) {
    const exact = (count, reason) => ({ low: count, high: count, reason });
    if (k === 0) return exact(0, "every lag is zero");
    const zero = zeroLag(system, M);
    if (zero >= 0) return exact(k + 1, `lag ${zero} is zero, which positive weights cannot make`);
    const open = (reason) => ({ low: k, high: k + 1, reason });
    if (k > 3) return open("the laboratory decides up to k = 3");
    const unit = M.map((block) => block.map((value) => value / norm(block)));
    const { V } = svd(unit);
    const Z = unit.map((row) => V.slice(0, k).map((axis) => dot(axis, row)));
    if (Z.some((z) => Math.abs(norm(z) - 1) > 1e-12)) return open("the lags are too close to fewer dimensions");
    const side = [, sideOfLine, sideOfPlane, sideOfSpace][k](Z);
    if (side > 0) return exact(k, "one direction has a positive product with every lag");
    const maps = k === 1 ? "one value map" : `${k} value maps`;
    const around = `the lags surround the origin, and positive weights on ${maps} reach only one side of it`;
    if (side < 0) return exact(k + 1, around);
    return open("the lags fill a half-space up to rounding");
  }

  /** The first lag that is zero, up to rounding of the terms that it sums; -1 if there is none. */
  function zeroLag({ A, B, C, D }, M) {
    const absolute = (X) => X.map((row) => row.map(Math.abs));
    let power = B;
    for (let tau = 0; tau < M.length; tau++) {
      const size = highest([M[tau]]), most = A.length * highest(C) * highest(power); // of a sum of terms
      if (size <= 1e-12 * most || (D && !tau)) {
        const skip = D && !tau ? absolute(D).flat() : [];
        if (size <= 1e-12 * Math.max(...multiply(absolute(C), absolute(power)).flat(), ...skip)) return tau;
      }
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

  /** The largest difference of row sums M_0 + ... + M_i, by the largest lag: without a sink it has to be zero. */
  function rowSumSpread(M) {
    const total = new Array(M[0].length).fill(0);
    const sums = M.map((block) => block.map((value, i) => (total[i] += value)));
    const largest = Math.max(...M.map(norm)) || 1;
    return Math.max(...sums.map((row) => norm(row.map((value, i) => value - sums[0][i])))) / largest;
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

  // 5. Experiments -------------------------------------------------------------------------------------------
  //
  // An experiment is all that a reader can set. It is a plain object; `read` makes one of an address and says what
  // it could not use, `write` is its inverse, `compute` gives all numbers that are shown, `python` the cell of the
  // library that prints the same numbers. Numbers are rounded to what an address holds, so nothing is lost on the
  // way. There are two modes: "system", a state space model, and "attention", one or two heads on a few tokens.

  const LIMITS = { tokens: 64, points: 16, width: 4, states: 8, size: 3, sharpness: 8 };
  const DIGITS = 4;
  const POINTS = [ // where the tokens of an attention head are at first
    [0.9, 0.1], [-0.4, 0.5], [-0.6, -0.2], [0.1, -0.7], [-0.3, -0.6], [-0.8, 0.3], [-0.2, 0.8], [0.3, 0.6],
    [-0.7, -0.5], [0.4, -0.4], [-0.5, 0.1], [0.8, 0.3], [0.2, 0.9], [-0.9, -0.1], [0.5, -0.8], [0.6, 0.5],
  ];
  const DEFAULTS = {
    mode: "system", n: 20, H: 1,
    poles: [{ radius: 1, angle: 0.7, pair: true, size: 1 }], p: 2, d: 2, B: "identity", C: "identity", D: "zero",
    kind: "softmax", points: POINTS.slice(0, 10), sharpness: 3, sink: true, memory: 0.8, morph: 0, gate: 0, heads: 1, goal: 0,
  };
  const EXAMPLES = [
    ["system", "A rotation", "n=20&poles=1@0.7"],
    ["system", "A slow rotation", "n=20&poles=1@0.1"],
    ["system", "A half turn at every token", "n=20&poles=0.95@pi"],
    ["system", "A sign-alternating system", "n=20&poles=-0.9&p=1&d=1"],
    ["system", "A moving average", "n=20&poles=0.8&p=1&d=1"],
    ["system", "A Jordan block", "n=20&poles=0.8x2"],
    ["system", "Six states, one number in and out", "n=32&poles=0.95@0.4,0.9@1.3,0.85@2.4&p=1&d=1&B=ones&C=ones"],
    ["system", "Two channels of S4D", "n=24&poles=0.95@0.3,0.9@1.1&B=1,0;0,0;0,1;0,0&C=1,0,0,0;0,0,1,0"],
    ["system", "Random, four states", "n=24&poles=0.95@0.5,0.8,-0.6&B=random&C=random"],
    ["system", "A moving average with a skip D", "n=20&poles=0.8&p=1&d=1&D=ones"],
    ["system", "A pure delay", "n=8&poles=0x3&p=1&d=1&B=0;0;1&C=1,0,0"],
    ["attention", "Softmax with a sink", "n=10&sharp=3&sink=1"],
    ["attention", "All keys alike", "n=16&sharp=0&sink=0"],
    ["attention", "From softmax to decay, half way", "n=10&sharp=3&sink=1&decay=0.8&morph=0.5"],
    ["attention", "A head that is a state space model", "n=12&sink=1&decay=0.8&morph=1"],
    ["attention", "Two heads", "n=10&sharp=3&sink=1&heads=2&H=1"],
    ["attention", "Linear attention with a gate", "n=12&kind=gated&sharp=1&decay=0.9&gate=3"],
  ].map(([mode, name, fields]) => ({ name, mode, address: `${mode}&${fields}` }));

  // Three things to try: what each sets, and what to watch.
  const TOUR = [
    ["Half a turn, half the heads", "system&n=20&poles=1@0.7",
      "Drag the pole along the circle to the left, slowly. The points close up on a line, and the best head misses less "
      + "and less. At a half turn one head is enough."],
    ["Six states, one head", EXAMPLES[6].address,
      "One number in and out: every block is one number, so one head is exact. In the settings choose 2 inputs, 2 outputs "
      + "and random B and C. Then it takes four."],
    ["Attention becomes decay", "attention&n=10&sharp=3&sink=1&decay=0.8&morph=0",
      "Press Play. The weights turn from content into a decay, exactly that of a state. It was one head before and it is "
      + "one head now, but the gradient of the first token falls."],
  ].map(([name, address, words]) => ({ name, address, words }));

  // Ten goals: where each begins, what is asked, when it is reached, and why that can be.
  const onePair = ({ experiment: { poles }, system }) => poles.length === 1 && poles[0].pair && poles[0].size === 1 && !system.D;
  const lastRow = ({ made, n }) => sum(made[0].alpha[n - 1]);
  const GOALS = [
    ["Two states, one head", "system&n=20&poles=1@0.7",
      "One pair of poles on the circle, two inputs, two outputs. Drag the pole along the circle until one head is enough.",
      (found) => onePair(found) && found.system.poles[0].radius === 1 && found.p * found.d === 4 && found.n > 9 && found.k.rank === 1,
      "All blocks are multiples of one matrix now. How many states make the multiples does not matter."],
    ["Six states, one head", "system&n=32&poles=0.95@0.4,0.9@1.3,0.85@2.4&B=random&C=random",
      "Six states, two inputs and two outputs take four heads. In the settings choose another B and C, so that one head is enough.",
      ({ system, p, d, n, k }) => system.A.length === 6 && p * d === 4 && n > 9 && k.rank === 1,
      "Every block is a multiple of one matrix, whatever six states do."],
    ["More heads than states", "system&n=20&poles=0.8&B=ones&C=ones",
      "A state that fades takes one head. In the settings choose a skip D with which it takes more heads than it has states.",
      ({ system, k }) => k.decided && k.rank > system.A.length,
      "The skip D is added at lag 0 alone, and a matrix that the state cannot make takes one head more."],
    ["The largest miss with one pair", "system&n=64&poles=1@0.7",
      "One pair of poles, 64 tokens, no skip. Drag the pole until the best single head misses more than 49 % of the energy.",
      (found) => onePair(found) && found.floor[1] > 0.49,
      "Nothing fades, and the blocks lie evenly around the origin. More than half is impossible: two heads are exact, and the better one has at least half."],
    ["Four heads, one nearly enough", "system&n=24&poles=0.95,0.6,-0.3,-0.8&p=4&d=4",
      "This system takes four heads. Drag its poles until the best single head misses less than 2 %, though it still takes four.",
      ({ k, floor }) => k.decided && k.rank === 4 && floor[1] < 0.02,
      "A count asks what is exactly equal, and blocks that are nearly multiples of one matrix are not. Close poles make such blocks."],
    ["A rotation in two softmax heads", "system&n=20&poles=1@0.7",
      "As softmax with a sink, this pair takes three heads. Drag the pole until two are enough, with at least 20 tokens and k = 2.",
      (found) => onePair(found) && found.n > 19 && found.k.rank === 2 && found.softmax.high === 2,
      "Some direction has a positive product with every block, so that positive weights are enough."],
    ["Written, never read", "system&n=20&poles=0.9,0.5&p=1&d=1&B=ones&C=ones",
      "In the settings type a B and a C that are not zero, with which the output is zero for every input.",
      ({ system: { B, C, D }, k }) => !D && k.rank === 0 && highest(B) > 0 && highest(C) > 0,
      "What B writes never shows in what C reads. These states cost time and do nothing."],
    ["Two heads that count as one", "attention&n=10&sharp=3&sink=1&heads=2",
      "Two attention heads, each with its own value map, take two heads. Press Play, or change the sharpness in the settings, until they count as one.",
      ({ experiment, n, k }) => experiment.heads === 2 && n > 4 && k.rank === 1,
      "The weights of both are proportional, so one head with the sum of the value maps does the same."],
    ["Nine tenths for the sink", "attention&n=10&sharp=3&sink=1",
      "No token that you drag can do it: the weights must know positions. Press Play, and in the settings raise the decay, until the last of ten tokens gives more than 90 % of its attention to the sink.",
      (found) => found.experiment.kind === "softmax" && found.experiment.sink && found.n > 9 && lastRow(found) < 0.1,
      "By content alone at most half is possible: the last token's query is its key. Positions have no limit."],
    ["Nine tokens back", "attention&n=10&sharp=8&sink=1",
      "One sharp softmax head, at least ten tokens. Drag the last one, 9, until the gradient reaches the first with a norm above 1.2.",
      ({ experiment, n, reach }) => experiment.kind === "softmax" && experiment.heads === 1 && n > 9 && reach[n - 1] > 1.2,
      "A weight is at most 1. The rest is how much the weights themselves change with the first token."],
  ].map(([name, address, words, isReached, why], i) => {
    const fits = ({ mode }) => address.startsWith(mode);
    return { name, address: `${address}&goal=${i + 1}`, words, why, reached: (found) => fits(found.experiment) && isReached(found) };
  });

  const rounded = (value, digits = DIGITS) => Number(value.toFixed(digits)) + 0; // no -0
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const sizeOf = ({ poles }) => sum(poles.map(statesOf));

  /** Numbers that look random and are the same everywhere (mulberry32), of variance about 1, two digits each. */
  function randomMatrix(rows, columns, seed) {
    let state = seed;
    const uniform = () => {
      state = (state + 0x6d2b79f5) | 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return zeros(rows, columns).map((row) => row.map(() => rounded(3.46 * (uniform() - 0.5), 2)));
  }

  const FILLS = {
    zero: (rows, columns) => zeros(rows, columns),
    identity: (rows, columns) => eye(rows, columns),
    ones: (rows, columns) => zeros(rows, columns).map((row) => row.map(() => 1)),
    random: (rows, columns) => randomMatrix(rows, columns, rows * 10 + columns),
  };

  /** B, C or D of an experiment, rows x columns; typed entries beyond its size are left out, missing ones are 0. */
  function filled(given, rows, columns) {
    if (typeof given === "string") return FILLS[given](rows, columns);
    return zeros(rows, columns).map((row, i) => row.map((_, j) => (given[i] || [])[j] || 0));
  }

  const matrixText = (X) => X.map((row) => row.map((value) => rounded(value)).join(",")).join(";");

  /** A matrix from text, rows parted by semicolons or lines; null if that is no matrix of numbers. */
  function readMatrix(text) {
    const rows = text.trim().split(/[;\n]+/).map((row) => row.trim().split(/[\s,]+/).map(readNumber));
    const whole = rows.every((row) => row.length === rows[0].length && row.every((value) => value !== null));
    return whole ? rows.map((row) => row.map((value) => rounded(value))) : null;
  }

  /** A number or a product of numbers and pi, as 0.5, -pi/3 or 2*pi; null for anything else. */
  function readNumber(text) {
    const [, minus, size] = /^([-−]?)(.*)$/s.exec(String(text).trim().toLowerCase().replace(/π/g, "pi"));
    const factor = (word) => (word.trim() === "pi" ? Math.PI : word.trim() === "" ? NaN : Number(word));
    const value = size.replace(/([\d.])\s*pi/g, "$1*pi").split("*").reduce((product, part) => {
      const [top, ...below] = part.split("/").map(factor);
      return below.reduce((quotient, one) => quotient / one, product * top);
    }, minus ? -1 : 1);
    return isFinite(value) && Math.abs(value) < 1e6 ? value : null;
  }

  const writeAngle = (angle) => {
    const part = [1, 2, 3, 4, 6].find((each) => angle === Math.PI / each);
    return part ? `pi${part > 1 ? `/${part}` : ""}` : String(rounded(angle));
  };

  /** An angle as an address holds it: a simple part of pi, or four digits. */
  const keptAngle = (angle) => readNumber(writeAngle(angle));

  const writePole = ({ radius, angle, pair, size }) => {
    const value = pair ? `${rounded(radius)}@${writeAngle(angle)}` : String(rounded(angle ? -radius : radius));
    return value + (size > 1 ? `x${size}` : "");
  };

  /** A pole within the unit circle, its angle in [0, pi]: {pole, outside}, or null for what is no pole. */
  function keptPole({ radius, angle, pair, size }) {
    if (radius === null || angle === null) return null;
    let turned = angle + (radius < 0 ? Math.PI : 0);
    turned = Math.abs(turned - 2 * Math.PI * Math.round(turned / (2 * Math.PI)));
    const kept = Math.min(Math.abs(radius), 1);
    const pole = { radius: rounded(kept), angle: keptAngle(turned), pair, size: clamp(size, 1, LIMITS.size) };
    return { pole, outside: Math.abs(radius) > 1 };
  }

  const OUTSIDE = "A pole outside the unit circle makes a state that grows without end, so it is kept on the circle.";

  function readPole(text) {
    const parts = /^([^@x]+)(?:@([^@x]+))?(?:x(\d+))?$/.exec(text.trim());
    if (!parts) return null;
    const pair = parts[2] !== undefined, angle = pair ? readNumber(parts[2]) : 0;
    return keptPole({ radius: readNumber(parts[1]), angle, pair, size: Number(parts[3] || 1) });
  }

  /** {experiment, problems}: what an address says, with a sentence for every part of it that cannot be used. */
  function read(address) {
    const experiment = { ...DEFAULTS }, problems = [];
    const [mode, ...fields] = address.split("&");
    if (mode === "system" || mode === "attention") experiment.mode = mode;
    else problems.push("The address names no experiment of the laboratory; here is a rotation.");
    const given = new Map(fields.map((field) => field.split("=")).map(([name, value]) => [name, value || ""]));
    const unusable = (name) => problems.push(`The address has no usable value for ${name}; the laboratory chose one.`);

    const number = (name, key, low, high, whole = false) => {
      if (!given.has(key)) return;
      const value = readNumber(given.get(key));
      const usable = value !== null && value >= low && value <= high && (!whole || value === Math.round(value));
      if (usable) experiment[name] = rounded(value);
      else unusable(name);
    };
    const choice = (name, key, values) => {
      if (!given.has(key)) return;
      if (given.get(key) in values) experiment[name] = values[given.get(key)];
      else unusable(name);
    };

    number("n", "n", 1, experiment.mode === "system" ? LIMITS.tokens : LIMITS.points, true);
    number("H", "H", 0, LIMITS.width ** 2, true);
    number("goal", "goal", 0, GOALS.length, true);
    number("p", "p", 1, LIMITS.width, true);
    number("d", "d", 1, LIMITS.width, true);
    if (given.has("poles")) {
      const found = given.get("poles").split(",").map(readPole), whole = found.every((one) => one !== null);
      if (!whole || sum(found.map(({ pole }) => statesOf(pole))) > LIMITS.states) unusable("poles");
      else {
        experiment.poles = found.map(({ pole }) => pole);
        if (found.some(({ outside }) => outside)) problems.push(OUTSIDE);
      }
    }
    for (const name of ["B", "C", "D"]) {
      if (!given.has(name)) continue;
      const known = given.get(name) in FILLS && (name === "D" || given.get(name) !== "zero");
      const typed = known ? given.get(name) : readMatrix(given.get(name));
      if (typed) experiment[name] = typed;
      else unusable(name);
    }
    choice("kind", "kind", { softmax: "softmax", gated: "gated" });
    choice("sink", "sink", { 0: false, 1: true });
    choice("heads", "heads", { 1: 1, 2: 2 });
    number("sharpness", "sharp", 0, LIMITS.sharpness);
    number("memory", "decay", 0.1, 0.99);
    number("morph", "morph", 0, 1);
    number("gate", "gate", -8, 8);
    if (given.has("points")) {
      const points = readMatrix(given.get("points"));
      if (points && points[0].length === 2 && points.length <= LIMITS.points) experiment.points = points.map(keptPoint);
      else unusable("points");
    }
    return { experiment: settled(experiment), problems };
  }

  /** A point within the unit circle, rounded. */
  function keptPoint([x, y]) {
    const size = Math.max(1, Math.hypot(x, y));
    return [rounded(x / size, 2), rounded(y / size, 2)];
  }

  /** An experiment whose parts fit together: as many points as tokens, no more heads than blocks have numbers. */
  function settled(experiment) {
    const { mode, n, points, p, d } = experiment;
    const attends = mode === "attention", tokens = attends ? clamp(n, 1, LIMITS.points) : n;
    const H = clamp(experiment.H, 0, attends ? 4 : p * d);
    return { ...experiment, n: tokens, H, points: range(tokens).map((i) => points[i] || POINTS[i]) };
  }

  /** The address of an experiment: its mode and what differs from the start. */
  function write({ goal, ...experiment }) {
    if (goal) return `${write(experiment)}&goal=${goal}`;
    const { mode, n, H, poles, p, d, B, C, D, kind, points, sharpness, sink, memory, morph, gate, heads } = experiment;
    const text = (given) => (typeof given === "string" ? given : matrixText(given));
    if (mode === "system") {
      const matrices = `B=${text(B)}&C=${text(C)}${D === "zero" ? "" : `&D=${text(D)}`}`;
      return `system&n=${n}&poles=${poles.map(writePole).join(",")}&p=${p}&d=${d}&${matrices}&H=${H}`;
    }
    const softmax = kind === "softmax" ? `&sink=${Number(sink)}&morph=${morph}` : `&gate=${gate}`;
    const tail = `&decay=${memory}&heads=${heads}&H=${H}&points=${matrixText(points)}`;
    return `attention&n=${n}&kind=${kind}&sharp=${sharpness}${softmax}${tail}`;
  }

  const QUARTER = [[0, -1], [1, 0]];
  const VALUE_MAPS = [eye(2), QUARTER];

  /** Everything that is shown of an experiment. `blocks` are flat, and block r counts `occurs[r]` times in W. */
  function compute(experiment) {
    const result = experiment.mode === "system" ? computeSystem(experiment) : computeAttention(experiment);
    const rows = result.blocks.map((block, r) => block.map((value) => Math.sqrt(result.occurs[r]) * value));
    const { sigma, V, floor } = spectrum(rows);
    const most = Math.min(result.blocks.length, sigma.length);
    const H = Math.min(experiment.H, most);
    const best = bestHeads(result.blocks, V, most);
    const shown = result.blocks.map((block, r) =>
      block.map((_, c) => sum(range(H).map((h) => best.coefficients[h][r] * best.V[h][c]))));
    const limited = { sigma: sigma.slice(0, most), floor: floor.slice(0, most + 1) };
    return { ...result, ...limited, experiment, axes: V, H, best, shown };
  }

  function computeSystem(experiment) {
    const { n, poles, p, d } = experiment, N = sizeOf(experiment);
    const system = { poles, A: matrixOf(poles), B: filled(experiment.B, N, d), C: filled(experiment.C, p, N) };
    const D = filled(experiment.D, p, d);
    if (highest(D)) system.D = D;
    const blocks = lags(system, n), k = headCount(system, n);
    const open = { low: k.rank, high: k.rank + 1, reason: "k is a close call" };
    return {
      system, p, d, n, blocks, k,
      occurs: blocks.map((_, tau) => n - tau),
      softmax: k.decided ? softmaxCount(system, n, k.rank, blocks) : open,
      spread: rowSumSpread(blocks),
      reach: blocks.map((block) => spectralNorm(reshape(block, d))),
    };
  }

  function computeAttention(experiment) {
    const { n, kind, points: x, sharpness, sink, memory, morph, gate, heads } = experiment;
    const log = Math.log(memory);
    // With a sink of logit 0, keys whose logits grow by -log(memory) per place give memory^(i-j) (1 - memory).
    const place = range(n).map((j) => Math.log(1 - memory) - (j + 1) * log);
    const open = x.map(([first]) => 2 / (1 + Math.exp(-gate * first))); // how fast the memory fades: 1 without a gate
    const logA = open.map((speed) => [speed * log]);
    const slopes = x.map((_, l) => [log * gate * open[l] * (1 - open[l] / 2), 0]);
    const made = VALUE_MAPS.slice(0, heads).map((V, h) => {
      const turn = h ? transpose(QUARTER) : eye(2); // the second head turns its queries
      if (kind === "gated") {
        const G = scaled(turn, sharpness), alpha = gatedWeights(multiply(x, G), x, logA);
        return { alpha, V, gradient: gatedGradient(x, alpha, G, V, logA, slopes) };
      }
      const G = scaled(turn, (1 - morph) * sharpness), logits = products(multiply(x, G), x);
      const alpha = softmaxWeights(logits.map((row) => row.map((logit, j) => logit + morph * place[j])), sink);
      return { alpha, V, gradient: softmaxGradient(x, alpha, G, V) };
    });
    const blocks = headBlocks(made);
    const gradient = made[0].gradient.map((block, j) =>
      block.map((row, a) => row.map((_, b) => sum(made.map((head) => head.gradient[j][a][b])))));
    return {
      p: 2, d: 2, n, blocks, made, k: rankOf(blocks),
      occurs: blocks.map(() => 1),
      pairs: range(n).flatMap((i) => range(i + 1).map((j) => [i, j])),
      reach: gradientByDistance(gradient),
      decayed: causal(n, (i, j) => (1 - memory) * memory ** (i - j)),
    };
  }

  // What the page says of it.

  /** A share of the energy as a reader wants it. */
  function percent(share) {
    if (share < 1e-12) return "nothing";
    if (share < 0.0005) return "less than 0.1 %";
    return `${(100 * share).toFixed(1)} %`;
  }

  /** A number with three digits, as it is printed in a text. */
  function short(value) {
    if (Math.abs(value) < 1e-12) return "0";
    const [digits, power] = String(Number(value.toPrecision(3))).replace(/^-/, "−").split("e");
    return power ? `${digits} × 10${raised(power.replace("+", ""))}` : digits;
  }

  const headsWord = (count) => (count === 1 ? "1 head" : `${count} heads`);
  const capital = (text) => text[0].toUpperCase() + text.slice(1);

  /** What was found, as sentences. */
  function findings(found) {
    return found.experiment.mode === "system" ? systemFindings(found) : attentionFindings(found);
  }

  function systemFindings({ system, n, k, softmax, floor, spread }) {
    const N = system.A.length, states = `${N} state variable${N > 1 ? "s" : ""}${system.D ? " and a skip D" : ""}`;
    if (k.rank === 0 && !system.D) return ["What is written into this state is never read, so the output is zero."];
    const equal = k.decided
      ? `This system has ${states}, and it takes ${headsWord(k.rank)} to equal it (k = ${k.rank}).`
      : `This system has ${states}. Whether it takes ${k.rank} heads is too close a call for ordinary precision.`;
    const one = k.rank > 1 ? ` The best single head misses ${percent(floor[1])} of the energy.` : "";
    const count = softmax.low === softmax.high ? headsWord(softmax.low) : `${softmax.low} or ${softmax.high} heads`;
    const sink = `As softmax with a sink it takes ${count}: ${softmax.reason}.`;
    const without = n === 1
      ? "With a single token there is only lag 0, so every question about distance is empty."
      : spread > 1e-10
        ? "Without a sink no number of softmax heads equals it, because its row sums change as the state fills."
        : "Its row sums are all equal, so it has no memory that a sink would be needed for.";
    return [equal + one, sink, without];
  }

  function attentionFindings({ experiment, k, floor, made, decayed, n, reach }) {
    const { kind, morph, sink, heads } = experiment;
    const span = k.rank === 1
      ? "All blocks are multiples of one value map, so for these tokens the operator takes 1 head."
      : `For these tokens the operator takes ${k.rank} heads, and the best single head misses ${percent(floor[1])} of it.`;
    const row = made[0].alpha[n - 1], total = sum(row);
    const weights = kind === "gated"
      ? "These weights may be negative and need not sum to one, because no softmax is taken."
      : sink
        ? `The last token gives ${percent(total)} of its attention to tokens and ${percent(1 - total)} to the sink.`
        : "Every row of weights sums to one, because there is no sink.";
    const differences = made[0].alpha.flatMap((line, i) => line.map((value, j) => Math.abs(value - decayed[i][j])));
    const away = Math.max(...differences);
    const decay = `hₜ = ${experiment.memory} hₜ₋₁ + ${rounded(1 - experiment.memory)} xₜ`;
    const morphed = kind === "gated" || !sink
      ? ""
      : away < 1e-12
        ? `The weights equal those of the state ${decay}, so this softmax head is a state space model.`
        : `The weights differ from those of the state ${decay} by up to ${short(away)}.`;
    const far = n > 1
      ? `The gradient reaches the first token, ${n - 1} tokens back, with a norm of ${short(reach[n - 1])}.`
      : "A single token can attend to nothing but itself.";
    return [span, weights, ...(morphed && (morph || heads === 1) ? [morphed] : []), far];
  }

  // The same in Python.

  const pyNumber = (value) => (Number.isInteger(value) ? `${value}.0` : String(value));
  const pyMatrix = (X) => `torch.tensor([${X.map((row) => `[${row.map(pyNumber).join(", ")}]`).join(", ")}])`;
  const pyAngle = (angle) => (/^pi/.test(writeAngle(angle)) ? `math.${writeAngle(angle)}` : writeAngle(angle));

  function pyPole(pole) {
    const { radius, angle, pair, size } = pole;
    if (!pair) return `jordan_block(${size}, ${pyNumber(angle ? 0 - radius : radius)})`;
    const turn = `${pyNumber(radius)} * rotation(${pyAngle(angle)})`;
    return size === 1 ? turn : `jordan_pair(${size}, ${turn})`;
  }

  const PAIR = [
    "", "", "def jordan_pair(size, turn):", "    above = torch.diag(torch.ones(size - 1), 1)",
    "    return torch.kron(torch.eye(size), turn) + torch.kron(above, torch.eye(2))", "", "",
  ];
  const digits = (values) => values.map((value) => value.toFixed(6)).join(", ");
  const PRINT = 'print(f"{name}:", ", ".join(f"{value:.6f}" for value in values.tolist()))';

  /** {code, output}: a cell of the library for an experiment, and what it prints. */
  function python(found) {
    return found.experiment.mode === "system" ? pythonOfSystem(found) : pythonOfAttention(found);
  }

  function pythonOfSystem({ experiment, system, n, k, softmax, floor, reach }) {
    const { poles } = experiment, pairs = poles.some(({ pair, size }) => pair && size > 1);
    const counts = [], output = [];
    if (k.decided) {
      counts.push('print("k:", head_count(system, n).short)');
      output.push(`k: ${k.rank}`);
    }
    if (k.decided && softmax.low === softmax.high) {
      counts.push('print("softmax with a sink:", head_count(system, n, "softmax").short)');
      output.push(`softmax with a sink: ${softmax.low}`);
    }
    const code = [
      ...(poles.some(({ angle, pair }) => pair && /^pi/.test(writeAngle(angle))) ? ["import math", ""] : []),
      "import torch", "", "from ssmbook import System", "from ssmbook.heads import head_count",
      "from ssmbook.systems import jordan_block, rotation", "", "torch.set_default_dtype(torch.float64)",
      ...(pairs ? PAIR : []),
      `A = torch.block_diag(${poles.map(pyPole).join(", ")})`,
      `B = ${pyMatrix(system.B)}`,
      `C = ${pyMatrix(system.C)}`,
      ...(system.D ? [`D = ${pyMatrix(system.D)}`] : []),
      `system, n = System(A, B, C${system.D ? ", D" : ""}), ${n}`, ...counts,
      'shown = {"floor": system.operator(n).floor(), "gradient": torch.linalg.matrix_norm(system.lags(n), ord=2)}',
      "for name, values in shown.items():", `    ${PRINT}`,
    ];
    output.push(`floor: ${digits(floor)}`, `gradient: ${digits(reach)}`);
    return { code: code.join("\n"), output: output.join("\n") };
  }

  function pythonOfAttention({ experiment, n, k, floor, reach }) {
    const { kind, points, sharpness, sink, memory, morph, gate, heads } = experiment;
    const few = floor.slice(0, heads + 1);
    const queries = heads === 2 ? "torch.stack([x, x @ J.mT])" : "x[None]";
    const weights = kind === "gated"
      ? [
        `    log_a = ${Math.log(memory)} * 2 * torch.sigmoid(${pyNumber(gate)} * x[:, 0])`,
        `    return scalar_decay_coefficients(${pyNumber(sharpness)} * q, k, log_a.expand(len(q), -1))`,
      ]
      : [
        `    place = math.log(1 - ${memory}) - torch.arange(1, n + 1) * math.log(${memory})`,
        `    scale = 2**0.5 * ${pyNumber(sharpness)} * (1 - ${morph})  # logits are divided by the root of the width`,
        `    bias = (${pyNumber(morph)} * place).expand(len(q), n, n)`,
        `    return softmax_coefficients(scale * q, k, bias=bias, sink=${sink ? "True" : "False"})`,
      ];
    const code = [
      ...(kind === "gated" ? [] : ["import math", ""]),
      "import torch", "", "from ssmbook.gradients import gradient_profile",
      `from ssmbook.maps import ${kind === "gated" ? "scalar_decay_coefficients" : "softmax_coefficients"}`,
      "from ssmbook.operators import FactorizedOperator", "", "torch.set_default_dtype(torch.float64)",
      `x = ${pyMatrix(points)}`,
      "n, J = len(x), torch.tensor([[0.0, -1.0], [1.0, 0.0]])",
      `V = torch.stack([torch.eye(2)${heads === 2 ? ", J" : ""}])`, "", "",
      "def weights(x):", `    q = ${queries}`, "    k = x.expand_as(q)", ...weights, "", "",
      "W = FactorizedOperator(weights(x), V)",
      ...(k.decided ? ['print("rank:", W.interaction_rank())'] : []),
      `gradient = gradient_profile(lambda x: FactorizedOperator(weights(x), V) @ x, x)[1]`,
      `shown = {"floor": W.floor()[:${few.length}], "gradient": gradient}`,
      "for name, values in shown.items():", `    ${PRINT}`,
    ];
    const output = [...(k.decided ? [`rank: ${k.rank}`] : []), `floor: ${digits(few)}`, `gradient: ${digits(reach)}`];
    return { code: code.join("\n"), output: output.join("\n") };
  }

  // 6. Drawing -----------------------------------------------------------------------------------------------
  //
  // Panels are SVG, WIDTH wide. Classes give their colors, the classes take them from the variables of lab.css, and
  // these change with the page between light and dark. A picture that is copied takes the present colors along.

  const WIDTH = 340;
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const VARIABLES = ["black", "faint", "paper", "plus", "minus", "gray", "state", "head"];
  const STYLE = `
    .lab-svg { font: 13px system-ui, sans-serif; }
    .lab-svg text { fill: var(--ssm-black); stroke: var(--ssm-paper); stroke-width: 3px; paint-order: stroke; }
    .lab-axis { stroke: var(--ssm-faint); fill: none; }
    .lab-grid-line { stroke: var(--ssm-faint); stroke-opacity: 0.6; fill: none; }
    .lab-dotted { stroke: var(--ssm-black); stroke-dasharray: 1.5 3; fill: none; opacity: 0.75; }
    .lab-dashed { stroke: var(--ssm-black); stroke-dasharray: 6 4; fill: none; opacity: 0.75; }
    .lab-head { stroke: var(--ssm-head); fill: none; stroke-width: 2.5px; }
    .lab-arc { stroke: var(--ssm-state); fill: none; stroke-width: 2.5px; }
    .lab-curve { stroke: var(--ssm-black); fill: none; stroke-width: 2px; stroke-linejoin: round; }
    .lab-points { stroke-dasharray: 2 3.5; }
    .lab-head-fill { fill: var(--ssm-head); }
    .lab-state-fill { fill: var(--ssm-state); }
    .lab-token-fill { fill: var(--ssm-gray); }
    .lab-lag-fill { fill: var(--ssm-black); }
    .lab-faint-fill { fill: var(--ssm-faint); }
    .lab-positive { fill: var(--ssm-plus); }
    .lab-negative { fill: var(--ssm-minus); }
    .lab-crisp { shape-rendering: crispEdges; }
    .lab-touch { fill: transparent; }
    .lab-grip { fill: none; stroke: var(--ssm-black); stroke-opacity: 0.6; }
    .lab-mark { stroke: var(--ssm-black); fill: none; visibility: hidden; pointer-events: none; }
    .lab-lit .lab-mark { visibility: visible; stroke-width: 1.5px; }
    .lab-dot.lab-lit { stroke: var(--ssm-black); stroke-width: 2px; r: 6.5px; fill-opacity: 1; }
    .lab-svg .lab-at { visibility: hidden; font-weight: 600; pointer-events: none; }
    .lab-handle:is(:focus, :hover, :only-child) .lab-at { visibility: visible; }
    .lab-handle:focus:not(:hover):has(~ :hover) .lab-at, .lab-handle:hover ~ :focus .lab-at { visibility: hidden; }
    .lab-start { text-anchor: start; } .lab-middle { text-anchor: middle; } .lab-end { text-anchor: end; }`;

  const px = (value) => Math.round(value * 100) / 100;

  /** An SVG element; children may be elements, texts or lists of them. */
  function draw(tag, attributes = {}, ...children) {
    const element = document.createElementNS(NAMESPACE, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.flat(2));
    return element;
  }

  /** An HTML element: functions of the name on... listen to events, other names are properties or attributes. */
  function html(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (typeof value === "function") element.addEventListener(name.slice(2), value);
      else if (name in element) element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.flat(2));
    return element;
  }

  const label = (x, y, words, anchor = "middle", more = {}) =>
    draw("text", { x: px(x), y: px(y), class: `lab-${anchor}`, ...more }, words);
  const curve = (points, kind, more = {}) =>
    draw("path", { d: `M${points.map(([x, y]) => `${px(x)} ${px(y)}`).join("L")}`, class: kind, ...more });
  const line = (x1, y1, x2, y2, kind, more = {}) => curve([[x1, y1], [x2, y2]], kind, more);
  const bar = (x, y, width, height, kind, more = {}) =>
    draw("rect", { x: px(x), y: px(y), width: px(width), height: px(Math.max(height, 0)), class: kind, ...more });
  const circle = ([x, y], r, kind, more = {}) => draw("circle", { cx: px(x), cy: px(y), r, class: kind, ...more });

  /** The path of a box. */
  const box = (x, y, width, height) => `M${px(x)} ${px(y)}h${px(width)}v${px(height)}h${px(-width)}z`;

  /** Dots that light up with their blocks; item(r) is the block of dot r. */
  const dots = (points, r, kind, item = (i) => i) =>
    points.map((point, i) => circle(point, r, `${kind} lab-dot`, { "data-item": item(i) }));

  /** The color of a signed number: its class and how opaque it is, at most for the number `top`. */
  const signed = (value, top) => ({
    class: `lab-crisp ${value < 0 ? "lab-negative" : "lab-positive"}`,
    "fill-opacity": px(top > 0 ? Math.min(Math.abs(value) / top, 1) : 0),
  });

  /** A flat matrix with a number of columns as colored cells in a box; more(c) adds attributes to cell c. */
  function heatMap(flat, columns, [x, y, width, height], top, more = () => ({})) {
    const w = width / columns, h = (height * columns) / flat.length;
    const cells = flat.map((value, c) =>
      bar(x + (c % columns) * w, y + Math.floor(c / columns) * h, w, h, "", { ...signed(value, top), ...more(c) }));
    return [...cells, bar(x, y, width, height, "lab-axis", { "pointer-events": "none" })];
  }

  const highest = (rows) => rows.reduce((most, row) => row.reduce((m, v) => Math.max(m, Math.abs(v)), most), 0);
  const raised = (n) => String(n).replace(/[-\d]/g, (sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] || "⁻");
  const lowered = (n) => String(n).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);

  /** A logarithmic axis for values, between two heights: {nodes, at}, where at(value) is the height of a value. */
  function powers(values, [left, right], [top, bottom]) {
    const positive = values.filter((value) => value > 0 && isFinite(value));
    const most = Math.ceil(Math.log10(Math.max(...positive, 1e-12)) - 1e-9);
    const lowest = Math.floor(Math.log10(Math.min(...positive, 1)) + 1e-9);
    const least = clamp(lowest, most - 8, most - 1), step = Math.ceil((most - least) / 4);
    const at = (value) => {
      const power = clamp(value > 0 ? Math.log10(value) : least, least, most);
      return bottom - ((power - least) / (most - least)) * (bottom - top);
    };
    const ticks = range(most - least + 1).map((i) => most - i).filter((power) => (most - power) % step === 0);
    const name = (power) => (power === 0 ? "1" : power === 1 ? "10" : `10${raised(power)}`);
    const nodes = ticks.flatMap((power) => [
      line(left, at(10 ** power), right, at(10 ** power), "lab-grid-line"),
      label(left - 5, at(10 ** power) + 4, name(power), "end"),
    ]);
    return { nodes: [...nodes, line(left, top, left, bottom, "lab-axis")], at };
  }

  // 7. Panels ------------------------------------------------------------------------------------------------
  //
  // A panel has a title, a caption that says how to read it, perhaps a tab that it shares a place with, and `picture(found)`, which returns {nodes, words}: what
  // is drawn, and the same in words. Elements with the attribute data-item belong to one block and light up with it;
  // elements with data-heads choose how many heads are shown.

  const SQUARE = { left: 20, top: 10, side: 300 }; // where W is drawn
  const PLOT = { x: [44, WIDTH - 12], y: [12, 190] }; // where curves are drawn

  const PANELS = [
    {
      name: "matrix", title: "The interaction matrix W", height: 320, picture: matrixPicture,
      caption: "Row i shows how output i depends on the tokens j up to i, with one small matrix for each pair. "
        + "Blue is positive, orange negative.",
    },
    {
      name: "plane", title: "The blocks as points", height: 320, picture: planePicture,
      caption: "Every block is a point, nearer to the origin the less often it occurs. One head reaches the points of a "
        + "line through the origin, and the dotted segments are its errors.",
    },
    {
      name: "spectrum", title: "What H heads miss", height: 250, picture: spectrumPicture,
      caption: "Above are the singular values of all blocks, below the share of the energy that the best H heads miss. "
        + "Press a bar to choose H.",
    },
    {
      name: "heads", title: "The best H heads", height: 250, picture: headsPicture,
      caption: "On the left is the value map of each head, on the right its coefficients.",
    },
    {
      name: "impulse", tab: "Impulse", title: "Impulse response", mode: "system", height: 220, picture: impulsePicture,
      caption: "The entries of the lag operators: what one token adds to each output as it moves into the past.",
    },
    {
      name: "weights", tab: "Where it looks", title: "Where the last token looks", mode: "attention", height: 220, picture: weightsPicture,
      caption: "The weights of the last row by distance. The dotted curve shows a state with the same decay.",
    },
    {
      name: "reach", tab: "Gradient", title: "Gradient by distance", height: 220, picture: reachPicture,
      caption: "How strongly the last output reacts to a small change of an earlier token. The axis is logarithmic.",
    },
    {
      name: "response", tab: "Frequency", title: "Frequency response", mode: "system", height: 220, picture: responsePicture,
      caption: "How strongly an input that oscillates comes out, by its angle per token. Dotted lines mark the poles.",
    },
  ];

  const blockName = ({ pairs }, item) =>
    (pairs ? `From token ${pairs[item][1]} to output ${pairs[item][0]}` : `Lag ${item}`);

  /** What is known of one block, as sentences. */
  function blockWords(found, item) {
    const { blocks, occurs, d, best, H, shown } = found, block = blocks[item];
    const rows = reshape(block.map(short), d).map((row) => row.join(", ")).join("; ");
    const often = occurs[item] > 1 ? `, ${occurs[item]} times in W` : "";
    const difference = block.map((value, c) => value - shown[item][c]);
    const missed = norm(block) > 0 ? (norm(difference) / norm(block)) ** 2 : 0;
    const coefficients = range(Math.min(H, 3)).map((h) => short(best.coefficients[h][item])).join(", ");
    const heads = H === 1
      ? `The best head has the coefficient ${coefficients} there and misses ${percent(missed)} of this block.`
      : `The best ${H} heads have the coefficients ${coefficients}${H > 3 ? ", …" : ""} and miss ${percent(missed)}.`;
    return `${blockName(found, item)}${often}: [${rows}]. ${H ? heads : "No head is shown."}`;
  }

  // The boxes of W depend only on the sizes, so they are drawn once and then only colored.
  let boxes = { key: "" };

  function matrixPicture(found) {
    const { n, blocks, pairs, p, d } = found, top = highest(blocks), key = `${found.experiment.mode} ${n} ${p} ${d}`;
    if (boxes.key !== key) {
      const nodes = boxesOf(found), paths = nodes.slice(0, blocks.length).map((group) => Array.from(group.childNodes));
      boxes = { key, nodes, cells: paths.map((row) => row.map((path) => ({ path, color: {} }))) };
    }
    blocks.forEach((block, item) => block.forEach((value, c) => {
      const cell = boxes.cells[item][c], color = signed(value, top);
      for (const name in color) if (cell.color[name] !== color[name]) cell.path.setAttribute(name, color[name]);
      cell.color = color;
    }));
    const kind = pairs ? "one block for each pair of tokens" : "with equal blocks along each diagonal";
    const words = `${n} by ${n} blocks of ${p} by ${d} numbers, lower triangular, ${kind}.`;
    return { nodes: boxes.nodes, words: `${words} The largest number is ${short(top)}.` };
  }

  /** A group for each block: a path for each of its entries, wherever it stands in W, and one around the block. */
  function boxesOf({ n, blocks, pairs, p, d }) {
    const { left, top, side } = SQUARE, size = side / n;
    const groups = blocks.map((_, item) => {
      const places = pairs ? [pairs[item]] : range(n - item).map((j) => [j + item, j]);
      const path = (x, y, width, height) =>
        places.map(([i, j]) => box(left + (j + x) * size, top + (i + y) * size, width * size, height * size)).join("");
      const entries = range(p * d).map((c) =>
        draw("path", { d: path((c % d) / d, Math.floor(c / d) / p, 1 / d, 1 / p) }));
      const around = ["lab-touch", "lab-mark"].map((kind) => draw("path", { d: path(0, 0, 1, 1), class: kind }));
      return draw("g", { "data-item": item }, entries, around);
    });
    return [...groups, bar(left, top, side, side, "lab-axis", { "pointer-events": "none" })];
  }

  /** Two axes of the space of blocks: I and J where all blocks lie in their plane, else the two best value maps. */
  function planeOf({ p, d, blocks, axes }) {
    const close = 1e-9 * highest(blocks);
    const rotates = ([a, b, c, e]) => Math.abs(a - e) <= close && Math.abs(b + c) <= close;
    if (p === 2 && d === 2 && blocks.every(rotates)) {
      return { axes: [[0.5, 0, 0, 0.5], [0, -0.5, 0.5, 0]], names: ["I", "J"] };
    }
    const [first, second] = axes;
    return second ? { axes: [first, second], names: ["V₁", "V₂"] } : { axes: [first, [0]], names: ["V₁", ""] };
  }

  function planePicture(found) {
    const { blocks, occurs, shown, n, pairs, k, H, floor, best } = found, plane = planeOf(found);
    const place = (block, item) => plane.axes.map((axis) => Math.sqrt(occurs[item]) * dot(axis, block));
    const points = blocks.map(place), feet = shown.map(place);
    const [x0, y0] = [WIDTH / 2, 160], reach = 1.15 * (highest(points) || 1);
    const at = ([x, y]) => [x0 + (150 * x) / reach, y0 - (150 * y) / reach];
    const nodes = [
      line(15, y0, WIDTH - 15, y0, "lab-axis"), label(WIDTH - 8, y0 + 17, plane.names[0], "end"),
      line(x0, 8, x0, 312, "lab-axis"), label(x0 + 8, 18, plane.names[1], "start"),
    ];
    const spiral = pairs ? null : between(found, plane.axes);
    if (spiral) nodes.push(curve(spiral.map(at), "lab-axis"));
    if (H === 1) {
      const along = plane.axes.map((axis) => dot(axis, best.V[0])), length = norm(along) || 1;
      const end = along.map((value) => (0.98 * reach * value) / length);
      nodes.push(curve([at(end.map((value) => -value)), at(end)], "lab-head"));
    }
    const fall = (point, item) => [at(point), at(feet[item])].map(([x, y]) => `${px(x)} ${px(y)}`).join("L");
    if (H < 2) nodes.push(draw("path", { d: `M${points.map(fall).join("M")}`, class: "lab-dotted" }));
    const marks = dots(points.map(at), 4.5, "lab-lag-fill");
    marks.forEach((mark, item) => mark.setAttribute("fill-opacity", pairs ? 0.55 : px(1 - (0.7 * item) / n)));
    if (!pairs) marks.push(...numbers(points.map(at), [x0, y0], [[WIDTH - 12, y0 + 13, 8], [x0 + 14, 14, 8]]));
    const missed = H === 1 ? `the best line misses ${percent(floor[1])} of the energy` : `${H} heads are shown`;
    const names = plane.names.filter(Boolean).join(" and ");
    const words = `${blocks.length} points in the plane of ${names}; they span ${k.rank} dimensions, and ${missed}.`;
    return { nodes: [...nodes, ...marks], words };
  }

  const LETTER = 4; // half the width of a digit in a drawing; half its height is 6

  /** The first of some places around a point where words meet no dot of radius r and no words before, or undefined. */
  function roomFor(words, places, dots, r, taken) {
    const half = LETTER * words.length;
    const clear = ([x, y]) => taken.every(([a, b, wide]) => Math.abs(a - x) > half + wide + 2 || Math.abs(b - y) > 14)
      && dots.every(([a, b]) => Math.hypot(Math.max(Math.abs(a - x) - half, 0), Math.max(Math.abs(b - y) - 6, 0)) > r);
    const found = places.find(clear);
    if (found) taken.push([...found, half]);
    return found;
  }

  /** The lags as numbers beside the first dots and the last: outward, else to a side or inward; none where there is no room. */
  function numbers(points, [x0, y0], taken) {
    return points.map(([x, y], lag) => {
      const out = Math.atan2(y - y0, x - x0), words = String(lag);
      const places = [0, 1, -1, 2, -2, 3, -3, 4].map((turn) => toward(out + (turn * Math.PI) / 4)).map(([u, v]) => [x + 13 * u, y + 13 * v]);
      const at = (lag < 10 || lag === points.length - 1) && roomFor(words, places, points, 5, taken);
      return at ? label(at[0], at[1] + 4, words, "middle", { "pointer-events": "none" }) : "";
    });
  }

  /** The path through the lags at the times between them; null where a power in between is not defined. */
  function between({ system, n }, axes) {
    if (system.poles.some(({ size, radius }) => size > 1 || radius === 0) || n < 2) return null;
    const fine = Math.max(4, Math.ceil(240 / n)), d = system.B[0].length;
    const start = system.D ? fine : 0; // lag 0 has D besides, so it is not on the path of the others
    return range((n - 1) * fine + 1 - start).map((step) => {
      const tau = (start + step) / fine, state = zeros(system.A.length, d);
      let row = 0;
      for (const { radius, angle, pair } of system.poles) {
        const [c, s] = [radius ** tau * Math.cos(angle * tau), radius ** tau * Math.sin(angle * tau)];
        for (let b = 0; b < d; b++) {
          const [x, y] = [system.B[row][b], pair ? system.B[row + 1][b] : 0];
          state[row][b] = c * x - s * y;
          if (pair) state[row + 1][b] = s * x + c * y;
        }
        row += pair ? 2 : 1;
      }
      const block = multiply(system.C, state).flat();
      return axes.map((axis) => Math.sqrt(n - tau) * dot(axis, block));
    });
  }

  function spectrumPicture({ sigma, floor, H }) {
    const most = sigma.length, top = sigma[0] || 1, step = (WIDTH - 24) / (most + 1), wide = Math.min(0.7 * step, 44);
    const roomy = most <= 6, [above, below] = [106, 234]; // the two base lines
    const column = (heads, base, share, chosen, words, name) => {
      const x = 12 + (heads + 0.5) * step, height = Math.max(70 * share, 1);
      return draw("g", { "data-heads": heads },
        bar(x - step / 2, base - 88, step, 110, "lab-touch"),
        bar(x - wide / 2, base - height, wide, height, chosen ? "lab-head-fill" : "lab-faint-fill"),
        roomy || (chosen && base === below) ? label(x, base - height - 5, words) : [],
        label(x, base + 15, roomy ? name : String(heads)));
    };
    const written = (share) => (share < 1e-12 ? "0" : percent(share).replace("less than ", "< "));
    const nodes = [
      label(8, 14, "singular value σᵣ", "start"), line(8, above, WIDTH - 8, above, "lab-axis"),
      label(8, 141, "missed by the best H heads", "start"), line(8, below, WIDTH - 8, below, "lab-axis"),
      ...sigma.map((value, r) =>
        column(r + 1, above, value / top, r < H, value < 1e-10 * top ? "0" : short(value), `σ${lowered(r + 1)}`)),
      ...floor.map((share, h) => column(h, below, share, h === H, written(share), `H = ${h}`)),
    ];
    const missed = floor.map((share, h) => `${h}: ${percent(share)}`).join(", ");
    return { nodes, words: `Missed by the best H heads, by H: ${missed}. H = ${H} is chosen.` };
  }

  function headsPicture({ H, best, d, p, n, pairs, floor }) {
    if (!H) return { nodes: [label(WIDTH / 2, 110, "no head: everything is missed")], words: "No head is chosen." };
    const rows = Math.min(H, 3), step = Math.min(120, 225 / rows), side = step - 14;
    const top = highest(best.coefficients.slice(0, rows)) || 1, nodes = [];
    range(rows).forEach((h) => {
      const y = 22 + h * step, middle = y + side / 2, coefficients = best.coefficients[h];
      const [wide, tall] = [Math.min(side, (side * d) / p), Math.min(side, (side * p) / d)];
      nodes.push(label(20, middle + 4, `V${lowered(h + 1)}`));
      nodes.push(...heatMap(best.V[h], d, [44 + (side - wide) / 2, middle - tall / 2, wide, tall], 1));
      if (pairs) {
        const places = new Map(pairs.map(([i, j], item) => [i * n + j, item]));
        const flat = range(n * n).map((place) => (places.has(place) ? coefficients[places.get(place)] : 0));
        const mark = (place) => (places.has(place) ? { "data-item": places.get(place) } : {});
        nodes.push(...heatMap(flat, n, [200, y, side, side], top, mark));
      } else {
        const points = coefficients.map((c, tau) => [
          160 + ((WIDTH - 172) * tau) / Math.max(n - 1, 1), middle - ((0.48 * side) / top) * c,
        ]);
        nodes.push(line(160, middle, WIDTH - 12, middle, "lab-axis"), curve(points, "lab-head"));
        nodes.push(...dots(points, 2.5, "lab-head-fill"));
      }
    });
    const left = H > rows ? `value maps, ${rows} of ${H}` : H > 1 ? "value maps" : "value map";
    nodes.push(label(44, 14, left, "start"));
    nodes.push(label(WIDTH - 12, 14, pairs ? "coefficients" : "coefficient by lag", "end"));
    return { nodes, words: `The best ${headsWord(H).replace("1 ", "")} miss ${percent(floor[H])} of the energy.` };
  }

  function impulsePicture({ blocks, n, p, d }) {
    const top = highest(blocks) || 1, wide = (WIDTH - 30) / d, high = 196 / p, nodes = [];
    const step = (wide - 14) / Math.max(n - 1, 1);
    range(p * d).forEach((c) => {
      const left = 24 + (c % d) * wide, middle = 8 + (Math.floor(c / d) + 0.5) * high;
      const points = blocks.map((block, tau) => [left + tau * step, middle - ((0.43 * high) / top) * block[c]]);
      nodes.push(line(left, middle, left + wide - 14, middle, "lab-axis"));
      nodes.push(line(left, middle - 0.45 * high, left, middle + 0.45 * high, "lab-axis"));
      nodes.push(curve(points, "lab-curve"), ...dots(points, n > 40 ? 1.8 : 2.8, "lab-lag-fill"));
    });
    nodes.push(label(19, 12 + 0.07 * high, short(top), "end"), label(WIDTH - 6, 216, `lag 0 to ${n - 1}`, "end"));
    const early = blocks.slice(0, 3).map((block, tau) => `lag ${tau}: ${block.map(short).join(", ")}`).join("; ");
    return { nodes, words: `The entries of the lag operators; ${early}.` };
  }

  /** The block of the last output and the token that lies tau tokens back. */
  const fromLast = ({ n, pairs }) => (tau) =>
    (pairs ? pairs.findIndex(([i, j]) => i === n - 1 && j === n - 1 - tau) : tau);

  function weightsPicture(found) {
    const { made, n, decayed } = found, rows = made.map(({ alpha }) => [...alpha[n - 1]].reverse());
    const past = [...decayed[n - 1]].reverse(), top = highest([...rows, past]) || 1, item = fromLast(found);
    const lowest = Math.min(0, ...rows.flat()) / top, left = 34, base = 8 + 186 / (1 - lowest);
    const step = (WIDTH - left - 10) / n, width = (0.72 * step) / rows.length;
    const height = (value) => ((base - 14) * value) / top, nodes = [line(left, base, WIDTH - 10, base, "lab-axis")];
    rows.forEach((weights, h) => weights.forEach((weight, tau) => nodes.push(
      bar(left + (tau + 0.14) * step + h * width, base - Math.max(height(weight), 0), width, Math.abs(height(weight)),
        h ? "lab-state-fill" : "lab-head-fill", { "data-item": item(tau) }))));
    if (found.experiment.kind === "softmax") {
      nodes.push(curve(past.map((weight, tau) => [left + (tau + 0.5) * step, base - height(weight)]), "lab-dotted"));
    }
    nodes.push(label(left - 5, 20, short(top), "end"));
    nodes.push(label(WIDTH - 8, 214, `0 to ${n - 1} tokens back`, "end"));
    const listed = rows.map((weights) => weights.map(short).join(", ")).join("; second head: ");
    return { nodes, words: `Weights of the last token, from itself back: ${listed}.` };
  }

  function reachPicture(found) {
    const { reach, n, system } = found, top = Math.max(...reach), { nodes, at } = powers(reach, PLOT.x, PLOT.y);
    const x = (tau) => PLOT.x[0] + ((PLOT.x[1] - PLOT.x[0]) * tau) / Math.max(n - 1, 1);
    if (system) {
      const slowest = Math.max(...system.poles.map(({ radius }) => radius));
      nodes.push(curve(reach.map((_, tau) => [x(tau), at(top * slowest ** tau)]), "lab-dotted"));
    }
    const points = reach.map((value, tau) => [x(tau), at(value)]);
    nodes.push(curve(points, "lab-curve"), ...dots(points, n > 40 ? 2 : 3.2, "lab-lag-fill", fromLast(found)));
    nodes.push(label(PLOT.x[1], 212, `0 to ${n - 1} tokens back`, "end"));
    const ends = `${short(reach[0])} at distance 0 and ${short(reach[n - 1])} at distance ${n - 1}`;
    return { nodes, words: `The norm of the gradient is ${ends}.` };
  }

  function responsePicture({ system }) {
    const omegas = range(97).map((i) => (Math.PI * i) / 96);
    const gains = omegas.map((omega) => frequencyResponse(system, omega)).map((one) => (one ? gain(one) : Infinity));
    const finite = gains.filter((value) => isFinite(value) && value > 0), top = Math.max(...finite);
    if (!finite.length) return { nodes: [label(WIDTH / 2, 110, "no response")], words: "The output is zero." };
    const { nodes, at } = powers(finite.map((value) => Math.max(value, 1e-4 * top)), PLOT.x, PLOT.y);
    const x = (omega) => PLOT.x[0] + ((PLOT.x[1] - PLOT.x[0]) * omega) / Math.PI;
    for (const { angle, radius } of system.poles) {
      if (radius) nodes.push(line(x(angle), PLOT.y[0], x(angle), PLOT.y[1], "lab-dotted"));
    }
    nodes.push(curve(gains.map((value, i) => [x(omegas[i]), at(isFinite(value) ? value : 1e12)]), "lab-curve"));
    const ticks = [["0", 0, "middle"], ["π/2", Math.PI / 2, "middle"], ["π", Math.PI, "end"]];
    nodes.push(...ticks.map(([words, omega, anchor]) => label(x(omega), 208, words, anchor)));
    const endless = system.poles.some(({ radius }) => radius === 1);
    const peak = endless
      ? "A pole lies on the circle, so an input that oscillates at its angle comes out without bound."
      : `It is largest at the angle ${short(omegas[gains.indexOf(top)])}, where it is ${short(top)}.`;
    return { nodes, words: `The gain at the angles 0 to π. ${peak}` };
  }

  // 8. The page ----------------------------------------------------------------------------------------------

  const PREFIX = "#lab=";
  const RADIUS = 125, CENTER = [WIDTH / 2, 160]; // of the unit circle
  const TOUCH = 28; // pixels around a handle that take a finger
  const SNAP = { circle: 0.02, axis: 0.03 }; // no hand could hit these exactly
  const KEY = { angle: 0.05, radius: 0.02, point: 0.05 }; // one press of an arrow key
  const FINE = 0.2; // of that with Shift
  const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const FULL = `The laboratory holds at most ${LIMITS.states} state variables.`;
  const INSIDE = "Tokens stay within the circle, so that no logit grows without end.";
  const HINT = "Point at a block, a dot or a bar to see it in every panel. In W, the arrow keys do the same.";
  const LATE = 120, KEPT = 250, SPOKEN = 600; // milliseconds of rest: all panels are drawn, the address is kept, said
  const BUDGET = 5; // milliseconds for panels at every step of a hand

  const onDisc = ([x, y]) => [CENTER[0] + RADIUS * x, CENTER[1] - RADIUS * y];
  const placeOf = ({ radius, angle }) => [radius * Math.cos(angle), radius * Math.sin(angle)];
  const mirrored = (pole) => ({ ...pole, angle: -pole.angle });
  const poleName = ({ pair }, i) => `${pair ? "pair of poles" : "real pole"} ${i + 1}`;

  function poleWords(pole) {
    const { radius, angle, pair, size } = pole;
    const block = size > 1 ? `, a Jordan block of size ${size}` : "";
    if (!pair) return `value ${rounded(placeOf(pole)[0])}${block}`;
    return `radius ${rounded(radius)}, angle ${writeAngle(angle).replace("pi", "π")}${block}`;
  }

  /** A pole at a place of the plane, and whether that place is outside the circle. */
  function poleAt(pole, [x, y]) {
    if (!pole.pair) return keptPole({ ...pole, radius: rounded(Math.abs(x), 3), angle: x < 0 ? Math.PI : 0 });
    const size = Math.hypot(x, y), radius = Math.abs(size - 1) < SNAP.circle ? 1 : rounded(size, 3);
    const angle = Math.abs(y) < SNAP.axis ? (x < 0 ? Math.PI : 0) : rounded(Math.abs(Math.atan2(y, x)), 3);
    return keptPole({ ...pole, radius, angle });
  }

  /** A pole after one press of an arrow key: sideways a pair rotates, upward its radius grows. */
  function poleMoved(pole, [sideways, upward]) {
    if (!pole.pair) {
      return keptPole({ ...pole, radius: rounded(placeOf(pole)[0] + KEY.radius * (sideways + upward), 3), angle: 0 });
    }
    const angle = clamp(pole.angle + KEY.angle * sideways, 0, Math.PI);
    const radius = Math.max(pole.radius + KEY.radius * upward, 0);
    return keptPole({ ...pole, angle: angle > 3.14 ? Math.PI : rounded(angle, 3), radius: rounded(radius, 3) });
  }

  /** Where in a drawing a hand is, whatever room the page left around it. */
  const inDrawing = (svg, { clientX, clientY }) =>
    new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());

  /** A function that runs `act` once its calls have stopped for a while. */
  function afterRest(act, wait) {
    let timer = 0;
    return () => {
      clearTimeout(timer);
      timer = setTimeout(act, wait);
    };
  }

  /** What the address asks for, or null. Percent signs that make no sense stay as they are. */
  function addressed() {
    if (!location.hash.startsWith(PREFIX)) return null;
    const text = location.hash.slice(PREFIX.length);
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  }

  // The address of the one experiment that has the whole screen and plays by itself; it stays until Close.
  const STAGE = "#content-becomes-decay";

  // Where an experiment is kept: on a page in its address, an entry of the history for every gesture of a hand.
  const PAGE = {
    first: addressed,
    past: () => history.state?.lab || 0, // how many gestures can be undone
    keep(address, found, opened) {
      if (location.hash === STAGE || (opened && opened !== addressed())) return; // the reader has gone on
      if (opened) history.replaceState(history.state, "", PREFIX + address);
      else {
        history.scrollRestoration = "manual"; // of the entry that is left: a step back moves no panel away
        history.pushState({ lab: PAGE.past() + 1 }, "", PREFIX + address);
        history.scrollRestoration = "auto";
      }
    },
    undo: () => history.back(),
    listen: (act) => addEventListener("hashchange", () => act(location.hash ? addressed() : write(settled(DEFAULTS)))),
    link: (address) => location.href.split("#")[0] + PREFIX + address,
  };

  /** In a notebook the widget keeps it, and the matrices with it. */
  function render(model, element) {
    const root = element.appendChild(html("div")), past = [];
    laboratory(root, {
      first: () => model.get("address"),
      past: () => past.length,
      undo: (act) => act(past.pop()),
      keep(address, { system, n }, opened) {
        if (!opened) past.push(model.get("address"));
        model.set({ address, matrices: system ? { ...system, n } : {} });
        model.save_changes();
      },
      listen: (act) => model.on("change:address", () => act(model.get("address"))),
    });
  }

  /** Fill an element with the laboratory. */
  function laboratory(root, home = PAGE) {
    let experiment = settled(DEFAULTS), problems = [], found = null, lit = null;
    let kept = "", opened = "", held = false, wrong = null; // the last address, the one that the state is from; a field
    const summary = html("div", { className: "lab-summary" });
    const problem = html("p", { className: "lab-problem", role: "status" });
    const heard = html("p", { className: "lab-heard", role: "status" });
    const readout = html("p", { className: "lab-readout" });
    // Below what is dragged, so that a longer sentence does not move it away from the hand.
    const told = html("div", { className: "lab-told" }, summary, problem, readout);
    const keep = afterRest(store, KEPT);
    const speak = afterRest(() => { heard.textContent = findings(found).join(" "); }, SPOKEN);

    // What the parts of the board are given: the present state, and the ways to change it.
    const desk = {
      now: () => experiment,
      found: () => found,
      lit: () => lit,
      change(changes, ...sentences) {
        experiment = settled({ ...experiment, ...changes });
        problems = sentences.filter(Boolean);
        wrong = null;
        show();
        keep();
        speak();
      },
      changePole(i, { pole, outside }) {
        desk.change({ poles: experiment.poles.map((old, j) => (i === j ? pole : old)) }, outside && OUTSIDE);
      },
      complain(sentence, field = null) {
        problems = [sentence];
        wrong = field;
        show();
      },
      open(address) {
        const result = read(address);
        desk.change(result.experiment, ...result.problems);
      },
      light(item) {
        if (item === lit) return;
        lit = item;
        relight();
      },
    };

    const stage = disc(desk), views = PANELS.map((panel) => view(panel, desk)), near = decaySettings(desk);
    // Each twice, in the bar and beside the hand: on a phone the bar scrolls away.
    const undos = range(2).map(() => button("Undo", stepBack, { title: "Undo (Ctrl+Z)", className: "lab-undo" }));
    const drawers = range(2).map(() => button("Settings", () => drawn(!board.classList.contains("lab-open")), { className: "lab-drawer" }));
    const undoable = () => { for (const undo of undos) undo.disabled = !home.past(); };
    const top = [modeSwitch(desk), { element: undos[0], sync: undoable }, examples(desk)];
    const settings = [...systemSettings(desk), ...attentionSettings(desk), headSetting(desk)];
    const guide = tour(desk), shelf = tabs(views);
    const link = home.link && (() => home.link(write(experiment)));
    const foot = actions(desk, () => [stage, ...finish(views)], link, guide.card);
    const elements = (parts) => parts.map(({ element }) => element);
    const board = html("div", { className: "lab-board" },
      html("div", { className: "lab-row lab-bar" }, elements(top), drawers[0]), guide.element,
      html("div", { className: "lab-grid" }, stage.element, views[0].element, told),
      html("div", { className: "lab-settings" }, elements(settings)),
      html("div", { className: "lab-grid" }, elements(views.slice(1)), shelf.element), foot, heard);
    stage.element.append(html("div", { className: "lab-pinned" }, undos[1], drawers[1]), html("div", { className: "lab-row lab-near" }, elements(near)));
    const film = filming(desk, () => [stage, ...finish(views.filter(({ panel }) => FILMED.includes(panel.name)))]);
    const whole = when(isSoftmax, { element: button("Full screen", () => { location.hash = location.hash === STAGE ? PREFIX + write(experiment) : STAGE; }), sync: () => {} });
    const staged = [whole.element, globalThis.Film ? film.element : []].flat(); // Film is chapters/assets/film.js
    if (home === PAGE) foot.firstChild.append(...staged);
    told.append(guide.words);
    root.classList.add("lab-home"); // whose width decides how the board is laid out
    drawn(false);

    /** Open or shut the settings where they are a drawer. */
    function drawn(open) {
      board.classList.toggle("lab-open", open);
      for (const drawer of drawers) drawer.setAttribute("aria-expanded", String(open));
    }

    // Panels out of sight wait until the hand rests, so that what is seen follows it at once.
    const seen = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
      const one = views.find(({ svg }) => svg === target);
      one.seen = isIntersecting;
      if (isIntersecting) finish([one]);
    }));
    const finishAll = afterRest(finishNext, LATE);

    function finishNext() { // a hand may come in between
      if (finish(views, performance.now() + BUDGET).some(({ stale }) => stale)) setTimeout(finishNext);
    }

    function finish(some, until = Infinity) {
      for (const one of some.filter(({ stale }) => stale)) {
        if (performance.now() > until) break;
        one.sync(found);
        one.stale = false;
      }
      relight();
      return some;
    }

    function show() {
      found = compute(experiment);
      for (const part of [...top, ...settings, ...near, film, whole, stage]) part.sync(found);
      for (const one of views) {
        one.element.hidden = Boolean(one.panel.mode) && one.panel.mode !== experiment.mode;
        one.stale = !one.element.hidden;
      }
      shelf.sync();
      guide.sync(found);
      board.classList.toggle("lab-playing", experiment.goal > 0);
      // As many panels in sight as there is time for while a hand moves; the others follow when it rests.
      finish(views.filter((one) => one.seen), performance.now() + BUDGET);
      finishAll();
      const sentence = (words, i) => html("p", { className: i ? "" : "lab-first" }, words);
      summary.replaceChildren(...findings(found).map(sentence));
      problem.textContent = problems.join(" ");
      problem.hidden = !problems.length;
      for (const one of board.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
      wrong?.setAttribute("aria-invalid", "true");
      (wrong?.parentElement || summary).after(problem); // where it was typed
    }

    /** Keep the experiment unless a hand still holds something: one gesture is one step to undo. */
    function store() {
      const address = write(experiment);
      if (held) return;
      if (opened || address !== kept) home.keep(address, found, opened);
      [kept, opened] = [address, ""];
      undoable();
    }

    /** At the address of its own, content becomes decay on the whole screen, by itself where motion is wanted. */
    function arrive() {
      const on = location.hash === STAGE;
      if (on === root.classList.contains("lab-full")) return;
      root.classList.toggle("lab-full", on);
      document.documentElement.classList.toggle("lab-over", on);
      for (let node = root; node !== document.body; node = node.parentElement) {
        for (const other of node.parentElement.children) if (other !== node) other.inert = on;
      }
      whole.element.textContent = on ? "Close" : "Full screen";
      (on ? stage.element.lastChild : foot.firstChild).append(...staged);
      if (!on) return;
      reopen(TOUR[2].address);
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) near[0].element.click();
    }

    /** Open what an address says, which is no gesture. */
    function reopen(address) {
      opened = address;
      desk.open(address);
    }

    function stepBack() {
      store();
      if (home.past()) home.undo(reopen);
    }

    function relight() {
      for (const one of board.querySelectorAll(".lab-lit")) one.classList.remove("lab-lit");
      const shown = lit !== null && lit < found.blocks.length;
      if (shown) for (const one of board.querySelectorAll(`[data-item="${lit}"]`)) one.classList.add("lab-lit");
      readout.textContent = shown ? blockWords(found, lit) : HINT;
    }

    board.addEventListener("pointerover", ({ target }) => {
      const one = target.closest("[data-item]");
      if (one) desk.light(Number(one.dataset.item));
    });
    board.addEventListener("pointerleave", () => desk.light(null));
    board.addEventListener("click", ({ target }) => {
      const one = target.closest("[data-heads]");
      if (one) desk.change({ H: Number(one.dataset.heads) });
    });
    board.addEventListener("pointerdown", ({ target }) => { held = target.matches("svg *, input[type=range]"); });
    for (const name of ["pointerup", "pointercancel"]) {
      addEventListener(name, () => {
        if (held) keep();
        held = false;
      }, true);
    }
    (home === PAGE ? document : board).addEventListener("keydown", (event) => { // fields of text undo their own letters
      if (event.key === "Escape") drawn(false);
      if (event.key === "Escape") for (const sign of board.querySelectorAll('.lab-why[aria-expanded="true"]')) sign.click();
      if (event.key === "Escape" && root.classList.contains("lab-full")) whole.element.click();
      if (event.key !== "z" || !(event.ctrlKey || event.metaKey) || event.target.matches("textarea, [type=text]")) return;
      event.preventDefault();
      stepBack();
    });
    home.listen((address) => {
      if (address !== null && address !== write(experiment)) reopen(address);
    });
    if (home.first() !== null) ({ experiment, problems } = read(home.first()));
    kept = write(experiment);
    show();
    root.replaceChildren(board);
    for (const { svg } of views) seen.observe(svg);
    if (home !== PAGE) return;
    addEventListener("hashchange", arrive);
    arrive();
  }

  /** One panel as a figure. In W the arrow keys walk from block to block. */
  function view(panel, desk) {
    const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${panel.height}`, class: "lab-svg", role: "img" });
    const title = html("p", { className: "lab-title" }, panel.title);
    const caption = html("figcaption", {}, panel.caption);
    const element = html("figure", { className: `lab-panel lab-${panel.name}` }, title, why(caption), svg, caption);
    if (panel.name === "matrix") {
      svg.setAttribute("tabindex", "0");
      svg.addEventListener("keydown", (event) => {
        const [sideways, upward] = ARROWS[event.key] || [0, 0];
        if (!sideways && !upward) return;
        event.preventDefault();
        const next = desk.lit() === null ? 0 : desk.lit() + sideways - upward;
        desk.light(clamp(next, 0, desk.found().blocks.length - 1));
      });
    }
    function sync(found) {
      const { nodes, words } = panel.picture(found);
      if (svg.firstChild !== nodes[0]) svg.replaceChildren(...nodes);
      svg.setAttribute("aria-label", `${panel.title}. ${words}`);
    }
    return { element, svg, panel, sync, seen: false, stale: false };
  }

  /** A sign that shows a caption where there is no room for it below. */
  function why(caption) {
    const sign = button("?", () => {
      const open = caption.classList.toggle("lab-shown");
      sign.setAttribute("aria-expanded", String(open));
    }, { className: "lab-why", "aria-label": "How to read this", "aria-expanded": "false" });
    return sign;
  }

  /** Where there is room for one of them only, the panels with a tab share a place. */
  function tabs(views) {
    const sharing = views.filter(({ panel }) => panel.tab);
    let chosen = sharing[0];
    const pick = (one) => {
      chosen = one;
      sync();
    };
    const buttons = sharing.map((one) => button(one.panel.tab, () => pick(one)));
    function sync() {
      if (chosen.element.hidden) chosen = sharing.find(({ element }) => !element.hidden);
      sharing.forEach((one, i) => {
        one.element.classList.toggle("lab-behind", one !== chosen);
        buttons[i].hidden = one.element.hidden;
        buttons[i].setAttribute("aria-pressed", String(one === chosen));
      });
    }
    return { element: html("div", { className: "lab-tabs", role: "group", "aria-label": "Curves" }, buttons), sync };
  }

  /** Numbered things to try: each sets the board and says what to watch. Then ten goals, each marked when it is reached. */
  function tour({ now, open, change }) {
    const START = "Three things to try. Each sets the board and says what to watch.";
    const words = html("p", { className: "lab-step", role: "status" }, START);
    const chips = TOUR.map(({ name, address, words: said }, i) => button([html("b", {}, String(i + 1)), name], () => {
      open(address);
      say(said);
      chips.forEach((chip, j) => chip.setAttribute("aria-pressed", String(i === j)));
    }, { "aria-pressed": "false" }));
    const won = reachedGoals(), next = () => GOALS.findIndex((_, i) => !won[i]);
    const goals = GOALS.map(({ address }, i) => button(String(i + 1), () => open(won[i] || address), { className: "lab-goal" }));
    const game = button("Ten goals", () => (now().goal ? change({ goal: 0 }) : open(GOALS[Math.max(next(), 0)].address)));
    const element = html("div", { className: "lab-tour", role: "group", "aria-label": START }, chips, game, goals);
    let goal = 0;

    function say(sentence) { // heard once
      if (words.textContent !== sentence) words.textContent = sentence;
    }

    function sync(found) {
      if (goal && !found.experiment.goal) say(START);
      goal = found.experiment.goal;
      const aim = GOALS[goal - 1], done = aim?.reached(found);
      if (done) keepGoal(won, goal - 1, write(found.experiment));
      if (aim) say(done ? `Goal ${goal} is reached. ${aim.why}` : `Goal ${goal}: ${aim.name}. ${aim.words}`);
      game.setAttribute("aria-pressed", String(goal > 0));
      for (const chip of chips) {
        chip.hidden = goal > 0;
        if (goal) chip.setAttribute("aria-pressed", "false");
      }
      goals.forEach((one, i) => {
        one.hidden = !goal;
        one.classList.toggle("lab-won", Boolean(won[i]));
        one.setAttribute("aria-label", `${i + 1}, ${GOALS[i].name}${won[i] ? ", reached" : ""}`);
        one.setAttribute("aria-pressed", String(i + 1 === goal));
      });
    }
    return { element, words, sync, card: () => cardOf(won, getComputedStyle(element)) };
  }

  // The browser remembers how a reader reached a goal; where nothing may be stored it is forgotten, and no more.
  function reachedGoals() {
    try {
      return JSON.parse(localStorage.getItem("lab-goals")) || {};
    } catch {
      return {};
    }
  }

  function keepGoal(won, i, address) {
    won[i] = address;
    try {
      localStorage.setItem("lab-goals", JSON.stringify(won));
    } catch { /* no more than forgotten */ }
  }

  /** The disc with its handles: the poles of a system or the tokens of a head. */
  function disc(desk) {
    const ground = draw("g"), handles = draw("g");
    const svg = draw("svg", { viewBox: `0 0 ${WIDTH} 320`, class: "lab-svg", role: "group" }, ground, handles);
    const title = html("p", { className: "lab-title" }), caption = html("figcaption");
    const element = html("figure", { className: "lab-panel lab-disc" }, title, why(caption), svg, caption);
    let places = [], held = null; // {place, index} of every handle and mirror image; the index that is dragged

    const inPlane = (event) => {
      const { x, y } = inDrawing(svg, event);
      return [(x - CENTER[0]) / RADIUS, (CENTER[1] - y) / RADIUS];
    };
    const movePoint = (index, place) => desk.change(
      { points: desk.now().points.map((old, i) => (i === index ? keptPoint(place) : old)) },
      Math.hypot(...place) > 1 && INSIDE);

    svg.addEventListener("pointerdown", (event) => {
      const at = inPlane(event), scale = svg.getScreenCTM().a;
      const distance = ({ place: [x, y] }) => scale * RADIUS * Math.hypot(x - at[0], y - at[1]);
      const [nearest] = [...places].sort((a, b) => distance(a) - distance(b));
      if (distance(nearest) > TOUCH) return;
      event.preventDefault();
      held = nearest.index;
      svg.setPointerCapture(event.pointerId);
      handles.children[held].focus({ preventScroll: true });
    });
    svg.addEventListener("pointermove", (event) => {
      if (held === null) return;
      if (desk.now().mode === "system") desk.changePole(held, poleAt(desk.now().poles[held], inPlane(event)));
      else movePoint(held, inPlane(event));
    });
    for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, () => { held = null; });
    handles.addEventListener("keydown", (event) => {
      const index = Array.from(handles.children).indexOf(event.target), by = ARROWS[event.key]?.map((value) => (event.shiftKey ? FINE * value : value));
      if (index < 0 || !by) return;
      event.preventDefault();
      const { mode, poles, points } = desk.now();
      if (mode === "system") desk.changePole(index, poleMoved(poles[index], by));
      else movePoint(index, points[index].map((value, c) => value + KEY.point * by[c]));
    });

    function handle(kind) {
      return draw("g", { class: "lab-handle", tabindex: 0, role: "slider" },
        circle([0, 0], TOUCH, "lab-touch"), circle([0, 0], 13, "lab-ring"), circle([0, 0], 9, `${kind}-fill`),
        draw("text", { class: "lab-middle" }), draw("text", { class: "lab-middle lab-at" }));
    }

    function sync(found) {
      const { mode, poles, points } = found.experiment, system = mode === "system";
      title.textContent = system ? "Drag the poles" : "Drag the tokens";
      svg.setAttribute("aria-label", title.textContent);
      caption.textContent = system
        ? "The angle of a pole is the rotation per token, its distance from the center the factor that remains. "
          + "Arrow keys: left and right change the angle, up and down the distance."
        : "Tokens are points. The last one looks at the others; a thicker line is a larger weight.";
      const mirror = (pole, index) => (pole.pair ? [{ place: placeOf(mirrored(pole)), index }] : []);
      places = system
        ? poles.flatMap((pole, index) => [{ place: placeOf(pole), index }, ...mirror(pole, index)])
        : points.map((place, index) => ({ place, index }));
      ground.replaceChildren(
        circle(CENTER, RADIUS, "lab-axis"), line(10, CENTER[1], WIDTH - 10, CENTER[1], "lab-axis"),
        line(CENTER[0], 10, CENTER[0], 310, "lab-axis"), label(CENTER[0] + RADIUS + 5, CENTER[1] + 16, "1", "start"),
        ...(system ? poles.flatMap(traceOfPole) : tracesOfTokens(found)));
      const one = system ? poles.map(handleOfPole) : points.map(handleOfToken);
      const kind = system ? "lab-state" : "lab-token";
      if (handles.childElementCount !== one.length || handles.dataset.kind !== kind) {
        handles.replaceChildren(...one.map(() => handle(kind)));
        handles.dataset.kind = kind;
      }
      const dots = places.map(({ place }) => onDisc(place)), taken = [[CENTER[0] + RADIUS + 9, CENTER[1] + 12, LETTER]];
      const beside = ([x, y], half) => [[x, y - 17], [x, y + 17], [x + 13 + half, y], [x - 13 - half, y]];
      const names = one.map(({ place, words }) => words && roomFor(words, beside(onDisc(place), LETTER * words.length), dots, 9, taken));
      one.forEach(({ place, words, numbers, ...said }, i) => {
        const [x, y] = onDisc(place), element = handles.children[i], half = LETTER * numbers.length;
        element.setAttribute("transform", `translate(${px(x)} ${px(y)})`);
        const inside = x > CENTER[0] ? x - half : x + half, steps = [17, -17, 32, -32, 47, -47].map((step) => [inside, y - step]);
        const spots = [names[i], roomFor(numbers, steps, dots, 9, [...taken])];
        [words, numbers].forEach((said, c) => {
          const text = element.children[3 + c], [u, v] = spots[c] || [x, y];
          text.textContent = spots[c] ? said : "";
          text.setAttribute("transform", `translate(${px(u - x)} ${px(v + 4 - y)})`);
        });
        for (const [name, value] of Object.entries(said)) element.setAttribute(`aria-${name}`, value);
      });
    }
    return { element, svg, sync, panel: { title: "Poles or tokens", height: 320 } };
  }

  /** Where the handle of a pole is, what is written beside it, and what a screen reader says of it. */
  function handleOfPole(pole, i) {
    const place = placeOf(pole), [valuemin, valuemax] = pole.pair ? [0, rounded(Math.PI)] : [-1, 1];
    return {
      place, words: pole.size > 1 ? `×${pole.size}` : "", label: capital(poleName(pole, i)), valuemin, valuemax,
      valuenow: rounded(pole.pair ? pole.angle : place[0]), valuetext: poleWords(pole),
      numbers: pole.pair ? `${rounded(pole.radius)} @ ${writeAngle(pole.angle).replace("pi", "π")}` : String(rounded(place[0])),
    };
  }

  const handleOfToken = (place, i) => ({
    place, words: String(i), label: `Token ${i}`, valuemin: -1, valuemax: 1, valuenow: place[0],
    valuetext: `at ${place.join(", ")}`, numbers: place.map((value) => rounded(value, 2)).join(", "),
  });

  /** A pole's radius, and for a pair its angle and its mirror image. */
  function traceOfPole(pole) {
    const radius = curve([CENTER, onDisc(placeOf(pole))], "lab-dotted");
    if (!pole.pair) return [radius];
    const arc = range(25).map((s) => onDisc(placeOf({ radius: 0.25, angle: (pole.angle * s) / 24 })));
    const image = circle(onDisc(placeOf(mirrored(pole))), 9, "lab-state-fill lab-mirror", { "fill-opacity": 0.55 });
    return [radius, image, curve(arc, "lab-arc")];
  }

  /** From the last token to each one that it looks at, as thick as the weight. */
  function tracesOfTokens({ experiment, made, n }) {
    const row = made[0].alpha[n - 1], top = highest([row]) || 1, end = onDisc(experiment.points[n - 1]);
    const width = (weight) => ({ style: `stroke-width: ${px((7 * Math.abs(weight)) / top)}px` });
    const lines = row.map((weight, j) => curve([end, onDisc(experiment.points[j])], "lab-head", width(weight)));
    return [...lines, circle(end, 14, "lab-head")];
  }

  // Controls. Each is {element, sync(found)}, where sync writes the present state into it.

  const button = (words, act, more = {}) => html("button", { type: "button", onclick: act, ...more }, words);
  const named = (words, ...controls) => html("label", { className: "lab-field" }, html("span", {}, words), controls);

  /** A control that is shown where a condition on the experiment holds. */
  function when(condition, { element, sync }) {
    return {
      element,
      sync(found) {
        element.hidden = !condition(found.experiment);
        if (!element.hidden) sync(found);
      },
    };
  }

  /** A range; get(found) is its value, which is also written beside it. */
  function ranged(words, [min, max, step], choose, get) {
    const output = html("output");
    const input = html("input", { type: "range", min, max, step, oninput: () => choose(Number(input.value)) });
    const element = named(words, input, output);
    element.classList.add("lab-range");
    function sync(found) {
      input.value = output.textContent = get(found);
      input.setAttribute("aria-valuetext", output.textContent);
    }
    return { element, input, sync };
  }

  /** A choice among [value, name]; get(found) is the present value. */
  function chosen(words, options, choose, get) {
    const select = html("select", { "aria-label": words, onchange: () => choose(select.value) },
      options.map(([value, name]) => html("option", { value }, name)));
    return { element: named(words, select), sync: (found) => { select.value = get(found); } };
  }

  /** A field of text, which is left alone while somebody types in it. */
  function typed(words, commit) {
    let typing = false;
    const input = html("input", {
      type: "text", autocomplete: "off", spellcheck: false, "aria-label": words,
      oninput: () => { typing = true; },
      onchange: () => {
        typing = false;
        commit(input.value);
      },
    });
    return { input, put: (text) => { if (!typing) input.value = text; } };
  }

  function modeSwitch({ now, change }) {
    const tokens = { system: DEFAULTS.n, attention: DEFAULTS.points.length }; // each mode keeps its own number
    function choose(mode) {
      tokens[now().mode] = now().n;
      change({ mode, n: tokens[mode] });
    }
    const modes = { system: "State space", attention: "Attention" };
    const buttons = Object.entries(modes).map(([mode, words]) => button(words, () => choose(mode), { value: mode }));
    const group = { className: "lab-switch", role: "group", "aria-label": "What mixes the tokens" };
    const element = html("div", group, buttons);
    const sync = ({ experiment }) =>
      buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.value === experiment.mode)));
    return { element, sync };
  }

  function examples({ now, open }) {
    const group = (mode, words) => html("optgroup", { label: words }, EXAMPLES.filter((one) => one.mode === mode)
      .map(({ name, address }) => html("option", { value: address }, name)));
    const groups = [group("system", "State space models"), group("attention", "Attention heads")];
    const select = html("select", { onchange: () => select.value && open(`${select.value}&goal=${now().goal}`) },
      html("option", { value: "" }, "choose one …"), groups);
    const known = new Map(EXAMPLES.map(({ address }) => [write(read(address).experiment), address]));
    const sync = ({ experiment }) => { select.value = known.get(write({ ...experiment, goal: 0 })) || ""; };
    return { element: named("Example", select), sync };
  }

  const headSetting = ({ change }) => {
    const control = ranged("heads H", [0, 4, 1], (H) => change({ H }), ({ H }) => H);
    const sync = (found) => {
      control.input.max = found.sigma.length;
      control.sync(found);
    };
    return { element: control.element, sync };
  };

  function systemSettings(desk) {
    const { change } = desk, sizes = range(LIMITS.width).map((i) => [i + 1, i + 1]);
    const get = (name) => ({ experiment }) => experiment[name];
    return [
      poleEditor(desk),
      ranged("tokens n", [1, LIMITS.tokens, 1], (n) => change({ n }), get("n")),
      chosen("inputs d", sizes, (d) => change({ d: Number(d) }), get("d")),
      chosen("outputs p", sizes, (p) => change({ p: Number(p) }), get("p")),
      matrixField("B", desk, (one) => [sizeOf(one), one.d]),
      matrixField("C", desk, (one) => [one.p, sizeOf(one)]),
      matrixField("D", desk, (one) => [one.p, one.d]),
    ].map((control) => when(({ mode }) => mode === "system", control));
  }

  /** B, C or D: a choice of usual ones, and a field to type another; shape(experiment) is [rows, columns]. */
  function matrixField(name, { now, change, complain }, shape) {
    const none = name === "D" ? [["zero", "none"]] : [];
    const fills = [...none, ["identity", "identity"], ["ones", "all ones"], ["random", "random"], ["own", "typed"]];
    const usual = (value) => change({ [name]: value === "own" ? filled(now()[name], ...shape(now())) : value });
    const present = ({ experiment }) => (typeof experiment[name] === "string" ? experiment[name] : "own");
    const fill = chosen(name, fills, usual, present);
    const field = typed(`${name}, with semicolons between its rows`, (text) => {
      const value = readMatrix(text), [rows, columns] = shape(now());
      if (!value) {
        const refused = `${name} needs numbers, commas between them and semicolons between rows; it stays as it was.`;
        return complain(refused, field.input);
      }
      const fits = value.length === rows && value[0].length === columns;
      const sentence = `${name} has ${rows} rows of ${columns} here: missing entries are 0, others are left out.`;
      return change({ [name]: filled(value, rows, columns) }, !fits && sentence);
    });
    function sync(found) {
      fill.sync(found);
      field.put(matrixText(filled(found.experiment[name], ...shape(found.experiment))).replace(/;/g, "; "));
    }
    return { element: html("div", { className: "lab-matrix-field" }, fill.element, field.input), sync };
  }

  /** The poles as numbers to type, and buttons that add and remove them. */
  function poleEditor({ now, change, changePole, complain }) {
    const list = html("div");
    let rows = [], key = "";

    function add(pole) {
      if (sizeOf(now()) + statesOf(pole) > LIMITS.states) complain(FULL);
      else change({ poles: [...now().poles, pole] });
    }

    function commit(i, part, text) {
      const pole = now().poles[i], what = part === "angle" ? "angle" : pole.pair ? "radius" : "value";
      const kept = keptPole({ ...pole, angle: pole.pair ? pole.angle : 0, [part]: readNumber(text) });
      const refused = text.trim() ? `“${text}” is no number` : "The field is empty";
      if (kept) changePole(i, kept);
      else complain(`${refused}, so the ${what} of ${poleName(pole, i)} stays as it was.`, rows[i][part].input);
    }

    function resize(i, size) {
      const poles = now().poles.map((old, j) => (i === j ? { ...old, size } : old));
      if (sizeOf({ poles }) > LIMITS.states) complain(FULL);
      else change({ poles });
    }

    function rowOf(pole, i) {
      const name = capital(poleName(pole, i));
      const radius = typed(`${name}, ${pole.pair ? "radius" : "value"}`, (text) => commit(i, "radius", text));
      const angle = typed(`${name}, angle`, (text) => commit(i, "angle", text));
      const options = range(LIMITS.size).map((m) => html("option", { value: m + 1 }, `×${m + 1}`));
      const size = html("select", {
        "aria-label": `${name}, size of its Jordan block`, onchange: () => resize(i, Number(size.value)),
      }, options);
      const remove = button("✕", () => change({ poles: now().poles.filter((_, j) => j !== i) }),
        { "aria-label": `Remove ${poleName(pole, i)}` });
      const element = html("div", { className: "lab-pole" }, html("span", {}, pole.pair ? "pair" : "real"),
        radius.input, pole.pair ? ["@", angle.input] : [], size, remove);
      return { element, radius, angle, size, remove };
    }

    function sync({ experiment: { poles } }) {
      const structure = poles.map(({ pair }) => pair).join();
      if (structure !== key) {
        rows = poles.map(rowOf);
        list.replaceChildren(...rows.map(({ element }) => element));
        key = structure;
      }
      poles.forEach((pole, i) => {
        rows[i].radius.put(rounded(pole.pair ? pole.radius : placeOf(pole)[0]));
        rows[i].angle.put(writeAngle(pole.angle));
        rows[i].size.value = pole.size;
        rows[i].remove.disabled = poles.length === 1;
      });
    }

    const more = html("div", { className: "lab-row" },
      button("Add a pair", () => add({ radius: 0.9, angle: 1.5, pair: true, size: 1 })),
      button("Add a real pole", () => add({ radius: 0.7, angle: 0, pair: false, size: 1 })));
    const legend = html("legend", {}, "poles: radius @ angle");
    return { element: html("fieldset", { className: "lab-poles" }, legend, list, more), sync };
  }

  const isSoftmax = ({ mode, kind }) => mode === "attention" && kind === "softmax";

  function attentionSettings({ change }) {
    const get = (name) => ({ experiment }) => experiment[name];
    const gated = ({ mode, kind }) => mode === "attention" && kind === "gated";
    const either = ({ mode }) => mode === "attention";
    const sink = html("input", { type: "checkbox", onchange: () => change({ sink: sink.checked }) });
    const kinds = [["softmax", "softmax"], ["gated", "linear, with a decay"]], counts = [[1, "one"], [2, "two"]];
    const sharp = [0, LIMITS.sharpness, 0.1];
    return [
      when(either, ranged("tokens n", [1, LIMITS.points, 1], (n) => change({ n }), get("n"))),
      when(either, chosen("weights", kinds, (kind) => change({ kind }), get("kind"))),
      when(either, chosen("heads", counts, (heads) => change({ heads: Number(heads) }), get("heads"))),
      when(either, ranged("sharpness", sharp, (sharpness) => change({ sharpness }), get("sharpness"))),
      when(either, ranged("decay", [0.1, 0.99, 0.01], (memory) => change({ memory }), get("memory"))),
      when(isSoftmax, { element: named("a sink", sink), sync: ({ experiment }) => { sink.checked = experiment.sink; } }),
      when(gated, ranged("gate", [-8, 8, 0.5], (gate) => change({ gate }), get("gate"))),
    ];
  }

  /** What stands beside the disc: the way from content to decay. */
  function decaySettings({ now, change }) {
    let frame = 0;

    /** Move the weights from content to decay in four seconds, or at once for readers who want no motion. */
    function play() {
      cancelAnimationFrame(frame);
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) return change({ morph: 1 });
      const from = now().morph < 1 ? now().morph : 0, began = performance.now();
      let last = now().morph;
      const step = (time) => {
        if (now().morph !== last) return; // a hand, or a step back
        const morph = last = rounded(clamp(from + (time - began) / 4000, from, 1), 3);
        change({ morph });
        if (morph < 1 && isSoftmax(now())) frame = requestAnimationFrame(step);
      };
      frame = requestAnimationFrame(step);
      return frame;
    }

    return [
      when(isSoftmax, { element: button("▶ Play", play, { title: "Content becomes decay" }), sync: () => {} }),
      when(isSoftmax, ranged("toward decay", [0, 1, 0.001], (morph) => change({ morph }), ({ experiment }) => experiment.morph)),
    ];
  }

  /** A button that saves ten seconds in which content becomes decay as a film. */
  const FILMED = ["matrix", "weights", "reach"];

  function filming({ change, complain }, views) {
    async function film() {
      const { Film } = globalThis;
      let told = "";
      await Film.save({ name: "content-becomes-decay", say: (text) => complain(told = text), draw: async (pen, share) => {
        change({ morph: rounded(clamp(1.25 * share - 0.1, 0, 1), 3) }, told);
        const shown = views(), shot = await Film.picture(picture(shown)), scale = Math.min(Film.WIDTH / shot.width, Film.HEIGHT / shot.height);
        pen.fillStyle = getComputedStyle(shown[0].svg).getPropertyValue("--ssm-paper");
        pen.fillRect(0, 0, Film.WIDTH, Film.HEIGHT);
        pen.drawImage(shot, (Film.WIDTH - scale * shot.width) / 2, 0, scale * shot.width, scale * shot.height);
      } });
    }
    return when(isSoftmax, { element: button("Save a film", film, { title: "Ten seconds: content becomes decay" }), sync: () => {} });
  }

  /** Buttons that copy the experiment as an address, as Python and as a picture. */
  function actions({ found, change }, views, link, card) {
    const said = html("p", { role: "status" });
    const text = html("textarea", { readOnly: true, rows: 8, hidden: true, "aria-label": "The text to copy" });
    async function copy(words, content, { currentTarget: pressed }) {
      const name = (pressed.dataset.name ??= pressed.textContent);
      text.value = content;
      text.hidden = false;
      try {
        await navigator.clipboard.writeText(content);
        said.textContent = `${words} is in the clipboard.`;
        pressed.textContent = "Copied"; // the sentence may be out of sight
        setTimeout(() => { pressed.textContent = name; }, 1500);
      } catch {
        text.select();
        text.scrollIntoView({ block: "nearest" });
        said.textContent = `${words} is selected below, ready to be copied.`;
      }
    }
    const row = html("div", { className: "lab-row" },
      link ? button("Copy the link", (event) => copy("The address of this experiment", link(), event)) : [],
      button("Copy as Python", (event) => copy("The cell", python(found()).code, event)),
      button("Copy as a picture", (event) => copy("The picture, as SVG,", picture(views()), event)),
      html("div", { className: "lab-card" }, button("Copy my goals", (event) => copy("The card of your goals, as SVG,", card(), event))),
      button("Start over", () => change(DEFAULTS)));
    return html("div", { className: "lab-actions" }, row, said, text);
  }

  /** The panels that are shown, as one SVG file with the present colors. */
  function picture(views) {
    const shown = views.filter(({ element }) => !element.hidden), colors = getComputedStyle(shown[0].svg);
    const heights = [0, 0], wide = WIDTH + 20; // of the two columns
    const groups = shown.map(({ svg, panel }) => {
      const column = heights[0] <= heights[1] ? 0 : 1;
      const place = `translate(${10 + column * wide} ${heights[column] + 8})`;
      heights[column] += panel.height + 44;
      const copies = [...svg.childNodes].map((node) => node.cloneNode(true));
      const inside = draw("g", { transform: "translate(0 28)" }, copies);
      return draw("g", { transform: place }, label(0, 16, panel.title, "start", { "font-weight": "bold" }), inside);
    });
    return file([2 * wide, Math.max(...heights)], groups, colors);
  }

  /** Drawings as one SVG file with the colors that an element has. */
  function file([width, height], groups, colors) {
    const values = VARIABLES.map((name) => `--ssm-${name}: ${colors.getPropertyValue(`--ssm-${name}`).trim()};`);
    const whole = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "lab-svg" },
      draw("style", {}, `:root { ${values.join(" ")} } ${STYLE}`),
      bar(0, 0, width, height, "", { fill: "var(--ssm-paper)" }), groups);
    for (const one of whole.querySelectorAll(".lab-lit")) one.classList.remove("lab-lit");
    return new XMLSerializer().serializeToString(whole);
  }

  /** The ten goals as a card to show: the first rows of W of every system or head that reached one. */
  function cardOf(won, colors) {
    const kept = boxes, [wide, high] = [250, 250];
    const tiles = GOALS.map(({ name }, i) => {
      boxes = { key: "" }; // those of the board stay as they are
      const { experiment } = read(won[i] || ""), few = settled({ ...experiment, n: Math.min(experiment.n, LIMITS.points) });
      const W = won[i] ? matrixPicture(compute(few)).nodes : bar(SQUARE.left, SQUARE.top, SQUARE.side, SQUARE.side, "lab-axis");
      return draw("g", { transform: `translate(${(i % 5) * wide} ${40 + Math.floor(i / 5) * high})` },
        draw("g", { transform: "translate(8 26) scale(0.66)" }, W), label(20, 22, `${i + 1}. ${name}${won[i] ? " ✓" : ""}`, "start"));
    });
    boxes = kept;
    const title = `The laboratory of Heads and States: ${Object.keys(won).length} of ten goals`;
    return file([5 * wide, 40 + 2 * high], [label(20, 30, title, "start", { "font-weight": "bold" }), ...tiles], colors);
  }

  // 9. Chapters ----------------------------------------------------------------------------------------------
  //
  // A slider that headsandstates.sliders drew in advance has a few stops, each with a sentence that Python computed. If it
  // names a view here, it gets all values in between; a `whole` view has its stops only, as has a menu, whose value is
  // the place of a name. An element with the attribute data-stop goes to this stop when it is pressed.
  // `show(value, written, given)` returns {pictures, words}: lists
  // of SVG nodes, each `width` wide and `height` high, and the sentence, at a stop the same as Python's. `given` are
  // numbers that Python sent along. In one picture, the first or that of the index `grip`, a reader may pull a dot:
  // `handle(value, given)` is its place, `pull(place, given)` the value for another place. Values have three digits,
  // or as many as `digits` says.

  const NOTCHES = 240; // of the slider, from its first stop to its last; the stops are equally far apart
  const SECOND = (150 / 1.15) * Math.sqrt(19 / 20); // how far the dot of lag 1 is from the origin, for 20 tokens
  const BY_SECOND_DOT = {
    handle: (angle) => [WIDTH / 2 + SECOND * Math.cos(angle), 160 - SECOND * Math.sin(angle)],
    pull: ([x, y]) => Math.abs(Math.atan2(160 - y, x - WIDTH / 2)),
  };
  const rotating = (angle, n, radius) =>
    compute({ ...settled(DEFAULTS), n, poles: [{ radius, angle, pair: true, size: 1 }] });

  /** A number as Python's format "g" writes it. */
  function general(value, figures) {
    const [digits, power] = value.toExponential(figures - 1).split("e").map(Number);
    if (value === 0 || (power >= -4 && power < figures)) return String(Number(value.toPrecision(figures)));
    return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }

  /** The value between two at which a falling function has a height. */
  function inverted(falling, height, low, high) {
    let [from, to] = [low, high];
    for (let i = 0; i < 50; i++) {
      const middle = (from + to) / 2;
      if (falling(middle) > height) from = middle;
      else to = middle;
    }
    return from;
  }

  /** Where the values of a plot are drawn: at([x, y]) is a place, of(place) the values there. */
  function scale([low, high], [least, most], [left, right] = PLOT.x, [above, below] = [34, 270]) {
    const at = ([x, y]) => [
      left + ((right - left) * (x - low)) / (high - low), below - ((below - above) * (y - least)) / (most - least),
    ];
    const of = ([x, y]) => [
      low + ((high - low) * (x - left)) / (right - left), least + ((most - least) * (below - y)) / (below - above),
    ];
    return { at, of, low, least, box: [left, above, right - left, below - above] };
  }

  /** The frame of a plot with a title; ticks are numbers or [words, number], `under` and `up` name the two axes. */
  function frameOf({ at, low, least, box: [left, above, wide, high] }, title, xs, ys, under = "", up = "") {
    const below = above + high, right = left + wide;
    const ticks = (all) => all.map((tick) => (Array.isArray(tick) ? tick : [String(tick).replace("-", "−"), tick]));
    return [
      label((left + right) / 2, above - 18, title),
      line(left, above, left, below, "lab-axis"), line(left, below, right, below, "lab-axis"),
      ...ticks(xs).map(([words, x]) => label(at([x, least])[0], below + 17, words)),
      ...ticks(ys).map(([words, y]) => label(left - 5, at([low, y])[1] + 4, words, "end")),
      label(right, below + 34, under, "end"), label(left + 6, above + 6, up, "start"),
    ];
  }

  /** What is drawn in a plot, cut at its frame. */
  const inside = ({ box: [x, y, width, height] }, ...nodes) =>
    draw("svg", { x, y, width, height, viewBox: `${x} ${y} ${width} ${height}` }, nodes);

  /** Labels one below the other where they would meet; each is [x, y, words, anchor]. */
  function apart(labels) {
    let free = -Infinity;
    return [...labels].sort((a, b) => a[1] - b[1]).map(([x, y, ...rest]) => {
      free = Math.max(y, free + 14);
      return label(x, free, ...rest);
    });
  }

  /** A curve of values at [x, value] and a dot on it: the plot of a share of at most `top` against a parameter. */
  function shares(points, dot, [low, high], top, ticks, title, under) {
    const plot = scale([low, high], [0, top]);
    return [
      ...frameOf(plot, title, ticks, [0, top / 2, top], under),
      curve(points.map(plot.at), "lab-head"), circle(plot.at(dot), 6, "lab-head-fill"),
    ];
  }

  const HALF_TURN = [["0", 0], ["π/2", Math.PI / 2], ["π", Math.PI]];
  const along = (low, high, count) => range(count).map((i) => low + ((high - low) * i) / (count - 1));

  /** The share that one head misses of a rotation over n tokens: lag tau occurs n - tau times. */
  function missedByOne(angle, n) {
    const wave = (part) => sum(range(n).map((tau) => (n - tau) * part(2 * tau * angle)));
    return Math.max(0, 0.5 - Math.hypot(wave(Math.cos), wave(Math.sin)) / (n * (n + 1)));
  }

  const VIEWS = {
    /** The lags of a rotation as points, the line of the best head, and what it misses at every angle. */
    plane: {
      height: 320,
      show(angle) {
        const found = rotating(angle, 20, 1), missed = found.floor[1];
        const everywhere = along(0, Math.PI, 101).map((x) => [x, missedByOne(x, 20)]);
        const title = "share missed at every angle";
        const right = shares(everywhere, [angle, missed], [0, Math.PI], 0.5, HALF_TURN, title, "angle θ");
        const words = `Angle ${general(angle, 3)}: one head, the best line, misses ${missed.toFixed(3)} of the energy.`;
        return { pictures: [planePicture(found).nodes, right], words };
      },
      ...BY_SECOND_DOT,
    },

    /** The attention matrix of a fading average, and one row of it against the lag. */
    memory: {
      height: 300,
      show(a) {
        const n = 24, most = 128, { nodes, at } = powers([1, 1e-3], PLOT.x, [34, 260]);
        const flat = causal(n, (i, j) => a ** (i - j)).flat();
        const x = (lag) => PLOT.x[0] + ((PLOT.x[1] - PLOT.x[0]) * lag) / most;
        const row = range(most + 1).map((lag) => [x(lag), at(a ** lag)]).filter((_, lag) => a ** lag > 1e-3);
        const reach = Math.ceil(Math.log(0.01) / Math.log(a)), right = [
          label(WIDTH / 2, 16, "one row of it"), ...nodes, line(x(0), 260, x(most), 260, "lab-axis"),
          line(x(0), at(0.01), x(most), at(0.01), "lab-dotted"), label(x(most), at(0.01) - 6, "1 %", "end"),
          curve(row, "lab-curve"), ...[0, 64, 128].map((lag) => label(x(lag), 278, String(lag))),
          label(x(32), 278, "lag"),
        ];
        if (reach <= most) right.push(circle([x(reach), at(a ** reach)], 6, "lab-lag-fill"));
        const matrix = [label(WIDTH / 2, 16, `the weights, a = ${a}`), ...heatMap(flat, n, [42, 28, 256, 256], 1)];
        const when = `one hundredth is reached at lag ${reach.toLocaleString("en-US")}`;
        const words = `At a = ${a} each weight is ${a} of the one to its right; ${when}.`;
        return { pictures: [matrix, right], words };
      },
    },

    /** A state that rotates and fades, and the best head: one token in later outputs, and all matrices. */
    mosaics: {
      width: 160, height: 184,
      show(angle) {
        const found = rotating(angle, 8, 0.93), missed = found.floor[1].toFixed(3);
        const words = `Each step rotates the state by ${general(angle, 6)} and leaves 0.93 of it. The best head misses `
          + `${missed} of the sum of the squared entries; two heads miss nothing.`;
        const pictures = [
          clock(found.blocks, "state", "a rotating state"), mosaic(found.blocks, "its matrices"),
          clock(found.shown, "head", "the best head"), mosaic(found.shown, `misses ${missed}`),
        ];
        return { pictures, words };
      },
      handle: (angle) => hand([-0.93 * Math.sin(angle), 0.93 * Math.cos(angle)]),
      pull: ([x, y]) => Math.abs(Math.atan2(80 - x, 102 - y)),
    },

    /** The value maps of a rotating head, the best common one, and what it misses at every spread. */
    turning: {
      height: 320,
      show(phi) {
        const angles = (m) => range(m).map((i) => (phi * (2 * i + 1 - m)) / m);
        const [c, s] = [Math.cos, Math.sin].map((part) => sum(angles(400).map((angle) => part(angle) ** 2)));
        const [missed, best] = [(Math.min(c, s) / (c + s)).toFixed(3), c > s ? "I" : "J"];
        const end = c > s ? [1.15, 0] : [0, 1.15], x = Math.PI;
        const left = [
          line(15, 160, WIDTH - 15, 160, "lab-axis"), line(WIDTH / 2, 24, WIDTH / 2, 312, "lab-axis"),
          label(WIDTH / 2, 16, `the best common V lies along ${best}`),
          label(WIDTH - 8, 177, "I", "end"), label(WIDTH / 2 + 8, 310, "J", "start"),
          ...angles(60).map((angle) => circle(onDisc([Math.cos(angle), Math.sin(angle)]), 3.5, "lab-head-fill")),
          curve([onDisc(end.map((value) => -value)), onDisc(end)], "lab-arc"),
        ];
        const theory = along(0.02, x, 100).map((v) => [v, 0.5 - Math.abs(Math.sin(2 * v)) / (4 * v)]);
        const right = shares(theory, [phi, missed], [0, x], 0.6, HALF_TURN, `one head misses ${missed}`, "spread φ");
        const words = `Angles within ±${pyNumber(phi)}: the best common V lies along ${best} and misses ${missed} of `
          + "the energy.";
        return { pictures: [left, right], words };
      },
      handle: (phi) => onDisc([Math.cos(phi), Math.sin(phi)]),
      pull: ([x, y]) => Math.abs(Math.atan2(CENTER[1] - y, x - CENTER[0])),
    },

    /** A kicked mass on a spring with friction, and the two poles. */
    swing: {
      height: 312, grip: 1,
      poles: scale([-8.5, 0.5], [-2.5, 2.5]),
      show(c) {
        const spring = { ...SPRING, A: [[0, 1], [-4, -c]] }, plot = scale([0, 10], [-0.6, 0.6]);
        const path = lags(discretize(spring, 0.05, "zoh"), 200).map(([q], i) => [0.05 * (i + 1), q / 0.05]);
        const found = eigenvalues(spring.A), rate = Math.abs(found[1][0]).toFixed(2), { at } = this.poles;
        const motion = c === 0 ? "it swings without end" : c < 4 ? "it swings and fades" : "it returns without a swing";
        const left = [
          ...frameOf(plot, motion, [0, 5, 10], [-0.5, 0, 0.5], "seconds after a kick", "position"),
          curve([plot.at([0, 0]), plot.at([10, 0])], "lab-grid-line"), curve(path.map(plot.at), "lab-curve"),
        ];
        const right = [
          ...frameOf(this.poles, `slowest decay rate ${rate} per second`, [-8, -4, 0], [-2, 0, 2], "real part of λ",
            "imaginary part"),
          curve([at([0, -2.5]), at([0, 2.5])], "lab-dotted"), curve([at([-8.5, 0]), at([0.5, 0])], "lab-grid-line"),
          ...found.map((pole) => circle(at(pole), 6, "lab-state-fill")),
        ];
        const words = `Friction ${pyNumber(c)} kg/s: kicked mass and its poles; slowest decay rate ${rate} per second.`;
        return { pictures: [left, right], words };
      },
      handle: (c) => VIEWS.swing.poles.at(eigenvalues([[0, 1], [-4, -c]])[0]),
      pull(place) {
        const [x] = this.poles.of(place); // the poles add up to -c, and real ones have the product 4
        return x > -2 ? -2 * x : -x - 4 / x;
      },
    },

    /** The same mass in steps by three rules, each over the exact motion. */
    rules: {
      width: 220, height: 226,
      plot: scale([0, 10], [-0.8, 0.8], [34, 210], [30, 150]),
      show(delta) {
        const rules = ["exact", "Euler", "bilinear", "mixed"], count = Math.trunc(10 / delta), { at } = this.plot;
        const spring = { ...SPRING, A: [[0, 1], [-4, -0.4]] };
        const steps = ["zoh", "euler", "bilinear", "mixed"].map((name) => discretize(spring, delta, name));
        const radii = steps.map(({ A }) => Math.max(...eigenvalues(A).map(norm)).toFixed(3));
        const paths = steps.map((step) => lags(step, count).map(([q], i) => at([delta * (i + 1), q / delta])));
        const pictures = ["lab-lag", "lab-head", "lab-state"].map((color, i) => {
          const path = paths[i + 1], stroke = { style: `stroke: var(--${color}); fill: none; stroke-width: 2px` };
          const exact = { style: "stroke: var(--ssm-faint); fill: none; stroke-width: 5px" };
          const marks = delta > 0.15 ? path.map((place) => circle(place, 3, `${color}-fill`)) : [];
          return [
            ...frameOf(this.plot, `${rules[i + 1]}, spectral radius ${radii[i + 1]}`, [0, 5, 10], [-0.5, 0, 0.5]),
            inside(this.plot, curve(paths[0], "", exact), curve(path, "", stroke), marks),
            label(210, 184, i ? "seconds" : "", "end"),
          ];
        });
        pictures[0].push(line(34, 192, at([10 * delta, 0])[0], 192, "lab-head"), label(34, 211, "ten steps", "start"));
        const rho = rules.map((rule, i) => `${rule} ${radii[i]}`).join(", ");
        const words = `Kicked mass at step ${pyNumber(delta)} s; spectral radius of the step: ${rho}.`;
        return { pictures, words };
      },
      handle: (delta) => [VIEWS.rules.plot.at([10 * delta, 0])[0], 192],
      pull: (place) => VIEWS.rules.plot.of(place)[0] / 10,
    },

    /** The plane of lags again, and what one head misses over three lengths. */
    gap: {
      height: 320,
      show(angle, written) {
        const lengths = [5, 20, 200], missed = lengths.map((n) => missedByOne(angle, n));
        const all = along(0, Math.PI, 181), plot = scale([0, Math.PI], [0, 0.55]);
        this.curves ||= lengths.map((n) => all.map((x) => [x, missedByOne(x, n)]));
        const places = [[90, 15], [69, 14], [69, -8]]; // of the names of the curves
        const right = [
          ...frameOf(plot, "share of the energy missed", HALF_TURN, [0, 0.25, 0.5], "angle θ"),
          ...this.curves.flatMap((points, i) => {
            const [x, y] = plot.at(points[places[i][0]]), look = { opacity: [0.5, 1, 0.75][i] };
            return [
              curve(points.map(plot.at), i === 2 ? "lab-head" : "lab-head", look),
              circle(plot.at([angle, missed[i]]), 5, "lab-head-fill", look),
              label(x, y + places[i][1], `n = ${lengths[i]}`),
            ];
          }),
        ];
        const shown = missed.map((share) => share.toFixed(3));
        const title = label(8, 14, `misses ${shown[1]}`, "start");
        const left = [...planePicture(rotating(angle, 20, 1)).nodes, title];
        const words = `Angle ${written}: one head misses ${shown.join(", ")} of the energy over 5, 20 and 200 tokens.`;
        return { pictures: [left, right], words };
      },
      ...BY_SECOND_DOT,
    },

    /** Where the derivative of a head sends the unit circle, for value maps of rank two and one. */
    lanes: {
      height: 290,
      along: (t) => 1 - t / (1 + Math.exp(-t)),
      show(t) {
        const reach = this.along(t), weight = 1 / (1 + Math.exp(t));
        const at = ([x, y]) => [WIDTH / 2 + 140 * x, 160 - 125 * y];
        const round = along(0, 2 * Math.PI, 121);
        const pictures = [0.7, 0].map((lane) => {
          const ring = (a) => round.map((angle) => at([a * Math.cos(angle), lane * Math.sin(angle)]));
          const dye = (what, name) => ({ style: `${what}: var(--ssm-${name})` }), size = Math.max(Math.abs(reach), lane).toFixed(2);
          return [
            label(WIDTH / 2, 16, `σ₂ = ${lane}: gradient ${size} × weight`),
            curve(ring(1), "lab-dashed"), curve(ring(reach), "lab-head"),
            curve([at([0, 0]), at([reach, 0])], "lab-arc", dye("stroke", "purple")),
            circle(at([reach, 0]), 6, "lab-state-fill", dye("fill", "purple")),
            label(clamp(at([reach, 0])[0], 34, WIDTH - 34), 188, "along g"),
            curve([at([0, 0]), at([0, lane])], "lab-curve", dye("stroke", "brown")),
            circle(at([0, lane]), 6, "lab-lag-fill", dye("fill", "brown")),
            label(WIDTH / 2, at([0, lane || 0.25])[1] - 12, lane ? "across g: kept" : "V sends nothing across g"),
          ];
        });
        const [value, most] = [reach.toFixed(2), Math.max(Math.abs(reach), 0.7).toFixed(2)];
        const words = `Logit ${general(t, 6)}, weight ${weight.toFixed(3)}: along g the bracket is ${value}; across, `
          + `the lane stays 0.7. Norm over weight ${most} with two lanes, ${Math.abs(reach).toFixed(2)} with one.`;
        return { pictures, words };
      },
      handle: (t) => [WIDTH / 2 + 140 * VIEWS.lanes.along(t), 160],
      pull: ([x]) => inverted(VIEWS.lanes.along, (x - WIDTH / 2) / 140, 0, 3),
    },

    /** The gradient of a sum of a head and a state space model; given are G and V of the head and A, B, C. */
    mix: {
      height: 312, digits: 4,
      distances: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128],
      plot: scale([0, 166], [-7, 1]),
      /** For every distance what the head's derivative, its row of W and the system contribute. */
      parts({ G, V, A, B, C }) {
        if (this.known) return this.known;
        const { sigma: [size], V: [v] } = svd(transpose(G)), u = multiply([v], G)[0].map((value) => value / size);
        const M = lags({ A, B, C }, 129);
        this.known = this.distances.map((far) => {
          const long = Math.sqrt(2 * Math.log(far + 2)), x = zeros(far + 1, u.length); // the tokens of the proof
          x[0] = u.map((value) => long * Math.sqrt(2 / size) * value);
          x[far] = v.map((value) => (long * value) / Math.sqrt(2 * size));
          const alpha = softmaxWeights(products(multiply(x, G), x)), head = softmaxGradient(x, alpha, G, V)[0];
          return { head, through: scaled(V, alpha[far][0]), none: scaled(V, 0), lag: reshape(M[far], V[0].length) };
        });
        return this.known;
      },
      /** Norms of the hybrid's derivative, of its floor and of the system alone, for every distance. */
      mixed(weight, given) {
        return this.parts(given).map((one) => ["head", "through", "none"].map((kind) => {
          const X = one.lag.map((row, a) => row.map((value, b) => weight * value + (1 - weight) * one[kind][a][b]));
          return svd(X).sigma[kind === "through" ? 1 : 0];
        }));
      },
      end: (weight, given) => Math.log10(VIEWS.mix.mixed(weight, given).pop()[0]),
      show(weight, written, given) {
        const values = this.mixed(weight, given), last = values[values.length - 1], { at } = this.plot;
        const looks = ["lab-head", "lab-dashed", "lab-curve lab-points"], names = ["hybrid", "floor", "SSM alone"];
        const curves = looks.map((look, kind) => values.map((row, i) => [this.distances[i], row[kind]])
          .filter(([, value]) => value > 1e-7).map(([x, value]) => at([x, Math.log10(value)])));
        const ends = curves.flatMap((points, kind) => {
          const end = points[points.length - 1];
          return end ? [[end[0] + 12, end[1] + [-2, 10, 4][kind], names[kind], "start"]] : [];
        });
        const [hybrid, floor, alone] = last.map((value) => general(value, 2));
        const title = `SSM weight ${written}: ${short(last[0])} is left at distance 128`;
        const powers = [["1", 0], ["10⁻²", -2], ["10⁻⁴", -4], ["10⁻⁶", -6]];
        const picture = [
          ...frameOf(this.plot, title, [0, 32, 64, 96, 128], powers, "distance in tokens"),
          ...curves.map((points, kind) => (points.length ? curve(points, looks[kind], kind ? {} : { style: "stroke: var(--ssm-purple)" }) : "")), ...apart(ends),
        ];
        const words = `Gradients at distance 128 for SSM weight ${general(weight, 6)}: hybrid ${hybrid}, `
          + `floor ${floor}, weighted SSM alone ${alone}.`;
        return { pictures: [picture], words };
      },
      handle: (weight, given) => VIEWS.mix.plot.at([128, VIEWS.mix.end(weight, given)]),
      pull(place, given) {
        return inverted((weight) => this.end(weight, given), this.plot.of(place)[1], 0, 1);
      },
    },

    /** A clock whose third of a turn has a wrong angle; given are, by token, how many sequences made c thirds. */
    dial: {
      height: 312, digits: 2,
      show(degrees, written, given) {
        const runs = sum(given[0]), plot = scale([0, 66], [0, 1.08]), thirds = (turns) => ((turns % 3) + 3) % 3;
        // Half way between two positions rounding errors decide; the odd one is what they chose in Python.
        const nearest = (x) => (x % 1 === 0.5 ? 2 * Math.floor(x / 2) + 1 : Math.round(x));
        const same = (c) => thirds(nearest((c * degrees) / 120)) === thirds(c);
        const right = given.map((counts) => sum(counts.map((count, c) => (same(c) ? count : 0))) / runs);
        const first = right.findIndex((share) => share < 1), off = rounded(10 * (degrees - 120), 1);
        const hand = (angle, size = 1) => onDisc([size * Math.cos(angle / RAD), size * Math.sin(angle / RAD)]);
        const left = [
          label(WIDTH / 2, 16, off ? `after ten turns: off by ${Math.abs(off)}°` : "after ten turns: right"),
          circle(CENTER, RADIUS, "lab-axis"),
          ...[60, 180, 300].map((angle) => curve([CENTER, hand(angle)], "lab-grid-line")),
          ...[0, 120, 240].map((angle, i) => label(...hand(angle, 0.8).map((v, c) => v + 4 * c), String(i))),
          curve([CENTER, hand(120)], "lab-dotted"), curve([CENTER, hand(120 + off)], "lab-arc"),
          circle(hand(120 + off), 6, "lab-state-fill"),
        ];
        const lasts = first < 0 ? "all 200 right at every token" : `all 200 right up to token ${first}`;
        const picture = [
          ...frameOf(plot, `${written}°: ${lasts}`, [1, 16, 32, 48, 64], [0, 0.5, 1], "tokens so far"),
          curve([plot.at([0, 1 / 3]), plot.at([66, 1 / 3])], "lab-dotted"),
          label(...plot.at([64, 0.36]), "chance", "end"),
          curve(right.map((share, i) => plot.at([i + 1, share])), "lab-head"),
        ];
        const after = `${right[11].toFixed(2)} of the time after 12 tokens, ${right[63].toFixed(2)} after 64`;
        return { pictures: [left, picture], words: `${general(degrees, 6)} degrees a third: right ${after}.` };
      },
      handle: (degrees) => onDisc(placeOf({ radius: 1, angle: (120 + 10 * (degrees - 120)) / RAD })),
      pull([x, y]) {
        const angle = Math.atan2(CENTER[1] - y, x - CENTER[0]) * RAD;
        return 120 + ((angle < -60 ? angle + 360 : angle) - 120) / 10;
      },
    },

    /** The numbers that one of many devices receives, against the tokens on each. */
    received: {
      height: 312, digits: 0,
      plot: scale([0, 14], [4, 11.2]),
      show(N) {
        const many = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 1 }), { at } = this.plot;
        const others = 1023, one = 3 * 1024 * N * others, rounds = 3 * 1024 * N * 10, equal = 1.5 * N;
        const asked = (tokens) => 2 * 1024 * tokens * others, high = (count, x = 0) => at([x, Math.log10(count)]);
        const flat = (count) => [high(count), high(count, 14)], dashed = { style: "stroke-dasharray: 6 4" };
        const tokens = [["1", 0], ["16", 4], ["256", 8], ["4,096", 12]];
        const numbers = [["10⁴", 4], ["10⁶", 6], ["10⁸", 8], ["10¹⁰", 10]];
        const title = `attention receives more from ${many(equal)} tokens on`;
        const picture = [
          ...frameOf(this.plot, title, tokens, numbers, "tokens on a device", "numbers received"),
          curve([high(asked(1)), high(asked(2 ** 14), 14)], "lab-head"),
          curve(flat(one), "lab-arc"), curve(flat(rounds), "lab-arc", dashed),
          label(...high(asked(2 ** 12.6), 10.5), "attention", "end"),
          label(WIDTH - 12, flat(one)[0][1] + 16, "scan, one exchange", "end"),
          label(WIDTH - 12, flat(rounds)[0][1] + 16, "scan, 10 rounds", "end"),
          circle(at([Math.log2(equal), Math.log10(one)]), 6, "lab-token-fill"),
        ];
        const words = `N = ${N}: equal at ${many(equal)} tokens per device. At 1,024 tokens, attention: `
          + `${many(asked(1024))}; scan, one exchange: ${many(one)}; scan, 10 rounds: ${many(rounds)}.`;
        return { pictures: [picture], words };
      },
      handle: (N) => VIEWS.received.plot.at([Math.log2(1.5 * N), Math.log10(3 * 1024 * 1023 * N)]),
      pull: (place) => 2 ** VIEWS.received.plot.of(place)[0] / 1.5,
    },

    /** The heads of one system by what their weights may read; given are counts and proofs by name. */
    classes: {
      height: 366,
      show(chosen, name, { counts, proof }) {
        const [left, top, row] = [12, 30, 58], x = (count) => left + 4.2 * count, foot = top + 5 * row;
        const rows = Object.entries(counts).flatMap(([other, pair], i) => {
          const y = top + i * row, here = i === chosen, bars = pair.flatMap((count, narrow) => {
            const look = { "fill-opacity": (here ? 1 : 0.4) * (narrow ? 0.5 : 1) }, down = y + 20 + 16 * narrow;
            return count === null ? [] : [
              bar(left, down, x(count) - left, 15, here ? "lab-head-fill" : "lab-token-fill", look),
              label(x(count) + 5, down + 12, String(count), "start"),
            ];
          });
          return [
            label(left + 3, y + 14, other, "start", here ? { "font-weight": 700 } : {}),
            ...(bars.length ? bars : [label(left + 3, y + 35, "no number is enough", "start", { opacity: here ? 1 : 0.7 })]),
            bar(0, y, WIDTH, row, "lab-touch", { "data-stop": i }),
          ];
        });
        const picture = [
          label(left, 16, proof[name], "start"), line(left, top, left, foot, "lab-axis"),
          line(left, foot, x(75), foot, "lab-axis"), label(WIDTH - 12, foot + 34, "heads (lower bar: of width one)", "end"),
          ...[0, 20, 40, 60].map((count) => label(x(count), foot + 17, String(count))), ...rows,
        ];
        const [wide, narrow] = counts[name];
        const found = wide === null ? "no number of heads" : `${wide} heads, or ${narrow} of width one`;
        return { pictures: [picture], words: `Weights of class (${name}): ${found}. Proof: ${proof[name]}.` };
      },
    },

    /** The lags of a rotation, the cone of its softmax heads, and why there are two of them or three. */
    cone: {
      height: 326, whole: true,
      plane: scale([-1.6, 1.6], [-1.6, 1.6], [58, 314], [34, 290]),
      bars: scale([-0.7, 10.7], [0, 1.05], PLOT.x, [34, 290]),
      show(n, written, angle) {
        const found = rotating(angle, n, 1), heads = found.softmax.low, two = heads === 2, { at } = this.plane;
        const points = found.blocks.map(([a, b, c, d]) => [(a + d) / 2, (c - b) / 2]);
        const arc = angle * (n - 1), half = (Math.PI + arc) / 4, U = toward(arc / 2);
        const V = (two ? [-half, half] : range(3).map((h) => (h * 2 * Math.PI) / 3)).map((turn) => toward(arc / 2 + turn));
        const fan = two ? [[0, 0], ...along(-half, half, 9).map((turn) => scaled([toward(arc / 2 + turn)], 4)[0])]
          : [[-2, -2], [2, -2], [2, 2], [-2, 2]];
        const left = [
          ...frameOf(this.plane, "", [-1, 0, 1], [-1, 0, 1], "part along I"), label(58, 24, "part along J"),
          inside(this.plane, curve(fan.map(at), "lab-head-fill", { "fill-opacity": 0.15 })),
          ...V.flatMap((v, h) => arrow(at([0, 0]), at(scaled([v], 1.25)[0]), "lab-head")),
          ...V.map((v, h) => label(at([1.45 * v[0], 0])[0], at([0, 1.45 * v[1]])[1] + 4, `V${lowered(h + 1)}`)),
          ...points.map((point) => circle(at(point), 4.5, "lab-lag-fill")),
        ];
        const values = two ? points.map((point) => dot(U, point)) : evenWeights(points), { at: high } = this.bars;
        const right = [
          ...frameOf(this.bars, `${two ? "all positive" : "Σ λ M = 0"}: ${heads} heads`, [0, 2, 4, 6, 8, 10], [0, 0.5, 1], "lag τ"),
          label(PLOT.x[1], 48, two ? "⟨U, M⟩" : "weight λ", "end"),
          ...values.map((value, lag) => column(high, lag, value, "lab-lag-fill")),
        ];
        const proof = two ? `a half-plane holds all lags, margin ${Math.min(...values).toFixed(3)}`
          : "0 is a positive combination of the lags";
        return { pictures: [left, right], words: `Rotation by ${angle}, n = ${n}: ${proof}; ${heads} heads and their cone.` };
      },
    },

    /** The lags of a system beside those of its best heads, and one output; given are A, B, C and the tokens x. */
    follow: {
      height: 326, whole: true,
      show(H, written, { x, ...system }) {
        const n = x.length, { M, best, floor, k } = bestOf(system, n, H), top = highest(M);
        const outputs = [M, best].map((blocks) => range(n).map((i) => sum(range(i + 1).map((j) => dot(blocks[i - j].slice(0, x[0].length), x[j])))));
        const missing = general(H < k ? floor[H] : 0, 3), [high, low] = [Math.max(...outputs[0]), Math.min(...outputs[0])];
        const plot = scale([0, n - 1], [1.25 * low - 0.25 * high, 1.25 * high - 0.25 * low], PLOT.x, [34, 290]);
        const left = [[M, "target", 32], [best, `H = ${H}`, 192]].flatMap(([blocks, title, at]) => [
          label(at + 68, 16, title), ...heatMap(blocks.flat(), M[0].length, [at, 34, 136, 256], top),
          label(at + 68, 307, "entry of M"),
        ]);
        left.push(...range(n / 2).map((i) => label(27, 34 + (256 / n) * (2 * i + 0.5) + 4, String(2 * i), "end")), label(27, 24, "lag τ"));
        const ticks = range(21).map((i) => 2 * i - 20).filter((y) => y > plot.least && y < plot.of([0, 34])[1]);
        const right = [
          ...frameOf(plot, `misses ${missing} of the energy`, range(n / 2).map((i) => 2 * i), ticks, "position i"),
          curve(outputs[0].map((y, i) => plot.at([i, y])), "", { style: "stroke: var(--ssm-gray); stroke-width: 4px; fill: none" }),
          curve(outputs[1].map((y, i) => plot.at([i, y])), "lab-head"),
          label(54, 284, "target", "start", { style: "fill: var(--ssm-gray)" }),
          label(108, 284, "heads", "start", { style: "fill: var(--ssm-head)" }),
        ];
        const heads = H > 1 ? `the best ${H} heads` : H ? "the best head" : "no heads";
        const words = `Lags of a system with k = ${k} beside those of ${heads}, and one output of both: ${missing} of the energy is missing.`;
        return { pictures: [left, right], words };
      },
    },

    /** The sizes of all blocks of W, and of what the best heads leave of it; given are A, B, C and the length. */
    leftover: {
      height: 332, whole: true,
      show(H, written, { n, ...system }) {
        const { M, best, floor } = bestOf(system, n, H), missed = floor[H].toFixed(3), sizes = M.map(norm);
        const rest = M.map((block, tau) => norm(block.map((value, c) => value - best[tau][c])));
        const titled = [[sizes, "target W"], [rest, `missed with H = ${H}: ${missed}`]];
        const pictures = titled.map(([lag, title]) => [
          label(WIDTH / 2, 16, title), ...sizesOfBlocks(n, (tau) => lag[tau], Math.max(...sizes)),
        ]);
        return { pictures, words: `The best ${H === 1 ? "1 head misses" : `${H} heads miss`} ${missed} of the energy.` };
      },
    },

    /** Lags of alternating sign, and the best sum of H fading exponentials; given are the decay and the length. */
    signs: {
      height: 326, whole: true,
      show(H, written, [a, n]) {
        const m = range(n).map((tau) => (-a) ** tau), plot = scale([-0.4, n - 0.6], [-0.65, 1.1], PLOT.x, [34, 290]);
        // In Python's fit the slopes grow without end. H such exponentials span the sequences that end before lag H.
        const best = m.map((value, tau) => (tau < H ? value : 0)), energy = (y) => sum(y.map((value, tau) => (n - tau) * value ** 2));
        const share = `${(100 * energy(m.map((value, tau) => value - best[tau])) / energy(m)).toFixed(2)}%`;
        const seen = best.filter((value) => Math.abs(value) > 1e-6), crossings = seen.filter((value, i) => i && value * seen[i - 1] < 0).length;
        const dye = { style: "stroke: var(--ssm-purple); stroke-width: 1.5px; fill: none" }, places = best.map((value, tau) => plot.at([tau, value]));
        const picture = [
          ...frameOf(plot, `changes of sign: ${crossings} of ${n - 1}; missed: ${share}`, range(n / 2).map((i) => 2 * i), [-0.5, 0, 0.5, 1],
            "distance τ"),
          label(40, 26, "lag", "end"),
          line(...plot.at([-0.4, 0]), ...plot.at([n - 0.6, 0]), "lab-axis"), curve(places, "", dye),
          ...places.map((place) => circle(place, 8, "", dye)), ...m.map((value, tau) => circle(plot.at([tau, value]), 4, "lab-lag-fill")),
        ];
        const words = `${H} head${H > 1 ? "s" : ""}: the curve changes its sign ${crossings} ${crossings === 1 ? "time" : "times"} and misses `
          + `${share} of the energy.`;
        return { pictures: [picture], words };
      },
    },

    /** A doubling scan: the inputs that each entry has seen after some passes. */
    rungs: {
      height: 326, whole: true,
      show(passes, written, T) {
        const reach = 2 ** passes, pairs = range(passes).map((s) => T - 2 ** s), plot = scale([-0.8, T], [T - 0.4, -0.6], PLOT.x, [34, 290]);
        const seen = range(T).flatMap((t) => {
          const first = Math.max(0, t - reach + 1), [from, y] = plot.at([first - 0.3, t]), [to] = plot.at([t + 0.3, t]);
          const cut = plot.at([t - reach / 2 + 0.5, t])[0], tint = { style: `fill: var(--ssm-${first ? "sand" : "state"})` };
          return [bar(from, y - 3.5, to - from, 7, "", tint), passes && t >= reach / 2 ? line(cut, y - 6.5, cut, y + 6.5, "lab-curve") : ""];
        });
        const thirds = range(Math.ceil(T / 3)).map((i) => 3 * i), finished = Math.min(T, reach);
        const title = `after ${passes} passes: ${finished} of ${T} entries finished`;
        const picture = [...frameOf(plot, title, thirds, thirds, "inputs composed so far"), label(8, 24, "entry t", "start"), ...seen];
        const words = `After ${passes} passes ${reach} of ${T} entries are finished; pairs composed ${sum(pairs)}, in the last pass `
          + `${pairs[passes - 1] || 0}.`;
        return { pictures: [picture], words };
      },
    },

    /** Layers that double the lags that have arrived; given are the decays of the system. */
    doubling: {
      height: 326, whole: true,
      show(layers, written, decays) {
        const n = 16, one = eye(decays.length), M = lags({ A: one.map((row, i) => scaled([row], decays[i])[0]), B: one, C: one }, n);
        const ranks = range(5).map((l) => rankOf(M.slice(0, 2 ** l)).rank), goal = ranks[4], arrived = 2 ** layers;
        const plot = scale([-0.7, 4.7], [0, 1.25 * goal], PLOT.x, [34, 290]);
        const left = sizesOfBlocks(n, (tau) => (tau < arrived ? norm(M[tau]) : 0), norm(M[0]), ["input token j", "output token i"]);
        const right = [
          ...frameOf(plot, "", range(5), range(6).map((i) => 2 * i), "layers"), label(PLOT.x[0], 24, "interaction rank", "start"),
          ...ranks.slice(0, layers + 1).map((rank, l) =>
            column(plot.at, l, rank, "lab-head-fill", { "fill-opacity": l < layers ? 0.4 : 1 })),
          line(...plot.at([-0.7, goal]), ...plot.at([4.7, goal]), "lab-arc", { "stroke-dasharray": "6 4" }),
          label(PLOT.x[0] + 6, plot.at([0, goal])[1] - 7, `the system: ${goal}`, "start"),
        ];
        const words = `Layers: ${layers}. Arrived: ${arrived} of ${n} lags. Interaction rank ${ranks[layers]} of ${goal}.`;
        return { pictures: [left, right], words };
      },
    },
  };

  const SPRING = { B: [[0], [1]], C: [[1, 0]] }; // a mass of 1 kg, of which the position is read
  const RAD = 180 / Math.PI;

  const hand = ([x, y]) => [80 + 58 * x, 102 - 58 * y];

  /** What 2 x 2 blocks make of the token (0, 1): hands of a clock, paler for later outputs. */
  function clock(blocks, kind, title) {
    const tips = blocks.map((block) => [block[1], block[3]]), [first] = tips, length = norm(first) || 1;
    const reach = first.map((value) => (1.2 * value) / length);
    const nodes = [label(80, 16, title), circle(hand([0, 0]), 58, "lab-axis")];
    if (kind === "head") nodes.push(curve([hand(reach.map((value) => -value)), hand(reach)], "lab-dotted"));
    [...tips].reverse().forEach((tip, i) => {
      const shade = { opacity: px(0.25 + (0.75 * (i + 1)) / tips.length), fill: `var(--ssm-${kind})` };
      const stroke = { ...shade, fill: "none", stroke: `var(--ssm-${kind})`, "stroke-width": 2 };
      nodes.push(curve([hand([0, 0]), hand(tip)], "", stroke), circle(hand(tip), 3.5, "", shade));
    });
    if (kind === "head") return nodes;
    const numbers = tips.slice(0, 3).map((tip) => tip.map((value) => 1.22 * value));
    const clear = (tip, lag) => numbers.slice(0, lag).every(([x, y]) => Math.hypot(x - tip[0], y - tip[1]) > 0.3);
    return [...nodes, ...numbers.map((tip, lag) => (clear(tip, lag)
      ? label(hand(tip)[0], hand(tip)[1] + 4, String(lag), "middle", { "pointer-events": "none" }) : ""))];
  }

  /** The lower triangular matrix of 2 x 2 blocks by lag, each of them framed. */
  function mosaic(blocks, title) {
    const n = blocks.length, side = 136, [left, top] = [12, 30];
    const entry = (i, j) => {
      const lag = Math.floor(i / 2) - Math.floor(j / 2);
      return lag < 0 ? 0 : blocks[lag][2 * (i % 2) + (j % 2)];
    };
    const flat = range(4 * n * n).map((c) => entry(Math.floor(c / (2 * n)), c % (2 * n)));
    const cuts = range(n - 1).map((cut) => ((cut + 1) * side) / n);
    const rules = cuts.flatMap((cut) => [
      line(left + cut, top, left + cut, top + side, "lab-axis"),
      line(left, top + cut, left + side, top + cut, "lab-axis"),
    ]);
    return [label(80, 16, title), ...heatMap(flat, 2 * n, [left, top, side, side], 1), ...rules];
  }

  /** The name of a simple part of π, or nothing. */
  function partOfPi(value) {
    const part = [1, 2, 3, 4, 6].find((each) => Math.abs(value * each - Math.PI) < 1e-9);
    return part && (part > 1 ? `π/${part}` : "π");
  }

  const toward = (angle) => [Math.cos(angle), Math.sin(angle)];

  /** A line with a head at its end. */
  function arrow(from, to, kind) {
    const angle = Math.atan2(to[1] - from[1], to[0] - from[0]);
    const barb = (turn) => to.map((value, c) => value - 9 * toward(angle + turn)[c]);
    return [curve([from, to], kind), curve([barb(0.45), to, barb(-0.45)], kind)];
  }

  /** The bar of a number in a plot, around x. */
  function column(at, x, value, kind, more = {}) {
    const [left, top] = at([x - 0.4, value]), [right, foot] = at([x + 0.4, 0]);
    return bar(left, top, right - left, foot - top, kind, more);
  }

  /**
   * The weights of points around the origin with the sum 1 and the weighted sum 0 whose least is largest: all are
   * equal, but for two points that get more.
   */
  function evenWeights(points) {
    const totals = transpose(points.map((point) => [...point, 1])).map(sum);
    let best = { even: -1 };
    for (const a of points.keys()) {
      for (const b of range(a)) {
        const columns = [[...points[a], 1], [...points[b], 1], totals];
        const found = solve(transpose(columns), [[0], [0], [1]]), [atA, atB, even] = (found || [[-1], [-1], [-1]]).flat();
        if (Math.min(atA, atB) >= 0 && even > best.even) best = { a, b, atA, atB, even };
      }
    }
    return points.map((_, t) => best.even + (t === best.a ? best.atA : 0) + (t === best.b ? best.atB : 0));
  }

  /** The lags of a system, those of its best H heads, what these miss, and k. */
  function bestOf(system, n, H) {
    const M = lags(system, n), { V, floor } = spectrum(lagRows(M)), heads = bestHeads(M, V, H);
    const best = M.map((block, tau) => block.map((_, c) => sum(heads.V.map((map, h) => heads.coefficients[h][tau] * map[c]))));
    return { M, best, floor, k: rankOf(lagRows(M)).rank };
  }

  /** A causal matrix of block sizes by lag. */
  function sizesOfBlocks(n, size, top, [across, down] = ["input →", "← output"]) {
    const { left, side } = SQUARE, turned = { transform: `rotate(-90 12 ${30 + side / 2 - 10})` };
    return [
      ...heatMap(causal(n, (i, j) => size(i - j)).flat(), n, [left, 30, side - 24, side - 24], top),
      label(left + side / 2 - 12, side + 22, across), label(12, 30 + side / 2 - 10, down, "middle", turned),
    ];
  }

  /** Make a drawn slider continuous, and let a menu choose among pictures that are drawn here. */
  function enliven(figure, view) {
    const stage = figure.querySelector(".ssm-slider-frames"), frames = Array.from(stage.children);
    const given = JSON.parse(figure.dataset.given || "null");
    const notches = view.whole || figure.querySelector("select") ? frames.length - 1 : NOTCHES;
    const stops = frames.map(({ dataset: { number, value } }, i) => ({
      notch: (notches * i) / (frames.length - 1), value: Number(number), written: partOfPi(Number(number)) || value,
    }));
    const drawn = figure.querySelector(".ssm-slider-control :is(input, select)"), input = drawn.cloneNode(true);
    const output = figure.querySelector("output"); // a menu has none
    const heard = html("p", { className: "lab-heard", role: "status" });
    const caption = figure.querySelector("figcaption") || figure.appendChild(html("figcaption"));
    const { width = WIDTH, height } = view;
    const frame = { viewBox: `0 0 ${width} ${height}`, class: "lab-svg", role: "img" };
    const first = Number((drawn.querySelector("[selected]") || drawn).getAttribute("value"));
    const { pictures } = view.show(stops[first].value, stops[first].written, given);
    const images = Array.from(frames[first].querySelectorAll("img"));
    const share = sum(images.map((image) => parseFloat(image.style.width) || 0)) / pictures.length; // fitted in a deck
    const style = share
      ? `max-width: none; flex: none; width: ${share}px; height: ${images[0].style.height}`
      : `--lab-width: ${width}px`;
    const svgs = pictures.map(() => draw("svg", { ...frame, style })), gripped = svgs[view.grip || 0];
    const speak = afterRest(() => { heard.textContent = caption.textContent; }, SPOKEN);
    let held = false, now = null;

    /** From a notch to its value or back, on the broken line through the stops. */
    function across(from, to, x) {
      const i = clamp(stops.filter((stop) => stop[from] <= x).length, 1, stops.length - 1);
      const [a, b] = stops.slice(i - 1, i + 1);
      return a[to] + ((b[to] - a[to]) * (clamp(x, a[from], b[from]) - a[from])) / (b[from] - a[from]);
    }

    /** The stop at a notch, if there is one, or a rounded value. */
    function kept(notch) {
      const value = rounded(across("notch", "value", notch), view.digits ?? 3);
      const same = stops.find((stop) => stop.value === value) || { value, written: String(value) };
      return stops.find((stop) => Math.abs(stop.notch - notch) <= 0.5) || { ...same, notch };
    }

    function show(state) {
      const { notch, value, written } = (now = state);
      const { pictures, words } = view.show(value, written, given);
      svgs.forEach((svg, i) => {
        svg.replaceChildren(...pictures[i]);
        svg.setAttribute("aria-label", i ? `Panel ${i + 1} of the same picture.` : words);
      });
      if (view.handle) {
        const place = view.handle(value, given), title = draw("title", {}, "Drag to change the value");
        gripped.append(circle(place, 10, "lab-grip"), draw("g", {}, title, circle(place, TOUCH, "lab-touch lab-pull")));
      }
      input.value = notch;
      if (output) {
        input.setAttribute("aria-valuetext", written);
        output.value = written;
      }
      caption.textContent = words;
      figure.dataset.at = written;
    }

    Object.assign(input, { min: 0, max: notches, step: 1, disabled: false });
    input.addEventListener("input", () => {
      show(kept(Number(input.value)));
      speak();
    });
    input.addEventListener("keydown", (event) => { // an arrow goes to the next value, however many notches that takes
      const way = sum(ARROWS[event.key] || []), from = now.value;
      if (!way || !output) return;
      event.preventDefault();
      do show(kept(clamp(now.notch + way, 0, notches)));
      while (now.value === from && now.notch > 0 && now.notch < notches);
      speak();
    });
    for (const svg of svgs) {
      svg.addEventListener("click", (event) => {
        const at = event.target.closest("[data-stop]");
        if (!at) return;
        show(stops[at.dataset.stop]);
        speak();
      });
    }
    if (view.handle) {
      const place = (event) => {
        const { x, y } = inDrawing(gripped, event);
        return [x, y];
      };
      gripped.addEventListener("pointerdown", (event) => {
        held = event.target.matches(".lab-pull");
        if (!held) return;
        event.preventDefault();
        gripped.setPointerCapture(event.pointerId);
      });
      gripped.addEventListener("pointermove", (event) => {
        if (held) show(kept(across("value", "notch", view.pull(place(event), given))));
      });
      for (const name of ["pointerup", "pointercancel"]) {
        gripped.addEventListener(name, () => {
          if (held) speak();
          held = false;
        });
      }
    }
    show(stops[first]);
    caption.removeAttribute("aria-hidden");
    drawn.replaceWith(input); // with it goes what moved the frames
    stage.replaceWith(html("div", { className: "lab-live" }, svgs));
    figure.append(heard);
    figure.dataset.active = "true";
  }

  // 10. Start ------------------------------------------------------------------------------------------------

  /** Make every slider of the page continuous that names a view. */
  function enlivenAll() {
    for (const figure of document.querySelectorAll("figure.ssm-slider[data-lab]")) {
      if (VIEWS[figure.dataset.lab]) enliven(figure, VIEWS[figure.dataset.lab]);
    }
  }

  function start() {
    const root = document.querySelector('.bd-article [data-lab="laboratory"]');
    document.head.append(html("style", {}, STYLE));
    if (root) laboratory(root);
    if (!document.querySelector(".reveal")) enlivenAll(); // a deck first fits its pictures to the slides
  }

  root.Lab = {
    multiply, spectralNorm, matrixOf, lags, discretize, frequencyResponse, gain, lagRows, spectrum, bestHeads,
    headCount, softmaxCount, rowSumSpread, softmaxWeights, linearWeights, gatedWeights, ssdWeights, headBlocks,
    softmaxGradient, gatedGradient, gradientByDistance, EXAMPLES, read, write, compute, findings, python, GOALS,
    enliven: enlivenAll, render,
  };

  if (typeof document === "undefined") return;
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})(typeof window === "undefined" ? globalThis : window);
