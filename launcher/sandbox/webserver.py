"""moto's application and the server in front of it: loopback only, a thread for each request, no log of requests."""

from __future__ import annotations

import logging
import threading
from wsgiref.types import WSGIApplication

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


class _QuietHandler(MotoRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Requests are not logged: the launcher polls."""


def moto_application() -> WSGIApplication:
    """All of moto's services."""
    application: WSGIApplication = DomainDispatcherApplication(create_backend_app)
    return application


class WebServer:
    """Serves an application on a free loopback port until it is closed."""

    def __init__(self, application: WSGIApplication) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_QuietHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Take no more requests and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
