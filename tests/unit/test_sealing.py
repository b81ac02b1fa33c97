from __future__ import annotations

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from deliveries.sealing import SealBroken, seal, unseal

_ROW = "endpoint:0199a0b2-0000-7000-8000-000000000001"
_ONE, _TWO = "first key of the tests " + "1" * 40, "second key of the tests " + "2" * 40

with_one = override_settings(SECRET_KEY=_ONE, SECRET_KEY_FALLBACKS=[])
rotated = override_settings(SECRET_KEY=_TWO, SECRET_KEY_FALLBACKS=[_ONE])
with_two = override_settings(SECRET_KEY=_TWO, SECRET_KEY_FALLBACKS=[])


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_what_was_sealed_opens_for_its_row(plain: str) -> None:
    with with_one:
        assert unseal(seal(plain, _ROW), _ROW) == plain


def test_a_token_never_contains_its_secret_and_is_never_the_same_twice() -> None:
    with with_one:
        first, second = seal("whsec_secret", _ROW), seal("whsec_secret", _ROW)
    assert "secret" not in first
    assert first != second


def test_a_token_moved_to_another_row_does_not_open() -> None:
    with with_one, pytest.raises(SealBroken):
        unseal(seal("whsec_secret", _ROW), _ROW.replace("1", "2"))


def test_a_token_changed_anywhere_does_not_open() -> None:
    with with_one:
        token = seal("whsec_secret", _ROW)
        for at in range(len(token) - 3):  # the last character of base64 may carry bits that mean nothing
            broken = token[:at] + ("B" if token[at] == "A" else "A") + token[at + 1 :]
            with pytest.raises(SealBroken) as caught:
                unseal(broken, _ROW)
            assert "whsec" not in str(caught.value)


@pytest.mark.parametrize("token", ["", ".", "plain text", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "k1.AAAA"])
def test_what_was_never_sealed_is_refused_and_not_given_back(token: str) -> None:
    with with_one, pytest.raises(SealBroken):
        unseal(token, _ROW)


def test_a_fallback_key_opens_what_it_sealed() -> None:
    with with_one:
        token = seal("whsec_secret", _ROW)
    with rotated:
        assert unseal(token, _ROW) == "whsec_secret"


def test_a_token_of_a_key_that_left_the_ring_does_not_open() -> None:
    with with_one:
        token = seal("whsec_secret", _ROW)
    with with_two, pytest.raises(SealBroken, match="not in the ring"):
        unseal(token, _ROW)


def test_a_cut_token_of_the_right_key_does_not_open() -> None:
    with with_one:
        key_id = seal("x", _ROW).partition(".")[0]
        with pytest.raises(SealBroken, match="cut short"):
            unseal(f"{key_id}.AAAA", _ROW)
