"""How many attention heads does it take to make a state space model? The whole argument in one file.

Read it from top to bottom. Everything is plain PyTorch and follows the formulas literally, so it is slow but
easy to check. One letter means one thing throughout:

    n     number of tokens                      x     input tokens, shape (n, d)
    d, p  width of an input and output token    y     output tokens, shape (n, p)
    N     number of state variables             W     interaction matrix, shape (n, n, p, d)
    H     number of heads                       alpha attention weights, shape (H, n, n)
                                                V     value maps, shape (H, p, d)
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

# 1. A state space model ------------------------------------------------------------------------------------
#
# A linear state space model keeps a vector h of N numbers. When a token arrives, A moves the state, B writes
# the token into it, and C reads the output from it. If we substitute the recurrence into itself, the state
# disappears and every output becomes a weighted sum of the tokens seen so far. The weights are matrices, and
# they depend only on how long ago a token arrived:
#
#     y_i = sum over j <= i of M_(i-j) x_j      with      M_tau = C A^tau B.


@dataclass
class System:
    """A linear state space model, h_t = A h_(t-1) + B x_t and y_t = C h_t + D x_t."""

    A: Tensor  # (N, N)
    B: Tensor  # (N, d)
    C: Tensor  # (p, N)
    D: Tensor | None = None  # (p, d), the skip from the input to the output

    def __call__(self, x: Tensor) -> Tensor:
        """Run the recurrence over the tokens x, one after the other."""
        h, y = x.new_zeros(len(self.A)), []
        for x_t in x:
            h = self.A @ h + self.B @ x_t
            y.append(self.C @ h if self.D is None else self.C @ h + self.D @ x_t)
        return torch.stack(y)

    def lags(self, n: int) -> Tensor:
        """Return the lag operators M_0 ... M_(n-1), shape (n, p, d); the skip D acts only at lag 0."""
        M, power = [], self.B
        for _ in range(n):
            M.append(self.C @ power)
            power = self.A @ power
        if self.D is not None:
            M[0] = M[0] + self.D
        return torch.stack(M)


# 2. The interaction matrix ---------------------------------------------------------------------------------
#
# Attention also computes y_i = sum_j W_ij x_j. A head has one number for each pair of tokens, the attention
# weight alpha_ij, and one matrix for all pairs, the value map V. H heads therefore give
# W_ij = sum_h alpha^h_ij V_h. The weights can change from pair to pair, but the value maps cannot. To compare
# attention with a system, we ask how many value maps it takes to build all blocks W_ij.
#
# We answer by rearranging. If we write every block as one row of p d numbers, then W becomes an n^2 x pd
# matrix, and a head becomes a matrix of rank one, because it is the column of its weights times the row of
# its value map. Hence the rank of the rearranged matrix is the smallest number of heads that equal W, and the
# singular value decomposition (SVD) finds the H heads that come closest to it.


@dataclass
class InteractionMatrix:
    """The blocks W_ij of y_i = sum_j W_ij x_j, stored as one tensor of shape (n, n, p, d)."""

    blocks: Tensor

    @classmethod
    def from_lags(cls, M: Tensor) -> "InteractionMatrix":
        """Put M_(i-j) into block (i, j); blocks above the diagonal are zero because the system is causal."""
        n = len(M)
        blocks = M.new_zeros(n, n, *M.shape[1:])
        for i in range(n):
            for j in range(i + 1):
                blocks[i, j] = M[i - j]
        return cls(blocks)

    @classmethod
    def from_heads(cls, alpha: Tensor, V: Tensor) -> "InteractionMatrix":
        """Add up heads, W_ij = sum_h alpha^h_ij V_h."""
        return cls(torch.einsum("hij,hpd->ijpd", alpha, V))

    def __matmul__(self, x: Tensor) -> Tensor:
        """Return y_i = sum_j W_ij x_j."""
        return torch.einsum("ijpd,jd->ip", self.blocks, x)

    def rearranged(self) -> Tensor:
        """Return the n^2 x pd matrix whose rows are the blocks."""
        return self.blocks.flatten(2).flatten(0, 1)

    def rank(self, rtol: float = 1e-10) -> int:
        """Return the interaction rank, which is the number of linearly independent blocks."""
        return rank(self.rearranged(), rtol)

    def floor(self) -> Tensor:
        """Return the smallest relative squared error that H heads can have, for H = 0, 1, 2, ..."""
        return tail_energy(self.rearranged())

    def best_heads(self, H: int) -> tuple[Tensor, Tensor]:
        """Return the weights and value maps of the H heads that are closest to W in the Frobenius norm."""
        V = leading_directions(self.rearranged(), H).unflatten(1, self.blocks.shape[2:])
        alpha = torch.einsum("ijpd,hpd->hij", self.blocks, V)  # the V_h are orthonormal, so we project
        return alpha, V


def rank(rows: Tensor, rtol: float = 1e-10) -> int:
    """Count the singular values above rtol times the largest; smaller ones are rounding errors."""
    sigma = torch.linalg.svdvals(rows)
    return int((sigma > rtol * sigma[0]).sum())


def leading_directions(rows: Tensor, H: int) -> Tensor:
    """Return the H right singular vectors of the largest singular values, one per row."""
    return torch.linalg.svd(rows, full_matrices=False).Vh[:H]


def tail_energy(rows: Tensor) -> Tensor:
    """Return what share of the squared norm remains without the H largest singular values, for all H."""
    energy = torch.linalg.svdvals(rows) ** 2
    tails = energy.flip(0).cumsum(0).flip(0)  # we sum from the smallest, so that no digits cancel
    return torch.cat([tails, tails.new_zeros(1)]) / tails[0]


# 3. How many heads is a system? ----------------------------------------------------------------------------
#
# All blocks of a system are lag operators, so its interaction rank k is the number of linearly independent
# M_tau, and it takes exactly k heads with input-independent weights to equal the system. We never need the
# n^2 blocks. Since M_tau fills n - tau of them, the n rows sqrt(n - tau) vec(M_tau) have the same singular
# values as all n^2 rows, and they give the same floor.
#
# The exact count needs more care. In floating point the rank of the lags can come out too small, because fast
# modes are soon lost in rounding errors. The transfer function C (z I - A)^(-1) B shows slow and fast modes
# alike. Each of its values is a linear combination of the lags, because the inverse is a polynomial in A, and
# enough values have the same span as all lags. For long sequences we therefore count independent values.


def lag_rows(M: Tensor) -> Tensor:
    """Return the rows sqrt(n - tau) vec(M_tau), which have the singular values of all n^2 blocks."""
    occurrences = torch.arange(len(M), 0, -1, dtype=M.dtype)  # n - tau
    return occurrences.sqrt()[:, None] * M.flatten(1)


def floor(system: System, n: int) -> Tensor:
    """Return the smallest relative squared error of H heads on n tokens, for H = 0, 1, 2, ..."""
    return tail_energy(lag_rows(system.lags(n)))


def heads_from_system(system: System, n: int, H: int) -> tuple[Tensor, Tensor]:
    """Return the H heads that are closest to a system; k of them equal it."""
    M = system.lags(n)
    V = leading_directions(lag_rows(M), H).unflatten(1, M.shape[1:])
    weight_at_lag = torch.einsum("tpd,hpd->th", M, V)
    alpha = InteractionMatrix.from_lags(weight_at_lag[:, :, None]).blocks  # alpha_ij depends on i - j only
    return alpha[..., 0].permute(2, 0, 1), V


def head_count(system: System, n: int, rtol: float = 1e-10) -> int:
    """Return k, the number of linearly independent lag operators among M_0 ... M_(n-1)."""
    if n <= len(system.A) + 1:
        return rank(system.lags(n).flatten(1), rtol)
    return rank(transfer_values(system), rtol)


def transfer_values(system: System) -> Tensor:
    """Return values of C (z I - A)^(-1) B, scaled to norm one, as rows that have the span of all lags."""
    A, B, C, D = system.A, system.B, system.C, system.D
    N, rho = len(A), float(torch.linalg.eigvals(A).abs().max()) or 1.0
    m = torch.arange(4 * N, dtype=A.dtype)
    # The points z lie on a spiral that fills the disk of the eigenvalues.
    z = torch.polar(1.2 * rho * torch.sqrt((m + 0.5) / len(m)), 2.4 * m)
    resolvent = torch.linalg.inv(z[:, None, None] * torch.eye(N, dtype=A.dtype) - A)
    later_B = B if D is None else A @ B  # with a skip, M_0 is special and the rest are C A^(tau-1) (A B)
    rows = normalize((C.to(z.dtype) @ resolvent @ later_B.to(z.dtype)).flatten(1))
    first = [] if D is None else [normalize((C @ B + D).reshape(1, -1))]
    return torch.cat([rows.real, rows.imag, *first])


# 4. Softmax attention --------------------------------------------------------------------------------------
#
# So far the weights could be any numbers. Softmax makes them positive and makes every row sum to one. This
# rules out every system with memory. On a constant input a softmax head averages equal values, so its output
# is constant, whereas the output of the system changes while its state fills up. A sink removes this
# obstacle. It is one more key, with logit 0 and value 0, that absorbs attention and contributes nothing. The
# weights of the tokens then sum to less than one.


def softmax_weights(logits: Tensor, sink: bool = False) -> Tensor:
    """Return causal attention weights; with a sink, e^0 = 1 is added to the denominator of every row."""
    future = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
    logits = logits.masked_fill(future, -torch.inf)
    if not sink:
        return logits.softmax(-1)
    sink_logit = torch.zeros_like(logits[..., :1])
    return torch.cat([logits, sink_logit], -1).softmax(-1)[..., :-1]


def attention(x: Tensor, W_Q: Tensor, W_K: Tensor, V: Tensor, sink: bool = False) -> InteractionMatrix:
    """Return the interaction matrix of softmax heads with W_Q and W_K of shape (H, d_k, d)."""
    q, k = x @ W_Q.mT, x @ W_K.mT  # (H, n, d_k)
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    return InteractionMatrix.from_heads(softmax_weights(logits, sink), V)


def sink_logits(alpha: Tensor) -> Tensor:
    """Return logits that give the weights alpha > 0 when the sink receives the rest of each row."""
    rest = 1 - alpha.tril().sum(-1, keepdim=True)
    return alpha.log() - rest.log()


def alternating_sink_heads(a: float, n: int) -> tuple[Tensor, Tensor]:
    """Return logits and value maps of two sink heads that equal the sign-alternating system.

    Its lags (-a)^tau change sign, but weights cannot, so one head adds and the other subtracts.
    """
    tau = (torch.arange(n)[:, None] - torch.arange(n)).clamp(min=0).double()
    even = tau % 2 == 0
    scale = (1 - a) / 4  # the weights 2 a^tau sum to at most 2 / (1 - a), so half is left for the sink
    alpha = scale * a**tau * torch.stack([torch.where(even, 2, 1), torch.where(even, 1, 2)])  # 2 - 1 or 1 - 2
    V = torch.tensor([1 / scale, -1 / scale], dtype=tau.dtype).reshape(2, 1, 1)
    return sink_logits(alpha), V


# 5. Layers that compute their recurrence from the tokens ---------------------------------------------------
#
# Mamba computes the step Delta_t and the vectors B_t and C_t from the token. If we keep what it computed
# for one input fixed, the layer is linear and has an interaction matrix. In Mamba-1 every channel has
# decays and steps of its own, so W_ij is a diagonal matrix with d different numbers, and the interaction
# rank is d in general. A head of Mamba-2 (SSD) shares one decay and one step among all channels, so W_ij is
# one number times one matrix, and the interaction rank is 1, as for a head of attention.


def scan(a: Tensor, b: Tensor) -> Tensor:
    """Return h_t = a_t h_(t-1) + b_t for all t, entry by entry and starting from zero."""
    h, states = torch.zeros_like(b[0]), []
    for a_t, b_t in zip(a, b, strict=True):
        h = a_t * h + b_t
        states.append(h)
    return torch.stack(states)


def elapsed(delta: Tensor) -> Tensor:
    """Return the time between two tokens, Delta_(j+1) + ... + Delta_i for j <= i, shape (n, n, ...)."""
    clock = delta.cumsum(0)
    return (clock[:, None] - clock[None, :]).clamp(min=0)


@dataclass
class Selection:
    """The weights with which Mamba computes Delta, B and C from each token."""

    W_delta: Tensor  # (d, d) in Mamba-1, (1, d) in a head of Mamba-2
    b_delta: Tensor  # (d,) or (1,)
    W_B: Tensor  # (N, d)
    W_C: Tensor  # (N, d)

    def select(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return Delta (n, d) or (n, 1), B (n, N) and C (n, N)."""
        return softplus(x @ self.W_delta.T + self.b_delta), x @ self.W_B.T, x @ self.W_C.T


