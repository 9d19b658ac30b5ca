"""The demonstration: a cluster, an engine, customers, one ShadowRun from start to verdict."""
