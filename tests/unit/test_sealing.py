from __future__ import annotations

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from deliveries.sealing import SealBroken, key_id_of, key_ids, seal, unseal

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


def test_the_ring_names_its_keys_with_the_one_that_seals_first() -> None:
    with with_one:
        (one,) = key_ids()
        assert key_id_of(seal("whsec_secret", _ROW)) == one
    with rotated:
        two, former = key_ids()
        assert former == one
        assert key_id_of(seal("whsec_secret", _ROW)) == two


@pytest.mark.parametrize(
    "text", ["", ".", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "0.AAAA", "0123456789ab", "g" * 13]
)
def test_what_is_no_token_names_no_key(text: str) -> None:
    assert key_id_of(text) == ""


def test_a_token_of_one_purpose_does_not_open_for_another_of_the_same_row() -> None:
    with with_one:
        token = seal("PEM", f"{_ROW}:client_key")
        for other in (_ROW, f"{_ROW}:auth", f"{_ROW}:headers"):
            with pytest.raises(SealBroken):
                unseal(token, other)
