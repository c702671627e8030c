"""The recurrence h_t = a_t h_{t-1} + b_t by six algorithms, written for the counting machine."""

import math

import torch

from headsandstates.chapters.scans.counting import Fast, Slow, join


def recurrence(a: Slow, b: Slow, h: Slow) -> None:
    """One step after the other; the state never leaves fast memory."""
    state = b.load(0)
    h.store(0, state)
    for t in range(1, len(b.value)):
        state = a.load(t) * state + b.load(t)
        h.store(t, state)


def matrix(a: Slow, b: Slow, h: Slow) -> None:
    """The explicit way: write the matrix of weights a_{j+1} ... a_i to slow memory, then multiply by it."""
    T = len(b.value)
    weights = b.empty(T, T)
    row = None
    for i in range(T):
        end = Fast(b.machine, b.value.new_ones(1, 1))
        row = end if row is None else join([a.load(i) * row, end], 1)
        weights.store((slice(i, i + 1), slice(0, i + 1)), row)
    row = None
    for i in range(T):
        seen = weights.load((slice(i, i + 1), slice(0, i + 1)))
        h.store(slice(i, i + 1), seen @ b.load(slice(0, i + 1)))


def doubling(a: Slow, b: Slow, h: Slow) -> None:
    """Hillis and Steele's scan: at every pass each pair is composed with the one ``shift`` places earlier."""
    T, shift = len(b.value), 1
    decay, h_now = a.load(slice(0, T)), b.load(slice(0, T))
    product = a.empty(T)
    while shift < T:
        late, early = decay[shift:], slice(0, T - shift)
        h_next = join([h_now[:shift], late[:, None] * h_now[early] + h_now[shift:]])
        decay = join([decay[:shift], late * decay[early]])
        h.store(slice(0, T), h_next)
        shift *= 2
        if shift < T:
            product.store(slice(0, T), decay)
            decay = late = h_now = h_next = None
            decay, h_now = product.load(slice(0, T)), h.load(slice(0, T))
    if T == 1:
        h.store(0, h_now[0])


def blocked(a: Slow, b: Slow, h: Slow, L: int = 16) -> None:
    """Summary and restart: blocks of L at once, their summaries by the same scan, the blocks again."""
    T, D = b.value.shape
    if T <= L:
        return recurrence(a, b, h)
    n = T // L
    places = [slice(t, n * L, L) for t in range(L)]  # the t-th of every block
    product, ends = a.load(places[0]), b.load(places[0])
    for place in places[1:]:
        decay = a.load(place)
        ends = decay[:, None] * ends + b.load(place)
        product = product * decay
    P, E, carry = a.empty(n), a.empty(n, D), a.empty(n, D)
    P.store(slice(None), product)
    E.store(slice(None), ends)
    product = ends = decay = None
    blocked(P, E, carry, L)
    # Every block starts again from the end of the one before it; its own end is known.
    later = slice(L, n * L, L)
    first = b.load(slice(0, 1))
    state = join([first, a.load(later)[:, None] * carry.load(slice(0, n - 1)) + b.load(later)])
    h.store(places[0], state)
    for place in places[1:-1]:
        state = a.load(place)[:, None] * state + b.load(place)
        h.store(place, state)
    h.store(places[-1], carry.load(slice(None)))
    state = carry.load(n - 1)
    for t in range(n * L, T):
        state = a.load(t) * state + b.load(t)
        h.store(t, state)


def chunked(a: Slow, b: Slow, h: Slow, L: int = 16) -> None:
    """Matrix products: a matrix of weights inside every chunk of L, one carried state between chunks."""
    T, state = len(b.value), None
    for start in range(0, T, L):
        stop = min(T, start + L)
        weights, through = _chunk_weights(a, start, stop, state is not None)
        y = weights @ b.load(slice(start, stop))
        if state is not None:
            y = y + through[:, None] * state
        h.store(slice(start, stop), y)
        state = y[-1]
        weights = through = y = None


def _chunk_weights(a: Slow, start: int, stop: int, carried: bool) -> tuple[Fast, Fast | None]:
    """The weights inside one chunk, (Q, Q), and those of the state before it, (Q,)."""
    machine, Q = a.machine, stop - start
    rows, through, row = [], [], None
    for i in range(Q):
        one = Fast(machine, a.value.new_ones(1, 1))
        decay = a.load(slice(start + i, start + i + 1)) if i or carried else None
        row = one if row is None else join([decay * row, one], 1)
        if carried:
            through.append(through[-1] * decay if through else decay)
        rows.append(join([row, Fast(machine, a.value.new_zeros(1, Q - i - 1))], 1))
    return join(rows), join(through) if carried else None


def fourier(a: Slow, b: Slow, h: Slow) -> None:
    """One long convolution by the fast Fourier transform; needs a_t the same at every t >= 1."""
    T, D = b.value.shape
    if not bool((a.value[1:] == a.value[-1]).all()):
        raise ValueError("a must be constant for a Fourier transform")
    size = 1 << (2 * T - 1).bit_length() if T > 1 else 2
    kernel, power = Fast(a.machine, a.value.new_ones(1)), a.load(slice(T - 1, T))
    while len(kernel.value) < T:
        kernel = join([kernel, power * kernel])
        power = power * power
    columns = join([kernel[:T, None], b.load(slice(0, T))], 1)
    padded = join([columns, Fast(a.machine, columns.value.new_zeros(size - T, D + 1))])
    spectrum = _transform(Fast(a.machine, padded.value.to(torch.complex128), padded.depth), -1)
    padded = columns = kernel = None
    back = _transform(spectrum[:, :1] * spectrum[:, 1:], +1)[:T].real()
    h.store(slice(0, T), back * Fast(a.machine, b.value.new_full((1, 1), 1 / size)))


def _transform(x: Fast, sign: int) -> Fast:
    """Radix-2 transform over dim 0, unnormalized."""
    n = len(x.value)
    if n == 1:
        return x
    even, odd = _transform(x[0::2], sign), _transform(x[1::2], sign)
    angle = sign * 2 * math.pi / n * torch.arange(n // 2, dtype=torch.float64)
    turned = Fast(odd.machine, torch.polar(torch.ones_like(angle), angle)[:, None]) * odd
    return join([even + turned, even - turned])


ALGORITHMS = {
    "recurrence": recurrence,
    "matrix": matrix,
    "doubling": doubling,
    "blocked": blocked,
    "chunked": chunked,
    "Fourier": fourier,
}
"""Name -> algorithm(a, b, h, ...): a (T,), b (T, D) and h (T, D) are ``Slow``; fills h."""
