"""Comparing the arms' answers: each is put together, reduced to a digest at its end, and held against the baseline's.

Used only where the run asks for it. No text is held for longer than its arm's body takes, and no digest for longer than
its pair.
"""
