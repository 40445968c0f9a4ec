"""The forms of /docs, which send the requests that they show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.system.conftest import Up


def test_a_request_can_be_tried(browser: Browser, up: Up) -> None:
    """Forms send the example body and an id in the path, and show a refusal with its remedy; nothing is logged."""
    page = browser.new_page()
    complaints: list[Any] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(f"{up.url}/docs")

    def send(method: str, path: str, **values: str) -> Any:
        form = page.locator(f'form[data-method={method}][data-path="{path}"]')
        form.evaluate("form => { form.closest('details').open = true }")
        for name, value in values.items():
            form.locator(f"[name={name}]").fill(value)
        form.locator("button").click()
        return form.locator("output")

    expect(send("POST", "/v1/datasets/synthetic")).to_contain_text('"n": 500')
    id_ = str(page.locator('form[data-path="/v1/datasets/synthetic"] output').text_content()).split('"id": "')[1][:35]
    expect(send("GET", "/v1/datasets/{id}", id=id_)).to_contain_text("200 OK")
    expect(send("POST", "/v1/datasets")).to_contain_text('"n": ')  # the example of the body and its type
    assert complaints == []
    expect(send("GET", "/v1/datasets/{id}", id="ds_none")).to_contain_text("404")
    page.close()
