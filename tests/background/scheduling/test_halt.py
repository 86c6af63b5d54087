from gateway.background.scheduling.halt import Halt
from gateway.domain.settings import ModelSettings

WHY = "the key was refused"


def test_it_holds_until_the_models_are_configured_anew() -> None:
    settings = ModelSettings()
    halt = Halt(lambda: settings)
    assert halt.why is None

    halt.stop(WHY)
    settings = ModelSettings()
    assert halt.why == WHY

    settings = ModelSettings(primary="openai/gpt-x")
    assert halt.why is None
    settings = ModelSettings()
    assert halt.why is None


def test_it_can_be_lifted() -> None:
    halt = Halt(ModelSettings)
    halt.stop(WHY)
    halt.lift()

    assert halt.why is None
