"""Pure: from what was observed to what should be done. No I/O, no clock, no random numbers."""
