"""CPU cores as a platform of verl's; its rollout engine is in `verl_transformers`.

verl loads both modules in each of its processes (VERL_USE_EXTERNAL_MODULES), this one first and our plugin
last.  `test_verl_run` has the variables that go with them in `CORES`, verl's configuration in `WORDS`.
"""

# pyright: basic, reportAttributeAccessIssue=false, reportAssignmentType=false, reportPrivateImportUsage=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
from __future__ import annotations

import contextlib
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _module() -> ModuleType:
    """`torch.cpu` with what verl asks of a device beside it, which is nothing to do."""
    made = ModuleType("cores")
    made.__dict__.update({name: getattr(torch.cpu, name) for name in dir(torch.cpu) if name[0] != "_"})
    zero = dict.fromkeys(
        ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"), 0
    )
    for name, value in zero.items():
        setattr(made, name, lambda *_, value=value: value)
    for name in ("empty_cache", "manual_seed", "manual_seed_all", "reset_peak_memory_stats", "ipc_collect"):
        setattr(made, name, lambda *_: None)
    made.is_available = lambda: True
    made.current_device = lambda: 0
    made.mem_get_info = lambda *_: (1 << 30, 1 << 31)
    made.get_rng_state, made.set_rng_state = torch.get_rng_state, torch.set_rng_state
    made.get_device_name = lambda *_: "cpu"
    made.get_device_properties = lambda *_: SimpleNamespace(total_memory=1 << 31)
    return made


@PlatformRegistry.register(platform="cores")
class Cores(PlatformBase):
    """CPU cores; what Ray counts as GPUs are places for a rank."""

    device_name = "cpu"
    vendor_name = "cores"
    device_module = _module()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return contextlib.nullcontext()

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