@dataclass
class SelectiveLayer(Selection):
    """The core of Mamba-1, in which each of the d channels has N states and its own step."""

    A: Tensor  # (d, N), negative
    D: Tensor  # (d,), the skip

    def __call__(self, x: Tensor) -> Tensor:
        """Run h_t = exp(Delta_t A) h_(t-1) + Delta_t B_t x_t in every channel and read it with C_t."""
        delta, B, C = self.select(x)
        h = scan(torch.exp(delta[:, :, None] * self.A), (delta * x)[:, :, None] * B[:, None, :])  # (n, d, N)
        return (h * C[:, None, :]).sum(-1) + self.D * x

    def interaction(self, x: Tensor) -> InteractionMatrix:
        """Return W_ij, which holds C_i exp(A (Delta_(j+1) + ... + Delta_i)) Delta_j B_j on its diagonal."""
        delta, B, C = self.select(x)
        decay = torch.exp(elapsed(delta)[..., None] * self.A)  # (n, n, d, N)
        channels = torch.einsum("iN,ijdN,jd,jN->dij", C, decay, delta, B).tril()
        channels = channels + self.D[:, None, None] * torch.eye(len(x), dtype=x.dtype)
        return InteractionMatrix(torch.diag_embed(channels.permute(1, 2, 0)))


