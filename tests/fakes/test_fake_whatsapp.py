"""The fake library keeps to what the real one does."""

import asyncio
import ctypes
from pathlib import Path

import pytest

from tests.contract.whatsapp import whatsapp_on
from tests.fakes.eventually import eventually
from tests.fakes.log import Log
from tests.fakes.whatsapp import FakeWhatsApp, event, fill


def test_what_ctypes_could_not_pass_on_is_refused() -> None:
    with FakeWhatsApp() as whatsapp, pytest.raises((ctypes.ArgumentError, TypeError)):
        whatsapp.SendMessage("not bytes", b"", 0, b"", 0)


def test_functions_take_as_many_arguments_as_the_real_ones() -> None:
    with FakeWhatsApp() as whatsapp, pytest.raises(ValueError, match="zip"):
        whatsapp.Logout(b"id", b"more")


def test_functions_that_the_real_library_lacks_are_missing() -> None:
    with FakeWhatsApp() as whatsapp, pytest.raises(AttributeError):
        whatsapp.Teleport(b"id")


def test_every_required_field_is_filled() -> None:
    message = fill(event("Message"))
    assert message.IsInitialized()
    assert message.Info.MessageSource.SenderAlt.User == ""


def test_the_library_is_put_back() -> None:
    from neonize import _binder

    real = _binder.gocode
    with FakeWhatsApp() as whatsapp:
        assert _binder.gocode is whatsapp
    assert _binder.gocode is real


async def test_events_nobody_asked_for_are_not_delivered(tmp_path: Path) -> None:
    log = Log()
    with FakeWhatsApp() as whatsapp:
        channel = whatsapp_on(tmp_path, log)
        channel.login()
        await channel.open()
        await eventually(lambda: channel.trouble == "")
        heard_at = channel.heard_at
        whatsapp.push(event("HistorySync"))
        await eventually(lambda: whatsapp.quiet)
        await asyncio.sleep(0)
        assert channel.heard_at == heard_at
        await channel.close()
