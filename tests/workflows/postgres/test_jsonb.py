import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DataError, connection, transaction

from workflows.postgres.jsonb import (
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_SCALE,
    Malformed,
    Unstorable,
    as_json,
    ensure_dump_storable,
    ensure_storable,
    parse,
)
from workflows.redaction import scrub


def nested(levels: int) -> str:
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "malformed_json"),
        (b'{"a":1}x', "malformed_json"),
        (b'{"a":"\x00"}', "malformed_json"),
        (b'{"a":01}', "malformed_json"),
        (b'{"a":"\\x"}', "malformed_json"),
        (b'{"a":"' + b'\\"' * 100_000, "malformed_json"),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
        (b'{"a":"\xff"}', "not_utf8"),
        (b'{"a":"\xed\xa0\x80"}', "not_utf8"),
        (b"\xef\xbb\xbf{}", "byte_order_mark"),
        ('{"a":1}'.encode("utf-16"), "not_utf8"),
    ],
)
def test_what_is_no_object_is_malformed(body: bytes, code: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse(body)
    assert caught.value.code == code


UNSTORABLE = [
    (r'{"a":"\u0000"}', "null_character"),
    (r'{"\u0000":1}', "null_character"),
    (r'{"a":[{"b":"x\\\u0000"}]}', "null_character"),
    (r'{"a":"\ud800"}', "lone_surrogate"),
    (r'{"a":"\uDFff"}', "lone_surrogate"),
    (r'{"a":["\udc00\ud800"]}', "lone_surrogate"),
    (r'{"\ud800":1}', "lone_surrogate"),
    ('{"a":NaN}', "not_finite"),
    ('{"a":[-Infinity]}', "not_finite"),
    ('{"a":1e-16384}', "number_out_of_range"),
    ('{"a":0.' + "1" * 16_384 + "}", "number_out_of_range"),
]

UNREADABLE = [
    ('{"a":1e999}', "number_out_of_range"),
    (f'{{"a":1e-{MAX_SCALE + 1}}}', "number_out_of_range"),
    ('{"a":0.' + "1" * (MAX_SCALE + 1) + "}", "number_out_of_range"),
    ('{"a":-1E400}', "number_out_of_range"),
    ('{"a":0e99999999999999999999}', "number_out_of_range"),
    ('{"a":' + "9" * (MAX_DIGITS + 1) + "}", "number_out_of_range"),
    (nested(MAX_DEPTH + 1), "too_deep"),
    ('{"a":' + "[" * 100_000, "too_deep"),
    ('{"a":1,"a":1}', "duplicate_name"),
    (r'{"b":{"a":1,"\u0061":2}}', "duplicate_name"),
]


@pytest.mark.parametrize(("text", "code"), UNSTORABLE + UNREADABLE)
def test_what_cannot_be_kept_is_refused(text: str, code: str) -> None:
    with pytest.raises(Unstorable) as caught:
        parse(text.encode())
    assert caught.value.code == code


@pytest.mark.django_db
def test_postgresql_would_refuse_it_too() -> None:
    for text, _ in UNSTORABLE:
        with pytest.raises(DataError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT %s::jsonb", [text])


@pytest.mark.django_db
def test_what_is_accepted_is_kept_and_read_back() -> None:
    for text in [
        "{}",
        ' {"a" : [true, false, null, -0, 0.1, ""]}\n',
        r'{"a":"\ud83d\ude00 \u00e9 \\u0000 \\ud800 \b"}',
        '{"é":"😀"}',
        '{"a":1e22, "b":1e-400, "c":-5e-324, "d":12345678901234567890.10}',
        '{"a":0.' + "1" * MAX_SCALE + "}",
        '{"a":' + "9" * MAX_DIGITS + "}",
        nested(MAX_DEPTH),
        '{"a":[' + "[]," * 1000 + "[]]}",
        '{"a":"' + "[{" * 1000 + '\\""}',
        '{"a":{"b":1},"b":{"a":1}}',
    ]:
        document = parse(text.encode())
        assert document.value == json.loads(text)
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s::jsonb", [document.text])
            [stored] = cursor.fetchone() or [None]
        assert json.loads(stored) == document.value


def test_no_message_holds_a_value() -> None:
    for text, _ in UNSTORABLE + UNREADABLE:
        with pytest.raises(Unstorable) as caught:
            parse(text.replace("{", '{"canary":"canary",', 1).encode())
        assert "canary" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_document_does_not_print_itself() -> None:
    assert "canary" not in repr(parse(b'{"a":"canary"}'))


@pytest.mark.parametrize("value", [None, True, "é", 0, -1.5, [10**MAX_DIGITS - 1], {"a": [1, {"b": ()}]}])
def test_a_steps_result_that_is_json_is_storable(value: Any) -> None:
    ensure_storable(value)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("canary\x00", "null_character"),
        ({"canary\x00": 1}, "null_character"),
        (["canary\ud800"], "lone_surrogate"),
        (float("nan"), "not_finite"),
        ({"canary": -float("inf")}, "not_finite"),
        ([10**MAX_DIGITS], "number_out_of_range"),
        ([-(10**MAX_DIGITS)], "number_out_of_range"),
        ({"canary": {1: 2}}, "not_json"),
        ({"canary": {"canary"}}, "not_json"),
        (b"canary", "not_json"),
    ],
)
def test_a_steps_result_that_is_not_is_refused_without_quoting_it(value: Any, code: str) -> None:
    with pytest.raises(ValueError, match=r"\.$") as caught:
        ensure_storable(value)
    assert isinstance(caught.value, Unstorable)
    assert caught.value.code == code
    assert scrub(str(caught.value)) == str(caught.value), "none of it is masked as somebody's number"
    assert "canary" not in str(caught.value)


DEEP: Any = 1
for _ in range(MAX_DEPTH):
    DEEP = [DEEP]


@pytest.mark.parametrize("check", [as_json, ensure_dump_storable])
@pytest.mark.parametrize(
    "value",
    ["canary\x00", "canary\ud800", float("nan"), float("inf"), -float("inf"), [10**MAX_DIGITS], DEEP],
    ids=["NUL", "surrogate", "nan", "inf", "-inf", "long", "deep"],
)
def test_a_result_that_cannot_be_kept_is_refused(check: Callable[[Any], Any], value: Any) -> None:
    """Also where its JSON alone is looked at."""
    check({"plain": [1, "ä", {"b": 1.5}]})
    with pytest.raises(ValueError):  # noqa: PT011 (pydantic's is one, too)
        check({"canary": value})


def test_a_result_that_holds_itself_is_too_deep() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(Unstorable) as caught:
        ensure_storable(value)
    assert caught.value.code == "too_deep"
