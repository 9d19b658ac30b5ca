"""A real Kubernetes cluster for tests: three nodes in two GPU pools, on kind, on this machine alone, or one you have.

The modules import the standard library only, so that `python3 -m tests.cluster up` works before anything is installed.
Nothing here knows the product: it brings up a cluster, builds images and loads them.
"""
