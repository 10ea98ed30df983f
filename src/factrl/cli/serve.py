"""`factrl serve`."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import tempfile

from ..errors import ConfigError
from .options import Verbs, add_verb, as_overrides, at_least_one, needs_extra
from .terminal import tell

_DRAIN = 25  # seconds that requests under way have to finish after SIGTERM; the service has 5 more


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "serve",
        _serve,
        about="give rewards and verdicts over HTTP, to any trainer",
        example=(
            "examples:\n"
            "  factrl serve truthrl knowrl --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  FACTRL_SERVER_TOKEN=… factrl serve recipe.toml --host 0.0.0.0 --workers 2\n"
            'in Python: reward = fx.remote("http://localhost:8100", "truthrl")'
        ),
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="SPEC",
        help="truthrl, truthrl:binary, my.py:reward, …; any other setting as key=value",
    )
    parser.add_argument("--config", metavar="RECIPE.toml", help="judge, verifier and knobs from a recipe")
    parser.add_argument(
        "--judge", metavar="URL", help="model server that grades, e.g. http://host:8000/v1#model"
    )
    parser.add_argument("--verify", action="store_true", help="offer /v1/verify also when no reward verifies")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1; others need a token)"
    )
    parser.add_argument("--port", type=at_least_one, default=8100, help="port to listen on (default: 8100)")
    parser.add_argument("--workers", type=at_least_one, default=1, metavar="N", help="processes (default: 1)")


def _serve(args: argparse.Namespace) -> int:
    specs = [word for word in args.words if "=" not in word]
    args.settings = [word for word in args.words if "=" in word]
    if not specs:
        raise ConfigError("name a reward to serve, such as truthrl")
    app = needs_extra("server.app", "serve")
    opening = needs_extra("server.opening", "serve")
    if not _is_loopback(args.host) and not os.environ.get(app.TOKEN, "").strip():
        raise ConfigError(
            f"--host {args.host} can be reached from other machines; set {app.TOKEN} to a secret that "
            "clients must bring, or leave --host out"
        )
    told = {
        "rewards": specs,
        "config": args.config,
        "overrides": as_overrides(args, {"judge": "judge.url"}),
        "verify": args.verify,
    }
    opening.read_settings(told)  # what is wrong is said once, here, and not by every worker
    os.environ[app.SETTINGS] = json.dumps(told)
    tell(f"serving {', '.join(specs)} at http://{args.host}:{args.port} (POST /v1/score; stop with Ctrl-C)")
    with tempfile.TemporaryDirectory(prefix="factrl-metrics-") as folder:
        if args.workers > 1:
            os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        app.uvicorn.run(
            "factrl.server.app:serve_from_environment",
            factory=True,
            host=args.host,
            port=args.port,
            workers=args.workers,
            log_level="warning",
            timeout_graceful_shutdown=_DRAIN,
            timeout_keep_alive=75,
            timeout_worker_healthcheck=60,  # a worker that starts slowly is not a dead one
            server_header=False,
            proxy_headers=False,  # or a client could guess tokens from an address of its choice
        )
    return 0


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
