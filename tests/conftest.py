"""What every test may use: the Kubernetes cluster, brought up only when a test asks for it."""

pytest_plugins = ["tests.cluster.plugin"]
