"""The laws that an aggregate declares, tried on samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

from hayase.core.algebra import Aggregate, Partial
from hayase.core.errors import DeclarationError

__all__ = ["check_laws"]


def check_laws(aggregate: Aggregate, samples: Sequence[Any], *, rounding: float = 1e-9) -> None:
    """Try the declared laws on all triples of samples; a DeclarationError tells the first that is broken, and for what.

    A sample is an argument, or the tuple of arguments of an aggregate of two or more. Two partials count as the same if
    nobody can tell them apart: they have the same value, and combined with any sample on either side still have. Floats
    may differ by `rounding`, relatively. Ten samples are many.

    >>> import pyarrow as pa
    >>> from hayase.core.algebra import user_aggregate
    >>> wrong = user_aggregate("spread", lift=float, combine=lambda a, b: b - a, result=pa.float64())
    >>> check_laws(wrong, [1, 2, 5])
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: spread is not associative: (ab)c is 1.0 and a(bc) is -1.0 for a = 1, b = 1, c = 1; ...
    """
    _Trial(aggregate, samples, rounding).run()


class _Trial:
    """The samples, lifted, and the laws tried on them."""

    def __init__(self, aggregate: Aggregate, samples: Sequence[Any], rounding: float):
        self.aggregate, self.samples, self.rounding = aggregate, samples, rounding
        self.lifted = [aggregate.lift(*(each if aggregate.arity > 1 else (each,))) for each in samples]

    def run(self) -> None:
        laws, combine, empty = self.aggregate.laws, self.aggregate.combine, self.aggregate.empty()
        values = [self.aggregate.lower(each) for each in self.lifted]
        named = [(repr(sample), each) for sample, each in zip(self.samples, self.lifted)]
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
        told = self._difference(one, other)
        if told is not None:
            first, second, context = told
            self._broken(what, f"{texts[0]} is {first!r} and {texts[1]} is {second!r}{context}", named)

    def _broken(self, what: str, how: str, named: Sequence[tuple[str, Partial]]) -> None:
        where = ", ".join(f"{letter} = {text}" for letter, (text, _) in zip("abc", named))
        raise DeclarationError(
            f"{self.aggregate.name} {what}: {how} for {where}", "mend combine, or do not declare the law"
        )

    def _difference(self, one: Partial, other: Partial) -> tuple[Any, Any, str] | None:
        """Two values in which the partials differ, and what they had to be combined with for it."""
        lower, combine = self.aggregate.lower, self.aggregate.combine
        first, second = lower(one), lower(other)
        if not self._equal(first, second):
            return first, second, ""
        for sample, each in zip(self.samples, self.lifted):
            for text, pair in (
                ("before", (combine(one, each), combine(other, each))),
                ("behind", (combine(each, one), combine(each, other))),
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
