"""A served gateway, a browser, and a gateway as a process of its own."""

from tests.browser.conftest import browser
from tests.journeys.conftest import gateway, models, process, telegram
from tests.web.conftest import running, web

__all__ = ["browser", "gateway", "models", "process", "running", "telegram", "web"]
