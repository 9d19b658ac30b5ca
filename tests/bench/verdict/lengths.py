"""Prompt lengths of real traffic, as quantiles: enough to draw lengths from, and nothing of the traces themselves.

mooncake   kvcache-ai/Mooncake 3b5a594, FAST25-release/traces/conversation_trace.jsonl, Apache-2.0, 12,031 requests
azure-code Azure/AzurePublicDataset b469a11, data/AzureLLMInferenceTrace_code.csv, CC-BY-4.0, 8,819 requests
azure-conv Azure/AzurePublicDataset b469a11, data/AzureLLMInferenceTrace_conv.csv, CC-BY-4.0, 19,366 requests
"""

import numpy as np
from numpy.typing import NDArray

SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)
TOKENS = {
    "mooncake": (891, 901, 964, 1662, 3263, 4993, 6909, 9570, 13196, 17869, 27367, 39550, 85400, 121300, 126195),
    "azure-code": (3, 75, 147, 385, 770, 1075, 1469, 1909, 2433, 3192, 5187, 7303, 7436, 7437, 7437),
    "azure-conv": (2, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734, 4083, 4142, 6179, 14050),
}


def drawn(name: str, count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Lengths in tokens, by interpolation between the quantiles on a logarithmic scale."""
    logs = np.interp(random.random(count), SHARES, np.log(TOKENS[name]))
    return np.asarray(np.exp(logs), np.float64)
