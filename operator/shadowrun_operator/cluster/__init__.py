"""The only place of the operator that does I/O: API server, replicas' HTTP, clocks and random numbers."""
