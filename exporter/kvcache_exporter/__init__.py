"""Observability for the prefix (KV) cache of LLM inference engines and managed APIs."""

__version__ = "0.1.0"

__all__ = ["__version__"]
