"""HTTP requests to the API of a platform, on urllib3."""

from tao_sdk.platforms.rest.client import Query, RestClient, Stream, Timeouts
from tao_sdk.platforms.rest.errors import RefusedError, describe
from tao_sdk.platforms.rest.proxies import Proxy, proxy_for
from tao_sdk.platforms.rest.response import Response
from tao_sdk.platforms.rest.websocket import WebSocket

__all__ = [
    "Proxy",
    "Query",
    "RefusedError",
    "Response",
    "RestClient",
    "Stream",
    "Timeouts",
    "WebSocket",
    "describe",
    "proxy_for",
]
