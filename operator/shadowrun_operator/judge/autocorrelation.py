"""How long the load remembers: the integrated autocorrelation time of a series. Statistics only.

tau = 1 + 2 * (sum of autocorrelations). A mean over n values is as exact as one over n / tau independent ones. The sum
ends before the first pair of neighbouring lags whose sum isn't positive (the initial positive sequence of Geyer,
"Practical Markov chain Monte Carlo", Statistical Science 7, 1992), for later lags add noise and nothing else.
"""

import numpy as np
from numpy.typing import NDArray

_FEWEST = 8


def autocorrelation_time(values: NDArray[np.float64]) -> float:
    """tau in steps of the series, 1 or more; 1 for fewer than 8 values and for values that are all equal."""
    n = len(values)
    if n < _FEWEST:
        return 1.0
    centred = values - values.mean()
    if float(centred @ centred) <= 1e-12 * n:
        return 1.0
    spectrum = np.fft.rfft(centred, 2 * n)
    covariance = np.fft.irfft(spectrum * spectrum.conj())[: n // 2]
    lags = covariance[1:] / covariance[0]
    pairs = lags[: len(lags) // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    return max(1.0, 1 + 2 * float(pairs[: ends[0] if len(ends) else len(pairs)].sum()))
