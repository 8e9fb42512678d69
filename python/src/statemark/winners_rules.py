"""Rules by which topics are repaired, as `statemark.latest` compares them with its own."""

from __future__ import annotations

import functools
import json
import logging
from typing import TYPE_CHECKING

from statemark import _jvm
from statemark.errors import SettingsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)


def refuse_other_rule(df: DataFrame, *, strategy: str, header: str | None) -> None:
    """Refuse a rule by which the topics that a table reads are not repaired.

    Parameters
    ----------
    df : DataFrame
        The records. Where they are no stream of Spark's Kafka source, nothing is looked at, which
        the log says once.
    strategy, header : str
        The rule, as `latest` takes it.

    Raises
    ------
    SettingsError
        If another rule is noted of a topic in the commit topic that the source's options name.
    """
    told = _jvm.rules_of(df)
    if told is None:
        _say_once("its session is of Spark Connect, or lacks Statemark's jar")
        return
    found = json.loads(told)
    for rule in found["rules"]:
        noted = rule.get("header")
        if (rule["strategy"], noted) != (strategy, header):
            named = "" if noted is None else f", header={noted!r}"
            asked = "" if header is None else f", header={header!r}"
            problem = f"strategy={strategy!r}{asked} is refused for topic {rule['topic']}"
            raise SettingsError(
                problem,
                reason=f"{rule['text']}, and the winners of another rule are others",
                remedy=f"pass strategy={rule['strategy']!r}{named}; or change the rule of the topic"
                " with statemark topic compact --change-rule",
            )
    if "notLooked" in found:
        _say_once(found["notLooked"])


@functools.cache
def _say_once(why: str) -> None:
    _log.warning(
        "statemark.latest did not look by which rule the topic of its records is repaired: %s", why
    )
