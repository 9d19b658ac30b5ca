"""Pure builders of every Kubernetes object a ShadowRun makes. No I/O, no decisions about when."""
