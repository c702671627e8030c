"""Graders of the chapter *learning-heads*."""

from ssmbook.exercises import grader

_FLOORS = ([1.0, 0.3, 0.05, 0.004, 0.0], [1.0, 0.5, 0.0], [1.0, 0.2, 0.1, 0.09, 0.01, 0.0])


def _least(floor, n, p, d, m, noise):
    errors = []
    for H, left in enumerate(floor):
        free = H * (n * (n + 1) // 2 + p * d - H)
        errors.append(left + free * (noise + left) / (m * n * p))
    return min(range(len(errors)), key=errors.__getitem__)


@grader("learning-heads/worth-training")
def grade_worth_training(answer):
    """A function (floor, n, p, d, m, noise) -> the H with the least predicted error on m noisy sequences."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    for floor in _FLOORS:
        for n, p, d in ((16, 3, 3), (8, 1, 6)):
            for m in (5, 40, 300, 100_000):
                for noise in (0.0, 0.1, 2.0):
                    got, wanted = answer(list(floor), n, p, d, m, noise), _least(floor, n, p, d, m, noise)
                    if got != wanted:
                        return (
                            f"for floor = {floor}, n = {n}, p = {p}, d = {d}, m = {m}, noise = {noise} "
                            f"the least error is at H = {wanted}; got {got!r}. What a head cannot fit is "
                            "noise to the others: a free parameter costs the variance noise + floor[H]"
                        )
    return None
