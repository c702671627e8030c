// Linear algebra of the page's model: the eigenvectors of a symmetric matrix, and a linear system.
//
// The laboratory has a singular value decomposition and a solver of its own in lab.js, for matrices that are arrays of
// rows; here they are flat Float64Arrays. A worker gets the source of `make`, so that it also runs from a file.
(function (root) {
  "use strict";

  function make() {
    /**
     * All eigenvalues and eigenvectors of a symmetric k x k matrix A, by Jacobi's rotations: {values, vectors}, where
     * row c of vectors belongs to values[c], in no order. A is used up.
     *
     * Each rotation makes one entry beside the diagonal zero; the sum of their squares falls with each one, at the end
     * quadratically. Entries that are only rounding beside their diagonal are left. Rows are rotated, and columns are
     * the same numbers, because A stays symmetric.
     */
    function eigen(A, k) {
      const vectors = new Float64Array(k * k), close = 1e-14, mostSweeps = 40;
      let trace = 0;
      for (let i = 0; i < k; i++) {
        vectors[i * k + i] = 1;
        trace += A[i * k + i];
      }
      const nothing = 1e-18 * Math.abs(trace);
      for (let sweep = 0, moved = true; moved && sweep < mostSweeps; sweep++) {
        moved = false;
        for (let p = 0; p < k - 1; p++) {
          for (let q = p + 1; q < k; q++) {
            const P = p * k, Q = q * k, pq = A[P + q], pp = A[P + p], qq = A[Q + q];
            if (Math.abs(pq) <= nothing || Math.abs(pq) <= close * Math.sqrt(Math.abs(pp * qq))) continue;
            moved = true;
            // The tangent t of the angle solves t^2 + 2 zeta t = 1; the smaller root is the stable one.
            const zeta = (qq - pp) / (2 * pq);
            const t = (zeta < 0 ? -1 : 1) / (Math.abs(zeta) + Math.sqrt(1 + zeta * zeta));
            const c = 1 / Math.sqrt(1 + t * t), s = c * t;
            for (let i = 0; i < k; i++) {
              const a = A[P + i], b = A[Q + i], v = vectors[P + i], w = vectors[Q + i];
              A[i * k + p] = A[P + i] = c * a - s * b;
              A[i * k + q] = A[Q + i] = s * a + c * b;
              vectors[P + i] = c * v - s * w;
              vectors[Q + i] = s * v + c * w;
            }
            A[P + p] = pp - t * pq;
            A[Q + q] = qq + t * pq;
            A[P + q] = A[Q + p] = 0;
          }
        }
      }
      return { values: Float64Array.from({ length: k }, (_, i) => A[i * k + i]), vectors };
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

    return { eigen, solve };
  }

  root.Eigen = Object.assign(make(), { source: make.toString() });
})(globalThis);
