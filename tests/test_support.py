"""What tests share does what they take for granted."""

from support.modes import pairs


def test_pairs_have_each_value_and_no_product() -> None:
    rows = pairs(("a", "b", "c"), ("1", "2"), is_whole=False)
    assert rows == [("a", "1"), ("b", "2"), ("c", "1")]
    assert pairs(("a",), ("1", "2"), is_whole=False) == [("a", "1"), ("a", "2")]


def test_the_whole_is_a_product() -> None:
    rows = pairs(("a", "b", "c"), ("1", "2"), is_whole=True)
    assert len(set(rows)) == 6
