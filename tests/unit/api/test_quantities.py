"""Durations, latencies, percents, frequencies and sizes mean exactly what they say."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from shadowrun_operator.api.quantities import (
    MILLION,
    Duration,
    Latency,
    Percent,
    PerSecond,
    Quantity,
    Size,
    kubernetes_quantity,
)

pytestmark = pytest.mark.operator


@pytest.mark.parametrize(
    ("text", "seconds"), [("168h", 604_800), ("90s", 90), ("1h30m", 5_400), ("0s", 0), ("1h1m1s", 3_661)]
)
def test_a_duration_is_a_number_of_seconds(text: str, seconds: int) -> None:
    assert Duration(text).seconds == seconds


@pytest.mark.parametrize(("text", "milliseconds"), [("2s", 2_000), ("100ms", 100), ("1s500ms", 1_500), ("0ms", 0)])
def test_a_latency_is_a_number_of_milliseconds(text: str, milliseconds: int) -> None:
    assert Latency(text).milliseconds == milliseconds
    assert Latency(text).seconds == milliseconds / 1000


@pytest.mark.parametrize(
    ("text", "millionths"),
    [("1%", 10_000), ("0.5%", 5_000), ("0.0001%", 1), ("99.95%", 999_500), ("100%", MILLION), ("100.0000%", MILLION)],
)
def test_a_percent_is_an_exact_number_of_millionths(text: str, millionths: int) -> None:
    assert Percent(text).millionths == millionths


@given(st.integers(min_value=0, max_value=MILLION), st.integers(min_value=0, max_value=4))
def test_every_percent_with_at_most_four_decimals_is_exact(millionths: int, decimals: int) -> None:
    rounded = millionths - millionths % 10 ** (4 - decimals)
    text = f"{Decimal(rounded) / 10_000:.{decimals}f}%"
    assert Percent(text).millionths == rounded


@pytest.mark.parametrize(("text", "thousandths"), [("2", 2000), ("0.5", 500), ("12.25", 12_250), ("0.001", 1)])
def test_a_frequency_is_an_exact_number_of_times_in_a_thousand_seconds(text: str, thousandths: int) -> None:
    assert PerSecond(text).thousandths == thousandths


@pytest.mark.parametrize(("text", "size"), [("64Ki", 65_536), ("1Mi", 1_048_576), ("4096", 4_096)])
def test_a_size_is_a_number_of_bytes(text: str, size: int) -> None:
    assert Size(text).bytes == size


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Duration, ""),
        (Duration, "1.5h"),
        (Duration, "30m1h"),
        (Duration, "7d"),
        (Duration, "-1s"),
        (Duration, "90s\n"),
        (Latency, "1m"),
        (Latency, "100"),
        (Percent, "1"),
        (Percent, "%"),
        (Percent, "101%"),
        (Percent, "100.1%"),
        (Percent, "0.00001%"),
        (Percent, "-1%"),
        (PerSecond, ".5"),
        (PerSecond, "0.0001"),
        (PerSecond, "-1"),
        (Size, "0"),
        (Size, "1Gi"),
        (Size, "100Mi"),
        (Size, "1.5Mi"),
    ],
)
def test_anything_else_is_refused_with_an_example(kind: type[Quantity], text: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        kind(text)


def test_a_field_keeps_the_text_and_refuses_with_the_same_words() -> None:
    field = TypeAdapter(Percent)
    assert field.dump_json(field.validate_python("0.50%")) == b'"0.50%"'
    with pytest.raises(ValidationError, match="not a percentage"):
        field.validate_python("half")


@pytest.mark.parametrize(
    ("written", "amount"),
    [(2, "2"), ("8", "8"), ("3k", "3000"), ("1.5Gi", "1610612736"), ("100m", "0.1"), ("2e3", "2000"), ("+1E", "1e18")],
)
def test_an_amount_is_read_as_kubernetes_writes_it(written: object, amount: str) -> None:
    assert kubernetes_quantity(written) == Decimal(amount)


@pytest.mark.parametrize("written", ["", "many", "1kk", "1K", "1 Gi", ".", "1e", "0x1", None, "1ee2", "١"])
def test_what_is_no_amount_is_none(written: object) -> None:
    assert kubernetes_quantity(written) is None
