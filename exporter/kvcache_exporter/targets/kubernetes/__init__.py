"""Targets in a Kubernetes cluster: pods or endpoints, listed once and then watched."""

from kvcache_exporter.targets.kubernetes.discovery import KubernetesDiscovery

__all__ = ["KubernetesDiscovery"]
