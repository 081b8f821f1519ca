"""Serves the exporter over HTTP, knowing the rest only as `Pages`."""

from kvcache_exporter.web.config import WebConfig
from kvcache_exporter.web.endpoints import Asset, Pages, Request, Response
from kvcache_exporter.web.server import WebServer, web_server

__all__ = ["Asset", "Pages", "Request", "Response", "WebConfig", "WebServer", "web_server"]
