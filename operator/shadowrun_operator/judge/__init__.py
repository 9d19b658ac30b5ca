"""The judge: evidence in, verdict and report out. Pure: no clock, no random, no I/O, nothing of Kubernetes."""
