"""`factrl serve`: rewards and verdicts over HTTP, or as tools of an agent that starts it."""

from __future__ import annotations

import argparse
import errno
import json
import os
import socket
import sys
from urllib.parse import quote

from factrl.errors import ConfigError, SetupError
from factrl.job import REWARD_ALONE, read_job
from factrl.runs.settings import AskSettings

from .options import (
    Verbs,
    add_option,
    add_options,
    add_verb,
    as_overrides,
    check_judge,
    needs_extra,
    within,
)
from .terminal import tell

_OUTAGES = (
    "connection",
    "timeout",
    "http_5xx",
    "http_429",
)  # what may pass while `factrl serve --mcp` serves
_DRAIN = 25  # seconds that requests under way have to finish after SIGTERM; the service has 5 more


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "serve",
        _serve,
        about="give rewards and verdicts over HTTP, or as an agent's tools (MCP)",
        example=(
            "examples:\n"
            "  factrl serve truthrl knowrl --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl serve --page --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl serve --mcp verifier.index=kb --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  FACTRL_SERVER_TOKEN=… factrl serve recipe.toml --host 0.0.0.0 --workers 2\n"
            'in Python: reward = fx.remote("http://localhost:8100", "truthrl")'
        ),
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="SPEC",
        help="truthrl, truthrl:binary, my.py:reward, …; any other setting as key=value",
    )
    parser.set_defaults(settings=[])
    add_options(parser, "config", "judge")
    add_option(parser, "--verify", "offer /v1/verify also when no reward verifies")
    add_option(parser, "--mcp", "tools of an agent: verify, grade and search, on stdin and stdout")
    add_option(parser, "--page", "a page for browsers: paste a text and documents, see the verdicts")
    add_option(
        parser,
        "--host HOST",
        "address to listen on (default: 127.0.0.1; others need a token)",
        default="127.0.0.1",
    )
    add_option(
        parser, "--port PORT", "port to listen on (default: 8100)", type=within(1, 65_535), default=8100
    )
    add_option(parser, "--workers N", "processes (default: 1)", type=within(1, 256), default=1)


def _mcp(args: argparse.Namespace) -> int:
    bridge = needs_extra("bridges.mcp", "mcp")
    job = read_job(args.config, [*as_overrides(args), *REWARD_ALONE], AskSettings)
    try:
        check_judge(job)
    except SetupError as error:
        if getattr(error.__cause__, "cause", "") not in _OUTAGES:
            raise
        tell(f"grade and verify fail until the judge is there, each with the cause: {error}")
    bridge.server(job.supplier.verify(), job.supplier.grade("sentence")).run()
    return 0


def _serve(args: argparse.Namespace) -> int:
    specs = args.words
    if args.mcp:
        if specs or args.page:
            raise ConfigError(f"--mcp has no rewards and no page; leave {(*specs, '--page')[0]} out")
        return _mcp(args)
    if not specs and not args.page:
        raise ConfigError("name a reward to serve, such as truthrl, or give --page")
    if args.page and args.workers > 1:
        raise ConfigError("--page keeps its reports in one process; leave --workers out")
    app = needs_extra("server", "serve")
    if not app.server_token() and not app.is_loopback(args.host):
        raise ConfigError(
            f"--host {args.host} can be reached from other machines; set {app.TOKEN} to a secret that "
            "clients must bring, or leave --host out"
        )
    settings = {
        "rewards": specs,
        "config": args.config,
        "overrides": as_overrides(args),
        "verify": args.verify or args.page,
        "page": args.page,
    }
    app.read_jobs(settings)  # one error here, and not one of every worker
    _check_address(args.host, args.port)
    os.environ[app.SETTINGS] = json.dumps(settings)
    host = f"[{args.host}]" if ":" in args.host else args.host
    url = f"http://{host}:{args.port}"

    def announce() -> None:
        if specs:
            tell(f"serving {', '.join(specs)} at {url} (POST /v1/score; stop with Ctrl-C)")
        if args.page:  # the token is for whoever sits here, and for no log
            token = app.server_token()
            secret = quote(token, safe="") if sys.stderr.isatty() else f"${app.TOKEN}"
            tell(f"check texts at {url}/{f'#{secret}' if token else ''} (stop with Ctrl-C)")

    options = {
        "factory": True,
        "host": args.host,
        "port": args.port,
        "http": "h11",
        "ws": "none",
        "limit_concurrency": app.CONCURRENCY,
        "log_level": "error",  # a warning is of what a client sent, as often as it likes
        "timeout_graceful_shutdown": _DRAIN,
        "timeout_keep_alive": app.IDLE_SECONDS,
        "timeout_worker_healthcheck": 60,  # a worker that starts slowly is not a dead one
        "server_header": False,
        "proxy_headers": False,  # or a client could guess tokens from an address of its choice
    }
    where = "factrl.server:serve_from_environment"
    try:
        if args.workers == 1:
            return app.run_announced(where, announce, options)
        announce()
        app.uvicorn.run(where, workers=args.workers, **options)
    except SystemExit:  # uvicorn has said why it could not start; 3 has another meaning here
        return 2
    return 0


def _check_address(host: str, port: int) -> None:
    """Refuse what cannot be listened on before models are loaded."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as uvicorn will
            trial.bind((host, port))
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
            return  # another machine's address, which uvicorn names itself
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"cannot listen on --host {host[:80]} --port {port} ({why}); name another one"
        ) from None
