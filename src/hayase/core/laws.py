"""Checks the laws that an aggregate declares (associative, commutative, ...) on samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

from hayase.core.algebra import Aggregate, Partial
from hayase.core.errors import DeclarationError

__all__ = ["check_laws"]


def check_laws(aggregate: Aggregate, samples: Sequence[Any], *, rounding: float = 1e-9) -> None:
    """Check the declared laws on all triples of samples; raise DeclarationError for the first one that does not hold.

    A sample is an argument, or a tuple of arguments if the aggregate takes several. Two partials are considered equal if
    their values are equal, also after combining them with any sample on either side. Floats may differ by the relative
    error `rounding`. Ten samples are many.

    >>> import pyarrow as pa
    >>> from hayase.core.algebra import user_aggregate
    >>> wrong = user_aggregate("spread", lift=float, combine=lambda a, b: b - a, result=pa.float64())
    >>> check_laws(wrong, [1, 2, 5])
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: spread is not associative: (ab)c is 1.0 and a(bc) is -1.0 for a = 1, b = 1, c = 1; ...
    """
    _Trial(aggregate, samples, rounding).run()


class _Trial:
    """Lifted samples, and the check of the laws on them."""

    def __init__(self, aggregate: Aggregate, samples: Sequence[Any], rounding: float):
        self.aggregate, self.samples, self.rounding = aggregate, samples, rounding
        self.lifted = [aggregate.lift(*(sample if aggregate.arity > 1 else (sample,))) for sample in samples]

    def run(self) -> None:
        laws, combine, empty = self.aggregate.laws, self.aggregate.combine, self.aggregate.empty()
        values = [self.aggregate.lower(lifted) for lifted in self.lifted]
        named = [(repr(sample), lifted) for sample, lifted in zip(self.samples, self.lifted)]
        for a in named:
            self._same("has no neutral empty partial", ("a with empty", "a"), combine(a[1], empty), a[1], a)
            self._same("has no neutral empty partial", ("empty with a", "a"), combine(empty, a[1]), a[1], a)
            if laws.idempotent:
                self._same("is not idempotent", ("aa", "a"), combine(a[1], a[1]), a[1], a)
        if laws.commutative:
            for a, b in product(named, named):
                self._same("is not commutative", ("ab", "ba"), combine(a[1], b[1]), combine(b[1], a[1]), a, b)
        if laws.associative:
            for a, b, c in product(named, named, named):
                left, right = combine(combine(a[1], b[1]), c[1]), combine(a[1], combine(b[1], c[1]))
                self._same("is not associative", ("(ab)c", "a(bc)"), left, right, a, b, c)
        if laws.invertible:
            for a, (b, c) in product(named, combinations([*named, ("nothing", empty)], 2)):
                one, other = combine(a[1], b[1]), combine(a[1], c[1])
                if self._difference(one, other) is None and self._difference(b[1], c[1]) is not None:
                    how = f"ab and ac are both {self.aggregate.lower(one)!r}"
                    self._broken("is not invertible", how, (a, b, c))
        for before, a in zip(values, named):
            if not self._equal(before, self.aggregate.lower(a[1])):
                self._broken("changes the partials that it combines", f"a was {before!r}", (a,))

    def _same(
        self, what: str, texts: tuple[str, str], one: Partial, other: Partial, *named: tuple[str, Partial]
    ) -> None:
        difference = self._difference(one, other)
        if difference is not None:
            first, second, context = difference
            self._broken(what, f"{texts[0]} is {first!r} and {texts[1]} is {second!r}{context}", named)

    def _broken(self, what: str, how: str, named: Sequence[tuple[str, Partial]]) -> None:
        where = ", ".join(f"{letter} = {text}" for letter, (text, _) in zip("abc", named))
        raise DeclarationError(
            f"{self.aggregate.name} {what}: {how} for {where}", "fix combine, or do not declare the law"
        )

    def _difference(self, one: Partial, other: Partial) -> tuple[Any, Any, str] | None:
        """Return two values in which the partials differ and the sample they were combined with; None if they are equal."""
        lower, combine = self.aggregate.lower, self.aggregate.combine
        first, second = lower(one), lower(other)
        if not self._equal(first, second):
            return first, second, ""
        for sample, lifted in zip(self.samples, self.lifted):
            for text, pair in (
                ("before", (combine(one, lifted), combine(other, lifted))),
                ("behind", (combine(lifted, one), combine(lifted, other))),
            ):
                first, second = lower(pair[0]), lower(pair[1])
                if not self._equal(first, second):
                    return first, second, f" {text} {sample!r}"
        return None

    def _equal(self, one: Any, other: Any) -> bool:
        if isinstance(one, float) and isinstance(other, float):
            both_nan = math.isnan(one) and math.isnan(other)
            return both_nan or math.isclose(one, other, rel_tol=self.rounding)
        return bool(one == other)
