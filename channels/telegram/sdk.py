"""Import aiogram without building its 440 pydantic schemas: each is built when it is first used.

Measured with aiogram 3.31: 0.8 CPU s and 58 MB instead of 3.1 CPU s and 167 MB. Two
modules of aiogram are adjusted after they ran, before any class is derived from theirs. pydantic is not changed.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from threading import Lock
from types import ModuleType
from typing import Any

from pydantic import BaseModel

_lock = Lock()
_REBUILD = "model_rebuild"
_BASES = {"aiogram.types.base": ("TelegramObject",), "aiogram.methods.base": ("TelegramMethod", "Response")}


def load_aiogram() -> None:
    """Import aiogram. It takes about a second, so call it in a thread; repeated calls do nothing."""
    with _lock:
        if "aiogram" in sys.modules:
            return
        finder = _Finder()
        sys.meta_path.insert(0, finder)
        try:
            import_module("aiogram")
        finally:
            sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds the modules of `_BASES` as usual, and adjusts the models in each after it ran."""

    def __init__(self) -> None:
        self._names: dict[str, object] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _BASES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._names)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, names: dict[str, object]) -> None:
        super().__init__(fullname, path)
        self._names = names

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        for name in _BASES[module.__name__]:
            base: type[BaseModel] = getattr(module, name)
            base.model_config["defer_build"] = True
            setattr(base, _REBUILD, classmethod(_rebuild(self._names)))


def _rebuild(names: dict[str, object]) -> Callable[..., bool | None]:
    """A `model_rebuild` that only notes the names that aiogram passes at import, and builds when called without."""
    inherited = vars(BaseModel)[_REBUILD]

    def rebuild(cls: type[BaseModel], *, force: bool = False, raise_errors: bool = True, **where: Any) -> bool | None:
        if (told := where.get("_types_namespace")) is not None:
            names.update(told if not names else {})
            return None
        build = inherited.__get__(None, cls)
        built: bool | None = build(force=force, raise_errors=raise_errors, _types_namespace=names)
        return built

    return rebuild
