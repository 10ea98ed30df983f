"""Arms of the user's choice: which world shows them, and whether they fit it, before torch is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import ConfigError, nearest
from ..papers import load_reward, paper_names, split_spec
from .tables import BASE, DEFAULT, METHODS, Table, find_table, home_of, judged, make_world, row_of


def table_of(specs: Sequence[str], name: str | None = None) -> Table:
    """A table with these arms, in the world and with the columns of a named one.

    Args:
        specs: rewards and methods.
        name: of the table; by default that of the world that the arms' files name, else `default`.

    Raises:
        ConfigError: an arm does not exist or is given twice, or the arms are shown in different worlds.
    """
    for number, spec in enumerate(specs):
        check_arm(spec)
        if spec in specs[:number]:
            raise ConfigError(f"the arm {spec!r} is given twice")
    homes = {home_of(spec): spec for spec in specs if spec not in METHODS}
    if name is None and len(homes) > 1:
        raise ConfigError(
            f"{' and '.join(homes.values())} are shown in different worlds; choose one with "
            f"--table {' or --table '.join(homes)}"
        )
    table = find_table(name or next(iter(homes), DEFAULT))
    rows = tuple(row_of(spec, table.world) for spec in specs)
    for row in rows:
        _check_fit(row.arm, table)
    columns = judged(table.columns, rows)
    return replace(table, name=f"own choice of arms ({table.name})", rows=rows, columns=columns, order="")


def check_arm(spec: str) -> None:
    """Refuse what is no arm, before torch is loaded.

    Raises:
        ConfigError: no such method, paper, variant or file.
    """
    if spec == BASE:
        raise ConfigError(f"{BASE!r} is what every arm starts from and is in every table; leave it out")
    if spec in METHODS:
        return
    name, variant = split_spec(spec)
    if not variant and not name.endswith(".py") and name not in paper_names():
        known = (*METHODS, *paper_names())
        raise ConfigError(
            f"unknown arm {spec!r}{nearest(spec, known)} (methods: {', '.join(METHODS)}; rewards: "
            f"{', '.join(paper_names())}, each with :VARIANT, or my_file.py:function)"
        )
    load_reward(spec)


def _check_fit(spec: str, table: Table) -> None:
    """Refuse an arm that asks for what the world does not have, or a reward that lacks a knob."""
    if spec in METHODS:
        if table.world != "people":
            raise ConfigError(
                f"{spec} learns from short answers that are right or wrong, so it is an arm in the world "
                f"'people' only, and the table {table.name!r} is in {table.world!r}; leave it out"
            )
        return
    world = make_world(table.world, 0)
    reward = load_reward(spec)
    missing = [name for name in reward.missing if name not in world.resources()]
    if missing:
        raise ConfigError(f"the world {table.world!r} has no {missing[0]!r}, which {spec} asks for")
    probed = replace(world.train[0], ook=True)  # an arm that needs to know asks the model itself
    problem = reward.requires(probed, reward.knobs) if reward.requires else None
    if problem:
        raise ConfigError(f"{spec} cannot be an arm in the world {table.world!r}: {problem}")
