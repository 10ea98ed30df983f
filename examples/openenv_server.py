"""Questions that a policy answers, each paid by a reward of factrl, as a server of OpenEnv 0.10.

    pip install factrl openenv==0.10.0
    QUESTIONS=questions.jsonl uvicorn examples.openenv_server:api --port 8100

OpenEnv's rubrics return a float, and 0 where there is none, so there is no rubric here: an answer that could
not be graded has `done` and the reward None, with its `cause` in the observation.  Leave such an episode out.
"""

import os
import random

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

import factrl as fx

QUESTIONS = fx.load_examples(os.environ.get("QUESTIONS", "questions.jsonl"))
JUDGE = os.environ.get("JUDGE")  # such as http://localhost:8000/v1#Qwen/Qwen3-8B
REWARD = fx.supply(fx.load_reward("truthrl"), fx.connect(JUDGE) if JUDGE else None)


class Answer(Action):
    """What the policy answers."""

    text: str


class Asked(Observation):
    """The question; after an answer whether it was `scored`, `floored` or `masked`, and why."""

    text: str = ""
    state: str = ""
    cause: str = ""


class Questions(Environment[Answer, Asked, State]):
    """One question an episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **_):
        self.example = QUESTIONS[random.randrange(len(QUESTIONS)) if seed is None else seed % len(QUESTIONS)]
        self._state = State(episode_id=episode_id)
        return Asked(text=self.example.question)

    def step(self, action, timeout_s=None, **_):
        self._state.step_count += 1
        result = REWARD(self.example, action.text)
        return Asked(done=True, reward=result.value, state=result.state, cause=result.cause or "")

    @property
    def state(self):
        return self._state


api = create_fastapi_app(Questions, Answer, Asked, 64)
