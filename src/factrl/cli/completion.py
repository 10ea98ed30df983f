"""`factrl --completion`: verbs and options for the tab key, in bash, and in zsh after `bashcompinit`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

_SCRIPT = """\
_factrl() {{
  local here="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then words="{verbs}"
  else case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}} " in
{cases}
  esac fi
  COMPREPLY=($(compgen -W "$words" -- "$here"))
  [ "${{here:0:1}}" = - ] || COMPREPLY+=($(compgen -f -- "$here"))
}}
complete -o filenames -F _factrl factrl
"""


def script(verbs: Mapping[str, argparse.ArgumentParser]) -> str:
    """What `eval "$(factrl --completion)"` reads; a verb of two words is completed word by word."""
    offered = {name: _words(parser) for name, parser in verbs.items()}
    for name in verbs:
        first, _, second = name.partition(" ")
        if second:
            offered[first] = [*offered.get(first, ()), second]
    longest = sorted(offered, key=lambda name: -name.count(" "))
    cases = "\n".join(f'    "{name} "*) words="{" ".join(offered[name])}" ;;' for name in longest)
    return _SCRIPT.format(verbs=" ".join(name for name in offered if " " not in name), cases=cases)


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Its options, and what a positional word can be."""
    found: list[str] = []
    for action in parser._actions:
        choices = map(str, action.choices or ()) if not action.option_strings else ()
        found += [*(word for word in action.option_strings if word.startswith("--")), *choices]
    return found
