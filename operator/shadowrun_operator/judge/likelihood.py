"""The likelihood ratio for the mean of pairs won (+1), lost (-1) or neither (0). Arithmetic only.

Where few pairs differ, their mean isn't normal, and an error taken from the pairs seen is too small: with none lost it
is zero. The likelihood ratio (Wilks) knows the shape: it is that of three shares p, q, r that add up to 1, and the
mean d = p - q is tried by the shares that are likeliest given d. Without a single pair that differs, -2 n ln(1 - m) has
to be large for "at most m are lost". At the k of `sequence` that is 4 to 5 / n, more than the 3 / n of a single look.
"""

import math

_STEPS = 30
_ROUNDING = 1e-12  # of weighted counts, which are no whole numbers


def distance(pairs: float, won: float, lost: float, mean: float) -> float:
    """Twice the log likelihood ratio of the counts seen against a true mean of `mean`; 0 at the mean seen."""
    q = _share_lost(pairs, won, lost, mean)
    found = 0.0
    for count, share in ((won, q + mean), (lost, q), (pairs - won - lost, 1 - 2 * q - mean)):
        if count <= _ROUNDING * pairs:
            continue
        if share <= 0:
            return math.inf
        found += count * math.log(count / (pairs * share))
    return max(0.0, 2 * found)


def highest_mean(pairs: float, won: float, lost: float, most: float) -> float:
    """The highest mean (up to 1) whose distance from the counts is at most `most`."""
    inside, outside = (won - lost) / pairs, 1.0
    for _ in range(_STEPS):
        tried = (inside + outside) / 2
        if distance(pairs, won, lost, tried) <= most:
            inside = tried
        else:
            outside = tried
    return outside


def _share_lost(pairs: float, won: float, lost: float, difference: float) -> float:
    """The likeliest share lost, q, if the shares won and lost differ by `difference`.

    The larger root of 2 n q^2 + ((2n - won + lost) d - won - lost) q - lost d (1 - d) = 0 (Tango, Statistics in
    Medicine 17, 1998).
    """
    b = (2 * pairs - won + lost) * difference - won - lost
    c = -lost * difference * (1 - difference)
    root = (math.sqrt(max(0.0, b * b - 8 * pairs * c)) - b) / (4 * pairs)
    return min(max(root, 0.0, -difference), (1 - difference) / 2)
