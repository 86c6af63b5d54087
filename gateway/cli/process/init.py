"""`supaclaw init`: connect a model and messengers in the terminal, as the page's Setup does."""

import asyncio
import logging
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from gateway.cli.connections.database import require_owner, with_database
from gateway.cli.connections.local_gateway import ensure_gateway
from gateway.cli.people.channels import qr_picture
from gateway.cli.terminal.console import echo, show_after_a_second
from gateway.cli.terminal.output import ask, ask_secret_line, ask_yes_or_no
from gateway.config.channels import enabled_channels
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.domain.errors import SupaclawError
from gateway.domain.people.credentials import CODE_MINUTES
from gateway.flow.people import Pairing
from gateway.flow.setup import (
    ChannelForm,
    Connected,
    Setup,
    channel_forms,
    connect_channel,
    connect_model,
    connect_transcription,
    transcription_offers,
)
from gateway.llm.client import Description, build_client
from gateway.llm.vendors import UnknownVendor, Vendor, vendor_of
from gateway.logs import SecretMask, logging_to
from gateway.store.connection.pool import Database


def init() -> None:
    """Connect a model and your messengers, step by step. Enter skips a step; run it again at any time."""
    from gateway.app.storage.offline import StoredSecrets

    environment = Environment.read(os.environ)
    secrets = StoredSecrets(environment, os.environ)
    config = partial(load, environment.config, os.environ, secrets)
    mask = SecretMask()
    setup = Setup(environment, os.environ, SystemClock(), config, mask.add, secrets)
    _connect_model(setup, mask)
    _connect_transcription(setup)
    for form in channel_forms():
        _connect_channel(setup, form, mask)
    if running_pid(environment.data) is None:
        echo("`supaclaw up` starts the gateway, `supaclaw web` prints a link to its page.")


def _connect_model(setup: Setup, mask: SecretMask) -> None:
    in_use = asyncio.run(_model_in_use(setup))
    echo(f"Model: {in_use.active} ({in_use.why})")
    if in_use.offered and ask_yes_or_no(f"Use {in_use.offered} on this machine?"):
        with _errors_printed():
            return _report(_tested(mask, connect_model(setup, "", model=in_use.offered)))
    while key := ask_secret_line("API key of any provider (Enter: skip)"):
        with _errors_printed():
            vendor = _vendor(key)
            return _report(_tested(mask, connect_model(setup, key, vendor.prefix, ask("Model", vendor.model or ""))))
    return None


def _connect_transcription(setup: Setup) -> None:
    for model, price in asyncio.run(transcription_offers(setup)).items():
        if ask_yes_or_no(f"Transcribe voice notes with {model} ({price})?"):
            return _report(connect_transcription(setup, model))
    return None


async def _model_in_use(setup: Setup) -> Description:
    client = await build_client(setup.config().models, setup.environ, setup.clock)
    await client.close()
    return client.describe()


def _vendor(key: str) -> Vendor:
    try:
        return vendor_of(key)
    except UnknownVendor as error:
        echo(error, error=True)
        return vendor_of(key, ask(f"Provider ({', '.join(each.prefix for each in error.vendors)})"))


def _connect_channel(setup: Setup, form: ChannelForm, mask: SecretMask) -> None:
    connected = form.name in enabled_channels(setup.config().channels)
    question = f"{form.title} is connected. Connect it again?" if connected else f"Connect {form.title}?"
    if not ask_yes_or_no(question):
        return
    echo(form.steps)
    if form.copy:
        echo(f"\n{form.copy}")
    done: Connected | None = None
    while done is None:
        answers = {field: ask_secret_line(f"{about.rstrip('.')} (Enter: skip)") for field, about in form.fields.items()}
        if not all(answers.values()):
            return
        with _errors_printed():
            done = _tested(mask, connect_channel(setup, form.name, answers))
        if not (done or form.fields):
            return
    _report(done)
    if not done.paste:
        _link_own_account(form, done.link)


def _link_own_account(form: ChannelForm, link: str) -> None:
    """Link the owner's own account on the messenger, which proves itself by a code."""
    if not form.fields:
        echo(f"Now link the account: `supaclaw channel login {form.name}`, with the gateway running.")
    else:
        with ensure_gateway(), suppress(KeyboardInterrupt):
            with_database(lambda database: _wait_for_owner(database, form, link))


async def _wait_for_owner(database: Database, form: ChannelForm, link: str) -> None:
    owner = await database.read(require_owner)
    if any(identity.startswith(f"{form.name}:") for identity in owner.identities):
        return
    pairing = Pairing(database)
    code = await pairing.offer()
    if link:
        echo(f"{qr_picture(link + code)}\nOpen {link}{code} (or scan this with your phone) and press Start.")
    else:
        echo(f"Send this to your agent on {form.title}, in a private chat from your own account: /link {code}")
    echo("Waiting for it; Ctrl-C skips it.")
    for _ in range(CODE_MINUTES * 60):
        if claim := next((each for each in await pairing.claims() if each.code == code), None):
            is_owner = ask_yes_or_no(f"{claim} entered the code. Is that you?")
            await pairing.answer(code, join=is_owner)
            echo("Your account is linked." if is_owner else "Not linked; run `supaclaw init` for a new code.")
            return
        await asyncio.sleep(1)
    echo(f"Nobody entered the code within {CODE_MINUTES} minutes; run `supaclaw init` again for a new one.", error=True)


@contextmanager
def _errors_printed() -> Iterator[None]:
    """Print an error of the block, after which another answer may do better."""
    try:
        yield
    except SupaclawError as error:
        echo(error, error=True)


def _tested(mask: SecretMask, work: Coroutine[object, object, Connected]) -> Connected:
    with show_after_a_second("testing …"), logging_to(None, mask, level=logging.CRITICAL):
        return asyncio.run(work)


def _report(connected: Connected) -> None:
    echo(f"Connected: {connected.who}")
    if connected.paste:
        echo(f"{connected.file} can't be written to from here; put this into it:\n{connected.paste}")