@dataclass
class SSDHead(Selection):
    """The core of one head of Mamba-2, whose N x d state decays by a single factor per token."""

    A: Tensor  # (), negative
    V: Tensor  # (p, d)

    def __call__(self, x: Tensor) -> Tensor:
        """Run S_t = exp(Delta_t A) S_(t-1) + Delta_t B_t x_t^T and read it with C_t."""
        delta, B, C = self.select(x)
        S = scan(torch.exp(delta * self.A)[:, :, None], (delta * B)[:, :, None] * x[:, None, :])  # (n, N, d)
        return torch.einsum("tN,tNd->td", C, S) @ self.V.T

    def interaction(self, x: Tensor) -> InteractionMatrix:
        """Return W_ij = alpha_ij V, where C_i is the query, B_j is the key and the decay multiplies both."""
        delta, B, C = self.select(x)
        alpha = (C @ B.T) * torch.exp(elapsed(delta[:, 0]) * self.A) * delta[:, 0]
        return InteractionMatrix.from_heads(alpha.tril()[None], self.V[None])


# 6. Gradients and distance ---------------------------------------------------------------------------------
#
# The interaction rank ignores how far apart two tokens are. Gradients do not, so we differentiate the last
# output with respect to earlier tokens. In a stable system the gradient is M_tau, which shrinks exponentially
# whatever the tokens are. In a softmax head its norm is at least the attention weight times the second
# singular value of V. It therefore survives any distance if the query matches the key. If all keys look
# alike, it shrinks as 1/n.


