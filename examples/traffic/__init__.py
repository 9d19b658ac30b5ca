"""A client that behaves like many: bursty arrivals, multi-turn conversations over documents, streaming answers."""
