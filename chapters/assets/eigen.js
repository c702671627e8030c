// Linear algebra of the page's model: the last eigenvector of a symmetric matrix, and a linear system.
//
// The laboratory has a singular value decomposition and a solver of its own in lab.js, for matrices that are arrays of
// rows; here they are flat Float64Arrays. A worker gets the source of `make`, so that it also runs from a file.
(function (root) {
  "use strict";

  function make() {
    /**
     * A unit eigenvector of the smallest eigenvalue of a symmetric k x k matrix A with no negative ones. A is used up.
     *
     * By the textbook, and as lens.truncate has it: reflections make A tridiagonal, bisection finds the eigenvalue, and
     * inverse iteration the vector, which the reflections turn back.
     */
    function least(A, k) {
      const [main, side, p, v] = Array.from({ length: 4 }, () => new Float64Array(k));
      let trace = 0;
      for (let i = 0; i < k; i++) trace += A[i * k + i];
      v[k - 1] = 1;
      if (trace < 1e-280) return v; // all are zero
      for (let i = 0; i < k * k; i++) A[i] /= trace; // or squares of small numbers vanish
      for (let m = k - 1; m > 1; m--) { // I - u u^T; u stays in row m
        const u = A.subarray(m * k, m * k + m);
        let size = 0, half = 0;
        for (let j = 0; j < m; j++) size += u[j] * u[j];
        main[m] = A[m * k + m];
        if (!size) continue;
        size = u[m - 1] < 0 ? -Math.sqrt(size) : Math.sqrt(size);
        side[m] = -size;
        u[m - 1] += size;
        const scale = Math.sqrt(size * u[m - 1]);
        for (let j = 0; j < m; j++) u[j] /= scale;
        for (let i = 0; i < m; i++) {
          p[i] = 0;
          for (let j = 0; j < m; j++) p[i] += A[i * k + j] * u[j];
          half += u[i] * p[i] / 2;
        }
        for (let i = 0; i < m; i++) p[i] -= half * u[i];
        for (let i = 0; i < m; i++) for (let j = 0; j < m; j++) A[i * k + j] -= u[i] * p[j] + p[i] * u[j];
      }
      main[0] = A[0];
      [main[1], side[1]] = [A[k + 1], A[k]];
      let low = -1e-11, high = Math.min(...main); // by rounding an eigenvalue may be negative
      while (high - low > 1e-14) { // a pivot of T - shift is negative if an eigenvalue is below
        const shift = (low + high) / 2;
        let i = 0, pivot = main[0] - shift;
        while (pivot > 0 && ++i < k) pivot = main[i] - shift - side[i] * side[i] / pivot;
        if (pivot > 0) low = shift;
        else high = shift;
      }
      for (let i = 0; i < k; i++) { // the inverse pivots, just below
        p[i] = 1 / Math.max(1e-16, main[i] - low + 1e-15 - (i && side[i] * side[i] * p[i - 1]));
        v[i] = 1 + i % 3; // a start in general position
      }
      for (let round = 0; round < 3; round++) {
        let squares = 0;
        for (let i = 1; i < k; i++) v[i] -= side[i] * p[i - 1] * v[i - 1];
        for (let i = k - 1; i >= 0; i--) {
          v[i] *= p[i];
          if (i + 1 < k) v[i] -= p[i] * side[i + 1] * v[i + 1];
          squares += v[i] * v[i];
        }
        for (let i = 0; i < k; i++) v[i] /= Math.sqrt(squares);
      }
      for (let m = 2; m < k; m++) {
        let turn = 0;
        if (side[m]) for (let j = 0; j < m; j++) turn += A[m * k + j] * v[j];
        for (let j = 0; j < m; j++) v[j] -= turn * A[m * k + j];
      }
      return v;
    }

    /** Solve P x = q for a square P, given as rows, by elimination with pivots. */
    function solve(P, q) {
      const rows = P.map((row, i) => [...row, q[i]]), n = P.length;
      for (let j = 0; j < n; j++) {
        let best = j;
        for (let i = j + 1; i < n; i++) if (Math.abs(rows[i][j]) > Math.abs(rows[best][j])) best = i;
        [rows[j], rows[best]] = [rows[best], rows[j]];
        for (let i = 0; i < n; i++) {
          const factor = i === j ? 0 : rows[i][j] / rows[j][j];
          if (factor) for (let c = j; c <= n; c++) rows[i][c] -= factor * rows[j][c];
        }
      }
      return rows.map((row, i) => row[n] / row[i]);
    }

    return { least, solve };
  }

  root.Eigen = Object.assign(make(), { source: make.toString() });
})(globalThis);
