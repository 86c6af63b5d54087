"""Plug-ins: the files of a package, each of which offers one thing by a fixed name."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from gateway.domain.errors import OwnerMustAct


def offers(package: str, name: str, kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield each file of a package by its name, and its `name`, which is of this kind; raises `OwnerMustAct`."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if not module.ispkg:
            file = f"{package}.{module.name}"
            try:
                offered = getattr(importlib.import_module(file), name)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise OwnerMustAct(f"{file} can't be loaded; fix or remove this file. {reason}") from error
            if not isinstance(offered, kind):
                raise OwnerMustAct(f"{file}: its `{name}` is not a {kind.__name__}; fix or remove this file")
            yield module.name, offered
