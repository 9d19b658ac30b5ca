"""Capture: what runs beside Envoy on the customers' path, and the rules Envoy selects by. It handles no request."""
