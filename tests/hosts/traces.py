"""What verifiers keeps of one answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import verifiers.v1 as vf


def trace_of(
    data: vf.TaskData, text: str, thought: str | None = None, before: Sequence[Any] = (), **more: Any
) -> vf.Trace:
    """The trace of a reply to a task.

    Args:
        thought: the reasoning that the server took out of it.
        before: the messages before it, by default the task's prompt.
        more: other fields of the trace.
    """
    reply = vf.AssistantMessage(content=text, reasoning_content=thought)
    messages = [*(before or [vf.UserMessage(content=data.prompt)]), reply]
    nodes = [
        vf.MessageNode(message=one, parent=number - 1 if number else None, sampled=one is reply)
        for number, one in enumerate(messages)
    ]
    task = vf.TraceTask(type="Task", data=data)
    return vf.Trace(task=task, agent=vf.AgentInfo(config=vf.AgentConfig()), nodes=nodes, **more)
