"""Form fields of an endpoint: text that stands for something else, and secrets that are only written."""

from __future__ import annotations

import json
from typing import Any

from django import forms

PEM = {"rows": 4, "spellcheck": "false", "class": "relay-mono", "autocomplete": "off"}


class Parsed(forms.CharField):
    """Text that stands for a list or a mapping; it changed when what it stands for did."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compared by meaning, so that a blank line more is no change."""
        try:
            return bool(self.to_python(initial) != self.to_python(data))
        except forms.ValidationError:
            return True


class Lines(Parsed):
    """A list of texts, one on each line."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        """The lines that are not empty."""
        return [line.strip() for line in (value or "").splitlines() if line.strip()]


class Headers(Lines):
    """Header lines, `Name: value`. A refusal names lines and not what stands in them."""

    def to_python(self, value: Any) -> Any:
        """Names with their values; a line without a colon, or a name that comes twice, is refused."""
        found: dict[str, str] = {}
        for number, line in enumerate(super().to_python(value), start=1):
            name, colon, text = line.partition(":")
            if not colon:
                raise forms.ValidationError(f"Line {number} is not of the form “Name: value”.")
            if name.strip() in found:
                raise forms.ValidationError(f"Line {number}: {name.strip()[:60]} is named twice.")
            found[name.strip()] = text.strip()
        return found


class Seconds(Parsed):
    """Numbers of seconds between commas."""

    def to_python(self, value: Any) -> Any:
        """The numbers."""
        try:
            return [int(part) for part in (value or "").replace(" ", "").split(",") if part]
        except ValueError:
            raise forms.ValidationError("Whole seconds between commas, such as 5, 300, 1800.") from None


class Words(Parsed):
    """Words between spaces."""

    def to_python(self, value: Any) -> Any:
        """The words."""
        return (value or "").split()


class Json(Parsed):
    """A JSON value; nothing for none."""

    widget = forms.Textarea(attrs={"rows": 5, "spellcheck": "false", "class": "relay-mono"})

    def to_python(self, value: Any) -> Any:
        """The value."""
        if not (value or "").strip():
            return None
        try:
            return json.loads(value, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            at = f": line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            raise forms.ValidationError(f"This is not JSON{at}.") from None


class Pem(Parsed):
    """Certificates; line ends do not matter."""

    widget = forms.Textarea(attrs=PEM)

    def to_python(self, value: Any) -> Any:
        """The text with the line ends of PEM; None for none."""
        text = "\n".join(line.strip() for line in (value or "").strip().splitlines())
        return f"{text}\n" if text else None


class UnreadTextarea(forms.Textarea):
    """A text area that never shows a value, not even the one that was just sent."""

    def format_value(self, value: Any) -> None:
        """Nothing."""


class SecretText(forms.CharField):
    """A secret on one line; empty when it is to stay as it is. What was sent is not shown again."""

    def __init__(self, **options: Any) -> None:
        widget = forms.PasswordInput(attrs={"autocomplete": "new-password", "spellcheck": "false"}, render_value=False)
        super().__init__(required=False, widget=widget, strip=False, **options)


class SecretPem(Pem):
    """A key; empty when it is to stay as it is."""

    widget = UnreadTextarea(attrs=PEM)


class SecretHeaders(Headers):
    """Header lines whose values are secret; none when they are to stay as they are."""

    widget = UnreadTextarea(attrs={"rows": 3, "spellcheck": "false", "autocomplete": "off"})


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
