"""The operator of ShadowRun: observe, plan, apply; judge; always end."""