def gradient_by_distance(F, x: Tensor) -> Tensor:
    """Return the spectral norm of the Jacobian of the last output, by distance tau = 0 ... n-1."""
    jacobian = torch.autograd.functional.jacobian(lambda tokens: F(tokens)[-1], x)  # (p, n, d)
    return torch.linalg.matrix_norm(jacobian.transpose(0, 1), ord=2).flip(0)


# 7. The main facts, computed -------------------------------------------------------------------------------


def random_system(N: int, p: int, d: int, rho: float = 0.99) -> System:
    """Return a random system whose slowest mode decays by rho per token."""
    A = torch.randn(N, N)
    return System(rho * A / torch.linalg.eigvals(A).abs().max(), torch.randn(N, d), torch.randn(p, N))


def main() -> None:
    """Print eight facts that the book proves."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # the matrices are small
    torch.manual_seed(0)

    c, s = math.cos(0.7), math.sin(0.7)
    rotation = System(torch.tensor([[c, -s], [s, c]]), torch.eye(2), torch.eye(2))
    error = InteractionMatrix.from_lags(rotation.lags(20)).floor()
    print(f"1. Rotation by 0.7, 20 tokens: one head has a relative error of {error[1]:.1%},", end=" ")
    print(f"two heads of {error[2]:.1%}.")

    n, draws = 256, [random_system(N=64, p=8, d=8) for _ in range(40)]
    system, few = draws[0], sorted(int((floor(draw, n) > 0.01).sum()) for draw in draws)
    k = head_count(system, n)
    print(f"2. Random systems, 64 states, p = d = 8: the first needs {k} heads; {few[20]} heads", end=" ")
    print(f"({few[0]} to {few[-1]} in 40 draws) capture 99% of such a system.")

    x, heads = torch.randn(n, 8), InteractionMatrix.from_heads(*heads_from_system(system, n, k))
    print(f"3. These {k} heads have the outputs of the recurrence: {torch.allclose(heads @ x, system(x))}.")

    print(f"4. Random system, 64 states, p = d = 1: it needs {head_count(random_system(64, 1, 1), n)} head.")

    n, d, N = 32, 8, 16
    x, W_B, W_C = torch.randn(n, d), torch.randn(N, d), torch.randn(N, d)
    ssd = SSDHead(torch.randn(1, d), torch.zeros(1), W_B, W_C, torch.tensor(-1.0), torch.randn(d, d))
    rates = torch.arange(1.0, N + 1).repeat(d, 1)
    mamba = SelectiveLayer(torch.randn(d, d), torch.zeros(d), W_B, W_C, -rates, torch.ones(d))
    ranks = [layer.interaction(x).rank() for layer in (ssd, mamba)]
    print(f"5. Width 8, 16 states: an SSD head has rank {ranks[0]}, a selective layer has rank {ranks[1]}.")

    alternating = System(torch.tensor([[-0.5]]), torch.ones(1, 1), torch.ones(1, 1))
    ones, alpha = torch.ones(3, 1), softmax_weights(torch.randn(3, 3))
    outputs = [", ".join(f"{float(y):.2f}" for y in Y) for Y in (alternating(ones), alpha @ ones)]
    print(f"6. Input 1, 1, 1: the sign-alternating system gives {outputs[0]}, softmax gives {outputs[1]}.")

    logits, V = alternating_sink_heads(0.5, n)
    two = InteractionMatrix.from_heads(softmax_weights(logits, sink=True), V)
    equal = torch.allclose(two.blocks, InteractionMatrix.from_lags(alternating.lags(n)).blocks)
    print(f"7. Two softmax heads with a sink equal this system: {equal}.")

    n = 1001
    x = torch.cat([-torch.ones(n, 1), torch.ones(n, 1), torch.randn(n, 2)], 1)
    x[0, 0] = 1  # the first token has key +1, all others have key -1, and every query asks for +1
    W_Q, W_K = torch.zeros(2, 1, 1, 4)
    W_Q[..., 1], W_K[..., 0] = 5, 1
    V = torch.eye(4)[None]
    layers = (
        System(0.9 * torch.eye(4), torch.eye(4), torch.eye(4)),
        lambda x: attention(x, W_Q, W_K, V) @ x,
        lambda x: attention(x, 0 * W_Q, W_K, V) @ x,  # all logits are 0, so the head averages
    )
    far = [gradient_by_distance(layer, x)[-1] for layer in layers]
    print(f"8. Gradient across 1,000 tokens: 10^{far[0].log10():.0f} in the system with A = 0.9 I,", end=" ")
    print(f"{far[1]:.2f} in attention if the query matches, {far[2]:.3f} if all keys look alike.")


if __name__ == "__main__":
    main()
