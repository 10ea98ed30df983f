"""36 known reward hacks and generated free options against any reward: `factrl stress`, and as a test.

    import pytest
    from factrl.lab.hacks import cases, check
    from my_rewards import mine

    @pytest.mark.parametrize("case", cases())
    def test_no_hack_pays(case):
        assert check(mine, case) == ""

The texts are 36 adversarial policies and five honest answers to twenty questions in three paraphrases each
(`factrl.lab.hacks.policies`), and generated answer forms (`factrl.lab.hacks.families`); exact oracles stand
in for judges (`factrl.lab.hacks.oracles`) unless the reward brings its own.  What must hold is in
`factrl.lab.hacks.order` and `factrl.lab.hacks.options`.
"""

from factrl.lab.hacks.order import Setup
from factrl.lab.hacks.run import Outcome, cases, check, oracle_setup, run_battery

__all__ = ["Outcome", "Setup", "cases", "check", "oracle_setup", "run_battery"]
