"""Runnable examples: engines, a traffic generator and the demo. The product imports none of it."""
