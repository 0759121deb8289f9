"""A page in Chromium, with the network off; the fixture ``browser`` is in conftest.py."""

from typing import Any


def visit(browser: Any, address: str, wrong: list[str], **context: Any) -> Any:
    """Open the page; what it requests, says or asks is ``wrong``."""
    page = browser.new_context(offline=True, **context).new_page()
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    own = (address, "data:", "blob:")
    page.on("request", lambda r: None if r.url.startswith(own) else wrong.append(r.url))
    page.goto(address)
    return page
