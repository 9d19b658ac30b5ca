"""Engines that speak the OpenAI protocol on CPU: llama.cpp with a small model, and a simulator with faults."""
